//go:build linux

package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// TestCollectorKilledFull kills the collector while the model waits for it with a full pool: the model goes on to
// its end, or is ended, as --tap-on-failure says. It never hangs.
func TestCollectorKilledFull(t *testing.T) {
	testenv.Slow(t)
	program, backends := testenv.Greedy(t, false)
	const tokens = "120"
	want := plain(t, program, testenv.Model(t), backends, tokens).stdout
	for _, then := range []string{"continue", "stop"} {
		t.Run(then, func(t *testing.T) {
			tap := append([]string{"exec", "--tap-memory", "8M", "--tap-on-failure", then}, everything...)
			g := begin(t, append(tap, "--", program, testenv.Model(t), backends, tokens)...)
			model := g.model(t)
			unix.Kill(g.cmd.Process.Pid, unix.SIGSTOP)
			g.untilFull(t, "T")
			unix.Kill(g.cmd.Process.Pid, unix.SIGKILL)
			g.untilGone(t, model)
			if whole := g.stdout.String() == want; whole != (then == "continue") {
				t.Errorf("prints all of its output: %v\n%s", whole, g.stderr.String())
			}
			if ended := strings.Contains(g.stderr.String(), "ending this program"); ended != (then == "stop") {
				t.Errorf("the end is reported: %v\n%s", ended, g.stderr.String())
			}
		})
	}
}

// untilGone waits for the end of a model whose collector was killed.
func (g *going) untilGone(t *testing.T, model int) {
	t.Helper()
	testenv.Until(t, "the model has ended without its collector",
		func() bool { return errors.Is(unix.Kill(model, 0), unix.ESRCH) })
	g.wait(t)
}

// untilFull waits until the model waits for room that a collector in this state (proc(5): T is stopped, S sleeps) does
// not make: at ten looks in a row some thread of it does.
func (g *going) untilFull(t *testing.T, collector string) {
	t.Helper()
	const waiting = 9 // its place in tap.Layout
	layout := tap.Layout()
	if layout == nil {
		testenv.Beyond(t, "tests built with llama.cpp", "the layout of the tap is not known")
	}
	at := int64(layout[waiting])
	memory := g.sharedMemory(t)
	defer memory.Close()
	looks := 0
	testenv.Until(t, "the model waits for its collector", func() bool {
		var n [4]byte
		if _, err := memory.ReadAt(n[:], at); err != nil {
			t.Fatal(err)
		}
		if looks++; binary.NativeEndian.Uint32(n[:]) == 0 || state(t, g.cmd.Process.Pid) != collector {
			looks = 0
		}
		return looks == 10
	})
}

// sharedMemory opens what a collector shares with its model.
func (g *going) sharedMemory(t *testing.T) *os.File {
	t.Helper()
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", g.cmd.Process.Pid))
	for _, path := range descriptors {
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "/memfd:") {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatalf("none of the descriptors %q is the shared memory", descriptors)
	return nil
}

// state is the state of a process's first thread, as in proc(5).
func state(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "State:\t")
	return after[:1]
}

// TestOutlived: a program that goes on after the one that llamatap started has ended is neither ended nor hurt.
func TestOutlived(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	want := plain(t, program, testenv.Model(t), backends, "100").stdout
	file := filepath.Join(t.TempDir(), "out")
	// The shell ends once something is recorded, which is long before the program does.
	script := fmt.Sprintf(`'%s' '%s' '%s' 100 >'%s' 2>/dev/null &
		until [ -n "$(ls -d "$LLAMATAP_OUT"/*/run_* 2>/dev/null)" ]; do sleep 0.02; done`,
		program, testenv.Model(t), backends, file)
	o := execOf(t, append([]string{"--tap-on-failure", "stop"}, everything...), "sh", "-c", script)
	if o.status != 0 || strings.Contains(o.stderr, "was killed") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
	testenv.Until(t, "the program has printed everything", func() bool {
		got, err := os.ReadFile(file)
		return err == nil && string(got) == want
	})
}

// TestTwoRunsAtOnce records two programs below one folder at once: two run directories, each whole.
func TestTwoRunsAtOnce(t *testing.T) {
	out := t.TempDir()
	var group sync.WaitGroup
	outcomes := make([]outcome, 4)
	for i := range outcomes {
		cmd := command(t, slices.Concat([]string{"run"}, residual, []string{"-p", prompt, "-n", fmt.Sprint(3 + i),
			"--temp", "0", "-t", "1"})...)
		group.Go(func() { outcomes[i] = finish(t, cmd, out) })
	}
	group.Wait()
	dirs := runDirs(t, out)
	if len(dirs) != len(outcomes) {
		t.Fatalf("%d run directories of %d runs", len(dirs), len(outcomes))
	}
	var generated []int
	for i := range outcomes {
		outcomes[i].good(t)
	}
	for _, dir := range dirs {
		c := outcome{args: outcomes[0].args, dirs: []string{dir}}.capture(t).sealed(t)
		generated = append(generated, len(c.ids("decode")))
	}
	slices.Sort(generated)
	if !slices.Equal(generated, []int{2, 3, 4, 5}) {
		t.Errorf("generated %v tokens", generated)
	}
}

// TestLimits: what a limit or a sandbox forbids is reported in one line that says what to do, and the program is not
// started.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		limit string
		words []string
	}{
		"open files":    {"ulimit -n 64", []string{"ulimit -n", "64 open files"}},
		"file size":     {"ulimit -f 1000", []string{"ulimit -f", "--tap-memory"}},
		"address space": {"ulimit -v 2000000", []string{"ulimit -v", "--tap-memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			cmd := exec.Command("bash", "-c", test.limit+` && exec "$@"`, "bash", testenv.NeedBinary(t), "exec",
				"--tap-layers", "1", "--tap-memory", "4G", "--", "echo", "started")
			o := finish(t, cmd, out)
			if o.status != 1 || o.stdout != "" || !oneLine(o.stderr, test.words...) ||
				!strings.HasPrefix(o.stderr, "llamatap: ") {
				t.Errorf("status %d, %q\n%s", o.status, o.stdout, o.stderr)
			}
		})
	}
}

// TestProgramLimited: a program with too little address space for the tap runs, and why nothing was recorded is
// printed: recorded.
func TestProgramLimited(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	want := plain(t, program, testenv.Model(t), backends, "3").stdout
	script := fmt.Sprintf("ulimit -v 700000 && exec '%s' '%s' '%s' 3", program, testenv.Model(t), backends)
	o := execOf(t, append([]string{"--tap-memory", "1G"}, residual...), "bash", "-c", script)
	if o.status != 3 || o.stdout != want || !oneLine(lastLine(o.stderr), "nothing was recorded", "ulimit -v",
		"--tap-memory") {
		t.Errorf("status %d, prints %q, want %q\n%s", o.status, o.stdout, want, o.stderr)
	}
}

// TestClosedDescriptors: a driver that closes what it does not know before it starts the program is reported.
func TestClosedDescriptors(t *testing.T) {
	program, backends := testenv.Greedy(t, false)
	script := fmt.Sprintf(`eval "exec ${LLAMATAP_TAP_FD%%,*}>&- ${LLAMATAP_TAP_FD#*,}>&-" && exec '%s' '%s' '%s' 3`,
		program, testenv.Model(t), backends)
	o := execOf(t, residual, "bash", "-c", script)
	if o.status != 3 || strings.Count(o.stdout, "\n") != 3 || !strings.Contains(o.stderr, "close_fds=False") ||
		len(o.dirs) != 0 {
		t.Errorf("status %d, prints %q\n%s", o.status, o.stdout, o.stderr)
	}
}

// TestNoMemfd: a sandbox that forbids memfd_create.
func TestNoMemfd(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^$")
	cmd.Env = append(os.Environ(), sandboxed+"="+testenv.NeedBinary(t))
	o := finish(t, cmd, filepath.Join(t.TempDir(), "out"))
	if o.status != 1 || o.stdout != "" || !oneLine(o.stderr, "memfd_create", "seccomp") {
		t.Errorf("status %d, %q\n%s", o.status, o.stdout, o.stderr)
	}
}

// sandboxed names the llamatap that this test's own binary shall become, without memfd_create.
const sandboxed = "LLAMATAP_TEST_SANDBOXED"

// enterSandbox forbids memfd_create to this process and becomes llamatap.
func enterSandbox(path string) {
	runtime.LockOSThread() // the filter is one thread's, until it becomes another program
	const allow, refuse = 0x7fff0000, 0x00050000 | uint32(unix.EPERM)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_MEMFD_CREATE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: refuse},
		{Code: unix.BPF_RET | unix.BPF_K, K: allow},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0,
		0); err != nil {
		panic(err)
	}
	panic(syscall.Exec(path, []string{path, "exec", "--tap-layers", "1", "--", "echo", "started"}, os.Environ()))
}
