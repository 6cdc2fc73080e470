//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestFrontGreedy demands that a program writes the same with every node captured as without the tap. FILE in an
// argument is a file that the program makes, which must be the same too.
func TestFrontGreedy(t *testing.T) {
	text := textFile(t, strings.Repeat(long, 3))
	for _, c := range testenv.ByDay([]struct {
		name string
		args []string
	}{
		{"llama-completion", []string{"-no-cnv", "-p", "func main() {", "-n", "16", "--temp", "0"}},
		{"llama-cli", []string{"-st", "-p", "func main() {", "-n", "16", "--temp", "0"}},
		{"llama-perplexity", []string{"-f", text, "-c", "64", "-b", "64"}},
		{"llama-embedding", []string{"-p", "func main() {", "--embd-output-format", "array"}},
		{"llama-imatrix", []string{"-f", text, "-c", "64", "-b", "64", "-o", "FILE"}},
		{"llama-bench", []string{"-p", "8", "-n", "4", "-r", "1", "-o", "json"}},
	}, 3) {
		t.Run(c.name, func(t *testing.T) {
			run := func(start func(args ...string) result) (r result, made string) {
				file := filepath.Join(t.TempDir(), "made")
				args := append([]string{"-m", testenv.Model(t), "-t", "1"}, c.args...)
				if i := slices.Index(args, "FILE"); i >= 0 {
					args[i] = file
				}
				r = start(args...)
				data, err := os.ReadFile(file)
				if err != nil && slices.Contains(c.args, "FILE") {
					t.Error(err)
				}
				return r, string(data)
			}
			want, wantMade := run(func(args ...string) result { return end(t, original(t, c.name, args...)) })
			cmd := front(t, everything, c.name)
			got, made := run(func(args ...string) result { cmd.Args = append(cmd.Args, args...); return end(t, cmd) })
			if c.name == "llama-bench" {
				got.stdout, want.stdout = withoutTimes(t, got.stdout), withoutTimes(t, want.stdout)
			}
			sameText(t, "stdout", got.stdout, want.stdout)
			if got.end != want.end || want.end != "exit status 0" || len(want.stdout) == 0 {
				t.Errorf("ended with %q, the original with %q and %d bytes", got.end, want.end, len(want.stdout))
			}
			if made != wantMade {
				t.Errorf("the file of %d bytes differs from the original's of %d", len(made), len(wantMade))
			}
			if c := sealedBelow(t, cmd); len(c.packets) == 0 {
				t.Error("nothing was captured")
			}
		})
	}
}

// withoutTimes takes out of llama-bench's JSON what it measured.
func withoutTimes(t *testing.T, text string) string {
	t.Helper()
	var rows []map[string]any
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v\n%s", len(rows), err, text)
	}
	for _, row := range rows {
		for column := range row {
			if strings.HasSuffix(column, "_ns") || strings.HasSuffix(column, "_ts") ||
				strings.HasPrefix(column, "samples") || column == "test_time" {
				delete(row, column)
			}
		}
	}
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(rows); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFrontGreedyServer is the same for what llama-server answers.
func TestFrontGreedyServer(t *testing.T) {
	ask := func(s *server) (a completionAnswer) {
		s.post(t, "/completion", map[string]any{"prompt": long, "n_predict": 24, "temperature": 0,
			"return_tokens": true}, &a)
		return a
	}
	args := []string{"-t", "1", "--no-webui", "-np", "1"}
	want := ask(serveBy(t, "", slices.Concat([]string{testenv.NeedTool(t, "llama-server").Path}, args)...))
	out := t.TempDir()
	s := serveBy(t, out, slices.Concat([]string{testenv.NeedBinary(t), "llama-server", "--tap-out", out},
		everything, args)...)
	got := ask(s)
	if got.Content != want.Content || !slices.Equal(got.Tokens, want.Tokens) || len(want.Tokens) == 0 {
		t.Errorf("%+v, of the original %+v", got, want)
	}
	s.end(t).sealed(t)
}
