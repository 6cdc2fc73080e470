package mrm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// theirs writes configurations by mrm-trace's own model into a folder, and prints the matrix that it makes of each;
// and whether it takes examples of ours.
const theirs = `
import json, sys, yaml
from pathlib import Path
from mrm_trace.config.loader import load_experiment
from mrm_trace.config.schema import *
from mrm_trace.config.validators import expand_sweep, validate_config_semantics

out, model = Path(sys.argv[1]), sys.argv[2]
llama = dict(id="a", engine="llamacpp", path=model)
meta = dict(name="e")
made = {
    "least": ExperimentConfig(experiment=meta, models=[llama]),
    "all": ExperimentConfig(
        experiment=dict(name="A name, with spaces", description="d", authors=["x", "y"], institution="i",
            paper_ref="doi:1", date_created="2026-01-01"),
        models=[llama, dict(id="b/c d", engine="llamacpp", path=model, family="llama", params_billions=0.006,
            quantisation="Q8_0")],
        sweep=dict(context_lengths=[512, 1024], batch_sizes=[1, 4], output_tokens=[8, 64],
            repetitions=2, warmup_runs=1),
        prompts=dict(source="prompts/none.jsonl", categories=["code"]),
        collector=dict(primary="perf_mem", fallback=None, fallback_2=None,
            perf_mem=dict(sample_period=1000, extra_flags=["-v"])),
        labeller=dict(unknown_policy="fail_run"),
        analyser=dict(metrics=["inter_access_interval", "access_locality"]),
        output=dict(base_dir="elsewhere/", compression="snappy", hf_dataset_push=True, hf_repo="a/b")),
    "memray": ExperimentConfig(experiment=meta, models=[llama, dict(id="v", engine="vllm", hf_repo="o/r")],
        collector=dict(primary="memray")),
    "monitor": ExperimentConfig(experiment=meta, models=[llama],
        collector=dict(primary="process_monitor", fallback=None)),
}
texts = {name: yaml.safe_dump(c.model_dump(mode="json"), sort_keys=False) for name, c in made.items()}
texts["sparse"] = yaml.safe_dump(made["all"].model_dump(mode="json", exclude_unset=True))
texts["odd"] = f"""
base: &base {{context_lengths: [0x200, "1024"], repetitions: 2.0}}
experiment: {{name: odd, unknown_key: 3}}
models: [&m {{id: a, engine: llamacpp, path: {model}, dtype: float16}}]
sweep:
  <<: *base
  output_tokens: [1_6]
collector: {{perf_mem: {{sample_period: 2_000}}}}
"""
report = {}
for name, text in texts.items():
    path = out / (name + ".yaml")
    path.write_text(text)
    c = load_experiment(path)
    assert validate_config_semantics(c).is_valid
    report[name] = [[r.model.id, r.context_length, r.batch_size, r.output_tokens, r.rep_index] for r in expand_sweep(c)
                    if not r.is_warmup and r.model.engine.value == "llamacpp"]
for path in sys.argv[3:]:
    c = load_experiment(path)
    report[path] = [[r.model.id, r.context_length, r.batch_size, r.output_tokens, r.rep_index] for r in expand_sweep(c)]
json.dump(report, sys.stdout)
`

// TestTheirFiles: files that mrm-trace's own model writes and accepts have the same matrix here; and it accepts our
// example of such a file.
func TestTheirFiles(t *testing.T) {
	python := testenv.NeedPython(t, "mrm_trace", "yaml")
	t.Chdir("..") // paths in such files start where the program runs
	const example = "examples/mrm/mrm-trace.yaml"
	dir := t.TempDir()
	cmd := exec.Command(python, "-c", theirs, dir, "models/gopher-6m-q8_0.gguf", example)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var report map[string][][]any
	if err := json.Unmarshal(out, &report); err != nil || len(report) != 7 {
		t.Fatalf("%d, %v", len(report), err)
	}
	for name, runs := range report {
		path := filepath.Join(dir, name+".yaml")
		if name == example {
			path = name
		}
		c, err := Load(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := map[string]bool{}
		for _, m := range c.Models {
			for _, ctx := range c.Engine.NCtx {
				for _, tokens := range c.Workload.MaxTokens {
					for _, requests := range c.Workload.Concurrency {
						for r := range c.Experiment.Repetitions {
							got[fmt.Sprintln(m.ID, ctx, requests, tokens, r)] = true
						}
					}
				}
			}
		}
		for _, run := range runs {
			id := strings.NewReplacer("/", "_", " ", "_").Replace(run[0].(string))
			if want := fmt.Sprintln(id, run[1], run[2], run[3], run[4]); !got[want] {
				t.Errorf("%s: no run of %s in %v", name, want, got)
			}
		}
		if len(got) != len(runs) {
			t.Errorf("%s: %d runs, mrm-trace has %d", name, len(got), len(runs))
		}
	}
}

// TestTraceFile: what of a file of mrm-trace has a counterpart is taken over, the rest is named once.
func TestTraceFile(t *testing.T) {
	dir := t.TempDir()
	prompts := filepath.Join(dir, "p.jsonl")
	if err := os.WriteFile(prompts, []byte(`{"id":"x","prompt":"One","category":"code"}
{"text":"Two","category":"prose"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := parse(t, `
experiment: {name: "A name", description: d, authors: []}
models:
  - {id: m, engine: llamacpp, path: m.gguf, dtype: float16}
  - {id: v, engine: vllm, hf_repo: o/r}
sweep: {context_lengths: [512, 512, 1024], batch_sizes: [1], output_tokens: [8], repetitions: 4}
prompts: {source: `+prompts+`, categories: [code]}
collector: {primary: perf_mem, fallback: null, perf_mem: {sample_period: 123, require_root: true}}
telemetry: {capture: true}
labeller: {unknown_policy: fail_run}
output: {base_dir: here}
`)
	full, _ := filepath.Abs("m.gguf")
	if c.Experiment.Name != "A_name" || c.Experiment.Repetitions != 4 || len(c.Models) != 1 ||
		c.Models[0] != (Model{ID: "m", Path: full}) || c.Output.Dir != "here" {
		t.Errorf("%+v %+v %+v", c.Experiment, c.Models, c.Output)
	}
	if !reflect.DeepEqual(c.Engine.NCtx, []int64{512, 1024}) || !reflect.DeepEqual(c.Workload.MaxTokens, []int64{8}) ||
		c.Engine.NBatch != 2048 || c.Telemetry.BaselineS != 2 {
		t.Errorf("%+v %+v", c.Engine, c.Workload)
	}
	if want := []Prompt{{ID: "x", Text: "One"}}; !reflect.DeepEqual(c.Workload.Prompts, want) {
		t.Errorf("%+v", c.Workload.Prompts)
	}
	if c.Collector != (Collector{"perf", "fault", 123, "rows"}) || !c.failsUnknown { // the second fallback is left
		t.Errorf("%+v", c.Collector)
	}
	all := strings.Join(c.Notes(), "\n")
	for _, key := range []string{"experiment.description", "experiment.authors", "models[0].dtype",
		"collector.perf_mem.require_root", "telemetry.capture", "models[1]", `"A name"`} {
		if strings.Count(all, key) != 1 {
			t.Errorf("%s is not named once:\n%s", key, all)
		}
	}
	if strings.Contains(all, "sample_period") || strings.Contains(all, "context_lengths") {
		t.Errorf("a key with a counterpart is named:\n%s", all)
	}
	if own := parse(t, whole); len(own.Notes()) > 0 {
		t.Errorf("notes on a file of our own: %q", own.Notes())
	}
}

// TestTraceProblems: what mrm-trace refuses, and what cannot be run, is a problem at its place.
func TestTraceProblems(t *testing.T) {
	const head, model = "experiment: {name: e}\n", "models: [{id: a, engine: llamacpp, path: x}]\n"
	for text, want := range map[string]string{
		head + "models: []\n": "f.yaml:2:9: models is an empty list",
		model:                 "experiment is missing",
		head + "models: [{id: a, engine: llama, path: x}]\n":   `models[0].engine is "llama"`,
		head + "models: [{id: a, engine: vllm, hf_repo: x}]\n": "every model has the engine vllm",
		head + model + "sweep: {repetitions: 0}\n":             `f.yaml:3:22: sweep.repetitions is "0"`,
		head + model + "sweep: {context_lengths: [64]}\n":      "f.yaml:3:27: n_ctx 64 is too short",
	} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	chain := func(n int) []byte { // aliases of aliases, which share their nodes
		var deep strings.Builder
		deep.WriteString("experiment: {name: e}\nmodels: [{id: a, engine: llamacpp, path: x}]\na0: &a0 [x, x]\n")
		for i := range n {
			fmt.Fprintf(&deep, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
		}
		return []byte(deep.String())
	}
	if c, err := Parse("f.yaml", chain(15)); err != nil ||
		!slices.ContainsFunc(c.Notes(), func(n string) bool { return strings.Contains(n, "a15") }) {
		t.Errorf("%v", err)
	}
	if _, err := Parse("f.yaml", chain(40)); err == nil || !strings.Contains(err.Error(), "80 references") {
		t.Errorf("80 references: %v", err)
	}
}
