//go:build linux

package session

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// takenEvery is how often taken looks.
const takenEvery = 50 * time.Millisecond

// taken bounds the processor time that this process took from the model's threads: in each interval it is no more than
// this process used, and no more than those threads waited for a processor (schedstat). On a machine with idle
// processors the second is next to nothing. The zero value has not looked yet.
type taken struct {
	root   fs.FS
	pid    int // the model's process
	ns     int64
	over   time.Duration // what was looked at in all
	at     time.Time
	own    int64
	waited map[string]int64 // by thread
}

// look adds the interval since the last look, if that was long enough ago. It is called while the model computes.
func (t *taken) look(now time.Time) {
	if !t.at.IsZero() && now.Sub(t.at) < takenEvery {
		return
	}
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) != nil {
		return
	}
	own := use.Utime.Nano() + use.Stime.Nano()
	waited, waits := t.read()
	if !t.at.IsZero() {
		t.over += now.Sub(t.at)
	}
	switch {
	case t.at.IsZero():
	case len(waited) == 0: // a kernel without CONFIG_SCHED_INFO, or the process has ended
		t.ns += own - t.own
	default:
		t.ns += min(own-t.own, waits)
	}
	t.at, t.own, t.waited = now, own, waited
}

// read returns how long each thread of the model has waited for a processor, and the sum since the last look. A new
// thread counts from then on: before the first look it loaded the model.
func (t *taken) read() (waited map[string]int64, since int64) {
	folder := fmt.Sprintf("proc/%d/task", t.pid)
	threads, _ := fs.ReadDir(t.root, folder) // the process may have ended
	waited = make(map[string]int64, len(threads))
	for _, thread := range threads {
		text, err := fs.ReadFile(t.root, folder+"/"+thread.Name()+"/schedstat")
		var run, wait int64
		if _, bad := fmt.Sscan(string(text), &run, &wait); err != nil || bad != nil {
			continue
		}
		waited[thread.Name()] = wait
		if before, ok := t.waited[thread.Name()]; ok {
			since += max(0, wait-before)
		}
	}
	return waited, since
}

// newTaken looks at the process that has the tap.
func newTaken(pid int) *taken { return &taken{root: os.DirFS("/"), pid: pid} }
