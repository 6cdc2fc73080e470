//go:build linux

package session

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/stream"
)

// TestTaken: what was taken from the model is bounded by what this process used, by what the model's threads waited,
// new ones since they began and the tap's own left out, and by the time itself; where the kernel does not count waits,
// by the others.
func TestTaken(t *testing.T) {
	thread := func(waited time.Duration) *fstest.MapFile {
		return &fstest.MapFile{Data: fmt.Appendf(nil, "9000 %d 3\n", waited)}
	}
	root := fstest.MapFS{"proc/7/task/7/schedstat": thread(time.Hour)}
	const interval = time.Minute
	taken, now := taken{root: root, pid: 7}, int64(time.Hour)
	look := func(used time.Duration) time.Duration {
		taken.own -= int64(used) // as if that were used since the last look, beside what the test itself uses
		now += int64(interval)
		taken.addInterval(now)
		before := taken.sum.taken
		taken.settle(1, now)
		return time.Duration(taken.sum.taken - before)
	}
	if got := look(time.Hour); got != 0 || taken.sum.over != 0 {
		t.Errorf("%v were taken before the first look", got)
	}
	root["proc/7/task/8/schedstat"] = thread(2 * time.Millisecond) // a new thread
	root["proc/7/task/9/schedstat"] = thread(2 * time.Second)
	root["proc/7/task/9/comm"] = &fstest.MapFile{Data: []byte(resource.TapThread + "\n")}
	root["proc/7/task/7/schedstat"] = thread(time.Hour + 3*time.Millisecond)
	if got := look(time.Second); got != 5*time.Millisecond || taken.sum.over != int64(interval) {
		t.Errorf("%v of 5 ms of waiting were taken, in %d ns", got, taken.sum.over)
	}
	root["proc/7/task/8/schedstat"] = thread(3 * time.Hour)
	if got := look(time.Second); got < time.Second || got > 20*time.Second {
		t.Errorf("%v of a second that was used were taken", got)
	}
	root["proc/7/task/7/schedstat"] = thread(9 * time.Hour)
	if got := look(time.Hour); got != interval {
		t.Errorf("%v of an interval of %v were taken", got, interval)
	}
	clear(root)
	if got := look(time.Second); got < time.Second || got > 20*time.Second {
		t.Errorf("%v of a second were taken where waits are not counted", got)
	}
}

// TestTakenWithinTheRun: what was taken before the first graph, or after the last, does not count; of the interval
// within which the last one ended, all may have been taken before it did.
func TestTakenWithinTheRun(t *testing.T) {
	taken := taken{pending: []interval{{10, 20, 1, 10}, {20, 30, 2, 20}, {30, 40, 4, 40}, {40, 50, 8, 80}}}
	for _, c := range []struct {
		first, last int64
		want        watched
		pending     int
	}{
		{0, 0, watched{}, 4}, {25, 33, watched{2, 20, 5}, 2}, {25, 36, watched{2 + 4, 20 + 24, 5 + 6}, 2},
		{25, 39, watched{2 + 4, 20 + 36, 5 + 9}, 2}, {25, 45, watched{2 + 4, 20 + 40, 15}, 1},
		{25, 46, watched{2 + 4 + 6, 60 + 48, 15 + 6}, 1}, {25, 60, watched{2 + 4 + 8, 60 + 80, 25}, 0},
	} {
		if got := taken.settle(c.first, c.last); got != c.want || len(taken.pending) != c.pending {
			t.Errorf("from %d to %d: %+v, %d pending; want %+v", c.first, c.last, got, len(taken.pending), c)
		}
	}
}

// TestTakenSeldom: who uses little is looked at seldom, but not so seldom that a short run is not watched.
func TestTakenSeldom(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ interval, used, all, want time.Duration }{
		{50 * ms, 50 * ms, time.Hour, 50 * ms}, {50 * ms, 2 * ms, time.Hour, 500 * ms}, {50 * ms, 0, time.Hour,
			time.Second},
		{500 * ms, 16 * ms, time.Hour, 625 * ms}, {50 * ms, 0, 50 * ms, 50 * ms}, {50 * ms, 0, 1600 * ms, 100 * ms},
	} {
		taken := taken{}
		if taken.plan(c.interval, c.used, c.all); taken.pause != c.want {
			t.Errorf("%v after %v of %v, watched for %v; want %v", taken.pause, c.used, c.interval, c.all, c.want)
		}
	}
}

// TestTakenByTimer: while the model computes, looks need no execution; they end with the run.
func TestTakenByTimer(t *testing.T) {
	taken := taken{root: fstest.MapFS{}}
	taken.watch(stream.MonoNS())
	taken.mu.Lock()
	taken.ended += int64(time.Hour) // as if executions ended all the time
	taken.mu.Unlock()
	until := func(what string, done func() bool) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			taken.mu.Lock()
			ok := done()
			taken.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("after a minute: %s", what)
			}
		}
	}
	until("fewer than three intervals", func() bool { return len(taken.pending) >= 3 })
	last := taken.at
	taken.stop()
	if taken.at == last {
		t.Error("it did not look at the end")
	}
	until("still looking", func() bool { return taken.next == nil })
}
