package mrm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// planned is the plan of a configuration on a machine without bounds.
func planned(t *testing.T, text string) *Plan {
	t.Helper()
	c := parse(t, text)
	c.Output.Dir = t.TempDir()
	p, err := NewPlan(c, Machine{Memory: Bandwidth{1e10, "10 GB/s", Measured}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMatrix: every combination once per repetition, repetitions outermost, each with its seed.
func TestMatrix(t *testing.T) {
	p := planned(t, "experiment: {seed: 10, repetitions: 2}\nengine: {n_ctx: [256, 512], kv_type: [f16, "+
		"q8_0]}\nworkload: {prompts: [a, b, {length: 9}], concurrency: 2, max_tokens: 8}\n")
	if len(p.Cells) != 24 {
		t.Fatalf("%d cells", len(p.Cells))
	}
	names, keys := map[string]bool{}, map[string]int{}
	for i, cell := range p.Cells {
		if cell.Index != i || cell.Repetition != i/12 || cell.Seed != uint32(10+2*cell.Repetition) {
			t.Errorf("cell %d: %+v", i, cell.Cell)
		}
		names[cell.Name()] = true
		keys[cell.Key]++
	}
	if len(names) != 24 || len(keys) != 12 {
		t.Errorf("%d names, %d keys", len(names), len(keys))
	}
	if got := p.Cells[0].Name(); got != "gopher-6m-Q8_0/p0/c256/f16/r0" {
		t.Errorf("the first is %s", got)
	}
}

// TestLoads: several numbers of tokens and requests are cells of their own, with the keys that they have alone.
func TestLoads(t *testing.T) {
	const text = "experiment: {repetitions: 1}\nengine: {n_ctx: 256}\nworkload: {prompts: [a], max_tokens: %s, " +
		"concurrency: %s}\n"
	p := planned(t, fmt.Sprintf(text, "[4, 8]", "[1, 2]"))
	var names []string
	for _, cell := range p.Cells {
		names = append(names, cell.Name())
		alone := planned(t, fmt.Sprintf(text, fmt.Sprint(cell.MaxTokens), fmt.Sprint(cell.Concurrency))).Cells[0]
		if alone.Key != cell.Key {
			t.Errorf("%s has another key than alone", cell.Name())
		}
	}
	const name = "gopher-6m-Q8_0/p0/c256/f16"
	if want := []string{name + "/n4/x1/r0", name + "/n4/x2/r0", name + "/n8/x1/r0",
		name + "/n8/x2/r0"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// TestKey: what changes what is run changes the key, what does not does not.
func TestKey(t *testing.T) {
	const text = "experiment: {seed: 10}\nengine: {n_ctx: 256}\nworkload: {prompts: [a]}\n"
	key := func(text string) string { return planned(t, text).Cells[0].Key }
	for change, want := range map[string]bool{ // whether it is another cell
		"": false,
		"experiment: {seed: 10}->experiment: {seed: 10, repetitions: 9}": false,
		"prompts: [a]->prompts: [a, b]":                                  false,
		"prompts: [a]->prompts: [b]":                                     true,
		"seed: 10->seed: 11":                                             true,
		"n_ctx: 256->n_ctx: 512":                                         true,
		"n_ctx: 256->n_ctx: 256, threads: 1":                             true,
		"prompts: [a]->prompts: [a], max_tokens: 5":                      true,
		"workload:->kv: {block_tokens: 1}\nworkload:":                    true,
		"workload:->telemetry: {baseline_s: 3}\nworkload:":               false,
	} {
		from, to, _ := strings.Cut(change, "->")
		if got := key(text) != key(strings.Replace(text, from, to, 1)); got != want {
			t.Errorf("%q: another key is %v, want %v", change, got, want)
		}
	}
}

func TestRandomTokens(t *testing.T) {
	a, b := randomTokens(100, 50), randomTokens(100, 50)
	if !reflect.DeepEqual(a, b) || len(a) != 100 {
		t.Error("not the same twice")
	}
	for _, token := range a {
		if token < 0 || token >= 50 {
			t.Errorf("token %d of 50", token)
		}
	}
}

// TestFiles: prompts and models that are not there, or no such thing, are reported with their line.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad.gguf", "GGUF no")
	write("empty.txt", "")
	write("good.txt", "a prompt")
	for _, c := range []struct{ text, want string }{
		{"model: {path: no.gguf}\nworkload: {prompts: a}\n",
			":1:9: the model " + dir + "/no.gguf: no such file or directory; give the path of a GGUF file"},
		{"model: {path: bad.gguf}\nworkload: {prompts: a}\n", "bad.gguf"},
		{"workload: {prompts: {file: no.txt}}\n",
			"the prompt " + dir + "/no.txt: no such file or directory; give a file of text in UTF-8"},
		{"workload: {prompts: {file: empty.txt}}\n", "is empty, or no UTF-8"},
		{"engine: {n_ctx: 0}\nworkload: {prompts: {length: 1000}}\n",
			"the context of 512 tokens of gopher-6m-Q8_0 is too short for the prompt p0, which takes 1064"},
		{"engine: {kv_type: q8_0}\nmodel: [{id: a}, {id: b, path: " + testenv.Model(t) +
			"}]\nworkload: {prompts: {file: good.txt}}\n", ""},
	} {
		config, err := Parse(filepath.Join(dir, "e.yaml"), []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		config.Output.Dir = dir
		_, err = NewPlan(config, Machine{})
		var problems *Problems
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.want != "" && (!errors.As(err, &problems) || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), config.file+":")):
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}
