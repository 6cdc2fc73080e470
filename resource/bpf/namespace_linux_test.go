package bpf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutermost: process ids of a namespace below the first are refused with the remedy; the first one's, and a machine
// that does not say so, are accepted.
func TestOutermost(t *testing.T) {
	for target, want := range map[string]string{initPIDs: "", "pid:[4026532201]": "--pid=host", "": ""} {
		link := filepath.Join(t.TempDir(), "pid")
		if target != "" {
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
		}
		switch err := outermost(link); {
		case want == "" && err != nil:
			t.Errorf("%q is refused: %v", target, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, not an error with %q", target, err, want)
		}
	}
}
