package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReadsToo: a file that a command reads, or that a run holds, is not replaced by what the command writes.
func TestReadsToo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"m.gguf", "v.gguf", "old.json", "run/metadata.json", "run/a.stream", "sae/cfg.json"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for args, refused := range map[string]bool{
		"causal -m m.gguf -o m.gguf":              true,
		"causal -m=m.gguf -o ./m.gguf":            true,
		"causal --vector v.gguf:0.5 -o v.gguf":    true,
		"causal -o " + dir + "/m.gguf -m m.gguf":  true,
		"cat run -o run/a.stream":                 true,
		"cat -o run/a.stream":                     true,
		"sae eval sae -o sae/cfg.json":            true,
		"causal -m m.gguf -o old.json":            false,
		"causal -m m.gguf -o new.json":            false,
		"cat run --format npy -o run/another.npy": false,
	} {
		words := strings.Fields(args)
		out := words[slices.Index(words, "-o")+1]
		if err := readsToo(out, "-o", words); (err != nil) != refused {
			t.Errorf("%s: %v", args, err)
		}
	}
}
