//go:build linux

package oracle

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
)

// residualRows are the rows of l_out of one layer by token.
func residualRows(t *testing.T, dir string, layer int) map[int64][]float32 {
	t.Helper()
	run, err := tensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	rows := map[int64][]float32{}
	err = tensors.EachTokenRow(context.Background(), run, tensors.Filter{Tensor: fmt.Sprint("l_out-", layer)},
		func(row *tensors.TokenRow) error {
			rows[row.Token] = append([]float32{}, row.Values...)
			return nil
		})
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	return rows
}

// TestVector: llama.cpp's own program reads a control vector that was made of two runs, and adds it to the residual
// stream of each token, scaled.
func TestVector(t *testing.T) {
	record := func(prompts ...string) string {
		var lines strings.Builder
		for i, p := range prompts {
			fmt.Fprintf(&lines, "{\"id\":\"%d\",\"prompt\":%q}\n", i, p)
		}
		path := filepath.Join(t.TempDir(), "prompts.jsonl")
		if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return llamatap(t, "run", "--prompts", path, "-n", "1", "--temp", "0", "-t", "1", "--tap-tensor",
			"l_out").good(t).dirs[0]
	}
	with, without := record("func main() {", "func add(a int) int {"), record("Once upon a time", "The fox")
	file := filepath.Join(t.TempDir(), "code.gguf")
	llamatap(t, "vector", with, without, "--raw", "-o", file).good(t)
	v, err := gguf.OpenControlVector(file)
	if err != nil || v.Model != "llama" || len(v.Directions) != 5 {
		t.Fatalf("%+v, %v", v, err)
	}
	if text := llamatap(t, "vector", file).good(t).stdout; strings.Count(text, "\n") != 7 {
		t.Errorf("printed:\n%s", text)
	}
	const scale = -0.5
	steered := func(args ...string) string {
		return llamatap(t, append([]string{"exec", "--tap-tensor", "l_out", "--tap-dtype", "f32", "--",
			"llama-completion",
			"-m", testenv.Model(t), "-p", "func Read(", "-n", "2", "--temp", "0", "-t", "1", "-no-cnv"}, args...)...).
			good(t).dirs[0]
	}
	plain := residualRows(t, steered(), 3)
	moved := residualRows(t, steered("--control-vector-scaled", fmt.Sprint(file, ":", scale),
		"--control-vector-layer-range", "3", "3"), 3)
	for token := range int64(3) { // of the prompt
		for k, x := range moved[token] {
			want := float64(plain[token][k]) + scale*float64(v.Directions[3][k])
			if math.Abs(float64(x)-want) > 1e-3 {
				t.Fatalf("token %d, channel %d: %v, want %v", token, k, x, want)
			}
		}
	}
	for want, args := range map[string][]string{"method mean": {with, without, "--method", "pca", "--raw", "-o", file},
		"name it with -o": {with, without}, "no such file": {filepath.Join(t.TempDir(), "none.gguf")},
		"not a control vector": {testenv.Model(t)}} {
		if o := llamatap(t, append([]string{"vector"}, args...)...); o.status == 0 ||
			!strings.Contains(o.stderr, want) {
			t.Errorf("%q: %s%s", args, o.stdout, o.stderr)
		}
	}
}
