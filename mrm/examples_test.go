package mrm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamples: every example is a configuration, and what the one of a 7B model says of its needs is what plan says.
func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../examples/mrm/*.yaml")
	if err != nil || len(paths) != 4 {
		t.Fatalf("%q, %v", paths, err)
	}
	for _, path := range paths {
		if _, err := Load(path); err != nil {
			t.Error(err)
		}
	}
	const path = "../examples/mrm/7b.yaml"
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Output.Dir = t.TempDir()
	c.Models[0].Path = mistral(t)
	p, err := NewPlan(c, Machine{Memory: Bandwidth{20e9, "20.0 GB/s", Measured}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		for _, word := range []string{"memory ", "disk ", "time "} {
			if strings.HasPrefix(line, word) && !strings.Contains(string(text), "#   "+line+"\n") {
				t.Errorf("%s lacks\n#   %s", path, line)
			}
		}
	}
}
