package memory

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/pagefault"
	"github.com/llamatap/llamatap/runner/sampling"
)

// pages finds the pages of a program that were written in an interval: of its heap and of all other memory that is no file's and no stack. It begins when the
// program has loaded the tap; what is mapped later is watched from the next look on. A nil one finds nothing.
type pages struct {
	r      *recorder
	watch  *pagefault.Written
	err    error // why there is none, or no longer
	gone   bool
	ranges map[pagefault.Range]bool
	before int64
	found  []pagefault.Range
	use    sampling.PageUse
}

// step looks if it is time.
func (p *pages) step(now int64) {
	if p == nil || p.gone || p.watch != nil && now-p.before < int64(p.r.o.Interval) {
		return
	}
	if p.watch == nil {
		if p.watch, p.err = pagefault.Watch(p.r.pid); p.err != nil {
			return // it has not come so far, or never will
		}
		p.ranges = map[pagefault.Range]bool{}
	}
	p.scan(now)
	p.extend(now)
	p.before = now
}

// scan finds what was written since the look before.
func (p *pages) scan(now int64) {
	if len(p.ranges) == 0 {
		return
	}
	for at := range p.ranges {
		var err error
		p.found, err = p.watch.Scan(p.found[:0], at)
		switch {
		case errors.Is(err, pagefault.ErrRange):
			p.use.Renewed++
			delete(p.ranges, at) // what is there now is added below
			continue
		case err != nil:
			p.end(err)
			return
		}
		for _, f := range p.found {
			row := sampling.Row{Access: f.Access(p.r.pid, now), Moment: sampling.NoMoment, Block: -1, Window: now - p.before}
			row.TID = 0 // whichever thread it was
			row.Hit = p.r.regions.Address(row.Addr, now)
			p.use.Pages += row.Size / uint64(os.Getpagesize())
			p.r.write(&row)
		}
	}
	p.use.Scans++
}

// extend watches what is mapped by now.
func (p *pages) extend(now int64) {
	if p.gone || p.r.space.Look(p.r.pid, now) != nil {
		return
	}
	live := map[pagefault.Range]bool{}
	for _, m := range p.r.space.Mapped() {
		at := pagefault.Range{Start: m.Start, End: m.End}
		if !watchable(&m) {
			continue
		}
		if !p.ranges[at] {
			if p.watch.Add(at) != nil {
				continue // it is gone already
			}
			p.use.Ranges++
		}
		live[at] = true
	}
	p.ranges = live
}

// watchable tells whether the written pages of a mapping are found: memory of the program's own.
func watchable(m *memtrace.Mapping) bool {
	return strings.HasPrefix(m.Perms, "rw") && (m.Path == "" || m.Path == "[heap]" || strings.HasPrefix(m.Path, "[anon"))
}

// end ends the looking. Of a program that has ended that is no failure.
func (p *pages) end(err error) {
	p.gone, p.err = true, err
	if _, statErr := os.Stat(fmt.Sprintf("/proc/%d/maps", p.r.pid)); statErr != nil && p.use.Scans > 0 {
		p.err = nil
	}
}

// close ends the watching.
func (p *pages) close() {
	if p != nil && p.watch != nil {
		p.watch.Close()
		p.gone = true
	}
}

// told is what was found until now.
func (p *pages) told() sampling.CollectorUse {
	return sampling.CollectorUse{Collector: sampling.Pages, Samples: p.use.Pages, Tally: p.r.tallies[memtrace.CollectorPage], Pages: &p.use}
}

// missing tells why nothing was found, if nothing could be.
func (p *pages) missing() []string {
	if p.err == nil {
		return nil
	}
	return []string{sampling.Pages + ": " + p.err.Error()}
}
