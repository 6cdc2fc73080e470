//go:build llama

package runner_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// infillModel writes the default model with the tokens of infill in its vocabulary: their weights are those of
// unused tokens.
func infillModel(t *testing.T) string {
	t.Helper()
	file, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	if err := synth.AddInfill(&file.Metadata); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, &file.Metadata, file.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range file.Tensors {
		if _, err := w.Write(llamatap.DefaultModel[tensor.Offset : tensor.Offset+tensor.Bytes]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "infill.gguf")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInfill compares a model that has the tokens of infill. Of four tokens one has a fifth of the probability at
// least, so that the sampler does not end the text; of more it does, with the token that ends what was filled in.
func TestInfill(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	testenv.NeedTool(t, "llama-completion")
	dir := t.TempDir()
	random := filepath.Join(dir, "random.gguf")
	c, err := synth.New("qwen2", "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Infill, c.Layers = true, 2
	donor, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	m, err := synth.Plan(c, &donor.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(t.Context(), random, nil); err != nil {
		t.Fatal(err)
	}
	const prompt = "<|fim_prefix|>func (r *Reader) Read(p []byte) (n int, err error) {\n\t<|fim_suffix|>\n\treturn " +
		"n, err\n}\n<|fim_middle|>"
	for name, path := range map[string]string{"default": infillModel(t), "random": random} {
		t.Run(name, func(t *testing.T) {
			args := []string{"-m", path, "-p", prompt, "-n", "200", "-t", "1"}
			texts := make(map[string]bool)
			seeds := testenv.ByDay([]string{"1", "42", "4000000000"}, 1)
			if name == "random" {
				seeds = seeds[:1]
			}
			for _, seed := range seeds {
				long := append(args, "-s", seed, "--ignore-eos")
				text, r := sameText(t, append(long, "--samplers", "top_k;temperature;infill", "--top-k", "4", "--temp",
					"1.2")...)
				if r.Tokens != 200 || r.Finish != runner.FinishLength {
					t.Errorf("seed %s: %d tokens, ended by %s", seed, r.Tokens, r.Finish)
				}
				plain, _ := ours(t, append(long, "--samplers", "top_k;temperature", "--top-k", "4", "--temp", "1.2")...)
				if text == plain || texts[text] {
					t.Errorf("seed %s: infill changes nothing, or the seed does not", seed)
				}
				texts[text] = true
				if _, r := sameText(t, append(args, "-s", seed, "--samplers", "infill",
					"--special")...); r.Finish != runner.FinishStop {
					t.Errorf("seed %s: ended by %s after %d tokens", seed, r.Finish, r.Tokens)
				}
			}
		})
	}
}
