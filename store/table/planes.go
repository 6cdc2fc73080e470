package table

import (
	"encoding/binary"

	"github.com/klauspost/compress/huff0"
)

// planes appends data as a zstd frame (RFC 8878) in which literals are coded by Huffman alone, block by block. In the
// bytes of floats there is nothing to be found twice, and looking for it takes most of a general encoder's time: this
// is five times as fast, and packs closer, because each block has bytes of one place in their floats: those before
// head, and then four planes.
func (p *press) planes(out, data []byte, head int) []byte {
	out = binary.LittleEndian.AppendUint32(out, 0xFD2FB528)
	out = append(out, 2<<6|1<<5) // the size in 4 bytes, one segment, no checksum
	out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
	plane := (len(data) - head) / 4
	for at, end := 0, head; at < len(data); end = min(end+max(plane, 1), len(data)) {
		for at < end {
			next := min(at+maxBlock, end)
			out = p.block(out, data[at:next], next == len(data))
			at = next
		}
	}
	return out
}

// maxBlock is the most that a block of a zstd frame holds.
const maxBlock = 128 << 10

// Kinds of blocks, and the literals of a block in four streams with sizes of 18 bits.
const (
	blockRaw = iota
	blockRepeat
	blockPacked
	literalsPacked = 2 | 3<<2
)

func (p *press) block(out, data []byte, last bool) []byte {
	header := func(kind, size int) {
		bits := size<<3 | kind<<1
		if last {
			bits |= 1
		}
		out = append(out, byte(bits), byte(bits>>8), byte(bits>>16))
	}
	if same(data) {
		header(blockRepeat, len(data))
		return append(out, data[0])
	}
	if len(data) >= minPacked {
		p.huffman.Reuse = huff0.ReusePolicyNone
		packed, _, err := huff0.Compress4X(data, &p.huffman)
		if err == nil && len(packed)+6 < len(data) {
			header(blockPacked, 5+len(packed)+1)
			sizes := uint64(literalsPacked | len(data)<<4 | len(packed)<<22)
			out = append(binary.LittleEndian.AppendUint32(out, uint32(sizes)), byte(sizes>>32))
			return append(append(out, packed...), 0) // no sequences
		}
	}
	header(blockRaw, len(data))
	return append(out, data...)
}

// minPacked is the least bytes of a block that are packed.
const minPacked = 256

// same reports whether all bytes are equal.
func same(data []byte) bool {
	for i := range data {
		if data[i] != data[0] {
			return false
		}
	}
	return true
}
