package sample

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// TestSetOfFaults checks that exactly the pages that a process touches are sampled, once each, with the function that
// did it, and where they lie.
func TestSetOfFaults(t *testing.T) {
	q, spaces := NewQueue(t.TempDir()), NewSpaces()
	defer q.Close()
	var set *Set
	c := startHeld(t, func(pid int) (err error) {
		set, err = Open(Options{Choices: [][]string{{Faults}}, PID: pid, Mapped: spaces.Observe}, q)
		if err == nil {
			_, err = spaces.Look(pid, 1)
		}
		return err
	})
	defer set.Close()
	set.Start()
	c.do(t, 'a', 0, 8192)
	for i := range 1000 {
		c.do(t, 'w', 5+7*i, 1)
	}
	c.do(t, 'w', 0, 3)
	set.Stop()
	pid := int32(c.cmd.Process.Pid)
	spaces.Gather()
	spaces.Apply(math.MaxInt64)
	space := spaces.Of(pid)
	var pages []int
	var before int64
	q.Before(math.MaxInt64, func(a *memtrace.Access) {
		if a.TimeNS < before {
			t.Error("not in the order of time")
		}
		before = a.TimeNS
		if a.Addr < c.base || a.Addr >= c.base+8192<<12 {
			return
		}
		pages = append(pages, int(a.Addr-c.base)>>12)
		if h := space.Map().Address(a.Addr, a.TimeNS); h.Type() != memtrace.Runtime ||
			h.Region.Offset+h.Offset != a.Addr {
			t.Errorf("%+v lies at %d of %+v, a %v", a, h.Offset, h.Region, h.Type())
		}
		if name := space.Function(a.IP); name != "touch_page" {
			t.Errorf("%+v was made by %q", a, name)
		}
		if a.PID != pid || a.Collector != memtrace.CollectorFault || a.Weight != 1 {
			t.Errorf("%+v", a)
		}
	})
	slices.Sort(pages)
	var want []int
	for i := range 1000 {
		want = append(want, 5+7*i)
	}
	want = append(want, 0, 1, 2)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(pages, want) {
		t.Errorf("%d pages sampled, %d touched: %v", len(pages), len(want), pages)
	}
	use := set.Use(&Tallies{})
	use.Complete()
	if use.Lossy || use.Lost() != 0 || use.Collectors[0].Samples < 1003 || use.Collectors[0].RingBytes < 32<<10 {
		t.Errorf("%+v", use)
	}
}

// TestSetCountsLoss: what a ring that nobody reads has no room for is counted, and makes the use lossy.
func TestSetCountsLoss(t *testing.T) {
	q := NewQueue(t.TempDir())
	defer q.Close()
	var set *Set
	c := startHeld(t, func(pid int) (err error) {
		set, err = Open(Options{Choices: [][]string{{Faults}}, PID: pid, RingBytes: 8 << 10}, q)
		return err
	})
	defer set.Close()
	c.do(t, 'a', 0, 8192)
	c.do(t, 'w', 0, 5000)
	set.Start()
	c.do(t, 'w', 6000, 1) // losses are reported with the next record that has room
	set.Stop()
	stats := set.Collectors()[0].Stats()
	if stats.Lost == 0 || stats.Samples == 0 || stats.Samples+stats.Lost < 5000 {
		t.Errorf("%+v", stats)
	}
	use := set.Use(&Tallies{})
	use.Complete()
	if !use.Lossy || use.Lost() < stats.Lost || !strings.Contains(use.Words(), "LOST ") {
		t.Errorf("%+v: %s", use, use.Words())
	}
}

// TestSetFallsBack checks that an unavailable collector is reported with a remedy; its choice falls back to the next
// one, or fails as a whole.
func TestSetFallsBack(t *testing.T) {
	q := NewQueue(t.TempDir())
	defer q.Close()
	o := Options{PID: os.Getpid(), Choices: [][]string{{Perf}}}
	if set, err := Open(o, q); err == nil {
		set.Close()
		testenv.Beyond(t, "a machine without hardware samples", "this one samples loads and stores")
	} else if !strings.Contains(err.Error(), "perf:faults") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	o.Choices = [][]string{{Perf, Faults}}
	set, err := Open(o, q)
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	c := set.Collectors()
	if len(c) != 1 || c[0].Name != Faults || len(c[0].Notes) == 0 || !strings.HasPrefix(c[0].Notes[0], "perf: ") {
		t.Errorf("%+v", c[0])
	}
	if err := errors.Join(set.Close(), set.Close()); err != nil {
		t.Error(err)
	}
	o.Choices = [][]string{{Faults}, {"perv"}}
	if _, err := Open(o, q); err == nil || !strings.Contains(err.Error(), `"perv"`) {
		t.Error(err)
	}
}

// TestSetOfGoneProcess: of a process that has ended nothing is begun.
func TestSetOfGoneProcess(t *testing.T) {
	q := NewQueue(t.TempDir())
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{PID: cmd.Process.Pid, Choices: [][]string{{Faults}}}, q); !errors.Is(err,
		perf.ErrGone) {
		t.Error(err)
	}
}
