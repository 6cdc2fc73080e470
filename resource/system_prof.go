package resource

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// How many threads the events of llamatap host prof name.
const (
	profTopFaulting = 5
	profTopThreads  = 10
)

// Mem returns the event mem of a snapshot, its header but for the origin empty.
func (l *SystemLine) Mem() *ProfMem {
	m := &ProfMem{FaultsByPID: maps.Clone(l.Faults), PSI: map[string]ProfPSI{}, TopThreads: []ProfFaults{}}
	m.Type, m.Origin = ProfTypeMem, l.Origin
	if m.FaultsByPID == nil {
		m.FaultsByPID = map[string]uint64{}
	}
	for _, n := range m.FaultsByPID {
		m.FaultsTotal += n
	}
	for name, stall := range l.Pressure {
		m.PSI[name] = stall.prof()
	}
	for _, p := range l.Processes {
		if p.RSSBytes != nil {
			kb := *p.RSSBytes / 1024
			if m.RSSByPID == nil {
				m.RSSByPID, m.RSSKB = map[string]uint64{}, new(uint64)
			}
			m.RSSByPID[strconv.Itoa(p.PID)] = kb
			*m.RSSKB += kb
		}
		addFigure(&m.MajorFaults, p.Major)
	}
	for _, t := range l.top(profTopFaulting, func(t *ThreadLine) int64 { return int64(t.Faults) }) {
		if t.Faults > 0 {
			m.TopThreads = append(m.TopThreads, ProfFaults{PID: t.TGID, TID: t.TID, Faults: t.Faults, Comm: t.Comm,
				Major: t.Major})
		}
	}
	return m
}

func (s HostStall) prof() ProfPSI {
	var p ProfPSI
	kind := func(name string) *ProfStall {
		f, ok := s[name]
		if !ok {
			return nil
		}
		return &ProfStall{Avg10: f.Avg10, Avg60: f.Avg60, Avg300: f.Avg300, TotalUS: uint64(f.Total)}
	}
	p.Some, p.Full = kind("some"), kind("full")
	if p.Some != nil {
		p.Avg10, p.Avg60, p.Avg300 = p.Some.Avg10, p.Some.Avg60, p.Some.Avg300
	}
	return p
}

// Sched returns the event sched of a snapshot, its header but for the origin empty. Threads that idled
// throughout are in no figure, and the list has those alone that were delayed at work: no parked ones.
func (l *SystemLine) Sched() *ProfSched {
	s := &ProfSched{ThreadCount: len(l.Threads), Threads: []ProfThread{}}
	s.Type, s.Origin = ProfTypeSched, l.Origin
	var off, lived int64
	for i := range l.Threads {
		off += l.Threads[i].OffCPUNS()
		lived += l.Threads[i].LivedNS
		s.IdleNS += l.Threads[i].WorkWaitNS()
		s.UnknownNS += nsOf(l.Threads[i].FutexUnknownNS)
	}
	if lived > 0 {
		s.TotalOffCPUPct = 100 * float64(off) / float64(lived)
	}
	delay := func(t *ThreadLine) int64 {
		if t.Role == RoleParked { // its waits for a processor or a disk are in the total alone
			return 0
		}
		return t.OffCPUNS()
	}
	for _, t := range l.top(profTopThreads, delay) {
		if delay(t) > 0 {
			s.Threads = append(s.Threads, t.prof(l.ActualS))
		}
	}
	return s
}

func (t *ThreadLine) prof(intervalS float64) ProfThread {
	p := ProfThread{
		TID: t.TID, TGID: t.TGID, Comm: t.Comm, OffCPUNS: t.OffCPUNS(), Switches: t.Voluntary + t.Involuntary,
		RunnableWaitNS: t.RunnableWaitNS, BlockedDiskNS: t.BlockedDiskNS, BlockedLockNS: t.BlockedLockNS,
		BlockedOtherNS: t.BlockedOtherNS, IdleNS: t.IdleNS, OnCPUNS: t.OnCPUNS,
		Role: t.Role, FutexNS: t.FutexNS, FutexIdleNS: t.FutexIdleNS, FutexUnknownNS: t.FutexUnknownNS,
	}
	if intervalS > 0 {
		p.OffCPUPct = float64(p.OffCPUNS) / 1e7 / intervalS
	}
	if t.RunQueue != nil {
		p.RQP95US, p.RQP99US, p.RQMaxUS = &t.RunQueue.P95, &t.RunQueue.P99, &t.RunQueue.Max
	}
	return p
}

// top returns the n threads of which a figure is largest.
func (l *SystemLine) top(n int, figure func(*ThreadLine) int64) []*ThreadLine {
	threadLines := make([]*ThreadLine, len(l.Threads))
	for i := range l.Threads {
		threadLines[i] = &l.Threads[i]
	}
	slices.SortStableFunc(threadLines, func(a, b *ThreadLine) int { return cmp.Compare(figure(b), figure(a)) })
	return threadLines[:min(n, len(threadLines))]
}
