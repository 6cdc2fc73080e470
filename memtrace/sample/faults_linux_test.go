package sample

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// counted is how many faults a process had, minor and major, as the kernel counts elsewhere.
func counted(t *testing.T, pid int) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	sum := uint64(0)
	for _, field := range []int{7, 9} {
		n, err := strconv.ParseUint(fields[field], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestFaultsOfPages checks that each page that a process touches first, or the kernel for it, is sampled once, in
// order, and as many as the kernel counts.
func TestFaultsOfPages(t *testing.T) {
	const n = 1500
	c := start(t)
	c.do(t, 'a', 0, n)
	f, err := perf.OpenFaults(perf.SamplerOptions{PID: c.cmd.Process.Pid, Pages: 256}, false)
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	defer f.Close()
	if f.UserOnly && os.Geteuid() == 0 {
		t.Error("root sees faults of the kernel")
	}
	before := counted(t, c.cmd.Process.Pid)
	c.do(t, 'w', 0, n/2)
	if !f.UserOnly {
		c.do(t, 'k', n/2, 10)
	}
	c.do(t, 'r', n/2, n/2)
	after := counted(t, c.cmd.Process.Pid)
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	var pages []int
	all, last := 0, int64(0)
	if _, err := f.Drain(func(a memtrace.Access) error {
		all++
		if a.Addr >= c.base && a.Addr < c.base+n*4096 {
			pages = append(pages, int(a.Addr-c.base)/4096)
		}
		if a.Collector != memtrace.CollectorFault || int(a.PID) != c.cmd.Process.Pid || a.Weight != 1 ||
			a.Op != memtrace.OpUnknown || a.TimeNS == 0 || a.CPU < 0 {
			t.Errorf("%+v", a)
		}
		last = a.TimeNS
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(pages) // rings are those of CPUs, and the process may have moved
	if len(pages) != n || len(slices.Compact(pages)) != n {
		t.Errorf("%d faults of %d pages, the last at %d; %+v", len(pages), n, last, f.Stats())
	}
	if uint64(all) != after-before {
		t.Errorf("%d faults were sampled, the kernel counts %d", all, after-before)
	}
}

// TestDrainResumes checks that an error of the receiver ends a drain, and that the next one continues.
func TestDrainResumes(t *testing.T) {
	c := start(t)
	c.do(t, 'a', 0, 1000)
	f, err := perf.OpenFaults(perf.SamplerOptions{PID: c.cmd.Process.Pid}, false)
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	defer f.Close()
	c.do(t, 'w', 0, 1000)
	c.in.Close()
	for {
		if _, err := f.Wait(10 * time.Second); errors.Is(err, perf.ErrGone) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	stop := errors.New("enough")
	n, weight := 0, uint64(0)
	for range 2 {
		if _, err := f.Drain(func(a memtrace.Access) error {
			n++
			weight += a.Weight
			if n == 500 {
				return stop
			}
			return nil
		}); err != nil && !errors.Is(err, stop) {
			t.Fatal(err)
		}
	}
	if n < 1000 || n > 1300 || weight != uint64(n) {
		t.Errorf("%d samples of weight %d in all", n, weight)
	}
}

// TestFaultsSayWhatFor: with the kernel's tracepoints a fault is a read or a write, that of read(2) too.
func TestFaultsSayWhatFor(t *testing.T) {
	c := start(t)
	c.do(t, 'a', 0, 300)
	f, err := perf.OpenFaults(perf.SamplerOptions{PID: c.cmd.Process.Pid, Pages: 128}, true)
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	defer f.Close()
	if !f.Ops {
		if runtime.GOARCH == "amd64" {
			testenv.NeedRoot(t)
			t.Fatal("x86 has these tracepoints")
		}
		testenv.Beyond(t, "tracepoints of page faults", "this kernel has none")
	}
	c.do(t, 'r', 0, 100)
	c.do(t, 'w', 50, 150)
	c.do(t, 'k', 200, 100)
	pages := map[memtrace.AccessOp][]int{}
	if _, err := f.Drain(func(a memtrace.Access) error {
		if a.Addr >= c.base && a.Addr < c.base+300*4096 {
			pages[a.Op] = append(pages[a.Op], int(a.Addr-c.base)/4096)
		}
		if a.IP == 0 || a.Collector != memtrace.CollectorFault || a.Weight != 1 {
			t.Errorf("%+v", a)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var reads, writes []int
	for i := range 300 {
		if i < 100 {
			reads = append(reads, i)
		}
		if i >= 50 {
			writes = append(writes, i)
		}
	}
	for op, want := range map[memtrace.AccessOp][]int{memtrace.OpRead: reads, memtrace.OpWrite: writes} {
		slices.Sort(pages[op])
		if got := slices.Compact(pages[op]); !slices.Equal(got, want) {
			t.Errorf("%s: pages %v", op, got)
		}
	}
}
