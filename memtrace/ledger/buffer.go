package ledger

import "github.com/llamatap/llamatap/memtrace"

// buffer writes that memory came or went.
func (r *Recorder) buffer(e *event) error {
	b := r.o.Map.Buffer(e.id)
	if b == nil {
		return nil
	}
	r.lastNS = max(r.lastNS, e.ns)
	w := r.out
	w.Int(memtrace.TraceTime, e.ns+r.o.UnixOffset)
	w.Text(memtrace.TracePhase, r.now().String())
	w.Text(memtrace.TraceOp, e.op.String())
	r.place(b, 0)
	w.Int(memtrace.TraceSize, int64(e.size))
	w.Int(memtrace.TracePieces, 1)
	w.Text(memtrace.TraceRegionType, r.purpose(b).String())
	w.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	w.Int(memtrace.TraceFlags, 0)
	w.Int(memtrace.TraceCount, 1)
	if err := w.EndRow(); err != nil || e.op != memtrace.OpAlloc || b.Usage != memtrace.UsageWeights {
		return err
	}
	r.filling = append(r.filling, b.ID)
	if r.fills > 0 {
		return nil
	}
	return r.filled(none)
}

// filled writes that the weights whose memory has come until then were filled, when their model had been loaded.
// none: that was not seen, and it is written with the time when the memory came.
func (r *Recorder) filled(ns int64) error {
	later := r.filling[:0]
	for _, id := range r.filling {
		b := r.o.Map.Buffer(id)
		if b == nil {
			continue
		}
		if ns != none && b.From > ns {
			later = append(later, id)
			continue
		}
		for _, region := range r.o.Map.Regions() {
			if region.Buffer != id {
				continue
			}
			if err := r.load(region, ns); err != nil {
				return err
			}
		}
	}
	r.filling = later
	return nil
}

// now is the phase of what is no graph.
func (r *Recorder) now() memtrace.Phase {
	switch {
	case r.ending:
		return memtrace.Teardown
	case r.ran:
		return memtrace.Generation
	}
	return memtrace.WeightLoad
}

// purpose is what a buffer is for: what the first tensor in it is.
func (r *Recorder) purpose(b *memtrace.Buffer) memtrace.RegionType {
	if b.Usage == memtrace.UsageCompute {
		return memtrace.ComputeBuffer
	}
	for _, region := range r.o.Map.Regions() {
		if region.Buffer == b.ID && region.Tensor != "" {
			return region.Type
		}
	}
	return r.o.Map.At(b.ID, 0).Type()
}

// load writes once that a weight was filled when its model was loaded: when the loading had ended, or none: at some
// time since its memory came, and before it was read.
func (r *Recorder) load(region *memtrace.Region, ns int64) error {
	if region == nil {
		return nil
	}
	root := region.Root()
	b := r.o.Map.Buffer(root.Buffer)
	if root.Type != memtrace.Weight || root.Tensor == "" || b == nil || r.loaded[root] {
		return nil
	}
	r.loaded[root] = true
	w := r.out
	if ns == none {
		ns = b.From
	}
	w.Int(memtrace.TraceTime, ns+r.o.UnixOffset)
	w.Text(memtrace.TracePhase, memtrace.WeightLoad.String())
	w.Text(memtrace.TraceOp, memtrace.OpWrite.String())
	r.place(b, root.Offset)
	w.Int(memtrace.TraceSize, int64(root.Bytes))
	w.Int(memtrace.TracePieces, 1)
	r.region(root)
	r.known(memtrace.TraceLayer, int32(root.Layer))
	w.Text(memtrace.TraceCollector, memtrace.CollectorGraph.String())
	w.Text(memtrace.TraceTimeSource, memtrace.TimeOfRange.String())
	w.Int(memtrace.TraceFlags, int64(memtrace.TraceLoaded))
	w.Int(memtrace.TraceCount, 1)
	return w.EndRow()
}
