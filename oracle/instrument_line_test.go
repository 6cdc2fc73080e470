//go:build linux

package oracle

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestInstrumentLine compiles a program with the command that docs/INSTRUMENT.md gives, word for word, and runs it.
func TestInstrumentLine(t *testing.T) {
	testenv.Slow(t)
	backends := filepath.Join(testenv.NeedLlama(t), "run")
	testenv.NeedBinary(t)
	testenv.NeedCXX(t)
	root := testenv.Root(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "INSTRUMENT.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?ms)^make instrument[^\n]*\n(c\\+\\+ .*?)^```$").FindSubmatch(text)
	if line == nil {
		t.Fatal("docs/INSTRUMENT.md has no command that compiles a program")
	}
	checkout := t.TempDir()
	for _, name := range []string{"bin", "cgo", "third_party"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(checkout, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(root, "examples", "instrument", "instrument.cpp"),
		filepath.Join(checkout, "program.cpp")); err != nil {
		t.Fatal(err)
	}
	run := func(cmd *exec.Cmd) {
		cmd.Dir = checkout
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
		}
	}
	run(exec.Command("sh", "-c", string(line[1])))
	run(exec.Command(filepath.Join(checkout, "program"), "resource.jsonl", backends))
	events := content(t, filepath.Join(checkout, "resource.jsonl"))
	if !bytes.Contains(events, []byte(`"resource_session_end"`)) {
		t.Errorf("its events have no end:\n%s", events)
	}
}
