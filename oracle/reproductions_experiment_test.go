//go:build linux

package oracle

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// experiment is one that was run: two cells, with samples of page faults, which need no PMU.
type experiment struct {
	dir    string   // holds e.yaml and results
	runs   []string // run directories
	screen string   // what 'mrm run' wrote to its terminal
}

// in runs a command in a folder.
func in(t *testing.T, dir string, args ...string) outcome {
	t.Helper()
	cmd := command(t, args...)
	cmd.Dir = dir
	return finish(t, cmd, dir)
}

// TestOneExperiment runs an experiment once, and looks at what it left in several ways.
func TestOneExperiment(t *testing.T) {
	e := &experiment{dir: t.TempDir()}
	text := "experiment: {name: e, repetitions: 2}\nengine: {n_ctx: 256}\ncollector: {primary: fault}\n" +
		"workload: {prompts: \"func main() {\", max_tokens: 4}\ntelemetry: {baseline_s: 0.1}\n"
	if err := os.WriteFile(filepath.Join(e.dir, "e.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "mrm", "run", "--config", "e.yaml")
	cmd.Dir = e.dir
	term := testenv.OnTerminal(t, cmd)
	status := term.Wait().ExitStatus()
	e.screen = term.Screen()
	for _, folder := range []string{"", "contaminated"} {
		found, err := filepath.Glob(filepath.Join(e.dir, "results", folder, "gopher*", "run_*"))
		if err != nil {
			t.Fatal(err)
		}
		e.runs = append(e.runs, found...)
	}
	if status != 0 || len(e.runs) != 2 {
		t.Fatalf("status %d, %d runs\n%s", status, len(e.runs), e.screen)
	}
	for name, check := range map[string]func(t *testing.T, e *experiment){
		"the bar moves within a cell":                                       barMoves,
		"mrm-trace reads the processor of every sample":                     readsSamples,
		"a recorder of 64 MiB is clean beside a small model":                allowsLittle,
		"a share of runs has an interval of shares":                         shareOfRuns,
		"an aggregate has figures across cells":                             acrossCells,
		"figures of a contaminated run are marked, titled and have legends": markedFigures,
		"an analysis that leaves every run out fails":                       leftOut,
		"mrm-trace's list of runs has what the experiment knows":            listsRuns,
	} {
		t.Run(name, func(t *testing.T) { check(t, e) })
	}
}

// listsRuns: manifest.csv has a run's repetition, limit of tokens, validity and throttling.
func listsRuns(t *testing.T, e *experiment) {
	out := t.TempDir()
	for i, run := range e.runs {
		m, err := memory.ReadMetadata(run)
		if err != nil {
			t.Fatal(err)
		}
		llamatap(t, "export", run, "--to", "mrm-trace", "-o", out).good(t)
		rows, err := csv.NewReader(bytes.NewReader(read(t, filepath.Join(out, "manifest.csv")))).ReadAll()
		if err != nil || len(rows) != i+2 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		got := map[string]string{}
		for k, name := range rows[0] {
			got[name] = rows[i+1][k]
		}
		throttled := ""
		if n := m.Observer.ThrottleEvents; n != nil {
			throttled = fmt.Sprint(*n)
		}
		if got["run_id"] != m.RunID || got["max_tokens_per_prompt"] != "4" || got["batch_size"] != "1" ||
			got["rep"] != fmt.Sprint(m.Cell.Repetition) || got["run_validity"] != string(m.Validity.Class) ||
			got["throttle_events"] != throttled {
			t.Errorf("%v of %+v, %+v", got, m.Cell, m.Validity)
		}
	}
}

// barMoves: each of two cells is half of the bar, and has steps.
func barMoves(t *testing.T, e *experiment) {
	last, steps := 0, map[bool]int{}
	for _, found := range regexp.MustCompile(`/r([01]): [^%\r]* ([0-9]+)%`).FindAllStringSubmatch(e.screen, -1) {
		percent, err := strconv.Atoi(found[2])
		if err != nil || percent < last || percent > 99 {
			t.Errorf("%s %% after %d %%", found[2], last)
		}
		if isSecond := percent >= 50; percent > last {
			steps[isSecond]++
			if found[1] == "0" && isSecond && !strings.Contains(found[0], "sealing") { // of which the text stays
				t.Errorf("the first cell is at %d %%", percent)
			}
		}
		last = percent
	}
	if steps[false] < 2 || steps[true] < 2 {
		t.Errorf("the bar moves %d and %d times within the cells: %q", steps[false], steps[true], e.screen)
	}
}

// readsSamples: mrm-trace 0.1.0 passes over a sample without a processor and a symbol.
func readsSamples(t *testing.T, e *experiment) {
	samples := filepath.Join(e.runs[0], "raw", "perf_script.txt")
	lines := strings.Count(string(content(t, samples)), "page-faults:")
	cmd := exec.Command(testenv.NeedPython(t, "mrm_trace.parser.perf_script_parser"), "-c", `
import sys
from mrm_trace.parser.perf_script_parser import parse_perf_script
rows = list(parse_perf_script(open(sys.argv[1]), "r"))
print(sum(r["cpu_id"] is not None and r["symbol"] != "" and r["address"] > 0 and r["thread_id"] > 0 for r in rows))
`, samples)
	read, err := cmd.CombinedOutput()
	if got := strings.TrimSpace(string(read)); err != nil || lines == 0 || got != fmt.Sprint(lines) {
		t.Errorf("%s of %d samples have a processor and a symbol: %v", got, lines, err)
	}
}

// allowsLittle: shares of a model of 6 MB show how small the model is, so up to an absolute amount they count nothing.
// How busy others keep the machine is another criterion.
func allowsLittle(t *testing.T, e *experiment) {
	limits := map[string]float64{"memory_pct": 64 << 20, "cpu_pct": 0.25e9, "cpu_peak_pct": 0.25e9}
	for _, run := range e.runs {
		var m struct {
			Validity struct {
				Criteria []struct {
					Name, Class   string
					Value, Amount float64
				}
			}
		}
		if err := json.Unmarshal(content(t, filepath.Join(run, rundir.MetadataName)), &m); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, c := range m.Validity.Criteria {
			most, isOurs := limits[c.Name]
			if !isOurs {
				continue
			}
			seen++
			if c.Class != "clean" && c.Amount <= most {
				t.Errorf("%s: %s is %s at %v, %v in all", filepath.Base(run), c.Name, c.Class, c.Value, c.Amount)
			}
		}
		if seen != 2 {
			t.Errorf("criteria %+v", m.Validity.Criteria)
		}
	}
}

// shareOfRuns: two of two runs are no certainty.
func shareOfRuns(t *testing.T, e *experiment) {
	printed := in(t, e.dir, "mrm", "aggregate", "results", "--contaminated").good(t).stdout
	shares := regexp.MustCompile(`mrm_label=\w+ +1 .*\[(0\.[0-9]+), 1\]`).FindAllString(printed, -1)
	if len(shares) < 2 {
		t.Errorf("%d shares have an interval within 0 and 1:\n%.2000s", len(shares), printed)
	}
}

func acrossCells(t *testing.T, e *experiment) {
	in(t, e.dir, "mrm", "aggregate", "results", "--contaminated", "--out", "aggregate").good(t)
	figures, err := filepath.Glob(filepath.Join(e.dir, "aggregate", "*.svg"))
	if err != nil || len(figures) < 5 {
		t.Fatalf("figures %q, %v", figures, err)
	}
	for _, name := range figures {
		for _, want := range []string{"n = 2", "bars: 95 % intervals"} {
			if !strings.Contains(string(content(t, name)), want) {
				t.Errorf("%s has no %q", filepath.Base(name), want)
			}
		}
	}
}

// contaminated copies a run to a folder of results, as one that is contaminated, whatever it was.
func (e *experiment) contaminated(t *testing.T) (folder, run string) {
	t.Helper()
	folder = t.TempDir()
	run = filepath.Join(folder, "results", "contaminated", "model", filepath.Base(e.runs[0]))
	copyFiles(t, e.runs[0], run)
	copyFiles(t, filepath.Join(e.runs[0], "raw"), filepath.Join(run, "raw"))
	name := filepath.Join(run, rundir.MetadataName)
	var m map[string]any
	if err := json.Unmarshal(content(t, name), &m); err != nil {
		t.Fatal(err)
	}
	m["validity"].(map[string]any)["class"] = "contaminated"
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(name, text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "e.yaml"), content(t, filepath.Join(e.dir, "e.yaml")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder, run
}

func markedFigures(t *testing.T, e *experiment) {
	folder, run := e.contaminated(t)
	in(t, folder, "mrm", "analyze", "--contaminated", "--figures", "svg", run).good(t)
	figures, err := filepath.Glob(filepath.Join(run, "derived", "mrm", "*.svg"))
	if err != nil || len(figures) < 5 {
		t.Fatalf("figures %q, %v", figures, err)
	}
	for _, name := range figures {
		want := []string{"contaminated, not to be published", "gopher-6m, Q8_0, context 256"}
		if strings.HasSuffix(name, "refresh_by_retention.svg") {
			want = append(want, "at most: censored lives last all day", "at least: they end with the run")
		}
		for _, text := range want {
			if !strings.Contains(string(content(t, name)), ">"+text+"<") {
				t.Errorf("%s has no %q", filepath.Base(name), text)
			}
		}
	}
}

func leftOut(t *testing.T, e *experiment) {
	folder, _ := e.contaminated(t)
	o := in(t, folder, "mrm", "analyze", "--config", "e.yaml")
	if o.status != 1 || !strings.Contains(o.stderr, "left out") {
		t.Errorf("status %d: %s", o.status, o.stderr)
	}
}
