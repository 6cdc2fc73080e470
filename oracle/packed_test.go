//go:build linux

package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// looksUp are architectures with GELU, which ggml looks up in a table of half precision: a rounding apart before it
// can be a step of the table apart after it.
var looksUp = map[string]bool{"gemma2": true, "gemma3": true, "gpt2": true, "starcoder2": true}

// TestPacked: prompts that share micro-batches have the values of prompts that are computed one by one, but for
// rounding; their micro-batches are full. The last line generates text, and is computed by itself. A recurrent model
// computes them one by one, so its values are equal bit by bit.
func TestPacked(t *testing.T) {
	var lines strings.Builder
	random, total, last := rand.New(rand.NewPCG(1, 2)), 0, 0
	for i := range 20 {
		ids := make([]int, 1+random.IntN(45))
		for k := range ids {
			ids[k] = 20 + random.IntN(1000)
		}
		line := map[string]any{"id": i, "prompt": ids}
		if i == 19 {
			last = len(ids)
			line["n_predict"], line["ignore_eos"] = 3, true
		}
		text, _ := json.Marshal(line)
		fmt.Fprintf(&lines, "%s\n", text)
		total += len(ids)
	}
	prompts := textFile(t, lines.String())
	for _, arch := range archs(t, "llama", "gemma2", "mamba") {
		t.Run(arch, func(t *testing.T) {
			run := func(args ...string) (map[string][]float32, *capture) {
				results := filepath.Join(t.TempDir(), "results.jsonl")
				c := record(t, append([]string{"--tap-point", "resid_post"}, exact...), slices.Concat(args, []string{
					"-m", synthetic(t, arch, gguf.F32, nil), "--prompts", prompts, "--results", results, "-n", "0",
					"--temp", "0", "--all-logits", "-fa", "off", "-ub", "16", "-c", "128", "-ctk", "f32", "-ctv", "f32",
					"-t", "1"})...)
				return promptRows(t, c, answersOf(t, results)), c
			}
			alone, _ := run("-np", "1")
			packed, c := run()
			if len(alone) < 2*(total+2) || len(packed) != len(alone) {
				t.Fatalf("%d rows packed, %d one by one, of %d tokens", len(packed), len(alone), total)
			}
			worst, far := 0.0, 1e-4
			if looksUp[arch] {
				far = 1e-3
			}
			for key, want := range alone {
				e := relative(packed[key], want)
				worst = max(worst, e)
				if e > far || packed[key] == nil {
					t.Fatalf("%s differs by %g of its length", key, e)
				}
			}
			if arch == "mamba" || arch == "jamba" {
				if worst != 0 {
					t.Errorf("values differ by %g", worst)
				}
				return
			}
			full := 0
			for _, e := range c.execs() {
				if len(e.Rows) == 16 {
					full++
				}
			}
			if want := (total-last)/16 + last/16; full != want || full < 20 {
				t.Errorf("%d full micro-batches, want %d", full, want)
			}
		})
	}
}

// promptRows reads every captured row of the tokens of prompts, by tensor, line of the prompt and position.
func promptRows(t *testing.T, c *capture, answers []map[string]any) map[string][]float32 {
	t.Helper()
	line := map[string]string{}
	for _, a := range answers {
		line[fmt.Sprint(a["seq_id"], " ", a["request"])] = fmt.Sprint(a["line"])
	}
	r, err := tensors.Open(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows := map[string][]float32{}
	err = tensors.EachTokenRow(context.Background(), r, tensors.Filter{}, func(row *tensors.TokenRow) error {
		token := c.tokens[row.Token]
		of := line[fmt.Sprint(*token.Seq, " ", *token.Request)]
		key := fmt.Sprintf("%s of line %s at %d", row.Packet.Name, of, token.Pos)
		if rows[key] != nil || of == "" {
			t.Errorf("%s is there twice, or belongs to no line", key)
		}
		if wrong := token.Phase.String() != "prefill"; wrong && of != "20" {
			t.Errorf("%s is of phase %v", key, token.Phase)
		}
		rows[key] = slices.Clone(row.Values)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// relative is the length of the difference of two vectors as a share of the second one's.
func relative(a, b []float32) float64 {
	var difference, length float64
	for i := range min(len(a), len(b)) {
		d := float64(a[i]) - float64(b[i])
		difference, length = difference+d*d, length+float64(b[i])*float64(b[i])
	}
	return math.Sqrt(difference / length)
}
