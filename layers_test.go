// Package llamatap_test enforces the layers of docs/ARCHITECTURE.md.
package llamatap_test

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/llamatap/llamatap"

// layers is the design's table: a package imports only packages of lower layers. A name that ends in /* stands for
// every folder below it that has no line of its own. Changing it is a design change.
var layers = map[string]int{
	"cmd/*": 6, // programs
	// experiments
	"mrm": 5, "mrm/*": 5, "bench": 5, "bench/*": 5, "intervene": 5, "oracle": 5, "oracle/*": 5,
	"runner": 4, "runner/*": 4, // starts and stops
	"inspect/report": 4, // joins what the other packages of inspect read
	"config":         3, "collect": 3, "inspect/*": 3,
	"runner/session/control": 3,                                              // a run's socket: both ends
	"inspect/tensors":        2, "inspect/memory": 2, "inspect/resources": 2, // read what one recorder wrote
	"inspect/otlp": 2,                                                   // sends requests on
	"ggmlhooks/*":  2, "resource/*": 2, "memtrace/*": 2, "kvcache/*": 2, // sensors
	"memtrace/sample/*": 1, "resource/bpf": 1, "gguf/*": 1, "cgo/llama": 1, "store/stream": 1,
	"ggmlhooks": 0, "resource": 0, "memtrace": 0, "kvcache": 0, "gguf": 0, // words
	"store/*": 0, "cgo/*": 0, "inspect/sheet": 0, "third_party/*": 0, // files, C, drawing
	".":            -2,                    // the embedded model
	"store/rundir": -1, "store/label": -1, // how files are opened, and their labels
	"internal/machine": -1, // limits of the machine
	"internal/present": 0,  // what commands print
	"internal/*":       -2, // flags, files that a user names

	"internal/testenv": 1, "internal/testenv/*": 2, // for tests only
}

// words import the standard library and store/label, and nothing else.
var words = []string{"ggmlhooks", "resource", "memtrace", "kvcache", "gguf", ".", "store/label"}

// closedToInspect are the folders that inspect never reaches, not even through others, so that it
// builds anywhere without cgo.
var closedToInspect = []string{"cgo", "ggmlhooks/*", "resource/*", "memtrace/*", "kvcache/*", "collect", "runner"}

// A source is one Go file: the folder it lies in, its name and what it imports.
type source struct {
	dir, name string
	imports   []string
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// inside returns the folder of an import path within this module.
func inside(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// entry returns the line of the layer table that a folder belongs to.
func entry(dir string) (layer int, ok bool) {
	if layer, ok = layers[dir]; ok {
		return layer, true
	}
	for up := path.Dir(dir); up != "."; up = path.Dir(up) {
		if layer, ok = layers[up+"/*"]; ok {
			return layer, true
		}
	}
	return 0, false
}

// within reports whether dir is one of the folders that pattern names.
func within(dir, pattern string) bool {
	if below, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(dir, below+"/")
	}
	return dir == pattern || strings.HasPrefix(dir, pattern+"/")
}

// violations lists what is wrong with one file's imports.
func violations(s source) []string {
	layer, ok := entry(s.dir)
	if !ok {
		return []string{fmt.Sprintf("folder %s has no layer", s.dir)}
	}
	var wrong []string
	for _, imported := range s.imports {
		if complaint := complain(s, layer, imported); complaint != "" {
			wrong = append(wrong, complaint)
		}
	}
	return wrong
}

// complain judges one import of a file; "" is no complaint. What tests import is their own affair.
func complain(s source, layer int, imported string) string {
	if imported == "C" {
		if !within(s.dir, "cgo") {
			return `import "C" stands only under cgo/`
		}
		return ""
	}
	if s.test() {
		return ""
	}
	target, ours := inside(imported)
	if slices.Contains(words, s.dir) && target != "store/label" &&
		(ours || strings.Contains(strings.Split(imported, "/")[0], ".")) {
		return fmt.Sprintf("%s holds words and imports only the standard library, not %s", s.dir, imported)
	}
	if !ours {
		return ""
	}
	if within(target, "internal/testenv") && !within(s.dir, "internal/testenv") {
		return "internal/testenv is for tests"
	}
	if below, ok := entry(target); !ok || below >= layer {
		return fmt.Sprintf("%s (layer %d) imports %s (layer %d): imports go down", s.dir, layer, target, below)
	}
	return ""
}

// reach returns the folders that dir imports, directly or through others.
func reach(direct map[string][]string, dir string) map[string]bool {
	seen := map[string]bool{}
	var walk func(string)
	walk = func(from string) {
		for _, to := range direct[from] {
			if !seen[to] {
				seen[to] = true
				walk(to)
			}
		}
	}
	walk(dir)
	return seen
}

// inspectReaches lists which closed folders an inspect package reaches.
func inspectReaches(sources []source) []string {
	direct := map[string][]string{}
	for _, s := range sources {
		for _, imported := range s.imports {
			if target, ok := inside(imported); ok && !s.test() {
				direct[s.dir] = append(direct[s.dir], target)
			}
		}
	}
	var wrong []string
	for dir := range direct {
		if !within(dir, "inspect") {
			continue
		}
		for _, target := range slices.Sorted(maps.Keys(reach(direct, dir))) {
			if slices.ContainsFunc(closedToInspect, func(closed string) bool { return within(target, closed) }) {
				wrong = append(wrong, fmt.Sprintf("%s reaches %s", dir, target))
			}
		}
	}
	return wrong
}

// sources parses every Go file of the module, whatever its build tags.
func sources(t *testing.T) []source {
	var all []source
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && ignored(name):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			all = append(all, parse(t, name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ignored reports whether a folder holds no code of the module.
func ignored(dir string) bool {
	base := filepath.Base(dir)
	return dir == "build" || base == "testdata" || dir != "." && strings.HasPrefix(base, ".") ||
		within(filepath.ToSlash(dir), "third_party/llama.cpp/dist")
}

func parse(t *testing.T, name string) source {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	s := source{dir: filepath.ToSlash(filepath.Dir(name)), name: filepath.Base(name)}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		s.imports = append(s.imports, imported)
	}
	return s
}

func TestLayers(t *testing.T) {
	all := sources(t)
	for _, s := range all {
		for _, wrong := range violations(s) {
			t.Errorf("%s: %s", path.Join(s.dir, s.name), wrong)
		}
	}
	for _, wrong := range inspectReaches(all) {
		t.Error(wrong)
	}
}

// TestLayerRules shows that each rule finds what it is for.
func TestLayerRules(t *testing.T) {
	for name, c := range map[string]struct {
		file source
		want string // part of the complaint, empty for none
	}{
		"down": {source{"runner", "a.go", []string{module + "/config", "fmt"}}, ""},
		"up":   {source{"config", "a.go", []string{module + "/runner"}}, "imports go down"},
		"across": {source{"memtrace/ledger", "a.go", []string{module + "/kvcache/track"}},
			"imports go down"},
		"sensor on word": {source{"memtrace/ledger", "a.go", []string{module + "/memtrace"}}, ""},
		"cgo elsewhere":  {source{"runner", "a_test.go", []string{"C"}}, "only under cgo/"},
		"cgo in place":   {source{"cgo/llama", "a.go", []string{"C", "unsafe"}}, ""},
		"word on word":   {source{"kvcache", "a.go", []string{module + "/gguf"}}, "holds words"},
		"word on others": {source{"gguf", "a.go", []string{"golang.org/x/sys/unix"}}, "holds words"},
		"paper":          {source{"store/codec", "a.go", []string{"github.com/pierrec/lz4/v4"}}, ""},
		"testenv":        {source{"runner", "a.go", []string{module + "/internal/testenv"}}, "for tests"},
		"testenv tested": {source{"runner", "a_test.go", []string{module + "/internal/testenv"}}, ""},
		"new folder":     {source{"utils", "a.go", nil}, "has no layer"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(violations(c.file), "; ")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestInspectReach(t *testing.T) {
	chain := []source{
		{"inspect/host", "a.go", []string{module + "/inspect/tensors"}},
		{"inspect/tensors", "a.go", []string{module + "/store/stream"}},
		{"store/stream", "a.go", []string{module + "/cgo/tap"}},
	}
	got := inspectReaches(chain)
	slices.Sort(got)
	if want := []string{"inspect/host reaches cgo/tap", "inspect/tensors reaches cgo/tap"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	chain[2].imports = nil
	if got := inspectReaches(chain); got != nil {
		t.Errorf("got %q, want none", got)
	}
}

// TestSelf: a program of the archive runs under the loader that it brings. os.Executable names that one, and llama.Self
// what starts the program again.
func TestSelf(t *testing.T) {
	for _, s := range sources(t) {
		name := path.Join(s.dir, s.name)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !s.test() && name != "cgo/llama/home.go" && bytes.Contains(text, []byte("os.Executable")) {
			t.Errorf("%s asks os.Executable: use llama.Self", name)
		}
	}
}
