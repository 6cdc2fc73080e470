//go:build linux

package oracle

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// recompute holds every figure of a run's resource summary against what DuckDB computes from the events by queries of its own.
func recompute(t *testing.T, dir string) {
	t.Helper()
	python := testenv.NeedPython(t, "duckdb")
	said := llamatap(t, "resource", "summary", dir, "-o", "json").good(t).stdout
	cmd := exec.Command(python, filepath.Join("testdata", "resource_summary.py"), filepath.Join(dir, "resource.jsonl"))
	cmd.Stdin = strings.NewReader(said)
	if differs, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", dir, err, differs)
	}
}

// TestSummaryRecomputed: runs at every level, with a shifted context, and with experts.
func TestSummaryRecomputed(t *testing.T) {
	moe := synthetic(t, "qwen3moe", gguf.Q8_0, nil)
	for name, args := range map[string][]string{
		"minimal":  slices.Concat([]string{"--tap-resource-level", "MINIMAL"}, generate(12)),
		"detailed": slices.Concat([]string{"--tap-resource-level", "DETAILED"}, generate(12)),
		"shifted":  slices.Concat([]string{"--tap-resource-level", "VERBOSE", "--tap-kv", "-c", "256", "--context-shift"}, generate(300)),
		"experts":  slices.Concat([]string{"--tap-resource-level", "VERBOSE", "-m", moe, "-c", "256"}, generate(8)),
	} {
		t.Run(name, func(t *testing.T) {
			recompute(t, llamatap(t, slices.Concat([]string{"run"}, args)...).good(t).dirs[0])
		})
	}
}
