package table

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"
)

var presses = sync.Pool{New: func() any { return new(press) }}

// press compresses pages one after the other.
type press struct {
	raw, packed, other []byte
	floats             bool // raw ends with the planes of floats, from head
	head               int
	huffman            huff0.Scratch
}

// pack packs a page. Floats have a way of their own. Of numbers that lie a few bytes apart, as those of a dictionary
// often do, the quicker encoder often finds more: of a dictionary the shorter outcome of both is taken.
func (p *press) pack(kind int) {
	if p.floats {
		p.floats, p.packed = false, p.planes(p.packed[:0], p.raw, p.head)
		return
	}
	e := encoders.Get().(*zstd.Encoder)
	p.packed = e.EncodeAll(p.raw, p.packed[:0])
	encoders.Put(e)
	if kind != pageDict {
		return
	}
	e = quick.Get().(*zstd.Encoder)
	p.other = e.EncodeAll(p.raw, p.other[:0])
	quick.Put(e)
	if len(p.other) < len(p.packed) {
		p.packed, p.other = p.other, p.packed
	}
}

// page appends a page of bytes to out, with its head, and returns how many bytes that is before compression too.
func (p *press) page(out []byte, head pageHead) ([]byte, int64) {
	p.pack(head.kind)
	head.raw, head.packed, head.crc = len(p.raw), len(p.packed), crc(p.packed)
	before := len(out)
	out = head.append(out)
	raw := int64(len(out) - before + len(p.raw))
	return append(out, p.packed...), raw
}

// level appends levels after their length.
func (p *press) level(h *hybrid) {
	b := h.finish()
	p.raw = binary.LittleEndian.AppendUint32(p.raw, uint32(len(b)))
	p.raw = append(p.raw, b...)
}

// crc is the checksum of a page.
func crc(page []byte) uint32 { return crc32.ChecksumIEEE(page) }

// encoders compress pages, quick ones dictionaries too.
var encoders, quick = encodersOf(zstd.SpeedDefault), encodersOf(zstd.SpeedFastest)

func encodersOf(level zstd.EncoderLevel) *sync.Pool {
	return &sync.Pool{New: func() any { return newEncoder(level) }}
}

func newEncoder(level zstd.EncoderLevel) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(2<<20),
		zstd.WithLowerEncoderMem(true), zstd.WithAllLitEntropyCompression(true), zstd.WithZeroFrames(true),
		zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // options that are wrong
	}
	return e
}
