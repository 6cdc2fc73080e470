//go:build linux

package prof_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "llamatap-prof")
	if err != nil {
		panic(err)
	}
	scratch = dir
	if os.Getenv(childVariable) != "" {
		withoutRights()
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// both runs a test with the programs for kernels with and without BTF.
func both(t *testing.T, test func(t *testing.T, plain bool)) {
	for name, plain := range map[string]bool{"btf": false, "plain": true} {
		t.Run(name, func(t *testing.T) { test(t, plain) })
	}
}

// waits are the calls whose events are of type sync.
var waits = []string{"futex", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6",
	"nanosleep", "clock_nanosleep"}

func TestEveryCallIsCountedAsItsCallerCountsIt(t *testing.T) {
	both(t, func(t *testing.T, plain bool) {
		w := start(t, "calls", filepath.Join(t.TempDir(), "file"))
		c := open(t, prof.Options{Target: of(w), Plain: plain,
			Types: []resource.ProfType{resource.ProfTypeSyscall, resource.ProfTypeSync}})
		w.work()
		got := snapshot(t, c).calls()
		if again := snapshot(t, c).calls(); len(again) > 0 {
			t.Errorf("counted again: %v", slices.Collect(maps.Keys(again)))
		}
		want := w.end()
		noLosses(t, c)
		for name, said := range want {
			var e resource.ProfSyscall
			for _, op := range []string{"", " wait", " wake", " other"} {
				if one := got[name+op]; one != nil {
					delete(got, name+op)
					e.Count, e.Bytes, e.Errors, e.Type = e.Count+one.Count, e.Bytes+one.Bytes, e.Errors+one.Errors,
						one.Type
					checkCall(t, one, w.pid())
				}
			}
			if (line{e.Count, e.Bytes, e.Errors}) != said {
				t.Errorf("%s: counted %d calls, %d bytes, %d errors; its caller: %v", name, e.Count, e.Bytes, e.Errors,
					said)
			}
			kind := resource.ProfTypeSyscall
			if slices.Contains(waits, name) {
				kind = resource.ProfTypeSync
			}
			if e.Type != kind {
				t.Errorf("%s is an event of type %s, want %s", name, e.Type, kind)
			}
		}
		for name, e := range got {
			t.Errorf("counted %d %s, which nobody made", e.Count, name)
		}
	})
}

// checkCall checks that every field of a call's event is there and fits the others.
func checkCall(t *testing.T, e *resource.ProfSyscall, pid int) {
	t.Helper()
	if e.Timed != e.Count || e.LatAvgUS == nil || e.LatP50US == nil || e.LatP95US == nil || e.LatP99US == nil ||
		e.LatMaxUS == nil {
		t.Fatalf("%s %s: %d calls, %d timed, %v %v %v %v %v", e.Syscall, e.Op, e.Count, e.Timed, e.LatAvgUS, e.LatP50US,
			e.LatP95US, e.LatP99US, e.LatMaxUS)
	}
	if !(0 < *e.LatP50US && *e.LatP50US <= *e.LatP95US && *e.LatP95US <= *e.LatP99US && *e.LatP99US <= *e.LatMaxUS &&
		*e.LatAvgUS <= *e.LatMaxUS) {
		t.Errorf("%s %s: mean %g, percentiles %g %g %g, longest %g", e.Syscall, e.Op, *e.LatAvgUS, *e.LatP50US,
			*e.LatP95US, *e.LatP99US, *e.LatMaxUS)
	}
	var inBuckets, byName, byClass uint64
	for _, b := range e.Latency {
		inBuckets += b.Count
		if b.LowNS > b.HighNS {
			t.Errorf("%s: bucket from %d to %d", e.Syscall, b.LowNS, b.HighNS)
		}
	}
	for _, n := range e.ErrorsBy {
		byName += n
	}
	for _, n := range e.ErrorClasses {
		byClass += n
	}
	if inBuckets != e.Timed || byName != e.Errors || byClass != e.Errors {
		t.Errorf("%s: %d timed, in buckets %d; %d errors, %v, %v", e.Syscall, e.Timed, inBuckets, e.Errors, e.ErrorsBy,
			e.ErrorClasses)
	}
	if len(e.TopCallers) != 1 || e.Callers != 1 || e.Evicted != 0 {
		t.Fatalf("%s: callers %v of %d, %d evicted", e.Syscall, e.TopCallers, e.Callers, e.Evicted)
	}
	first := e.TopCallers[0]
	if first.PID != pid || first.Comm != "workload" || first.Count != e.Count || first.Bytes != e.Bytes ||
		first.Errors != e.Errors || first.LatTotalNS == 0 {
		t.Errorf("%s: caller %+v of %+v", e.Syscall, first, e)
	}
	if done := e.Count - e.Errors; e.Bytes > 0 && (e.BytesPerCall != float64(e.Bytes)/float64(done) ||
		e.ThroughputBS <= 0) {
		t.Errorf("%s: %d bytes, %g each call, %g/s", e.Syscall, e.Bytes, e.BytesPerCall, e.ThroughputBS)
	}
}

func TestErrorsAreCountedByName(t *testing.T) {
	w := start(t, "calls", filepath.Join(t.TempDir(), "file"))
	c := open(t, prof.Options{Target: of(w)})
	w.work()
	got := snapshot(t, c).calls()
	w.end()
	for name, want := range map[string]map[string]uint64{
		"openat": {"ENOENT": 3}, "write": {"ENOSPC": 1}, "read": {"EBADF": 1}, "recvfrom": {"EAGAIN": 2},
		"mmap":       {"EINVAL": 1},
		"futex wait": {"ETIMEDOUT": 1, "EAGAIN": 1}, "io_uring_enter": {"EBADF": 1}, "sendto": {"EPIPE": 1},
	} {
		if e := got[name]; e == nil || !maps.Equal(e.ErrorsBy, want) {
			t.Errorf("%s: %+v, want errors %v", name, e, want)
		}
	}
	for name, want := range map[string]string{"openat": "missing", "write": "full", "read": "wrong",
		"recvfrom": "again", "sendto": "broken"} {
		if got[name].ErrorClasses[want] != got[name].Errors {
			t.Errorf("%s: classes %v, want all %s", name, got[name].ErrorClasses, want)
		}
	}
}

func TestFutexPingPong(t *testing.T) {
	both(t, func(t *testing.T, plain bool) {
		w := start(t, "futex", "2000")
		c := open(t, prof.Options{Target: of(w), Plain: plain, Types: []resource.ProfType{resource.ProfTypeSync}})
		w.work()
		got := snapshot(t, c).calls()
		said := w.end()
		wake, wait := got["futex wake"], got["futex wait"]
		if wake == nil || wait == nil {
			t.Fatalf("calls %v", got)
		}
		// The C library may make one more of each when a thread ends and is joined.
		waits, wakes := said["wait"].calls, said["wake"].calls
		if waits < 4000 || wakes != 4000 || wait.Count-waits > 1 || wake.Count-wakes > 1 {
			t.Errorf("counted %d waits, %d wakes; made were %d and %d", wait.Count, wake.Count, waits, wakes)
		}
		if wake.Type != resource.ProfTypeSync || wake.Syscall != "futex" || wake.Op != "wake" || wait.Op != "wait" {
			t.Errorf("events %+v, %+v", wake, wait)
		}
		if *wait.LatAvgUS <= 0 || len(wait.TopCallers) != 1 {
			t.Errorf("waits %+v", wait)
		}
		noLosses(t, c)
	})
}

func TestCallsThatHaveNotReturned(t *testing.T) {
	both(t, func(t *testing.T, plain bool) {
		w := start(t, "blocked")
		c := open(t, prof.Options{Target: of(w), Plain: plain})
		w.resume()
		got := untilBlocked(t, c)
		first := map[string]int64{}
		for _, name := range []string{"read", "futex wait"} {
			e := got[name]
			if e == nil || e.Open != 1 || e.OldestNS == nil || *e.OldestNS <= 0 || e.Count != 0 || e.LatMaxUS != nil {
				t.Fatalf("%s: %+v", name, e)
			}
			first[name] = *e.OldestNS
		}
		for name, e := range snapshot(t, c).calls() {
			if e.OldestNS == nil || *e.OldestNS <= first[name] {
				t.Errorf("%s is open for %v ns, was %d", name, e.OldestNS, first[name])
			}
		}
		w.kill()
		for name, e := range snapshot(t, c).calls() {
			if e.Open > 0 {
				t.Errorf("%s is open after the end: %+v", name, e)
			}
		}
	})
}

func TestSampledReads(t *testing.T) {
	both(t, func(t *testing.T, plain bool) {
		w := start(t, "many", "5000")
		c := open(t, prof.Options{Target: of(w), Plain: plain, SampledOneOf: 10})
		w.work()
		got := snapshot(t, c).calls()
		w.end()
		read := got["read"]
		// 10,000 with one of 10 timed: 1,000, standard deviation 30.
		if read == nil || read.Count != 10000 || read.Bytes != 10000 || read.SampledOneOf != 10 || read.Timed < 700 ||
			read.Timed > 1300 {
			t.Fatalf("reads %+v", read)
		}
		mean := *read.LatAvgUS * 1e3
		if total := float64(read.TopCallers[0].LatTotalNS); total < 0.999*mean*10000 || total > 1.001*mean*10000 {
			t.Errorf("mean %g ns, total %g of %d", mean, total, read.Count)
		}
		if opened := got["openat"]; opened == nil || opened.SampledOneOf != 0 || opened.Timed != opened.Count {
			t.Errorf("opens %+v", opened)
		}
	})
}

func TestCallsOf32BitProgramsAreLeftOut(t *testing.T) {
	w := start(t, "compat", "25")
	c := open(t, prof.Options{Target: of(w)})
	w.work()
	got := snapshot(t, c).calls()
	w.end()
	lost, err := c.Losses()
	if err != nil || !maps.Equal(lost, map[string]uint64{"compat": 25}) || len(got) > 0 {
		t.Errorf("counted %v, lost %v, %v", got, lost, err)
	}
}

func TestNobodyElseIsCounted(t *testing.T) {
	watched, other := start(t, "many", "10"), start(t, "many", "1000")
	c := open(t, prof.Options{Target: bpf.Target{Later: true}})
	other.work()
	if got := snapshot(t, c); len(got) > 0 {
		t.Errorf("counted %v of nobody", got.calls())
	}
	if err := c.AddPID(watched.pid()); err != nil {
		t.Fatal(err)
	}
	watched.work()
	got := snapshot(t, c).calls()
	other.end()
	watched.end()
	if got["read"] == nil || got["read"].Count != 20 {
		t.Errorf("read %+v", got["read"])
	}
}

// untilBlocked waits until both threads of the workload "blocked" are in their calls, and returns the calls of the
// last snapshot.
func untilBlocked(t *testing.T, c *prof.Collector) map[string]*resource.ProfSyscall {
	t.Helper()
	for {
		if got := snapshot(t, c).calls(); ready(got["read"]) && ready(got["futex wait"]) {
			return got
		}
	}
}

func TestCallsThatBeganBefore(t *testing.T) {
	both(t, func(t *testing.T, plain bool) {
		w := start(t, "blocked")
		early := open(t, prof.Options{Target: of(w), Plain: plain})
		w.resume()
		untilBlocked(t, early)
		late := open(t, prof.Options{Target: of(w), Plain: plain})
		if err := unix.Kill(w.pid(), unix.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		w.stopped()
		timed, untimed := snapshot(t, early).calls(), snapshot(t, late).calls()
		w.end()
		if e := timed["read"]; e == nil || e.Count != 1 || e.Timed != 1 || e.Bytes != 1 {
			t.Errorf("of one that saw it begin: %+v", e)
		}
		if e := untimed["read"]; e == nil || e.Count != 1 || e.Timed != 0 || e.Bytes != 1 || e.LatMaxUS != nil ||
			e.TopCallers[0].LatTotalNS != 0 {
			t.Errorf("of one that did not: %+v", e)
		}
		// Without BTF it is not known at its end what a futex call was for. Joining threads may be a wait as well.
		e, missed := untimed["futex wait"], uint64(1)
		if plain {
			missed = 0
		}
		if plain && e == nil {
			return
		}
		if e == nil || e.Count-e.Timed != missed || e.Count != timed["futex wait"].Count-1+missed {
			t.Errorf("waits %+v, of one that saw them begin %+v", e, timed["futex wait"])
		}
	})
}

// ready reports whether a call has been open for some time.
func ready(e *resource.ProfSyscall) bool { return e != nil && e.OldestNS != nil && *e.OldestNS > 0 }
