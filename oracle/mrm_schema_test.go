//go:build linux

package oracle

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/mrm"
)

// TestJobIsOneOfKubernetes checks the emitted manifest against the schemas that Kubernetes publishes, strictly:
// unknown keys are errors. A manifest with a misspelt key shows that the judge looks.
func TestJobIsOneOfKubernetes(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "kubernetes_validate")
	config, err := mrm.Parse("e.yaml", []byte(
		"engine: {threads: 4}\nworkload: {prompts: [a, b]}\ncollector: {primary: perf}\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := mrm.NewPlan(config, mrm.Machine{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := plan.WriteK8s(&b, mrm.Target{Dir: "/shared", Config: "e.yaml", Image: "i:1", Claim: "c"}); err != nil {
		t.Fatal(err)
	}
	judge := func(text string) (string, error) {
		path := filepath.Join(t.TempDir(), "job.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, "-m", "kubernetes_validate", "--strict", path).CombinedOutput()
		return string(out), err
	}
	if out, err := judge(b.String()); err != nil {
		t.Errorf("%v: %s\n%s", err, out, b.String())
	}
	if out, err := judge(strings.Replace(b.String(), "completionMode", "completionMood", 1)); err == nil {
		t.Errorf("a misspelt key is accepted: %s", out)
	}
}

// TestConfigurationSchema: what the published JSON Schema says of a configuration is what the reader says, judged
// by a validator of others.
func TestConfigurationSchema(t *testing.T) {
	testenv.Slow(t)
	python := testenv.NeedPython(t, "jsonschema")
	good := []string{
		string(mrm.Reference()), "workload: {prompts: a}",
		"workload: {prompts: [a, 7, {id: x, length: 3}]}\nmodel: [m.gguf, {path: n.gguf}]",
		"engine: {n_ctx: [512, 1024], kv_type: [f16, q8_0/f16]}\nworkload: {prompts: {file: x}}\nanalysis: " +
			"{windows_s: 0.5}",
		"engine: {type: command, command: [sh, -c, 'a {prompt}']}\nworkload: {prompts: a}",
		"collector: {graph_trace: \"off\", primary: perf, fallback: fault, period: 5}\nworkload: {prompts: a}\n" +
			"experiment: {name: 7}",
	}
	bad := []string{
		"kv: {block_tokens: 1}", "workload: {max_tokens: 1}", "workload: {prompts: []}",
		"workload: {prompts: a}\nkv: {block: 1}", "workload: {prompts: a}\nkv: {block_tokens: 0}",
		"workload: {prompts: a}\nengine: {type: commando}",
		"workload: {prompts: a}\nengine: {type: command, command: [{a: 1}]}",
		"workload: {prompts: a}\nengine: {n_ctx: [1, x]}", "workload: {prompts: a}\nengine: {kv_type: q9}",
		"workload: {prompts: a}\nexperiment: {name: a/b}",
		"workload: {prompts: a}\nanalysis: {windows_s: [0]}", "workload: {prompts: a}\ntelemetry: {baseline_s: 0}",
		"workload: {prompts: a}\nkv: {block_tokens: 1.5}",
	}
	var documents []any
	for i, text := range append(append([]string(nil), good...), bad...) {
		if _, err := mrm.Parse("e.yaml", []byte(text)); (err == nil) != (i < len(good)) {
			t.Fatalf("the reader says of %q: %v", text, err)
		}
		var document any
		if err := yaml.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, document)
	}
	text, err := json.Marshal(documents)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
judge = jsonschema.Draft202012Validator(schema)
judge.check_schema(schema)
print(json.dumps([judge.is_valid(d) for d in json.load(sys.stdin)]))`, filepath.Join(testenv.Root(t), "docs",
		"mrm.schema.json"))
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(text)), os.Stderr
	out, err := cmd.Output()
	var valid []bool
	if err == nil {
		err = json.Unmarshal(out, &valid)
	}
	if err != nil || len(valid) != len(documents) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, ok := range valid {
		if ok != (i < len(good)) {
			t.Errorf("the schema says %v of %v", ok, documents[i])
		}
	}
}
