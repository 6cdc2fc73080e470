//go:build linux

package session

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// How often taken looks: every takenEvery while this process uses much, and otherwise so that it uses takenWorth
// between two looks, at most every takenSeldom and a 16th of the time since the first one. A look reads a file of each
// thread.
const (
	takenEvery  = 50 * time.Millisecond
	takenSeldom = time.Second
	takenWorth  = 20 * time.Millisecond
)

// taken bounds the processor time that this process took from the model's threads: in each interval it is no more than
// this process used, no more than those threads waited for a processor (schedstat), and no more than the interval. On a
// machine with idle processors the second is next to nothing.
type taken struct {
	root fs.FS
	pid  int // the model's process

	mu      sync.Mutex // of what follows; a timer looks, so that it does so while the reports of a busy model wait
	next    *time.Timer
	sum     watched
	pending []interval    // that end after the last graph that is known
	at, own int64         // of the last look; 0: there was none
	first   int64         // when the first one was
	pause   time.Duration // until the next one
	ended   int64         // when the last execution did, as far as is known; 0: it looks no more
	waited  map[string]int64
}

// watch looks now and, by a timer, until a second after the last execution that is known: one has ended.
func (t *taken) watch(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended = now; t.next == nil {
		if t.at == 0 || now-t.at >= int64(takenEvery) {
			t.addInterval(now)
		}
		t.next = time.AfterFunc(t.pause, t.lookAndSchedule)
	}
}

// lookAndSchedule looks, and sets the timer.
func (t *taken) lookAndSchedule() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := stream.MonoNS()
	if now-t.ended > int64(time.Second) || len(t.pending) >= maxPending {
		t.next = nil
		return
	}
	t.addInterval(now)
	t.next.Reset(t.pause)
}

// stop looks once more, and ends looking: the last graph has ended.
func (t *taken) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addInterval(stream.MonoNS())
	t.ended = 0
}

// full reports whether no more intervals are kept until they are settled.
func (t *taken) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending) >= maxPending
}

// maxPending bounds the intervals that are kept until an execution shows whether they are within the run: 50 s.
const maxPending = 1000

// watched are the intervals within the run: what was taken in them, what the model's threads waited for a processor,
// and how long they are.
type watched struct{ taken, waits, over int64 }

// interval is what was taken and waited between two looks, by the monotonic clock.
type interval struct{ from, to, ns, waits int64 }

// addInterval adds the interval since the last look.
func (t *taken) addInterval(now int64) {
	t.pause = takenEvery
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) != nil {
		return
	}
	own := use.Utime.Nano() + use.Stime.Nano()
	waited, waits := t.read()
	if t.first == 0 {
		t.first = now
	}
	if t.at != 0 {
		t.plan(time.Duration(now-t.at), time.Duration(own-t.own), time.Duration(now-t.first))
		ns := min(own-t.own, now-t.at)
		if len(waited) > 0 { // else a kernel without CONFIG_SCHED_INFO, or the process has ended
			ns = min(ns, waits)
		}
		t.pending = append(t.pending, interval{t.at, now, ns, waits})
	}
	t.at, t.own, t.waited = now, own, waited
}

// plan sets the pause until the next look: in the interval before this one, so much was used.
func (t *taken) plan(interval, used, all time.Duration) {
	longest := min(takenSeldom, all/16)
	if used > 0 {
		longest = min(longest, time.Duration(float64(interval)*float64(takenWorth)/float64(used)))
	}
	t.pause = max(takenEvery, longest)
}

// settle counts the intervals within a run whose first graph began and whose last one, as far as is known, ended then,
// and returns their sum. This process reads reports later than the model writes them: a later graph may still show
// that more of an interval belongs. Of one that continues after the last graph, all may have been taken before that;
// one that is mostly behind it says nothing.
func (t *taken) settle(first, last int64) watched {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, i := range t.pending {
		if i.to > last {
			break
		}
		if n++; i.to > first && first != 0 { // what was taken before the first graph, since the look before, is little
			t.sum.add(i.ns, i.waits, i.to-max(i.from, first))
		}
	}
	t.pending = t.pending[n:]
	sum := t.sum
	if len(t.pending) > 0 && first != 0 {
		i := &t.pending[0]
		if within := last - max(i.from, first); within > (i.to-i.from)/2 {
			sum.add(min(i.ns, within), int64(float64(i.waits)*float64(within)/float64(i.to-i.from)), within)
		}
	}
	return sum
}

func (w *watched) add(taken, waits, over int64) {
	w.taken, w.waits, w.over = w.taken+taken, w.waits+waits, w.over+over
}

// read returns how long each thread of the model has waited for a processor, and the sum since the last look, with what
// new threads have waited since they began. The tap's own threads are not the model's.
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
		before, known := t.waited[thread.Name()]
		if !known {
			name, _ := fs.ReadFile(t.root, folder+"/"+thread.Name()+"/comm")
			if strings.TrimSpace(string(name)) == resource.TapThread {
				continue
			}
		}
		waited[thread.Name()] = wait
		since += max(0, wait-before)
	}
	return waited, since
}

// newTaken looks at the process that has the tap.
func newTaken(pid int) *taken { return &taken{root: os.DirFS("/"), pid: pid} }
