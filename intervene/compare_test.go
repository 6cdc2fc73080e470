//go:build llama

package intervene

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

// coarser writes the embedded model with one weight that was rounded to Q4_0 and back, and returns both files.
func coarser(t *testing.T, name string) (model, changed string) {
	t.Helper()
	dir := t.TempDir()
	model, changed = filepath.Join(dir, "a.gguf"), filepath.Join(dir, "b.gguf")
	file, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := file.Tensor(name)
	if !ok {
		t.Fatalf("the embedded model has no weight %s", name)
	}
	rows, per := w.Values()/w.RowValues(), w.RowValues()
	own := llamatap.DefaultModel[w.Offset:][:w.Bytes]
	coarse, err := llama.Requantise(own, w.Type, gguf.Q4_0, rows, per)
	if err != nil {
		t.Fatal(err)
	}
	back, err := llama.Requantise(coarse, gguf.Q4_0, w.Type, rows, per)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(llamatap.DefaultModel)
	copy(other[w.Offset:], back)
	for path, data := range map[string][]byte{model: llamatap.DefaultModel, changed: other} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return model, changed
}

var compareText = strings.Repeat("func main() { fmt.Println(1) } // and some more of it\n", 12)

// TestCompareWeight: of models that differ in one weight, this is the one that explains the difference, all of it; the
// layers before it are equal.
func TestCompareWeight(t *testing.T) {
	const name, layer = "blk.3.ffn_down.weight", 3
	a, b := coarser(t, name)
	c := Comparison{A: a, B: b, Text: compareText, Chunk: 32, Chunks: 2, Weights: true, Diverges: 1e-6, Threads: 1,
		Points: []ggmlhooks.PointRef{{Point: ggmlhooks.PointResidPost, Layer: ggmlhooks.NoLayer},
			{Point: ggmlhooks.PointMLPOutPost, Layer: ggmlhooks.NoLayer}}}
	r, err := c.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Weights) != 1 || r.Weights[0].Name != name || math.Abs(r.Weights[0].KL-r.KLMean) > 1e-12*r.KLMean ||
		r.KLMean < 1e-6 ||
		r.Weights[0].Relative < 0.05 || r.Weights[0].Relative > 0.15 {
		t.Errorf("%+v, KL %v", r.Weights, r.KLMean)
	}
	if r.First == nil || *r.First != layer || r.Chunks != 2 || r.Tokens != 2*15 || len(r.Points) != 2*6 {
		t.Errorf("first layer %v; %+v", r.First, r)
	}
	for _, p := range r.Points {
		if differs := *p.Layer >= layer; (p.Relative > 0) != differs || (p.Lowest < 1-1e-12) != differs ||
			p.Rows != 2*32 {
			t.Errorf("%+v", p)
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text, 0); err != nil || !strings.Contains(text.String(), "of its size from layer 3 on") ||
		!strings.Contains(text.String(), name) {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestCompareNotFinite: a model whose logits are no numbers is named.
func TestCompareNotFinite(t *testing.T) {
	a, broken := coarser(t, "blk.3.ffn_down.weight")
	file, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	norm, ok := file.Tensor("output_norm.weight")
	if !ok || norm.Type != gguf.F32 {
		t.Fatal("the embedded model has no output norm of F32")
	}
	data := bytes.Clone(llamatap.DefaultModel)
	binary.LittleEndian.PutUint32(data[norm.Offset:], math.Float32bits(float32(math.Inf(1))))
	if err := os.WriteFile(broken, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Comparison{{A: a, B: broken}, {A: broken, B: a}} {
		c.Text, c.Chunk, c.Chunks, c.Diverges, c.Threads = compareText, 32, 1, 0.1, 1
		_, err := c.Run(context.Background())
		if err == nil || !strings.Contains(err.Error(), "logits of "+broken+" are not finite") {
			t.Errorf("%v", err)
		}
	}
}

// TestCompareMissing: a point that is not compared is named with the reason.
func TestCompareMissing(t *testing.T) {
	a, b := coarser(t, "blk.0.attn_q.weight")
	c := Comparison{A: a, B: b, Text: compareText, Chunk: 16, Chunks: 1, Diverges: 1, Threads: 1}
	for _, name := range []string{"attn_gate", "lm_head", "resid_post.99", "resid_post.5"} {
		ref, _ := ggmlhooks.ParsePoint(name)
		c.Points = append(c.Points, ref)
	}
	r, err := c.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []MissingPoint{{"attn_gate", "the outputs of heads have no gate"},
		{"resid_post.99", "the model has 6 layers"}}
	var text strings.Builder
	if err := r.WriteText(&text, 0); err != nil || !slices.Equal(r.Missing, want) || len(r.Points) != 2 ||
		!strings.Contains(text.String(), "\nnot compared, resid_post.99: the model has 6 layers\n") {
		t.Errorf("%v: missing %+v, want %+v\n%s", err, r.Missing, want, text.String())
	}
}

// TestCompareSame: a model does not differ from itself.
func TestCompareSame(t *testing.T) {
	a, _ := coarser(t, "output_norm.weight")
	c := Comparison{A: a, B: a, Text: compareText, Chunk: 16, Chunks: 1, Weights: true, Diverges: 1e-9, Threads: 1}
	r, err := c.Run(context.Background())
	if err != nil || r.KLMax > 1e-15 || r.SameTop != 1 || r.PerplexityA != r.PerplexityB || len(r.Weights) != 0 ||
		r.First != nil {
		t.Errorf("%v: %+v", err, r)
	}
	var text strings.Builder // no points were asked for
	if err := r.WriteText(&text, 0); err != nil ||
		!strings.Contains(text.String(), "was not compared: add resid_post to --points") {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

// TestCompareEnds: what cannot be compared is refused, and an interrupted comparison has what was done.
func TestCompareEnds(t *testing.T) {
	a, b := coarser(t, "blk.0.attn_q.weight")
	for want, c := range map[string]Comparison{
		"too short to compare": {A: a, B: b, Text: compareText, Chunk: 4},
		"give a longer text":   {A: a, B: b, Text: "a", Chunk: 64},
		"no such file":         {A: a, B: b + "x", Text: compareText},
		"has none of the points:": {A: a, B: b, Text: compareText, Chunk: 16,
			Points: []ggmlhooks.PointRef{{Point: ggmlhooks.PointRouterLogits, Layer: ggmlhooks.NoLayer}}},
	} {
		if _, err := c.Run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := Comparison{A: a, B: b, Text: compareText, Chunk: 16, Diverges: 1, Threads: 1}
	c.Progress = func(done, _ int64) {
		if done == 3 {
			cancel()
		}
	}
	r, err := c.Run(ctx)
	if err != nil || !r.Partial || r.Chunks != 1 || r.Tokens != 7 {
		t.Errorf("%v: %+v", err, r)
	}
	c.Progress = nil
	if _, err := c.Run(ctx); !errors.Is(err, llama.ErrInterrupted) {
		t.Error(err)
	}
}
