package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A step that fails on the way to a file's name leaves neither the file nor its beginning, returns the cause and the
// file, and keeps the run from being one file short without anybody knowing.
func TestFailedSteps(t *testing.T) {
	t.Run("rename", func(t *testing.T) {
		d := create(t)
		f, err := d.Create("x")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(d.Path(), "x", "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); !errors.Is(err, syscall.EEXIST) && !errors.Is(err, syscall.EISDIR) &&
			!errors.Is(err, syscall.ENOTEMPTY) || !strings.Contains(err.Error(), "write x") {
			t.Errorf("Close: %v", err)
		}
		nothingLeft(t, d, "x")
	})
	t.Run("open", func(t *testing.T) {
		d := create(t)
		if err := os.Mkdir(filepath.Join(d.Path(), ".x.part"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Create("x"); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "make x") {
			t.Errorf("Create: %v", err)
		}
		nothingLeft(t, d, ".x.part")
	})
	t.Run("sync", func(t *testing.T) {
		d := create(t)
		f, err := d.Create("x")
		if err != nil {
			t.Fatal(err)
		}
		f.(*hashedFile).file.Close() // a descriptor that is gone can neither be synced nor closed
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		nothingLeft(t, d)
	})
	t.Run("manifest", func(t *testing.T) {
		d := create(t)
		put(t, d, "a", "text")
		if err := os.MkdirAll(filepath.Join(d.Path(), ManifestName, "in the way"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := d.Seal(); err == nil {
			t.Error("sealed")
		}
		if err := os.RemoveAll(filepath.Join(d.Path(), ManifestName)); err != nil {
			t.Fatal(err)
		}
		if r, err := Verify(d.Path()); err != nil || r.Sealed {
			t.Errorf("%+v, %v", r, err)
		}
		if err := d.Seal(); err != nil { // the cause is gone
			t.Errorf("a second try: %v", err)
		}
	})
	t.Run("folder", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(file, "m", time.Now()); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("Create: %v", err)
		}
	})
}

// nothingLeft checks that a directory holds what was in the way and nothing else, and can be sealed without it.
func nothingLeft(t *testing.T, d *Dir, known ...string) {
	t.Helper()
	entries, err := os.ReadDir(d.Path())
	if err != nil || len(entries) != len(known) {
		t.Errorf("%v is left, %v", entries, err)
	}
	if err := d.Seal(); err != nil {
		t.Errorf("Seal: %v", err)
	}
	if m, err := ReadManifest(d.Path()); err != nil || len(m.Files) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

// FuzzManifest reads manifests that somebody else has made; no name in one leads out of its directory.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(
		`{"version":1,"run_id":"r","sealed":"2026-01-02T03:04:05Z","files":[{"name":"a","size":0,"sha256":""}]}`))
	f.Add([]byte(`{"version":1,"files":[{"name":"../a"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ManifestName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := ReadManifest(dir)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Name) {
				t.Errorf("%q", file.Name)
			}
		}
		_, _ = Verify(dir)
	})
}
