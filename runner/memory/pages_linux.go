package memory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// pages finds the pages of programs that were written in an interval: of their heaps, their variables and all other
// memory that is not a file's and no stack. It begins with a process when that has loaded the tap; what is mapped
// later is watched from the next look on. A nil one finds nothing.
type pages struct {
	r       *recorder
	family  []int // the processes that ran at the last look
	watched map[int]*watched
	err     error // why the first process is not watched, or no longer
	before  int64
	found   []sample.Range
	rows    []pageRow // that wait until it is known what lay there
	use     sample.PageUse
}

// watched is one process whose pages are found.
type watched struct {
	pid    int
	watch  *sample.Written
	ranges map[sample.Range]bool
	before int64
}

// pageRow is pages that were found written.
type pageRow struct {
	memtrace.Access
	window int64
}

// errEarly occurs when a program was too short to be watched.
var errEarly = errors.New("the program had ended before its pages could be watched")

// errShort occurs when a program was watched, and had ended before anybody could look what it had written.
var errShort = errors.New("the program had ended before its pages were looked at a second time: look more often with " +
	"--interval, 0.05 at least")

// newPages begins with a process that runs; a command has not come so far.
func newPages(r *recorder) (*pages, error) {
	p := &pages{r: r, watched: map[int]*watched{}}
	if r.o.Command != nil {
		return p, nil
	}
	watch, err := sample.Watch(r.pid)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; leave pages out, or let this command start the program", sample.Pages, err)
	}
	p.watched[r.pid] = &watched{pid: r.pid, watch: watch, ranges: map[sample.Range]bool{}}
	return p, nil
}

// step looks if it is time.
func (p *pages) step(now int64) {
	if p == nil || p.before != 0 && now-p.before < int64(p.r.o.Interval) {
		return
	}
	pids := []int{p.r.pid}
	if !p.r.o.Alone {
		pids = append(pids, perf.Descendants(p.r.pid)...)
	}
	p.family = pids
	scanned := false
	for _, pid := range pids {
		scanned = p.watchMappings(pid, now) || scanned
	}
	for pid, w := range p.watched {
		if !slices.Contains(pids, pid) {
			p.end(w)
		}
	}
	if scanned {
		p.use.Scans++
	}
	if len(p.watched) > 0 {
		p.before = now
	}
}

// watchMappings finds what a process has written, and watches what it has mapped by now. It reports whether anything
// was watched until now.
func (p *pages) watchMappings(pid int, now int64) (scanned bool) {
	w := p.watched[pid]
	if w == nil {
		watch, err := sample.Watch(pid)
		if err != nil {
			if pid == p.r.pid && p.use.Scans == 0 {
				if p.err = err; errors.Is(err, fs.ErrNotExist) {
					p.err = errEarly
				}
			}
			return false
		}
		if pid == p.r.pid {
			p.err = nil
		}
		w = &watched{pid: pid, watch: watch, ranges: map[sample.Range]bool{}, before: now}
		p.watched[pid] = w
	}
	if err := p.scan(w, now); err != nil {
		p.end(w)
		if !errors.Is(err, syscall.ESRCH) { // of one that has ended nothing is missing
			p.err = err
		}
		return false
	}
	scanned = len(w.ranges) > 0
	p.extend(w, now)
	w.before = now
	return scanned
}

// scan finds what was written since the look before.
func (p *pages) scan(w *watched, now int64) error {
	for at := range w.ranges {
		var err error
		p.found, err = w.watch.Scan(p.found[:0], at)
		if errors.Is(err, sample.ErrRange) {
			p.use.Renewed++
			delete(w.ranges, at) // what is there now is added below
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range p.found {
			row := pageRow{f.Access(w.pid, now), now - w.before}
			row.TID = 0 // whichever thread it was
			p.use.Pages += row.Size / uint64(os.Getpagesize())
			p.rows = append(p.rows, row)
		}
	}
	return nil
}

// extend watches what is mapped by now.
func (p *pages) extend(w *watched, now int64) {
	mappings, err := p.r.spaces.Look(w.pid, now)
	if err != nil || len(mappings) == 0 {
		return
	}
	live := map[sample.Range]bool{}
	for i := range mappings {
		at := sample.Range{Start: mappings[i].Start, End: mappings[i].End}
		if !watchable(&mappings[i]) {
			continue
		}
		if !w.ranges[at] {
			if w.watch.Add(at) != nil {
				continue // it is gone already, or of a kind that this kernel does not watch
			}
			p.use.Ranges++
		}
		live[at] = true
	}
	w.ranges = live
}

// watchable reports whether the written pages of a mapping are found: memory of the program's own, and private copies
// of files' pages, such as variables.
func watchable(m *memtrace.Mapping) bool {
	if !strings.HasPrefix(m.Perms, "rw") {
		return false
	}
	if strings.HasPrefix(m.Path, "/") {
		return strings.HasSuffix(m.Perms, "p") && !strings.HasPrefix(m.Path, "/dev/")
	}
	return m.Path == "" || m.Path == "[heap]" || strings.HasPrefix(m.Path, "[anon")
}

// write writes the pages that were found before a time.
func (p *pages) write(upto int64) {
	if p == nil {
		return
	}
	n := 0
	for ; n < len(p.rows) && p.rows[n].TimeNS <= upto; n++ {
		row := sample.Row{Access: p.rows[n].Access, Moment: sample.NoMoment, Block: -1, Window: p.rows[n].window}
		p.r.label(&row)
		p.r.write(&row)
		p.r.rows[row.PID]++
	}
	p.rows = append(p.rows[:0], p.rows[n:]...)
}

// end ends the watching of a process.
func (p *pages) end(w *watched) {
	w.watch.Close()
	delete(p.watched, w.pid)
}

// usage is what was found so far.
func (p *pages) usage() sample.CollectorUse {
	return sample.CollectorUse{Collector: sample.Pages, Samples: p.use.Pages,
		Tally: p.r.tallies[memtrace.CollectorPage], Pages: &p.use}
}

// missing reports why nothing was found, if nothing could be.
func (p *pages) missing() []string {
	switch {
	case p == nil || p.err == nil && p.use.Scans > 0:
		return nil
	case p.err == nil:
		return []string{sample.Pages + ": " + errShort.Error()}
	}
	return []string{sample.Pages + ": " + p.err.Error()}
}
