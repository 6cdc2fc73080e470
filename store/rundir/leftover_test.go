package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLeftovers: what a killed process leaves is in nobody's way, and removed; other files stay.
func TestLeftovers(t *testing.T) {
	left := []string{".a.part", ".manifest.json.part", ".metadata.json.part", ".region_map.parquet.part", ".reserve-17",
		".tokens-3", ".scratch-9",
		".activations.stream.ckpt.json-55", ".seg-00001.part", "control.sock"}
	stays := []string{"a", ".mine", "b.part", "activations.stream.ckpt.json"}
	for how, open := range map[string]func(string) (*Dir, error){"mend": Mend, "resume": Reopen} {
		t.Run(how, func(t *testing.T) {
			path := t.TempDir()
			for _, name := range slices.Concat(left, stays) {
				if err := os.WriteFile(filepath.Join(path, name), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			d, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			put(t, d, "a", "new")
			if err := errors.Join(d.WriteJSON(MetadataName, Metadata{Version: MetadataVersion}),
				RemoveLeftovers(d.Path()),
				d.Seal()); err != nil {
				t.Fatal(err)
			}
			entries, _ := os.ReadDir(path)
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			want := slices.Sorted(slices.Values(append([]string{ManifestName, MetadataName}, stays...)))
			if slices.Sort(names); !slices.Equal(names, want) {
				t.Errorf("it holds %q, want %q", names, want)
			}
		})
	}
}

// TestManifestChecksum: no byte of a manifest can be changed unnoticed; one of version 1, which has no checksum, is
// read.
func TestManifestChecksum(t *testing.T) {
	d := create(t)
	put(t, d, "a", "text")
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path(), ManifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) (Manifest, error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadManifest(d.Path())
	}
	for at := range text {
		for _, bit := range testenv.Brief([]int{3, 0, 1, 2, 4, 5, 6, 7}, 1) {
			bad := slices.Clone(text)
			bad[at] ^= 1 << bit
			if _, err := read(string(bad)); err == nil {
				t.Errorf("bit %d of byte %d is changed and nothing is found", bit, at)
			}
		}
	}
	other := strings.Replace(string(text), d.ID(), "run_20010101_000000_aaaa", 1)
	if _, err := read(other); !errors.Is(err, ErrChanged) {
		t.Errorf("another run_id: %v", err)
	}
	first := strings.Replace(string(text), `"version": 2`, `"version": 1`, 1)
	first = first[:strings.Index(first, `"sha256": "`+manifestSum(t, text))]
	first = strings.TrimRight(first, " \n,") + "\n}\n"
	if m, err := read(first); err != nil || m.RunID != d.ID() || len(m.Files) != 1 {
		t.Errorf("version 1: %+v, %v\n%s", m, err, first)
	}
}

// manifestSum is the checksum that a manifest holds of itself.
func manifestSum(t *testing.T, text []byte) string {
	t.Helper()
	_, after, ok := strings.Cut(string(text[strings.LastIndex(string(text), `"sha256"`):]), `: "`)
	if !ok || len(after) < 64 {
		t.Fatalf("no checksum in\n%s", text)
	}
	return after[:64]
}

// TestStateFolders: the folder of the states of a run that was killed is removed, that of one that lives is not.
func TestStateFolders(t *testing.T) {
	out := t.TempDir()
	killed, foreign := filepath.Join(out, ".state-12"), filepath.Join(out, ".state-of-mind")
	if err := errors.Join(os.Mkdir(killed, 0o700), os.Mkdir(foreign, 0o700)); err != nil {
		t.Fatal(err)
	}
	first, err := NewStateFolder(out)
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewStateFolder(out)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != 3 || first == second {
		t.Errorf("%v, %v", entries, err)
	}
}
