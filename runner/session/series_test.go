//go:build linux

package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestRowsOf counts the requests of a table and the lines of events, long ones and one that has no end too.
func TestRowsOf(t *testing.T) {
	dir, err := rundir.Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	out := track.NewRequestTable(dir, 0)
	for range 37 {
		q := kvcache.NewRequest()
		if err := out.Append(&q); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(dir.Path(), rundir.EventsName)
	if err := os.WriteFile(lines, []byte("{}\n"+strings.Repeat("x", 70000)+"\n{}\n{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint64{filepath.Join(dir.Path(), rundir.RequestsName): 37, lines: 3} {
		if n, err := rowsOf(path); n != want || err != nil {
			t.Errorf("%s has %d rows, %v; want %d", filepath.Base(path), n, err, want)
		}
	}
}
