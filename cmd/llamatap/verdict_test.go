package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestVerdictAtTheEnd: a run with events ends with its verdict, a large one with the command that prints it, and one
// that the user does not wait for, or that recorded no events, with nothing.
func TestVerdictAtTheEnd(t *testing.T) {
	const event = `{"event":"session_start","version":1}` + "\n"
	none := (&memrun.Run{Model: "m"}).Write(t, t.TempDir())
	small := (&memrun.Run{Model: "m", Files: map[string]string{rundir.EventsName: event}}).Write(t, t.TempDir())
	large := (&memrun.Run{Model: "m", Files: map[string]string{rundir.EventsName: event}}).Write(t, t.TempDir())
	if err := os.Truncate(filepath.Join(large, rundir.EventsName), maxVerdictBytes+1); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx       context.Context
		dir, want string
	}{
		{context.Background(), none, ""},
		{context.Background(), small, "          verdict   The run cannot be judged"},
		{context.Background(), large, "          verdict   64.0 MiB of events: 'llamatap report' reads them\n"},
		{gone, small, ""},
	} {
		var out strings.Builder
		writeVerdict(c.ctx, &out, c.dir)
		if got := out.String(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.dir, got, c.want)
		}
	}
}
