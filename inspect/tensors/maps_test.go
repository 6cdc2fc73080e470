package tensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// mapRun writes a run with the attention of layer 3: one head of one dimension, three cells, two executions. The second
// overwrites cell
// 0. Logits are Q·K with Q = 1, so that the weights are those of the keys 0, ln 2, ln 4.
func mapRun(t *testing.T, change func(exec uint64, name string, p *stream.Packet) bool,
	records ...any) *Run {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "maps", time.Now())
	check(t, err)
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{Workers: 1, DType: 1})
	check(t, err)
	for _, r := range records {
		switch r := r.(type) {
		case stream.Execution:
			check(t, w.AppendExecution(&r))
		case stream.StateLoad:
			check(t, w.AppendStateLoad(r))
		}
	}
	ln2, hidden := float32(math.Log(2)), minusInf
	put := func(exec uint64, name string, first, n int64, ne [4]int64, data []byte, srcType int) {
		p := stream.Packet{Name: name, Node: name, Op: "ROPE", Occurrence: 1, Layer: 3, Exec: exec, NE: ne,
			Phase:      label.PhasePrefill,
			TokenFirst: first, TokenCount: int32(n), SrcType: srcType}
		if change == nil || change(exec, name, &p) {
			check(t, w.Append(&p, data, func() {}))
		}
	}
	floats := func(values ...float32) (data []byte) {
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		return data
	}
	cells := func(values ...uint64) (data []byte) {
		for _, v := range values {
			data = binary.LittleEndian.AppendUint64(data, v)
		}
		return data
	}
	put(7, "mask", 0, 2, [4]int64{3, 2, 1, 1}, floats(0, hidden, hidden, 0, 0, hidden), 0)
	put(7, "cells", 0, 2, [4]int64{2, 1, 1, 1}, cells(0, 1), 27)
	put(7, "K", 0, 2, [4]int64{1, 2, 1, 1}, floats(0, ln2), 0)
	put(7, "Q", 0, 2, [4]int64{1, 1, 2, 1}, floats(1, 1), 0)
	put(9, "mask", 2, 2, [4]int64{3, 2, 1, 1}, floats(hidden, 0, 0, 0, 0, 0), 0)
	put(9, "cells", 2, 2, [4]int64{2, 1, 1, 1}, cells(2, 0), 27)
	put(9, "K", 2, 2, [4]int64{1, 2, 1, 1}, floats(0, 2*ln2), 0)
	put(9, "Q", 2, 2, [4]int64{1, 1, 2, 1}, floats(1, 1), 0)
	put(10, "soft", 4, 4, [4]int64{2, 2, 2, 2}, floats(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), 0)
	check(t, w.Close())
	notes, err := json.Marshal([]attentionNote{{Layer: 3, Q: "Q", K: "K", Cells: "cells", Mask: "mask", HeadsKV: 1,
		HeadDim: 1, Scale: 1},
		{Layer: 5, Map: "soft"}, {Layer: 6, MaxBias: 8}, {Layer: 7, Q: "Q", Mask: "mask"}})
	check(t, err)
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, Losses: []rundir.Loss{},
		Extra: map[string]json.RawMessage{"attention": notes}}))
	r, err := Open(d.Path())
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func TestMapRows(t *testing.T) {
	r := mapRun(t, nil)
	want := []struct {
		weights []float64
		cells   string
	}{
		{[]float64{1, 0, 0}, "[0 1 -1]"}, {[]float64{1.0 / 3, 2.0 / 3, 0}, "[0 1 -1]"},
		{[]float64{0, 2.0 / 3, 1.0 / 3}, "[3 1 2]"}, {[]float64{4.0 / 7, 2.0 / 7, 1.0 / 7}, "[3 1 2]"},
	}
	next := 0
	check(t, newMap(t, r, MapOptions{Layer: 3}).EachRow(func(m *MapRow) error {
		closeTo(t, fmt.Sprint("token ", m.Token), m.Weights, want[next].weights...)
		if m.Token != int64(next) || fmt.Sprint(m.CellTokens) != want[next].cells {
			t.Errorf("row %d is of token %d, cells hold %v", next, m.Token, m.CellTokens)
		}
		next++
		return nil
	}))
	if next != 4 {
		t.Errorf("%d rows", next)
	}
	var b strings.Builder
	check(t, newMap(t, r, MapOptions{Layer: 3, First: 2, End: 3}).WriteText(&b))
	if b.String() != "2 attends to 0.667 1, 0.333 2\n" {
		t.Errorf("text is %q", b.String())
	}
	b.Reset()
	check(t, newMap(t, r, MapOptions{Layer: 3}).WriteNPY(&b))
	if !strings.Contains(b.String(), "'shape': (4, 3)") || b.Len()%64 != 4*3*4 {
		t.Errorf("npy of %d bytes: %q", b.Len(), b.String()[:80])
	}
}

// TestMapAfterShift: a shift rotates the keys in the cache, so that the captured ones are not those that are seen.
func TestMapAfterShift(t *testing.T) {
	r := mapRun(t, nil, stream.Execution{Exec: 8, Phase: label.PhaseMaintenance, TokenFirst: -1})
	rows := 0
	err := newMap(t, r, MapOptions{Layer: 3}).EachRow(func(*MapRow) error { rows++; return nil })
	if rows != 2 || err == nil || !strings.Contains(err.Error(), "token 2 sees keys that a context shift has moved") {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// TestMapAfterLoad: where a saved state was put back, cells may hold other keys than those that were captured. That
// of another context, or one before they were captured, is of no interest.
func TestMapAfterLoad(t *testing.T) {
	first := stream.Execution{Exec: 7, MonoNS: 70, Phase: label.PhasePrefill, TokenFirst: -1}
	second := stream.Execution{Exec: 9, MonoNS: 90, Phase: label.PhasePrefill, TokenFirst: -1}
	for load, want := range map[stream.StateLoad]int{{MonoNS: 60}: 4, {MonoNS: 80}: 2, {MonoNS: 95}: 4,
		{Ctx: 1, MonoNS: 80}: 4} {
		r, rows := mapRun(t, nil, first, load, second), 0
		err := newMap(t, r, MapOptions{Layer: 3}).EachRow(func(*MapRow) error { rows++; return nil })
		refused := err != nil && strings.Contains(err.Error(), "token 2 sees keys that a saved state may have replaced")
		if rows != want || refused != (want == 2) {
			t.Errorf("%+v: %d rows, %v", load, rows, err)
		}
	}
}

// TestMapOfStreams reads a map that llama.cpp computed of two streams of the cache: two tokens of each, two heads.
func TestMapOfStreams(t *testing.T) {
	r := mapRun(t, nil)
	var got []string
	check(t, newMap(t, r, MapOptions{Layer: 5, Head: 1}).EachRow(func(m *MapRow) error {
		got = append(got, fmt.Sprint(m.Token, m.Weights))
		return nil
	}))
	if want := "[4 [4 5] 5 [6 7] 6 [12 13] 7 [14 15]]"; fmt.Sprint(got) != want {
		t.Errorf("rows are %v, want %v", got, want)
	}
}

func newMap(t *testing.T, r *Run, o MapOptions) *Map {
	t.Helper()
	m, err := NewMap(r, o)
	check(t, err)
	return m
}

func TestMapErrors(t *testing.T) {
	without := func(exec uint64, name string) *Run {
		return mapRun(t, func(e uint64, n string, _ *stream.Packet) bool { return e != exec || n != name })
	}
	flat := func(_ uint64, name string, p *stream.Packet) bool {
		if name == "Q" {
			p.NE = [4]int64{1, 2, 1, 1}
		}
		return true
	}
	streams := func(_ uint64, name string, p *stream.Packet) bool {
		if name == "mask" {
			p.NE[1], p.NE[3] = p.NE[1]/2, 2
		}
		return true
	}
	whole := mapRun(t, nil)
	for _, c := range []struct {
		run  *Run
		o    MapOptions
		want string
	}{
		{whole, MapOptions{Layer: 4}, "no attention of layer 4 in context 0: there are layers 3,5-7"},
		{whole, MapOptions{Layer: 3, Ctx: 1}, "no attention of layer 3 in context 1"},
		{whole, MapOptions{Layer: 3, Head: 1}, "there is no head 1: layer 3 has heads 0 to 0"},
		{whole, MapOptions{Layer: 3, First: 9, End: 10}, "no attention of the chosen tokens was captured"},
		{whole, MapOptions{Layer: 6},
			"position biases (ALiBi), which are not recomputed: record with --tap-attention exact"},
		{whole, MapOptions{Layer: 7}, "the keys of layer 7 go into no cache, as an encoder's do, and are not " +
			"captured: record with --tap-attention exact"},
		{mapRun(t, flat), MapOptions{Layer: 3}, "rows of Q have 1 values, of which the run does not say which are " +
			"queries"},
		{mapRun(t, streams), MapOptions{Layer: 3}, "has 2 streams, which this version cannot distinguish: record with " +
			"--tap-attention exact, or one sequence"},
		{without(7, "K"), MapOptions{Layer: 3}, "the key in cell 0, which token 0 sees"},
		{without(9, "mask"), MapOptions{Layer: 3}, "execution 9: the mask (mask) not captured"},
		{without(9, "cells"), MapOptions{Layer: 3}, "the cells that keys went into (cells) not captured"},
	} {
		m, err := NewMap(c.run, c.o)
		if err == nil {
			err = m.EachRow(func(*MapRow) error { return nil })
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v; want %q", c.o, err, c.want)
		}
	}
	f := fixture{}
	if _, err := NewMap(f.open(t), MapOptions{}); err == nil ||
		!strings.Contains(err.Error(), "--tap-attention") {
		t.Errorf("a run without attention: %v", err)
	}
}
