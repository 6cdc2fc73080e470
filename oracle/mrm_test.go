//go:build linux

package oracle

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestMRMCommands runs every command of experiments on the default model and on one of 125 million weights: what
// one leaves the next takes.
func TestMRMCommands(t *testing.T) {
	testenv.Slow(t)
	program := testenv.NeedBinary(t)
	folder := t.TempDir()
	llamatap := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = folder
		var log strings.Builder
		cmd.Stderr = &log
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("llamatap %q: %v\n%s", args, err, log.String())
		}
		return string(out)
	}
	llamatap("synth", "-o", "125m.gguf", "--params", "125m", "--type", "q8_0", "--quiet")
	for model, text := range map[string]string{
		"gopher-6m-Q8_0": "", "125m": "model: {id: 125m, path: 125m.gguf}\n",
	} {
		config := model + ".yaml"
		text += "experiment: {name: " + model +
			", repetitions: 2}\nengine: {n_ctx: 256}\nworkload: {prompts: \"func main() {\", max_tokens: 24}\n" +
			"telemetry: {baseline_s: 0.2}\nkv: {block_tokens: 1}\n"
		if err := os.WriteFile(filepath.Join(folder, config), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := llamatap("mrm", "validate", "--config", config); !strings.Contains(got, "2 cells") {
			t.Errorf("validate: %s", got)
		}
		if got := llamatap("mrm", "plan", "--config", config); !strings.Contains(got, "= 2 cells, 0 of them done") {
			t.Errorf("plan: %s", got)
		}
		llamatap("mrm", "run", "--config", config)
		if got := llamatap("mrm", "plan", "--config", config); !strings.Contains(got, "= 2 cells, 2 of them done") ||
			!strings.Contains(got, "(measured: speeds of ") {
			t.Errorf("plan behind it: %s", got)
		}
		dirs, _ := filepath.Glob(filepath.Join(folder, "results", model, "run_*"))
		archived, _ := filepath.Glob(filepath.Join(folder, "results", "contaminated", model, "run_*"))
		if len(dirs)+len(archived) != 2 {
			t.Fatalf("%s: %d runs and %d in the archive", model, len(dirs), len(archived))
		}
		for _, dir := range append(dirs, archived...) {
			llamatap("verify", dir)
			checkMetrics(t, dir)
		}
		for _, dir := range append(dirs, archived...) {
			llamatap("mrm", "analyze", "--contaminated", dir)
			if _, err := os.Stat(filepath.Join(dir, "derived", "mrm", "suitability.csv")); err != nil {
				t.Error(err)
			}
		}
		if got := llamatap("mrm", "aggregate", "results", "--contaminated", "--format", "csv"); !strings.Contains(got,
			model) {
			t.Errorf("aggregate: %s", got)
		}
	}
}

// TestMRMExamples runs both examples that are to finish within a minute as their first lines say, from a folder of
// somebody's: every cell is sealed. How long each takes is printed, and is to be read on a quiet machine.
func TestMRMExamples(t *testing.T) {
	testenv.Slow(t)
	for example, cells := range map[string]int{"quick": 12, "prompts": 9} {
		folder, config := t.TempDir(), filepath.Join(testenv.Root(t), "examples", "mrm", example+".yaml")
		run := func(args ...string) {
			t.Helper()
			cmd := exec.Command(testenv.NeedBinary(t), args...)
			cmd.Dir = folder
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("llamatap %q: %v\n%s", args, err, out)
			}
		}
		began := time.Now()
		run("mrm", "run", "--config", config)
		t.Logf("%s: %d cells in %v", example, cells, time.Since(began).Round(100*time.Millisecond))
		dirs, _ := filepath.Glob(filepath.Join(folder, "results", "*", "run_*"))
		archived, _ := filepath.Glob(filepath.Join(folder, "results", "contaminated", "*", "run_*"))
		if len(dirs)+len(archived) != cells {
			t.Errorf("%s: %d and %d of %d cells", example, len(dirs), len(archived), cells)
		}
		run("mrm", "analyze", "--config", config, "--contaminated", "--no-figures")
		run("mrm", "aggregate", "results", "--contaminated", "--out", "aggregate")
	}
}

// checkMetrics looks at the summary that every run has: it has mrm-trace's columns, and rows for weights and the cache.
func checkMetrics(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "metrics.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 3 {
		t.Fatalf("%s: %d rows, %v", dir, len(rows), err)
	}
	const columns = "region_type,n_regions,bytes,write_once_ratio,retention_p50_s,retention_p90_s,retention_p99_s," +
		"retention_max_s,read_freq_hz,reads,writes,working_set_bytes,iai_p50_ns,iai_p99_ns,locality_score,mrm_label," +
		"censored_share,mrm_trace_retention_p50_s,mrm_trace_retention_p90_s,mrm_trace_retention_p99_s," +
		"mrm_trace_write_once_ratio,mrm_trace_unique_pages,mrm_trace_suitability"
	if got := strings.Join(rows[0], ","); got != columns {
		t.Errorf("columns %s", got)
	}
	types := map[string]bool{}
	for _, row := range rows[1:] {
		types[row[0]] = true
	}
	if !types["weight"] || !types["kv_cache"] {
		t.Errorf("types %v", types)
	}
	m, err := memory.ReadMetadata(dir)
	if err != nil || m.Observer.SameTokens == nil || !*m.Observer.SameTokens {
		t.Errorf("%s: %v; the tap changed the tokens: %v", dir, err, m.Observer.SameTokens)
	}
}

// narrowInterval is what the comparison of TestObserverCostAgrees must reach where nothing else runs: two
// hundredths of the model's speed.
const narrowInterval = 0.02

// costPairs is how many pairs of runs TestObserverCostAgrees compares: LLAMATAP_COST_PAIRS, or 360, which take five
// minutes.
func costPairs() int {
	if n, err := strconv.Atoi(os.Getenv("LLAMATAP_COST_PAIRS")); err == nil && n > 1 {
		return n
	}
	return 360
}

// TestObserverCostAgrees compares what observing says of its own cost with what a comparison of both runs of each
// cell reports: on average over the repetitions, the loss of speed is the tap's own time, within the interval of the
// comparison. On a quiet machine that interval must be narrow.
func TestObserverCostAgrees(t *testing.T) {
	testenv.Slow(t)
	folder, cells := t.TempDir(), costPairs()
	config := filepath.Join(folder, "e.yaml")
	text := fmt.Sprintf("experiment: {name: cost, repetitions: %d}\nengine: {n_ctx: 512, threads: 1}\nworkload: "+
		"{prompts: \"func main() {\", max_tokens: 400}\ntelemetry: {baseline_s: 0.2}\noutput: {dir: %s/results}\n",
		cells, folder)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testenv.NeedBinary(t), "mrm", "run", "--config", config).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var measured, reported, others []float64
	for _, pattern := range []string{"results/*/run_*", "results/contaminated/*/run_*"} {
		dirs, _ := filepath.Glob(filepath.Join(folder, pattern))
		for _, dir := range dirs {
			m, err := memory.ReadMetadata(dir)
			if err != nil {
				t.Fatal(err)
			}
			o := &m.Observer
			measured = append(measured, 1-*o.DecodeRatio)
			reported = append(reported, float64(o.CPUNS.Tap)/float64(o.Tapped.PromptNS+o.Tapped.GenerationNS))
			others = append(others, *o.OthersCPUPct)
		}
	}
	if len(measured) != cells {
		t.Fatalf("%d of %d cells", len(measured), cells)
	}
	mean, half := interval99(measured)
	own, busy := stat.Mean(reported, nil), stat.Mean(others, nil)
	t.Logf("%d pairs: speed lost %.4f ± %.4f, the tap says %.4f; others used %.1f %% of all processors", cells, mean,
		half, own, busy)
	if own < mean-half || own > mean+half {
		t.Errorf("the tap says %.4f, both runs say %.4f ± %.4f", own, mean, half)
	}
	if busy < 100*quietShare && half > narrowInterval {
		t.Errorf("the interval of %d pairs on a quiet machine is ± %.4f, more than %g: it shows little; compare more "+
			"(LLAMATAP_COST_PAIRS)", cells, half, narrowInterval)
	}
}

// interval99 is the mean of some values with half of its 99 % interval, by Student's t.
func interval99(values []float64) (mean, half float64) {
	n := float64(len(values))
	mean, sd := stat.MeanStdDev(values, nil)
	return mean, distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.995) * sd / math.Sqrt(n)
}
