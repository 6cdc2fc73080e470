package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// AppendFloat32 appends the elements of src as float32 to dst. F64 and integers beyond 2^24 are rounded to the
// nearest. Raw is errors.ErrUnsupported, as its element type is not known here.
func AppendFloat32(dst []float32, src []byte, from DType) ([]float32, error) {
	decode := decoders[min(int(from), len(decoders)-1)]
	if !from.Known() || decode == nil {
		return dst, fmt.Errorf("elements of type %v as float32: %w", from, errors.ErrUnsupported)
	}
	size := from.Size()
	if len(src)%size != 0 {
		return dst, fmt.Errorf("%d bytes of %v: %w", len(src), from, ErrLength)
	}
	dst = slices.Grow(dst, len(src)/size)
	switch from { // nearly all captures
	case F16:
		n := len(dst)
		dst = dst[:n+len(src)/2]
		widenF16(dst[n:], src)
	case F32:
		for ; len(src) >= 4; src = src[4:] {
			dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(src)))
		}
	default:
		for ; len(src) > 0; src = src[size:] {
			dst = append(dst, decode(src))
		}
	}
	return dst, nil
}

var decoders = [...]func([]byte) float32{
	F32:  func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) },
	F16:  func(b []byte) float32 { return f16ToFloat32(binary.LittleEndian.Uint16(b)) },
	BF16: func(b []byte) float32 { return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16) },
	F64:  func(b []byte) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(b))) },
	I8:   func(b []byte) float32 { return float32(int8(b[0])) },
	I16:  func(b []byte) float32 { return float32(int16(binary.LittleEndian.Uint16(b))) },
	I32:  func(b []byte) float32 { return float32(int32(binary.LittleEndian.Uint32(b))) },
	I64:  func(b []byte) float32 { return float32(int64(binary.LittleEndian.Uint64(b))) },
}

// widenF16Plain is widenF16 without vector instructions.
func widenF16Plain(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = f16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// f16ToFloat32 is the value of a binary16, which float32 holds exactly; a NaN becomes quiet. The exponent is moved by
// a multiplication, which also makes subnormals right.
func f16ToFloat32(half uint16) float32 {
	bits := uint32(half&0x7fff) << 13
	switch {
	case half&0x7fff > 0x7c00:
		bits |= infBits | 0x400000
	case half&0x7c00 == 0x7c00:
		bits |= infBits
	default:
		bits = math.Float32bits(math.Float32frombits(bits) * (1 << (127 - 15)))
	}
	return math.Float32frombits(bits | uint32(half&0x8000)<<16)
}
