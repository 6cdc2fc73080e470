package export

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// A fixture is a run of two contexts whose micro-batches hold tokens of several sequences, and of whose tensors
// each is of another kind.
type fixture struct {
	options  stream.Options
	special  bool // infinities, NaN, -0 and subnormal values too
	requests bool // of sequence 0 are known: number 0
	// the writer is stopped: no end record, no tokens file, no manifest; and the last tensor lacks a piece
	cut bool
	rng *rand.Rand
	d   *rundir.Dir
	w   *stream.Writer
}

// A batch is one micro-batch of the fixture.
type batch struct {
	exec   uint64
	ctx    uint32
	first  int64
	seqs   []int32
	phase  label.Phase
	output bool // of the last row alone
}

var batches = []batch{
	{2, 0, 0, []int32{0, 0, 1}, label.PhasePrefill, true},
	{3, 0, 3, []int32{0}, label.PhaseDecode, true},
	{4, 1, 4, []int32{0}, label.PhasePrefill, false},
	{5, 0, 5, []int32{0, 1}, label.PhaseDecode, true},
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build writes the run and returns its path.
func (f *fixture) build(t testing.TB) string {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "fixture", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	check(t, err)
	f.d, f.rng = d, rand.New(rand.NewPCG(1, 2))
	f.write(t, d, batches)
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(),
		Model: rundir.Model{Name: "fixture", ID: "fixture-f16"}, Losses: []rundir.Loss{}}))
	if !f.cut {
		check(t, d.Seal())
	}
	return d.Path()
}

// buildSegments writes the run in two segments.
func (f *fixture) buildSegments(t testing.TB) string {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "fixture", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	check(t, err)
	f.rng = rand.New(rand.NewPCG(1, 2))
	for i, part := range [][]batch{batches[:2], batches[2:]} {
		s, err := d.Segment(i + 1)
		check(t, err)
		f.write(t, s, part)
		check(t, s.Seal())
		if err := d.AddSegment(filepath.Base(s.Path())); err != nil {
			t.Fatal(err)
		}
	}
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(),
		Model: rundir.Model{Name: "fixture", ID: "fixture-f16"}, Losses: []rundir.Loss{}}))
	check(t, d.Seal())
	return d.Path()
}

// write writes stream and tokens of some batches.
func (f *fixture) write(t testing.TB, d *rundir.Dir, some []batch) {
	o := f.options
	o.Workers = 1
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), o)
	check(t, err)
	f.w = w
	var tokens []map[string]any
	for _, b := range some {
		f.batch(t, b)
		for i, seq := range b.seqs {
			token := b.first + int64(i)
			tokens = append(tokens, map[string]any{"token_index": token, "token_id": 100 + token,
				"token_text": fmt.Sprintf("<ü%d>", token),
				"phase":      b.phase.String(), "seq_id": seq, "pos": 10 + token, "ctx": b.ctx})
		}
	}
	if f.cut {
		f.torn(t)
		return
	}
	check(t, w.Close())
	streamSum, indexSum := w.Sums()
	d.AddSum(rundir.StreamName, streamSum.Size, streamSum.SHA256)
	d.AddSum(rundir.StreamName+stream.IndexSuffix, indexSum.Size, indexSum.SHA256)
	check(t, d.WriteJSON(rundir.TokensName, map[string]any{"total_tokens": len(tokens), "tokens": tokens,
		"capture_duration_seconds": 0.5}))
}

// torn adds half a tensor and cuts the end record off.
func (f *fixture) torn(t testing.TB) {
	p := stream.Packet{Name: "half-0", Node: "half-0", Op: "ADD", Rows: label.RowsTokens, RowDim: 1,
		NE: [4]int64{4, 2, 1, 1}, Exec: 5,
		TokenFirst: 5, TokenCount: 2, Blocks: 2, Phase: label.PhaseDecode}
	f.add(t, p, 4)
	check(t, f.w.Close())
	name := filepath.Join(f.d.Path(), rundir.StreamName+stream.IndexSuffix)
	info, err := os.Stat(name)
	check(t, err)
	check(t, os.Truncate(name, info.Size()-8))
}

// batch writes one micro-batch: a tensor of each kind.
func (f *fixture) batch(t testing.TB, b batch) {
	n := int64(len(b.seqs))
	e := stream.Execution{Exec: b.exec, Graph: 1, Ctx: b.ctx, Phase: b.phase, TokenFirst: b.first}
	for i, seq := range b.seqs {
		token := b.first + int64(i)
		e.Rows = append(e.Rows, label.Row{Index: token, Token: int32(100 + token), Pos: int32(10 + token),
			Seqs: []int32{seq}, Phase: b.phase,
			Output: int64(i) == n-1, Request: label.RequestUnknown})
	}
	if f.requests && b.first == 0 {
		check(t, f.w.AppendRequest(label.RequestBegin{Cause: label.RequestFirst}))
	}
	check(t, f.w.AppendExecution(&e))
	tensor := func(name string, layer int32, c label.Component, dim int8, ne ...int64) stream.Packet {
		p := stream.Packet{Name: name, Node: name, Op: "ADD", Occurrence: 1, Layer: layer, Component: c, Ctx: b.ctx,
			Exec: b.exec, Graph: 1,
			Phase: b.phase, TokenFirst: b.first, TokenCount: int32(n), Rows: label.RowsTokens, RowDim: dim,
			NE: [4]int64{1, 1, 1, 1}}
		copy(p.NE[:], ne)
		return p
	}
	f.add(t, tensor("l_out-0", 0, label.ComponentResidual, 1, 4, n), 0)
	if b.ctx == 1 {
		return
	}
	f.add(t, tensor("l_out-1", 1, label.ComponentResidual, 1, 4, n), 0)
	heads := tensor("Qcur-0#2", 0, label.ComponentAttention, 2, 2, 3, n)
	heads.Node = "Qcur-0"
	f.add(t, heads, 0)
	f.add(t, tensor("kq-0", 0, label.ComponentAttention, 1, 2, n, 3), 0)
	f.add(t, tensor("grows-0", 0, label.ComponentAttention, 1, 2*int64(b.exec/3+1), n), 0)
	view := tensor("cache (view)", 0, label.ComponentAttention, 1, 4, n)
	if n == 1 {
		view = tensor("cache (view)", 0, label.ComponentAttention, 2, 4, 1, n)
	}
	f.add(t, view, 0)
	out := tensor("result_output", -1, label.ComponentOutput, 1, 6, 1)
	out.Rows, out.TokenFirst, out.TokenCount, out.Blocks = label.RowsOutputs, b.first+n-1, 1, 2
	f.add(t, out, 4)
	out.Block, out.BlockStart = 1, 4
	f.add(t, out, 2)
	state := tensor("state-1", 1, label.ComponentSSM, 0, 3)
	state.Rows = label.RowsNone
	f.add(t, state, 0)
	sample := tensor("ffn_out-1", 1, label.ComponentMLP, 1, 4, n)
	sample.SampleTotal, sample.SampleSeed = 4*n, 1<<63+b.exec
	f.add(t, sample, 2)
	f.whole(t, tensor("inp_tokens", -1, label.ComponentInput, 0, n), b)
	weights := tensor("w_q-1", 1, label.ComponentMLP, 0, 32)
	weights.Rows, weights.SrcType = label.RowsNone, 8
	block := []byte{0, 0x3c} // Q8_0: scale 1 and 32 multiples
	for i := range 32 {
		block = append(block, byte(i-16))
	}
	check(t, f.w.Append(&weights, block, func() {}))
}

// whole adds a tensor of int32 that holds the tokens' ids.
func (f *fixture) whole(t testing.TB, p stream.Packet, b batch) {
	p.SrcType = 26
	var data []byte
	for i := range b.seqs {
		data = binary.LittleEndian.AppendUint32(data, uint32(100+b.first)+uint32(i))
	}
	check(t, f.w.Append(&p, data, func() {}))
}

// add adds a packet of n random values; 0 = as many as its shape says.
func (f *fixture) add(t testing.TB, p stream.Packet, n int64) {
	t.Helper()
	if n == 0 {
		n = p.NE[0] * p.NE[1] * p.NE[2] * p.NE[3]
	}
	special := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
		float32(math.Copysign(0, -1)), 1e-7, 65504}
	var data []byte
	for range n {
		v := float32(f.rng.NormFloat64())
		if f.special && f.rng.IntN(4) == 0 {
			v = special[f.rng.IntN(len(special))]
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	check(t, f.w.Append(&p, data, func() {}))
}

// exported exports a run and returns what was written.
func exported(t testing.TB, path string, o Options) *Result {
	t.Helper()
	r, err := try(t, path, o)
	if err != nil {
		t.Fatalf("%s: %v", o.Form, err)
	}
	return r
}

func try(t testing.TB, path string, o Options) (*Result, error) {
	t.Helper()
	run, err := tensors.Open(path)
	check(t, err)
	defer run.Close()
	return Write(context.Background(), run, o)
}

// cats writes every tensor as 'llamatap cat' does into a folder, and cat.json, which names them. Tensors whose rows
// have several shapes are written token by token.
func cats(t testing.TB, path, folder string) {
	t.Helper()
	run, err := tensors.Open(path)
	check(t, err)
	defer run.Close()
	type one struct {
		Name string `json:"name"`
		Ctx  uint32 `json:"ctx"`
		File string `json:"file"`
	}
	list, seen := []one{}, map[tensorKey]bool{}
	for _, p := range run.Stream.Packets() {
		if seen[tensorKey{p.Ctx, p.Name}] || p.Name == "half-0" {
			continue
		}
		seen[tensorKey{p.Ctx, p.Name}] = true
		ctx := p.Ctx
		choices := []tensors.SliceOptions{{Tensor: p.Name, Ctx: &ctx}}
		if p.Name == "grows-0" || p.Name == "cache (view)" {
			choices = nil
			for _, b := range batches {
				if b.ctx == 0 {
					choices = append(choices, tensors.SliceOptions{Tensor: p.Name, Ctx: &ctx, First: b.first,
						End: b.first + int64(len(b.seqs))})
				}
			}
		}
		for _, o := range choices {
			slice, err := tensors.NewSlice(run, o)
			check(t, err)
			file := fmt.Sprintf("%d.npy", len(list))
			out, err := os.Create(filepath.Join(folder, file))
			check(t, err)
			check(t, slice.WriteNPY(out))
			check(t, out.Close())
			list = append(list, one{p.Name, p.Ctx, file})
		}
	}
	text, err := json.Marshal(list)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(folder, "cat.json"), text, 0o600))
}

// formats are the ways of storing that every form is tried with.
var formats = map[string]fixture{
	"f16":  {special: true},
	"f32":  {options: stream.Options{DType: codec.F32, Codec: codec.Zstd}, special: true},
	"bf16": {options: stream.Options{DType: codec.BF16, Codec: codec.LZ4}, special: true},
	"q":    {options: stream.Options{DType: codec.F32, Codec: codec.Q}},
}
