package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// TestSealed: a manifest that is not what was sealed seals nothing.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	if sealed, err := Sealed(dir); sealed || err != nil {
		t.Errorf("without a manifest: %v, %v", sealed, err)
	}
	text, err := Manifest{RunID: "run_1", Files: []File{{Name: "a", Size: 1}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for written, want := range map[string]bool{string(text): true, string(text[:9]): false, "": false,
		strings.Replace(string(text), `"size": 1`, `"size": 2`, 1): false} {
		if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
		if sealed, err := Sealed(dir); sealed != want || (err == nil) != want {
			t.Errorf("%q: %v, %v", written, sealed, err)
		}
	}
}

// TestForeignManifest: a run that mrm-trace wrote is sealed, and compared with its own manifest.
func TestForeignManifest(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"trace.parquet": "abc", ManifestName: `{"manifest_schema_version": "1.0",
		"run_id": "r1", "created_at_utc": "2026-11-29T18:00:00.123456+00:00", "files": [{"path": "trace.parquet",
		"size_bytes": 3, "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := Sealed(dir)
	report, wrong := Verify(dir)
	if !sealed || err != nil || wrong != nil || report.Files != 1 || report.Changed != nil ||
		report.RunID != "r1" || len(Resized(dir)) > 0 {
		t.Errorf("sealed: %v, %v; %+v, %v; %q", sealed, err, report, wrong, Resized(dir))
	}
	if err := os.WriteFile(filepath.Join(dir, "trace.parquet"), []byte("abd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if report, err := Verify(dir); err != nil || len(report.Changed) != 1 {
		t.Errorf("a changed table: %+v, %v", report, err)
	}
}
