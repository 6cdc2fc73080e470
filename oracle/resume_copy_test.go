//go:build linux

package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// TestResumeCopy: the copy of an interrupted run is resumed in its own directory. Neither that nor a collector that
// is killed meanwhile changes a byte of the original, which was resumed and sealed before; and the original cannot
// be opened again.
func TestResumeCopy(t *testing.T) {
	out, copies, deaths := t.TempDir(), t.TempDir(), t.TempDir()
	killAtToken(t, out, 12, resumeArgs([]string{"--temp", "0"}, 200)...)
	dir := dirOf(t, out)
	if !resumes(t, out) {
		t.Fatal("the run ended before it was killed")
	}
	copied := filepath.Join(copies, "model", "run_copy")
	killed := filepath.Join(deaths, "model", "run_killed")
	copyFiles(t, dir, copied)
	copyFiles(t, dir, killed)
	name := filepath.Join(dir, "activations.stream"+rundir.CheckpointSuffix)
	checkpoint := content(t, name)
	reached, err := rundir.ReadCheckpoint(name)
	if err != nil {
		t.Fatal(err)
	}
	whole := finish(t, command(t, "run", "--resume", dir), out).good(t)
	before := filesOf(t, dir)

	g := startRecording(t, deaths, 1, "run", "--resume", killed)
	if !g.killedAt(t, reached.TotalTokens+1) {
		t.Log("the copy was resumed to its end before it could be killed")
	}
	g.killAll()
	resumed := finish(t, command(t, "run", "--resume", copied), copies).good(t)
	if resumed.stdout != whole.stdout {
		t.Errorf("the copy's text is %q, the original's %q", resumed.stdout, whole.stdout)
	}
	if err := os.WriteFile(name, checkpoint, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := finish(t, command(t, "run", "--resume", dir), out); o.status == 0 || o.stdout != "" {
		t.Errorf("a finished run is resumed: status %d, %q", o.status, o.stdout)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if after := filesOf(t, dir); !slices.Equal(before, after) {
		t.Errorf("the original was %d files and is %d, or others", len(before), len(after))
	}
	llamatap(t, "verify", dir).good(t)
	llamatap(t, "verify", copied).good(t)
	if !bytes.Equal(content(t, filepath.Join(copied, "activations.stream")),
		content(t, filepath.Join(dir, "activations.stream"))) {
		t.Error("the copy's stream is not the original's")
	}
}

// filesOf are the files of a folder, each with what it holds.
func filesOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name()+"\n"+string(content(t, filepath.Join(dir, e.Name()))))
	}
	return all
}
