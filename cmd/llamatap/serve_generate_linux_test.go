package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRunInSummary: the run of a prompt that ended before anybody looked is the one that its summary names, if it
// has a log.
func TestRunInSummary(t *testing.T) {
	dir, log := filepath.Join(t.TempDir(), "run_x"), filepath.Join(t.TempDir(), "log")
	check := func(text, want string) {
		t.Helper()
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := runInSummary(log); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	summary := "llamatap  tokens    3 prompt\n          run       " + dir + "\n"
	check(summary, "")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "resource.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(summary, dir)
	check(summary+"          verdict   Nothing stands out.\n", dir)
	check("llamatap: model x: no such file\n", "")
	check("", "")
}
