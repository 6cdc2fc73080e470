// Hot path: 5 ns per value.

package table

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Blocks of DELTA_BINARY_PACKED as they are written here, and by nearly everybody.
const (
	deltaBlock = 128
	deltaMinis = 4
	deltaMini  = deltaBlock / deltaMinis
)

// delta writes integers as differences, packed in the bits that they need (DELTA_BINARY_PACKED).
type delta struct {
	small       bool // integers of 32 bits, whose differences wrap at 32
	n           int
	first, last int64
	block       [deltaBlock]int64
	filled      int
	out         []byte
}

func (d *delta) reset() { d.n, d.filled, d.out = 0, 0, d.out[:0] }

// size is about how many bytes there are.
func (d *delta) size() int { return len(d.out) + 8*d.filled }

// put appends values.
func (d *delta) put(v []int64) {
	if d.n == 0 && len(v) > 0 {
		d.first, d.last, d.n = v[0], v[0], 1
		v = v[1:]
	}
	for _, x := range v {
		d.block[d.filled] = x - d.last
		d.last = x
		if d.filled++; d.filled == deltaBlock {
			d.endBlock()
		}
	}
	d.n += len(v)
}

// repeat appends a value n times.
func (d *delta) repeat(v int64, n int) {
	one := [1]int64{v}
	for ; n > 0 && (d.n == 0 || d.filled != 0 || v != d.last || n < deltaBlock); n-- {
		d.put(one[:])
	}
	for ; n >= deltaBlock; n -= deltaBlock {
		d.out = append(d.out, 0, 0, 0, 0, 0) // the least difference, and the bits of four times 32
		d.n += deltaBlock
	}
	if n > 0 {
		d.repeat(v, n)
	}
}

// endBlock writes the block's differences.
func (d *delta) endBlock() {
	block := d.block[:d.filled]
	if d.small {
		for i, v := range block {
			block[i] = int64(int32(v))
		}
	}
	least := block[0]
	for _, v := range block {
		least = min(least, v)
	}
	d.out = binary.AppendVarint(d.out, least)
	widths := len(d.out)
	d.out = append(d.out, 0, 0, 0, 0)
	for i := 0; i*deltaMini < len(block); i++ {
		mini := block[i*deltaMini : min((i+1)*deltaMini, len(block))]
		all := uint64(0)
		for k, v := range mini {
			above := uint64(v - least)
			if d.small {
				above = uint64(uint32(above))
			}
			mini[k] = int64(above)
			all |= above
		}
		width := bits.Len64(all)
		d.out[widths+i] = byte(width)
		d.out = packMini(d.out, mini, width)
	}
	d.filled = 0
}

// packMini packs 32 values; those that are missing are 0.
func packMini(to []byte, v []int64, width int) []byte {
	end := len(to) + width*deltaMini/8
	acc, used := uint64(0), 0
	for _, x := range v {
		acc |= uint64(x) << used
		if used += width; used >= 64 {
			to = binary.LittleEndian.AppendUint64(to, acc)
			used -= 64
			acc = uint64(x) >> (width - used)
		}
	}
	for ; len(to) < end; acc >>= 8 {
		to = append(to, byte(acc))
	}
	return to
}

// finish appends the whole encoding of the values.
func (d *delta) finish(to []byte) []byte {
	if d.filled > 0 {
		d.endBlock()
	}
	if d.n == 0 {
		d.first = 0
	}
	to = binary.AppendUvarint(to, deltaBlock)
	to = binary.AppendUvarint(to, deltaMinis)
	to = binary.AppendUvarint(to, uint64(d.n))
	to = binary.AppendVarint(to, d.first)
	return append(to, d.out...)
}

// errDelta occurs where bytes are not DELTA_BINARY_PACKED.
var errDelta = errors.New("packed differences are damaged")

// deltaReader reads what delta and other programs write. Values of 32 bits come with more, which are to be cut off.
type deltaReader struct {
	b       []byte
	left    int // values
	started bool
	last    int64
	mini    int // values of a mini-block
	minis   int // of a block
	widths  []byte
	least   int64
	now     [deltaMini * 8]int64 // of the mini-block, as differences
	at, end int
}

// newDeltaReader reads the head.
func newDeltaReader(b []byte) (*deltaReader, error) {
	r := &deltaReader{b: b}
	block, minis, n := r.uvarint(), r.uvarint(), r.uvarint()
	first, k := binary.Varint(r.b)
	if r.b == nil || k <= 0 || block == 0 || minis == 0 || block > 1<<16 || minis > block || block%minis != 0 ||
		block/minis > uint64(len(r.now)) || block/minis%8 != 0 || n > 1<<31 {
		return nil, errDelta
	}
	r.b, r.last, r.left, r.mini, r.minis = r.b[k:], first, int(n), int(block/minis), int(minis)
	return r, nil
}

func (r *deltaReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// read reads len(to) values; false where there are not so many, or where they are damaged.
func (r *deltaReader) read(to []int64) bool {
	if len(to) > r.left {
		return false
	}
	r.left -= len(to)
	if !r.started && len(to) > 0 {
		r.started = true
		to[0], to = r.last, to[1:]
	}
	for len(to) > 0 {
		if r.at == r.end && !r.next() {
			return false
		}
		n := min(len(to), r.end-r.at)
		last := r.last
		for i, v := range r.now[r.at : r.at+n] {
			last += v
			to[i] = last
		}
		r.last = last
		r.at += n
		to = to[n:]
	}
	return true
}

// next unpacks the next mini-block.
func (r *deltaReader) next() bool {
	if len(r.widths) == 0 {
		least, n := binary.Varint(r.b)
		if n <= 0 || len(r.b)-n < r.minis {
			return false
		}
		r.least, r.widths, r.b = least, r.b[n:n+r.minis], r.b[n+r.minis:]
	}
	width := int(r.widths[0])
	r.widths = r.widths[1:]
	bytes := width * r.mini / 8
	if width > 64 || len(r.b) == 0 && width > 0 {
		return false
	}
	packed := r.b[:min(bytes, len(r.b))] // the last one may be cut off
	r.b = r.b[len(packed):]
	r.at, r.end = 0, r.mini
	if width == 0 {
		for i := range r.now[:r.end] {
			r.now[i] = r.least
		}
		return true
	}
	r.end = min(r.end, len(packed)*8/width)
	for i := range r.now[:r.end] {
		r.now[i] = r.least + int64(bitsAt(packed, i*width, width))
	}
	return r.end > 0
}

// bitsAt is the number of width bits, to 64, at a bit.
func bitsAt(b []byte, bit, width int) uint64 {
	first, shift := bit>>3, bit&7
	var low, high uint64
	if first+9 <= len(b) {
		low, high = binary.LittleEndian.Uint64(b[first:]), uint64(b[first+8])
	} else {
		for k, v := range b[first:] {
			if k < 8 {
				low |= uint64(v) << (8 * k)
			} else {
				high = uint64(v)
				break
			}
		}
	}
	v := low >> shift
	if shift > 0 {
		v |= high << (64 - shift)
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}
