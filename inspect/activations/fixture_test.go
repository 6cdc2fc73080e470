package activations

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// matrix is a tensor: a row per token. A nil row was not computed.
type matrix [][]float32

// normal makes rows of independent normal values.
func normal(random *rand.Rand, tokens, width int) matrix {
	m := make(matrix, tokens)
	for i := range m {
		m[i] = make([]float32, width)
		for k := range m[i] {
			m[i][k] = float32(random.NormFloat64())
		}
	}
	return m
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// record writes a run of one or more contexts, whose prompts are half of their tokens, and opens it. Of a layer whose
// first row is nil it writes what llama.cpp computes of the last one: the rows of tokens with logits.
func record(t testing.TB, contexts ...[]matrix) *tensors.Run {
	t.Helper()
	return recordSequences(t, func(int) int { return 0 }, contexts...)
}

// recordSequences is record; sequence is that of each token.
func recordSequences(t testing.TB, sequence func(token int) int, contexts ...[]matrix) *tensors.Run {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "fixture", time.Unix(1_790_000_000, 0))
	check(t, err)
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{Workers: 1})
	check(t, err)
	list, base, exec := []map[string]any{}, 0, uint64(0)
	for ctx, layers := range contexts {
		tokens := len(layers[0])
		for first := 0; first < tokens; {
			n := 1
			if first == 0 {
				n = tokens / 2
			}
			exec++
			e := stream.Execution{Ctx: uint32(ctx), Exec: exec, Graph: 1, Phase: label.PhasePrefill,
				TokenFirst: int64(base + first)}
			for i := base + first; i < base+first+n; i++ {
				e.Rows = append(e.Rows, label.Row{Index: int64(i), Token: int32(i), Pos: int32(i), Seqs: []int32{0},
					Phase: label.PhasePrefill})
				list = append(list, map[string]any{"token_index": i, "token_id": 100 + i, "token_text": fmt.Sprint("t",
					i), "seq_id": sequence(i)})
			}
			check(t, w.AppendExecution(&e))
			for layer, rows := range layers {
				begin, count := first, n
				if rows[0] == nil {
					begin, count = first+n-1, 1
				}
				p := stream.Packet{Name: fmt.Sprint("l_out-", layer), Node: fmt.Sprint("l_out-", layer), Op: "ADD",
					Occurrence: 1, Layer: int32(layer), Ctx: uint32(ctx), Exec: exec, Graph: 1,
					Phase: label.PhasePrefill, Rows: label.RowsTokens, RowDim: 1,
					NE: [4]int64{int64(len(rows[begin])), int64(count), 1, 1}, TokenFirst: int64(base + begin),
					TokenCount: int32(count), Component: label.ComponentResidual}
				var data []byte
				for _, row := range rows[begin : begin+count] {
					for _, v := range row {
						data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
					}
				}
				check(t, w.Append(&p, data, func() {}))
			}
			first += n
		}
		base += tokens
	}
	return sealed(t, d, w, list)
}

// sealed ends a run of some tokens, and opens it.
func sealed(t testing.TB, d *rundir.Dir, w *stream.Writer, list []map[string]any) *tensors.Run {
	t.Helper()
	check(t, w.Close())
	streamSum, indexSum := w.Sums()
	d.AddSum(rundir.StreamName, streamSum.Size, streamSum.SHA256)
	d.AddSum(rundir.StreamName+stream.IndexSuffix, indexSum.Size, indexSum.SHA256)
	check(t, d.WriteJSON(rundir.TokensName, map[string]any{"total_tokens": len(list), "tokens": list}))
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion,
		Model: rundir.Model{Name: "fixture"}, Losses: []rundir.Loss{}}))
	check(t, d.Seal())
	r, err := tensors.Open(d.Path())
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}
