//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// A going run is a llamatap that records and has not ended.
type going struct {
	cmd            *exec.Cmd
	out            string
	stdout, stderr bytes.Buffer
	exited         chan struct{}
}

// begin starts llamatap in a process group of its own and returns when it has recorded something.
func begin(t *testing.T, args ...string) *going {
	t.Helper()
	return beginBy(t, exec.Command(testenv.NeedBinary(t), args...))
}

// beginBy is begin with a command that becomes llamatap.
func beginBy(t *testing.T, cmd *exec.Cmd) *going {
	t.Helper()
	testenv.NeedPrograms(t, cmd.Args...)
	g := &going{cmd: cmd, out: t.TempDir(), exited: make(chan struct{})}
	g.cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+g.out)
	g.cmd.Stdout, g.cmd.Stderr = &g.stdout, &g.stderr
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g.cmd.WaitDelay = testenv.Patience() // a model that outlives its collector holds the pipes
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { g.cmd.Wait(); close(g.exited) }()
	t.Cleanup(func() {
		unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
		<-g.exited
	})
	for g.recorded(t) < 256<<10 {
		select {
		case <-g.exited:
			t.Fatalf("%q ended early: %v\n%s", cmd.Args, g.cmd.ProcessState, g.stderr.String())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return g
}

// recorded is the size of the stream so far, or of its first segment.
func (g *going) recorded(t *testing.T) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(g.out, "*", "run_*", "activations.stream"))
	if err == nil && len(files) == 0 {
		files, err = filepath.Glob(filepath.Join(g.out, "*", "run_*", "seg-00001", "activations.stream"))
	}
	if err != nil || len(files) > 1 {
		t.Fatal(files, err)
	}
	if len(files) == 0 {
		return 0
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// model is the process that llamatap started.
func (g *going) model(t *testing.T) int {
	t.Helper()
	children := g.children()
	if len(children) != 1 {
		t.Fatalf("llamatap has the children %v, want 1", children)
	}
	return children[0]
}

// children are the processes that llamatap has started.
func (g *going) children() []int { return childrenOf(g.cmd.Process.Pid) }

// childrenOf are the processes that a process has started.
func childrenOf(pid int) (pids []int) {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for _, text := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(text); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// wait returns how llamatap ended.
func (g *going) wait(t *testing.T) syscall.WaitStatus {
	t.Helper()
	select {
	case <-g.exited:
	case <-time.After(testenv.Patience()):
		t.Fatalf("%q hangs", g.cmd.Args)
	}
	return g.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// left opens what the run left, which must be sealed.
func (g *going) left(t *testing.T) *capture {
	t.Helper()
	c := outcome{args: g.cmd.Args, stderr: g.stderr.String(), dirs: runDirs(t, g.out)}.capture(t).sealed(t)
	if len(c.packets) == 0 || len(c.tokens) == 0 || c.meta.Lossy {
		t.Errorf("%d packets, %d tokens, lossy %v", len(c.packets), len(c.tokens), c.meta.Lossy)
	}
	return c
}

// endless generates until the context is full, which takes a while.
var endless = []string{"-p", "func main() {", "-n", "4000", "--temp", "0", "-t", "1", "-c", "8192", "--ignore-eos"}

func ofRun() []string { return slices.Concat([]string{"run"}, everything, endless) }

func ofExec(t *testing.T) []string {
	return slices.Concat([]string{"exec"}, everything, []string{"--", "llama-completion", "-no-cnv",
		"-m", testenv.Model(t)}, endless)
}

// interruptUntilGone sends what Ctrl-C sends, and again where the run does not end: two that a busy process sees at
// once are one.
func (g *going) interruptUntilGone(t *testing.T) {
	t.Helper()
	const apart = 5 * time.Second // more than a program that hangs is given
	for end := time.Now().Add(testenv.Patience()); ; {
		unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
		select {
		case <-g.exited:
			return
		case <-time.After(apart):
		}
		if time.Now().After(end) {
			t.Fatalf("%q cannot be interrupted", g.cmd.Args)
		}
	}
}

// taken waits until no process of the run has a signal to take, or all are gone.
func (g *going) taken(t *testing.T, s syscall.Signal) {
	t.Helper()
	processes := append(g.children(), g.cmd.Process.Pid)
	testenv.Until(t, s.String()+" is taken", func() bool {
		return !slices.ContainsFunc(processes, func(pid int) bool { return hasPending(pid, s) })
	})
}

// hasPending reports whether a signal waits for a process, or for one of its threads, to take it.
func hasPending(pid int, s syscall.Signal) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			if name != "SigPnd" && name != "ShdPnd" {
				continue
			}
			if mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && mask>>(s-1)&1 == 1 {
				return true
			}
		}
	}
	return false
}

// TestTapThread: the tap's own threads have a name, by which figures of the model's threads leave them out.
func TestTapThread(t *testing.T) {
	g := begin(t, ofRun()...)
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", g.model(t)))
	if err != nil || !slices.ContainsFunc(names, func(path string) bool {
		name, _ := os.ReadFile(path)
		return strings.TrimSpace(string(name)) == resource.TapThread
	}) {
		t.Errorf("%v: none of %d threads is %s", err, len(names), resource.TapThread)
	}
}

// TestInterrupt sends what Ctrl-C sends: SIGINT to the whole group.
func TestInterrupt(t *testing.T) {
	g := begin(t, ofRun()...)
	unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
	if status := g.wait(t); status.ExitStatus() != 130 {
		t.Errorf("ended with %v, want 130\n%s", g.cmd.ProcessState, g.stderr.String())
	}
	g.left(t)
}

// TestInterruptPrompt interrupts a prompt within a micro-batch: only those before it are computed, by every figure.
func TestInterruptPrompt(t *testing.T) {
	prompt := strings.Repeat("func main() { return } ", 400)
	g := begin(t, slices.Concat([]string{"run", "-p", prompt, "-n", "1", "-c", "8192", "-b", "4096", "-ub", "64", "-t",
		"1", "--tap-kv", "--tap-resource-level", "MINIMAL"}, everything)...)
	unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
	if status := g.wait(t); status.ExitStatus() != 130 {
		t.Fatalf("ended with %v, want 130\n%s", g.cmd.ProcessState, g.stderr.String())
	}
	c := g.left(t)
	printed := regexp.MustCompile(`prompt (\d+) tokens`).FindStringSubmatch(g.stderr.String())
	if printed == nil || printed[1] != strconv.Itoa(len(c.tokens)) || len(c.tokens)%64 != 0 {
		t.Errorf("the program printed %q, and %d tokens are recorded", printed, len(c.tokens))
	}
	if c.meta.Tokens.Prompt != int64(len(c.tokens)) || c.meta.Account.Time.Tokens != int64(len(c.tokens)) {
		t.Errorf("%d tokens are recorded, and metadata.json has %+v and %d", len(c.tokens), c.meta.Tokens,
			c.meta.Account.Time.Tokens)
	}
	used := fmt.Sprintf(`"used":%d,`, len(c.tokens))
	if out := llamatap(t, "kv", "--json", c.dir).good(t).stdout; !strings.Contains(out, used) {
		t.Errorf("%d tokens are recorded, and the cache holds others: %.600s", len(c.tokens), out)
	}
}

// TestInterruptTool is the same with llama-completion, whose handler of SIGINT logs: where the signal comes while
// it logs anyway, it waits for itself for ever, tapped or not. A second interrupt ends it then.
func TestInterruptTool(t *testing.T) {
	g := begin(t, ofExec(t)...)
	g.interruptUntilGone(t)
	if status := g.wait(t); status.ExitStatus() != 130 {
		t.Errorf("ended with %v, want 130\n%s", g.cmd.ProcessState, g.stderr.String())
	}
	g.left(t)
}

// TestInterruptTwice interrupts a front end twice at once, which often hangs in its own handler.
func TestInterruptTwice(t *testing.T) {
	for range map[bool]int{false: 1, true: 3}[testenv.Nightly()] {
		g := begin(t, slices.Concat([]string{"llama-completion", "-no-cnv", "-m", testenv.Model(t)}, endless,
			everything)...)
		unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
		g.taken(t, unix.SIGINT)
		g.interruptUntilGone(t)
		if status := g.wait(t); status.ExitStatus() != 130 {
			t.Errorf("ended with %v, want 130\n%s", g.cmd.ProcessState, g.stderr.String())
		}
		g.left(t)
	}
}

// TestIgnored: what the shell has a job ignore, as nohup does, is ignored by the model too.
func TestIgnored(t *testing.T) {
	args := append([]string{"-c", `trap '' HUP INT; exec "$0" "$@"`, testenv.NeedBinary(t), "llama-completion",
		"-no-cnv", "-m", testenv.Model(t)}, endless...)
	g := beginBy(t, exec.Command("sh", append(args, everything...)...))
	text, err := os.ReadFile("/proc/" + strconv.Itoa(g.model(t)) + "/status")
	if err != nil || !regexp.MustCompile(`(?m)^SigIgn:.*[13579bdf]$`).Match(text) { // HUP is the lowest bit
		t.Errorf("%v\n%s", err, text)
	}
	unix.Kill(-g.cmd.Process.Pid, unix.SIGHUP)
	g.taken(t, unix.SIGHUP)
	unix.Kill(g.cmd.Process.Pid, unix.SIGTERM)
	if status := g.wait(t); !status.Signaled() || status.Signal() != unix.SIGTERM {
		t.Errorf("ended with %v", g.cmd.ProcessState)
	}
	g.left(t)
}

// TestTerminate sends SIGTERM to the collector alone, which passes it on.
func TestTerminate(t *testing.T) {
	g := begin(t, ofExec(t)...)
	unix.Kill(g.cmd.Process.Pid, unix.SIGTERM)
	if status := g.wait(t); !status.Signaled() || status.Signal() != unix.SIGTERM {
		t.Errorf("ended with %v", g.cmd.ProcessState)
	}
	g.left(t)
}

// TestModelKilled: what the model published before SIGKILL is sealed, and llamatap ends as the model did.
func TestModelKilled(t *testing.T) {
	testenv.Slow(t)
	for name, args := range map[string][]string{"run": ofRun(), "exec": ofExec(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := begin(t, args...)
			unix.Kill(g.model(t), unix.SIGKILL)
			if status := g.wait(t); !status.Signaled() || status.Signal() != unix.SIGKILL {
				t.Errorf("ended with %v, want SIGKILL", g.cmd.ProcessState)
			}
			c := g.left(t)
			if c.meta.Exit == nil || c.meta.Exit.Signal != "SIGKILL" {
				t.Errorf("metadata says %+v", c.meta.Exit)
			}
			for i := range c.packets {
				if _, err := c.stream.Float32(&c.packets[i], nil); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestCollectorKilled: the model neither hangs nor crashes when its collector is gone, and what is on disk does not
// pass for a result. (Its index may be in the collector's memory still.)
func TestCollectorKilled(t *testing.T) {
	for name, args := range map[string][]string{"run": ofRun(), "exec": ofExec(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args = append(slices.Clone(args), "-n", "1500")
			g := begin(t, args...)
			model := g.model(t)
			unix.Kill(g.cmd.Process.Pid, unix.SIGKILL)
			g.untilGone(t, model)
			dirs := runDirs(t, g.out)
			if len(dirs) != 1 {
				t.Fatalf("%d directories", len(dirs))
			}
			if _, err := os.Stat(filepath.Join(dirs[0], "manifest.json")); err == nil {
				t.Error("the directory is sealed")
			}
			if o := llamatap(t, "verify", dirs[0]); o.status == 0 {
				t.Errorf("llamatap verify finds it good\n%s", o.stdout)
			}
			if o := llamatap(t, "inspect", dirs[0]); o.status != 0 && !oneLine(o.stderr, "truncated") {
				t.Errorf("llamatap inspect: status %d\n%s", o.status, o.stderr)
			}
		})
	}
}

// TestPointsOfLiveRun: a run says which tensors are which points while it is recorded, and so after its collector was
// killed.
func TestPointsOfLiveRun(t *testing.T) {
	g := begin(t, slices.Concat([]string{"run", "--tap-point", "resid_post"}, exact, endless)...)
	model := g.model(t)
	for _, when := range []string{"live", "killed"} {
		if when == "killed" {
			unix.Kill(g.cmd.Process.Pid, unix.SIGKILL)
			unix.Kill(model, unix.SIGKILL)
			g.untilGone(t, model)
		}
		dir := runDirs(t, g.out)[0]
		if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
			t.Fatalf("%s: the directory is sealed", when)
		}
		o := llamatap(t, "inspect", "--points", dir).good(t)
		if !strings.Contains(o.stdout, "resid_post") || !strings.Contains(o.stdout, "l_out") {
			t.Errorf("%s: %s", when, o.stdout)
		}
	}
}

// TestStoppedIsSeen: a recording that a bound of the disk has ended says so while the program goes on: in its metadata,
// to top and to Prometheus.
func TestStoppedIsSeen(t *testing.T) {
	g := begin(t, slices.Concat([]string{"run", "--tap-max-disk", "4M", "--tap-resource-level", "MINIMAL"}, everything,
		endless)...)
	dir := runDirs(t, g.out)[0]
	testenv.Until(t, "the recording has ended", func() bool {
		m, err := rundir.ReadMetadata(dir)
		if err != nil {
			t.Fatal(err)
		}
		return m.Stopped != nil && m.Stopped.Cause == "max_disk"
	})
	if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
		t.Fatal("the program has ended")
	}
	if o := llamatap(t, "top", "--count", "1", dir).good(t); !strings.Contains(o.stdout, "recording ended at ") {
		t.Errorf("top: %s", o.stdout)
	}
	s := show(t, "--live", g.out)
	if metrics := s.ask(t, "GET", "/metrics", ""); !strings.Contains(metrics, "llamatap_recording_stopped{") ||
		!strings.Contains(metrics, `cause="max_disk"`) {
		t.Errorf("metrics: %s", metrics)
	}
	g.interruptUntilGone(t)
}

// TestModelAborts: an abort is reported, and what was captured is sealed.
func TestModelAborts(t *testing.T) {
	g := begin(t, ofExec(t)...)
	unix.Kill(g.model(t), unix.SIGABRT)
	if status := g.wait(t); !status.Signaled() || status.Signal() != unix.SIGABRT {
		t.Errorf("ended with %v, want SIGABRT", g.cmd.ProcessState)
	}
	g.left(t)
}
