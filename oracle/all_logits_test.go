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
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestAllLogits: with --all-logits every token of a prompt has the logits that llama-results computes, bit by bit,
// though the prompt takes several batches; and what is generated is what is generated without.
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
		c := record(t, append([]string{"--tap-tensor", "result_output"}, exact...),
			slices.Concat(common, args, []string{
				"--prompts", textFile(t, strings.Repeat(string(line)+"\n", prompts)), "--results", to, "-n", "4",
				"--temp", "0", "-b", "8"})...)
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

// TestAllRows: with --all-rows every tensor up to result_norm is that of --all-logits, bit by bit, in whole graphs, in
// such as are cut for each tensor, and on a device, and no other tensor is recorded.
func TestAllRows(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	line, err := json.Marshal(map[string]any{"prompt": prompt})
	if err != nil {
		t.Fatal(err)
	}
	texts := textFile(t, strings.Repeat(string(line)+"\n", 3))
	for _, arch := range testenv.ByDay([]string{"gemma2", "llama", "mamba", "gpt2", "qwen3moe"}, 1) {
		model := synthetic(t, arch, gguf.F32, nil)
		for name, more := range map[string][]string{"whole": nil, "cut": {"--tap-device-memory", "0"},
			"device": {"--rpc", endpoint, "-ngl", "99"}} {
			t.Run(arch+"/"+name, func(t *testing.T) {
				captured := func(flag string) *capture {
					return record(t, everything,
						append(more, "-m", model, "-t", "1", "-c", "512", "-ub", "16", "-n", "0",
							"--prompts", texts, "--results", filepath.Join(t.TempDir(), "r.jsonl"), flag)...)
				}
				rows, want := captured("--all-rows"), captured("--all-logits")
				ended, before := map[uint64]bool{}, want.packets[:0]
				for _, p := range want.packets {
					if norm := p.Node == "result_norm"; norm || !ended[p.Exec] {
						before, ended[p.Exec] = append(before, p), norm || ended[p.Exec]
					}
				}
				if len(before) == len(want.packets) {
					t.Error("there are no logits to leave out")
				}
				want.packets = before
				if n := equalCaptures(t, "rows", rows, want); n < 40 {
					t.Errorf("only %d tensors were compared", n)
				}
			})
		}
	}
}

// TestPointsWithoutLogits: graphs that are not computed to the end, and graphs of embeddings, have the last layer's
// points, too.
func TestPointsWithoutLogits(t *testing.T) {
	texts, points := textFile(t, `{"prompt":"one two"}`+"\n"), []string{"--tap-point", "resid_post.1,final_norm"}
	for _, arch := range []string{"llama", "gpt2", "mamba"} {
		common := []string{"-m", synthetic(t, arch, gguf.F32, nil), "-t", "1", "-c", "64"}
		for name, c := range map[string]*capture{
			"all rows": record(t, points, append(common, "--prompts", texts, "--results",
				filepath.Join(t.TempDir(), "r.jsonl"), "-n", "0", "--all-rows")...),
			"embeddings": record(t, points, append(common, "--embeddings", "--pooling", "mean", "-p", "one two")...),
		} {
			found := map[string]bool{}
			for _, p := range c.packets {
				found[p.Node] = true
			}
			if len(found) != 2 || !found["result_norm"] || strings.Contains(c.stderr, "not captured") {
				t.Errorf("%s, %s: %v\n%s", arch, name, found, c.stderr)
			}
		}
	}
	refused := llamatap(t, "run", "--tap-point", "lm_head", "-m", testenv.Model(t), "--prompts", texts, "-n", "0",
		"--all-rows")
	if refused.status != 2 || !strings.Contains(refused.stderr, "lm_head: --all-rows computes no logits") {
		t.Errorf("lm_head: status %d\n%s", refused.status, refused.stderr)
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
