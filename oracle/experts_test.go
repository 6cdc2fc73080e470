//go:build linux

package oracle

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/internal/testenv"
)

// sixteen gives a model so many experts that caches of whole MiB hold some of them.
func sixteen(c *synth.Config) { c.Experts, c.ExpertFF = 16, 256 }

// TestExperts: choices are those of the router's logits; uses, distances and plain LRU caches are recomputed from them.
func TestExperts(t *testing.T) {
	python := testenv.NeedPython(t, "numpy", "pyarrow")
	for _, arch := range testenv.ByDay([]string{"qwen3moe", "mixtral"}, 1) {
		model := synthetic(t, arch, gguf.F16, sixteen)
		dir := llamatap(t, append([]string{"run", "-m", model, "--tap-resource-level", "DETAILED", "--tap-tensors",
			"ffn_moe_logits", "--tap-dtype", "f32"}, generate(40)...)...).good(t).dirs[0]
		out := t.TempDir()
		routing, logits := filepath.Join(out, "routing.parquet"), filepath.Join(out, "logits.parquet")
		llamatap(t, "experts", dir, "--format", "parquet", "-o", routing).good(t)
		llamatap(t, "export", dir, "--to", "parquet", "-o", logits).good(t)
		cmd := exec.Command(python, "testdata/experts.py", routing, logits, fmt.Sprint(3*256*256*2))
		cmd.Stdin = strings.NewReader(llamatap(t, "experts", dir, "--json").good(t).stdout)
		if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v\n%s", arch, err, said)
		}
	}
}

var cacheLines = regexp.MustCompile(`llama_moe_cache: ubatch +(<= 8|> 8): hits = (\d+), misses = (\d+)`)

// TestExpertsCache: what is predicted for --moe-cache-mib is what llama.cpp counts with a cache of that size, from a
// run without a cache as from one with it.
func TestExpertsCache(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	model := synthetic(t, "qwen3moe", gguf.F16, sixteen)
	args := []string{"llama-completion", "-m", model, "-no-cnv", "--no-warmup", "-c", "512", "-v", "--rpc", endpoint,
		"-ngl", "99", "-ncmoe", "99", "--tap-resource-level", "DETAILED", "-p", prompt, "-n", "40", "--temp", "0", "-t",
		"1", "--ignore-eos"}
	plain := llamatap(t, args...).good(t).dirs[0]
	sizes := []string{"2", "5"}
	for _, mib := range sizes {
		cached := llamatap(t, append(slices.Clone(args), "--moe-cache-mib", mib)...).good(t)
		want := map[string]string{"<= 8": "0,0", "> 8": "0,0"}
		for _, m := range cacheLines.FindAllStringSubmatch(cached.stderr, -1) {
			want[m[1]] = m[2] + "," + m[3]
		}
		slots := regexp.MustCompile(`f16: +(\d+) slots`).FindStringSubmatch(cached.stderr)
		if want["<= 8"] == "0,0" || slots == nil {
			t.Fatalf("llama.cpp counts nothing:\n%s", cached.stderr)
		}
		for _, dir := range []string{plain, cached.dirs[0]} {
			csv := llamatap(t, "experts", dir, "--moe-cache-mib", mib, "--by", "size", "--format", "csv").good(t).stdout
			cells := strings.Split(strings.Split(csv, "\n")[1], ",")
			got := map[string]string{"<= 8": cells[3] + "," + cells[4], "> 8": cells[5] + "," + cells[6]}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s MiB: hits and misses %v are predicted, llama.cpp counts %v", mib, got, want)
			}
			if said := llamatap(t, "experts", dir, "--moe-cache-mib", mib,
				"--json").good(t).stdout; !strings.Contains(said,
				`"slots": `+slots[1]+"\n        }") {
				t.Errorf("%s MiB: not the %s slots of llama.cpp:\n%s", mib, slots[1], said[strings.Index(said,
					`"caches"`):])
			}
		}
	}
}

// TestLedgerOfExpertCache: replaying the copies that the ledger shows, each slot of a cache that an op reads holds an
// expert that its layer chose, and as many bytes are copied as llama.cpp counts.
func TestLedgerOfExpertCache(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "numpy", "pyarrow")
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	for _, mib := range []string{"2", "5"} {
		o := llamatap(t, "llama-completion", "-m", synthetic(t, "qwen3moe", gguf.F16, sixteen), "-no-cnv",
			"--no-warmup", "-c", "512", "-v", "--rpc", endpoint, "-ngl", "99", "-ncmoe", "99", "--moe-cache-mib", mib,
			"--tap-ledger", "--tap-resource-level", "DETAILED",
			"-p", prompt, "-n", "40", "--temp", "0", "-t", "1", "--ignore-eos").good(t)
		misses := 0
		for _, m := range cacheLines.FindAllStringSubmatch(o.stderr, -1) {
			n, _ := strconv.Atoi(m[3])
			misses += n
		}
		routing := filepath.Join(t.TempDir(), "routing.parquet")
		llamatap(t, "experts", o.dirs[0], "--format", "parquet", "-o", routing).good(t)
		said, err := exec.Command(python, "testdata/expert_copies.py", o.dirs[0], routing, fmt.Sprint(256*256*2),
			fmt.Sprint(misses)).CombinedOutput()
		if err != nil || len(said) > 0 || misses == 0 {
			t.Errorf("%s MiB, %d misses: %v\n%s", mib, misses, err, said)
		}
	}
}
