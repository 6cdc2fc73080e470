package sched

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// A job is a started testdata/work.c.
type job struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	begin []worker // its threads, as they reported themselves
	rest  []worker
	more  map[string]int
}

// A worker is a thread of a job, with its getrusage figures.
type worker struct {
	kind                                 string
	tid                                  int
	minor, major, voluntary, involuntary int64
}

// program is testdata/work.c, compiled by the first test that needs it.
var program struct {
	once sync.Once
	name string
	err  error
}

// built returns the path of the compiled testdata/work.c.
func built(t testing.TB) string {
	t.Helper()
	compiler := testenv.NeedCC(t)
	program.once.Do(func() {
		program.name = filepath.Join(scratch, "work")
		cc := exec.Command(compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program.name,
			"testdata/work.c", "-pthread")
		if out, err := cc.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.name
}

// scratch is a folder of all tests.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "llamatap-sched-"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(scratch)
	os.Exit(status)
}

// started starts a job and waits until its threads wait for work.
func started(t testing.TB, threads int, args ...string) *job {
	t.Helper()
	j := &job{t: t, cmd: exec.Command(built(t), args...), more: map[string]int{}}
	j.cmd.Stderr = os.Stderr
	var err error
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.out = bufio.NewScanner(out)
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		j.in.Close()
		if err := j.cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	for len(j.begin) < threads {
		j.line()
	}
	for _, w := range j.begin {
		j.sleeps(w.tid)
	}
	return j
}

// line reads one line of the job and returns its first word.
func (j *job) line() string {
	j.t.Helper()
	if !j.out.Scan() {
		j.t.Fatalf("the job has ended: %v", j.out.Err())
	}
	f := strings.Fields(j.out.Text())
	var w worker
	switch f[0] {
	case "begin", "rest":
		if _, err := fmt.Sscan(strings.Join(f[1:], " "), &w.kind, &w.tid, &w.minor, &w.major, &w.voluntary,
			&w.involuntary); err != nil {
			j.t.Fatalf("%q: %v", j.out.Text(), err)
		}
		if f[0] == "begin" {
			j.begin = append(j.begin, w)
		} else {
			j.rest = append(j.rest, w)
		}
	case "started":
		var n int
		fmt.Sscan(f[1], &n)
		j.more["started"] = n
	}
	return f[0]
}

// sleeps waits until a thread sleeps.
func (j *job) sleeps(tid int) {
	j.t.Helper()
	for range 10000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", j.cmd.Process.Pid, tid))
		if err != nil {
			j.t.Fatal(err)
		}
		s, err := resource.ParseStat(text)
		if err != nil {
			j.t.Fatal(err)
		}
		if s.State == 'S' {
			return
		}
		time.Sleep(time.Millisecond)
	}
	j.t.Fatalf("thread %d does not come to rest", tid)
}

// send writes a command to the job.
func (j *job) send(command string) {
	j.t.Helper()
	if _, err := io.WriteString(j.in, command); err != nil {
		j.t.Fatal(err)
	}
}

// stop ends the work and waits until all threads rest.
func (j *job) stop() {
	j.t.Helper()
	j.send("s")
	j.rested()
	for _, w := range j.begin {
		j.sleeps(w.tid)
	}
}

func (j *job) rested() {
	j.t.Helper()
	for j.line() != "rested" {
	}
}

// at returns a figure that a thread reported in one of its lists.
func at(t *testing.T, all []worker, tid int) worker {
	t.Helper()
	i := slices.IndexFunc(all, func(w worker) bool { return w.tid == tid })
	if i < 0 {
		t.Fatalf("thread %d reported nothing", tid)
	}
	return all[i]
}

// schedstat reads how long a thread has computed and waited for a processor, in ns.
func (j *job) schedstat(tid int) (run, wait int64) {
	j.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", j.cmd.Process.Pid, tid))
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &run, &wait); err != nil {
		j.t.Fatal(err)
	}
	return run, wait
}

// opened opens a collector of the job's process.
func opened(t testing.TB, o Options) *Collector {
	t.Helper()
	o.Interval = time.Second
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	want := resource.OriginBPF
	switch {
	case o.Poll:
		want = resource.OriginProc
	case o.Plain:
		want = resource.OriginPlain
	}
	if c.Origin() != want {
		t.Fatalf("figures come from %s, want %s: %v", c.Origin(), want, c.Missing())
	}
	return c
}

func (j *job) target() bpf.Target { return bpf.Target{PIDs: []int{j.cmd.Process.Pid}} }

// snap takes a snapshot.
func snap(t *testing.T, c *Collector) *resource.SystemLine {
	t.Helper()
	said, err := c.Snapshot(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	line := bpf.LineOf(said).(resource.SystemLine)
	for _, th := range line.Threads {
		if th.LivedNS > int64(line.ActualS*1e9+1) || th.LivedNS < 0 {
			t.Errorf("thread %d (%s) lived %d ns of an interval of %v s", th.TID, th.Comm, th.LivedNS, line.ActualS)
		}
		if th.Comm == "" {
			t.Errorf("thread %d has no name: %+v", th.TID, th)
		}
	}
	return &line
}

// thread returns a thread of a line.
func thread(t *testing.T, line *resource.SystemLine, tid int) *resource.ThreadLine {
	t.Helper()
	for i := range line.Threads {
		if line.Threads[i].TID == tid {
			return &line.Threads[i]
		}
	}
	t.Fatalf("thread %d is not in the line", tid)
	return nil
}
