//go:build linux

package oracle

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
)

// mapKey says whose attention.
type mapKey struct {
	layer, head int
	token       int64
}

// maps are the attention maps of a run, as inspect gives them: recomputed, or those of the run itself.
func (c *capture) maps(t *testing.T) map[mapKey][]float32 {
	t.Helper()
	run, err := tensors.Open(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	maps := map[mapKey][]float32{}
	for _, a := range c.attended {
		attention, err := tensors.NewMap(run, tensors.MapOptions{Layer: a.Layer, Head: tensors.AllHeads, Ctx: a.Ctx})
		if err != nil {
			t.Fatal(err)
		}
		err = attention.EachRow(func(row *tensors.MapRow) error {
			maps[mapKey{a.Layer, row.Head, row.Token}] = append([]float32(nil), row.Weights...)
			return nil
		})
		if err != nil {
			t.Fatalf("layer %d: %v", a.Layer, err)
		}
	}
	return maps
}

// TestAttention recomputes attention maps from what flash attention was given, and compares them with the soft-max
// of the same run without flash attention. The two runs' numbers part from the first attention on, more so with
// quantised weights: the first layers must agree to 1e-3, and the others so far that a wrong scale, mask, cap or
// sink would show.
func TestAttention(t *testing.T) {
	window := func(c *synth.Config) { c.Layers, c.Window = 6, 16 } // gemma3: every sixth layer sees everything
	models := map[string]string{
		"default": testenv.Model(t), "llama": synthetic(t, "llama", gguf.F32, nil),
		"qwen3":  synthetic(t, "qwen3", gguf.F32, nil),
		"gemma2": synthetic(t, "gemma2", gguf.F32, window), "gemma3": synthetic(t, "gemma3", gguf.F32, window),
		"gpt-oss": synthetic(t, "gpt-oss", gguf.F32, window), "gpt2": synthetic(t, "gpt2", gguf.F32, nil),
		"jamba": synthetic(t, "jamba", gguf.F32, nil),
	}
	// One of each kind by day: grouped heads, small micro-batches, a window, sinks, queries beside keys and values, and
	// queries without RoPE.
	representative := []string{"default ub 512", "llama ub 16", "gemma3 ub 16", "gpt-oss ub 512", "gpt2 ub 16",
		"jamba ub 512"}
	for name, model := range models {
		for _, ub := range []string{"512", "16"} {
			if !testenv.Nightly() && !slices.Contains(representative, name+" ub "+ub) {
				continue
			}
			t.Run(name+" ub "+ub, func(t *testing.T) {
				args := []string{"-m", model, "-p", long, "-n", "6", "--temp", "0", "-t", "1", "-c", "512", "-ub", ub,
					"-ctk", "f32", "-ctv", "f32"}
				keep := record(t, append([]string{"--tap-attention"}, exact...), args...)
				computed := record(t, append([]string{"--tap-attention", "exact"}, exact...), args...)
				attended := keep.meta.Model.NLayer
				if name == "jamba" {
					attended = 1
				}
				compareMaps(t, keep, computed, attended)
			})
		}
	}
}

func compareMaps(t *testing.T, keep, computed *capture, layers int) {
	t.Helper()
	if len(keep.attended) != layers || len(computed.attended) != layers {
		t.Fatalf("%d and %d layers with attention of %d", len(keep.attended), len(computed.attended), layers)
	}
	if fmt.Sprint(keep.ids()) != fmt.Sprint(computed.ids()) {
		t.Fatal("the runs chose different tokens: take another prompt")
	}
	heads := keep.meta.Model.NHead
	got, want := keep.maps(t), computed.maps(t)
	if len(got) != layers*heads*len(keep.tokens) || len(want) != len(got) {
		t.Fatalf("%d recomputed rows and %d computed ones of %d layers, %d heads and %d tokens", len(got), len(want),
			layers, heads, len(keep.tokens))
	}
	first := 2
	if keep.meta.Model.FileType != "F32" {
		first = 1
	}
	worst := make([]float64, keep.meta.Model.NLayer)
	for k, w := range want {
		for cell := range max(len(w), len(got[k])) {
			worst[k.layer] = max(worst[k.layer], math.Abs(weight(w, cell)-weight(got[k], cell)))
		}
	}
	t.Logf("largest differences by layer, of %d rows: %.2g", len(want), worst)
	for layer, d := range worst {
		if d > 0.05 || layer < first && d > 1e-3 {
			t.Errorf("layer %d: weights differ by %g", layer, d)
		}
	}
}

// weight is 0 for a cell that a graph did not look at.
func weight(row []float32, cell int) float64 {
	if cell >= len(row) {
		return 0
	}
	return float64(row[cell])
}

// TestAttentionOfSavedState: where llama-server loads a prompt that it had saved, cells hold other keys than those that
// were computed there last, and no attention of them is printed.
func TestAttentionOfSavedState(t *testing.T) {
	s := serve(t, []string{"--tap-attention"}, "-np", "1", "-c", "512", "-t", "1", "--no-webui", "--cache-ram", "64")
	s.ask(t, question{prompt: long, n: 2})
	s.ask(t, question{prompt: "package other\n" + strings.Repeat("var x int\n", 20), n: 2})
	if a := s.ask(t, question{prompt: long + " and more", n: 2}); a.Timings.Cached == 0 {
		t.Fatalf("nothing was loaded: %+v", a)
	}
	s.stop()
	dir := runDirs(t, s.out)[0]
	inspect := []string{"inspect", dir, "--attention", "--layer", "0", "--head", "0"}
	if o := llamatap(t, inspect...); o.status == 0 || !strings.Contains(o.stderr, "a saved state may have replaced") {
		t.Errorf("status %d\n%s%s", o.status, o.stdout, o.stderr)
	}
	llamatap(t, append(inspect, "--token", "0:20")...).good(t)
}

// TestAttentionOfAKilledRun: what attention maps are made of is known while a run goes on, and after it was killed.
func TestAttentionOfAKilledRun(t *testing.T) {
	g := startRecording(t, t.TempDir(), 1<<18, slices.Concat([]string{"run", "--tap-attention"}, endless)...)
	dir := runDirs(t, g.out)[0]
	inspect := []string{"inspect", dir, "--attention", "--layer", "0", "--head", "0", "--token", "0:5", "--format",
		"npy"}
	live := llamatap(t, inspect...)
	for live.status != 0 && strings.Contains(live.stderr, "of the chosen tokens was captured") { // files have none yet
		live = llamatap(t, inspect...)
	}
	live.good(t)
	g.killAll()
	llamatap(t, "verify", "--repair", dir)
	after := llamatap(t, inspect...).good(t).stdout
	if after != live.stdout || !strings.Contains(after, "'shape': (5, ") {
		t.Errorf("%q of the live run, %q of the repaired one", live.stdout, after)
	}
}
