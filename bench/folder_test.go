//go:build linux

package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWorkFolder: a folder that a killed benchmark has left is removed by the next one; one in use, and what is not
// a benchmark's, stays.
func TestWorkFolder(t *testing.T) {
	dir := t.TempDir()
	left, others := filepath.Join(dir, workName+"17"), filepath.Join(dir, workName+"results")
	for _, path := range []string{filepath.Join(left, "model", "run_1"), others} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	first, removeFirst, err := workFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, removeSecond, err := workFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{left: false, others: true, first: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	removeFirst()
	removeSecond()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
