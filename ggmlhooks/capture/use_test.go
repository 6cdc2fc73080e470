package capture

import (
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// TestDeviceTime: what a device takes behind the end of an execution, or of several, is counted once, and as what
// they turned out to be.
func TestDeviceTime(t *testing.T) {
	b := newBench(t, Options{})
	run := func(exec uint64, at, end int64, provisional bool) {
		t.Helper()
		b.check(b.Exec(&ggmlhooks.Exec{
			Number: exec, Graph: 1, MonoNS: at, TokenFirst: b.next, Tokens: []int32{1}, Provisional: provisional,
		}))
		b.next++
		b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: exec, MonoNS: end, Async: true}))
	}
	done := func(exec uint64, at int64) {
		t.Helper()
		b.check(b.Sync(ggmlhooks.Sync{Exec: exec, MonoNS: at}))
	}
	run(1, 100, 110, true)
	done(1, 150) // while nobody knows that it is a warm-up
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: 1, Discarded: true}))
	run(2, 200, 210, true)
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: 2, Discarded: true}))
	done(2, 230) // when it is known
	b.next = 0
	run(3, 1000, 1010, false)
	run(4, 1020, 1030, false)
	done(3, 1500) // not the newest one: the next was handed over at 1020
	done(4, 2000)
	done(4, 9000) // reported once
	use := b.recorder.Use()
	ran := use.NS[ggmlhooks.PhasePrefill] + use.NS[ggmlhooks.PhaseDecode]
	if use.NS[ggmlhooks.PhaseSetup] != 50+30 || ran != 1000 || use.LastNS != 2000 {
		t.Errorf("%+v", use)
	}
	for i := range int64(100) { // a long prompt, which nobody waits for until it is computed
		run(uint64(5+i), 10000+10*i, 10001+10*i, false)
	}
	done(104, 12000)
	use = b.recorder.Use()
	if ran := use.NS[ggmlhooks.PhasePrefill] + use.NS[ggmlhooks.PhaseDecode]; ran != 1000+2000 {
		t.Errorf("%d ns, with 2000 more than before", ran)
	}
}

// TestGraphTime: an execution takes the time from when ggml was given its graph, as the events of resources have it;
// what the program waited for the recording before is not of it.
func TestGraphTime(t *testing.T) {
	b := newBench(t, Options{})
	b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, MonoNS: 100, Tokens: []int32{1}}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 1, MonoNS: 500, BeginNS: 300}))
	use := b.recorder.Use()
	if ran := use.NS[ggmlhooks.PhasePrefill] + use.NS[ggmlhooks.PhaseDecode]; ran != 200 || use.FirstNS != 100 ||
		use.LastNS != 500 {
		t.Errorf("%d ns, from %d to %d", ran, use.FirstNS, use.LastNS)
	}
}
