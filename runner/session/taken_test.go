//go:build linux

package session

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"
)

// TestTaken: what was taken from the model is bounded by what this process used and by what the model's threads waited
// since they were first seen; where the kernel does not count waits, by the former alone.
func TestTaken(t *testing.T) {
	thread := func(waited time.Duration) *fstest.MapFile {
		return &fstest.MapFile{Data: fmt.Appendf(nil, "9000 %d 3\n", waited)}
	}
	root := fstest.MapFS{"proc/7/task/7/schedstat": thread(time.Hour)}
	now := time.Unix(1000, 0)
	taken := taken{root: root, pid: 7}
	look := func(used time.Duration) time.Duration {
		before := taken.ns
		taken.own -= int64(used) // as if that were used since the last look, beside what the test itself uses
		now = now.Add(takenEvery)
		taken.look(now)
		return time.Duration(taken.ns - before)
	}
	if got := look(time.Hour); got != 0 {
		t.Errorf("%v were taken before the first look", got)
	}
	root["proc/7/task/8/schedstat"] = thread(time.Hour) // a new thread
	root["proc/7/task/7/schedstat"] = thread(time.Hour + 3*time.Millisecond)
	if got := look(time.Second); got != 3*time.Millisecond {
		t.Errorf("%v of 3 ms of waiting were taken", got)
	}
	root["proc/7/task/8/schedstat"] = thread(3 * time.Hour)
	if got := look(time.Minute); got < time.Minute || got > 2*time.Minute {
		t.Errorf("%v of a minute that was used were taken", got)
	}
	taken.look(now.Add(takenEvery / 2))
	if !taken.at.Equal(now) {
		t.Error("looked again within the interval")
	}
	clear(root)
	if got := look(time.Minute); got < time.Minute || got > 2*time.Minute {
		t.Errorf("%v of a minute were taken where waits are not counted", got)
	}
}
