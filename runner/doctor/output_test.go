package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutput examines folders that are there, that would be made, and that cannot be.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(out string) Fact {
		return find(t, output(Options{Root: os.DirFS("/"), Out: out}), "output", "folder")
	}
	if f := look(dir); f.Status != OK || f.Value != dir {
		t.Errorf("%+v", f)
	}
	if f := look(filepath.Join(dir, "a", "b")); f.Status != OK ||
		!strings.HasSuffix(f.Value, filepath.Join("a", "b")+", to be made in "+dir) {
		t.Errorf("%+v", f)
	}
	for _, out := range []string{name, filepath.Join(name, "below")} {
		if f := look(out); f.Status != Missing || f.Costs == "" || !f.essential() {
			t.Errorf("%+v", f)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSpeed measures for real, and nothing where that is asked for.
func TestSpeed(t *testing.T) {
	o := Options{Root: os.DirFS("/"), Out: t.TempDir(), Quick: true}
	if facts := speed(o); facts != nil {
		t.Errorf("%+v", facts)
	}
	if f := find(t, bandwidth(empty), "speed", "memory"); f.Status != Unknown {
		t.Errorf("where free memory is unknown: %+v", f)
	}
	o.Quick, o.Out = false, filepath.Join(o.Out, "file")
	if err := os.WriteFile(o.Out, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	facts := speed(o)
	if len(facts) != 4 {
		t.Errorf("%+v", facts)
	}
	for _, f := range facts {
		if disk := strings.HasSuffix(f.Name, "write"); (f.Status == Unknown) != disk {
			t.Errorf("%+v", f)
		}
	}
}
