package activations

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestTally: the parts that workers see add up to the soft-max and the largest logits of all.
func TestTally(t *testing.T) {
	const vocab, part = 1000, 64
	random := rand.New(rand.NewPCG(1, 1))
	logits, real := make([]float32, vocab), make([]float32, vocab)
	sum, squares, wrong := 0.0, 0.0, 0.0
	for i := range logits {
		logits[i] = float32(random.NormFloat64()*5 + 700) // exp overflows
		real[i] = logits[i] + float32(i%3)
		sum += math.Exp(float64(logits[i]) - 700)
		squares += float64(real[i]) * float64(real[i])
		wrong += math.Pow(float64(real[i]-logits[i]), 2)
	}
	workers := make([]tally, 3)
	for first := 0; first < vocab; first += part {
		workers[first/part%3].add(int32(first), logits[first:min(first+part, vocab)], real)
	}
	all := &workers[0]
	all.merge(&workers[1])
	all.merge(&workers[2])
	all.merge(&tally{})
	damaged := float32(math.NaN())
	all.add(0, []float32{damaged, float32(math.Inf(1))}, []float32{1, 1})
	all.add(0, []float32{-1e30}, []float32{damaged})
	order := make([]int32, vocab)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int { return int(math.Copysign(1, float64(logits[y]-logits[x]))) })
	for i, token := range all.top {
		if token.ID != order[i] || token.Logit != float64(logits[order[i]]) {
			t.Errorf("place %d: %+v, want token %d", i, token, order[i])
		}
	}
	if len(all.top) != LensTop || math.Abs(all.sum*math.Exp(all.most-700)/sum-1) > 1e-12 {
		t.Errorf("%d tokens, sum %v, want %v", len(all.top), all.sum*math.Exp(all.most-700), sum)
	}
	if math.Abs(all.squares/squares-1) > 1e-12 || math.Abs(all.error/wrong-1) > 1e-12 || all.largest != 2 {
		t.Errorf("squares %v, differences %v, largest %v", all.squares, all.error, all.largest)
	}
}

// TestLensOfModel: a model that is named and cannot be used is an error; one that the run names is a note.
func TestLensOfModel(t *testing.T) {
	layers := []matrix{normal(rand.New(rand.NewPCG(6, 7)), 4, 8)}
	other := filepath.Join(t.TempDir(), "other.gguf")
	check(t, os.WriteFile(other, llamatap.DefaultModel, 0o600))
	for model, want := range map[string]string{"/nowhere.gguf": "--model /nowhere.gguf: no logit lens: ",
		other: "takes 256 values and l_out-0 has 8"} {
		_, err := Analyze(context.Background(), record(t, layers), Options{Lens: 1, Model: model})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", model, err, want)
		}
	}
	a, err := Analyze(context.Background(), record(t, layers), Options{Lens: 1})
	if check(t, err); a.Lens.Why == "" {
		t.Errorf("a run that names no model: %+v", a.Lens)
	}
	var out strings.Builder
	if err := a.WriteCSV(&out, "lens"); err == nil || !strings.Contains(err.Error(), a.Lens.Why) {
		t.Errorf("CSV without a lens: %q, %v, want the reason %q", &out, err, a.Lens.Why)
	}
}

// TestOpenHead: what is not the run's model is refused with the remedy.
func TestOpenHead(t *testing.T) {
	own, err := gguf.ReadBytes(llamatap.DefaultModel)
	check(t, err)
	for _, c := range []struct {
		path string
		m    rundir.Model
		want string
	}{
		{"", rundir.Model{}, "--model"},
		{"", rundir.Model{Path: "/nowhere/model.gguf"}, "--model"},
		{t.TempDir(), rundir.Model{}, "regular"},
		{"", rundir.Model{Path: embedded, SizeBytes: own.TensorBytes() + 1}, "--model"},
	} {
		if h, err := openHead(c.path, c.m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v %v, want %s", c, h, err, c.want)
		}
	}
	h, err := openHead("", rundir.Model{Path: embedded, SizeBytes: own.TensorBytes()})
	check(t, err)
	check(t, h.close())
}
