//go:build llama

package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// embed writes embeddings with the runner.
func embed(t *testing.T, args ...string) (string, runner.EmbeddingsResult, error) {
	t.Helper()
	var out strings.Builder
	cfg := parse(t, append([]string{"--embeddings"}, args...)...)
	result, err := runner.RunEmbeddings(context.Background(), runner.Options{Config: cfg, Stdout: &out})
	return out.String(), result, err
}

// TestEmbeddingsAreStock compares with llama-embedding, byte for byte.
func TestEmbeddingsAreStock(t *testing.T) {
	tool := testenv.NeedTool(t, "llama-embedding")
	three := []string{"-m", testenv.Model(t), "-t", "1", "-p", `func main() {\n\npackage x; import "fmt"`}
	tests := [][]string{
		{"--pooling", "mean"},
		{"--pooling", "mean", "--embd-output-format", "json+"},
		{"--pooling", "none", "--embd-output-format", "raw"},
		{"--pooling", "none"},
		{"--pooling", "cls", "--embd-output-format", "array"},
		{"--pooling", "last", "--embd-output-format", "json", "--embd-normalize", "0"},
		{"--pooling", "last", "--embd-output-format", "raw", "--embd-normalize", "-1"},
		{"--pooling", "mean", "--embd-output-format", "raw", "--embd-normalize", "1"},
		{"--pooling", "mean", "--embd-output-format", "raw", "--embd-normalize", "3", "--embd-separator", "package"},
		{"--pooling", "last", "--embd-output-format", "raw", "--attention", "causal", "-ub", "256"},
		{"--pooling", "mean", "--embd-output-format", "raw", "-b", "512", "-ub", "8"},
		{"--pooling", "mean", "--embd-output-format", "raw", "--attention", "non-causal"},
		{"--pooling", "last", "--embd-normalize", "0", "-p", "alone"},
		{"-p", "alone"},
	}
	for _, test := range brief(tests, 3) {
		t.Run(fmt.Sprintf("%.60q", test), func(t *testing.T) {
			args := append(append([]string(nil), three...), test...)
			if test[len(test)-2] == "-p" {
				args = append(append([]string(nil), three[:4]...), test...)
			}
			sameEmbeddings(t, tool, args...)
		})
	}
}

// sameEmbeddings compares with what llama-embedding writes.
func sameEmbeddings(t *testing.T, tool *testenv.Tool, args ...string) {
	t.Helper()
	got, _, err := embed(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for range 10 { // on a busy machine it loses the end of its output: its log thread is not waited for
		if want, err = tool.Command(args...).Output(); err != nil {
			t.Fatal(err)
		}
		if string(want) == got {
			return
		}
		if !strings.HasPrefix(got, string(want)) {
			break
		}
	}
	t.Errorf("got\n%.600s\nwant\n%.600s", got, want)
}

// TestEmbeddingsManyTexts has more texts than a batch takes sequences, and compares with batches of their own.
func TestEmbeddingsManyTexts(t *testing.T) {
	lines := make([]string, 300)
	for i := range lines {
		lines[i] = strings.Repeat("a ", i%3)
	}
	common := []string{"-t", "1", "--pooling", "last", "--embd-output-format", "raw", "--no-escape", "-c", "2048"}
	got, result, err := embed(t, append(common, "-p", strings.Join(lines, "\n"))...)
	if err != nil || result.Texts != 300 {
		t.Fatalf("%v, %+v", err, result)
	}
	rows := strings.Split(strings.TrimRight(got, "\n"), "\n")
	if len(rows) != 300 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows[:3] {
		if row == rows[(i+1)%3] {
			t.Errorf("texts %d and %d have one embedding", i, (i+1)%3)
		}
	}
}

// TestEmbeddingsSmallBatch has a batch of fewer tokens than llama-embedding's sequences, of which it dies.
func TestEmbeddingsSmallBatch(t *testing.T) {
	for _, pooling := range []string{"last", "mean", "none"} {
		for _, size := range []string{"12", "13", "300"} {
			common := []string{"-t", "1", "--pooling", pooling, "--embd-output-format", "raw", "-p",
				`func main() {\n\npackage x; import "fmt"`}
			got, result, err := embed(t, append(common, "-b", size, "-ub", size)...)
			if want := map[bool]int{true: result.Tokens, false: 3}[pooling == "none"]; err != nil ||
				result.Texts != 3 || strings.Count(got, "\n") != want+1 {
				t.Errorf("%s, %s: %v, %+v: %.200s", pooling, size, err, result, got)
			}
		}
	}
}

// TestEmbeddingsGraphs computes a text in two graphs and in one, which llama-embedding cannot: the difference is
// rounding.
func TestEmbeddingsGraphs(t *testing.T) {
	common := []string{"-t", "1", "--pooling", "last", "--embd-output-format", "array", "--attention", "causal", "-c",
		"512", "-p", strings.Repeat("func main() { println(1) } ", 40)}
	var rows [2][][]float64
	for i, size := range []string{"512", "256"} {
		text, result, err := embed(t, append(common, "-ub", size)...)
		if err != nil || result.Tokens <= 256 {
			t.Fatalf("%v, %+v", err, result)
		}
		if err := json.Unmarshal([]byte(text), &rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	var greatest float64
	for i, x := range rows[0][0] {
		greatest = max(greatest, math.Abs(x-rows[1][0][i]))
	}
	if greatest > 0.01 { // of unit vectors
		t.Errorf("values differ by up to %g", greatest)
	}
}

func TestEmbeddingsErrors(t *testing.T) {
	if _, _, err := embed(t, "-b", "8", "-ub", "8", "-p",
		"one two three four five six seven eight nine ten eleven"); !errors.Is(err, runner.ErrTooLong) {
		t.Errorf("a text beyond the batch: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	if _, err := runner.RunEmbeddings(ctx, runner.Options{Config: parse(t, "--embeddings", "-p", "a")}); !errors.Is(err,
		runner.ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
}
