package tensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// A fixture is a run of five tokens in three micro-batches: a prompt of three, and two generated. Every element of
// every tensor has a value of its own that float16 holds exactly, so that a test can identify each one.
type fixture struct {
	dir    string
	losses []stream.Loss
	codec  codec.ID
}

// ubatches of the fixture: first token and number of tokens.
var ubatches = [][2]int64{{0, 3}, {3, 1}, {4, 1}}

// value is the element of tensor number n for a token.
func value(n int, token, element int64) float32 {
	return float32(n)*64 + float32(token)*8 + float32(element)/4
}

// The tensors of the fixture.
const (
	residual  = iota // l_out-0, l_out-1: [4, tokens]
	heads            // Qcur-0#2: [2, 2, tokens]
	scores           // kq-0: [2, tokens, 3], rows in the middle
	logits           // result_output: [6, outputs], in two pieces
	state            // state-1: [3], no rows
	sampled          // ffn_out-1: 2 of 4 elements per token row
	quantised        // w_q-1: raw bytes
)

// build writes the fixture and seals it.
func (f *fixture) build(t testing.TB) string {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "fixture-f16", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	check(t, err)
	f.dir = d.Path()
	w, err := stream.Create(filepath.Join(f.dir, rundir.StreamName), stream.Options{Workers: 1, Codec: f.codec})
	check(t, err)
	// A warm-up that was thrown away has rows without numbers.
	check(t, w.AppendExecution(&stream.Execution{Exec: 1, Graph: 1, Phase: label.PhaseSetup, TokenFirst: -1,
		Rows: []label.Row{{Index: -1, Token: 1, Phase: label.PhaseSetup}}}))
	for i, u := range ubatches {
		f.execution(t, w, uint64(i+2), u[0], u[1])
	}
	for _, l := range f.losses {
		check(t, w.AppendLoss(l))
	}
	check(t, w.Close())
	streamSum, indexSum := w.Sums()
	d.AddSum(rundir.StreamName, streamSum.Size, streamSum.SHA256)
	d.AddSum(rundir.StreamName+stream.IndexSuffix, indexSum.Size, indexSum.SHA256)
	f.writeTokens(t, d)
	meta := rundir.Metadata{Version: rundir.MetadataVersion, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Model: rundir.Model{Name: "fixture", Arch: "llama"}, Losses: []rundir.Loss{}, Lossy: len(f.losses) > 0}
	for _, l := range f.losses {
		meta.Losses = append(meta.Losses, rundir.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
	}
	check(t, d.WriteJSON(rundir.MetadataName, meta))
	check(t, d.Seal())
	return f.dir
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func phaseOf(first int64) label.Phase {
	if first == 0 {
		return label.PhasePrefill
	}
	return label.PhaseDecode
}

// execution writes one micro-batch.
func (f *fixture) execution(t testing.TB, w *stream.Writer, exec uint64, first, n int64) {
	e := stream.Execution{Exec: exec, Graph: 1, Phase: phaseOf(first), TokenFirst: first, TimeNS: 1e18,
		MonoNS: int64(exec)}
	for token := first; token < first+n; token++ {
		e.Rows = append(e.Rows, label.Row{Index: token, Token: int32(100 + token), Pos: int32(token), Seqs: []int32{0},
			Phase: phaseOf(first), Output: token >= 2})
	}
	if first != 3 { // the prompt, and the last token
		check(t, w.AppendRequest(label.RequestBegin{Number: int32(min(first, 1))}))
	}
	check(t, w.AppendExecution(&e))
	base := stream.Packet{Op: "ADD", Occurrence: 1, Exec: exec, Graph: 1, Phase: phaseOf(first), TokenFirst: first,
		TokenCount: int32(n),
		Rows:       label.RowsTokens, RowDim: 1, Component: label.ComponentResidual, TimeNS: 1e18, MonoNS: int64(exec)}
	for layer := range int32(2) {
		p := base
		p.Name = fmt.Sprintf("l_out-%d", layer)
		p.Node, p.Layer, p.NodeIndex, p.NE = p.Name, layer, 10+layer, [4]int64{4, n, 1, 1}
		append1(t, w, p, values(residual, p, int64(layer)*4))
	}
	p := base
	p.Name, p.Node, p.Component, p.RowDim, p.NE, p.Occurrence = "Qcur-0#2", "Qcur-0", label.ComponentAttention, 2,
		[4]int64{2, 2, n, 1}, 2
	append1(t, w, p, values(heads, p, 0))
	p = base
	p.Name, p.Node, p.Component, p.NE = "kq-0", "kq-0", label.ComponentAttention, [4]int64{2, n, 3, 1}
	append1(t, w, p, values(scores, p, 0))
	p = base
	p.Name, p.Node, p.Layer, p.Component, p.Rows, p.NE = "result_output", "result_output", -1, label.ComponentOutput,
		label.RowsOutputs, [4]int64{6, 1, 1, 1}
	p.TokenFirst, p.TokenCount, p.Blocks = first+n-1, 1, 2
	all := values(logits, p, 0)
	append1(t, w, p, all[:4])
	p.Block, p.BlockStart = 1, 4
	append1(t, w, p, all[4:])
	p = base
	p.Name, p.Node, p.Layer, p.Component, p.Rows, p.NE = "state-1", "state-1", 1, label.ComponentSSM, label.RowsNone,
		[4]int64{3, 1, 1, 1}
	append1(t, w, p, []float32{value(state, first, 0), value(state, first, 1), value(state, first, 2)})
	p = base
	p.Name, p.Node, p.Layer, p.NE, p.SampleTotal, p.SampleSeed = "ffn_out-1", "ffn_out-1", 1, [4]int64{4, n, 1, 1}, 4*n,
		9
	p.Component = label.ComponentMLP
	append1(t, w, p, values(sampled, p, 0)[:2])
	p = base
	p.Name, p.Node, p.Layer, p.Rows, p.NE, p.SrcType = "w_q-1", "w_q-1", 1, label.RowsNone, [4]int64{32, 1, 1, 1}, 8
	check(t, w.Append(&p, []byte{quantised, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
		23, 24, 25, 26, 27, 28, 29, 30, 31,
		32, 33, 34}, func() {}))
}

// values lays a tensor's elements out in ggml order.
func values(tensor int, p stream.Packet, add int64) []float32 {
	out := make([]float32, 0, elements(p.NE))
	dim := int(p.RowDim)
	inner := int64(1)
	for d := range dim {
		inner *= p.NE[d]
	}
	rows := p.NE[dim]
	for i := range elements(p.NE) {
		o, row, e := i/inner/rows, i/inner%rows, i%inner
		out = append(out, value(tensor, p.TokenFirst+row, o*inner+e+add))
	}
	return out
}

func append1(t testing.TB, w *stream.Writer, p stream.Packet, values []float32) {
	t.Helper()
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	check(t, w.Append(&p, data, func() {}))
}

func (f *fixture) writeTokens(t testing.TB, d *rundir.Dir) {
	t.Helper()
	type token struct {
		Index int64  `json:"token_index"`
		ID    int32  `json:"token_id"`
		Text  string `json:"token_text"`
		Phase string `json:"phase"`
		Seq   int    `json:"seq_id"`
		Pos   int64  `json:"pos"`
	}
	var tokens []token
	for i := range int64(5) {
		phase := "decode"
		if i < 3 {
			phase = "prefill"
		}
		tokens = append(tokens, token{Index: i, ID: int32(100 + i), Text: string(rune('a' + i)), Phase: phase, Pos: i})
	}
	check(t, d.WriteJSON(rundir.TokensName, map[string]any{"total_tokens": 5, "tokens": tokens,
		"capture_duration_seconds": 0.5}))
}

// open opens a fixture's run and closes it at the end of the test.
func (f *fixture) open(t testing.TB) *Run {
	t.Helper()
	if f.dir == "" {
		f.build(t)
	}
	r, err := Open(f.dir)
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// rewrite changes one JSON file of a fixture, leaving the manifest as it was.
func rewrite(t testing.TB, name string, change func(map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(name)
	check(t, err)
	var v map[string]any
	check(t, json.Unmarshal(data, &v))
	change(v)
	data, err = json.Marshal(v)
	check(t, err)
	check(t, os.WriteFile(name, data, 0o600))
}
