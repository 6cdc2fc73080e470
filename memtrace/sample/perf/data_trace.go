package perf

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// trace is what is known of the traces in a file, of which Arm's SPE is read.
type trace struct {
	spe               bool
	period            uint64
	shift, mult, zero uint64            // from the counter of a trace to perf's clock
	left              map[uint32][]byte // of each trace, a record whose end is to come
	chunk             []byte
	size, offset      uint64 // of the trace that is being read: how much is to come, and from where
	index, tid, cpu   uint32
}

// Kinds of traces.
const traceSPE = 4

// maxTorn is the longest record of a trace.
const maxTorn = 1 << 12

// maxTraces is how many traces, one per CPU or thread, are read side by side.
const maxTraces = 1 << 14

// trace reads the records of traces, and the trace that follows one.
func (d *Data) trace(kind uint32, raw []byte) error {
	le := binary.LittleEndian
	switch {
	case kind == recordAuxtraceInfo && len(raw) >= 12:
		d.arm.spe = le.Uint32(raw[8:]) == traceSPE
		d.arm.left = map[uint32][]byte{}
		for _, e := range d.events {
			if collector(e.Name) == memtrace.CollectorSPE && e.Attr.Type != TypeSoftware {
				d.arm.period = period(&e.Attr)
			}
		}
	case kind == recordTimeConv && len(raw) >= 32:
		d.arm.shift, d.arm.mult, d.arm.zero = le.Uint64(raw[8:]), le.Uint64(raw[16:]), le.Uint64(raw[24:])
	case kind == recordAuxtrace && len(raw) >= 48:
		size, offset := le.Uint64(raw[8:]), le.Uint64(raw[16:])
		if !d.arm.spe {
			d.stats.Other++
			return d.discard(size)
		}
		return d.follow(size, offset, le.Uint32(raw[32:]), le.Uint32(raw[36:]), le.Uint32(raw[40:]))
	default:
		return fmt.Errorf("%w: a record of type %d has %d bytes", ErrData, kind, len(raw))
	}
	return nil
}

// follow begins to read a trace of so many bytes, of which the file holds the part at an offset.
func (d *Data) follow(size, offset uint64, index, tid, cpu uint32) error {
	if !d.pipe && size > d.left {
		return fmt.Errorf("%w: a trace of %d bytes, %d are left", ErrData, size, d.left)
	}
	if _, ok := d.arm.left[index]; !ok && len(d.arm.left) == maxTraces {
		return fmt.Errorf("%w: more than %d traces", ErrData, maxTraces)
	}
	d.left -= min(size, d.left)
	d.arm.size, d.arm.offset, d.arm.index, d.arm.tid, d.arm.cpu = size, offset, index, tid, cpu
	return nil
}

// traceStep is how much of a trace is read at once.
const traceStep = 1 << 18

// goOn reads the next part of the trace that was begun.
func (d *Data) goOn() error {
	t := &d.arm
	torn := t.left[t.index]
	n := min(t.size, traceStep)
	t.chunk = append(t.chunk[:0], torn...)
	t.chunk = append(t.chunk, make([]byte, n)...)
	if _, err := io.ReadFull(d.in, t.chunk[len(torn):]); err != nil {
		return fmt.Errorf("%w: torn within a trace: %w", ErrData, noEOF(err))
	}
	used, bad := DecodeSPE(t.chunk, t.offset-uint64(len(torn)),
		func(r *SPERecord) { d.keep(r, t.tid, t.cpu) })
	if bad > 0 {
		d.stats.Bad += uint64(bad) - 1
		d.bad(fmt.Errorf("%w: bytes of a trace that are no packet", ErrData))
	}
	t.size, t.offset = t.size-n, t.offset+n
	rest := t.chunk[used:]
	if len(rest) > maxTorn {
		d.bad(fmt.Errorf("%w: a record of a trace has no end", ErrData))
		rest = nil
	}
	t.left[t.index] = append(torn[:0], rest...)
	slices.Reverse(d.ready) // Next takes them from the end
	return nil
}

// keep converts a record of a trace.
func (d *Data) keep(r *SPERecord, tid, cpu uint32) {
	if r.Addr == 0 {
		d.stats.NoAddress++
		return
	}
	a := memtrace.Access{
		Addr: r.Addr, Phys: r.Phys, IP: r.IP, Latency: uint64(r.Latency), Weight: d.arm.period, TID: int32(tid),
		CPU: int32(cpu), Op: r.Op, Level: r.Level(),
		Collector: memtrace.CollectorSPE,
	}
	if r.Context != 0 {
		a.TID = int32(r.Context)
	}
	a.TID = max(a.TID, 0) // a trace of a CPU is of no thread
	if r.Timestamp != 0 && d.arm.mult != 0 {
		whole, rest := r.Timestamp>>d.arm.shift, r.Timestamp&(1<<d.arm.shift-1)
		a.TimeNS = int64(d.arm.zero + whole*d.arm.mult + (rest*d.arm.mult)>>d.arm.shift)
	}
	d.ready = append(d.ready, a)
}
