package table

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxPage is how large a page may be, packed or not. Pages of other programs have a MiB, or eight.
const maxPage = 64 << 20

// pages reads the pages of a column of a row group, one after the other.
type pages struct {
	in     *bufio.Reader
	codec  int
	room   int64 // what the footer says that all pages have before compression
	packed []byte
	raw    []byte
}

// begin goes to a column of a row group, of a file of a size.
func (p *pages) begin(from io.ReaderAt, size int64, c *chunkMeta) error {
	begin := c.begin()
	if begin < 0 || c.packed < 0 || begin > size || c.packed > size-begin {
		return errors.New("it lies beyond the end of the file: the file was cut off, or its footer is damaged")
	}
	switch c.codec {
	case codecNone, codecSnappy, codecGzip, codecZstd, codecLZ4Raw:
	default:
		return fmt.Errorf("its compression %d is not known: write it again with zstd", c.codec)
	}
	if p.in == nil {
		p.in = bufio.NewReaderSize(nil, 1<<16)
	}
	p.in.Reset(io.NewSectionReader(from, begin, c.packed))
	p.codec, p.room = c.codec, c.raw
	return nil
}

// next reads the next page; its bytes are good until the next call. io.EOF means that there is none.
func (p *pages) next() (h pageHead, body []byte, err error) {
	for size := 256; ; size *= 4 { // heads are small, but statistics in them need not be
		b, _ := p.in.Peek(min(size, p.in.Size()))
		if len(b) == 0 {
			return h, nil, io.EOF
		}
		var rest []byte
		if h, rest, err = parsePage(b); err == nil {
			p.in.Discard(len(b) - len(rest))
			break
		}
		if len(b) < size || size >= p.in.Size() {
			return h, nil, fmt.Errorf("head of a page: %w", err)
		}
	}
	if h.packed > maxPage || h.raw > maxPage || int64(h.raw) > p.room {
		return h, nil, fmt.Errorf("a page of %d bytes, packed %d: it is damaged, or larger than a page may be here",
			h.raw, h.packed)
	}
	p.room -= int64(h.raw)
	if p.packed, err = readFull(p.in, p.packed[:0], h.packed); err != nil {
		return h, nil, fmt.Errorf("a page is cut off: %w", err)
	}
	if h.hasCRC && crc(p.packed) != h.crc {
		return h, nil,
			errors.New("a page has not its checksum: the file was changed or damaged, copy or record it again")
	}
	body, err = p.unpack(&h)
	return h, body, err
}

// readFull reads n bytes after those of b, in pieces, so that a length alone allocates nothing.
func readFull(in io.Reader, b []byte, n int) ([]byte, error) {
	for n > 0 {
		step := min(n, max(1<<20, cap(b)-len(b)))
		at := len(b)
		b = append(b, make([]byte, step)...)
		if _, err := io.ReadFull(in, b[at:]); err != nil {
			return b, err
		}
		n -= step
	}
	return b, nil
}

// unpack is a page's bytes without compression. Of the newer form of pages the levels in front are never compressed.
func (p *pages) unpack(h *pageHead) ([]byte, error) {
	if h.kind != pageDataV2 {
		return p.decompress(p.packed, h.raw, p.codec)
	}
	levels := h.defBytes + h.repBytes
	if h.defBytes < 0 || h.repBytes < 0 || levels > len(p.packed) || levels > h.raw {
		return nil, errors.New("levels of a page are longer than the page")
	}
	codec := p.codec
	if h.plain {
		codec = codecNone
	}
	values, err := p.decompress(p.packed[levels:], h.raw-levels, codec)
	if err != nil || codec == codecNone {
		return p.packed, err
	}
	return append(append(make([]byte, 0, h.raw), p.packed[:levels]...), values...), nil
}

// decoders unpack zstd: into the room that there is, and no further.
var decoders = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(2*maxPage))
	if err != nil {
		panic(err) // options that are wrong
	}
	return d
})

var errUnpack = errors.New("a page cannot be unpacked")

// decompress is n bytes of packed ones.
func (p *pages) decompress(from []byte, n, codec int) (to []byte, err error) {
	if codec == codecNone {
		if len(from) != n {
			return nil, errUnpack
		}
		return from, nil
	}
	if codec == codecGzip {
		in, err := gzip.NewReader(bytes.NewReader(from))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnpack, err)
		}
		if p.raw, err = readFull(in, p.raw[:0], n); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnpack, err)
		}
		return p.raw, nil
	}
	if n>>15 > len(from) { // no codec packs as closely
		return nil, errUnpack
	}
	if cap(p.raw) < n {
		p.raw = make([]byte, 0, n)
	}
	switch codec {
	case codecZstd:
		to, err = decoders().DecodeAll(from, p.raw[:0:n])
	case codecSnappy:
		var claimed int
		if claimed, err = s2.DecodedLen(from); err == nil && claimed == n {
			to, err = s2.Decode(p.raw[:n], from)
		}
	case codecLZ4Raw:
		var got int
		got, err = lz4.UncompressBlock(from, p.raw[:n])
		to = p.raw[:max(got, 0)]
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnpack, err)
	}
	if len(to) != n {
		return nil, errUnpack
	}
	return to, nil
}
