//go:build linux

package prof_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

// workload compiles testdata/workload.c, once for all tests.
func workload(t testing.TB) string {
	t.Helper()
	cc := testenv.NeedCC(t)
	program := filepath.Join(scratch, "workload")
	build.Do(func() {
		out, err := exec.Command(cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
			"testdata/workload.c").CombinedOutput()
		if err != nil {
			buildErr = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return program
}

var (
	build    sync.Once
	buildErr error
	scratch  string // of all tests, see TestMain
)

// A work is a workload that continues from one stop to the next on command.
type work struct {
	t   testing.TB
	cmd *exec.Cmd
	out bytes.Buffer
}

// A line is what a workload says of one call.
type line struct{ calls, bytes, errors uint64 }

// start starts a workload, up to the stop before its work.
func start(t testing.TB, args ...string) *work {
	t.Helper()
	w := &work{t: t, cmd: exec.Command(workload(t), args...)}
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if w.cmd.ProcessState == nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
	})
	w.stopped()
	return w
}

func (w *work) pid() int { return w.cmd.Process.Pid }

// stopped waits until the workload has stopped itself.
func (w *work) stopped() {
	w.t.Helper()
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(w.pid(), &status, unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			w.t.Fatalf("workload: %v, status %#x: %s", err, status, w.out.String())
		}
		return
	}
}

// resume lets it go on.
func (w *work) resume() {
	w.t.Helper()
	if err := unix.Kill(w.pid(), unix.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
}

// work lets it do its work, up to the stop after it.
func (w *work) work() {
	w.t.Helper()
	w.resume()
	w.stopped()
}

// kill ends it wherever it is.
func (w *work) kill() {
	w.t.Helper()
	if err := w.cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	_ = w.cmd.Wait() // says that it was killed
}

// end lets it print its tally and end.
func (w *work) end() map[string]line {
	w.t.Helper()
	w.resume()
	if err := w.cmd.Wait(); err != nil {
		w.t.Fatalf("workload: %v: %s", err, w.out.String())
	}
	said := map[string]line{}
	for s := bufio.NewScanner(&w.out); s.Scan(); {
		var name string
		var l line
		if _, err := fmt.Sscan(s.Text(), &name, &l.calls, &l.bytes, &l.errors); err != nil {
			w.t.Fatalf("workload said %q: %v", s.Text(), err)
		}
		said[name] = l
	}
	return said
}

// open opens a collector and closes it with the test.
func open(t testing.TB, o prof.Options) *prof.Collector {
	t.Helper()
	testenv.NeedBPF(t)
	c, err := prof.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// of is a target of one process.
func of(w *work) bpf.Target { return bpf.Target{PIDs: []int{w.pid()}} }

// events are those of a snapshot.
type events []resource.ProfEvent

func snapshot(t testing.TB, c *prof.Collector) events {
	t.Helper()
	said, err := c.Snapshot(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bpf.LineOf(said).([]resource.ProfEvent)
}

// calls are the events of system calls, by name and, of futex, operation.
func (all events) calls() map[string]*resource.ProfSyscall {
	by := map[string]*resource.ProfSyscall{}
	for _, e := range all {
		if s, ok := e.(*resource.ProfSyscall); ok {
			name := s.Syscall
			if s.Op != "" {
				name += " " + s.Op
			}
			by[name] = s
		}
	}
	return by
}

// nets are the events of traffic, by process.
func (all events) nets() map[int]*resource.ProfNet {
	by := map[int]*resource.ProfNet{}
	for _, e := range all {
		if n, ok := e.(*resource.ProfNet); ok {
			by[n.PID] = n
		}
	}
	return by
}

// noLosses checks that everything was counted.
func noLosses(t testing.TB, c *prof.Collector) {
	t.Helper()
	if lost, err := c.Losses(); err != nil || len(lost) > 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
}
