//go:build linux

package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/intervene"
)

// causal runs the command and reads its JSON.
func causal(t *testing.T, args ...string) (r intervene.Report) {
	t.Helper()
	out := llamatap(t, append([]string{"causal", "--json", "-t", "1"}, args...)...).good(t).stdout
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// TestCausal: a sweep with values of a recording is the one with values of the prompt that was recorded, and formats
// are written to files.
func TestCausal(t *testing.T) {
	const clean, corrupt = "if err != nil {", "for i := range {"
	run := record(t, append([]string{"--tap-point", "resid_post,z"}, exact...), "-p", clean, "-n", "1", "-t", "1",
		"-fa", "off").dir
	sweep := []string{"--corrupt", corrupt, "--points", "resid_post,z", "--layers", "1-5"}
	want := causal(t, append(sweep, "--clean", clean)...)
	got := causal(t, append(sweep, "--clean", clean, "--from", run)...)
	if len(want.Effects) != 60 || len(got.Effects) != 60 {
		t.Fatalf("%d and %d effects, want 60", len(got.Effects), len(want.Effects))
	}
	for i, f := range want.Effects {
		if g := got.Effects[i]; math.Abs(g.Effect.Mean-f.Effect.Mean) > 1e-6*math.Abs(want.Effects[0].Effect.Mean) {
			t.Errorf("effect %d is %v with the recording, %v with the prompt", i, g, f)
		}
	}
	if o := llamatap(t, append(append([]string{"causal"}, sweep...), "--clean", corrupt, "--from",
		run)...); o.status == 0 ||
		!strings.Contains(o.stderr, "the recording is not of the clean prompt") {
		t.Errorf("a recording of another prompt: status %d, %s", o.status, o.stderr)
	}
	pairs := filepath.Join(t.TempDir(), "pairs.jsonl")
	lines := fmt.Sprintf("{\"clean\":%q,\"corrupt\":%q}\n{\"clean\":%[2]q,\"corrupt\":%[1]q}\n", clean, corrupt)
	if err := os.WriteFile(pairs, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	several := causal(t, "--pairs", pairs, "--points", "resid_post.3", "--graph")
	if f := several.Effects[0].Effect; f.N != 2 || f.Low == nil || !(*f.Low < f.Mean && f.Mean < *f.High) {
		t.Errorf("an effect of two pairs is %+v", f)
	}
	for format, sign := range map[string]string{"svg": "<svg ", "dot": "digraph", "graphml": "<graphml",
		"neuronpedia": "\"qParams\"", "csv": "point,layer", "text": "of the difference"} {
		file := filepath.Join(t.TempDir(), "graph."+format)
		llamatap(t, "causal", "--clean", clean, "--corrupt", corrupt, "--tokens", "-1", "--format", format, "-t", "1",
			"-o", file).good(t)
		text, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(text), sign) || err != nil {
			t.Errorf("%s: %v\n%s", format, err, text)
		}
	}
}

// TestCausalRefuses: what cannot be meant is refused, and a file that cannot be written before anything is computed.
func TestCausalRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--corrupt \"\": give a text", []string{"--corrupt", ""}},
		{"--answer \"\": give a text", []string{"--answer", ""}},
		{"--trials 0: give a number from 1", []string{"--trials", "0"}},
		{"run with -fa off", []string{"--points", "attn_probs", "-fa", "on"}},
		{"choose another place with -o", []string{"-o", filepath.Join(dir, "none", "x")}},
		{"name a file in it with -o", []string{"-o", dir}},
		{"choose another place with --plot", []string{"--plot", filepath.Join(dir, "none", "x.svg")}},
	} {
		args := append([]string{"causal", "--clean", "if err", "-t", "1"}, c.args...)
		if o := llamatap(t, args...); o.status == 0 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%q: status %d, %s", c.args, o.status, o.stderr)
		}
	}
}

// TestBeyondTraining: a text that is longer than those that a model was trained on is said to be.
func TestBeyondTraining(t *testing.T) {
	t.Parallel()
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) { c.Context = 8 })
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("if err != nil {\n", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = "was trained on 8: what it computes"
	for prompt, want := range map[string]bool{"if err": false, strings.Repeat("if err ", 9): true} {
		o := llamatap(t, "causal", "-m", model, "--clean", prompt, "--tokens", "-1", "-t", "1").good(t)
		if strings.Contains(o.stdout, warning) != want {
			t.Errorf("causal with %q:\n%s", prompt, o.stdout)
		}
	}
	for chunk, want := range map[string]bool{"8": false, "16": true} {
		o := llamatap(t, "compare-models", model, model, "-f", text, "-c", chunk, "--chunks", "1", "-t", "1").good(t)
		if strings.Contains(o.stdout, warning) != want {
			t.Errorf("compare-models with chunks of %s:\n%s", chunk, o.stdout)
		}
	}
}

// TestCausalOnDevice: effects on a device are those on the CPU, and own values change nothing there.
func TestCausalOnDevice(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	sweep := []string{"-m", synthetic(t, "qwen3moe", gguf.F16, nil), "--clean", "if err", "--corrupt", "for i",
		"--points", "resid_post,z,mlp_out"}
	cpu := causal(t, append(sweep, "-ngl", "0")...)
	device := causal(t, append(sweep, "--rpc", endpoint, "-ngl", "99")...)
	if len(device.Effects) != len(cpu.Effects) || device.Noise != 0 || cpu.Effects[0].Effect.Mean < 1e-3 {
		t.Errorf("%d effects with noise %v, %d on the CPU, %v", len(device.Effects), device.Noise, len(cpu.Effects),
			cpu.Effects[0])
	}
	for i, f := range cpu.Effects[:3] {
		if d := device.Effects[i].Effect.Mean; math.Abs(d-f.Effect.Mean) > 1e-2*f.Effect.Mean {
			t.Errorf("effect %d is %v on the device, %v on the CPU", i, d, f.Effect.Mean)
		}
	}
}

// TestCausalHF compares zero ablations of rows and heads with PyTorch hooks: models of transformers with random
// weights.
func TestCausalHF(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "torch", "transformers", "gguf")
	ids := tokenize(t, textFile(t, "The quick brown fox jumps over it"))
	prompt, text := make([]llama.Token, len(ids)), make([]string, len(ids))
	for i, id := range ids {
		prompt[i], text[i] = llama.Token(id), strconv.Itoa(int(id))
	}
	dir := t.TempDir()
	args := []string{"testdata/causal_hf.py", dir, testenv.Model(t), strings.Join(text, ",")}
	if out, err := exec.Command(python, append(args, pointModels[0]...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range pointModels[0] {
		t.Run(name, func(t *testing.T) { compareAblations(t, filepath.Join(dir, name), prompt) })
	}
}

// compareAblations runs what the JSON file beside a model has, and compares the logits.
func compareAblations(t *testing.T, path string, prompt []llama.Token) {
	var entries [][5]json.RawMessage
	text, err := os.ReadFile(path + ".json")
	if err == nil {
		err = json.Unmarshal(text, &entries)
	}
	if err != nil {
		t.Fatal(err)
	}
	var trials []intervene.Trial
	var names []string
	want := make([][]float32, len(entries))
	for i, entry := range entries {
		var point string
		site := intervene.Site{}
		for k, to := range []any{&point, &site.Layer, &site.Token, &site.Head, &want[i]} {
			if err := json.Unmarshal(entry[k], to); err != nil {
				t.Fatal(err)
			}
		}
		var trial intervene.Trial
		if ref, ok := ggmlhooks.ParsePoint(point); ok {
			site.Point = ref.Point
			trial = intervene.Trial{{Site: site}}
		}
		trials, names = append(trials, trial), append(names, site.String())
	}
	o := intervene.Options{Model: path + ".gguf", Threads: 1, CacheType: "f32"}
	e, err := intervene.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var rows []intervene.Site
	for _, trial := range trials[1:] {
		rows = append(rows, trial[0].Site)
	}
	err = e.Run(context.Background(), prompt, trials[:1], intervene.RunOptions{Observe: rows, Whole: true},
		func(r *intervene.Result) error {
			for _, trial := range trials[1:] {
				trial[0].Values = make([]float32, len(r.Value(trial[0].Site)))
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	worst, moved := 0.0, 0
	err = e.Run(context.Background(), prompt, trials, intervene.RunOptions{}, func(r *intervene.Result) error {
		differs, largest, effect := 0.0, 0.0, 0.0
		for i, x := range want[r.Trial] {
			differs = max(differs, math.Abs(float64(r.Logits[i])-float64(x)))
			effect = max(effect, math.Abs(float64(x)-float64(want[0][i])))
			largest = max(largest, math.Abs(float64(want[0][i])))
		}
		if worst = max(worst, differs/largest); !(differs <= 1e-4*largest) {
			t.Errorf("%s: logits differ by %.2g, relative to the largest without ablation", names[r.Trial],
				differs/largest)
		}
		if effect > 0.01*largest {
			moved++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if moved < len(trials)/3 {
		t.Errorf("%d of %d ablations move a logit by 1 %%", moved, len(trials))
	}
	t.Logf("%d ablations equal within %.2g; %d move a logit by 1 %%", len(trials), worst, moved)
}
