//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// eventOf is an event without what differs between two runs that do the same: its times, and figures made of them.
func eventOf(t *testing.T, line string) string {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(line), &all); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	var kept []string
	for _, key := range []string{"event", "event_type", "type", "layer_id", "operation", "op", "tensor_name",
		"token_index", "exec", "flops", "bytes_read", "bytes_written"} {
		if v, ok := all[key]; ok {
			kept = append(kept, fmt.Sprint(key, "=", v))
		}
	}
	return strings.Join(kept, " ")
}

// repeatedEvents are a run's events in order, all of its parts; those that stand for a moment of the clock are left
// out.
func repeatedEvents(t *testing.T, dir string) (events []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "resource.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		events = append(events, eventOf(t, line))
	}
	return events
}

// TestResumeBeside: a run whose events and blocks of the KV cache are recorded is resumed like any other, and
// afterwards has the events of a run that was not interrupted, none twice and none missing; nothing is left of what
// was put aside. Of a file of prompts all are computed again then.
func TestResumeBeside(t *testing.T) {
	beside := []string{"--tap-resource-level", "DETAILED", "--tap-kv"}
	args := slices.Insert(resumeArgs([]string{"--temp", "0"}, 160), 1, beside...)
	whole := llamatap(t, args...).good(t)
	want := repeatedEvents(t, whole.dirs[0])
	out := t.TempDir()
	for _, tokens := range []int64{12, 40} { // the second time before it has come as far, perhaps
		if tokens == 12 {
			killAtToken(t, out, tokens, args...)
			continue
		}
		g := startRecording(t, out, 0, "run", "--tap-resume", dirOf(t, out))
		g.killedAt(t, tokens)
		g.killAll()
	}
	dir := dirOf(t, out)
	got := whole
	if resumes(t, out) {
		got = finish(t, command(t, "run", "--tap-resume", dir), out).good(t)
	}
	if got.stdout != whole.stdout {
		t.Errorf("the text is %q, want %q", got.stdout, whole.stdout)
	}
	sameRun(t, got.capture(t), whole.capture(t))
	events := repeatedEvents(t, dir)
	if len(events) < 1000 || !slices.Equal(counts(events), counts(want)) {
		t.Errorf("%d events, of a run that was not interrupted %d:\n%s\n%s", len(events), len(want),
			strings.Join(counts(events), "\n"), strings.Join(counts(want), "\n"))
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.orig"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	a, b := llamatap(t, "kv", dir, "--json").stdout, llamatap(t, "kv", whole.dirs[0], "--json").stdout
	if strings.Count(a, "\n") != strings.Count(b, "\n") {
		t.Errorf("lives of blocks:\n%s\nwant\n%s", a, b)
	}
	llamatap(t, "verify", dir).good(t)
}

// counts is how often each event is there.
func counts(events []string) []string {
	n := map[string]int{}
	for _, e := range events {
		n[e]++
	}
	lines := make([]string, 0, len(n))
	for e, times := range n {
		lines = append(lines, fmt.Sprint(e, ": ", times))
	}
	slices.Sort(lines)
	return lines
}
