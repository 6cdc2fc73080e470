package perf

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// traces read the traces in a file, of which Arm's SPE is known.
type traces struct {
	in                *stream
	stats             *FileStats
	spe               bool
	period            uint64
	shift, mult, zero uint64            // from the counter of a trace to perf's clock
	left              map[uint32][]byte // of each trace, a record whose end is to come
	chunk             []byte
	size, offset      uint64 // of the trace that is being read: how much is to come, and from where
	index, tid, cpu   uint32
	ready             []memtrace.Access // made of one chunk, in reverse order
}

// Kinds of traces.
const traceSPE = 4

// maxTorn is the longest record of a trace.
const maxTorn = 1 << 12

// maxTraces is how many traces, one per CPU or thread, are read side by side.
const maxTraces = 1 << 14

// addRecord takes a record of traces, and begins to read the trace that follows one.
func (t *traces) addRecord(kind uint32, raw []byte, events []Event) error {
	le := binary.LittleEndian
	switch {
	case kind == recordAuxtraceInfo && len(raw) >= 12:
		t.spe = le.Uint32(raw[8:]) == traceSPE
		t.left = map[uint32][]byte{}
		for _, e := range events {
			if collector(e.Name) == memtrace.CollectorSPE && e.Attr.Type != typeSoftware {
				t.period = period(&e.Attr)
			}
		}
	case kind == recordTimeConv && len(raw) >= 32:
		t.shift, t.mult, t.zero = le.Uint64(raw[8:]), le.Uint64(raw[16:]), le.Uint64(raw[24:])
	case kind == recordAuxtrace && len(raw) >= 48:
		size, index := le.Uint64(raw[8:]), le.Uint32(raw[32:])
		if !t.spe {
			t.stats.Other++
			return t.in.discard(size)
		}
		if !t.in.pipe && size > t.in.left {
			return fmt.Errorf("%w: a trace of %d bytes, %d are left", ErrData, size, t.in.left)
		}
		if _, ok := t.left[index]; !ok && len(t.left) == maxTraces {
			return fmt.Errorf("%w: more than %d traces", ErrData, maxTraces)
		}
		t.in.left -= min(size, t.in.left)
		t.size, t.offset = size, le.Uint64(raw[16:])
		t.index, t.tid, t.cpu = index, le.Uint32(raw[36:]), le.Uint32(raw[40:])
	default:
		return fmt.Errorf("%w: a record of type %d has %d bytes", ErrData, kind, len(raw))
	}
	return nil
}

// next returns the next access of the trace that was begun; false: there are no more.
func (t *traces) next(a *memtrace.Access) (ok bool, err error) {
	for len(t.ready) == 0 && t.size > 0 {
		if err := t.read(); err != nil {
			return false, err
		}
	}
	n := len(t.ready)
	if n == 0 {
		return false, nil
	}
	*a, t.ready = t.ready[n-1], t.ready[:n-1]
	t.stats.Samples++
	return true, nil
}

// traceStep is how much of a trace is read at once.
const traceStep = 1 << 18

// read reads the next part of the trace that was begun.
func (t *traces) read() error {
	torn := t.left[t.index]
	n := min(t.size, traceStep)
	t.chunk = append(t.chunk[:0], torn...)
	t.chunk = append(t.chunk, make([]byte, n)...)
	if _, err := io.ReadFull(t.in.in, t.chunk[len(torn):]); err != nil {
		return fmt.Errorf("%w: torn within a trace: %w", ErrData, noEOF(err))
	}
	used, bad := decodeSPE(t.chunk, t.offset-uint64(len(torn)),
		t.keep)
	if bad > 0 {
		t.stats.Bad += uint64(bad) - 1
		t.stats.bad(fmt.Errorf("%w: bytes of a trace that are not a packet", ErrData))
	}
	t.size, t.offset = t.size-n, t.offset+n
	rest := t.chunk[used:]
	if len(rest) > maxTorn {
		t.stats.bad(fmt.Errorf("%w: a record of a trace has no end", ErrData))
		rest = nil
	}
	t.left[t.index] = append(torn[:0], rest...)
	slices.Reverse(t.ready) // next takes them from the end
	return nil
}

// keep converts a record of a trace.
func (t *traces) keep(r *speRecord) {
	if r.Addr == 0 {
		t.stats.NoAddress++
		return
	}
	a := memtrace.Access{
		Addr: r.Addr, Phys: r.Phys, IP: r.IP, Latency: uint64(r.Latency), Weight: t.period, TID: int32(t.tid),
		CPU: int32(t.cpu), Op: r.Op, Level: r.Level(),
		Collector: memtrace.CollectorSPE,
	}
	if r.Context != 0 {
		a.TID = int32(r.Context)
	}
	a.TID = max(a.TID, 0) // a trace of a CPU is of no thread
	if r.Timestamp != 0 && t.mult != 0 {
		whole, rest := r.Timestamp>>t.shift, r.Timestamp&(1<<t.shift-1)
		a.TimeNS = int64(t.zero + whole*t.mult + (rest*t.mult)>>t.shift)
	}
	t.ready = append(t.ready, a)
}
