package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// twoTokens is an execution of a layer with two tokens, of two sequences: the cache's cells 5 and 9 are written, 0
// to 2 and 5 may be read.
var twoTokens = batchOf{
	graph: 1, at: 3000, tokens: []int32{7, 90}, cells: []int64{5, 9}, experts: []int32{2, 0, 0, 2},
	ranges: []ggmlhooks.CellRange{{Row: 0, First: 0, End: 2}, {Row: 1, First: 1, End: 3}, {Row: 1, First: 5, End: 6}},
}

// TestRows: every operand of every op is recorded, in order: the rows that are looked up and written, the cells that
// the mask shows and those that it hides, the experts that were chosen. What computes nothing, or works on nothing,
// is not.
func TestRows(t *testing.T) {
	b := newBed(t, Options{})
	b.graph(layer(1, 2))
	b.run(twoTokens)
	got := slices.DeleteFunc(b.rows(), func(row string) bool { return strings.HasPrefix(row, "-") })
	want := []string{
		"0 0 read weight 224 32 1 - 0 3 0 -", "0 0 read weight 2880 32 1 - 0 4 1 -",
		"0 1 read activation 0 8 1 - 0 3 - -", "0 -1 write activation 1024 64 1 - 0 3 - -",
		"1 0 read weight 3200 128 1 - 0 3 - -", "1 1 read activation 1024 64 1 - 0 3 - -",
		"1 -1 write activation 2048 32 1 - 0 3 - -",
		"2 0 read activation 2048 32 1 - 0 3 - -", "2 1 read activation 64 16 1 - 0 3 - -",
		"2 -1 write kv_cache 144 16 1 - 0 3 0 1", "2 -1 write kv_cache 208 16 1 - 0 4 1 2",
		"4 0 read kv_cache 64 48 1 - 0 3 - 0", "4 0 read kv_cache 144 16 1 - 0 3 - 1",
		"4 0 read kv_cache 112 32 1 - 2 3 - -", "4 0 read kv_cache 160 32 1 - 2 3 - 1",
		"4 1 read activation 2048 32 1 - 0 3 - -", "4 -1 write activation 3072 64 1 - 1 3 - -",
		"5 0 read activation 3072 64 1 - 1 3 - -", "5 1 read activation 128 64 1 - 0 3 - -",
		"5 -1 write activation 3072 64 1 - 1 3 - -",
		"6 0 read activation 1024 64 1 - 0 3 - -", "6 1 read activation 3072 64 1 - 1 3 - -",
		"6 -1 write activation 1024 64 1 - 1 3 - -",
		"7 0 read activation 1024 64 1 - 1 3 - -", "7 -1 write activation 3584 64 1 - 0 3 - -",
		"9 0 read activation 3584 64 1 - 0 3 - -", "9 -1 write activation 512 16 1 - 0 3 - -",
		"10 0 read weight 4096 64 1 - 0 3 - -", "10 0 read weight 4224 64 1 - 0 3 - -",
		"10 1 read activation 3584 64 1 - 0 3 - -", "10 2 read activation 512 16 1 - 0 3 - -",
		"10 -1 write activation 4096 32 1 - 1 3 - -",
		"12 0 read activation 4096 32 1 - 1 3 - -", "12 1 read activation 0 8 1 - 0 3 - -",
		"12 -1 write activation 256 32 1 - 0 3 - -",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d := b.r.Doubts(); d != (memtrace.Ledger{Mode: ModeRows, Executions: 1, Accesses: int64(len(want))}) {
		t.Errorf("%+v", d)
	}
	r, err := table.NewReader(bytes.NewReader(b.parts[0].Bytes()))
	b.must(err)
	var kept memtrace.Ledger
	about, _ := r.Metadata(memtrace.LedgerKey)
	if version, _ := r.Metadata(table.VersionKey); version != table.Version ||
		json.Unmarshal([]byte(about), &kept) != nil || kept != b.r.Doubts() {
		t.Errorf("version %q, %s", version, about)
	}
}

// TestOtherColumns: what a row says of its execution, place and time.
func TestOtherColumns(t *testing.T) {
	b := newBed(t, Options{})
	b.graph(layer(1, 1))
	b.run(batchOf{graph: 1, at: 3000, tokens: []int32{7}, cells: []int64{5}, experts: []int32{1, 1},
		ranges: []ggmlhooks.CellRange{{First: 0, End: 8}}})
	var got []string
	for _, row := range b.rows("graph_seq", "op_seq", "operand", "ts_ns", "time_source", "phase", "collector", "ctx",
		"ggml_op", "layer", "device", "addr", "buffer_id", "count", "window_ns", "tid", "weight") {
		if strings.HasPrefix(row, "1 0 0 ") || strings.HasPrefix(row, "1 1 0 ") || strings.HasPrefix(row, "1 12 -1 ") {
			got = append(got, row)
		}
	}
	want := []string{
		"1 0 0 1003010 graph generation graph 0 GET_ROWS - CPU 65760 1 1 - - -",
		"1 1 0 1003010 graph generation graph 0 MUL_MAT 0 CPU 68736 1 1 - - -",
		"1 12 -1 1003010 graph generation graph 0 MUL 0 RPC0 - 4 1 - - -",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTimes: a row has the time at which the measured interval of its op began, and says whether that holds other ops.
func TestTimes(t *testing.T) {
	b := newBed(t, Options{})
	b.graph(layer(1, 1))
	b.run(batchOf{graph: 1, at: 3000, tokens: []int32{7}, cells: []int64{5}, experts: []int32{1, 1},
		ranges: []ggmlhooks.CellRange{{First: 0, End: 8}},
		times: []ggmlhooks.NodeTime{{Node: 0, DoneNS: 10, LeftNS: 15}, {Node: 2, DoneNS: 40, LeftNS: 44},
			{Node: 3, DoneNS: 50, LeftNS: 51}, {Node: 4, DoneNS: 60, LeftNS: 66}}})
	got := map[string]string{}
	for _, row := range b.rows("op_seq", "ts_ns", "time_source") {
		node, at, _ := strings.Cut(row, " ")
		got[node] = at
	}
	for node, want := range map[string]string{"0": "1003010 op", "1": "1003025 range", "2": "1003025 range",
		"4": "1003061 op", "5": "1003076 range", "12": "1003076 range"} {
		if got[node] != want {
			t.Errorf("node %s: %s, want %s", node, got[node], want)
		}
	}
}

// TestLoaded: where it was seen that the model was loaded, its weights were filled then; memory that came later is
// reported after that.
func TestLoaded(t *testing.T) {
	b := newBed(t, Options{})
	b.must(b.Context(&ggmlhooks.Context{LoadedNS: 6}))
	b.graph(layer(1, 1))
	b.run(batchOf{graph: 1, at: 3000, tokens: []int32{7}, cells: []int64{5}, experts: []int32{1, 1},
		ranges: []ggmlhooks.CellRange{{First: 0, End: 8}}})
	var got []string
	for _, row := range b.rows("phase", "graph_seq", "op", "ts_ns", "region_type", "size") {
		if before, found := strings.CutPrefix(row, "weight_load - "); found {
			got = append(got, before)
		}
	}
	want := []string{
		"alloc 1000005 weight 8192", "alloc 1000006 kv_cache 4096", "write 1000006 weight 3200",
		"write 1000006 weight 128", "write 1000006 weight 192",
		"alloc 1000007 compute_buffer 8192", "alloc 1000008 compute_buffer 4096",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPhases: memory that comes and goes, the loading of weights, warm-ups, the run and the work between are recorded
// apart, in order. Tokens of a warm-up are none of the run's.
func TestPhases(t *testing.T) {
	b := newBed(t, Options{})
	b.graph(layer(1, 1))
	one := batchOf{graph: 1, tokens: []int32{7}, cells: []int64{5}, experts: []int32{1, 1},
		ranges: []ggmlhooks.CellRange{{First: 0, End: 8}}}
	run := func(at int64, provisional bool, status int) {
		s := one
		s.at, s.provisional, s.status = at, provisional, status
		b.run(s)
	}
	run(2000, true, 0)
	b.must(b.Resolve(ggmlhooks.Resolve{Exec: 1, Discarded: true}))
	run(3000, true, 0)
	b.must(b.Resolve(ggmlhooks.Resolve{Exec: 2}))
	shift := layer(2, 0)
	shift.Nodes, shift.Leafs = shift.Nodes[:0], shift.Leafs[:3]
	sketch{shift}.node("k_shift", "ROPE", tensor(0, inCache, 64, 4, 16), -3)
	b.graph(shift)
	b.run(batchOf{graph: 2, at: 4000})
	b.graph(layer(3, 1))
	one.graph = 3
	run(5000, false, 1) // it failed
	run(6000, true, 0)  // it is never decided
	b.must(b.BufferEnd(ggmlhooks.BufferEnd{ID: inCompute, MonoNS: 9000}))
	var got []string
	for _, row := range b.rows("phase", "op", "graph_seq", "ggml_op", "region_type", "size", "flags", "step",
		"token_index") {
		if kind := strings.Fields(row)[3]; kind == "-" || kind == "MUL_MAT_ID" && strings.Contains(row, "weight") ||
			kind == "ROPE" {
			got = append(got, row)
		}
	}
	want := []string{
		"weight_load alloc - - weight 8192 0 - -", "weight_load write - - weight 3200 8 - -",
		"weight_load write - - weight 128 8 - -", "weight_load write - - weight 192 8 - -",
		"weight_load alloc - - kv_cache 4096 0 - -", "weight_load alloc - - compute_buffer 8192 0 - -",
		"weight_load alloc - - compute_buffer 4096 0 - -",
		"setup read 1 MUL_MAT_ID weight 64 0 - -", "generation read 2 MUL_MAT_ID weight 64 0 prefill 3",
		"maintenance read 3 ROPE kv_cache 256 0 - -", "maintenance write 3 ROPE kv_cache 256 0 - -",
		"generation read 5 MUL_MAT_ID weight 64 0 prefill 6",
		"teardown free - - compute_buffer 8192 0 - -",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d := b.r.Doubts(); d.Executions != 5 || d.Failed != 1 || d.Undecided != 0 {
		t.Errorf("%+v", d)
	}
}

// TestUnreported: what nobody reported of an execution is said to be unknown, or scattered, and never guessed.
func TestUnreported(t *testing.T) {
	b := newBed(t, Options{})
	g := layer(1, 2)
	g.Leafs[1].Name = "some index"
	sketch{g}.node("lost", "ADD", tensor(0, 99, 0, 4), 12)
	b.graph(g)
	b.run(batchOf{graph: 1, at: 3000, tokens: []int32{7, 8}})
	var got []string
	for _, row := range b.rows() {
		f := strings.Fields(row)
		if f[0] == "0" && f[1] == "0" || f[0] == "2" && f[1] == "-1" || f[0] == "4" && f[1] == "0" || f[0] == "10" &&
			f[1] == "0" {
			got = append(got, row)
		}
	}
	want := []string{"0 0 read weight 0 64 2 - 16 3 - -", "2 -1 write kv_cache 64 32 2 - 16 3 - -",
		"4 0 read kv_cache 64 128 1 - 0 3 - -", "10 0 read weight 4096 - - - 32 3 - -"}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d := b.r.Doubts(); d.Unreported != 4 || d.Unplaced != 1 {
		t.Errorf("%+v", d)
	}
	if err := b.Exec(&ggmlhooks.Exec{Number: 9, Graph: 77}); !errors.Is(err, ggmlhooks.ErrDesync) {
		t.Error(err)
	}
}

// TestWindows: sums by region and window are those of the rows.
func TestWindows(t *testing.T) {
	sums := func(o Options, of ...string) map[string]int64 {
		b := newBed(t, o)
		b.graph(layer(1, 2))
		for i := range int64(5) {
			s := twoTokens
			s.at = 3000 + 400*i
			b.run(s)
		}
		all := map[string]int64{}
		for _, row := range b.rows(append([]string{"size", "count"}, of...)...) {
			var size, count int64
			f := strings.Fields(row)
			if json.Unmarshal([]byte(f[0]), &size) != nil || json.Unmarshal([]byte(f[1]), &count) != nil {
				t.Fatal(row)
			}
			key := strings.Join(f[2:], " ")
			all[key+" bytes"] += size
			all[key+" accesses"] += count
		}
		return all
	}
	of := []string{"region_id", "region_type", "op", "phase", "flags", "ctx"}
	rows, windows := sums(Options{}, of...), sums(Options{Window: time.Microsecond}, of...)
	for key, n := range rows {
		if windows[key] != n {
			t.Errorf("%s: %d in windows, %d in rows", key, windows[key], n)
		}
	}
	if len(rows) != len(windows) || len(rows) < 20 {
		t.Errorf("%d sums of rows, %d of windows", len(rows), len(windows))
	}
	perWindow := sums(Options{Window: time.Microsecond}, "ts_ns", "window_ns", "region_type", "op")
	for key, want := range map[string]int64{
		"1003000 1000 weight read accesses": 3 * 5, "1004000 1000 weight read accesses": 2 * 5,
		"1003000 1000 kv_cache write bytes": 3 * 32, "1004000 1000 kv_cache write bytes": 2 * 32,
	} {
		if perWindow[key] != want {
			t.Errorf("%s: %d, want %d: %v", key, perWindow[key], want, perWindow)
		}
	}
}

// TestWindowsEndWithMemory: what was touched in a window comes before what it was touched in is freed.
func TestWindowsEndWithMemory(t *testing.T) {
	b := newBed(t, Options{Window: time.Hour})
	b.graph(layer(1, 2))
	b.run(twoTokens)
	b.must(b.BufferEnd(ggmlhooks.BufferEnd{ID: inDevice, MonoNS: 9000}))
	later := twoTokens
	later.at = 10000
	b.run(later)
	b.must(b.BufferEnd(ggmlhooks.BufferEnd{ID: inWeights, MonoNS: 20000}))
	freed, reads := map[string]bool{}, map[string]int{}
	for _, row := range b.rows("buffer_id", "op", "count") {
		f := strings.Fields(row)
		switch {
		case f[1] == "free":
			freed[f[0]] = true
		case f[1] == "read" && f[0] == "1" && freed[f[0]]:
			t.Errorf("read after its memory was freed: %s", row)
		case f[1] == "read":
			reads[f[0]]++
		}
	}
	if !freed["1"] || !freed["4"] || reads["1"] < 2 {
		t.Errorf("freed %v, reads %v", freed, reads)
	}
}

// TestNoAllocation: an execution of a known graph costs none, but for the table's own.
func TestNoAllocation(t *testing.T) {
	for _, window := range []time.Duration{0, time.Hour} {
		b := newBed(t, Options{Window: window})
		b.graph(layer(1, 1))
		exec := ggmlhooks.Exec{Graph: 1, TokenFirst: 3, Tokens: []int32{7}, Pos: []int32{3}}
		cells := ggmlhooks.Input{Leaf: leafCells, Values: []int64{5}}
		mask := ggmlhooks.Input{Leaf: leafMask, Kind: ggmlhooks.InputMask,
			Ranges: []ggmlhooks.CellRange{{First: 0, End: 6}}}
		capture := ggmlhooks.Capture{Node: nodeIDs, Type: 26, For: ggmlhooks.ForRouting,
			Data: []byte{1, 0, 0, 0, 2, 0, 0, 0}, Release: func() {}}
		step := func() {
			exec.Number++
			cells.Exec, mask.Exec, capture.Exec = exec.Number, exec.Number, exec.Number
			exec.MonoNS = int64(exec.Number) * 100
			b.must(errors.Join(b.Exec(&exec), b.Input(&cells), b.Input(&mask), b.Capture(&capture),
				b.ExecEnd(ggmlhooks.ExecEnd{Number: exec.Number, MonoNS: exec.MonoNS + 50})))
		}
		for range 2100 { // two batches, and some rows: packing allocates
			step()
		}
		if n := testing.AllocsPerRun(500, step); n > 1 {
			t.Errorf("window %v: %v allocations per execution", window, n)
		}
		b.must(errors.Join(b.Close(), b.table.Close()))
	}
}

// FuzzGraph: whatever a graph says of places and shapes, nothing breaks.
func FuzzGraph(f *testing.F) {
	f.Add(uint64(0), int64(3), int64(8), uint8(0), uint8(1))
	f.Add(uint64(1<<63), int64(-1), int64(1<<62), uint8(39), uint8(200))
	f.Add(uint64(64), int64(2), int64(5), uint8(8), uint8(2))
	f.Fuzz(func(t *testing.T, offset uint64, tokens, width int64, kind, which uint8) {
		b := newBed(t, Options{})
		g := layer(1, tokens)
		n := &g.Nodes[int(which)%len(g.Nodes)]
		n.Offset, n.NE[0], n.Type = offset, width, int(kind)
		l := &g.Leafs[int(which)%len(g.Leafs)]
		l.Offset, l.NE[1], l.Type, l.NB[1] = offset, width, int(kind), offset
		b.graph(g)
		b.run(twoTokens)
		b.rows()
	})
}
