package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHeatMapSize: a heat map holds pixels, and not a rectangle for each cell, however many snapshots were taken.
func TestHeatMapSize(t *testing.T) {
	size := func(snapshots int) int64 {
		dir := t.TempDir()
		if _, err := DrawCharts(report(t, 1, snapshots), dir, []string{"heatmap"}, []string{"svg"}); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*.svg"))
		if err != nil || len(paths) != 1 {
			t.Fatal(paths, err)
		}
		info, err := os.Stat(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for _, snapshots := range []int{300, 2000} {
		if n := size(snapshots); n > 100_000 {
			t.Errorf("the heat map of %d snapshots takes %d bytes", snapshots, n)
		}
	}
}
