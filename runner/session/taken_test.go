//go:build linux

package session

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"
)

// TestTaken: what was taken from the model is bounded by what this process used, by what the model's threads waited since
// they were first seen, and by the time itself; where the kernel does not count waits, by the others.
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
		taken.look(now)
		before := taken.ns
		taken.settle(1, now)
		return time.Duration(taken.ns - before)
	}
	if got := look(time.Hour); got != 0 || taken.over != 0 {
		t.Errorf("%v were taken before the first look", got)
	}
	root["proc/7/task/8/schedstat"] = thread(time.Hour) // a new thread
	root["proc/7/task/7/schedstat"] = thread(time.Hour + 3*time.Millisecond)
	if got := look(time.Second); got != 3*time.Millisecond || taken.over != int64(interval) {
		t.Errorf("%v of 3 ms of waiting were taken, in %d ns", got, taken.over)
	}
	root["proc/7/task/8/schedstat"] = thread(3 * time.Hour)
	if got := look(time.Second); got < time.Second || got > 20*time.Second {
		t.Errorf("%v of a second that was used were taken", got)
	}
	root["proc/7/task/7/schedstat"] = thread(9 * time.Hour)
	if got := look(time.Hour); got != interval {
		t.Errorf("%v of an interval of %v were taken", got, interval)
	}
	last := taken.at
	if taken.look(now + takenEvery/2); taken.at != last {
		t.Error("looked again within the interval")
	}
	clear(root)
	if got := look(time.Second); got < time.Second || got > 20*time.Second {
		t.Errorf("%v of a second were taken where waits are not counted", got)
	}
}

// TestTakenWithinTheRun: what was taken before the first graph, or after the last, does not count.
func TestTakenWithinTheRun(t *testing.T) {
	taken := taken{pending: []interval{{10, 20, 1}, {20, 30, 2}, {30, 40, 4}, {40, 50, 8}}}
	if taken.settle(0, 0); taken.ns != 0 || len(taken.pending) != 4 {
		t.Errorf("%+v before any graph", taken)
	}
	if taken.settle(25, 39); taken.ns != 2 || taken.over != 5 || len(taken.pending) != 2 {
		t.Errorf("%+v up to 39", taken)
	}
	if taken.settle(25, 45); taken.ns != 2+4 || taken.over != 15 {
		t.Errorf("%+v up to 45", taken)
	}
}
