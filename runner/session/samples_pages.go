//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/store/stream"
)

// writtenPages finds the pages that the model's process writes, graph by graph: the memory of its caches,
// activations and outputs is scanned where a graph begins and where it ends, and meanwhile the model waits
// (collect.Options.InStep). So what is found at an end was written by that graph, and what is found at a beginning
// between two of them. A nil one finds nothing.
type writtenPages struct {
	to      *sampleRows
	pid     func() int
	missing []string        // why it ended
	watch   *sample.Written // nil: not yet, or not any more
	gone    bool            // the process has ended, or cannot be watched
	buffers []*watchedBuffer
	before  int64 // when it was scanned, the time before; 0 = nothing was
	rows    []pageRow
	use     sample.PageUse
	found   []sample.Range
}

// watchedBuffer is a buffer whose pages are to be found.
type watchedBuffer struct {
	id    uint64
	at    sample.Range
	added bool
}

// pageRow is pages that a scan has found, until their phase is known.
type pageRow struct {
	memtrace.Access
	window int64
}

// buffer notes a buffer: one that is not the model's weights. It is watched from the next graph's beginning on.
func (w *writtenPages) buffer(b *ggmlhooks.Buffer) {
	if w == nil || b.Size == 0 {
		return
	}
	known := slices.ContainsFunc(w.buffers, func(k *watchedBuffer) bool { return k.id == b.ID })
	switch wanted := b.Host && !b.Mapped && b.Usage != ggmlhooks.BufferWeights; {
	case wanted && !known:
		at := sample.Range{Start: b.Base, End: b.Base + b.Size}
		w.buffers = append(w.buffers, &watchedBuffer{id: b.ID, at: at})
	case !wanted:
		w.end(b.ID)
	}
}

// end forgets a buffer. What was written to it since the last scan is not known; no graph is computed then.
func (w *writtenPages) end(id uint64) {
	if w != nil {
		w.buffers = slices.DeleteFunc(w.buffers, func(k *watchedBuffer) bool { return k.id == id })
	}
}

// begin looks at what was written until a graph begins, and watches what is new.
func (w *writtenPages) begin(ns int64) {
	if w == nil || w.gone {
		return
	}
	if w.watch == nil {
		watch, err := sample.Watch(w.pid())
		if err != nil {
			w.fail(err)
			return
		}
		w.watch = watch
	}
	w.scan(ns - 1)
	for _, b := range w.buffers {
		if b.added {
			continue
		}
		if err := w.watch.Add(b.at); err != nil {
			w.fail(err)
			return
		}
		b.added = true
		w.use.Ranges++
	}
	w.before = ns
}

// computed looks at what a graph has written.
func (w *writtenPages) computed(ns int64) {
	if w == nil {
		return
	}
	if w.gone || !w.scan(ns-1) {
		w.use.Unseen++
	}
}

// scan scans all ranges. What it finds was written between the scan before and a time.
func (w *writtenPages) scan(ns int64) bool {
	if w.watch == nil {
		return false
	}
	began := stream.MonoNS()
	whole := true
	for _, b := range w.buffers {
		if !b.added {
			continue
		}
		var err error
		w.found, err = w.watch.Scan(w.found[:0], b.at)
		if errors.Is(err, sample.ErrRange) {
			w.use.Renewed++
			whole = false
			b.added = w.watch.Add(b.at) == nil
			continue
		}
		if err != nil {
			w.fail(err)
			return false
		}
		for _, f := range w.found {
			w.rows = append(w.rows, pageRow{f.Access(w.pid(), ns), max(ns-w.before, 1)})
		}
	}
	w.before = ns
	w.use.Scans++
	w.use.ScanNS += stream.MonoNS() - began
	return whole
}

// fail ends the scanning. Of a process that has ended that is not a failure.
func (w *writtenPages) fail(err error) {
	w.gone = true
	if w.watch != nil {
		w.watch.Close()
		w.watch = nil
	}
	if _, ended := os.Stat(fmt.Sprintf("/proc/%d/maps", w.pid())); ended != nil && w.use.Scans > 0 {
		return
	}
	w.missing = append(w.missing, "pages: "+err.Error())
	fmt.Fprintf(present.Err, "llamatap: --tap-samples pages: %v; the rest continues\n", err)
}

// write writes the pages that were found before a time, by the regions that they lie in.
func (w *writtenPages) write(upto int64, last bool) {
	if w == nil {
		return
	}
	n := 0
	for ; n < len(w.rows) && w.rows[n].TimeNS < upto; n++ {
		w.split(&w.rows[n], last)
	}
	w.rows = w.rows[:copy(w.rows, w.rows[n:])]
}

// split writes a row for neighbouring pages of one region. Of a page that several regions share it is not known
// which was written: it is of none.
func (w *writtenPages) split(p *pageRow, last bool) {
	page := uint64(os.Getpagesize())
	row := sample.Row{Moment: w.to.times.moment(p.TimeNS, last), Window: p.window, Block: -1}
	for at, end := p.Addr, p.Addr+p.Size; at < end; {
		first := w.region(at, page, p.TimeNS)
		next := at + page
		for next < end && w.region(next, page, p.TimeNS).Region == first.Region {
			next += page
		}
		row.Access, row.Hit = p.Access, first
		row.Addr, row.Size, row.TID = at, next-at, 0 // whichever thread it was
		if first.Region == nil {
			w.use.Shared += (next - at) / page
		}
		w.use.Pages += (next - at) / page
		w.to.write(&row)
		at = next
	}
}

// region is what lies in a page as a whole: of several activations it is the memory that they share.
func (w *writtenPages) region(at, page uint64, ns int64) memtrace.Hit {
	first, last := w.to.regions.Address(at, ns), w.to.regions.Address(at+page-1, ns)
	switch {
	case first.Region == last.Region:
		return first
	case first.Region == nil || last.Region == nil || first.Region.Buffer == 0 ||
		first.Region.Buffer != last.Region.Buffer:
		return memtrace.Hit{}
	}
	b := w.to.regions.Buffer(first.Region.Buffer)
	if b.Usage != memtrace.UsageCompute {
		return memtrace.Hit{}
	}
	return w.to.regions.At(b.ID, at-b.Base)
}

// close ends the watching.
func (w *writtenPages) close() {
	if w != nil && w.watch != nil {
		w.watch.Close()
		w.watch = nil
		w.gone = true
	}
}
