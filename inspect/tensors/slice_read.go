package tensors

import (
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/store/stream"
)

// rowBytes is the number of stored bytes of one row.
func (s *Slice) rowBytes() int64 {
	n := int64(s.DType.Size())
	for _, d := range s.Shape[1:] {
		n *= d
	}
	return n
}

// eachBytes calls fn with the slice's element bytes in order, cut anywhere; they are valid during the call. One
// packet is in memory at a time, and of a part whose rows lie apart in the tensor turnedBytes besides.
func (s *Slice) eachBytes(fn func([]byte) error) error {
	var buffer, turned []byte
	for i := range s.parts {
		pt := &s.parts[i]
		if pt.form.outer == 1 || pt.form.total == 1 {
			if err := s.passPart(pt, &buffer, fn); err != nil {
				return err
			}
			continue
		}
		if size := pt.form.total * s.rowBytes(); size > mostTurned {
			return fmt.Errorf(
				"%s: tensor %s, token %d: its rows lie apart in %d bytes: at most %d can be put in order: record it "+
					"with a smaller -ub",
				s.run.Path, s.Name, pt.label, size, int64(mostTurned))
		}
		from, to := pt.skip*s.rowBytes(), (pt.skip+pt.rows)*s.rowBytes()
		for ; from < to; from += int64(len(turned)) {
			turned = slices.Grow(turned[:0], int(min(to-from, turnedBytes)))[:min(to-from, turnedBytes)]
			at := int64(0)
			whole := &part{packet: pt.packet, more: pt.more, label: pt.label, rows: pt.form.total,
				form: pt.form}
			err := s.passPart(whole, &buffer, func(data []byte) error {
				copyTokenFirst(turned, from, data, at, whole, s.rowBytes())
				at += int64(len(data))
				return nil
			})
			if err == nil {
				err = fn(turned)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Bounds of a part whose rows lie apart: it is read once for every turnedBytes of it.
const (
	turnedBytes = 64 << 20
	mostTurned  = 512 << 20
)

// passPart hands the wanted bytes of a part on as its packets come.
func (s *Slice) passPart(pt *part, buffer *[]byte, fn func([]byte) error) error {
	from, to := pt.skip*s.rowBytes(), (pt.skip+pt.rows)*s.rowBytes()
	at := int64(0)
	for number := range s.packets(pt) {
		data, err := s.read(number, buffer)
		if err != nil {
			return err
		}
		a, b := max(from-at, 0), min(to-at, int64(len(data)))
		if a < b {
			if err := fn(data[a:b]); err != nil {
				return err
			}
		}
		at += int64(len(data))
	}
	if at != pt.form.total*s.rowBytes() {
		return fmt.Errorf(
			"%s: tensor %s, %s %d: %d bytes are there and %d belong: a piece was lost; see 'llamatap verify'",
			s.run.Path, s.Name, s.Axis, pt.label, at, pt.form.total*s.rowBytes())
	}
	return nil
}

func (s *Slice) read(number int32, buffer *[]byte) ([]byte, error) {
	var p stream.Packet
	if err := s.run.Stream.Packet(int(number), &p); err != nil {
		return nil, err
	}
	data, err := s.run.Stream.ReadInto(&p, *buffer)
	*buffer = data
	return data, err
}

// copyTokenFirst copies what belongs to dst, a stretch of a part with the row dimension moved to the front, from a
// stretch of the part: of [outer][rows][inner] it makes [rows][outer][inner]. from and at are the stretches' places.
func copyTokenFirst(dst []byte, from int64, src []byte, at int64, pt *part, rowBytes int64) {
	inner := rowBytes / pt.form.outer
	for len(src) > 0 {
		o, row, skip := at/inner/pt.form.total, at/inner%pt.form.total, at%inner
		run := src[:min(inner-skip, int64(len(src)))]
		to := row*rowBytes + o*inner + skip - from
		if to < int64(len(dst)) && to+int64(len(run)) > 0 {
			copy(dst[max(to, 0):], run[max(-to, 0):])
		}
		src, at = src[len(run):], at+int64(len(run))
	}
}
