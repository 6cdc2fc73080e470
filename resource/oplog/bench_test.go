package oplog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// file is a file in memory.
type file struct{ bytes.Buffer }

func (*file) Close() error { return nil }

// bench drives a recorder as the tap would, with a clock of its own.
type bench struct {
	testing.TB
	*ggmlhooks.Assembler
	r     *Recorder
	out   *file
	clock int64
	call  uint64
	exec  uint64
	next  int64
}

// beginning is the monotonic time at which every bench begins.
const beginning = 1_000_000_000

func newBench(t testing.TB, o Options) *bench {
	t.Helper()
	b := &bench{TB: t, out: &file{}, clock: beginning}
	o.Lines.Create = func(string) (io.WriteCloser, error) { return b.out, nil }
	o.Lines.Name, o.Lines.FlushEvery = "resource.jsonl", -1
	o.Now = func() int64 { return b.clock }
	o.UnixOffset, o.SessionID = 1_732_190_000_000_000_000-beginning, "run_20241121_115320_5c4a"
	var err error
	b.r, err = NewRecorder(o)
	b.check(err)
	b.Assembler = ggmlhooks.NewAssembler(0, b.r)
	return b
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// batch is one micro-batch of one sequence.
type batch struct {
	graph       *ggmlhooks.Graph
	tokens      []int32
	provisional bool
	read        bool    // results of the one before were looked at
	times       []int64 // of the graph's timed nodes, each after the one before; nil: none
	nodes       []int32
	captures    []*ggmlhooks.Capture
	seq         int32
}

// run executes a micro-batch: 1 µs before ggml gets the graph, 1 µs after its last node.
func (b *bench) run(m batch) uint64 {
	b.Helper()
	b.call++
	b.exec++
	call := ggmlhooks.Call{Number: b.call, Read: m.read, MonoNS: b.clock}
	e := ggmlhooks.Exec{
		Number: b.exec, Graph: m.graph.ID, Call: b.call, MonoNS: b.clock, TokenFirst: b.next,
		Provisional: m.provisional,
		Outputs:     []int32{int32(len(m.tokens) - 1)}, Tokens: m.tokens,
	}
	for i, id := range m.tokens {
		e.Pos = append(e.Pos, int32(b.next)+int32(i))
		call.Rows = append(call.Rows, ggmlhooks.CallRow{Token: id, Pos: e.Pos[i], Seqs: []int32{m.seq},
			Output: i == len(m.tokens)-1})
	}
	b.next += int64(len(m.tokens))
	b.check(b.Call(&call))
	b.check(b.Exec(&e))
	for _, c := range m.captures {
		c.Exec, c.Graph = b.exec, m.graph.ID
		b.check(b.Capture(c))
	}
	times := ggmlhooks.Times{Exec: b.exec, Graph: m.graph.ID, BeginNS: b.clock + 1000}
	at := int64(0)
	for i, ns := range m.times {
		times.Nodes = append(times.Nodes, ggmlhooks.NodeTime{Node: m.nodes[i], DoneNS: at + ns, LeftNS: at + ns})
		at += ns
	}
	if m.times != nil {
		b.check(b.Times(&times))
	} else {
		at = 50_000
	}
	b.clock += 2000 + at
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: b.exec, MonoNS: b.clock, BeginNS: times.BeginNS}))
	b.clock += 10_000
	return b.exec
}

// lines ends the recording and reads its lines, each of which must be what its struct says, no key more.
func (b *bench) lines() (all []string, events []any) {
	b.Helper()
	b.check(b.Close())
	b.check(b.Close())
	for line := range strings.Lines(b.out.String()) {
		line = strings.TrimSuffix(line, "\n")
		event, err := resource.Decode([]byte(line))
		if err != nil {
			b.Fatalf("%v: %s", err, line)
		}
		strict := json.NewDecoder(strings.NewReader(line))
		strict.DisallowUnknownFields()
		if err := strict.Decode(event); err != nil {
			b.Fatalf("%v: %s", err, line)
		}
		b.sameKeys(line, event)
		all, events = append(all, line), append(events, event)
	}
	return all, events
}

// sameKeys demands that a line has the keys that its struct writes, each once, and that what "sources" names is
// there and differs.
func (b *bench) sameKeys(line string, event any) {
	b.Helper()
	text, err := json.Marshal(event)
	b.check(err)
	var got, want map[string]any
	b.check(json.Unmarshal([]byte(line), &got))
	b.check(json.Unmarshal(text, &want))
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		b.Errorf("keys %q, its struct writes %q: %s", g, w, line)
	}
	for key := range got {
		if n := strings.Count(line, `"`+key+`":`); n != 1 && !nested[key] {
			b.Errorf("key %q stands %d times: %s", key, n, line)
		}
	}
	sources, _ := got["sources"].(map[string]any)
	for key, source := range sources {
		if got[key] == nil || source == got["source"] {
			b.Errorf("sources names %q: %s", key, line)
		}
	}
}

// nested are keys that objects within events have too, or that "sources" names.
var nested = map[string]bool{
	"duration_ns": true, "duration_us": true, "estimated_duration_us": true, "looking_ns": true, "flops": true,
	"bytes_read":    true,
	"bytes_written": true, "node_count": true, "arithmetic_intensity": true, "gflops_per_s": true, "gb_per_s": true,
	"graphs": true,
	"tokens": true, "total_memory_mb": true, "peak_live_bytes": true, "allocated_bytes": true, "freed_bytes": true,
	"events":          true,
	"component_flows": true, "outputs": true, "reused": true, "status": true, "timed_ns": true, "looks": true,
	"memory_pressure": true,
	"roofline_share":  true, "data_bytes": true, "data_size_mb": true, "intermediate_size_mb": true,
	"allocation_bytes":   true,
	"tensor_bytes":       true,
	"allocation_size_mb": true, "memory_address": true, "live_bytes": true, "ops_without_flops": true,
	"ops_without_bytes":      true,
	"sm_utilization_percent": true,
	"timestamp":              true, "duration_ms": true, "sync_wait_ns": true, "flops_unmasked": true,
	"ops_without_mask": true, "model_info": true, "context_info": true,
	"window_ns": true, "gpu_power_w": true, "cells": true, "key_bytes": true, "key_bytes_written": true,
	"value_bytes_written": true, "value_bytes": true, "key_cache_size_mb": true, "value_cache_size_mb": true,
	"cache_hit_ratio": true,
}

// whole are the compute events without those of ops within a range or graph that was timed as a whole.
func whole(events []any) (found []*resource.Compute) {
	for _, c := range of[resource.Compute](events) {
		if c.Within == "" {
			found = append(found, c)
		}
	}
	return found
}

// of are the events of one type.
func of[T any](events []any) (found []*T) {
	for _, e := range events {
		if e, ok := e.(*T); ok {
			found = append(found, e)
		}
	}
	return found
}

// kinds counts events by kind.
func kinds(lines []string) map[string]int {
	n := map[string]int{}
	for _, line := range lines {
		n[strings.Split(line, `"`)[3]]++
	}
	return n
}

// drawing makes graphs.
type drawing struct {
	g     *ggmlhooks.Graph
	leafs map[string]int32
}

func draw(id uint64, tokens int) *drawing {
	return &drawing{&ggmlhooks.Graph{ID: id, Tokens: tokens, Outputs: 1}, map[string]int32{}}
}

// leaf returns a leaf, and makes it first where there is none of that name.
func (d *drawing) leaf(name string, kind gguf.Type, ne ...int64) int32 {
	if at, ok := d.leafs[name]; ok {
		return at
	}
	d.g.Leafs = append(d.g.Leafs, ggmlhooks.Leaf{Name: name, Type: int(kind), NE: fourth(ne),
		Input: strings.HasPrefix(name, "inp_"), Place: ggmlhooks.Place{Buffer: 1,
			Offset: uint64(4096 * len(d.g.Leafs))}})
	d.leafs[name] = int32(-len(d.g.Leafs))
	return d.leafs[name]
}

func fourth(ne []int64) [4]int64 {
	all := [4]int64{1, 1, 1, 1}
	copy(all[:], ne)
	return all
}

// node adds a node of f32 in buffer 2.
func (d *drawing) node(op, name string, layer int, c ggmlhooks.Component, ne []int64, src ...int32) int32 {
	view := op == "VIEW" || op == "RESHAPE"
	d.g.Nodes = append(d.g.Nodes, ggmlhooks.Node{
		Name: name, Op: op, Occurrence: 1, Layer: layer, Component: c, NE: fourth(ne), View: view, Computed: !view,
		Alias: -1,
		Src:   src, Slots: 1<<len(src) - 1, Rows: ggmlhooks.RowsTokens, RowDim: 1, Place: ggmlhooks.Place{Buffer: 2},
	})
	return int32(len(d.g.Nodes) - 1)
}

// small is a model of one layer, 64 wide, with 128 in its feed-forward network and 100 tokens.
func small(id uint64, n int64) *ggmlhooks.Graph {
	d := draw(id, int(n))
	att, mlp, res := ggmlhooks.ComponentAttention, ggmlhooks.ComponentMLP, ggmlhooks.ComponentResidual
	tokens := d.leaf("inp_tokens", gguf.I32, n)
	x := d.node("GET_ROWS", "embd", -1, ggmlhooks.ComponentInput, []int64{64, n},
		d.leaf("token_embd.weight", gguf.Q8_0, 64, 100), tokens)
	q := d.node("MUL_MAT", "Qcur-0", 0, att, []int64{64, n}, d.leaf("blk.0.attn_q.weight", gguf.Q8_0, 64, 64), x)
	view := d.node("RESHAPE", "Qcur-0 (reshaped)", 0, att, []int64{16, 4, n}, q)
	o := d.node("MUL_MAT", "attn_out-0", 0, att, []int64{64, n}, d.leaf("blk.0.attn_output.weight", gguf.Q8_0, 64, 64),
		view)
	x = d.node("ADD", "ffn_inp-0", 0, res, []int64{64, n}, o, x)
	gate := d.node("MUL_MAT", "ffn_gate-0", 0, mlp, []int64{128, n},
		d.leaf("blk.0.ffn_gate.weight", gguf.Q8_0, 64, 128), x)
	up := d.node("MUL_MAT", "ffn_up-0", 0, mlp, []int64{128, n}, d.leaf("blk.0.ffn_up.weight", gguf.Q8_0, 64, 128), x)
	act := d.node("SWIGLU", "ffn_swiglu-0", 0, mlp, []int64{128, n}, gate, up)
	down := d.node("MUL_MAT", "ffn_out-0", 0, mlp, []int64{64, n}, d.leaf("blk.0.ffn_down.weight", gguf.Q8_0, 128, 64),
		act)
	x = d.node("ADD", "l_out-0", 0, res, []int64{64, n}, down, x)
	d.node("MUL_MAT", "result_output", -1, ggmlhooks.ComponentOutput, []int64{100, n},
		d.leaf("output.weight", gguf.Q8_0, 64, 100), x)
	return d.g
}

// computed are the nodes of a graph that are computed.
func computed(g *ggmlhooks.Graph) (nodes []int32) {
	for i := range g.Nodes {
		if g.Nodes[i].Computed {
			nodes = append(nodes, int32(i))
		}
	}
	return nodes
}

// ends are the last nodes of runs of nodes that have one layer and component.
func ends(g *ggmlhooks.Graph) (nodes []int32) {
	all := computed(g)
	for i, n := range all {
		if i+1 == len(all) || g.Nodes[all[i+1]].Layer != g.Nodes[n].Layer ||
			g.Nodes[all[i+1]].Component != g.Nodes[n].Component {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// same makes n equal times.
func same(n int, ns int64) []int64 { return slices.Repeat([]int64{ns}, n) }

// texts gives every token a text that must be escaped.
func texts(_ uint32, token int32) (string, bool) { return fmt.Sprintf("t%d\"\n", token), true }

// buffers allocates what the graphs lie in: 8 MiB of weights on a mapped file and 1000 bytes to compute in.
func (b *bench) buffers() {
	b.Helper()
	weights := ggmlhooks.Buffer{ID: 1, MonoNS: b.clock, Base: 0x7f0000000000, Size: 8 << 20, Host: true, Mapped: true,
		Type: "CPU_Mapped", Device: "CPU"}
	b.check(b.Buffer(&weights))
	weights.Usage, weights.Known = ggmlhooks.BufferWeights, true
	b.check(b.Buffer(&weights))
	b.check(b.Buffer(&ggmlhooks.Buffer{ID: 2, MonoNS: b.clock + 5, Base: 0x7f0000100000, Size: 1000,
		Usage: ggmlhooks.BufferCompute, Host: true, Type: "CPU", Device: "CPU"}))
	b.check(b.Buffer(&ggmlhooks.Buffer{ID: 3, MonoNS: b.clock + 6}))
}

// linesTo writes to one file; nil cannot be made.
func linesTo(f io.WriteCloser) rundir.LineOptions {
	return rundir.LineOptions{Name: "resource.jsonl", FlushEvery: -1, BufferBytes: 4096,
		Create: func(string) (io.WriteCloser, error) {
			if f == nil {
				return nil, syscall.EACCES
			}
			return f, nil
		}}
}
