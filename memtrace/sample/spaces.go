package sample

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// Spaces are what processes have mapped: of one process and those that it starts, from the kernel's records of
// mappings, forks and exits, and from /proc. All of that is put in the order of time, and applied up to a time. Observe
// may be called by several goroutines, the rest is for one.
type Spaces struct {
	objects objects
	all     map[int32]*Space
	first   int32 // the first process, which is never forgotten
	ended   []Process
	waiting []event // in the order of time
	unknown map[int32]bool
	last    int32 // process that was looked at last, of those that take turns
	mu      sync.Mutex
	fresh   []event
	dropped uint64
}

// event is a change of one process's memory.
type event struct {
	kind eventKind
	pid  int32
	ns   int64
	by   int32  // forked: the parent, 0: it did not take over the parent's memory
	name string // became, seen: the program's
	one  memtrace.Mapping
	all  []memtrace.Mapping // seen
}

type eventKind uint8

const (
	mapped eventKind = iota
	became           // another program
	forked
	ended
	seen // all of its mappings were
)

// Bounds of what is remembered. Mappings beyond them are seen by the next look.
const (
	maxFresh   = 1 << 16 // events that nobody has gathered
	maxWaiting = 1 << 18 // events that wait for their time; the oldest do not wait longer
	maxSpaces  = 1 << 12 // processes at a time
	maxEnded   = 1 << 12 // processes that are listed
)

// NewSpaces makes spaces of no process.
func NewSpaces() *Spaces { return &Spaces{all: map[int32]*Space{}, unknown: map[int32]bool{}} }

// commExec is the bit of a record's Misc which is set if a process has got its name from execve(2).
const commExec = 1 << 13

// forkExec is the bit of a record's Misc by which perf says that it made the record up, of a process that was there
// already.
const forkExec = 1 << 13

// Observe takes a record that is not a sample. Records that do not concern a process's memory are ignored.
func (s *Spaces) Observe(r *perf.Record) {
	e := event{pid: int32(r.PID), ns: int64(r.Sample.Time)}
	switch {
	case r.Type == perf.RecordComm && r.Misc&commExec != 0:
		e.kind, e.name = became, string(r.Name)
	case r.Type == perf.RecordMmap2 || r.Type == perf.RecordMmap:
		e.one = memtrace.Mapping{Start: r.Addr, End: r.Addr + r.Length, Offset: r.Offset, Path: string(r.Name),
			Perms: perms(r.Prot)}
		if e.one.Start >= e.one.End {
			return
		}
		if e.one.Path == "//anon" { // which has no name in /proc/PID/maps
			e.one.Path = ""
		}
	case r.Type == perf.RecordFork && r.PID != r.ParentPID:
		if e.kind = forked; r.Misc&forkExec == 0 {
			e.by = int32(r.ParentPID)
		}
	case r.Type == perf.RecordExit && r.PID == r.TID:
		e.kind = ended
	default:
		return
	}
	s.put(e)
}

func (s *Spaces) put(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fresh) == maxFresh {
		s.dropped++
		return
	}
	s.fresh = append(s.fresh, e)
}

// perms makes of PROT_READ and so on what /proc/PID/maps has.
func perms(prot uint32) string {
	b := []byte("---p")
	for i, c := range "rwx" {
		if prot&(1<<i) != 0 {
			b[i] = byte(c)
		}
	}
	return string(b)
}

// Look looks at what a process has mapped, at a time, and returns it. The process is followed from now on. Of one
// that has ended nothing is known, and what was known stays.
func (s *Spaces) Look(pid int, ns int64) ([]memtrace.Mapping, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mappings, err := memtrace.ParseMaps(file)
	if err != nil || len(mappings) == 0 {
		return nil, err
	}
	s.first = cmp.Or(s.first, int32(pid))
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	s.put(event{kind: seen, pid: int32(pid), ns: ns, name: strings.TrimSpace(string(name)), all: mappings})
	return mappings, nil
}

// LookAround looks at processes that are followed, but for the first one, at most so many: those of which nothing
// was seen yet, then the others in turn.
func (s *Spaces) LookAround(ns int64, most int) {
	look := func(pid int32) bool {
		if most > 0 {
			most--
			_, _ = s.Look(int(pid), ns) // of one that ends what was known stays
		}
		return most > 0
	}
	for pid := range s.unknown {
		delete(s.unknown, pid)
		if !look(pid) {
			return
		}
	}
	pids := slices.Sorted(maps.Keys(s.all))
	at, _ := slices.BinarySearch(pids, s.last+1)
	for i := range pids {
		pid := pids[(at+i)%len(pids)]
		if pid == s.first || s.all[pid].End != 0 {
			continue
		}
		s.last = pid
		if !look(pid) {
			return
		}
	}
}

// Gather takes the events observed so far, so that they can be applied.
func (s *Spaces) Gather() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, s.fresh...)
	s.fresh = nil
	slices.SortStableFunc(s.waiting, func(a, b event) int { return cmp.Compare(a.ns, b.ns) })
	if n := len(s.waiting) - maxWaiting; n > 0 {
		s.Apply(s.waiting[n-1].ns)
	}
}

// Apply lets happen what was gathered, up to a time, which is included.
func (s *Spaces) Apply(ns int64) {
	n := 0
	for ; n < len(s.waiting) && s.waiting[n].ns <= ns; n++ {
		s.apply(&s.waiting[n])
	}
	clear(s.waiting[:n])
	s.waiting = s.waiting[n:]
}

func (s *Spaces) apply(e *event) {
	space := s.all[e.pid]
	if e.kind == forked {
		s.fork(space, e)
		return
	}
	if e.kind == ended {
		if space != nil && space.End == 0 {
			space.End = e.ns
		}
		return
	}
	if space == nil {
		if space = s.add(newSpace(e.pid, &s.objects)); space == nil {
			return
		}
	}
	switch e.kind {
	case became:
		space.exec(e.ns, e.name)
	case seen:
		space.Name = cmp.Or(e.name, space.Name)
		space.setMappings(e.ns, e.all)
	default:
		space.mapped(e.ns, e.one)
	}
}

// fork lets a process begin. old is who had its number before.
func (s *Spaces) fork(old *Space, e *event) {
	if old != nil {
		s.forget(old)
	}
	if parent := s.all[e.by]; parent != nil {
		s.add(parent.fork(e.pid, e.ns))
		return
	}
	child := newSpace(e.pid, &s.objects)
	child.Process = Process{PID: e.pid, Parent: e.by, Begin: e.ns}
	if s.add(child) != nil {
		s.unknown[e.pid] = true
	}
}

// add follows a process, if there are not too many.
func (s *Spaces) add(space *Space) *Space {
	if len(s.all) >= maxSpaces {
		s.Forget(0)
	}
	if len(s.all) >= maxSpaces {
		return nil
	}
	s.first = cmp.Or(s.first, space.PID)
	s.all[space.PID] = space
	return space
}

// Forget forgets the memory of processes that have ended before a time, 0: ever.
func (s *Spaces) Forget(before int64) {
	for pid, space := range s.all {
		if pid != s.first && space.End != 0 && (before == 0 || space.End < before) {
			s.forget(space)
		}
	}
}

func (s *Spaces) forget(space *Space) {
	delete(s.all, space.PID)
	if len(s.ended) < maxEnded {
		s.ended = append(s.ended, space.Process)
	}
}

// Of is what a process has mapped; nil: it is not followed. It is looked at by the next LookAround then.
func (s *Spaces) Of(pid int32) *Space {
	space := s.all[pid]
	if space == nil && len(s.unknown) < maxSpaces {
		s.unknown[pid] = true
	}
	return space
}

// Processes are those that were followed, in the order in which they began. Of too many some are left out.
func (s *Spaces) Processes() []Process {
	all := slices.Clone(s.ended)
	for _, space := range s.all {
		all = append(all, space.Process)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.PID, b.PID))
	})
	return all
}

// Running are the processes that are followed and have not ended, by all that was gathered, applied or not, in the
// order in which they began.
func (s *Spaces) Running() []int {
	type process struct {
		pid   int32
		begin int64
	}
	all := map[int32]process{}
	for pid, space := range s.all {
		if space.End == 0 {
			all[pid] = process{pid, space.Begin}
		}
	}
	for i := range s.waiting {
		switch e := &s.waiting[i]; e.kind {
		case forked:
			all[e.pid] = process{e.pid, e.ns}
		case ended:
			delete(all, e.pid)
		}
	}
	sorted := slices.SortedFunc(maps.Values(all), func(a,
		b process) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.pid, b.pid))
	})
	pids := make([]int, len(sorted))
	for i, p := range sorted {
		pids[i] = int(p.pid)
	}
	return pids
}
