package process

import (
	"slices"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// mostChildren is the most processes in a line besides the first. For the others it gives their number they are.
const mostChildren = 1024

// family is a process and those that it has started, as they were at the snapshot before.
type family struct {
	first  int // 0: none yet
	before map[int]*figures
}

// fill fills in a line: the first process, its children if they are followed, and their total.
func (m *Monitor) fill(line *resource.MonitorLine, first int, took time.Duration) {
	g := &m.family
	if first != g.first {
		g.first, g.before = first, map[int]*figures{}
	}
	pids := []int{first}
	if m.o.Children != nil {
		others := slices.DeleteFunc(slices.Clone(m.o.Children()), func(pid int) bool { return pid == first })
		if line.LeftOut = max(len(others)-m.most, 0); line.LeftOut > 0 {
			others = others[:m.most]
		}
		pids = append(pids, others...)
	}
	now := g.read(m.host, pids)
	begun := g.before[first] != nil
	for _, pid := range pids {
		f := now[pid]
		switch {
		case f == nil || f.Ended():
		case pid == first:
			line.Model = usageSince(f, g.before[pid], took)
		default:
			child := usageSince(f, g.before[pid], took)
			child.Parent = f.Parent
			line.Children = append(line.Children, *child)
		}
	}
	if m.o.Children != nil {
		line.Total = g.total(now)
		if line.Total != nil && begun && took > 0 {
			share := float64(line.Total.UserNS+line.Total.SystemNS) / float64(took)
			line.Total.CPUShare = &share
		}
	}
	g.before = now
}

// read reads the figures of processes, and of those of the snapshot before that nobody has waited for.
func (g *family) read(h host, pids []int) map[int]*figures {
	now := make(map[int]*figures, len(pids))
	look := func(pid int) *figures {
		f, err := h.read(pid)
		if err != nil {
			return nil
		}
		return f
	}
	for _, pid := range pids {
		if f := look(pid); f != nil {
			now[pid] = f
		}
	}
	for pid, before := range g.before {
		if now[pid] != nil {
			continue
		}
		if f := look(pid); f != nil && f.sameAs(before) {
			now[pid] = f
		}
	}
	return now
}

// usageSince returns what a process took since it was last looked at, nil: since it began.
func usageSince(now, before *figures, took time.Duration) *resource.ProcessUse {
	known := before != nil && before.sameAs(now)
	if !known {
		before = &figures{io: &resource.ProcessIO{}}
	}
	grew := now.own().since(before.own())
	u := &resource.ProcessUse{
		PID: now.ID, Name: now.Name, RSSBytes: now.rss, VirtualBytes: now.virtual, Threads: now.Threads,
		UserNS: grew.userNS(), SystemNS: grew.systemNS(), Minor: grew.Minor, Major: grew.Major,
	}
	if known && took > 0 {
		share := float64(u.UserNS+u.SystemNS) / float64(took)
		u.CPUShare = &share
	}
	if now.io != nil && before.io != nil {
		io := ioSince(*now.io, *before.io)
		u.IO = &io
	}
	return u
}

// total returns what all took since the snapshot before, those that ended meanwhile included, as far as one of the
// others has waited for them: the kernel adds what a process took to the figures of who waits for it, and what an
// earlier snapshot already reported is subtracted. It is nil where no process is left.
func (g *family) total(now map[int]*figures) *resource.ProcessTotal {
	reported, reportedIO := g.handedOn(now)
	t := &resource.ProcessTotal{IO: &resource.ProcessIO{}}
	for pid, f := range now {
		before := g.before[pid]
		if before == nil || !before.sameAs(f) {
			before = &figures{io: &resource.ProcessIO{}}
		}
		grew := f.withWaited().since(before.withWaited().plus(reported[pid])).atLeast(f.own().since(before.own()))
		t.UserNS, t.SystemNS = t.UserNS+grew.userNS(), t.SystemNS+grew.systemNS()
		t.Minor, t.Major = t.Minor+grew.Minor, t.Major+grew.Major
		switch {
		case t.IO == nil:
		case f.io != nil && before.io != nil:
			*t.IO = ioPlus(*t.IO, ioSince(*f.io, ioPlus(*before.io, reportedIO[pid])))
		case !f.Ended():
			t.IO = nil
		}
		if !f.Ended() {
			t.Processes, t.RSSBytes, t.Threads = t.Processes+1, t.RSSBytes+f.rss, t.Threads+f.Threads
		}
	}
	if t.Processes == 0 {
		return nil
	}
	return t
}

// handedOn is what ended processes had used at their last report, by the process that waited for them: the nearest of
// those that started them that is left.
func (g *family) handedOn(now map[int]*figures) (map[int]counts, map[int]resource.ProcessIO) {
	all, io := map[int]counts{}, map[int]resource.ProcessIO{}
	for pid, f := range g.before {
		if still := now[pid]; still != nil && still.sameAs(f) {
			continue
		}
		by := f.Parent
		for range len(g.before) { // a number may be in use again, so that this could go round
			parent := g.before[by]
			if now[by] != nil || parent == nil {
				break
			}
			by = parent.Parent
		}
		if now[by] == nil {
			continue
		}
		all[by] = all[by].plus(f.withWaited())
		if f.io != nil {
			io[by] = ioPlus(io[by], *f.io)
		}
	}
	return all, io
}
