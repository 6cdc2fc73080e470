package stream

import (
	"encoding/binary"
	"iter"
	"math"
)

// StateLoad records that the program put back what it had saved of a context's memory: behind it, cells may hold what
// no execution before it wrote there last. Of cells that a load left alone the index says nothing.
type StateLoad struct {
	Ctx    uint32
	MonoNS int64 // on the monotonic clock, as of executions
}

func (h *Header) appendStateLoad(dst []byte, l *StateLoad) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, uint64(l.Ctx)), l.MonoNS-h.MonoNS)
}

func (h *Header) readStateLoad(payload []byte) (l StateLoad, err error) {
	c := cursor{b: payload}
	l.Ctx, l.MonoNS = uint32(c.size(math.MaxUint32)), h.MonoNS+c.int()
	return l, c.done()
}

// AppendStateLoad records that a context's memory was put back. Recordings before index version 1.4 do not say it.
func (w *Writer) AppendStateLoad(l StateLoad) error {
	return w.queue.put(func(it *item) {
		it.kind, it.payload = recordStateLoad, w.files.journal.header.appendStateLoad(it.payload[:0], &l)
	})
}

// StateLoads iterates over the loads of saved states, in the order of the file, of joined streams one after the other.
func (r *Reader) StateLoads() iter.Seq[StateLoad] {
	return func(yield func(StateLoad) bool) {
		for _, p := range r.parts {
			if p.index == nil {
				continue
			}
			for _, l := range p.index.loads {
				if !yield(l) {
					return
				}
			}
		}
	}
}
