//go:build linux && amd64

package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// rotating records tensors and every event within a bound that holds a part of them only.
func rotating(n int) []string {
	return slices.Concat([]string{"run", "--tap-tensors", "l_out*", "--tap-codec", "none", "--tap-resource-level",
		"VERBOSE", "--tap-max-disk", "4M:rotate", "--tap-segment", "64K"}, generate(n))
}

// TestRotate: events and segments are given back, oldest first, while recording goes on to the end of the program.
// What is there, counted in the files, and what metadata.json says was given back are all that was recorded; verify,
// inspect and the summary of events read what is left.
func TestRotate(t *testing.T) {
	const tokens = 120
	o := llamatap(t, rotating(tokens)...).good(t)
	m, v := metadata(t, o.dirs[0]), verifyJSON(t, o.dirs[0])
	if !v.OK || !v.Sealed || m.Stopped != nil || m.Lossy || m.Rotated == nil || bytesBelow(o.dirs[0]) > 4<<20 {
		t.Fatalf("%d bytes, %+v; lossy %v, stopped %+v, rotated %+v", bytesBelow(o.dirs[0]), v, m.Lossy, m.Stopped,
			m.Rotated)
	}
	var left uint64
	logs, _ := filepath.Glob(filepath.Join(o.dirs[0], "resource*.jsonl"))
	for _, name := range logs {
		left += uint64(bytes.Count(content(t, name), []byte{'\n'}))
	}
	// 'loss' lines are no events, and this run has none: nothing was lost.
	gone, a := m.Rotated.Parts[rundir.EventsName], m.Account
	if gone.Parts == 0 || gone.Rows == 0 || a.Events.Rotated != gone.Rows || left+gone.Rows != a.Events.Written {
		t.Errorf("%d events are there, %+v are gone, account %+v", left, gone, a.Events)
	}
	if m.Rotated.Segments == 0 || a.Rotated == nil || a.Captured.Packets != uint64(v.Packets) ||
		a.Captured.Packets+a.Rotated.Packets != a.Selected.Packets || a.Captured.Bytes+a.Rotated.Bytes !=
		a.Selected.Bytes || m.Rotated.Tokens+v.Tokens != tokens+m.Tokens.Prompt-1 {
		t.Errorf("rotated %+v, account %+v, %+v", m.Rotated, a, v)
	}
	for _, want := range []string{"rotated", "parts of resource.jsonl", fmt.Sprint(m.Rotated.Tokens, " tokens")} {
		if text := llamatap(t, "inspect", o.dirs[0]).good(t).stdout; !strings.Contains(text, want) ||
			!strings.Contains(o.stderr, want) {
			t.Errorf("no %q in\n%s\n%s", want, text, o.stderr)
		}
	}
	var report struct{ Tokens []struct{ TokenIndex int64 } }
	text := llamatap(t, "resource", "summary", "--json", o.dirs[0]).good(t).stdout
	if err := json.Unmarshal([]byte(text), &report); err != nil || len(report.Tokens) == 0 {
		t.Errorf("%v: %.300s", err, text)
	}
}

// TestRotateKilled kills a run that rotates at calls of every kind, from when it gives something back: what is left can
// be repaired, says what it had given back, and has each token of the whole run from there to its end.
func TestRotateKilled(t *testing.T) {
	testenv.Slow(t)
	const tokens = 60
	killed := 2
	if testenv.Nightly() {
		killed = 20
	}
	whole := llamatap(t, append([]string{"run", "--tap-tensors", "l_out-0"}, generate(tokens)...)...).good(t)
	want := tokensOf(t, whole.dirs[0])
	begin := func(n int, out string) (string, int) {
		cmd := exec.Command(testenv.NeedBinary(t), rotating(tokens)...)
		cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+out)
		return killAtCall(t, cmd, n)
	}
	_, calls := begin(0, t.TempDir())
	random := rand.New(rand.NewPCG(1, 2))
	rotated := 0
	for range killed {
		out := t.TempDir()
		at, _ := begin(calls/3+random.IntN(calls*2/3), out)
		for _, dir := range runDirs(t, out) {
			before := readCommitted(t, dir)
			llamatap(t, "verify", "--repair", dir)
			v, m := verifyJSON(t, dir), metadata(t, dir)
			if !v.Sealed || slices.Contains(v.kinds(), "damage") {
				t.Errorf("%s: %+v", at, v)
			}
			after := readCommitted(t, dir)
			for path, data := range before.files {
				removing := filepath.Base(filepath.Dir(path))[0] == '.'
				if !removing && !bytes.HasPrefix(after.files[path], data) {
					t.Errorf("%s: %s has changed", at, path)
				}
			}
			segments, err := rundir.Segments(dir)
			if err != nil || len(segments) == 0 {
				continue
			}
			first := int64(0)
			if m.Rotated != nil {
				rotated++
				first = m.Rotated.Tokens
			}
			var got []rundir.TokenRecord
			for _, name := range segments {
				got = append(got, tokensOf(t, filepath.Join(dir, name))...)
			}
			if end := first + int64(len(got)); end > int64(len(want)) ||
				fmt.Sprint(describe(got)) != fmt.Sprint(describe(want[first:end])) {
				t.Errorf("%s: %d tokens from %d on are not those of the whole run", at, len(got), first)
			}
		}
	}
	if t.Logf("%d killed, %d of which had given something back", killed, rotated); rotated == 0 {
		t.Error("none had given anything back")
	}
}
