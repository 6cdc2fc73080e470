package perf

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/llamatap/llamatap/memtrace"
)

// Records of perf's own, beside those of the kernel.
const (
	recordHeaderAttr   = 64
	recordTracingData  = 66
	recordAuxtraceInfo = 70
	recordAuxtrace     = 71
	recordTimeConv     = 79
	recordFeature      = 80
	recordCompressed   = 81
	recordCompressed2  = 83
)

// Next reads the next access. After the last it returns io.EOF; a torn file's whole records are read before its
// error. Records come as perf wrote them: in order of time only within a CPU.
func (d *Data) Next(a *memtrace.Access) error {
	for {
		if n := len(d.ready); n > 0 {
			*a, d.ready = d.ready[n-1], d.ready[:n-1]
			d.stats.Samples++
			return nil
		}
		if d.arm.size > 0 {
			if err := d.goOn(); err != nil {
				return err
			}
			continue
		}
		raw, err := d.next()
		if err == io.EOF && d.stats.Samples == 0 && d.stats.NoAddress > 0 {
			return fmt.Errorf("%w: none of its %d samples has an address of data: record with perf mem record or "+
				"perf record -d", ErrData, d.stats.NoAddress)
		}
		if err != nil {
			return err
		}
		ok, err := d.take(raw, a)
		if err != nil {
			return err
		}
		if ok {
			d.stats.Samples++
			return nil
		}
	}
}

// next is the next record: unpacked, where some are packed.
func (d *Data) next() ([]byte, error) {
	if d.packed != nil {
		return d.packed.next()
	}
	return d.plain()
}

// plain is the next record as it stands in the file.
func (d *Data) plain() ([]byte, error) {
	if !d.pipe && d.left < 8 {
		return nil, io.EOF
	}
	head, err := d.in.Peek(8)
	if err == io.EOF && len(head) == 0 && d.pipe {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: torn after %d samples: %w", ErrData, d.stats.Samples, noEOF(err))
	}
	size, err := Size(head)
	if err != nil {
		return nil, fmt.Errorf("%w: after %d samples: %w", ErrData, d.stats.Samples, err)
	}
	raw := d.buffer[:size]
	if _, err := io.ReadFull(d.in, raw); err != nil {
		return nil, fmt.Errorf("%w: torn after %d samples: %w", ErrData, d.stats.Samples, noEOF(err))
	}
	d.left -= min(uint64(size), d.left)
	return raw, nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// take reads one record, and reports whether it was an access.
func (d *Data) take(raw []byte, a *memtrace.Access) (bool, error) {
	switch kind := binary.LittleEndian.Uint32(raw); kind {
	case recordCompressed, recordCompressed2:
		if d.packed != nil {
			d.bad(fmt.Errorf("%w: packed within packed", ErrData))
			return false, nil
		}
		d.packed = newPacked(d, payload(raw))
		return false, nil
	case recordHeaderAttr:
		return false, d.attribute(raw)
	case recordAuxtraceInfo, recordAuxtrace, recordTimeConv:
		return false, d.trace(kind, raw)
	case recordTracingData:
		return false, d.skip(raw, 8)
	case recordFeature:
		if len(raw) >= 16 && binary.LittleEndian.Uint64(raw[8:]) == featureEventDesc {
			nameEvents(d.events, raw[16:])
			d.begin()
		}
		return false, nil
	}
	if d.decoder == nil {
		d.begin()
	}
	if err := d.decoder.Decode(raw, &d.record); err != nil {
		d.bad(err)
		return false, nil
	}
	return d.access(a), nil
}

func (d *Data) bad(err error) {
	d.stats.Bad++
	if d.stats.FirstBad == nil {
		d.stats.FirstBad = err
	}
}

// access converts a record to an access, if it is one.
func (d *Data) access(a *memtrace.Access) bool {
	r := &d.record
	switch r.Type {
	case RecordSample:
		if r.Event < 0 || r.Event >= len(d.events) {
			d.bad(fmt.Errorf("%w: a sample of an event that the file does not describe", ErrData))
			return false
		}
		e := &d.events[r.Event]
		if r.Sample.Addr == 0 {
			d.stats.NoAddress++
			return false
		}
		*a = r.Sample.Access(e.Attr.SampleType, period(&e.Attr), d.kinds[r.Event].collector)
		if a.Op == memtrace.OpUnknown {
			a.Op = d.kinds[r.Event].op
		}
		return true
	case RecordLost, RecordLostSamples:
		d.stats.Lost += r.Lost
	case RecordThrottle:
		d.stats.Throttles++
	case RecordAux:
		d.stats.Other++
		if r.AuxFlags&(AuxTruncated|AuxPartial) != 0 {
			d.stats.Gaps++
		}
		if r.AuxFlags&AuxCollision != 0 {
			d.stats.Collided++
		}
	default:
		d.stats.Other++
		if d.other != nil {
			d.other(r)
		}
	}
	return false
}

// period is how many events a sample stands for, if it does not say so: with a frequency that is not known.
func period(a *Attr) uint64 {
	if a.Flags&FlagFreq != 0 {
		return 0
	}
	return a.Period
}

// attribute reads an event of a pipe.
func (d *Data) attribute(raw []byte) error {
	const header = 8
	if !d.pipe {
		return nil
	}
	attr, err := ParseAttr(raw[header:])
	if err != nil || len(d.events) == maxEvents {
		return fmt.Errorf("%w: event %d of a pipe: %w", ErrData, len(d.events), err)
	}
	size := int(binary.LittleEndian.Uint32(raw[header+4:]))
	e := Event{Attr: attr}
	for b := raw[min(header+size, len(raw)):]; len(b) >= 8; b = b[8:] {
		e.IDs = append(e.IDs, binary.LittleEndian.Uint64(b))
	}
	d.events = append(d.events, e)
	d.begin()
	return nil
}

// skip passes over what follows a record in the file, whose size stands in it at an offset.
func (d *Data) skip(raw []byte, at int) error {
	if len(raw) < at+4 {
		return fmt.Errorf("%w: a record of %d bytes should say how much follows it", ErrData, len(raw))
	}
	n := uint64(binary.LittleEndian.Uint32(raw[at:]))
	return d.discard((n + 7) &^ 7)
}

// discard passes over bytes of the file.
func (d *Data) discard(n uint64) error {
	if !d.pipe && n > d.left {
		return fmt.Errorf("%w: %d bytes follow a record, %d are left", ErrData, n, d.left)
	}
	d.left -= min(n, d.left)
	for n > 0 {
		k := min(n, 1<<30)
		if _, err := d.in.Discard(int(k)); err != nil {
			return fmt.Errorf("%w: torn: %w", ErrData, noEOF(err))
		}
		n -= k
	}
	return nil
}
