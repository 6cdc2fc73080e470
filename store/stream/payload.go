package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/store/codec"
)

// scratch is what one goroutine needs to read packets.
type scratch struct {
	packed  []byte
	raw     []byte
	decoder codec.Decoder
}

func (r *Reader) borrow() *scratch {
	if s, ok := r.scratch.Get().(*scratch); ok {
		return s
	}
	return new(scratch)
}

// ReadInto appends the packet's element bytes, decoded, to dst[:0] and returns it. Header and checksum are
// verified. It makes one read of the file, and no allocation once dst is large enough. Lease does without the copy.
func (r *Reader) ReadInto(p *Packet, dst []byte) ([]byte, error) {
	s := r.borrow()
	defer r.scratch.Put(s)
	return r.read(p, dst[:0], s)
}

// Float32 appends the packet's elements as float32 to dst[:0]: F32, F16, BF16, F64 and integers; a Raw packet is
// errors.ErrUnsupported.
func (r *Reader) Float32(p *Packet, dst []float32) ([]float32, error) {
	s := r.borrow()
	defer r.scratch.Put(s)
	var err error
	if s.raw, err = r.read(p, s.raw[:0], s); err != nil {
		return dst[:0], err
	}
	raw := s.raw
	if r.index == nil && r.parts == nil {
		raw = raw[:len(raw)/2*2] // as STRAP-LLM's reader drops an odd last byte
	}
	if dst, err = codec.AppendFloat32(dst[:0], raw, p.DType); err != nil {
		return dst, r.at(p, err)
	}
	return dst, nil
}

// read appends the decoded payload to dst.
func (r *Reader) read(p *Packet, dst []byte, s *scratch) ([]byte, error) {
	if r.parts != nil {
		part, own, err := r.holding(p)
		if err != nil {
			return dst, err
		}
		return part.read(&own, dst, s)
	}
	payload, err := r.payload(p, s)
	if err != nil {
		return dst, r.at(p, err)
	}
	dst, err = s.decoder.Append(dst, payload, p.Codec, int(p.RawBytes))
	if err != nil {
		return dst, r.at(p, fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	return dst, nil
}

// payload reads the stored packet and compares it with what the index says. It is valid until the scratch is used
// again.
func (r *Reader) payload(p *Packet, s *scratch) ([]byte, error) {
	head := packetHeader + len(p.Name)
	size := int64(head) + p.Stored
	if p.Offset < 0 || p.Stored < 0 || size > r.size-p.Offset {
		return nil, fmt.Errorf("%w: the stream ends at byte %d", ErrTruncated, r.size)
	}
	if p.Stored > maxStored {
		return nil, tooLarge(p.Stored)
	}
	s.packed = slices.Grow(s.packed[:0], int(size))[:size]
	if err := readAt(r.stream, s.packed, p.Offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", ErrTruncated, err)
		}
		return nil, err
	}
	return r.verified(p, s.packed)
}

// verified takes a whole packet of the stream apart and compares it with what the index says.
func (r *Reader) verified(p *Packet, packet []byte) ([]byte, error) {
	head := packetHeader + len(p.Name)
	payload := packet[head:]
	switch {
	case int(binary.BigEndian.Uint16(packet)) != len(p.Name) ||
		int64(binary.BigEndian.Uint32(packet[2:])) != p.Stored ||
		string(packet[packetHeader:head]) != p.Name:
		return nil, fmt.Errorf("%w: its header is not what the index says", ErrCorrupt)
	case r.index != nil && checksum(payload) != p.CRC:
		return nil, fmt.Errorf("%w: checksum of the payload", ErrCorrupt)
	}
	return payload, nil
}

// readAt fills b; a reader may report the end of the file together with the last bytes.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		return err
	}
	return nil
}

// at says which packet an error is about.
func (r *Reader) at(p *Packet, err error) error {
	return fmt.Errorf("tensor %q at byte %d of the stream: %w", p.Name, p.Offset, err)
}

// maxFaults is how many faults Verify lists one by one.
const maxFaults = 20

// Verify reads the whole stream and compares every packet with the index, and the payloads' own sizes too. It
// returns all faults joined, those of Damage first; of many only the first, and their number.
func (r *Reader) Verify() error { return r.VerifyWith(nil) }

// VerifyWith is Verify that reports how many packets of how many were compared. progress may be nil.
func (r *Reader) VerifyWith(progress func(done, total int64)) error {
	faults := r.Damage()
	s := r.borrow()
	defer r.scratch.Put(s)
	bad := 0
	for i, p := range r.Packets() {
		if progress != nil && i%256 == 0 {
			progress(int64(i), int64(r.Len()))
		}
		_, err := r.read(p, s.raw[:0], s)
		if err == nil {
			continue
		}
		if bad++; bad <= maxFaults {
			faults = append(faults, err)
		}
	}
	if err := r.Err(); err != nil {
		faults = append(faults, err)
	}
	if bad > maxFaults {
		faults = append(faults, fmt.Errorf("%w: %d more packets", ErrCorrupt, bad-maxFaults))
	}
	return errors.Join(faults...)
}
