package mrm

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write golden files anew")

// whole is a configuration with what has no default.
const whole = "workload:\n  prompts: [Hello]\n"

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	c := parse(t, whole)
	if c.Experiment.Name != "default" || c.Experiment.Repetitions != 3 || len(c.Models) != 1 || c.Models[0].Path != "" {
		t.Errorf("%+v %+v", c.Experiment, c.Models)
	}
	if !reflect.DeepEqual(c.Engine.NCtx, []int64{0}) || !reflect.DeepEqual(c.Engine.KVType, []string{"f16"}) ||
		c.Engine.GPULayers != -1 {
		t.Errorf("%+v", c.Engine)
	}
	if c.Workload.Prompts[0] != (Prompt{ID: "p0", Text: "Hello"}) ||
		!reflect.DeepEqual(c.Workload.MaxTokens, []int64{64}) {
		t.Errorf("%+v", c.Workload)
	}
	if !reflect.DeepEqual(c.Analysis.WindowsS, []float64{0.001, 0.1, 1}) ||
		c.Analysis.Thresholds != (Thresholds{0.8, 10, 0.5, 1}) {
		t.Errorf("%+v", c.Analysis)
	}
	if c.Collector != (Collector{"graph", "none", 0, "rows"}) || c.KV.BlockTokens != 32 ||
		c.Telemetry.BaselineS != 2 || c.Output != (Output{"results", "zstd"}) {
		t.Errorf("%+v %+v %+v %+v", c.Collector, c.KV, c.Telemetry, c.Output)
	}
}

// TestForms reads what may be written in more than one way.
func TestForms(t *testing.T) {
	c := parse(t, `
experiment: {name: 7, seed: 5, repetitions: 1}
model:
  - a.gguf
  - {id: second, path: /b.gguf}
engine: {n_ctx: [512, 1024], kv_type: [f16, q8_0/f16]}
workload:
  prompts:
    - plain text
    - id: block
      text: |
        two
        lines
    - {length: 128}
    - 42
`)
	if c.Experiment.Name != "7" || c.Models[0].Path != "a.gguf" || c.Models[1].ID != "second" ||
		c.resolvePath(c.Models[0].Path) != "a.gguf" {
		t.Errorf("%+v %+v", c.Experiment, c.Models)
	}
	if !reflect.DeepEqual(c.Engine.NCtx, []int64{512, 1024}) ||
		!reflect.DeepEqual(c.Engine.KVType, []string{"f16", "q8_0/f16"}) {
		t.Errorf("%+v", c.Engine)
	}
	want := []Prompt{{"p0", "plain text", "", 0}, {"block", "two\nlines\n", "", 0}, {"p2", "", "", 128},
		{"p3", "42", "", 0}}
	if !reflect.DeepEqual(c.Workload.Prompts, want) {
		t.Errorf("%+v", c.Workload.Prompts)
	}
	c = parse(t, "model: {path: m.gguf}\nengine: {n_ctx: 256, kv_type: q4_0}\nworkload: {prompts: Hi}\n")
	if len(c.Models) != 1 || c.Models[0].Path != "m.gguf" || c.Engine.NCtx[0] != 256 ||
		c.Workload.Prompts[0].Text != "Hi" {
		t.Errorf("%+v", c)
	}
}

// names reports whether an error names the facts, which are separated by " | ", in their order.
func names(err error, facts string) bool {
	rest := err.Error()
	for _, fact := range strings.Split(facts, " | ") {
		_, after, found := strings.Cut(rest, fact)
		if !found {
			return false
		}
		rest = after
	}
	return true
}

// TestProblems: errors name the file, line and column, what is wrong there and what to write instead.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f.yaml | empty"},
		{"no mapping", "- a\n", "f.yaml:1:1 | mapping"},
		{"syntax", "a: [1\n", "f.yaml:1:4 | YAML"},
		{"UTF-8", "workload:\n  prompts: [\"\xff\"]\n", "f.yaml:2:14 | UTF-8"},
		{"two documents", whole + "---\na: b\n", "f.yaml:3:1 | document"},
		{"no workload", "kv: {block_tokens: 1}\n", "workload | missing"},
		{"no prompts", "workload:\n  max_tokens: 3\n", "workload.prompts | missing | prompts"},
		{"unknown section", whole + "engin: {}\n", `f.yaml:3:1 | unknown | "engin" | engine`},
		{"unknown key", whole + "engine:\n  nctx: 5\n", `f.yaml:4:3 | unknown | "nctx" | engine | n_ctx`},
		{"unknown far key", whole + "kv:\n  zzzzzzzzzzz: 5\n", `f.yaml:4:3 | unknown | "zzzzzzzzzzz" | block_tokens`},
		{"twice", whole + "kv:\n  block_tokens: 5\n  block_tokens: 6\n", "f.yaml:5:3"},
		{"no number", whole + "kv: {block_tokens: many}\n", `f.yaml:3:20 | kv.block_tokens | "many" | 1048576`},
		{"no whole number", whole + "kv: {block_tokens: 1.5}\n", `f.yaml:3:20 | kv.block_tokens | "1.5"`},
		{"too small", whole + "engine:\n  n_ctx: [512, -4]\n", `f.yaml:4:16 | engine.n_ctx[1] | "-4" | 16777216`},
		{"enum", whole + "collector: {primary: grph}\n", `f.yaml:3:22 | collector.primary | "grph" | graph`},
		{"pair", whole + "engine: {kv_type: f16/q9_0}\n", `f.yaml:3:19 | engine.kv_type[0] | "f16/q9_0" | q8_0`},
		{"pattern", whole + "experiment: {name: a/b}\n", `f.yaml:3:20 | experiment.name | "a/b"`},
		{"float", whole + "telemetry: {baseline_s: .nan}\n", `telemetry.baseline_s | ".nan" | 0.1 | 3600`},
		{"too short", whole + "analysis: {windows_s: [0]}\n",
			`f.yaml:3:24 | analysis.windows_s[0] | "0" | 0.000001 | 86400`},
		{"null", whole + "kv:\n  block_tokens:\n", "kv.block_tokens | no value"},
		{"null section", whole + "kv:\n", "kv | empty"},
		{"mapping for a value", whole + "kv: {block_tokens: {a: 1}}\n", "kv.block_tokens"},
		{"list in a list", whole + "engine: {n_ctx: [[1]]}\n", "f.yaml:3:18 | engine.n_ctx[0] | list in a list"},
		{"empty list", "workload: {prompts: []}\n", "f.yaml:1:21 | workload.prompts | empty"},
		{"empty list of numbers", whole + "  max_tokens: []\n  concurrency: []\n",
			"f.yaml:3:15 | workload.max_tokens | empty"},
		{"alias", whole + "engine: {n_batch: &a 5}\n", "engine.n_batch | alias"},
		{"merge", whole + "x: &x {block_tokens: 1}\nkv:\n  <<: *x\n", "merge"},
		{"value twice", whole + "engine: {n_ctx: [512, 512]}\n",
			"f.yaml:3:23 | engine.n_ctx | 512 | twice | experiment.repetitions"},
		{"model twice", whole + "model: [a.gguf, a.gguf]\n", `f.yaml:3:17 | model | "a.gguf" | twice`},
		{"prompt ids", "workload: {prompts: [{id: a, text: x}, {id: a, text: y}]}\n", "prompts | id a"},
		{"prompt of nothing", "workload: {prompts: [{id: a}]}\n", "prompt a | 0 | text | file | length"},
		{"prompt of two", "workload: {prompts: [{text: a, length: 3}]}\n", "prompt p0 | 2 | text | file | length"},
		{"context", whole + "engine: {n_ctx: 32}\n", "n_ctx | 32 | prompt | 64"},
		{"batches", whole + "engine: {n_batch: 64}\n", "n_ubatch | 512 | n_batch | 64 | graph"},
		{"ledger off", whole + "collector: {graph_trace: off}\n", "graph_trace | rows | windows"},
		{"fallback", whole + "collector: {primary: perf, fallback: perf}\n", `collector.fallback | "perf"`},
		{"period", whole + "collector: {period: 100}\n", "period | perf | graph"},
		{"fallback of the ledger", whole + "collector: {fallback: fault}\n", "fallback | perf | graph"},
		{"thresholds", whole + "analysis: {thresholds: {medium_write_once: 0.9}}\n",
			"medium_write_once | 0.9 | high_write_once | 0.8"},
		{"sha256 alone", whole + "model: {sha256: " + strings.Repeat("a", 64) + "}\n", "sha256"},
		{"seeds", "experiment: {seed: 4294900000, repetitions: 10000}\nengine: {n_ctx: 0}\nworkload: {prompts: a, " +
			"concurrency: 256}\n", "f.yaml:1:14 | seeds | 4297460000 | seed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(c.text))
			var problems *Problems
			if !errors.As(err, &problems) || !names(err, c.want) {
				t.Fatalf("%v\nmust name %s, in this order", err, c.want)
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f.yaml:") || !strings.Contains(line, "; ") {
					t.Errorf("%q is no file, cause and remedy", line)
				}
			}
		})
	}
}

// TestAllProblemsAtOnce reports everything that is wrong, in the order of lines.
func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse("f.yaml", []byte("kv: {block_tokens: 0}\nengine: {threads: x}\nworkload: {prompts: [a], "+
		"max_tokens: 0}\nnone: 1\n"))
	var problems *Problems
	if !errors.As(err, &problems) || len(problems.All) != 4 {
		t.Fatalf("%v", err)
	}
	for i, p := range problems.All {
		if p.Line != i+1 || p.Column < 1 {
			t.Errorf("problem %d is at %d:%d", i, p.Line, p.Column)
		}
	}
}

func TestLoad(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "no.yaml")); err == nil ||
		!strings.Contains(err.Error(), "--config") {
		t.Errorf("%v", err)
	}
	large := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(large, make([]byte, largestFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || !strings.Contains(err.Error(), "at most 1 MiB") {
		t.Errorf("%v", err)
	}
}

// golden compares with a file of the repository, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("..", filepath.FromSlash(name))
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s is not what the code says (%v); go test ./mrm -update writes it anew", name, err)
	}
}

// TestSchemaAndReference: what is committed is what the struct says, and the reference is a configuration.
func TestSchemaAndReference(t *testing.T) {
	golden(t, "docs/mrm.schema.json", Schema())
	golden(t, DefaultFile, Reference())
	manual, err := os.ReadFile("../docs/MRM.md")
	const head = "| key | default | meaning |\n|---|---|---|\n"
	before, rest, ok := strings.Cut(string(manual), head)
	_, after, ended := strings.Cut(rest, "\n\n")
	if err != nil || !ok || !ended {
		t.Fatalf("docs/MRM.md has no table of keys that ends in an empty line (%v)", err)
	}
	golden(t, "docs/MRM.md", []byte(before+head+keyRows(reflect.TypeFor[Config](), "")+"\n"+after))
	c, err := Parse(DefaultFile, Reference())
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, "model: {id: gopher-6m}\nworkload: {prompts: [\"func main() {\"]}\n")
	c.file, c.sha256, c.places, want.file, want.sha256, want.places = "", "", nil, "", "", nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("the reference differs from the defaults:\n%+v\n%+v", c, want)
	}
}

// keyRows are the rows of a table of all keys below a path, in Markdown.
func keyRows(t reflect.Type, path string) (rows string) {
	keys, byKey := fields(t)
	for _, key := range keys {
		f := byKey[key]
		kind, below := f.Type, join(path, key)
		if kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct {
			rows += keyRows(kind, below)
			continue
		}
		def := f.Tag.Get("default")
		if def != "" {
			def = "`" + strings.ReplaceAll(def, ",", ", ") + "`"
		}
		rows += fmt.Sprintf("| `%s` | %s | %s%s |\n", below, def, f.Tag.Get("doc"), allowed(f.Tag))
	}
	return rows
}

// FuzzParse: no text panics, every error has a place and a remedy, and what is accepted has a matrix of the size
// that it says.
func FuzzParse(f *testing.F) {
	f.Add(string(Reference()))
	f.Add(whole)
	f.Add("a: &a [*a]\n")
	f.Add(foreign)
	f.Add("model: {path: x}\nengine: {n_ctx: [1, 2]}\nworkload: {prompts: [{length: 4}]}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f.yaml", []byte(text))
		if err == nil {
			if len(c.Workload.Prompts) == 0 || len(c.Models) == 0 || len(c.Engine.NCtx) == 0 ||
				c.Experiment.Repetitions < 1 {
				t.Errorf("accepted without a matrix: %+v", c)
			}
			return
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if !strings.HasPrefix(line, "f.yaml:") || !strings.Contains(line, "; ") {
				t.Errorf("%q is no place, cause and remedy", line)
			}
		}
	})
}
