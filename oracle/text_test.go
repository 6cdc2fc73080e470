//go:build linux

package oracle

import (
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// A textCase is a model and its settings.
type textCase struct {
	name string
	args []string
}

// long is about 120 tokens.
var long = strings.Repeat("for i := 0; i < n; i++ {\n\tsum += values[i] * weights[i]\n}\n", 3)

func textCases(t *testing.T) []textCase {
	t.Helper()
	gopher := func(args ...string) []string { return append([]string{"-m", testenv.Model(t)}, args...) }
	cases := []textCase{
		{"short", gopher("-p", "func main() {", "-ub", "512", "-t", "1")},
		{"long in small batches", gopher("-p", long, "-ub", "7", "-t", "2", "-fa", "off")},
		{"unicode", gopher("-p", "Grüße, 世界 😀", "-ub", "32", "-t", "2", "-fa", "on")},
		{"quantised cache", gopher("-p", long, "-ctk", "q8_0", "-ctv", "q8_0", "-t", "1")},
	}
	for _, arch := range archs(t, "qwen3moe", "jamba") {
		cases = append(cases, textCase{arch, []string{"-m", synthetic(t, arch, gguf.Q8_0, nil), "-p", prompt,
			"-ub", "8", "-t", "2", "-c", "512"}})
	}
	if !testenv.Nightly() {
		return cases
	}
	for _, ub := range []string{"1", "3", "64"} {
		for _, text := range []string{prompt, long, "if err != nil {\n\treturn "} {
			cases = append(cases, textCase{"ub " + ub, gopher("-p", text, "-ub", ub, "-t", "2")})
		}
	}
	return cases
}

// TestSameText demands the bytes that llama-completion writes: of run and of exec, with the tap on all nodes, on
// some, and away. (llama-completion prints tokens as C strings, so that it swallows zero bytes.)
func TestSameText(t *testing.T) {
	for i, c := range textCases(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"-n", "24", "--temp", "0"}, c.args...)
			want := completion(t, func(args ...string) string {
				out, _ := stock(t, "llama-completion",
					args...)
				return out
			}, args...)
			if strings.TrimSpace(want) == "" {
				t.Fatal("llama-completion wrote nothing: take another prompt")
			}
			some := append([]string{"--tap-tensors", "l_out,norm"}, exact...)
			taps := map[string][]string{"untapped": nil, "all": everything}
			if i%4 == 1 || testenv.Nightly() { // by day in small batches, and of a recurrent model
				taps["some"], taps["attention"] = some, []string{"--tap-attention"}
			}
			if c.name == "mamba" {
				delete(taps, "attention") // it has none
			}
			for name, tap := range taps {
				ended := want // run ends the last line of what it writes to a file or pipe
				if !strings.HasSuffix(ended, "\n") {
					ended += "\n"
				}
				if got := llamatap(t, slices.Concat([]string{"run"}, tap, args)...).good(t).stdout; strings.ReplaceAll(
					got, "\x00", "") != ended {
					t.Errorf("run, %s: %q, want %q", name, got, want)
				}
				started := func(args ...string) string {
					return llamatap(t, slices.Concat([]string{"exec"}, tap, []string{"--", "llama-completion"},
						args)...).good(t).stdout
				}
				if got := completion(t, started, args...); got != want {
					t.Errorf("exec, %s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// completion gives the text that llama-completion writes behind the prompt. Its logger, through which the text
// goes, may lose the end at exit, status 0 all the same; such a run is repeated.
func completion(t *testing.T, run func(args ...string) string, args ...string) string {
	t.Helper()
	for range 20 {
		out := run(append([]string{"-no-cnv", "--no-display-prompt"}, args...)...)
		if text, whole := strings.CutSuffix(out, "\n\n"); whole {
			text, _ = strings.CutSuffix(text, " [end of text]\n")
			return text
		}
	}
	t.Fatalf("llama-completion %q never wrote its whole text", args)
	return ""
}
