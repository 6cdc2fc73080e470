package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFindMetadata: a directory without metadata is no error; what was asked for is read from those that are there,
// and a version that is newer is refused.
func TestFindMetadata(t *testing.T) {
	dir := t.TempDir()
	if m, err := FindMetadata(dir); m != nil || err != nil {
		t.Errorf("none: %+v, %v", m, err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, MetadataName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"version":1,"config":{"settings":{"ring":{"value":4,"source":"flag"}},"recorders":["tensors"]}}`)
	m, err := FindMetadata(dir)
	if err != nil {
		t.Fatal(err)
	}
	settings := m.Settings()
	if got := settings["ring"]; got.String() != "4" || got.Source != "flag" || settings["other"].String() != "" {
		t.Errorf("%+v", settings)
	}
	if got := m.Recorders(); !slices.Equal(got, []string{"tensors"}) {
		t.Errorf("%q", got)
	}
	if m := (&Metadata{Config: "text"}); m.Settings() != nil || m.Recorders() != nil {
		t.Errorf("%v, %v", m.Settings(), m.Recorders())
	}
	write(`{"version":2}`)
	if m, err := FindMetadata(dir); m != nil || err == nil || !strings.Contains(err.Error(), "version 2") ||
		!strings.Contains(err.Error(), "llamatap verify "+dir) {
		t.Errorf("a newer version: %+v, %v", m, err)
	}
}

// TestPresent: a finished file, one that is still written, and neither.
func TestPresent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if path, ok := Present(dir, "a"); ok {
		t.Errorf("a link: %s", path)
	}
	for _, name := range []string{".b.part", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if path, ok := Present(dir, "b"); !ok || filepath.Base(path) != name {
			t.Errorf("%s, %v, want %s", path, ok, name)
		}
	}
}
