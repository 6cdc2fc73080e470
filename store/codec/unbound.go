package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/fse"
)

// unquantizer is what a Decoder needs for codec Q.
type unquantizer struct {
	src     []byte // what is left of the payload
	short   bool   // it ended within a number
	symbols []byte
	q       []int32
	fse     fse.Scratch
}

func (u *unquantizer) failed(what string) error {
	return fmt.Errorf("%w: %w: %s", errQ, ErrCorrupt, what)
}

// append appends the values of a payload, of which there are size bytes, to dst.
func (u *unquantizer) append(dst, src []byte, size int) ([]byte, error) {
	if size == 0 && len(src) == 0 {
		return dst, nil
	}
	if _, _, err := readAchieved(src); err != nil {
		return dst, err
	}
	entropy := src[1]&qEntropy != 0
	u.src, u.short = src[qHead:], false
	n, rows := u.uvarint(), u.uvarint()
	if n == 0 || n > uint64(size)/4 || rows > uint64(len(u.src)) || rows > uint64(size)/4/n ||
		n*rows*4 != uint64(size) {
		return dst, u.failed("its rows are not as long as the tensor's")
	}
	u.symbols = u.symbols[:0]
	if entropy {
		if err := u.readSymbols(size / 4); err != nil {
			return dst, err
		}
	}
	start, next := len(dst), 0
	dst = slices.Grow(dst, size)[:start+size]
	for at := start; at < len(dst); at += 4 * int(n) {
		var err error
		if next, err = u.row(dst[at:at+4*int(n)], entropy, next); err != nil {
			return dst[:start], err
		}
	}
	if len(u.src) != 0 || next != len(u.symbols) || u.short {
		return dst[:start], u.failed("it does not end with the last row")
	}
	return dst, nil
}

// readSymbols decodes the entropy stage, of at most limit symbols.
func (u *unquantizer) readSymbols(limit int) error {
	n := u.uvarint()
	if n > uint64(limit) {
		return u.failed("more symbols than values")
	}
	u.symbols = slices.Grow(u.symbols, int(n))
	for int(n) > len(u.symbols) {
		block := min(int(n)-len(u.symbols), qFSEBlock)
		size := int(u.uvarint())
		coded := size > 0
		if !coded {
			size = block
		}
		p, ok := u.next(size)
		if !ok {
			return u.failed("it ends within the symbols")
		}
		if !coded {
			u.symbols = append(u.symbols, p...)
			continue
		}
		if err := u.entropy(p, block); err != nil {
			return err
		}
	}
	return nil
}

// entropy decodes a block of n symbols.
func (u *unquantizer) entropy(p []byte, n int) error {
	u.fse.DecompressLimit = n + 1
	out, err := fse.Decompress(p, &u.fse)
	if err != nil || len(out) != n {
		return u.failed("a block of symbols does not decode")
	}
	u.symbols = append(u.symbols, out...)
	return nil
}

// row decodes one row into dst; next is its first symbol, and the next row's is returned.
func (u *unquantizer) row(dst []byte, entropy bool, next int) (int, error) {
	kind, ok := u.next(1)
	if !ok {
		return next, u.failed("it ends within the rows")
	}
	switch k := kind[0]; k {
	case qZero:
		clear(dst)
		return next, nil
	case qConst:
		v, ok := u.next(4)
		for i := 0; ok && i < len(dst); i += 4 {
			copy(dst[i:], v)
		}
		return next, u.errUnless(ok)
	case qRaw:
		p, ok := u.next(len(dst))
		copy(dst, p)
		return next, u.errUnless(ok)
	case qPlain, qSpare:
		if !entropy {
			return next, u.groups(dst, k == qSpare)
		}
	default:
		if low := k & (qLow - 1); entropy && (k-low == qLow || k-low == qLowSpare) && low <= qMaxWidth {
			return u.joined(dst, next, int(low), k-low == qLowSpare)
		}
	}
	return next, u.failed("a row of an unknown kind")
}

func (u *unquantizer) errUnless(ok bool) error {
	if !ok {
		return u.failed("it ends within a row")
	}
	return nil
}

// groups decodes a row of multiples of a step, in groups with a width of their own.
func (u *unquantizer) groups(dst []byte, spare bool) error {
	step, err := u.step(len(dst) / 4)
	for at := 0; at < len(u.q) && err == nil; at += qGroup {
		width, ok := u.next(1)
		if !ok {
			return u.errUnless(ok)
		}
		err = u.packed(u.q[at:min(at+qGroup, len(u.q))], int(width[0]), true)
	}
	if err != nil {
		return err
	}
	return u.values(dst, step, spare)
}

// joined decodes a row of which the low bits stand here, and the others in the symbols from next on. It returns the
// place after them.
func (u *unquantizer) joined(dst []byte, next, low int, spare bool) (int, error) {
	n := len(dst) / 4
	if len(u.symbols)-next < n {
		return next, u.failed("fewer symbols than values")
	}
	step, err := u.step(n)
	if err == nil {
		err = u.packed(u.q, low, false)
	}
	if err != nil {
		return next, err
	}
	for i := range u.q {
		u.q[i] |= int32(int8(u.symbols[next+i])) << low
	}
	return next + n, u.values(dst, step, spare)
}

// step reads a row's step and makes room for its n multiples.
func (u *unquantizer) step(n int) (float32, error) {
	u.q = slices.Grow(u.q[:0], n)[:n]
	p, ok := u.next(2)
	if !ok {
		return 0, u.errUnless(ok)
	}
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(p)) << 16), nil
}

// values writes a row.
func (u *unquantizer) values(dst []byte, step float32, spare bool) error {
	for i, v := range u.q {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(v)*step))
	}
	if spare {
		return u.exceptions(dst)
	}
	return nil
}

// packed reads values of so many bits.
func (u *unquantizer) packed(q []int32, width int, signed bool) error {
	if width > qMaxWidth {
		return u.failed("values of an impossible width")
	}
	p, ok := u.next((len(q)*width + 7) / 8)
	if ok {
		unpack(q, p, width, signed)
	}
	return u.errUnless(ok)
}

// exceptions puts values back that no step leads to.
func (u *unquantizer) exceptions(dst []byte) error {
	at := uint64(0)
	for range u.uvarint() {
		at += u.uvarint()
		p, ok := u.next(4)
		if !ok || at >= uint64(len(dst)/4) {
			return u.failed("an exception outside of its row")
		}
		copy(dst[4*at:], p)
	}
	return nil
}

func (u *unquantizer) uvarint() uint64 {
	v, n := binary.Uvarint(u.src)
	if n <= 0 {
		u.src, u.short = nil, true
		return 0
	}
	u.src = u.src[n:]
	return v
}

func (u *unquantizer) next(n int) ([]byte, bool) {
	if n > len(u.src) {
		return nil, false
	}
	p := u.src[:n]
	u.src = u.src[n:]
	return p, true
}
