package request

// segment is the segment that is written; 0: nobody wants it.
func (r *Recorder) segment() int {
	if r.o.Segment == nil {
		return 0
	}
	return r.o.Segment()
}

// Holds reports whether a request of which Done was not called yet has, or may have, a part in a segment.
func (r *Recorder) Holds(segment int) bool {
	if r.closed {
		return false
	}
	for _, q := range r.pending {
		if q.FirstSegment <= segment && segment <= q.LastSegment {
			return true
		}
	}
	for _, x := range r.ctxs {
		for _, s := range x.slots {
			if s.now != nil && s.now.FirstSegment <= segment {
				return true
			}
		}
	}
	return false
}
