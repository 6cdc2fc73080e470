//go:build llama

package intervene

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
)

// open loads a model; "" is the embedded one.
func open(t *testing.T, o Options) *Engine {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = 1
	}
	e, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// synthetic writes a small model with random weights.
func synthetic(t *testing.T, arch string, typ gguf.Type) string {
	t.Helper()
	c, err := synth.New(arch, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Layers, c.Seed, c.Type = 2, 11, typ
	if arch == "jamba" {
		c.Layers = 4
	}
	donor, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	m, err := synth.Plan(c, &donor.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), arch+".gguf")
	if err := m.WriteFile(context.Background(), path, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func tokens(t *testing.T, e *Engine, text string) []llama.Token {
	t.Helper()
	list, err := e.Vocab().Tokenize(text, true, false)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// allSites are the sites of all points that can be changed, with those of each head.
func allSites(t *testing.T, e *Engine, prompt []llama.Token) (rows, heads []Site) {
	t.Helper()
	refs, _, err := e.Places(context.Background(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(refs), func(a, b ggmlhooks.PointRef) int {
		return 100*(a.Layer-b.Layer) + int(a.Point) - int(b.Point)
	}) {
		for token := range prompt {
			site := Site{ref.Point, ref.Layer, token, AllHeads}
			rows = append(rows, site)
			for site.Head = range refs[ref] {
				heads = append(heads, site)
			}
		}
	}
	return rows, heads
}

// TestOwnValues: where a row or a head gets its own value, no bit of the logits changes, at any point of any
// architecture; and a row with other values reaches the logits.
func TestOwnValues(t *testing.T) {
	byDay := []string{"llama", "qwen3moe"}
	for _, arch := range synth.Archs() {
		for _, typ := range []gguf.Type{gguf.F16, gguf.Q8_0} {
			t.Run(fmt.Sprint(arch, " ", typ), func(t *testing.T) {
				if !slices.Contains(byDay, arch) || typ != gguf.F16 {
					testenv.Slow(t)
				}
				ownValues(t, open(t, Options{Model: synthetic(t, arch, typ)}))
			})
		}
	}
}

func ownValues(t *testing.T, e *Engine) {
	prompt := tokens(t, e, "One two")
	rows, heads := allSites(t, e, prompt)
	values := map[Site][]float32{}
	sites := slices.Concat(rows, heads)
	var plain []float32
	each(t, e, prompt, []Trial{nil}, RunOptions{Observe: rows, Whole: true}, func(r *Result) {
		plain = slices.Clone(r.Logits)
		for _, s := range sites {
			values[s] = r.Value(s)
		}
	})
	var trials []Trial
	for _, s := range sites {
		trials = append(trials, Trial{{Site: s, Kind: llama.WatchKeep}})
		if v := values[s]; v != nil {
			trials = append(trials, Trial{{Site: s, Values: v}})
		}
	}
	tolerance := 1e-3 * float64(slices.Max(plain))
	for _, whole := range []bool{true, false} {
		each(t, e, prompt, trials, RunOptions{Whole: whole}, func(r *Result) {
			edit := &trials[r.Trial][0]
			for i, x := range r.Control { // of a copied prefix: another shape, so other rounding
				if d := math.Abs(float64(x - plain[i])); d > tolerance {
					t.Fatalf("without edits, from token %d on: logit %d differs by %v", edit.Token, i, d)
				}
			}
			if !slices.Equal(r.Logits, r.Control) || whole && !slices.Equal(r.Control, plain) {
				t.Errorf("%s, kind %d, whole %v: the logits change", edit.Site, edit.Kind, whole)
			}
		})
	}
	trials = trials[:0]
	for _, s := range sites {
		if s.Token != len(prompt)-1 || s.Point == ggmlhooks.PointExpertIndices {
			continue
		}
		other := slices.Clone(values[s])
		for i := range other {
			other[i] += 1 + 0.3*float32(i%7)
		}
		trials = append(trials, Trial{{Site: s, Values: other}})
	}
	each(t, e, prompt, trials, RunOptions{}, func(r *Result) {
		if slices.Equal(r.Logits, r.Control) {
			t.Errorf("other values of %s change nothing", trials[r.Trial][0].Site)
		}
	})
	t.Logf("%d points, %d rows and heads", len(rows)/len(prompt), len(sites))
}

// each runs trials.
func each(t *testing.T, e *Engine, prompt []llama.Token, trials []Trial, o RunOptions, f func(*Result)) {
	t.Helper()
	done := 0
	err := e.Run(context.Background(), prompt, trials, o, func(r *Result) error { done++; f(r); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if done != len(trials) {
		t.Fatalf("%d of %d trials were run", done, len(trials))
	}
}

// TestPatchWhole: what the last layer holds in another run makes that run's logits, to the bit; and a direction that is
// projected out is gone.
func TestPatchWhole(t *testing.T) {
	e := open(t, Options{})
	clean, corrupt := tokens(t, e, "func main() {")[:5], tokens(t, e, "type File struct {")[:5]
	site := Site{ggmlhooks.PointResidPost, e.layers() - 1, len(clean) - 1, AllHeads}
	inner := Site{ggmlhooks.PointResidPost, 2, len(clean) - 1, AllHeads}
	var want, value, own []float32
	each(t, e, clean, []Trial{nil}, RunOptions{Observe: []Site{site}}, func(r *Result) {
		want, value = slices.Clone(r.Logits), r.Value(site)
	})
	each(t, e, corrupt, []Trial{{{Site: site, Values: value}}}, RunOptions{Observe: []Site{inner}}, func(r *Result) {
		own = r.Value(inner)
		if !slices.Equal(r.Logits, want) || slices.Equal(r.Control, want) {
			t.Error("the patched run has not the clean run's logits")
		}
	})
	direction, along := make([]float32, len(own)), float32(0)
	direction[3], direction[7] = 0.6, 0.8
	for i, d := range direction {
		along += d * own[i]
	}
	without := slices.Clone(own)
	for i, d := range direction {
		without[i] -= along * d
	}
	var logits [2][]float32
	each(t, e, corrupt, []Trial{{{Site: inner, Kind: llama.WatchProject, Values: direction}},
		{{Site: inner, Values: without}}}, RunOptions{}, func(r *Result) { logits[r.Trial] = slices.Clone(r.Logits) })
	for i, x := range logits[0] {
		if math.Abs(float64(x-logits[1][i])) > 1e-4 {
			t.Fatalf("logit %d: %v with the direction projected out, %v with these values", i, x, logits[1][i])
		}
	}
}

// TestRunWrong: what cannot be run is refused with the cause, an end of the context ends it, and then longer
// prompts can be run.
func TestRunWrong(t *testing.T) {
	e := open(t, Options{Trials: 2})
	prompt := tokens(t, e, "func main")
	for want, trial := range map[string]Trial{
		"no attn_gate.1@0 that can be changed": {{Site: Site{ggmlhooks.PointAttnGate, 1, 0, AllHeads}}},
		"no z.1.h9@0 that":                     {{Site: Site{ggmlhooks.PointZ, 1, 0, 9}}},
		"more than the 3 values":               {{Site: Site{ggmlhooks.PointZ, 1, 0, 1}, Values: make([]float32, 3)}},
		"has 64 values in 1 pieces, not 65":    {{Site: Site{ggmlhooks.PointZ, 1, 0, 1}, Values: make([]float32, 65)}},
	} {
		err := e.Run(context.Background(), prompt, []Trial{trial}, RunOptions{}, func(*Result) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := 0
	err := e.Run(ctx, prompt, make([]Trial, 9), RunOptions{}, func(*Result) error { done++; cancel(); return nil })
	if !errors.Is(err, llama.ErrInterrupted) || done != 2 {
		t.Errorf("%v after %d trials", err, done)
	}
	each(t, e, prompt, make([]Trial, 3), RunOptions{}, func(*Result) {})
	for _, n := range []int{300, 512} { // the context grows with the prompt
		each(t, e, make([]llama.Token, n), []Trial{nil}, RunOptions{Whole: true}, func(*Result) {})
	}
}
