package main

import (
	"os"
	"strings"
	"testing"
)

// TestVersion: the program, the changelog and the citation file name one release.
func TestVersion(t *testing.T) {
	out, err := self("version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "llamatap "+release) {
		t.Errorf("llamatap version: %v: %q, want the release %s", err, out, release)
	}
	for file, want := range map[string]string{
		"../../CHANGELOG.md": "\n## " + release + "\n",
		"../../CITATION.cff": "\nversion: " + strings.TrimPrefix(release, "v") + "\n",
	} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not name the release %s (%v)", file, release, err)
		}
	}
}
