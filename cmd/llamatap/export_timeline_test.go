package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestExportTimelineRefuses: what cannot be exported is refused, and nothing is replaced or left behind.
func TestExportTimelineRefuses(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "resource.jsonl")
	event := `{"event":"graph_execution","mono_ns":1,"ctx":0,"exec":1,"phase":"decode","tokens":1,"duration_ns":5}` +
		"\n"
	for path, text := range map[string]string{log: event, filepath.Join(dir, "there"): "mine"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "export "+log+" --to perfeto", 2, "perfetto")
	refused(t, "export "+log, 2, "--to")
	refused(t, "export "+log+" --to chrome --tensor l_out", 2, "--tensor")
	refused(t, "export "+log+" --to chrome --max-size x", 2, "--max-size")
	refused(t, "export "+log+" --to chrome -o "+filepath.Join(dir, "there"), 1, "--force")
	refused(t, "export "+log+" --to chrome --force -o /dev/null", 1, "regular")
	refused(t, "export "+log+" --to chrome -o "+filepath.Join(dir, "no", "a"), 1, "no such file")
	refused(t, "export "+t.TempDir()+" --to chrome", 1, "--tap-resource-level")
	for _, form := range []string{"chrome", "mooncake", "mrm-trace", "npy"} {
		refused(t, "export "+log+" --to "+form+" -o -", 2, "written to files")
	}
	if err := call("export", log, "--to", "chrome", "--force", "-o", filepath.Join(dir, "there")); err != nil {
		t.Error(err)
	}
	t.Chdir(dir)
	if err := call("export", ".", "--to", "pprof"); err != nil {
		t.Error(err)
	}
	profile := filepath.Base(dir) + ".pb.gz"
	if info, err := os.Stat(profile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others can read it", info, err)
	}
	if err := os.Remove(profile); err != nil {
		t.Error(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(names) != 2 || len(hidden) != 0 {
		t.Errorf("%q and %q are left: %v", names, hidden, err)
	}
}
