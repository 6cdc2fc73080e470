package perf

import (
	"bufio"
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

// stream reads the records of a file as they appear in it.
type stream struct {
	in     *bufio.Reader
	left   uint64 // of the section of data; a pipe's does not end
	pipe   bool
	buffer []byte
	stats  *FileStats
}

// next returns the next record.
func (s *stream) next() ([]byte, error) {
	if !s.pipe && s.left < 8 {
		return nil, io.EOF
	}
	head, err := s.in.Peek(8)
	if err == io.EOF && len(head) == 0 && s.pipe {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: torn after %d samples: %w", ErrData, s.stats.Samples, noEOF(err))
	}
	size, err := Size(head)
	if err != nil {
		return nil, fmt.Errorf("%w: after %d samples: %w", ErrData, s.stats.Samples, err)
	}
	raw := s.buffer[:size]
	if _, err := io.ReadFull(s.in, raw); err != nil {
		return nil, fmt.Errorf("%w: torn after %d samples: %w", ErrData, s.stats.Samples, noEOF(err))
	}
	s.left -= min(uint64(size), s.left)
	return raw, nil
}

// discard passes over bytes of the file.
func (s *stream) discard(n uint64) error {
	if !s.pipe && n > s.left {
		return fmt.Errorf("%w: %d bytes follow a record, %d are left", ErrData, n, s.left)
	}
	s.left -= min(n, s.left)
	for n > 0 {
		k := min(n, 1<<30)
		if _, err := s.in.Discard(int(k)); err != nil {
			return fmt.Errorf("%w: torn: %w", ErrData, noEOF(err))
		}
		n -= k
	}
	return nil
}

// Next reads the next access. After the last it returns io.EOF; a torn file's whole records are read before its
// error. Records come as perf wrote them: in order of time only within a CPU.
func (d *Data) Next(a *memtrace.Access) error {
	for {
		if ok, err := d.traces.next(a); ok || err != nil {
			return err
		}
		var raw []byte
		var err error
		if d.packed != nil {
			raw, err = d.packed.next()
		} else {
			raw, err = d.in.next()
		}
		if err == io.EOF && d.stats.Samples == 0 && d.stats.NoAddress > 0 {
			return fmt.Errorf("%w: none of its %d samples has an address of data: record with perf mem record or "+
				"perf record -d", ErrData, d.stats.NoAddress)
		}
		if err != nil {
			return err
		}
		ok, err := d.readRecord(raw, a)
		if err != nil {
			return err
		}
		if ok {
			d.stats.Samples++
			return nil
		}
	}
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readRecord reads one record, and reports whether it was an access.
func (d *Data) readRecord(raw []byte, a *memtrace.Access) (bool, error) {
	switch kind := binary.LittleEndian.Uint32(raw); kind {
	case recordCompressed, recordCompressed2:
		if d.packed != nil {
			d.stats.bad(fmt.Errorf("%w: packed within packed", ErrData))
			return false, nil
		}
		d.packed = newPacked(&d.in, payload(raw))
		return false, nil
	case recordHeaderAttr:
		return false, d.attribute(raw)
	case recordAuxtraceInfo, recordAuxtrace, recordTimeConv:
		return false, d.traces.addRecord(kind, raw, d.events)
	case recordTracingData: // its size stands in it; what it describes follows
		if len(raw) < 12 {
			return false, fmt.Errorf("%w: a record of %d bytes should say how much follows it", ErrData, len(raw))
		}
		return false, d.in.discard((uint64(binary.LittleEndian.Uint32(raw[8:])) + 7) &^ 7)
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
		d.stats.bad(err)
		return false, nil
	}
	return d.access(a), nil
}

// bad counts a record or line that could not be read.
func (s *FileStats) bad(err error) {
	s.Bad++
	if s.FirstBad == nil {
		s.FirstBad = err
	}
}

// access converts a record to an access, if it is one.
func (d *Data) access(a *memtrace.Access) bool {
	r := &d.record
	switch r.Type {
	case recordSample:
		if r.Event < 0 || r.Event >= len(d.events) {
			d.stats.bad(fmt.Errorf("%w: a sample of an event that the file does not describe", ErrData))
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
	case recordLost, recordLostSamples:
		d.stats.Lost += r.Lost
	case recordThrottle:
		d.stats.Throttles++
	case recordAux:
		d.stats.Other++
		if r.AuxFlags&(auxTruncated|auxPartial) != 0 {
			d.stats.Gaps++
		}
		if r.AuxFlags&auxCollision != 0 {
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
	if a.Flags&flagFreq != 0 {
		return 0
	}
	return a.Period
}

// attribute reads an event of a pipe.
func (d *Data) attribute(raw []byte) error {
	const header = 8
	if !d.in.pipe {
		return nil
	}
	attr, err := parseAttr(raw[header:])
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
