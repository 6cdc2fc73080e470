package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestResized: a file of a sealed run that is shorter or missing is named, in a segment too; one that was moved is not.
// So is a damaged manifest.
func TestResized(t *testing.T) {
	dir, _ := movedRun(t)
	if found := Resized(dir); found != nil {
		t.Errorf("%q", found)
	}
	file := filepath.Join(dir, SegmentName(2), MetadataName)
	if err := os.Truncate(file, 3); err != nil {
		t.Fatal(err)
	}
	if found := Resized(dir); !slices.Equal(found, []string{"seg-00002/metadata.json has 3 bytes, the run had 10"}) {
		t.Errorf("%q", found)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if found := Resized(dir); !slices.Equal(found, []string{"seg-00002/metadata.json is missing"}) {
		t.Errorf("%q", found)
	}
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if found := Resized(dir); !slices.Equal(found, []string{"seg-00002 is missing"}) {
		t.Errorf("%q", found)
	}
	if err := os.Truncate(filepath.Join(dir, ManifestName), 3); err != nil {
		t.Fatal(err)
	}
	if found := Resized(dir); !slices.Equal(found, []string{"manifest.json: unexpected end of JSON input"}) {
		t.Errorf("%q", found)
	}
}
