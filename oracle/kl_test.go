//go:build linux

package oracle

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestKLDivergence: diff finds the divergences of two quantisations' logits that llama-perplexity prints. That leaves
// out the last token of each chunk, and stores the first model's probabilities in 16 bits.
func TestKLDivergence(t *testing.T) {
	testenv.Slow(t)
	const chunk, chunks = 128, 4
	dir, model := t.TempDir(), testenv.Model(t)
	text, other := filepath.Join(dir, "text.txt"), filepath.Join(dir, "q4.gguf")
	if err := os.WriteFile(text, []byte(strings.Repeat(long+prompt+"\n// and further words of another kind\n", 12)),
		0o600); err != nil {
		t.Fatal(err)
	}
	llamatap(t, "exec", "--", "llama-quantize", "--allow-requantize", model, other, "Q4_0").good(t)
	base := filepath.Join(dir, "base.kld")
	perplexity := func(tap []string, model string, more ...string) outcome {
		args := append(append([]string{"exec"}, tap...), "--", "llama-perplexity", "-m", model, "-f", text, "-c",
			strconv.Itoa(chunk), "--chunks", strconv.Itoa(chunks), "-t", "1")
		return llamatap(t, append(args, more...)...).good(t)
	}
	// Recorded, for without a tap llama-perplexity sometimes ends before its log is written.
	record := []string{"--tap-tensor", "result_output", "--tap-dtype", "f32"}
	a := perplexity(record, model, "--kl-divergence-base", base).dirs[0]
	said := perplexity(record, other, "--kl-divergence-base", base, "--kl-divergence")
	b := said.dirs[0]
	printed := func(name string) float64 {
		found := regexp.MustCompile(name + `\s*: *([0-9.]+)`).FindStringSubmatch(said.stdout + said.stderr)
		if found == nil {
			t.Fatalf("llama-perplexity prints no %s:\n%s", name, said.stdout)
		}
		v, _ := strconv.ParseFloat(found[1], 64)
		return v
	}
	var rows, largest, sum float64
	for line := range strings.Lines(llamatap(t, "diff", a, b, "--by", "row").good(t).stdout) {
		var row struct {
			Pos int
			KL  float64 `json:"kl_divergence"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Pos < chunk-1 {
			rows, sum, largest = rows+1, sum+row.KL, max(largest, row.KL)
		}
	}
	if rows != chunks*(chunk/2-1) {
		t.Fatalf("%v rows of logits", rows)
	}
	if want := printed("Mean +KLD"); math.Abs(sum/rows-want) > 1e-3*want+2e-6 || want < 1e-4 {
		t.Errorf("mean %v, llama-perplexity has %v", sum/rows, want)
	}
	if want := printed("Maximum KLD"); math.Abs(largest-want) > 1e-2*want {
		t.Errorf("max %v, llama-perplexity has %v", largest, want)
	}
	// compare-models computes the same without llama-perplexity, and its perplexities too.
	var compared struct {
		Tokens      int
		Mean        float64 `json:"kl_mean"`
		Median      float64 `json:"kl_median"`
		P99         float64 `json:"kl_p99"`
		Max         float64 `json:"kl_max"`
		PerplexityA float64 `json:"perplexity_a"`
		PerplexityB float64 `json:"perplexity_b"`
	}
	o := llamatap(t, "compare-models", model, other, "-f", text, "-c", strconv.Itoa(chunk), "--chunks",
		strconv.Itoa(chunks), "-t", "1", "--json").good(t)
	if err := json.Unmarshal([]byte(o.stdout), &compared); err != nil || float64(compared.Tokens) != rows {
		t.Fatalf("%v: %+v", err, compared)
	}
	for name, value := range map[string]float64{"Mean +KLD": compared.Mean, "Maximum KLD": compared.Max,
		"Median +KLD": compared.Median, "99.0% +KLD": compared.P99,
		`Mean PPL\(Q\) +`: compared.PerplexityB, `Mean PPL\(base\) +`: compared.PerplexityA} {
		bound := 1e-3
		if strings.Contains(name, "KLD") && name != "Mean +KLD" {
			bound = 1e-2 // of one token or two, whose stored probabilities have 16 bits
		}
		if want := printed(name); math.Abs(value-want) > bound*want+2e-6 {
			t.Errorf("compare-models: %s is %v, llama-perplexity has %v", name, value, want)
		}
	}
	var all struct{ Logits struct{ Rows int } }
	if err := json.Unmarshal([]byte(llamatap(t, "diff", a, b, "--json").good(t).stdout), &all); err != nil ||
		all.Logits.Rows != chunks*chunk/2 {
		t.Errorf("%+v, %v", all, err)
	}
}
