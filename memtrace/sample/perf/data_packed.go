package perf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// packed unpacks what perf record -z writes: one zstd stream, cut into records, among which stand some that are not
// packed. Those are read as they are met, which may be a little before their turn.
type packed struct {
	plain  *stream
	now    []byte // of the record that is being unpacked
	stream *zstd.Decoder
	in     *bufio.Reader
	met    [][]byte // plain records, to be read next
	buffer []byte
	err    error // at which it ends
}

// maxMet is how many plain records may stand between two packed ones.
const maxMet = 1 << 16

// payload is what a record of packed data holds. The second kind says how much of it is padding.
func payload(raw []byte) []byte {
	if binary.LittleEndian.Uint32(raw) != recordCompressed2 {
		return bytes.Clone(raw[8:])
	}
	if len(raw) < 16 {
		return nil
	}
	n := binary.LittleEndian.Uint64(raw[8:])
	return bytes.Clone(raw[16:min(16+n, uint64(len(raw)))])
}

func newPacked(plain *stream, now []byte) *packed {
	p := &packed{plain: plain, now: now, buffer: make([]byte, 1<<16)}
	var err error
	if p.stream, err = zstd.NewReader(p, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<28),
		zstd.WithDecoderLowmem(true)); err != nil {
		p.err = fmt.Errorf("%w: %w", ErrData, err)
		return p
	}
	p.in = bufio.NewReaderSize(p.stream, 1<<16)
	return p
}

// Read gives the decoder what is packed, record after record.
func (p *packed) Read(b []byte) (int, error) {
	for len(p.now) == 0 {
		raw, err := p.plain.next()
		if err != nil {
			if err != io.EOF {
				p.err = err
			}
			return 0, io.EOF
		}
		switch binary.LittleEndian.Uint32(raw) {
		case recordCompressed, recordCompressed2:
			p.now = payload(raw)
			continue
		case recordAuxtrace:
			p.err = fmt.Errorf("%w: it is packed and has a trace: record without -z", ErrData)
			return 0, io.EOF
		}
		if len(p.met) == maxMet {
			p.err = fmt.Errorf("%w: %d records in a row are not packed, after one that was", ErrData, maxMet)
			return 0, io.EOF
		}
		p.met = append(p.met, bytes.Clone(raw))
	}
	n := copy(b, p.now)
	p.now = p.now[n:]
	return n, nil
}

// next returns the next record.
func (p *packed) next() ([]byte, error) {
	for {
		if len(p.met) > 0 {
			raw := p.met[0]
			p.met = p.met[1:]
			return raw, nil
		}
		if p.err != nil {
			return nil, p.err
		}
		head, err := p.in.Peek(8)
		if err != nil {
			p.finish(len(head), err)
			continue
		}
		size, err := Size(head)
		if err != nil {
			return nil, fmt.Errorf("%w: packed: %w", ErrData, err)
		}
		if _, err := io.ReadFull(p.in, p.buffer[:size]); err != nil {
			p.finish(size, err)
			continue
		}
		return p.buffer[:size], nil
	}
}

// finish keeps how the packed data ended. perf does not end its stream, so that what the decoder says of that is no
// error.
func (p *packed) finish(rest int, err error) {
	p.stream.Close()
	switch {
	case p.err != nil:
	case rest > 0:
		p.err = fmt.Errorf("%w: packed data end within a record", ErrData)
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		p.err = io.EOF
	default:
		p.err = fmt.Errorf("%w: packed: %w", ErrData, err)
	}
}
