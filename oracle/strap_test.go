//go:build linux

package oracle

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestStrapReads exports a run with a prompt of several tokens, and lets STRAP-LLM's own package read it: its
// analysis shares packets evenly among tokens, and every packet must get the token that it is of. Its correlations of
// layers must be those of llamatap analyze.
func TestStrapReads(t *testing.T) {
	python := testenv.NeedPython(t, "pandas", "numpy", "lz4.frame", "zstandard",
		"importlib.metadata as m; m.version('llm_instrumentation')")
	out := t.TempDir()
	dir := llamatap(t, slices.Concat([]string{"run", "--tap-preset", "fast_capture"}, generate(6))...).good(t).dirs[0]
	npy := filepath.Join(out, "npy")
	llamatap(t, "export", dir, "--to", "npy", "-o", npy).good(t)
	analysis := filepath.Join(out, "analysis.json")
	llamatap(t, "analyze", dir, "--tensor", "*", "--min-correlation", "0", "--top", "0", "--json", "-o",
		analysis).good(t)
	for _, codec := range testenv.ByDay([]string{"lz4", "none", "zstd"}, 1) {
		stream := filepath.Join(out, codec+".stream")
		llamatap(t, "export", dir, "--to", "strap", "--codec", codec, "-o", stream).good(t)
		text, err := exec.Command(python, "testdata/strap.py", stream, filepath.Join(out, codec+"_tokens.json"), codec,
			npy, analysis).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", codec, err, text)
		}
		t.Logf("%s: packets and pairs compared: %s", codec, text)
	}
}
