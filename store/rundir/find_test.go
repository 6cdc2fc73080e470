package rundir

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestFind: of runs that began in one second the one that was sealed last is the newest, whatever the random end of
// its name; a copy under another name is found, too.
func TestFind(t *testing.T) {
	folder := t.TempDir()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	text := `{"version":2,"run_id":"run_20260301_120000_ffff"}`
	make := func(name string, sealed time.Duration) string {
		path := filepath.Join(folder, "model", name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if sealed == 0 {
			return path
		}
		manifest := filepath.Join(path, ManifestName)
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{manifest, path} {
			if err := os.Chtimes(name, at.Add(sealed), at.Add(sealed)); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	third := make("run_20260301_120000_ffff", time.Second)
	second := make("run_20260301_120000_0000", 2*time.Second)
	first := make("run_20260301_120000_8888", 0)
	fourth := make("run_20260301_115959_ffff", time.Hour)
	copied := make("a copy", time.Minute)
	text = `{"manifest_version":3}`
	make("another program's", time.Minute)
	if got, want := Find(folder), []string{copied, first, second, third, fourth}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFindProject: the runs of a project are found in the folder that they are recorded in unless one is named.
func TestFindProject(t *testing.T) {
	project := t.TempDir()
	run := filepath.Join(project, Folder, "model", "run_20260301_120000_ffff")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := Find(project); !slices.Equal(got, []string{run}) {
		t.Errorf("%q, not %s", got, run)
	}
}

// TestFindLinks: a run that lies elsewhere is found by a link to it, once; a link to a folder leads nowhere.
func TestFindLinks(t *testing.T) {
	folder, elsewhere := t.TempDir(), t.TempDir()
	outside := filepath.Join(elsewhere, "run_20260301_120000_0000")
	inside := filepath.Join(folder, "model", "run_20260301_120001_1111")
	for _, path := range []string{outside, inside} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(folder, "model", "run_20260301_120000_0000")
	for name, to := range map[string]string{link: outside, filepath.Join(folder, filepath.Base(outside)): outside,
		filepath.Join(folder, filepath.Base(inside)): inside, filepath.Join(folder, "all"): elsewhere,
		filepath.Join(folder, Folder): folder, filepath.Join(folder, "run_gone"): "nowhere"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	if got := Find(folder); !slices.Equal(got, []string{inside, link}) {
		t.Errorf("%q", got)
	}
}
