//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// topRunning is a live run of this process, below a folder, with a token and what a terminal must not see.
func topRunning(t *testing.T, out string) (run *rundir.Dir, log io.WriteCloser) {
	t.Helper()
	run, err := rundir.Create(out, "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if log, err = run.Create(rundir.EventsName); err != nil {
		t.Fatal(err)
	}
	at := time.Now().UnixNano()
	for i, event := range []string{`"event":"resource_session_start","level":"VERBOSE"`,
		`"event":"compute_execution","exec":1,"layer_id":3,"component_type":"attention","operation":"ROPE",` +
			`"phase":"decode","time_source":"op","duration_ns":3000`,
		`"event":"output_token","exec":1,"token_text":"wörd \u001b[2J","seq_id":0`,
		`"event":"graph_execution","exec":1,"phase":"decode","tokens":1,"prefill_tokens":0,"decode_tokens":1,` +
			`"duration_ns":5000,"timed_ns":4000`} {
		fmt.Fprintf(log, "{%s,\"unix_ns\":%d,\"source\":\"measured\"}\n", event, at+int64(i))
	}
	t.Cleanup(func() { log.Close() })
	return run, log
}

// TestTopOnTerminal draws a live run, resizes, sorts, helps, and restores the terminal at q, Ctrl-C, a signal, and
// when the run is sealed, whose last state stays on the screen.
func TestTopOnTerminal(t *testing.T) {
	out := t.TempDir()
	run, log := topRunning(t, out)
	start := func() *testenv.Terminal {
		cmd := self("top", "--interval", "100ms")
		cmd.Env = append(cmd.Env, "LLAMATAP_OUT="+out, "TERM=xterm")
		term := testenv.OnTerminal(t, cmd)
		term.Await(enterScreen)
		term.Await("attention")
		return term
	}
	end := func(how string, term *testenv.Terminal) {
		t.Helper()
		status := term.Wait()
		if screen := term.Screen(); status.ExitStatus() != 0 || !term.Restored() ||
			!strings.Contains(screen, leaveScreen) ||
			strings.Contains(screen, "\x1b[2J") || !strings.Contains(screen, `wörd \u001b[2J`) {
			t.Errorf("%s: status %v, restored %v: %q", how, status, term.Restored(), screen)
		}
	}
	term := start()
	term.Resize(40, 120)
	term.Type("o")
	term.Await("ROPE")
	term.Await(strings.Repeat("█", 18)) // 60 % of a bar of 30 cells, which 80 columns have no room for
	term.Type("?")
	term.Await("any key returns")
	term.Type("l")
	term.Await("layer")
	term.Resize(1, 1)
	term.Resize(24, 80)
	term.Type("q")
	end("q", term)
	term = start()
	term.Type("\x03")
	end("Ctrl-C", term)
	term = start()
	syscall.Kill(term.PID(), syscall.SIGTERM)
	end("SIGTERM", term)
	term = start()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run.Seal(); err != nil {
		t.Fatal(err)
	}
	term.Await(leaveScreen)
	term.Await("This run is sealed. 'llamatap report " + run.Path() + "' reads it.")
	end("the seal", term)
}

// TestTopInLines writes a line, or an object, per interval to what is no terminal, and finds the live run by its
// directory, its name, its folder and its process.
func TestTopInLines(t *testing.T) {
	out := t.TempDir()
	if err := os.MkdirAll(filepath.Join(out, "m", "run_99990101_000000_aaaa"), 0o700); err != nil { // newer, not live
		t.Fatal(err)
	}
	run, _ := topRunning(t, out)
	for _, name := range []string{run.Path(), run.ID(), out, fmt.Sprint(os.Getpid()), ""} {
		cmd := self(strings.Fields("top --json --count 2 --interval 100ms " + name)...)
		cmd.Env = append(cmd.Env, "LLAMATAP_OUT="+out)
		text, err := cmd.Output()
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		var s resources.Snapshot
		if err != nil || len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &s) != nil || s.Run != run.ID() ||
			s.State != resources.StateRunning || s.Lines != 4 || s.Components[0].Name != "attention" {
			t.Errorf("%s: %v, %s", name, err, text)
		}
	}
	text, err := self("top", run.Path(), "--count", "1").Output()
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), "1 generated") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestTopOfNoLiveRun: a run that has ended is shown once; what is no run is an error that says what to give.
func TestTopOfNoLiveRun(t *testing.T) {
	out := t.TempDir()
	run, log := topRunning(t, out)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run.Seal(); err != nil {
		t.Fatal(err)
	}
	text, err := self("top", run.Path()).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "attention") ||
		!strings.HasSuffix(string(text), "This run is sealed. 'llamatap report "+run.Path()+"' reads it.\n") {
		t.Errorf("%v: %s", err, text)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "holiday.jpg"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LLAMATAP_OUT", foreign)
	refused(t, "top", 2, foreign+" | give a run directory")
	refused(t, "top "+foreign, 1, foreign+" | give a run directory")
	refused(t, "top "+t.TempDir(), 1, "give a run directory")
	refused(t, "top /nowhere", 1, "/nowhere | give a run directory")
	refused(t, "top 1", 1, "1: | give a run directory | process")
	refused(t, "top --interval 1ms", 2, "100ms")
	refused(t, "top --count -1", 2, "--count -1")
	refused(t, "top --by day", 2, "component, layer, op")
}
