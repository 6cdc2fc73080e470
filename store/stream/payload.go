package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/llamatap/llamatap/store/codec"
)

// scratch is what one goroutine needs to read packets.
type scratch struct {
	packed  []byte
	raw     []byte
	decoder codec.Decoder
}

// payloads are those of a stream, which it reads.
type payloads struct {
	in      io.ReaderAt
	size    int64
	file    *os.File  // in, if the reader opened it
	checked bool      // packets have checksums
	scratch sync.Pool // *scratch
	// what was read so far, packed and not
	stored, raw atomic.Int64
}

// Bounds of what reading a stream may take: after mostExpanded bytes of content, a file whose content is
// mostExpansion times as large as itself is refused.
const (
	mostExpanded  = 1 << 30
	mostExpansion = 1000
)

var errExpanded = errors.New("content too large for its file")

func (d *payloads) borrow() *scratch {
	if s, ok := d.scratch.Get().(*scratch); ok {
		return s
	}
	return new(scratch)
}

// read appends the decoded payload to dst.
func (d *payloads) read(p *Packet, dst []byte, s *scratch) ([]byte, error) {
	payload, err := d.payload(p, s)
	if err != nil {
		return dst, inPacket(p, err)
	}
	if raw, stored := d.raw.Load(), d.stored.Load(); raw > mostExpanded && raw/mostExpansion > stored {
		return dst, inPacket(p, fmt.Errorf("%w: %d bytes in %d: read fewer tokens, or record again with another codec",
			errExpanded, raw, stored))
	}
	before := len(dst)
	dst, err = s.decoder.Append(dst, payload, p.Codec, int(p.RawBytes))
	if err != nil {
		return dst, inPacket(p, fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	d.raw.Add(int64(len(dst) - before))
	d.stored.Add(p.Stored)
	return dst, nil
}

// payload reads the stored packet and compares it with what the index says. It is valid until the scratch is used
// again.
func (d *payloads) payload(p *Packet, s *scratch) ([]byte, error) {
	head := packetHeader + len(p.Name)
	size := int64(head) + p.Stored
	if p.Offset < 0 || p.Stored < 0 || size > d.size-p.Offset {
		return nil, fmt.Errorf("%w: the stream ends at byte %d", ErrTruncated, d.size)
	}
	if p.Stored > maxStored {
		return nil, tooLarge(p.Stored)
	}
	s.packed = slices.Grow(s.packed[:0], int(size))[:size]
	if err := readAt(d.in, s.packed, p.Offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", ErrTruncated, err)
		}
		return nil, err
	}
	payload := s.packed[head:]
	switch {
	case int(binary.BigEndian.Uint16(s.packed)) != len(p.Name) ||
		int64(binary.BigEndian.Uint32(s.packed[2:])) != p.Stored ||
		string(s.packed[packetHeader:head]) != p.Name:
		return nil, fmt.Errorf("%w: its header is not what the index says", ErrCorrupt)
	case d.checked && checksum(payload) != p.CRC:
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

// inPacket adds to an error which packet it is about.
func inPacket(p *Packet, err error) error {
	return fmt.Errorf("tensor %q at byte %d of the stream: %w", p.Name, p.Offset, err)
}

// maxStored is the most bytes that the payload of a packet may take: what cannot be packed grows by less than a
// part in 64.
const maxStored = codec.MaxContent + codec.MaxContent/64

func tooLarge(size int64) error {
	return fmt.Errorf(
		"%w: a packet of %d bytes: at most %d can be read: record it again, larger tensors are cut into packets",
		ErrCorrupt, size, int64(codec.MaxContent))
}

// contentSize takes a payload's size from its frame header, or, where that does not state it, from decoding it.
func (d *payloads) contentSize(p *Packet, s *scratch) (int64, error) {
	var head [32]byte
	n := min(p.Stored, int64(len(head)))
	if err := readAt(d.in, head[:n], p.Offset+packetHeader+int64(len(p.Name))); err != nil {
		return 0, err
	}
	if size, ok := codec.Size(head[:n], p.Codec); ok {
		if size > codec.MaxContent {
			return 0, tooLarge(size)
		}
		return size, nil
	}
	payload, err := d.payload(p, s)
	if err != nil {
		return 0, err
	}
	s.raw, err = s.decoder.Append(s.raw[:0], payload, p.Codec, codec.AnySize)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return int64(len(s.raw)), nil
}
