//go:build linux

package collect

import (
	"encoding/binary"
	"fmt"
)

// decoder takes little-endian values from a record. Past the end it returns zeros and sets bad.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) has(n int) bool {
	if n < 0 || n > len(d.b) {
		d.bad = true
	}
	return !d.bad
}

func (d *decoder) take(n int) []byte {
	if !d.has(n) {
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if b := d.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u8() uint8 {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) i32() int32 { return int32(d.u32()) }

func (d *decoder) text(n int) string { return string(d.take(n)) }

func (d *decoder) i32s(dst []int32, n int) []int32 {
	if n < 0 || n > len(d.b)/4 {
		d.bad = true
		return dst
	}
	for range n {
		dst = append(dst, d.i32())
	}
	return dst
}

func (d *decoder) err(kind uint32) error {
	if d.bad {
		return fmt.Errorf("%w: a record of type %d is too short", ErrQueue, kind)
	}
	return nil
}

func (d *decoder) then(kind uint32, next func() error) error {
	if err := d.err(kind); err != nil {
		return err
	}
	return next()
}

// sub takes the rest of an entry whose first four bytes, already taken, say how long it is.
func (d *decoder) sub(bytes uint32) decoder {
	if bytes < 4 {
		d.bad = true
	}
	return decoder{b: d.take(int(bytes) - 4), bad: d.bad}
}
