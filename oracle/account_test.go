//go:build linux

package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// recount adds up what the files of a run hold, by code of its own: packets of the stream's index that are not
// set-up, and rows of the tokens files, over all segments.
const recount = `
import sys, glob, json, collections
class Fields:
    def __init__(self, data): self.data, self.at = data, 0
    def uint(self):
        n = shift = 0
        while True:
            b = self.data[self.at]; self.at += 1
            n |= (b & 127) << shift; shift += 7
            if b < 128: return n
    def skip(self, n): self.at += n
    def byte(self): self.at += 1; return self.data[self.at - 1]
packets, decided, tokens = [], [], collections.Counter()
for name in glob.glob(sys.argv[1] + "/**/activations.stream.idx", recursive=True):
    index, at = open(name, "rb").read(), 64
    while at + 12 <= len(index):
        size, kind = int.from_bytes(index[at + 4:at + 7], "little"), index[at + 7]
        f, at = Fields(index[at + 12:at + 12 + size]), at + 12 + size
        if kind == 2:
            for _ in range(4): f.uint()
            f.skip(6); phase = f.byte(); source = f.uint(); f.uint(); f.uint()
            packets.append((f.uint(), source))
        if kind == 6:
            f.uint(); decided.append((f.uint(), f.uint()))
for name in glob.glob(sys.argv[1] + "/**/activations_tokens.json", recursive=True):
    tokens.update(t["phase"] for t in json.load(open(name))["tokens"])
counted = [source for exec, source in packets if not any(first <= exec <= last for first, last in decided)]
print(json.dumps({"packets": len(counted), "bytes": sum(counted), "tokens": tokens}))
`

// recounted is what recount prints.
type recounted struct {
	rundir.Amount
	Tokens map[string]int64
}

func recountRun(t *testing.T, dir string) (r recounted) {
	t.Helper()
	cmd := exec.Command(testenv.NeedPython(t), "-S", "-c", recount, dir)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

// checkAccount demands that the account of a run is that of a whole capture of the same prompt: the same tokens,
// captured and lost together all that the whole one holds, and captured what the files hold.
func checkAccount(t *testing.T, m *rundir.Metadata, files, whole recounted) {
	t.Helper()
	a := m.Account
	if a == nil || len(a.Violations) > 0 {
		t.Fatalf("account %+v", a)
	}
	lost := a.LostTotal()
	if a.Captured != files.Amount || a.Selected != whole.Amount || a.Captured.Packets+lost.Packets != whole.Packets ||
		a.Captured.Bytes+lost.Bytes != whole.Bytes {
		t.Errorf("selected %+v, captured %+v, lost %+v; the files hold %+v of %+v", a.Selected, a.Captured, a.Lost,
			files.Amount, whole.Amount)
	}
	if m.Tokens.Prompt != whole.Tokens["prefill"] || m.Tokens.Generated != whole.Tokens["decode"] ||
		a.Time.Tokens != m.Tokens.Prompt+m.Tokens.Generated {
		t.Errorf("tokens %+v, times of %d; the whole run has %v", *m.Tokens, a.Time.Tokens, whole.Tokens)
	}
	if !slices.Equal(m.Losses, a.Lost) || m.Lossy != (len(a.Lost) > 0) {
		t.Errorf("losses %+v, lossy %v; the account has %+v", m.Losses, m.Lossy, a.Lost)
	}
}

// lossFirst demands that the summary of a lossy run says so before everything else, and nowhere that nothing was lost.
func lossFirst(t *testing.T, stderr string) {
	t.Helper()
	for line := range strings.Lines(stderr) {
		if rest, ok := strings.CutPrefix(line, "llamatap  "); ok {
			if !strings.HasPrefix(rest, "LOST") || strings.Contains(stderr, "nothing lost") {
				t.Errorf("a loss is not the first thing that the summary says:\n%s", stderr)
			}
			return
		}
	}
	t.Errorf("no summary:\n%s", stderr)
}

// TestAccount: whatever a run loses, and why, its one account adds up to a whole capture of the same prompt, exactly.
func TestAccount(t *testing.T) {
	const tokens = 120
	tap := []string{"run", "--tap-preset", "balanced", "--tap-min-free", "0"}
	full := llamatap(t, slices.Concat(tap, generate(tokens))...).good(t)
	whole := recountRun(t, full.dirs[0])
	meta := metadata(t, full.dirs[0])
	checkAccount(t, &meta, whole, whole)
	if whole.Tokens["decode"] != tokens-1 || whole.Packets == 0 || strings.Contains(full.stderr, "LOST") {
		t.Fatalf("%+v\n%s", whole, full.stderr)
	}
	for _, c := range []struct {
		name, disk string
		args       []string
		cause      string // "": nothing may be lost
	}{
		{"a small pool", "", []string{"--tap-memory", "8M"}, ""},
		{"a small pool that drops", "", []string{"--tap-memory", "8M", "--tap-overflow", "drop",
			"--tap-codec", "zstd-shuffle"}, "pool_full"},
		{"segments", "", []string{"--tap-segment", "200K"}, ""},
		{"a full disk", "2m", nil, "disk_full"},
		{"a full disk and segments", "2m", []string{"--tap-segment", "200K"}, "disk_full"},
		{"a full disk and a small pool", "1500k", []string{"--tap-memory", "8M"}, "disk_full"},
		{"a bound of the disk", "", []string{"--tap-max-disk", "4M:stop", "--tap-codec", "none", "--tap-dtype", "f32"},
			"max_disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			if c.disk != "" {
				out = smallDisk(t, c.disk)
			}
			o := llamatapIn(t, out, slices.Concat(tap, c.args, generate(tokens))...)
			if len(o.dirs) != 1 || o.stdout != full.stdout {
				t.Fatalf("%d runs, text %q\n%s", len(o.dirs), o.stdout, o.stderr)
			}
			m := metadata(t, o.dirs[0])
			checkAccount(t, &m, recountRun(t, o.dirs[0]), whole)
			status := 0
			if c.cause != "" && c.cause != "max_disk" { // a bound that was asked for is no failure
				status = 3
			}
			if c.cause != "" {
				lossFirst(t, o.stderr)
			}
			if lossy := len(m.Losses) > 0; o.status != status || lossy != (c.cause != "") ||
				lossy && m.Losses[0].Cause != c.cause {
				t.Errorf("status %d, want %d; losses %+v, want %q", o.status, status, m.Losses, c.cause)
			}
		})
	}
}

// TestEventsOfAFullDisk: events count for the bound of the disk, and a run whose events stop there names the tokens
// that have none, for nobody counts events that were never made.
func TestEventsOfAFullDisk(t *testing.T) {
	testenv.Slow(t)
	const tokens, bound = 300, 6 << 20 // of some 43 MB of events
	tap := []string{"run", "--tap-resource-level", "VERBOSE", "--tap-host", "system", "--tap-host-interval", "50ms",
		"--tap-max-disk", "6M:stop"}
	o := llamatap(t, slices.Concat(tap, generate(tokens))...)
	if len(o.dirs) != 1 || o.status != 0 { // a bound that was asked for is no failure
		t.Fatalf("%d runs, status %d\n%s", len(o.dirs), o.status, o.stderr)
	}
	lossFirst(t, o.stderr)
	if n := bytesBelow(o.dirs[0]); n > bound || n < bound/4 {
		t.Errorf("%d bytes, %d are allowed", n, bound)
	}
	with := int64(0)
	for _, e := range eventsOf(t, filepath.Join(o.dirs[0], "resource.jsonl")) {
		if graph, ok := e.(*resource.Graph); ok {
			with += int64(graph.Tokens)
		}
	}
	m := metadata(t, o.dirs[0])
	computed := m.Tokens.Prompt + m.Tokens.Generated
	// Executions that are set-up have events, too.
	if after := m.Account.Events.TokensAfter; with == 0 || after <= 0 || with+after < computed ||
		with+after > computed+m.Tokens.Setup {
		t.Errorf("%d tokens have events, %d have none, and %d were computed\n%s", with, after, computed, o.stderr)
	}
}

// TestAccountOfARemovedRun: a run whose directory is taken away while it is recorded has lost everything, and says so.
func TestAccountOfARemovedRun(t *testing.T) {
	for _, segment := range testenv.ByDay([]string{"200K", "0"}, 1) {
		out := t.TempDir()
		args := slices.Concat([]string{"run", "--tap-preset", "balanced", "--tap-segment", segment}, generate(400),
			[]string{"-c", "512"})
		if segment == "0" {
			args = slices.Delete(args, 3, 5)
		}
		cmd := command(t, args...)
		removed := make(chan error, 1)
		ended := make(chan bool)
		go func() {
			for ; ; time.Sleep(time.Millisecond) {
				if found, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "control.sock")); len(found) > 0 {
					err := os.RemoveAll(filepath.Dir(found[0]))
					for errors.Is(err, syscall.ENOTEMPTY) { // a file was made in it meanwhile
						err = os.RemoveAll(filepath.Dir(found[0]))
					}
					removed <- err
					return
				}
				select {
				case <-ended:
					removed <- errors.New("the run ended before its directory was seen")
					return
				default:
				}
			}
		}()
		o := finish(t, cmd, out)
		close(ended)
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		if o.status != 3 {
			t.Errorf("status %d\n%s", o.status, o.stderr)
		}
		lossFirst(t, o.stderr)
	}
}

// TestAccountOfAWrittenSetup: where memory is too small to hold a warm-up back, it is in the stream. Neither the
// summary nor inspect counts it.
func TestAccountOfAWrittenSetup(t *testing.T) {
	model := filepath.Join(t.TempDir(), "layers.gguf")
	llamatap(t, "synth", "-o", model, "--params", "6m", "--layers", "32").good(t)
	o := llamatap(t, "run", "-m", model, "--tap-memory", "8MiB", "--tap-tensors", "*", "-fa", "off", "-t", "1",
		"-p", "func main() {", "-n", "4", "--ignore-eos").good(t)
	setup, run := 0, 0
	for _, p := range o.capture(t).packets {
		if p.Phase == ggmlhooks.PhaseSetup {
			setup++
		} else {
			run++
		}
	}
	if setup == 0 || run == 0 {
		t.Fatalf("%d packets of set-up and %d of the run are in the stream: nothing of this test holds", setup, run)
	}
	for what, printed := range map[string]string{fmt.Sprintf("captured  %d tensors", run): o.stderr,
		fmt.Sprintf("packets   %d\n", run): llamatap(t, "inspect", o.dirs[0]).good(t).stdout} {
		if !strings.Contains(printed, what) {
			t.Errorf("no %q in\n%.600s", what, printed)
		}
	}
}

// TestOneOverhead: the summary, metadata.json, inspect and resource summary print one figure of what the recording
// cost.
func TestOneOverhead(t *testing.T) {
	o := llamatap(t, slices.Concat([]string{"run", "--tap-tensors", "l_out", "--tap-device-memory", "0",
		"--tap-resource-level", "MINIMAL"},
		generate(20))...).good(t)
	m := metadata(t, o.dirs[0])
	if m.Account == nil {
		t.Fatalf("metadata.json has no account\n%s", o.stderr)
	}
	text := present.Overhead(m.Account)
	share, ok := m.Account.Time.Overhead()
	begins := fmt.Sprintf("at least %.2f %%", 100*share) // the collector had no time to look between two graphs
	if most, ok := m.Account.Time.OverheadMost(); ok {
		begins = fmt.Sprintf("%.2f to %.2f %%", 100*share, 100*most)
	}
	if !ok || share <= 0 || share >= 1 || m.Account.Time.Tokens != m.Tokens.Prompt+m.Tokens.Generated ||
		!strings.HasPrefix(text, begins) {
		t.Errorf("%q of %+v", text, m.Account.Time)
	}
	if n := m.Account.Captured.Packets; m.Account.Time.Cuts != int64(n) || m.Account.Time.CutNS <= 0 {
		t.Errorf("%d tensors were captured, in %d cuts of %d ns", n, m.Account.Time.Cuts, m.Account.Time.CutNS)
	}
	for what, printed := range map[string]string{
		"the summary": o.stderr, "inspect": llamatap(t, "inspect", o.dirs[0]).good(t).stdout,
		"resource summary": llamatap(t, "resource", "summary", o.dirs[0]).good(t).stdout,
	} {
		if !strings.Contains(printed, text) {
			t.Errorf("%s does not print %q:\n%s", what, text, printed)
		}
	}
}

// TestWaitsBeforeTheRun: a search for written pages holds the model up at each graph, and longest behind the warm-up.
// That is no part of the run, whose overhead is less than all of it.
func TestWaitsBeforeTheRun(t *testing.T) {
	testenv.NeedRoot(t)
	o := llamatap(t, append([]string{"run", "--tap-samples", "faults,pages"}, generate(1)...)...).good(t)
	a := metadata(t, o.dirs[0]).Account
	if a == nil {
		t.Fatalf("metadata.json has no account\n%s", o.stderr)
	}
	if share, ok := a.Time.Overhead(); !ok || share >= 1 || a.Time.WaitNS <= 0 || a.Setup.WaitNS <= 0 {
		t.Errorf("%v of the run, %+v; before it %+v", share, a.Time, a.Setup)
	}
}

// TestLostEventsAreLoss: events over the rate that was asked for are missing: the summary says so first, the
// account counts them, and the status is 3.
func TestLostEventsAreLoss(t *testing.T) {
	o := llamatap(t, slices.Concat([]string{"run", "--tap-resource-level", "DETAILED", "--tap-resource-rate", "10"},
		generate(20))...)
	if len(o.dirs) != 1 || o.status != 3 {
		t.Fatalf("status %d of %d runs\n%s", o.status, len(o.dirs), o.stderr)
	}
	lossFirst(t, o.stderr)
	kinds, lost := map[string]int{}, uint64(0)
	data, err := os.ReadFile(filepath.Join(o.dirs[0], "resource.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var e struct {
			Event string
			Count uint64
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if kinds[e.Event]++; e.Event == "loss" {
			lost += e.Count
		}
	}
	m := metadata(t, o.dirs[0])
	if m.Account.Events == nil || lost == 0 || m.Account.Events.Lost["rate"] != lost ||
		m.Account.Events.Written != uint64(strings.Count(string(data), "\n")) {
		t.Errorf("%d events are lost in the log of %v, and the account has %+v", lost, kinds, m.Account.Events)
	}
}

// TestOverheadOfShortRuns: in a run of two tokens most of what the tap does lies before the first graph's entry and
// behind the last one's end. The time that it is a share of has it, too.
func TestOverheadOfShortRuns(t *testing.T) {
	for range 3 {
		o := llamatap(t, "run", "--tap-tensors", "*", "-p", "func", "-n", "2", "-t", "1").good(t)
		a := metadata(t, o.dirs[0]).Account.Time
		if share, ok := a.Overhead(); !ok || share >= 1 || a.LostNS() > a.WallNS {
			t.Errorf("%d of %d ns were lost", a.LostNS(), a.WallNS)
		}
	}
}
