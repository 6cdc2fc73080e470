package tensors

import (
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/stream"
)

// record runs the model and returns the run.
func record(t *testing.T, args ...string) *Run {
	t.Helper()
	binary, out := testenv.NeedBinary(t), t.TempDir()
	args = append([]string{"run", "-p", "The cat sat on the mat and", "-n", "6", "--temp", "0", "-t", "1", "--tap-out",
		out}, args...)
	if text, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("llamatap %q: %v: %s", args, err, text)
	}
	runs, err := filepath.Glob(filepath.Join(out, "*", "run_*"))
	check(t, err)
	if len(runs) != 1 {
		t.Fatalf("%d run directories", len(runs))
	}
	r, err := Open(runs[0])
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// TestMapEqualsSoftMaxOfTheSameRun recomputes every map of a run without flash attention from that run's Q and K,
// and compares with the soft-max that llama.cpp computed, in every layer and head. A run with flash attention
// computes other activations from the second layer on, so that its maps can be compared in the first layer only:
// TestMapEqualsSoftMaxOfTheFirstLayer.
func TestMapEqualsSoftMaxOfTheSameRun(t *testing.T) {
	testenv.NeedLlama(t)
	r := record(t, "-fa", "off", "-n", "1", "--tap-tensors", "Qcur,Kcur,kq_soft_max", "--tap-dtype", "f32")
	rope := make(map[int32]map[string]pieces)
	maps := make(map[int32]pieces)
	for _, p := range r.Stream.Packets() {
		values, err := r.Stream.Float32(p, nil)
		check(t, err)
		switch {
		case p.TokenFirst != 0:
		case p.Op == "SOFT_MAX":
			maps[p.Layer] = pieces{*p, values}
		case p.Op == "ROPE":
			if rope[p.Layer] == nil {
				rope[p.Layer] = make(map[string]pieces)
			}
			rope[p.Layer][ggmlhooks.WithoutLayer(p.Node)] = pieces{*p, values}
		}
	}
	if len(maps) < 2 {
		t.Fatalf("%d layers have a soft-max", len(maps))
	}
	for layer, m := range maps {
		compareMap(t, layer, m, rope[layer]["Qcur"], rope[layer]["Kcur"])
	}
}

func compareMap(t *testing.T, layer int32, m, q, k pieces) {
	t.Helper()
	tokens := int(q.packet.TokenCount)
	a := attention{HeadDim: int(q.packet.NE[0]), Heads: int(q.packet.NE[1]), KVHeads: int(k.packet.NE[1]),
		Tokens: tokens, Cells: tokens, Q: q.values, K: k.values}
	a.Scale = 1 / math.Sqrt(float64(a.HeadDim))
	a.Mask = make([]float32, tokens*tokens)
	for i := range a.Mask {
		if i%tokens > i/tokens {
			a.Mask[i] = minusInf
		}
	}
	cells, rows := int(m.packet.NE[0]), int(m.packet.NE[1])
	for head := range a.Heads {
		for token := range tokens {
			for cell, got := range row(t, a, head, token) {
				want := m.values[(head*rows+token)*cells+cell]
				if math.Abs(float64(got-want)) > 1e-3 {
					t.Fatalf("layer %d, head %d, token %d, cell %d: %v, and llama.cpp has %v", layer, head, token, cell,
						got, want)
				}
			}
		}
	}
}

// TestMapEqualsSoftMaxOfTheFirstLayer recomputes the first layer's maps of a run with flash attention, in small
// micro-batches, and compares with the soft-max of a run without.
func TestMapEqualsSoftMaxOfTheFirstLayer(t *testing.T) {
	testenv.NeedLlama(t)
	keep := record(t, "-ub", "3", "--tap-attention")
	exact := record(t, "-ub", "3", "--tap-attention", "exact")
	prompt := int64(0)
	for e := range keep.Stream.Executions() {
		prompt = max(prompt, promptEnd(e))
	}
	for head := range 4 {
		want := make(map[int64][]float32)
		o := MapOptions{Head: head, First: 0, End: prompt}
		check(t, newMap(t, exact, o).EachRow(func(m *MapRow) error {
			want[m.Token] = append([]float32(nil), m.Weights...)
			return nil
		}))
		rows := 0
		check(t, newMap(t, keep, o).EachRow(func(m *MapRow) error {
			rows++
			for cell, got := range m.Weights {
				if math.Abs(float64(got-want[m.Token][cell])) > 1e-3 {
					t.Fatalf("head %d, token %d, cell %d: %v, and llama.cpp has %v", head, m.Token, cell, got,
						want[m.Token][cell])
				}
			}
			return nil
		}))
		if int64(rows) != prompt || prompt < 5 {
			t.Fatalf("%d rows of %d prompt tokens", rows, prompt)
		}
	}
}

// promptEnd is one past the last prompt token of an execution.
func promptEnd(e *stream.Execution) int64 {
	end := int64(0)
	for _, row := range e.Rows {
		if row.Phase.String() == "prefill" {
			end = row.Index + 1
		}
	}
	return end
}
