package resources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKVPicture: each cache has a panel with its name, its largest use and its size; a run without one has no picture.
func TestKVPicture(t *testing.T) {
	if (&KV{}).Picture() != nil {
		t.Error("a picture of nothing")
	}
	k := &KV{Path: "runs/run_1", Seconds: 2, Timeline: []KVCache{
		{Ctx: 0, Cache: "base", Total: 64, Block: 16, Cells: []float64{0, 16, 48, 32}},
		{Ctx: 1, Cache: "swa", Total: 4096, Block: 1, Cells: []float64{1, 2, 3, 4}}}}
	path := filepath.Join(t.TempDir(), "kv.svg")
	if err := k.Picture().Save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	for _, want := range []string{"KV cache of context 0 (base): cells in use, at most 48 of 64",
		"cells in blocks of 16", "all 64 cells", "KV cache of context 1 (swa): cells in use, at most 4 of 4096",
		">cells<", "time since the run began (ms)", "run_1; means of 4 equal times of 500 ms"} {
		if err != nil || strings.Count(string(text), want) != 1 {
			t.Errorf("%q is not there once, %v", want, err)
		}
	}
	if strings.Contains(string(text), "all 4096 cells") {
		t.Error("a limit that flattens what is in use")
	}
}
