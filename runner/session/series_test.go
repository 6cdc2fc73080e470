//go:build linux

package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestWrittenWhileSealing: what a segment holds is counted while it is being sealed, too.
func TestWrittenWhileSealing(t *testing.T) {
	var g [2]*segment
	for i := range g {
		w, err := stream.Create(filepath.Join(t.TempDir(), StreamName), stream.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		p, data := recorded(i)
		if err := errors.Join(w.Append(p, data, nil), w.Flush()); err != nil {
			t.Fatal(err)
		}
		g[i] = &segment{stream: w}
	}
	f := &files{series: series{ending: &ending{segment: g[0]}}, current: g[1]}
	if w := f.written(); w.Packets != 2 || w.Stored == 0 {
		t.Errorf("%d packets of %d bytes, want 2", w.Packets, w.Stored)
	}
}

// TestErrorOfSegments: the error of a run is the largest one of its segments.
func TestErrorOfSegments(t *testing.T) {
	a, b := codec.Achieved{MaxAbs: 1, NRMSE: 4}, codec.Achieved{MaxAbs: 3, NRMSE: 2}
	if e := addStats(stream.Stats{Error: a}, stream.Stats{Error: b}).Error; e != a.Or(b) {
		t.Errorf("%+v and %+v are %+v", a, b, e)
	}
}

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
