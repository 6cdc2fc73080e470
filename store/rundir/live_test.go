package rundir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLiveFileIsReadWhileItIsWritten(t *testing.T) {
	d, err := Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.CreateLive("resource.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "{}\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(d.Path(), "resource.jsonl")); err != nil || string(text) != "{}\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := d.Seal(); !errors.Is(err, ErrOpen) {
		t.Errorf("sealed while a file is written: %v", err)
	}
	if err := errors.Join(f.Close(), f.Close(), d.Seal()); err != nil {
		t.Fatal(err)
	}
	if report, err := Verify(d.Path()); err != nil || report.Files != 1 ||
		len(report.Changed)+len(report.Missing)+len(report.Extra) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	for _, name := range []string{"resource.jsonl", ManifestName, "a/b", ".hidden"} {
		if _, err := d.CreateLive(name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}
