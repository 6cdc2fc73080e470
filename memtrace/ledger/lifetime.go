package ledger

import (
	"slices"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// lifetimes writes when memory came and went, and when weights were filled.
type lifetimes struct {
	out     *output
	windows *windows
	m       *memtrace.RegionMap
	now     memtrace.Phase // outside of graphs: loading until an execution of the run was written
	waiting []event        // in order: what memory is for is known when an execution after its coming is decided
	loaded  map[*memtrace.Region]bool
	filling []uint64 // buffers of weights that are not written as filled yet
	fills   int      // waiting events that will fill some
}

// event is that memory came or went, or that the weights in it were filled.
type event struct {
	op   memtrace.AccessOp
	id   uint64
	ns   int64
	size uint64
}

// note keeps an event until it can be written.
func (l *lifetimes) note(e event) { l.waiting = append(l.waiting, e) }

// noteFilled keeps that weights were filled, before memory that came later: that is of the context.
func (l *lifetimes) noteFilled(ns int64) {
	at := len(l.waiting)
	for at > 0 && l.waiting[at-1].ns > ns {
		at--
	}
	l.waiting = slices.Insert(l.waiting, at, event{op: memtrace.OpWrite, ns: ns})
	l.fills++
}

// until writes the events up to the first one after a time.
func (l *lifetimes) until(ns int64) error {
	n := 0
	for ; n < len(l.waiting) && l.waiting[n].ns <= ns; n++ {
		e := &l.waiting[n]
		var err error
		if e.op == memtrace.OpWrite {
			l.fills--
			err = l.filled(e.ns)
		} else {
			err = l.buffer(e)
		}
		if err != nil {
			return err
		}
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	return nil
}

// buffer writes that memory came or went.
func (l *lifetimes) buffer(e *event) error {
	b := l.m.Buffer(e.id)
	if b == nil {
		return nil
	}
	if e.op == memtrace.OpFree { // what the open window sums up was touched before
		if err := l.windows.flush(); err != nil {
			return err
		}
	}
	w := l.out
	w.newest = max(w.newest, e.ns)
	w.Int(memtrace.TraceTime, e.ns+w.offset)
	w.Text(memtrace.TracePhase, l.now.String())
	w.Text(memtrace.TraceOp, e.op.String())
	w.setPlace(b, 0)
	w.Int(memtrace.TraceSize, int64(e.size))
	w.Int(memtrace.TracePieces, 1)
	w.Text(memtrace.TraceRegionType, l.purpose(b).String())
	w.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	w.Int(memtrace.TraceFlags, 0)
	w.Int(memtrace.TraceCount, 1)
	if err := w.EndRow(); err != nil || e.op != memtrace.OpAlloc || b.Usage != memtrace.UsageWeights {
		return err
	}
	l.filling = append(l.filling, b.ID)
	if l.fills > 0 {
		return nil
	}
	return l.filled(none)
}

// purpose is what a buffer is for: what the first tensor in it is.
func (l *lifetimes) purpose(b *memtrace.Buffer) memtrace.RegionType {
	if b.Usage == memtrace.UsageCompute {
		return memtrace.ComputeBuffer
	}
	for _, region := range l.m.Regions() {
		if region.Buffer == b.ID && region.Tensor != "" {
			return region.Type
		}
	}
	return l.m.At(b.ID, 0).Type()
}

// filled writes that the weights whose memory has come until then were filled, when their model had been loaded.
// none: that was not seen, and it is written with the time when the memory came.
func (l *lifetimes) filled(ns int64) error {
	later := l.filling[:0]
	for _, id := range l.filling {
		b := l.m.Buffer(id)
		if b == nil {
			continue
		}
		if ns != none && b.From > ns {
			later = append(later, id)
			continue
		}
		for _, region := range l.m.Regions() {
			if region.Buffer != id {
				continue
			}
			if err := l.load(region, ns); err != nil {
				return err
			}
		}
	}
	l.filling = later
	return nil
}

// cachePrefix is what llama.cpp's names of tensors of a cache of experts begin with: nothing is loaded into them.
const cachePrefix = "moe_cache."

// load writes once that a weight was filled when its model was loaded: when the loading had ended, or none: at some
// time since its memory came, and before it was read.
func (l *lifetimes) load(region *memtrace.Region, ns int64) error {
	if region == nil {
		return nil
	}
	root := region.Root()
	b := l.m.Buffer(root.Buffer)
	if root.Type != memtrace.Weight || root.Tensor == "" || b == nil || l.loaded[root] ||
		strings.HasPrefix(root.Tensor, cachePrefix) {
		return nil
	}
	l.loaded[root] = true
	w := l.out
	if ns == none {
		ns = b.From
	}
	w.Int(memtrace.TraceTime, ns+w.offset)
	w.Text(memtrace.TracePhase, memtrace.WeightLoad.String())
	w.Text(memtrace.TraceOp, memtrace.OpWrite.String())
	w.setPlace(b, root.Offset)
	w.Int(memtrace.TraceSize, int64(root.Bytes))
	w.Int(memtrace.TracePieces, 1)
	w.region(root)
	w.setIfKnown(memtrace.TraceLayer, int32(root.Layer))
	w.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	w.Text(memtrace.TraceTimeSource, memtrace.TimeOfRange.String())
	w.Int(memtrace.TraceFlags, int64(memtrace.TraceLoaded))
	w.Int(memtrace.TraceCount, 1)
	return w.EndRow()
}
