//go:build llama

package oracle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// beforeLookUp are tensors of the first layer that its activation comes after.
var beforeLookUp = regexp.MustCompile(`^(embd|inp_.*|` +
	`(attn_norm|norm|Qcur|Kcur|Vcur|kqv_out|attn_out|ffn_inp|ffn_norm|ffn_up|ffn_gate)-0)(#|$)`)

// TestBLAS captures every point of prompts whose products the BLAS backend computes, in graphs that are split between
// it and the CPU: all values that the CPU backend alone gives, but for rounding, and not the same ones.
func TestBLAS(t *testing.T) {
	testenv.Slow(t)
	var lines strings.Builder
	random := rand.New(rand.NewPCG(3, 4))
	for range 4 {
		ids := make([]int, 48)
		for k := range ids {
			ids[k] = 20 + random.IntN(1000)
		}
		text, _ := json.Marshal(map[string]any{"prompt": ids})
		fmt.Fprintf(&lines, "%s\n", text)
	}
	prompts := textFile(t, lines.String())
	for _, arch := range archs(t, "llama", "mixtral") {
		t.Run(arch, func(t *testing.T) {
			run := func(args ...string) map[string][]float32 {
				results := filepath.Join(t.TempDir(), "results.jsonl")
				c := record(t, append([]string{"--tap-point", "all"}, exact...), slices.Concat(args, []string{
					"-m", synthetic(t, arch, gguf.F32, nil), "--prompts", prompts, "--results", results, "-n", "0",
					"--all-logits", "-fa", "off", "-ub", "64", "-c", "256", "-ctk", "f32", "-ctv", "f32", "-t",
					"2"})...)
				return promptRows(t, c, answersOf(t, results))
			}
			cpu, blas, worst := run(), run("--blas"), 0.0
			if len(cpu) < 4*48 || len(blas) != len(cpu) {
				t.Fatalf("%d rows with BLAS, %d without", len(blas), len(cpu))
			}
			for key, want := range cpu {
				e, far := relative(blas[key], want), 1e-4
				if name, _, _ := strings.Cut(key, " "); looksUp[arch] && !beforeLookUp.MatchString(name) {
					far = 1e-3
				}
				if worst = max(worst, e); blas[key] == nil || e > far {
					t.Fatalf("%s differs by %g of its length", key, e)
				}
			}
			if worst == 0 {
				t.Error("no value differs: the BLAS backend computed nothing")
			}
		})
	}
}
