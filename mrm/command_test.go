package mrm

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// foreign is an experiment whose engine is a program.
const foreign = "engine:\n  type: command\n  command: [/bin/sh, -c, 'echo \"$1\"', sh, \"{prompt}\"]\nworkload:\n  " +
	"prompts: [Hello]\n"

// TestCommandDefaults: what a program is collected with where the file says nothing.
func TestCommandDefaults(t *testing.T) {
	c := parse(t, foreign)
	if c.Collector != (Collector{"perf", "fault", 0, "off"}) {
		t.Errorf("%+v", c.Collector)
	}
	if c = parse(t, foreign+"collector: {primary: page}\n"); c.Collector != (Collector{"page", "none", 0, "off"}) {
		t.Errorf("%+v", c.Collector)
	}
	if c = parse(t, foreign+"collector: {primary: perf}\n"); c.Collector != (Collector{"perf", "none", 0, "off"}) {
		t.Errorf("%+v", c.Collector)
	}
}

// TestCommandProblems: errors name the line and column, what is wrong there and what to write instead.
func TestCommandProblems(t *testing.T) {
	for _, c := range []struct{ name, change, want string }{
		{"none", "  command: [/bin/sh, -c, 'echo \"$1\"', sh, \"{prompt}\"]\n->",
			"f.yaml:2:3 | engine.type | engine.command"},
		{"of llama.cpp", "type: command->type: llama.cpp", "f.yaml:3:3 | engine.command | engine.type | llama.cpp"},
		{"unknown", "{prompt}->{promt}", "f.yaml:3:43 | placeholder | {promt} | prompt"},
		{"program", "/bin/sh,->\"{model}\",", `f.yaml:3:13 | "{model}"`},
		{"one word", "[/bin/sh, -c, 'echo \"$1\"', sh, \"{prompt}\"]->sort file", `f.yaml:3:12 | "sort file"`},
		{"not passed on", "workload:->  threads: 4\nworkload:", "f.yaml:4:3 | engine.threads | {threads}"},
		{"same cells", "workload:->  kv_type: [f16, q8_0]\nworkload:",
			"engine.kv_type | {kv_type} | {kv_type_k} | {kv_type_v}"},
		{"same prompts", "\"{prompt}\"->x", ""},
		{"several prompts", "\"{prompt}\"]\nworkload:\n  prompts: [Hello]->x]\nworkload:\n  prompts: [a, b]",
			"workload.prompts | {prompt} | {prompt_file}"},
		{"max_tokens", "prompts: [Hello]->prompts: [Hello]\n  max_tokens: 3",
			"f.yaml:6:3 | workload.max_tokens | {max_tokens}"},
		{"model", "workload:->model: {path: x.gguf}\nworkload:", "model | {model} | {model_id}"},
		{"model's name", "workload:->model: {id: server}\nworkload:", ""},
		{"tokens", "[Hello]->[{length: 5}]", "f.yaml:5:14 | prompt"},
		{"cache", "workload:->kv: {block_tokens: 4}\nworkload:", "f.yaml:4:1 | llama.cpp | engine"},
		{"graph", "workload:->collector: {primary: graph}\nworkload:",
			"f.yaml:4:13 | collector.primary | graph | perf"},
		{"none collected", "workload:->collector: {primary: none}\nworkload:", "collector.primary"},
		{"ledger", "workload:->collector: {primary: fault, graph_trace: rows}\nworkload:",
			"f.yaml:4:29 | ledger | llama.cpp | engine"},
		{"double braces", "{prompt}->{prompt} {{promt}} {'json': {'a': 1}}", ""},
		{"not there", "/bin/sh,->./nothing,", "f.yaml:3:13"},
		{"not in PATH", "/bin/sh,->no-such-program,", "f.yaml:3:13 | no-such-program | PATH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to, _ := strings.Cut(c.change, "->")
			text := strings.Replace(foreign, from, to, 1)
			if text == foreign {
				t.Fatal("the change is none")
			}
			config, err := Parse("f.yaml", []byte(text))
			if err == nil {
				config.Output.Dir = t.TempDir()
				_, err = NewPlan(config, Machine{})
			}
			var problems *Problems
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%v", err)
			case c.want != "" && (!errors.As(err, &problems) || len(problems.All) != 1 ||
				!names(err, c.want)):
				t.Errorf("%v\nmust name %s, in this order", err, c.want)
			}
		})
	}
}

// TestCommandWords puts every placeholder into its place, once: what a prompt says is no placeholder.
func TestCommandWords(t *testing.T) {
	folder := t.TempDir()
	model := filepath.Join(folder, "weights")
	if err := os.Mkdir(model, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(model, "a.safetensors"), make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	p := planned(t, `
experiment: {seed: 9, repetitions: 2}
model: {id: mine, path: `+model+`}
engine:
  type: command
  command: [sh, "{model}", "{model_id}", "-p={prompt}", "{prompt_file}", "{max_tokens}/{concurrency}",
    "{n_ctx},{n_batch},{n_ubatch}", "{threads}", "{gpu_layers}", "{kv_type} {kv_type_k} {kv_type_v}",
    "{seed}{repetition}", "{{seed}} {\"a\": {\"b\": {}}}"]
  n_ctx: [128, 256]
  kv_type: f16/q8_0
  threads: 3
workload: {prompts: ["say {n_ctx}"], max_tokens: 7, concurrency: 2}
`)
	if len(p.Cells) != 4 || p.Cells[3].Name() != "mine/p0/c256/f16+q8_0/r1" {
		t.Fatalf("%d cells, the last is %s", len(p.Cells), p.Cells[len(p.Cells)-1].Name())
	}
	got := argv(p.Config, p.Cells[3], "/x/prompt.txt")
	want := []string{p.Sources[0].Program, model, "mine", "-p=say {n_ctx}", "/x/prompt.txt", "7/2", "256,2048,512",
		"3", "-1", "f16/q8_0 f16 q8_0", "111", `{seed} {"a": {"b": {}}}`}
	if !reflect.DeepEqual(got, want) || !filepath.IsAbs(got[0]) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if n := p.Needs[0]; n.Weights.Value != 5000 || n.Weights.Tag != Computed || n.Memory.Tag != Unknown ||
		n.Time.Tag != Unknown {
		t.Errorf("%+v", n)
	}
}

// TestCommandCell: a cell has what its program is passed, and is another one with another program or model.
func TestCommandCell(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("program", "#!/bin/sh\n")
	write("model.bin", "weights")
	key := func() string {
		t.Helper()
		c, err := Parse(filepath.Join(folder, "e.yaml"),
			[]byte("model: {path: model.bin}\nengine: {type: command, command: [./program, \"{model}\"]}\nworkload: "+
				"{prompts: a}\n"))
		if err != nil {
			t.Fatal(err)
		}
		c.Output.Dir = folder
		p, err := NewPlan(c, Machine{})
		if err != nil {
			t.Fatal(err)
		}
		cell := p.Cells[0]
		if cell.Name() != "model.bin/p0/r0" || cell.KVType != "" || cell.MaxTokens != 0 ||
			cell.Source.Program != filepath.Join(folder, "program") {
			t.Errorf("%s: %+v", cell.Name(), cell.Cell)
		}
		return cell.Key
	}
	first := key()
	if key() != first {
		t.Error("the same is another cell")
	}
	write("program", "#!/bin/sh\n:\n")
	second := key()
	if write("model.bin", "other weights"); second == first || key() == second {
		t.Error("another program, or another model, is the same cell")
	}
}

// TestCommandPlan: what is not known of a program is said so, and stands in no job and no JSON as a number.
func TestCommandPlan(t *testing.T) {
	p := planned(t, foreign)
	p.Machine.FreeMemory, p.Machine.FreeDisk = 1, 1
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"program     sh: /bin/sh -c echo",
		"memory      not known: nothing is known of the program before its first run, for sh/p0/r0",
		"time        not known: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if row := regexp.MustCompile(`(?m)^sh +p0( +-){5} +[0-9]`); !row.MatchString(b.String()) {
		t.Errorf("keys that the program does not have are no dashes in\n%s", b.String())
	}
	text, err := json.Marshal(p.Summary())
	if err != nil || !strings.Contains(string(text), `"time_s":{"tag":"unknown","from":"nothing is known`) ||
		strings.Contains(string(text), `"value"`) {
		t.Errorf("%v: %s", err, text)
	}
	b.Reset()
	if err := p.WriteSlurm(&b, Target{Dir: "/s", Config: "e.yaml"}); err != nil ||
		!strings.Contains(b.String(), "--mem=0M\n") || strings.Contains(b.String(), "--time") {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	if err := p.WriteK8s(&b, Target{Dir: "/s", Config: "e.yaml", Image: "i", Claim: "c"}); err != nil ||
		strings.Contains(b.String(), "Mi") || strings.Contains(b.String(), "Deadline") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestLongPrompt: a prompt that no word can hold is reported with its place.
func TestLongPrompt(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "long.txt"), bytes.Repeat([]byte("word "), longestWord/4),
		0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(foreign, "[Hello]", "[{file: long.txt}]", 1)
	plan := func(text string) error {
		c, err := Parse(filepath.Join(folder, "e.yaml"), []byte(text))
		if err != nil {
			return err
		}
		c.Output.Dir = folder
		_, err = NewPlan(c, Machine{})
		return err
	}
	if err := plan(text); err == nil || !strings.Contains(err.Error(),
		"e.yaml:5:13: the prompt p0 has 153600 bytes, more than a word of a command can have; pass it as a file: "+
			"{prompt_file}") {
		t.Errorf("%v", err)
	}
	if err := plan(strings.Replace(text, "{prompt}", "{prompt_file}", 1)); err != nil {
		t.Errorf("as a file: %v", err)
	}
}
