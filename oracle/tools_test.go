//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// An ownCount is what a program's own log says that it computed: tokens of prompt, tokens decoded, requests; -1 where
// it does not say.
type ownCount struct{ prompt, decoded, requests int }

// A tool is a program of llama.cpp and what its log says.
type tool struct {
	name  string
	args  []string
	timed bool // what it prints on standard output are times
	count func(t *testing.T, log string) ownCount
}

// one finds the one number that a pattern's group has in a log.
func one(t *testing.T, log, pattern string) int {
	t.Helper()
	numbers := logged(t, log, pattern)
	if len(numbers) == 0 {
		t.Fatalf("%s is not in the log:\n%s", pattern, log)
	}
	return int(numbers[len(numbers)-1])
}

// drafting is what the programs that decode speculatively print. Each step decodes the token that was chosen with
// its drafts.
func drafting(t *testing.T, log string) int {
	t.Helper()
	return one(t, log, `n_predict += (\d+)`) - 1 - one(t, log, `n_accept += (\d+)`) + one(t, log, `n_drafted += (\d+)`)
}

func tools(t *testing.T) []tool {
	file := textFile(t, strings.Repeat(long+prompt, 4))
	ids := len(tokenize(t, textFile(t, "func main() {")))
	ask := []string{"-p", "func main() {", "--temp", "0"}
	return []tool{
		{"llama-imatrix", []string{"-f", file, "-o", filepath.Join(t.TempDir(), "imatrix.gguf"), "-c", "128",
			"-b", "256"}, false, func(t *testing.T, log string) ownCount {
			chunks := one(t, log, `over (\d+) chunks`)
			return ownCount{128 * chunks, 0, chunks}
		}},
		{"llama-batched-bench", []string{"-c", "1024", "-npp", "16", "-ntg", "8", "-npl", "1,2"}, true,
			func(t *testing.T, log string) ownCount {
				tokens := ownCount{}
				for _, row := range logged(t, log, `(?m)^\| +16 \| +8 \| +(\d) \|`) {
					tokens.prompt, tokens.decoded, tokens.requests = tokens.prompt+16*int(row),
						tokens.decoded+8*int(row), tokens.requests+int(row)
				}
				return tokens
			}},
		{"llama-parallel", []string{"-c", "8192", "-np", "3", "-ns", "5", "-n", "8", "--temp", "0", "-s", "1"}, false,
			func(t *testing.T, log string) ownCount {
				return ownCount{one(t, log, `Total prompt tokens: +(\d+)`), one(t, log, `Total gen tokens: +(\d+)`), 5}
			}},
		{"llama-lookup", []string{"-f", file, "-c", "2048", "-n", "16", "--temp", "0", "--spec-draft-n-max", "3"},
			false, func(t *testing.T, log string) ownCount {
				return ownCount{one(t, log, `encoded +(\d+) tokens`), drafting(t, log), 1}
			}},
		{"llama-lookahead", slices.Concat(ask, []string{"-n", "6", "-c", "1024"}), false,
			func(t *testing.T, log string) ownCount {
				return ownCount{-1, -1, -1}
			}},
		{"llama-batched", []string{"-p", "func main() {", "-n", "12", "-np", "3", "-kvu"}, true,
			func(t *testing.T, log string) ownCount {
				return ownCount{ids, one(t, log, `decoded (\d+) tokens`), 3}
			}},
		{"llama-passkey", []string{"--junk", "5"}, true, func(t *testing.T, log string) ownCount {
			return ownCount{one(t, log, `prompt tokens: (\d+)`), one(t, log, `decoded (\d+) tokens`), 1}
		}},
		{"llama-simple", []string{"-n", "8", "func main() {"}, false, func(t *testing.T, log string) ownCount {
			return ownCount{ids, one(t, log, `decoded (\d+) tokens`) - 1, 1} // the last one is chosen and never decoded
		}},
		{"llama-finetune", []string{"-f", file, "-c", "64", "-b", "64", "-ub", "64", "-epochs", "1",
			"--no-repack", "-o", filepath.Join(t.TempDir(), "tuned.gguf")}, true,
			func(t *testing.T, log string) ownCount { return ownCount{-1, 0, -1} }},
	}
}

// TestTools runs the programs that no other test runs: they end and print as without the tap, and their tokens are
// as many as they say.
func TestTools(t *testing.T) {
	for _, tool := range testenv.ByDay(tools(t), 4) {
		t.Run(tool.name, func(t *testing.T) {
			args := append([]string{"-m", testenv.Model(t)}, tool.args...)
			if tool.name != "llama-simple" {
				args = append(args, "-t", "1")
			}
			made := ""
			if at := slices.Index(args, "-o"); at > 0 {
				made = args[at+1]
			}
			stdout, _ := stock(t, tool.name, args...)
			plain := slurp(t, made)
			c := tapped(t, residual, tool.name, args...).sealed(t)
			if !tool.timed && mask(c.stdout) != mask(stdout) {
				t.Errorf("it printed %q, and without the tap %q", c.stdout, stdout)
			}
			if !bytes.Equal(slurp(t, made), plain) {
				t.Errorf("%s differs from the one made without the tap", made)
			}
			tool.compare(t, c)
		})
	}
}

func slurp(t *testing.T, path string) []byte {
	t.Helper()
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// compare holds what was recorded against the program's own log.
func (tool tool) compare(t *testing.T, c *capture) {
	t.Helper()
	want := tool.count(t, c.stdout+c.stderr)
	got := ownCount{len(c.ids("prefill")), len(c.ids("decode")), 0}
	requests := map[string]bool{}
	for _, token := range c.tokens {
		if (token.Seq == nil) != (token.Request == nil) {
			t.Fatalf("token %+v", token)
		}
		if token.Seq != nil {
			requests[fmt.Sprint(token.Ctx, *token.Seq, *token.Request)] = true
		}
	}
	got.requests = len(requests)
	if want.prompt < 0 && got.prompt > 0 {
		want.prompt = got.prompt
	}
	if want.decoded < 0 && got.decoded > 0 {
		want.decoded = got.decoded
	}
	if want.requests < 0 {
		want.requests = got.requests
	}
	if got != want || c.meta.Lossy {
		t.Errorf("recorded %+v, the log says %+v; losses %+v", got, want, c.meta.Losses)
	}
}

// TestSpeculative runs the programs that decode with a draft model: the target decodes what they say, and the draft
// model what it takes.
func TestSpeculative(t *testing.T) {
	model := testenv.Model(t)
	prompt := len(tokenize(t, textFile(t, "func main() {")))
	for name, flags := range map[string][]string{"llama-speculative": nil,
		"llama-speculative-simple": {"--spec-type", "draft-simple"}} {
		t.Run(name, func(t *testing.T) {
			c := tapped(t, residual, name, append(flags, "-m", model, "-md", model, "-p", "func main() {", "-n", "16",
				"--temp", "0", "-t", "1")...).sealed(t)
			wantRows(t, c)
			got := c.requests()
			target, draft := got[request{}], got[request{ctx: 1}]
			if len(got) != 2 {
				t.Errorf("%d requests, want one per context", len(got))
			}
			if n := len(target); n != prompt+drafting(t, c.stderr) {
				t.Errorf("%d tokens of the target, want %d of the prompt and %d", n, prompt, drafting(t, c.stderr))
			}
			left, drafted := sequenceRows(target, nil), sequenceRows(draft, nil)
			if n := min(len(left), len(drafted)); n < prompt+8 || !slices.Equal(left[:n], drafted[:n]) {
				t.Errorf("the target's memory holds %v, the draft model's %v", left, drafted)
			}
		})
	}
}
