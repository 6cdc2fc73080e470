//go:build linux && amd64

package oracle

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestKilledRepairOfChangedFiles kills a repair of a run that was changed after it was sealed, at each rename, sync
// and removal. The next repair still reports the change, and what it seals counts as lossy: its new manifest must
// not make a changed file whole.
func TestKilledRepairOfChangedFiles(t *testing.T) {
	testenv.Slow(t)
	for name, damage := range map[string]func(path string) error{
		"kv_block_lifecycle.parquet": func(path string) error {
			return os.WriteFile(path, []byte("something else"),
				0o600)
		},
		"control.jsonl": func(path string) error { return os.WriteFile(path, []byte("{\"n\":2}\n"), 0o600) },
		"notes.txt":     os.Remove,
	} {
		calls := 0
		for n := 1; n <= calls || n == 1; n++ {
			d, err := rundir.Create(t.TempDir(), "m", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"kv_block_lifecycle.parquet", "control.jsonl", "notes.txt"} {
				f, err := d.Create(file)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.Write([]byte("{\"n\":1}\n")); err != nil || f.Close() != nil {
					t.Fatalf("write %s: %v", file, err)
				}
			}
			now := time.Now()
			meta := rundir.Metadata{Version: rundir.MetadataVersion, RunID: d.ID(), Created: now, Ended: now,
				Losses: []rundir.Loss{}}
			if err := d.WriteJSON(rundir.MetadataName, meta); err != nil {
				t.Fatal(err)
			}
			if err := d.Seal(); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(d.Path(), name)); err != nil {
				t.Fatal(err)
			}
			if calls == 0 { // count the calls of one that is not killed, on a copy
				whole := filepath.Join(t.TempDir(), filepath.Base(d.Path()))
				copyFiles(t, d.Path(), whole)
				if _, calls = killAtCall(t, command(t, "verify", "--repair", whole), 0); calls < 5 {
					t.Fatalf("a repair makes %d calls", calls)
				}
			}
			at, _ := killAtCall(t, command(t, "verify", "--repair", d.Path()), n)
			if at == "" {
				t.Fatalf("%s: no repair was killed at call %d of %d", name, n, calls)
			}
			o := llamatap(t, "verify", "--repair", d.Path())
			v := verifyJSON(t, d.Path())
			if o.status != 1 || !v.Sealed || v.OK {
				t.Errorf("%s, killed at %s: status %d, %+v\n%s", name, at, o.status, v, o.stderr)
			}
			if m := metadata(t, d.Path()); !m.Lossy || len(m.Repaired) == 0 {
				t.Errorf("%s, killed at %s: metadata %+v", name, at, m)
			}
		}
	}
}
