package main

import (
	"strings"
	"testing"
)

// TestDemoNext: what the demonstration proposes starts the program that printed it, and needs no file of a clone.
func TestDemoNext(t *testing.T) {
	got := demoNext("/opt/l t/llamatap", "llamatap-runs/m/run_1")
	if strings.Count(got, "\n  '/opt/l t/llamatap' ") != 3 || strings.Contains(got, ".gguf") ||
		strings.Count(got, " llamatap-runs/m/run_1") != 2 {
		t.Error(got)
	}
}
