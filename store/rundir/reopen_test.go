package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// sealedAs seals a run that ended as the metadata say.
func sealedAs(t *testing.T, m Metadata) *Dir {
	t.Helper()
	d := create(t)
	put(t, d, "activations.stream", "stream")
	m.Version, m.Created = MetadataVersion, time.Now()
	if err := errors.Join(writeTokens(d), d.WriteJSON(MetadataName, m), d.Seal()); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestReopenSealed: a sealed run is opened again only if its own metadata say that it was interrupted. A finished
// one is not touched.
func TestReopenSealed(t *testing.T) {
	for _, c := range []struct {
		name   string
		meta   Metadata
		opened bool
	}{
		{"finished", Metadata{SealedBy: "collector", Exit: &Exit{}}, false},
		{"repaired", Metadata{SealedBy: "collector", Exit: &Exit{Signal: "SIGINT"}, Repaired: []Repair{{}}}, false},
		{"sealed by a repair", Metadata{SealedBy: "llamatap verify --repair"}, false},
		{"interrupted", Metadata{SealedBy: "collector", Exit: &Exit{Status: 130}}, true},
		{"killed", Metadata{SealedBy: "collector", Exit: &Exit{Signal: "SIGKILL"}}, true},
		{"stopped", Metadata{SealedBy: "collector", Exit: &Exit{}, Stopped: &Stopped{Cause: "disk_full"}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := sealedAs(t, c.meta).Path()
			before := listing(t, path)
			d, err := Reopen(path)
			if c.opened {
				if err != nil {
					t.Fatal(err)
				}
				if r, err := Verify(path); err != nil || r.Sealed {
					t.Errorf("%+v, %v", r, err)
				}
				if err := d.Seal(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrSealed) || !errors.Is(Resumable(path), ErrSealed) {
				t.Errorf("Reopen: %v", err)
			}
			if after := listing(t, path); after != before {
				t.Errorf("it was %s and is %s", before, after)
			}
			if r, err := Verify(path); err != nil || !r.Sealed || len(r.Missing)+len(r.Changed) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			if again, err := Mend(path); err != nil { // the lock is free
				t.Error(err)
			} else if err := again.Seal(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("metadata gone", func(t *testing.T) {
		path := sealedAs(t, Metadata{SealedBy: "collector", Exit: &Exit{Status: 1}}).Path()
		if err := os.Remove(filepath.Join(path, MetadataName)); err != nil {
			t.Fatal(err)
		}
		if _, err := Reopen(path); !errors.Is(err, ErrSealed) {
			t.Errorf("Reopen: %v", err)
		}
	})
}

// listing is the names and contents of a directory.
func listing(t *testing.T, path string) (text string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(path, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text += e.Name() + ": " + string(data) + "\n"
	}
	return text
}

// TestCheckpointOfCopy: a checkpoint is of the directory that it lies in, not of the one that it was written in.
func TestCheckpointOfCopy(t *testing.T) {
	original, moved, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, want := range map[string]string{original: original, moved: moved, elsewhere: original} {
		stream := filepath.Join(dir, "activations.stream")
		if dir != elsewhere {
			if err := os.WriteFile(stream, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := Checkpoint{Run: CheckpointRun{Dir: original}}
		if err := c.Write(stream + CheckpointSuffix); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadCheckpoint(stream + CheckpointSuffix); err != nil || got.Run.Dir != want {
			t.Errorf("of %s: %+v, %v", dir, got, err)
		}
	}
}
