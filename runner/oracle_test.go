//go:build llama

package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// stock runs llama-completion with these arguments and returns the text that it generated.
func stock(t *testing.T, args ...string) string {
	t.Helper()
	text, err := tryStock(t, args...)
	if err != nil {
		t.Fatalf("llama-completion %q: %v", args, err)
	}
	return text
}

// tryStock is stock for arguments with which llama-completion may fail.
func tryStock(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"-no-cnv", "--no-display-prompt"}, args...)
	tool := testenv.NeedTool(t, "llama-completion")
	for range 10 {
		cmd := tool.Command(args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%w\n%s", err, stderr.String())
		}
		if text, whole := bytes.CutSuffix(out, []byte("\n\n")); whole {
			text = savingLine.ReplaceAll(text, nil)
			text, _ = bytes.CutSuffix(text, []byte(" [end of text]\n"))
			return string(text), nil
		}
		t.Logf("llama-completion lost the end of its output, as it does on a busy machine: its log thread is not " +
			"waited for")
	}
	t.Fatalf("llama-completion %q never wrote its whole output", args)
	return "", nil
}

// savingLine is what llama-completion writes behind the text with --prompt-cache-all.
var savingLine = regexp.MustCompile(`\n[a-z_]+: saving final output to session file '[^']*'\n$`)

// brief is the first n of all with -short, which the race detector runs with.
func brief[T any](all []T, n int) []T {
	if testing.Short() {
		return all[:n]
	}
	return all
}

// ours runs the runner with the same arguments.
func ours(t *testing.T, args ...string) (string, runner.Result) {
	t.Helper()
	var out strings.Builder
	result, err := runner.Run(context.Background(), runner.Options{Config: parse(t, args...), Stdout: &out})
	if err != nil {
		t.Fatalf("run %q: %v", args, err)
	}
	return out.String(), result
}

func parse(t *testing.T, args ...string) *config.Run {
	t.Helper()
	cfg, f := config.NewRun(), &cli.Flags{}
	cfg.Define(f)
	if rest, err := f.Parse(args); err != nil || len(rest) > 0 {
		t.Fatal(rest, err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// same compares the two texts.
func same(t *testing.T, args ...string) runner.Result {
	t.Helper()
	_, result := sameText(t, args...)
	return result
}

// sameText is same and returns the text. llama-completion prints pieces as C strings, so that it swallows zero bytes.
func sameText(t *testing.T, args ...string) (string, runner.Result) {
	t.Helper()
	want := stock(t, args...)
	got, result := ours(t, args...)
	if got = strings.ReplaceAll(got, "\x00", ""); got != want {
		t.Errorf("%q:\n got %q\nwant %q", args, got, want)
	}
	if result.Tokens > 2 && strings.TrimSpace(want) == "" {
		t.Logf("%q: both texts are blank", args)
	}
	return got, result
}

// synthetic makes a small model with random weights of an architecture, once per test run.
func synthetic(t *testing.T, arch string) string {
	t.Helper()
	made.Lock()
	defer made.Unlock()
	if path := made.paths[arch]; path != "" {
		return path
	}
	path := filepath.Join(made.dir, arch+".gguf")
	synthesize(t, path, arch, nil)
	made.paths[arch] = path
	return path
}

// synthesize makes a small model with further metadata.
func synthesize(t *testing.T, path, arch string, meta map[string]any) {
	t.Helper()
	c, err := synth.New(arch, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Layers, c.Seed = 2, 11
	donor, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	m, err := synth.Plan(c, &donor.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range meta {
		m.Meta.Set(key, value)
	}
	if err := m.WriteFile(context.Background(), path, nil); err != nil {
		t.Fatal(err)
	}
}

var made = struct {
	sync.Mutex
	dir   string
	paths map[string]string
}{paths: make(map[string]string)}

func TestMain(m *testing.M) {
	// Tests compare the events of executions, so each of them is timed.
	os.Setenv("LLAMATAP_RESOURCE_SAMPLE", "1")
	var err error
	if made.dir, err = os.MkdirTemp("", "llamatap-models-"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(made.dir)
	os.Exit(status)
}

// longPrompt is about 150 tokens.
var longPrompt = strings.Repeat("for i := 0; i < n; i++ {\n\tsum += values[i] * weights[i]\n}\n", 4)

var prompts = []string{
	"func main() {",
	"// Package http implements",
	"if err != nil {\n\treturn ",
	"Grüße, 世界 😀",
	"<|endoftext|>type Reader struct {",
	"",
	longPrompt,
}

func TestGreedyPrompts(t *testing.T) {
	for i, prompt := range brief(prompts, 3) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			r := same(t, "-m", testenv.Model(t), "-p", prompt, "-n", "40", "--temp", "0", "-t", "2")
			if (r.Tokens == 0) != (prompt == "") || r.Finish == "" {
				t.Errorf("result %+v", r)
			}
		})
	}
}

func TestGreedyShapes(t *testing.T) {
	for _, args := range brief(testenv.ByDay([][]string{
		{"-ub", "1"}, {"-ub", "7"}, {"-ub", "32"}, {"-ub", "512"}, {"-b", "16"}, {"-b", "50", "-ub", "7"},
		{"-t", "1", "-tb", "2"}, {"-t", "2", "-tb", "1"}, {"-fa", "off"}, {"-fa", "on"},
		{"-ctk", "q8_0", "-ctv", "q8_0"}, {"-ctk", "f32", "-ctv", "bf16"},
		{"--no-warmup"}, {"--no-repack"}, {"-lm", "none"}, {"-ngl", "0"}, {"-dev", "none"},
	}, 8), 3) {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			all := append([]string{"-m", testenv.Model(t), "-p", longPrompt, "-n", "30", "--temp", "0"}, args...)
			if !slices.Contains(args, "-t") {
				all = append(all, "-t", "1")
			}
			same(t, all...)
		})
	}
}

func TestGreedyModels(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	for _, arch := range []string{"llama", "qwen3moe", "gemma2", "mamba", "jamba", "phi3"} {
		t.Run(arch, func(t *testing.T) {
			path := synthetic(t, arch)
			for _, ub := range []string{"7", "512"} {
				same(t, "-m", path, "-p", "func main() {\n\tfmt.Println(x)", "-n", "30", "--temp", "0", "-t", "1",
					"-ub", ub, "-c", "512")
			}
		})
	}
}

func TestSeeded(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	for _, args := range [][]string{{}, {"--temp", "1.7", "--top-k", "0", "--top-p", "1", "--min-p", "0"}} {
		for _, seed := range []string{"1", "42", "4000000000"} {
			t.Run(strings.Join(append(args, "-s", seed), " "), func(t *testing.T) {
				r := same(t, append([]string{"-m", testenv.Model(t), "-p", "func (r *Reader) ", "-n", "60", "-t", "1",
					"-s", seed}, args...)...)
				if fmt.Sprint(r.Seed) != seed {
					t.Errorf("the result says seed %d", r.Seed)
				}
			})
		}
	}
}

// TestGreedyPenalties makes the prompt matter: its tokens are penalised from the first choice on.
func TestGreedyPenalties(t *testing.T) {
	same(t, "-m", testenv.Model(t), "-p", longPrompt, "-n", "40", "--temp", "0", "-t", "1", "--repeat-penalty", "1.5",
		"--repeat-last-n", "100")
}

// TestContextFull runs into the end of the context, which both stop at.
func TestContextFull(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	for _, n := range []string{"-1", "-2", "5000"} {
		r := same(t, "-m", testenv.Model(t), "-p", "func", "-n", n, "-c", "256", "--temp", "0", "--ignore-eos", "-t",
			"1")
		if r.Finish != runner.FinishContext || r.PromptTokens+r.Tokens != r.ContextSize {
			t.Errorf("-n %s: %+v", n, r)
		}
	}
}

// TestEnd lets the model end the text itself.
func TestEnd(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	ended := false
	for seed := range 4 {
		r := same(t, "-m", testenv.Model(t), "-p", "}\n", "-n", "300", "-s", strconv.Itoa(seed), "--temp", "4",
			"--top-k", "0", "--top-p", "1", "--min-p", "0", "-t", "1")
		ended = ended || r.Finish == runner.FinishStop
	}
	if !ended {
		t.Error("no text was ended by the model, so this tests nothing: take other seeds")
	}
}

func TestPromptFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prompt")
	if err := os.WriteFile(file, []byte("a := \\\"b\\\"\\n\\tif a\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, escape := range []string{"-e", "--no-escape"} {
		same(t, "-m", testenv.Model(t), "-f", file, "-n", "20", "--temp", "0", "-t", "1", escape)
	}
}

// TestModelRecommends lets the metadata of the model set the sampling, unless a flag does.
func TestModelRecommends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recommends.gguf")
	synthesize(t, path, "llama", map[string]any{
		"general.sampling.temp": float32(0), "general.sampling.top_k": int32(3),
		"general.sampling.penalty_repeat": float32(1.4),
	})
	if r := same(t, "-m", path, "-p", "func main", "-n", "30", "-t", "1"); r.SamplesChance {
		t.Error("temperature 0 of the model was not taken")
	}
	if r := same(t, "-m", path, "-p", "func main", "-n", "30", "-t", "1", "--temp", "0.9", "-s",
		"5"); !r.SamplesChance {
		t.Error("the flag's temperature was not taken")
	}
}

// TestTokens compares with llama-tokenize.
func TestTokens(t *testing.T) {
	tool := testenv.NeedTool(t, "llama-tokenize")
	model, err := llama.LoadModel(context.Background(), testenv.Model(t), llama.DefaultModelParams())
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, text := range append(prompts, "  two  spaces\t\ttabs\r\n", "a<|endoftext|>b<|end",
		"naïve café — “quotes”", "0123456789 0x1F 1e9") {
		if text == "" {
			continue // llama-tokenize wants a text
		}
		cmd := tool.Command("-m", testenv.Model(t), "--ids", "--log-disable", "--no-escape", "-p", text)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := model.Vocab().Tokenize(text, true, true)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSpace(string(out)); strings.ReplaceAll(fmt.Sprint(got), " ", ", ") != want {
			t.Errorf("%q: got %v, want %s", text, got, want)
		}
	}
}

// TestRPCDevice puts the layers on a device: the text stays the same.
func TestRPCDevice(t *testing.T) {
	if os.Getenv("LLAMATAP_TEST_ALONE") == "" {
		// llama.cpp keeps the device, and aborts when its server is gone
		cmd := exec.Command(os.Args[0], "-test.run=^TestRPCDevice$")
		cmd.Env = append(os.Environ(), "LLAMATAP_TEST_ALONE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	endpoint := testenv.NeedRPC(t)
	args := []string{"-m", testenv.Model(t), "-p", "The little gopher", "-n", "20", "--temp", "0", "-t", "1"}
	want, _ := ours(t, append(args, "-dev", "none")...)
	got, _ := ours(t, append(args, "--rpc", endpoint, "-ngl", "99")...)
	if got != want || want == "" {
		t.Errorf("device: %q, CPU: %q", got, want)
	}
	device := ""
	for _, d := range llama.Devices() {
		if d.Kind == llama.DeviceGPU {
			device = d.Name
		}
	}
	if named, _ := ours(t, append(args, "-dev", device)...); named != want {
		t.Errorf("device %s: %q, CPU: %q", device, named, want)
	}
}

func TestEmbeddedModel(t *testing.T) {
	want, _ := ours(t, "-m", testenv.Model(t), "-p", "package main", "-n", "20", "--temp", "0", "-t", "1")
	got, r := ours(t, "-p", "package main", "-n", "20", "--temp", "0", "-t", "1")
	if got != want || !strings.HasPrefix(r.Model, "gopher") {
		t.Errorf("embedded %s: %q, file: %q", r.Model, got, want)
	}
}

// TestPromptOnly decodes the prompt and generates nothing.
func TestPromptOnly(t *testing.T) {
	text, r := ours(t, "-p", longPrompt, "-n", "0", "-t", "1")
	if text != "" || r.Tokens != 0 || r.DecodeSteps != 0 || r.PromptTokens < 100 || r.Prompt <= 0 {
		t.Errorf("%q, %+v", text, r)
	}
}

func TestRunErrors(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.gguf")
	if err := os.WriteFile(wrong, bytes.Replace(llamatap.DefaultModel, []byte("\x05\x00\x00\x00\x00\x00\x00\x00llama"),
		[]byte("\x05\x00\x00\x00\x00\x00\x00\x00lloma"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		is   error
		want string
	}{
		{"too long", []string{"-p", strings.Repeat("word ", 900), "-n", "1"}, runner.ErrTooLong, "raise -c"},
		{"too long for -c", []string{"-p", strings.Repeat(longPrompt, 3), "-c", "256", "-n", "1"}, runner.ErrTooLong,
			"a context of 256 has room for 252"},
		{"unknown architecture", []string{"-m", wrong, "-p", "a"}, runner.ErrModel, "lloma"},
		{"no such device", []string{"-p", "a", "-dev", "CUDA7"}, llama.ErrDevice, "CUDA7"},
		{"no such server", []string{"-p", "a", "--rpc", "127.0.0.1:1"}, llama.ErrDevice, "127.0.0.1:1"},
		{"missing model", []string{"-m", "/nope.gguf", "-p", "a"}, runner.ErrModel, "no such file"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			_, err := runner.Run(context.Background(), runner.Options{Config: parse(t, test.args...), Stdout: &out})
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") || out.Len() > 0 {
				t.Errorf("got %v and %q, want one line with %q", err, out.String(), test.want)
			}
			t.Log(err)
		})
	}
}

// endingWriter ends a context after some writes, and counts what is written after that.
type endingWriter struct {
	writes int
	end    func()
	after  int
}

func (w *endingWriter) Write(p []byte) (int, error) {
	if w.writes < 1 {
		w.after += len(p)
	}
	if w.writes--; w.writes == 0 {
		w.end()
	}
	return len(p), nil
}

func TestInterrupted(t *testing.T) {
	cause := errors.New("the reason")
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &endingWriter{writes: 5, end: func() { cancel(cause) }}
	cfg := parse(t, "-p", "func main() {", "-n", "-1", "--ignore-eos", "--temp", "0", "-t", "1")
	r, err := runner.Run(ctx, runner.Options{Config: cfg, Stdout: w})
	if !errors.Is(err, runner.ErrInterrupted) || !errors.Is(err, cause) || r.Finish != runner.FinishInterrupted {
		t.Errorf("got %v, %+v", err, r)
	}
	if r.Tokens < 5 || w.after > 0 {
		t.Errorf("after %d tokens, %d bytes were written after the end of the context", r.Tokens, w.after)
	}
	if _, err := runner.Run(ctx, runner.Options{Config: cfg}); !errors.Is(err, runner.ErrInterrupted) {
		t.Errorf("interrupted before the start: %v", err)
	}
}
