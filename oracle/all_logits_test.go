//go:build linux

package oracle

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// TestAllLogits: with --all-logits every token of a prompt has the logits that llama-results computes, bit by bit, though
// the prompt takes several batches; and what is generated is what is generated without.
func TestAllLogits(t *testing.T) {
	line, err := json.Marshal(map[string]any{"prompt": prompt})
	if err != nil {
		t.Fatal(err)
	}
	model, results := synthetic(t, "gemma2", gguf.F32, nil), filepath.Join(t.TempDir(), "results.gguf")
	common := []string{"-m", model, "-t", "1", "-c", "512", "-ub", "8", "-fa", "off"}
	stock(t, "llama-results", append(common, "-p", prompt, "-o", results)...)
	want := tensorF32(t, results, "logits")
	run := func(prompts int, args ...string) (dir, chosen string) {
		to := filepath.Join(t.TempDir(), "results.jsonl")
		c := record(t, append([]string{"--tap-tensor", "result_output"}, exact...), slices.Concat(common, args, []string{
			"--prompts", textFile(t, strings.Repeat(string(line)+"\n", prompts)), "--results", to, "-n", "4", "--temp", "0",
			"-b", "8"})...)
		for _, answer := range answersOf(t, to) {
			chosen += fmt.Sprintln(answer["tokens"])
		}
		return c.dir, chosen
	}
	dir, _ := run(1, "--all-logits")
	r, err := tensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []float32
	err = tensors.EachTokenRow(context.Background(), r, tensors.Filter{}, func(row *tensors.TokenRow) error {
		got = append(got, row.Values...)
		return nil
	})
	if err != nil || len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("%d logits, and %d of llama-results differ from them: %v", len(got), len(want), err)
	}
	_, with := run(2, "--all-logits", "-np", "2")
	if _, without := run(2, "-np", "2"); with != without || strings.Count(with, "\n") != 2 {
		t.Errorf("chosen with --all-logits\n%s, without\n%s", with, without)
	}
}

// tensorF32 reads a tensor of type F32 from a GGUF file.
func tensorF32(t *testing.T, path, name string) []float32 {
	t.Helper()
	file, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	x, ok := file.Tensor(name)
	if err != nil || !ok || x.Type != gguf.F32 {
		t.Fatalf("%s has no %s of type F32: %v", path, name, err)
	}
	values := make([]float32, x.Values())
	if err := binary.Read(bytes.NewReader(data[x.Offset:]), binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	return values
}
