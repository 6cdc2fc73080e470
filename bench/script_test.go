package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

const exampleScript = `
seed: 7
repetitions: 6
rounds: 3
cooldown: 20ms
warmup: false
scenarios:
  - name: lengths
    models: [a.gguf, /b.gguf]
    prompts:
      - prompt: 8-32*2
      - gen: [4, 8]
      - {prompt: 16, gen: 4}
    settings:
      threads: [1, 2]
      flash_attn: [on, off]
    tap:
      - name: off
      - {name: residual, tensors: l_out*, layers: 0-3}
  - prompts:
      - {file: text.txt, gen: 4}
      - {jsonl: some.jsonl, gen: 5}
`

// writtenFiles writes files into a folder and returns the path of the first.
func writtenFiles(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, files[0])
}

// scripted makes the plan of a script.
func scripted(path string) (*Plan, error) {
	s, err := ReadScript(path)
	if err != nil {
		return nil, err
	}
	var pace Pace
	if err := s.Apply(&pace); err != nil {
		return nil, err
	}
	scenarios, err := s.Expand(filepath.Dir(path), 1)
	if err != nil {
		return nil, err
	}
	pace.Repetitions = max(pace.Repetitions, 1)
	return NewPlan(scenarios, pace)
}

func TestScript(t *testing.T) {
	path := writtenFiles(t, "s.yaml", exampleScript, "text.txt", "func main\n",
		"some.jsonl", "{\"id\": \"x\", \"prompt\": \"a\", \"n_predict\": 9}\n\n{\"id\": 3, \"prompt\": "+
			"\"b\"}\n{\"prompt\": \"c\"}\n")
	plan, err := scripted(path)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Seed != 7 || plan.Rounds != 3 || plan.CoolDown != 20*time.Millisecond || len(plan.Items) != 2*2*2*6*2+4 {
		t.Errorf("seed %d, %d rounds, %v, %d tests", plan.Seed, plan.Rounds, plan.CoolDown, len(plan.Items))
	}
	first, second, last := plan.Items[0], plan.Items[1], plan.Items[len(plan.Items)-1]
	if s := first.Spec; s.Model != filepath.Join(filepath.Dir(path), "a.gguf") || s.Prompt != 8 || s.Gen != 0 ||
		s.Threads != 1 ||
		s.FlashAttention != "on" || s.Repetitions != 2 || !s.NoWarmUp || s.Batch != 2048 || s.TypeK != "f16" {
		t.Errorf("%+v", s)
	}
	if second.Tap.Name != "residual" || !slices.Equal(second.Tap.Flags,
		[]string{"--tap-layers=0-3", "--tap-tensors=l_out*"}) || first.Tap.Flags != nil {
		t.Errorf("%+v, %+v", first.Tap, second.Tap)
	}
	if last.PromptName != "some.jsonl:4" || last.Spec.Text != "c" || last.Spec.Gen != 5 || last.Spec.Model != "" {
		t.Errorf("%+v", last)
	}
	texts := plan.Items[len(plan.Items)-4:]
	if texts[0].PromptName != "text.txt" || texts[0].Spec.Text != "func main" || texts[1].PromptName != "x" ||
		texts[1].Spec.Gen != 9 || texts[2].PromptName != "3" {
		t.Errorf("%+v", texts)
	}
}

// TestScriptRefuses names what is wrong on one line.
func TestScriptRefuses(t *testing.T) {
	for want, text := range map[string]string{
		"no scenarios":      "seed: 1",
		"unknown field":     "scenarios: [{prompt: 1}]",
		"no prompts":        "scenarios: [{models: [a]}]",
		"is neither a":      "scenarios: [{prompts: [{gen: x}]}]",
		"it says nothing":   "scenarios: [{prompts: [{prompt: 0, gen: 0}]}]",
		"one of prompt":     "scenarios: [{prompts: [{prompt: 1, file: a}]}]",
		"no such file":      "scenarios: [{prompts: [{file: none}]}]",
		"line 1: no prompt": "scenarios: [{prompts: [{jsonl: empty.jsonl}]}]",
		"is not a duration": "cooldown: 3\nscenarios: [{prompts: [{gen: 1}]}]",
		"not valid YAML, such as a tag without a value": "scenarios: !!seq\n",
		"s.yaml:2:14: unknown field":                    "seed: 1\nscenarios: [{prompt: 1}]",

		"records nothing":  "scenarios: [{prompts: [{gen: 1}], tap: [{name: a, codec: lz4}]}]",
		"unknown flag":     "scenarios: [{prompts: [{gen: 1}], tap: [{tensr: a}]}]",
		"has no place":     "scenarios: [{prompts: [{gen: 1}], tap: [{out: a}]}]",
		"are called":       "scenarios: [{prompts: [{gen: 1}], tap: [{name: a}, {name: a}]}]",
		"cache type":       "scenarios: [{prompts: [{gen: 1}], settings: {cache_type_k: f8}}]",
		"flash attention":  "scenarios: [{prompts: [{gen: 1}], settings: {flash_attn: maybe}}]",
		"0 threads":        "scenarios: [{prompts: [{gen: 1}], settings: {threads: 0}}]",
		"repetitions must": "rounds: -1\nscenarios: [{prompts: [{gen: 1}]}]",
	} {
		_, err := scripted(writtenFiles(t, "s.yaml", text, "empty.jsonl", "{}\n"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRowFigures(t *testing.T) {
	var ns []int64
	for i := range int64(100) {
		ns = append(ns, 100-i)
	}
	for share, want := range map[float64]int64{0.5: 50, 0.9: 90, 0.99: 99, 1: 100} {
		if got := quantile(ns, share); got != want {
			t.Errorf("quantile %g is %d, want %d", share, got, want)
		}
	}
	if got := quantile([]int64{7}, 0.5); got != 7 {
		t.Errorf("of one value: %d", got)
	}
}

// TestRowFirst: the median of two times is their mean, as compare has it.
func TestRowFirst(t *testing.T) {
	r := rowOf(&Item{Spec: Spec{Prompt: 1}})
	r.measured([]Visit{{Repetitions: []Repetition{{NS: 9, FirstNS: 8}, {NS: 5, FirstNS: 4}}}})
	if *r.FirstNS != 6 {
		t.Errorf("%d ns", *r.FirstNS)
	}
}

// TestRowRecorded adds up what is known; what no visit reports is absent.
func TestRowRecorded(t *testing.T) {
	r := rowOf(&Item{})
	own := int64(3)
	r.recorded([]Visit{{Recorded: &Recorded{CapturedBytes: 5, Tokens: 2, OwnNS: &own}},
		{Recorded: &Recorded{CapturedBytes: 6, OwnNS: &own}}, {}})
	if *r.Captured != 11 || *r.Recorded != 2 || *r.OwnNS != 6 || r.WaitNS != nil || *r.Lost != 0 || own != 3 {
		t.Errorf("%+v", r)
	}
	plain := rowOf(&Item{})
	if plain.recorded([]Visit{{}}); plain.Captured != nil || plain.Lost != nil || plain.OwnNS != nil {
		t.Errorf("%+v", plain)
	}
}

// TestVisitRecorded: what set-up computed was thrown away, and is in no captured byte.
func TestVisitRecorded(t *testing.T) {
	r := recorded(&rundir.Metadata{
		Streams: []rundir.Stream{{BytesSource: 120}},
		Phases:  map[string]rundir.PhaseUse{"decode": {Graphs: 12, Tokens: 12}, "setup": {Graphs: 1, Tokens: 1}},
	})
	if r.CapturedBytes != 120 || r.Tokens != 12 || r.Executions != 13 {
		t.Errorf("%+v", r)
	}
}

func TestEnvironment(t *testing.T) {
	for output, want := range map[string]string{
		"x\nversion: 0.7.0 (build 11669, commit Debian)\n": "Debian 11669",
		"version: 4321 (abc123)\nbuilt with x":             "abc123 4321",
	} {
		commit, number := parseBuild([]byte(output))
		if commit == nil || *commit+" " != want[:len(*commit)+1] || number == nil ||
			!strings.HasSuffix(want, " "+strconv.Itoa(*number)) {
			t.Errorf("%q: %v, %v", output, commit, number)
		}
	}
	if commit, number := parseBuild([]byte("version: unknown")); commit != nil || number != nil {
		t.Error("a build is read where none is printed")
	}
	if s := spinFor(5 * time.Millisecond); s.NS < 5e6 || s.LostShare < 0 || s.LostShare > 1 ||
		s.Gaps == 0 != (s.LongestNS == 0) {
		t.Errorf("%+v", s)
	}
}

// TestExamples makes a plan of each script in examples/bench.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../examples/bench/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d examples, %v", len(paths), err)
	}
	for _, path := range paths {
		if _, err := scripted(path); err != nil {
			t.Error(err)
		}
	}
}
