//go:build linux

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// caller is a running testdata/caller.c.
type caller struct {
	t   *testing.T
	pid int
	in  io.Writer
	out *bufio.Reader
}

// compile builds the program, statically.
func compile(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "caller")
	args := append([]string{"-O1", "-fcf-protection", "-static", "-o", path, "testdata/caller.c"}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func start(t *testing.T, path string) *caller {
	t.Helper()
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &caller{t, cmd.Process.Pid, in, bufio.NewReader(out)}
}

// say sends lines, and returns the answer to the last.
func (c *caller) say(lines ...string) (answer string) {
	c.t.Helper()
	for _, line := range lines {
		fmt.Fprintln(c.in, line)
		text, err := c.out.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		answer = strings.TrimSuffix(text, ".\n")
	}
	return answer
}

// TestCalls: what a process gives llama.cpp to compute is seen row by row, in both kinds of batches, and its code is
// what it was when that is over.
func TestCalls(t *testing.T) {
	testenv.NeedBPF(t)
	p := start(t, compile(t))
	untouched := p.say("bytes")
	c, err := OpenCalls(p.pid, time.Second, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	if p.say("bytes") == untouched {
		t.Error("the code is untouched with the programs attached")
	}
	wide := "process 4096"
	for i := range 20 {
		wide += fmt.Sprintf(" %d:0:2:1", i)
	}
	for _, batch := range []struct {
		line string
		want callFigures
	}{
		{"process 4096 0:0:500:0", callFigures{Prompt: 500, Sequences: 1}},
		{"process 4096 0:500:12:1 1:0:7:1", callFigures{Prompt: 19, Generated: 2, Sequences: 2}},
		{"decode 4096 0:512:1:1 1:7:1:1", callFigures{Generated: 2, Sequences: 2}},
		{"decode 4096 3:0:3000:1", callFigures{Prompt: 3000, Generated: 1, Sequences: 1}},
		{"one 4096 5", callFigures{Prompt: 5, Generated: 1, Sequences: 1}}, // a new prompt: rows without logits
		{"fail", callFigures{Failed: 1}},
		{wide, callFigures{Prompt: 32, Generated: 16, Unknown: 8, Sequences: 16}},
	} {
		p.say(batch.line)
		line, err := c.Line(time.Now(), false)
		if err != nil {
			t.Fatal(err)
		}
		if len(line.Contexts) != 1 || line.Lost+line.Unreadable != 0 {
			t.Errorf("%.40s: %+v", batch.line, line)
			continue
		}
		got := line.Contexts[0]
		if got.ComputingNS <= 0 || got.CallP50NS != got.ComputingNS || got.CallP99NS != got.CallP50NS {
			t.Errorf("%.40s took %+v", batch.line, got)
		}
		got = callFigures{Calls: got.Calls, Failed: got.Failed, Prompt: got.Prompt, Generated: got.Generated,
			Unknown: got.Unknown, Sequences: got.Sequences}
		batch.want.Calls = 1
		if fmt.Sprint(got) != fmt.Sprint(batch.want) {
			t.Errorf("%.40s: %+v, want %+v", batch.line, got, batch.want)
		}
	}
	err, c = c.Close(), nil
	if now := p.say("bytes"); err != nil || now != untouched {
		t.Errorf("after all, llama_decode begins with %s, and began with %s: %v", now, untouched, err)
	}
}

// TestNoCalls: what cannot be seen is said, and why.
func TestNoCalls(t *testing.T) {
	testenv.NeedBPF(t)
	stripped := start(t, compile(t, "-s"))
	for pid, want := range map[int]string{
		stripped.pid: "linked statically and stripped: use a build with shared libraries",
		os.Getpid():  "it is another program",
		1 << 22:      "give the id of a process that runs",
	} {
		c, err := OpenCalls(pid, time.Second, 1)
		if err == nil || !strings.Contains(err.Error(), want) || pid < 1<<22 && !errors.Is(err, ErrNoCalls) {
			t.Errorf("process %d: %v, want %q", pid, err, want)
		}
		if c != nil {
			c.Close()
		}
	}
}

// TestOverhead: where traps cost more than is allowed, tokens are counted no more, and calls are.
func TestOverhead(t *testing.T) {
	testenv.NeedBPF(t)
	p := start(t, compile(t))
	c, err := OpenCalls(p.pid, time.Second, 1e-9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 2 {
		p.say("process 4096 0:0:8:1", "decode 4096 5:0:7:1")
		line, err := c.Line(time.Now(), false)
		if err != nil {
			t.Fatal(err)
		}
		prompt := []int{8 + 7, 7}[i]
		if f := line.Contexts[0]; f.Calls != 2 || f.Prompt != prompt || !line.RowsUnwatched {
			t.Errorf("interval %d: %+v, rows unwatched: %v", i, f, line.RowsUnwatched)
		}
	}
}

// TestCostOfCalls logs what being watched costs a token whose row is filled in and computed; it is a measurement only
// where nothing else runs.
func TestCostOfCalls(t *testing.T) {
	testenv.NeedBPF(t)
	p := start(t, compile(t))
	const n = 2_000
	each := func() float64 {
		ns, err := strconv.ParseFloat(p.say(fmt.Sprint("repeat ", n)), 64)
		if err != nil {
			t.Fatal(err)
		}
		return ns / n
	}
	without := each()
	c, err := OpenCalls(p.pid, time.Second, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	with := each()
	line, err := c.Line(time.Now(), true)
	if err != nil {
		t.Fatal(err)
	}
	reply := line.Overhead * line.ActualS * 1e9 / n
	t.Logf("a token: %.0f ns without, %.0f ns with, of which the line has %.0f", without, with, reply)
	if reply < 100 || reply > 1e9 {
		t.Errorf("the line has %v ns of traps a token", reply)
	}
	if f := line.Contexts[0]; f.Calls+int(line.Lost+1)/2 < n || f.Calls > n {
		t.Errorf("%d calls and %d lost events of %d calls", f.Calls, line.Lost, n)
	}
}
