//go:build linux

package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/ledger"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/table"
)

// accessRow is a row of trace.parquet. What is null is -1, or "".
type accessRow struct {
	op, phase, region, ggml, device          string
	graph, node, operand                     int64
	id, buffer, offset, addr                 int64
	size, pieces, stride, flags              int64
	token, seq, block, layer, ts, count, ctx int64
}

// accessRows reads parts of a table of accesses.
func accessRows(t *testing.T, parts ...[]byte) (rows []accessRow) {
	t.Helper()
	for _, part := range parts {
		r, err := table.NewReader(bytes.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		for group := range r.Groups() {
			column := func(name string) table.Values {
				v, err := r.Column(group, name)
				if err != nil {
					t.Fatal(err)
				}
				for i, valid := range v.Valid {
					if !valid && v.Ints != nil {
						v.Ints[i] = -1
					}
				}
				return v
			}
			first := len(rows)
			for _, c := range []struct {
				name string
				to   func(*accessRow) *string
			}{
				{"op", func(r *accessRow) *string { return &r.op }},
				{"phase", func(r *accessRow) *string { return &r.phase }},
				{"region_type", func(r *accessRow) *string { return &r.region }},
				{"ggml_op", func(r *accessRow) *string { return &r.ggml }},
				{"device", func(r *accessRow) *string { return &r.device }},
			} {
				v := column(c.name)
				rows = append(rows, make([]accessRow, first+len(v.Valid)-len(rows))...)
				for i, text := range v.Texts {
					*c.to(&rows[first+i]) = text
				}
			}
			for _, c := range []struct {
				name string
				to   func(*accessRow) *int64
			}{
				{"graph_seq", func(r *accessRow) *int64 { return &r.graph }},
				{"op_seq", func(r *accessRow) *int64 { return &r.node }},
				{"operand", func(r *accessRow) *int64 { return &r.operand }},
				{"region_id", func(r *accessRow) *int64 { return &r.id }},
				{"buffer_id", func(r *accessRow) *int64 { return &r.buffer }},
				{"offset", func(r *accessRow) *int64 { return &r.offset }},
				{"addr", func(r *accessRow) *int64 { return &r.addr }},
				{"size", func(r *accessRow) *int64 { return &r.size }},
				{"pieces", func(r *accessRow) *int64 { return &r.pieces }},
				{"stride", func(r *accessRow) *int64 { return &r.stride }},
				{"flags", func(r *accessRow) *int64 { return &r.flags }},
				{"token_index", func(r *accessRow) *int64 { return &r.token }},
				{"seq_id", func(r *accessRow) *int64 { return &r.seq }},
				{"kv_block", func(r *accessRow) *int64 { return &r.block }},
				{"layer", func(r *accessRow) *int64 { return &r.layer }},
				{"ts_ns", func(r *accessRow) *int64 { return &r.ts }},
				{"count", func(r *accessRow) *int64 { return &r.count }},
				{"ctx", func(r *accessRow) *int64 { return &r.ctx }},
			} {
				for i, v := range column(c.name).Ints {
					*c.to(&rows[first+i]) = v
				}
			}
		}
	}
	return rows
}

// bookkeeper records accesses as a run does, with all that the tap reports.
type bookkeeper struct {
	*witness
	regions *ledger.RegionRecorder
	ledger  *ledger.Recorder
	table   *ledger.Table
	parts   []*bookPart
	t       *testing.T
}

type bookPart struct{ bytes.Buffer }

func (*bookPart) Close() error { return nil }

func newBookkeeper(t *testing.T) *bookkeeper {
	b := &bookkeeper{witness: newWitness(), t: t,
		regions: ledger.NewRegionRecorder(ledger.RegionOptions{Model: gguf.Open})}
	b.table = ledger.NewTable(ledger.TableOptions{Folder: b})
	b.ledger = ledger.NewRecorder(ledger.Options{Map: b.regions.Map(), Table: b.table})
	return b
}

// Create makes a part of the table.
func (b *bookkeeper) Create(string) (io.WriteCloser, error) {
	b.parts = append(b.parts, &bookPart{})
	return b.parts[len(b.parts)-1], nil
}

// Rename says nothing that is needed here.
func (*bookkeeper) Rename(string, string) error { return nil }

// keeps is what a ledger asks the tap for.
var keeps = collect.Machine{Cells: true, Experts: true}

// keep runs a program and returns its accesses.
func (b *bookkeeper) keep(cmd *exec.Cmd) []accessRow {
	b.t.Helper()
	assembler := ggmlhooks.NewAssembler(0, b.regions, b.ledger)
	watchSink(b.t, keeps, everyone{b.witness, assembler}, cmd)
	if err := errors.Join(assembler.Close(), b.table.Close()); err != nil {
		b.t.Fatal(err)
	}
	var parts [][]byte
	for _, part := range b.parts {
		parts = append(parts, part.Bytes())
	}
	return accessRows(b.t, parts...)
}

// operandKey is an operand of an execution.
type operandKey struct{ graph, node, operand int64 }

// audit works out anew, slowly and from what the tap reported, how many bytes each operand of each executed op has, and
// demands that the rows say the same, and lie where the operand's region is.
func (b *bookkeeper) audit(rows []accessRow) (operands int) {
	b.t.Helper()
	shown, hidden := map[operandKey]int64{}, map[operandKey]int64{}
	byID := map[int64]*memtrace.Region{}
	for _, r := range b.regions.Map().Regions() {
		byID[int64(r.ID)] = r
	}
	for i := range rows {
		r := &rows[i]
		b.inside(r, byID)
		if r.graph < 0 {
			continue
		}
		if memtrace.TraceFlag(r.flags)&memtrace.TracePadded != 0 {
			hidden[operandKey{r.graph, r.node, r.operand}] += r.size
		} else {
			shown[operandKey{r.graph, r.node, r.operand}] += r.size
		}
	}
	for _, e := range b.execs {
		g := b.graphs[e.Graph]
		if b.ends[e.Number].Status != 0 {
			continue
		}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if !n.Computed || elements(n.NE) == 0 {
				continue
			}
			o := formula(g, n)
			o.Experts = int64(len(b.experts(&e, n)))
			written, ok := o.Written()
			b.expect(&e, i, -1, shown, hidden, written, 0, ok)
			operands++
			for k := range o.Src {
				if src, there := n.SrcAt(k); !there || elementsOf(g, src) == 0 || n.Op == "CPY" && k == 1 ||
					n.Op == "SET_ROWS" && k == 2 {
					continue
				}
				operands++
				whole, ok := o.Read(k)
				if n.Op == "ADD_ID" && k == 1 { // each expert once
					whole = whole / elements(o.Src[2].NE) * o.Experts
				}
				read := whole
				if mask := maskOf(g, i, k); mask >= 0 {
					read = whole / (g.Leafs[mask].NE[0] * g.Leafs[mask].NE[3]) * b.readable(&e, g, mask)
				}
				b.expect(&e, i, k, shown, hidden, read, whole-read, ok)
			}
		}
	}
	if len(shown) > operands {
		b.t.Errorf("rows of %d operands, there are %d", len(shown), operands)
	}
	want := memtrace.Ledger{Mode: ledger.ModeRows, Executions: int64(len(b.execs)),
		Accesses: b.ledger.Doubts().Accesses}
	if d := b.ledger.Doubts(); d != want {
		b.t.Errorf("%+v", d)
	}
	return operands
}

// expect demands what rows say of an operand.
func (b *bookkeeper) expect(e *ggmlhooks.Exec, node, operand int, shown, hidden map[operandKey]int64, read,
	padded int64, known bool) {
	key := operandKey{int64(e.Number), int64(node), int64(operand)}
	if !known || shown[key] != read || hidden[key] != padded {
		n := &b.graphs[e.Graph].Nodes[node]
		b.t.Errorf("execution %d, node %d (%s %s), operand %d: rows have %d bytes and %d behind the mask, want %d "+
			"and %d", e.Number, node, n.Op, n.Name, operand, shown[key], hidden[key], read, padded)
	}
}

// inside demands that a row lies in its buffer, and in its region.
func (b *bookkeeper) inside(r *accessRow, byID map[int64]*memtrace.Region) {
	if r.size <= 0 || r.pieces <= 0 {
		b.t.Fatalf("%+v", r)
	}
	end := r.offset + r.size/r.pieces
	if r.stride > 0 {
		end += (r.pieces - 1) * r.stride
	}
	buffer := b.buffers[uint64(r.buffer)]
	region := byID[r.id]
	switch {
	case r.op == "alloc" || r.op == "free":
	case end > int64(buffer.Size) || buffer.Host != (r.addr >= 0) ||
		buffer.Host && r.addr != int64(buffer.Base)+r.offset:
		b.t.Errorf("%+v lies in %+v", r, buffer)
	case region == nil || region.Type.String() != r.region:
		b.t.Errorf("%+v: region %+v", r, region)
	case region.Type != memtrace.Activation && (r.offset < int64(region.Offset) ||
		end > int64(region.Offset+region.Bytes)):
		b.t.Errorf("%+v lies in %+v", r, region)
	}
}

// experts are those that an op uses, each once.
func (b *bookkeeper) experts(e *ggmlhooks.Exec, n *ggmlhooks.Node) map[string]bool {
	found := map[string]bool{}
	if n.Op == "MUL_MAT_ID" || n.Op == "ADD_ID" {
		ids, _ := n.SrcAt(2)
		data := b.routing[e.Number][int(ids)]
		for at := 0; at+4 <= len(data); at += 4 {
			found[string(data[at:at+4])] = true
		}
	}
	return found
}

// readable is how many cells any token may read by a mask, over all streams.
func (b *bookkeeper) readable(e *ggmlhooks.Exec, g *ggmlhooks.Graph, mask int) int64 {
	type cell struct{ stream, cell int32 }
	all := map[cell]bool{}
	per := int32(len(e.Tokens)) / int32(g.Leafs[mask].NE[3])
	for _, in := range b.inputs[e.Number] {
		if in.Leaf != mask {
			continue
		}
		for _, r := range in.Ranges {
			for c := r.First; c < r.End; c++ {
				all[cell{r.Row / per, c}] = true
			}
		}
	}
	return int64(len(all))
}

// maskOf is the leaf of the mask by which node i reads its src[k], if that is keys or values of a cache; else -1.
func maskOf(g *ggmlhooks.Graph, i, k int) int {
	n := &g.Nodes[i]
	src, _ := n.SrcAt(k)
	root := rootOf(g, src)
	if root >= 0 || g.Tokens == 0 || !strings.HasPrefix(g.Leafs[-1-root].Name, "cache_k") &&
		!strings.HasPrefix(g.Leafs[-1-root].Name, "cache_v") {
		return -1
	}
	leaf := func(n *ggmlhooks.Node, k int) int {
		src, _ := n.SrcAt(k)
		for src >= 0 {
			src = g.Nodes[src].Src[0]
		}
		return int(-1 - src)
	}
	step, values := 1, strings.HasPrefix(g.Leafs[-1-root].Name, "cache_v")
	switch {
	case n.Op == "FLASH_ATTN_EXT":
		return leaf(n, 3)
	case n.Op != "MUL_MAT":
		return -1
	case values:
		step = -1
	}
	for ; i >= 0 && i < len(g.Nodes); i += step {
		if g.Nodes[i].Op == "SOFT_MAX" {
			return leaf(&g.Nodes[i], 1)
		}
	}
	return -1
}

// formula is a node as the formulas of events see it.
func formula(g *ggmlhooks.Graph, n *ggmlhooks.Node) (o resource.Op) {
	operand := func(kind int, ne [4]int64) resource.Tensor {
		return resource.Tensor{NE: ne, BlockValues: gguf.Type(kind).BlockValues(),
			BlockBytes: gguf.Type(kind).BlockBytes()}
	}
	o.Name, o.Out = n.Op, operand(n.Type, n.NE)
	for k := range o.Src {
		if src, ok := n.SrcAt(k); ok && src >= 0 {
			o.Src[k] = operand(g.Nodes[src].Type, g.Nodes[src].NE)
		} else if ok {
			o.Src[k] = operand(g.Leafs[-1-src].Type, g.Leafs[-1-src].NE)
		}
	}
	return o
}

// multipliesByAMX: llama.cpp repacks weights of more types for processors that have AMX.
func multipliesByAMX() bool {
	info, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && bytes.Contains(info, []byte(" amx_tile "))
}

// TestLedgerOfOperands: every operand of every executed op of every architecture is recorded with the bytes that it
// has, in its region: with flash attention and without, caches of other types, sliding windows, states, experts,
// repacked weights, shifted contexts.
func TestLedgerOfOperands(t *testing.T) {
	type config struct {
		arch string
		typ  gguf.Type
		args []string
	}
	configs := []config{
		{"", 0, nil}, {"", 0, []string{"-fa", "off"}}, {"", 0, []string{"-fa", "on", "-ctk", "q8_0", "-ctv", "q4_0"}},
		{"", 0, []string{"-n", "300", "--keep", "2", "--context-shift"}},
		{"llama", gguf.Q4_K, nil}, {"gemma2", gguf.F16, []string{"-fa", "off"}}, {"jamba", gguf.F16, nil},
		{"qwen3moe", gguf.Q8_0, nil},
	}
	if testenv.Nightly() {
		for _, arch := range archs(t) {
			configs = append(configs, config{arch, gguf.F16, nil}, config{arch, gguf.Q8_0, []string{"-fa", "off"}},
				config{arch, gguf.F16, []string{"-n", "1", "-ub", "512"}})
		}
	}
	for _, c := range configs {
		t.Run(fmt.Sprint(c.arch, c.typ, c.args), func(t *testing.T) {
			t.Parallel()
			model := testenv.Model(t)
			if c.arch != "" {
				model = synthetic(t, c.arch, c.typ, nil)
			}
			b := newBookkeeper(t)
			rows := b.keep(tappedTool(t, "llama-completion", append([]string{"-m", model, "-p", prompt, "-n", "4",
				"--temp", "0", "-t", "1", "-c", "256", "-ub", "16", "-no-cnv", "--ignore-eos"}, c.args...)...))
			if n := b.audit(rows); n < 200 {
				t.Errorf("%d operands", n)
			}
			repacked := 0
			for _, r := range rows {
				if r.flags&int64(memtrace.TraceRepacked) != 0 {
					repacked++
				}
			}
			if (repacked > 0) != (c.typ == gguf.Q4_K) && !(repacked > 0 && multipliesByAMX()) {
				t.Errorf("%d rows in repacked buffers", repacked)
			}
		})
	}
}

// tappedTool is a command of llama.cpp's with the tap preloaded.
func tappedTool(t *testing.T, tool string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := testenv.NeedTool(t, tool).Command(args...)
	cmd.Args[1] += ":" + filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	return cmd
}

// TestLedgerOfSequences: the same holds where several sequences are computed at once, in one stream and in streams
// of their own; a write into a cache belongs to the sequence of its token.
func TestLedgerOfSequences(t *testing.T) {
	for _, c := range []struct {
		tool string
		args []string
	}{
		{"llama-parallel", []string{"-c", "8192", "-np", "3", "-ns", "4", "-n", "4", "--temp", "0", "-s", "1"}},
		{"llama-batched-bench", []string{"-c", "1024", "-npp", "16", "-ntg", "4", "-npl", "1,2", "-fa", "off"}},
		{"llama-batched", []string{"-p", "func main() {", "-n", "12", "-np", "3", "-kvu"}},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			b := newBookkeeper(t)
			rows := b.keep(tappedTool(t, c.tool, append([]string{"-m", testenv.Model(t), "-t", "1"}, c.args...)...))
			if n := b.audit(rows); n < 500 {
				t.Errorf("%d operands", n)
			}
			seqs, tokens := map[int64]int{}, map[int64]int{}
			for _, r := range rows {
				if r.ggml == "SET_ROWS" && r.op == "write" && r.layer == 0 && r.phase == "generation" {
					seqs[r.seq]++
					tokens[r.token]++
				}
			}
			if len(seqs) < 2 || seqs[-1] > 0 || len(tokens) < 10 {
				t.Errorf("sequences %v, %d tokens", seqs, len(tokens))
			}
			for token, n := range tokens {
				if n != 2 { // its key and its value
					t.Errorf("token %d was written %d times", token, n)
				}
			}
		})
	}
}
