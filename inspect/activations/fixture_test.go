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

// record writes a run whose prompt is half of the tokens, and opens it. Of the last layer it writes what llama.cpp
// computes: the rows of tokens with logits.
func record(t testing.TB, layers []matrix) *tensors.Run {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "fixture", time.Unix(1_790_000_000, 0))
	check(t, err)
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{Workers: 1})
	check(t, err)
	tokens := len(layers[0])
	list := []map[string]any{}
	for first, exec := 0, uint64(1); first < tokens; exec++ {
		n := 1
		if first == 0 {
			n = tokens / 2
		}
		e := stream.Execution{Exec: exec, Graph: 1, Phase: label.PhasePrefill, TokenFirst: int64(first)}
		for i := first; i < first+n; i++ {
			e.Rows = append(e.Rows, label.Row{Index: int64(i), Token: int32(i), Pos: int32(i), Seqs: []int32{0},
				Phase: label.PhasePrefill})
			list = append(list, map[string]any{"token_index": i, "token_id": 100 + i, "token_text": fmt.Sprint("t", i)})
		}
		check(t, w.AppendExecution(&e))
		for layer, rows := range layers {
			begin, count := first, n
			if rows[0] == nil {
				begin, count = first+n-1, 1
			}
			p := stream.Packet{Name: fmt.Sprint("l_out-", layer), Node: fmt.Sprint("l_out-", layer), Op: "ADD",
				Occurrence: 1, Layer: int32(layer), Exec: exec, Graph: 1, Phase: label.PhasePrefill,
				Rows: label.RowsTokens, RowDim: 1, NE: [4]int64{int64(len(rows[begin])), int64(count), 1, 1},
				TokenFirst: int64(begin), TokenCount: int32(count), Component: label.ComponentResidual}
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
	check(t, w.Close())
	streamSum, indexSum := w.Sums()
	d.AddSum(rundir.StreamName, streamSum.Size, streamSum.SHA256)
	d.AddSum(rundir.StreamName+stream.IndexSuffix, indexSum.Size, indexSum.SHA256)
	check(t, d.WriteJSON(rundir.TokensName, map[string]any{"total_tokens": tokens, "tokens": list}))
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{Version: rundir.MetadataVersion,
		Model: rundir.Model{Name: "fixture"}, Losses: []rundir.Loss{}}))
	check(t, d.Seal())
	r, err := tensors.Open(d.Path())
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}
