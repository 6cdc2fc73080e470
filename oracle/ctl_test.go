//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
)

// A live run goes on in the background.
type live struct {
	cmd            *exec.Cmd
	out            string
	stdout, stderr bytes.Buffer
}

// alive starts "llamatap run" of a long text with the tap off and returns when it takes commands.
func alive(t *testing.T, tap ...string) *live {
	t.Helper()
	l := &live{out: t.TempDir()}
	args := append([]string{"run", "--tap-out", l.out}, tap...)
	l.cmd = exec.Command(testenv.NeedBinary(t), append(args, forever...)...)
	l.cmd.Stdout, l.cmd.Stderr = &l.stdout, &l.stderr
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a collector that is killed leaves a model that goes on for ever
		if l.cmd.ProcessState == nil {
			l.cmd.Process.Signal(syscall.SIGCONT)
			l.cmd.Process.Signal(syscall.SIGTERM)
			l.cmd.Wait()
		}
	})
	takesCommands(t, l.out)
	return l
}

// takesCommands waits until the run below out does: the collector makes its directory when it learns of the first
// context.
func takesCommands(t *testing.T, out string) {
	t.Helper()
	testenv.Until(t, "the run takes commands", func() bool {
		sockets, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "control.sock"))
		return len(sockets) == 1
	})
}

// forever is what to generate where a test ends the run: a machine that stalls gets no command in too late.
var forever = generated(100_000_000)

func generated(tokens int) []string {
	return []string{"-p", prompt, "-n", strconv.Itoa(tokens), "-c", "512", "--context-shift", "--ignore-eos", "-t", "1",
		"--temp", "0"}
}

// A ctlAnswer is what ctl --json prints.
type ctlAnswer struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error"`
	Status struct {
		Run     string  `json:"run"`
		State   string  `json:"state"`
		Left    *int64  `json:"tokens_left"`
		First   *uint64 `json:"first_exec"`
		Execs   uint64  `json:"executions"`
		Packets uint64  `json:"packets"`
		Level   string  `json:"level"`

		PoolUsed   int64 `json:"pool_bytes_used"`
		Goroutines int   `json:"goroutines"`

		Requests kvcache.RequestsNow `json:"requests"`

		Steering  rundir.Steering   `json:"steering"`
		Sequences []rundir.Steering `json:"steered_sequences"`
	} `json:"status"`
}

// ctl gives the run below out a command, which must succeed.
func ctl(t *testing.T, out string, args ...string) ctlAnswer {
	t.Helper()
	cmd := command(t, append([]string{"ctl", out}, append(args, "--json")...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var a ctlAnswer
	if err == nil {
		err = json.Unmarshal(stdout.Bytes(), &a)
	}
	if err != nil || !a.OK {
		t.Fatalf("ctl %q: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	return a
}

// terminate ends the run and opens what it recorded.
func (l *live) terminate(t *testing.T) *capture {
	t.Helper()
	// a collector leaves SIGINT to its terminal's other processes
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.cmd.Wait()
	return outcome{l.cmd.Args, l.stdout.String(), l.stderr.String(), l.cmd.ProcessState.ExitCode(),
		runDirs(t, l.out)}.capture(t).sealed(t)
}

// TestCtl taps a run that was started with the tap off, for exactly 20 tokens, without changing its text.
func TestCtl(t *testing.T) {
	plain, err := exec.Command(testenv.NeedBinary(t), append([]string{"run"}, generated(600)...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, chosen := range testenv.ByDay([][]string{{"l_out*"}, {"points", "resid_post"}}, 1) {
		ctlWindow(t, chosen, string(plain))
	}
}

// ctlWindow captures 20 tokens of the residual stream, named in one of the ways, of a run that captures nothing.
func ctlWindow(t *testing.T, chosen []string, plain string) {
	t.Helper()
	l := alive(t, append([]string{"--tap-start", "off"}, exact...)...)
	if o := llamatap(t, "ctl", l.out, "steer", "off"); o.status == 0 ||
		!strings.Contains(o.stderr, "--tap-steer armed") {
		t.Errorf("a run that is not armed was steered: %s", o.stderr)
	}
	for _, wrong := range []string{"attn_gate", "resid_pots"} {
		if o := llamatap(t, "ctl", l.out, "tap", "points", wrong); o.status == 0 || !strings.Contains(o.stderr, wrong) {
			t.Errorf("a point that is not there, %s: %s", wrong, o.stderr)
		}
	}
	ctl(t, l.out, slices.Concat([]string{"tap"}, chosen, []string{"for", "20", "tokens"})...)
	log := filepath.Join(runDirs(t, l.out)[0], rundir.ControlName)
	testenv.Until(t, "the 20 tokens are recorded", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), `"event":"done"`)
	})
	c := l.terminate(t)
	got, want := l.stdout.String(), strings.TrimSuffix(plain, "\n")
	if n := min(len(got)-1, len(want)); n < 1 || got[:n] != want[:n] {
		t.Errorf("the text differs from that of the run without the tap:\n%.300q\n%.300q", got, want)
	}
	m := c.meta
	if len(m.Changes) != 1 || m.Changes[0].Command != "tap" || m.Changes[0].FirstExec == nil ||
		m.Changes[0].DoneExec == nil {
		t.Fatalf("changes: %+v", m.Changes)
	}
	wantWindow(t, c, *m.Changes[0].FirstExec, 20)
	text, err := os.ReadFile(log)
	if err != nil || strings.Count(string(text), "\n") != 3 || !strings.Contains(string(text), `"event":"done"`) {
		t.Errorf("%s: %v\n%s", rundir.ControlName, err, text)
	}
	if points := string(m.Extra["points"]); chosen[0] == "points" &&
		strings.Count(points, `"resid_post"`) != m.Model.NLayer {
		t.Errorf("points of the metadata: %s", points)
	}
}

// TestLevelInWindow: another level of resource events, while tokens are captured and after, captures none more.
func TestLevelInWindow(t *testing.T) {
	l := alive(t, append([]string{"--tap-start", "off", "--tap-resource-level", "MINIMAL"}, exact...)...)
	ctl(t, l.out, "tap", "l_out*", "for", "20", "tokens")
	for _, level := range []string{"VERBOSE", "DETAILED", "MINIMAL"} {
		ctl(t, l.out, "level", level)
		before := ctl(t, l.out, "status").Status.Execs
		testenv.Until(t, "more is computed",
			func() bool { return ctl(t, l.out, "status").Status.Execs > before+30 })
	}
	c := l.terminate(t)
	tapped := c.meta.Changes[0]
	wantWindow(t, c, *tapped.FirstExec, 20)
	if last := c.packets[len(c.packets)-1].Exec; tapped.DoneExec == nil || *tapped.DoneExec != last {
		t.Errorf("the tap was done with %v, execution %d is the last one", tapped.DoneExec, last)
	}
}

// wantWindow demands l_out of every layer, for n tokens that follow each other, from an execution on.
func wantWindow(t *testing.T, c *capture, first uint64, n int) {
	t.Helper()
	rows := map[int32][]int64{}
	for i := range c.packets {
		p := &c.packets[i]
		if p.Node[:6] != "l_out-" || p.Exec < first {
			t.Fatalf("%s of execution %d was captured", p.Name, p.Exec)
		}
		for k := range int64(p.TokenCount) {
			rows[p.Layer] = append(rows[p.Layer], p.TokenFirst+k)
		}
	}
	if len(rows) != c.meta.Model.NLayer {
		t.Errorf("%d layers, the model has %d", len(rows), c.meta.Model.NLayer)
	}
	outputs := outputRows(c)
	for layer, tokens := range rows {
		want := window(tokens[0], n)
		// behind the last layer's attention only rows that have a result go on
		if layer == int32(c.meta.Model.NLayer)-1 {
			want = slices.DeleteFunc(window(rows[0][0], n), func(i int64) bool { return !outputs[i] })
		}
		if !slices.Equal(tokens, want) {
			t.Errorf("layer %d: tokens %v, want %v", layer, tokens, want)
		}
	}
}

func window(first int64, n int) (tokens []int64) {
	for i := range int64(n) {
		tokens = append(tokens, first+i)
	}
	return tokens
}

// outputRows are the tokens whose logits were computed.
func outputRows(c *capture) map[int64]bool {
	rows := map[int64]bool{}
	for _, e := range c.execs() {
		for _, row := range e.Rows {
			rows[row.Index] = row.Output
		}
	}
	return rows
}

// TestCtlOfServer gives a server every command between requests, and seals its run while it goes on.
func TestCtlOfServer(t *testing.T) {
	s := serve(t, append([]string{"--tap-tensors", "l_out"}, exact...), "-np", "1", "-c", "512", "-t", "1",
		"--no-webui")
	var texts []string
	ask := func() {
		var a completionAnswer
		s.post(t, "/completion", map[string]any{"prompt": "func main() {", "n_predict": 12, "temperature": 0,
			"cache_prompt": false, "ignore_eos": true}, &a)
		texts = append(texts, a.Content)
	}
	read := func(is func(ctlAnswer) bool) (now ctlAnswer) { // once the collector has read what was computed
		testenv.Until(t, "the status is that after the answer", func() bool {
			now = ctl(t, s.out, "status")
			return is(now)
		})
		return now
	}
	hasBegun := func(now ctlAnswer) bool { return now.Status.First != nil }
	ask()
	takesCommands(t, s.out)
	ctl(t, s.out, "off")
	ask()
	off := read(hasBegun).Status
	ctl(t, s.out, "off")
	ctl(t, s.out, "on") // the off before never comes into effect
	ask()
	on := read(hasBegun).Status
	ctl(t, s.out, "tap", "ffn_out", "layers", "1", "for", "3", "tokens")
	ask()
	tapped := read(func(now ctlAnswer) bool { return now.Status.State == "done" }).Status
	if off.State != "off" || on.State != "start" || tapped.State != "done" || off.First == nil || on.First == nil ||
		tapped.First == nil || *tapped.Left != 0 {
		t.Fatalf("states: %+v, %+v, %+v", off, on, tapped)
	}
	dir := tapped.Run
	refused, err := command(t, "ctl", dir, "tap", "no_such_tensor").CombinedOutput()
	if err == nil || !oneLine(string(refused), `"no_such_tensor" matches no node of this model; these names exist: `) {
		t.Errorf("an unknown name: %v\n%s", err, refused)
	}
	ctl(t, dir, "flush")
	shown, err := command(t, "inspect", dir, "--json").CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "ffn_out") {
		t.Errorf("inspect while it runs: %v\n%s", err, shown)
	}
	ctl(t, dir, "stop")
	if _, err := os.Stat(filepath.Join(dir, rundir.ManifestName)); err != nil {
		t.Errorf("not sealed by stop: %v", err)
	}
	late, err := command(t, "ctl", dir, "status").CombinedOutput()
	if err == nil || !oneLine(string(late), "the run has ended, and is sealed") {
		t.Errorf("of a sealed run: %v\n%s", err, late)
	}
	ask()
	if len(slices.Compact(texts)) != 1 || texts[0] == "" {
		t.Errorf("texts differ: %q", texts)
	}
	c := s.end(t).sealed(t)
	rows := 0
	for i := range c.packets {
		p := &c.packets[i]
		switch {
		case p.Exec < *off.First && strings.HasPrefix(p.Name, "l_out-"), p.Exec >= *on.First &&
			p.Exec < *tapped.First && strings.HasPrefix(p.Name, "l_out-"):
		case p.Exec >= *tapped.First && p.Name == "ffn_out-1":
			rows += int(p.TokenCount)
		default:
			t.Fatalf("%s of execution %d was captured", p.Name, p.Exec)
		}
	}
	if rows != 3 {
		t.Errorf("%d rows of ffn_out-1, not 3", rows)
	}
	if m := c.meta; m.Exit != nil || m.Lossy || len(m.Changes) != 6 || m.Changes[1].FirstExec != nil ||
		m.Changes[5].Command != "stop" {
		t.Errorf("exit %+v, losses %v, changes %+v", m.Exit, m.Losses, m.Changes)
	}
}
