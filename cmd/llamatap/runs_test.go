package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestResolveRun: a run is found by its directory, its name, the end of its name, or as the newest; anything else
// is left alone.
func TestResolveRun(t *testing.T) {
	out := t.TempDir()
	t.Setenv("LLAMATAP_OUT", out)
	var runs []string
	for _, name := range []string{"a/run_20260102_030405_aaaa", "b/run_20260102_030406_bbbb",
		"a/run_20260101_030406_bbbb"} {
		dir := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, dir)
	}
	for name, want := range map[string]string{
		"": runs[1], runs[0]: runs[0], "run_20260102_030405_aaaa": runs[0], "aaaa": runs[0], "none": "none",
		"/no/such/run": "/no/such/run",
	} {
		if got, err := resolveRun(name); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, folder := range []string{out, filepath.Join(out, "a")} {
		if got, err := resolveRun(folder); err == nil ||
			!strings.Contains(err.Error(), " runs: give one of them, such as ") {
			t.Errorf("a folder of runs is %q, %v", got, err)
		}
	}
	if got, err := resolveRun("bbbb"); err == nil {
		t.Errorf("an ending that two runs have is %q", got)
	}
}

// TestStoredOut: runs that LLAMATAP_OUT copies to object storage are recorded here, where commands find the newest; a
// recording of any program makes no folder that is named like a URL.
func TestStoredOut(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("LLAMATAP_OUT", "s3://bkt/p")
	dir := filepath.Join("llamatap-runs", "m", "run_20260102_030405_aaaa")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := resolveRun(); err != nil || filepath.Clean(got) != dir {
		t.Errorf("%q, %v; want %q", got, err, dir)
	}
	refused(t, "memory record -o s3://bkt/p -- true", 2, "s3://bkt/p | llamatap push")
	refused(t, "memory import -o s3://bkt/p perf.data", 2, "s3://bkt/p | llamatap push")
}
