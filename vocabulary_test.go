package llamatap_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// second finds names that docs/GLOSSARY.md has another one for: columns of tables, fields of NumPy exports, keys of
// JSON and headings.
var second = regexp.MustCompile(
	`(?:Name: |\('|json:|", )"?` +
		`(seq|seqs|sequence|sequence_id|layer_index|evicted|mrm_trace_schema_version|timestamp_ns)["',]`)

// fixed are files whose names a format that existed before has fixed, or that read what llamatap 1.0 wrote.
var fixed = []string{"store/rundir/tokens.go", "inspect/tensors/tokens.go", "inspect/export/prompts.go",
	"inspect/memory/experiment.go", "inspect/export/mrmtrace"}

// outside finds names that only documents outside of the repository explain.
var outside = regexp.MustCompile(`COMPAT [A-Z]-\d|\b[Ss]ystem [AB]\b`)

// TestOneNameForEachConcept looks for second names of what tables and JSON files hold.
func TestOneNameForEachConcept(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "third_party" || name == "build" || strings.HasPrefix(name, ".") &&
			name != ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, prefix := range fixed {
			if strings.HasPrefix(filepath.ToSlash(path), prefix) {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		if found := outside.Find(text); found != nil {
			t.Errorf("%s: %s: name the project", path, found)
		}
		for _, found := range second.FindAllStringSubmatch(string(text), -1) {
			t.Errorf("%s: %s: docs/GLOSSARY.md has another name for it", path, found[1])
		}
		return nil
	})
	if err != nil || looked < 500 {
		t.Errorf("%d files: %v", looked, err)
	}
}
