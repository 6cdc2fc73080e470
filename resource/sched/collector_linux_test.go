package sched

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/resource"
	"golang.org/x/sys/unix"
)

// sources are the ways in which figures are got.
var sources = map[string]Options{"bpf": {}, "plain": {Plain: true}, "proc": {Poll: true}}

// content makes a file of some MB.
func content(t *testing.T, mb int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, mb<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return name
}

// near reports whether two times are the same within a slack in ns.
func near(a, b int64, slack float64) bool { return math.Abs(float64(a-b)) <= slack }

// steal is what the hypervisor has taken of all processors, in ns.
func steal(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text))
	ticks, err := strconv.ParseFloat(f[8], 64)
	if err != nil {
		t.Fatal(err)
	}
	return ticks * tick
}

// Threads that rest before and after compute, wait for a processor and sleep as long as the kernel says, each for
// the reason that it is made to sleep for; and what they did in several intervals adds up.
func TestTimesAreTheKernels(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		t.Run(name, func(t *testing.T) { testTimes(t, o) })
	}
}

// The same holds where the kernel does not report since when a thread is queued: then wakings are traced.
func TestTimesByWakings(t *testing.T) {
	testenv.NeedBPF(t)
	was := knownKernel
	defer func() { knownKernel = was }()
	k := was()
	k.queues = false
	knownKernel = func() kernel { return k }
	testTimes(t, Options{})
}

// testTimes tries again where a machine that does other things has disturbed a comparison: what is wrong in the
// programs is wrong each time.
func testTimes(t *testing.T, o Options) {
	var wrong []string
	for range 4 {
		if wrong = compareTimes(t, o); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// compareTimes returns what differs.
func compareTimes(t *testing.T, o Options) (wrong []string) {
	differs := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	j := started(t, 7, "spin", "crowd", "crowd", "doze", "disk", "ping", "pong", content(t, 8))
	o.Target = j.target()
	c := opened(t, o)
	type stat struct{ run, wait int64 }
	before, sums, stolen := map[int]stat{}, map[int]*resource.ThreadLine{}, steal(t)
	for _, w := range j.begin {
		run, wait := j.schedstat(w.tid)
		before[w.tid] = stat{run, wait}
	}
	snap(t, c)
	j.send("g")
	for i := range 4 {
		time.Sleep(300 * time.Millisecond)
		if i == 2 { // the last is at rest, and has room for what /proc reports late
			j.stop()
		}
		line := snap(t, c)
		for i := range line.Threads {
			add(sums, &line.Threads[i])
			if th := &line.Threads[i]; i < 2 && th.LivedNS != int64(math.Round(line.ActualS*1e9)) && !o.Poll {
				differs("%s lived %d ns of %v s", th.Comm, th.LivedNS, line.ActualS)
			}
		}
	}
	stolen = steal(t) - stolen
	for _, w := range j.begin {
		run, wait := j.schedstat(w.tid)
		run, wait = run-before[w.tid].run, wait-before[w.tid].wait
		s := sums[w.tid]
		if s == nil {
			differs("nothing was reported of %s", w.kind)
			continue
		}
		// The kernel reads no clock between the waking of a thread that pre-empts another and the switch: what
		// computing and waiting are together is the same, and how it is divided nearly so. It takes a thread for
		// asleep before it looks for the next, which takes some microseconds, and so does a switch. What a
		// hypervisor takes of a processor is not in the kernel's figure. Where wakings are seen they come late: on
		// a busy virtual machine an interrupt to another processor takes a tenth of a millisecond.
		both, wake := run+wait, 1e4
		if o.Plain || !knownKernel().queues {
			wake = 15e4
		}
		slack := 0.02*float64(both) + 3e6 + min(wake*float64(s.Voluntary), 0.2*float64(both)) + stolen
		if !near(s.OnCPUNS+s.RunnableWaitNS, both, slack) || !near(s.OnCPUNS, run, 3*slack) ||
			!near(s.RunnableWaitNS, wait, 3*slack) {
			differs("%s computed %d ns, kernel %d; waited %d, kernel %d", w.kind, s.OnCPUNS, run, s.RunnableWaitNS,
				wait)
		}
		rested := at(t, j.rest, w.tid)
		if v, i := int64(s.Voluntary), int64(s.Involuntary); !near(v, rested.voluntary-w.voluntary, 20) ||
			!near(i, rested.involuntary-w.involuntary, 100) {
			differs("%s: switches %d and %d, getrusage %d and %d", w.kind, v, i, rested.voluntary-w.voluntary,
				rested.involuntary-w.involuntary)
		}
		if !o.Poll {
			wrong = append(wrong, checkReason(w.kind, s)...)
		} else if s.BlockedDiskNS != nil || s.IdleNS != nil || s.SleepNS == nil {
			differs("%s: reasons that /proc does not have: %+v", w.kind, s)
		}
	}
	return wrong
}

// add sums the times of a thread over lines.
func add(sums map[int]*resource.ThreadLine, th *resource.ThreadLine) {
	s := sums[th.TID]
	if s == nil {
		first := *th
		sums[th.TID] = &first
		return
	}
	s.LivedNS += th.LivedNS
	s.OnCPUNS += th.OnCPUNS
	s.RunnableWaitNS += th.RunnableWaitNS
	s.Voluntary += th.Voluntary
	s.Involuntary += th.Involuntary
	s.Faults += th.Faults
	for _, p := range []struct{ to, from **int64 }{
		{&s.BlockedDiskNS, &th.BlockedDiskNS}, {&s.BlockedLockNS, &th.BlockedLockNS},
		{&s.BlockedOtherNS, &th.BlockedOtherNS}, {&s.IdleNS, &th.IdleNS},
	} {
		if *p.from != nil {
			v := **p.to + **p.from
			*p.to = &v
		}
	}
	if th.RunQueue != nil && (s.RunQueue == nil || s.RunQueue.Max < th.RunQueue.Max) {
		s.RunQueue = th.RunQueue
	}
}

// checkReason reports threads that did not sleep for the reason that they were made to. All idle before and after their
// work.
func checkReason(kind string, s *resource.ThreadLine) (wrong []string) {
	differs := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	disk, lock, other, idle := *s.BlockedDiskNS, *s.BlockedLockNS, *s.BlockedOtherNS, *s.IdleNS
	slack := s.LivedNS / 50
	switch kind {
	case "spin", "crowd", "doze":
		if disk+lock+other > slack {
			differs("%s was blocked: disk %d lock %d other %d", kind, disk, lock, other)
		}
		if kind == "crowd" && s.RunnableWaitNS < s.LivedNS/8 {
			differs("two on one processor, and one waited for it %d ns of %d", s.RunnableWaitNS, s.LivedNS)
		}
		if kind == "doze" && (idle == 0 || idle < s.LivedNS-s.OnCPUNS-s.RunnableWaitNS-slack) {
			differs("it slept and idled %d ns of %d", idle, s.LivedNS)
		}
	case "disk":
		if disk == 0 || lock+other > disk/4+slack {
			differs("it read from a disk: disk %d lock %d other %d", disk, lock, other)
		}
	case "ping", "pong":
		if lock == 0 || disk+other > slack {
			differs("it waited for its turn: disk %d lock %d other %d", disk, lock, other)
		}
	}
	q := s.RunQueue
	if q == nil || q.Count == 0 || q.P50 > q.P95 || q.P95 > q.P99 || q.P99 > q.Max || q.Max <= 0 {
		differs("%s: waits for a processor %+v", kind, q)
	}
	return wrong
}

// Faults are what getrusage counts, minor and major ones.
func TestFaultsAreGetrusages(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		t.Run(name, func(t *testing.T) {
			j := started(t, 2, "touch", "load", content(t, 2))
			o.Target = j.target()
			c := opened(t, o)
			snap(t, c)
			j.send("g")
			time.Sleep(200 * time.Millisecond)
			j.stop()
			line := snap(t, c)
			const edge = 20 // the faults of telling, before and after
			var minor, major int64
			for _, w := range j.begin {
				r := at(t, j.rest, w.tid)
				th := thread(t, line, w.tid)
				wantMinor, wantMajor := r.minor-w.minor, r.major-w.major
				minor, major = minor+wantMinor, major+wantMajor
				if m := int64(*th.Minor); m < wantMinor-edge || m > wantMinor+edge {
					t.Errorf("%s: %d minor faults, getrusage %d", w.kind, m, wantMinor)
				}
				if m := int64(*th.Major); m < wantMajor-edge || m > wantMajor+edge || w.kind == "load" && m == 0 {
					t.Errorf("%s: %d major faults, getrusage %d", w.kind, m, wantMajor)
				}
				// A fault that had to wait for a page is taken again, and counted once by the kernel.
				if f := int64(th.Faults); f < wantMinor+wantMajor-edge || w.kind == "touch" &&
					f > wantMinor+wantMinor/50+edge {
					t.Errorf("%s: %d faults, getrusage %d and %d", w.kind, f, wantMinor, wantMajor)
				}
			}
			p := line.Processes[0]
			if len(line.Processes) != 1 || int64(*p.Minor) < minor-edge || int64(*p.Major) < major-edge ||
				p.Faults != line.Faults[strconv.Itoa(p.PID)] || *p.RSSBytes < 1<<16 {
				t.Errorf("process %+v of %d, faults %v", p, len(line.Processes), line.Faults)
			}
		})
	}
}

// What is seen on a tracepoint is seen by others who sample it with perf, too.
func TestOthersSeeFaults(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		if name == "proc" {
			continue
		}
		c, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		f, err := perf.OpenFaults(perf.SamplerOptions{}, true)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Ops {
			testenv.Beyond(t, "a processor whose page faults are a tracepoint", "it has none")
		}
		const pages = 200
		mem, err := unix.Mmap(-1, 0, pages<<12, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
		for i := 0; i < len(mem); i += 4096 {
			mem[i] = 1
		}
		first, seen := uint64(uintptr(unsafe.Pointer(&mem[0]))), map[uint64]bool{}
		if _, err := f.Drain(func(a memtrace.Access) error {
			if a.Addr >= first && a.Addr < first+uint64(len(mem)) {
				seen[a.Addr>>12] = true
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if len(seen) != pages {
			t.Errorf("%s: %d of %d pages were seen", name, len(seen), pages)
		}
		if err := errors.Join(f.Close(), c.Close(), unix.Munmap(mem)); err != nil {
			t.Error(err)
		}
	}
}
