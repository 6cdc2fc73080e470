package rundir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEventsGivenBack: events that a directory no longer has were given back, or are in object storage alone.
func TestEventsGivenBack(t *testing.T) {
	moved := &Moved{To: "s3://b/run_1", Files: []File{{Name: EventsName}, {Name: "resource.1.jsonl"},
		{Name: "trace.000.parquet"}}}
	rotated := &Rotated{}
	rotated.AddPart(EventsName, 40)
	counted := &Account{Events: &EventAccount{Written: 50, Rotated: 40}}
	dir := t.TempDir()
	for want, m := range map[string]*Metadata{
		"the oldest 2 parts of resource.jsonl are in s3://b/run_1 alone":         {Moved: moved},
		"the oldest 40 of 50 events were given back to hold the size of the run": {Rotated: rotated, Account: counted},
		"the oldest events were given back to hold the size of the run":          {Rotated: rotated},
	} {
		if got := m.EventsGivenBack(dir); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	live := t.TempDir()
	for _, name := range []string{"resource.2.jsonl", "resource.3.jsonl", "trace.001.parquet"} {
		if err := os.WriteFile(filepath.Join(live, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const events = "the oldest events were given back to hold the size of the run"
	const accesses = "the oldest accesses were given back to hold the size of the run"
	if m := (&Metadata{}); m.EventsGivenBack(live) != events || m.TraceGivenBack(live) != accesses {
		t.Errorf("%q and %q of a live run", m.EventsGivenBack(live), m.TraceGivenBack(live))
	}
	if m := (&Metadata{Account: counted}); m.EventsGivenBack(live) != "" {
		t.Errorf("%q of a run that gave nothing back", m.EventsGivenBack(live))
	}
	for _, f := range moved.Files { // a copy of the whole run
		if err := os.WriteFile(filepath.Join(dir, f.Name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := (&Metadata{Moved: moved}).EventsGivenBack(dir); got != "" {
		t.Errorf("%q of a whole copy", got)
	}
}
