//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// residual captures little: these tests look at tokens.
var residual = []string{"--tap-tensors", "l_out"}

// tokenize asks llama-tokenize for the ids of a file's text.
func tokenize(t *testing.T, file string, flags ...string) []int32 {
	t.Helper()
	out, _ := stock(t, "llama-tokenize", append([]string{"-m", testenv.Model(t), "--ids", "--log-disable",
		"--no-escape", "-f", file}, flags...)...)
	var ids []int32
	if err := json.Unmarshal([]byte(out), &ids); err != nil {
		t.Fatalf("llama-tokenize printed %q: %v", out, err)
	}
	return ids
}

// textFile writes a prompt into a file.
func textFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prompt.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// logged finds the numbers that a pattern's group has in a log, in order.
func logged(t *testing.T, log, pattern string) []int32 {
	t.Helper()
	var numbers []int32
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, int32(n))
	}
	return numbers
}

// wantIDs compares ids.
func wantIDs(t *testing.T, what string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("%s: tokens %v, want %v", what, got, want)
	}
}

// wantPlain demands what every run has, and of each sequence positions that count up.
func wantPlain(t *testing.T, c *capture) {
	t.Helper()
	wantRows(t, c)
	next := map[string]int32{}
	for i, token := range c.tokens {
		sequence := fmt.Sprint(token.Ctx, *token.Seq)
		if token.Pos != next[sequence] && token.Pos != 0 {
			t.Errorf("token %d, sequence %s: position %d, want %d", i, sequence, token.Pos, next[sequence])
		}
		next[sequence] = token.Pos + 1
	}
}

// wantRows demands what every run has: indices that count up, requests that do in each sequence, rows of executions
// that are those of the token file, and sums in the metadata that fit.
func wantRows(t *testing.T, c *capture) {
	t.Helper()
	newest := map[string]int32{}
	count := map[string]int64{}
	for i, token := range c.tokens {
		phase := token.Phase.String()
		count[phase]++
		if token.Index != int64(i) || token.Seq == nil || token.Request == nil ||
			phase != "prefill" && phase != "decode" {
			t.Fatalf("token %d: %+v", i, token)
		}
		sequence := fmt.Sprint(token.Ctx, *token.Seq)
		if before, ok := newest[sequence]; *token.Request != before && (!ok || *token.Request != before+1) {
			t.Errorf("token %d, sequence %s: request %d after request %d", i, sequence, *token.Request, before)
		}
		newest[sequence] = *token.Request
	}
	for _, phase := range []string{"prefill", "decode"} {
		if got := c.meta.Phases[phase].Tokens; got != count[phase] {
			t.Errorf("metadata counts %d tokens of %s, and there are %d", got, phase, count[phase])
		}
	}
	if got, want := c.meta.Tokens.Requests, int64(len(c.requests())); got != want {
		t.Errorf("metadata counts %d requests, and there are %d", got, want)
	}
	rows := 0
	for _, e := range c.execs() {
		if e.Phase.String() != "setup" {
			for i, row := range e.Rows {
				if token := c.tokens[row.Index]; token.ID != row.Token || token.Pos != row.Pos ||
					token.Phase.String() != row.Phase.String() || *token.Request != row.Request {
					t.Errorf("row %d of execution %d is %+v, token %+v", i, e.Exec, row, token)
				}
				rows++
			}
		}
	}
	if rows != len(c.tokens) {
		t.Errorf("%d token rows, %d tokens", rows, len(c.tokens))
	}
}

// setup demands so many set-up tokens: those that a tool decodes and throws away before its run.
func (c *capture) setup(t *testing.T, want int64) {
	t.Helper()
	if c.meta.Tokens.Setup != want {
		t.Errorf("%d set-up tokens, want %d", c.meta.Tokens.Setup, want)
	}
}

// pieces joins the texts of the decoded tokens.
func (c *capture) pieces() string {
	var b strings.Builder
	for _, token := range c.tokens {
		if token.Phase.String() == "decode" {
			b.WriteString(token.Text)
		}
	}
	return b.String()
}

func TestTokensOfCompletion(t *testing.T) {
	for _, ub := range []string{"512", "5"} {
		c := tapped(t, residual, "llama-completion", "-m", testenv.Model(t), "-p", prompt, "-n", "9", "--temp", "0",
			"-no-cnv", "-t", "1",
			"-ub", ub, "--verbose-prompt").sealed(t)
		wantPlain(t, c)
		wantIDs(t, "prompt", c.ids("prefill"), logged(t, c.stderr, `(?m) I +(\d+) -> '`))
		if got := len(c.ids("decode")); got != 8 { // the last one is chosen and never decoded
			t.Errorf("%d tokens decoded, want 8", got)
		}
		want := completion(t, func(args ...string) string {
			out, _ := stock(t, "llama-completion",
				args...)
			return out
		},
			"-m", testenv.Model(t), "-p", prompt, "-n", "9", "--temp", "0", "-t", "1", "-ub", ub)
		if !strings.HasPrefix(want, c.pieces()) || c.pieces() == "" {
			t.Errorf("decoded %q, llama-completion wrote %q", c.pieces(), want)
		}
		c.setup(t, 2) // the warm-up: begin and end of text
	}
}

// TestContextShift runs over the end of the context: the shift of the cache is maintenance, and no token.
func TestContextShift(t *testing.T) {
	c := tapped(t, everything, "llama-completion", "-m", testenv.Model(t), "-p", prompt, "-n", "300", "--temp", "0",
		"-no-cnv", "-t", "1",
		"-c", "256", "--context-shift", "--keep", "4", "--ignore-eos").sealed(t)
	if got := len(c.ids("decode")); got != 299 {
		t.Errorf("%d tokens decoded, want 299", got)
	}
	if c.meta.Phases["maintenance"].Graphs == 0 || c.meta.Phases["maintenance"].Tokens != 0 {
		t.Errorf("phases %+v, want a context shift as maintenance", c.meta.Phases)
	}
	back := 0
	for i, token := range c.tokens {
		if i > 0 && token.Pos != c.tokens[i-1].Pos+1 {
			back++
			if token.Pos >= c.tokens[i-1].Pos || token.Pos < 128 {
				t.Errorf("token %d goes from position %d to %d", i, c.tokens[i-1].Pos, token.Pos)
			}
		}
	}
	if back != int(c.meta.Phases["maintenance"].Graphs) {
		t.Errorf("positions went back %d times in %d shifts", back, c.meta.Phases["maintenance"].Graphs)
	}
	for i := range c.packets {
		if p := &c.packets[i]; p.Phase.String() == "maintenance" || p.TokenFirst < 0 {
			t.Errorf("%v is a packet of a maintenance graph", keyOf(p))
		}
	}
}

// TestTokensOfCachedPrompt goes on from a prompt cache with the same prompt, and with one token more: what is
// decoded of either is prompt.
func TestTokensOfCachedPrompt(t *testing.T) {
	common := []string{"-n", "4", "--temp", "0", "-t", "1", "--ignore-eos",
		"--prompt-cache", filepath.Join(t.TempDir(), "cache")}
	for i, test := range []struct {
		prompt          string
		prefill, decode int
	}{{"func main() {", 6, 3}, {"func main() {", 1, 3}, {"func main() { x", 2, 3}} {
		tokens := record(t, residual, append(common, "-p", test.prompt)...).tokens
		if p, d := rows(tokens, "prefill"), rows(tokens, "decode"); p != test.prefill || d != test.decode {
			t.Errorf("run %d: %d tokens of prompt and %d generated, want %d and %d", i, p, d, test.prefill, test.decode)
		}
	}
}

func TestTokensOfCLI(t *testing.T) {
	c := tapped(t, residual, "llama-cli", "-m", testenv.Model(t), "-p", "func main() {", "-n", "6", "--temp", "0",
		"-t", "1", "-st", "-lv", "5").sealed(t)
	wantPlain(t, c)
	log := c.stdout + c.stderr
	wantIDs(t, "decoded", c.ids("decode"), logged(t, log, `slot decode token, id=(\d+),`))
	last := logged(t, log, `common_sampler_init: prefill token: +(\d+) =`)
	prompt := c.ids("prefill")
	if n := logged(t, log, `task\.n_tokens = (\d+)`); len(n) != 1 || len(prompt) != int(n[0]) {
		t.Errorf("%d prompt tokens, the log says %v", len(prompt), n)
	}
	if len(last) == 0 || len(last) > len(prompt) || !slices.Equal(prompt[len(prompt)-len(last):], last) {
		t.Errorf("the prompt ends with other tokens than %v", last)
	}
	c.setup(t, 4) // warm-up and probe
}

// TestTokensOfPerplexity lets two sequences share a batch.
func TestTokensOfPerplexity(t *testing.T) {
	testenv.Slow(t)
	file := textFile(t, strings.Repeat(long+prompt, 12))
	c := tapped(t, residual, "llama-perplexity", "-m", testenv.Model(t), "-f", file, "-c", "256", "-b", "512",
		"-t", "1").sealed(t)
	wantPlain(t, c)
	chunks := logged(t, c.stderr, `over (\d+) chunks`)
	if len(chunks) != 1 || chunks[0] < 3 || chunks[0]%2 != 1 {
		t.Fatalf("%v chunks, and an odd number is wanted", chunks)
	}
	want := tokenize(t, file)[:256*chunks[0]]
	for at := 0; at < len(want); at += 256 {
		want[at] = want[0] // each chunk begins anew
	}
	wantIDs(t, "text", c.ids("prefill"), want)
	for i, token := range c.tokens {
		if sequence := int32(i / 256 % 2); token.Pos != int32(i%256) || *token.Seq != sequence {
			t.Fatalf("token %d: %+v, want position %d of sequence %d", i, token, i%256, sequence)
		}
	}
	c.setup(t, 2)
}

func TestTokensOfEmbedding(t *testing.T) {
	file := textFile(t, "func main() {\nreturn hello, world")
	c := tapped(t, residual, "llama-embedding", "-m", testenv.Model(t), "-f", file, "--pooling", "mean",
		"-t", "1").sealed(t)
	wantPlain(t, c)
	var want []int32
	for line := range strings.Lines("func main() {\nreturn hello, world") {
		want = append(want, tokenize(t, textFile(t, strings.TrimSpace(line)))...)
	}
	wantIDs(t, "texts", c.ids(), want)
	if first, last := *c.tokens[0].Seq, *c.tokens[len(want)-1].Seq; first != 0 || last != 1 {
		t.Errorf("sequences %d and %d, want 0 and 1", first, last)
	}
	c.setup(t, 2)
}

// TestTokensOfBench: llama-bench reads no result, and repeats.
func TestTokensOfBench(t *testing.T) {
	for flag, setup := range map[string]int64{"": 24 + 1, "--no-warmup": 0} {
		args := []string{"-m", testenv.Model(t), "-p", "24", "-n", "6", "-r", "3", "-t", "1", "-o", "json"}
		if flag != "" {
			args = append(args, flag)
		}
		c := tapped(t, residual, "llama-bench", args...).sealed(t)
		wantPlain(t, c)
		var tests []struct {
			Prompt    int     `json:"n_prompt"`
			Generated int     `json:"n_gen"`
			Samples   []int64 `json:"samples_ns"`
		}
		if err := json.Unmarshal([]byte(c.stdout), &tests); err != nil {
			t.Fatal(err)
		}
		prefill, decode := 0, 0
		for _, test := range tests {
			prefill += test.Prompt * len(test.Samples)
			if test.Generated > 0 {
				prefill += len(test.Samples) // the first token of an empty context is not a generated one
				decode += (test.Generated - 1) * len(test.Samples)
			}
		}
		if got := [2]int{len(c.ids("prefill")), len(c.ids("decode"))}; got != [2]int{prefill, decode} || prefill == 0 ||
			decode == 0 {
			t.Errorf("bench %s: %v tokens of prompt and generation, want %d and %d", flag, got, prefill, decode)
		}
		c.setup(t, setup)
	}
}
