package tensors

import (
	"fmt"

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

// eachBytes calls fn with the slice's element bytes in order, cut anywhere; they are valid during the call. A part whose rows lie apart in
// the tensor is assembled in memory, any other passes through one packet at a time.
func (s *Slice) eachBytes(fn func([]byte) error) error {
	var buffer, whole, turned []byte
	for i := range s.parts {
		pt := &s.parts[i]
		if pt.form.outer == 1 {
			if err := s.passPart(pt, &buffer, fn); err != nil {
				return err
			}
			continue
		}
		whole = whole[:0]
		for number := range pt.packets {
			data, err := s.read(number, &buffer)
			if err != nil {
				return err
			}
			whole = append(whole, data...)
		}
		if want := pt.total * s.rowBytes(); int64(len(whole)) != want {
			return fmt.Errorf("%s: tensor %s, token %d: %d bytes are there and %d belong: a piece was lost; see 'llamatap verify'",
				s.run.Path, s.Name, pt.label, len(whole), want)
		}
		turned = appendTokenFirst(turned[:0], whole, pt, s.rowBytes())
		if err := fn(turned[pt.skip*s.rowBytes():][:pt.rows*s.rowBytes()]); err != nil {
			return err
		}
	}
	return nil
}

// passPart hands the wanted bytes of a part on as its packets come.
func (s *Slice) passPart(pt *part, buffer *[]byte, fn func([]byte) error) error {
	from, to := pt.skip*s.rowBytes(), (pt.skip+pt.rows)*s.rowBytes()
	at := int64(0)
	for number := range pt.packets {
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
	if at != pt.total*s.rowBytes() {
		return fmt.Errorf("%s: tensor %s, %s %d: %d bytes are there and %d belong: a piece was lost; see 'llamatap verify'",
			s.run.Path, s.Name, s.Axis, pt.label, at, pt.total*s.rowBytes())
	}
	return nil
}

func (s *Slice) read(number int, buffer *[]byte) ([]byte, error) {
	var p stream.Packet
	if err := s.run.Stream.Packet(number, &p); err != nil {
		return nil, err
	}
	data, err := s.run.Stream.ReadInto(&p, *buffer)
	*buffer = data
	return data, err
}

// appendTokenFirst appends a part's bytes with the row dimension moved to the front: of [outer][rows][inner] it makes
// [rows][outer][inner].
func appendTokenFirst(dst, src []byte, pt *part, rowBytes int64) []byte {
	inner := rowBytes / pt.form.outer
	for row := int64(0); row < pt.total; row++ {
		for o := int64(0); o < pt.form.outer; o++ {
			at := (o*pt.total + row) * inner
			dst = append(dst, src[at:at+inner]...)
		}
	}
	return dst
}
