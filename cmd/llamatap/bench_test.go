//go:build linux

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

const smallTest = `{"n_prompt":8,"n_gen":2,"n_batch":8,"n_ubatch":8,"n_threads":1,"type_k":"f16","type_v":"f16","flash_attn":"auto","n_gpu_layers":-1,"repetitions":1}`

// TestBenchMeasure runs a measuring process, plain and recorded: both tell a subject and a repetition and nothing else on stdout.
func TestBenchMeasure(t *testing.T) {
	needLlama(t)
	out := t.TempDir()
	for name, args := range map[string][]string{
		"plain":    {"bench", "measure", smallTest},
		"recorded": {"bench", "measure", "--tap-tensors", "l_out*", "--tap-out", out, smallTest},
	} {
		cmd := self(args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, stderr.String())
		}
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"subject":`) || !strings.HasPrefix(lines[1], `{"repetition":`) {
			t.Errorf("%s: %s", name, stdout.String())
		}
		sealed, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "manifest.json"))
		if name == "recorded" && len(sealed) != 1 {
			t.Errorf("sealed runs: %q", sealed)
		}
	}
}

func TestBenchWrongUse(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown benchmark": {"bench", "tab"},
		"usage: ":           {"bench", "measure"},
		"read what to":      {"bench", "measure", "{"},
	} {
		cmd := self(args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := status(t, cmd); got != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, %s", args, got, stderr.String())
		}
	}
}
