package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// AppendRow encodes src, whole blocks of values, as type t and appends the bytes to dst. F32, F16, BF16, Q8_0, Q5_0
// and Q4_0 give the bits that ggml's reference quantiser gives; Q4_K has the same layout, but its own and simpler
// choice of scales. Other types: errors.ErrUnsupported.
func AppendRow(dst []byte, t Type, src []float32) ([]byte, error) {
	if _, err := t.RowBytes(int64(len(src))); err != nil {
		return dst, err
	}
	switch t {
	case F32:
		for _, x := range src {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		}
	case F16:
		for _, x := range src {
			dst = binary.LittleEndian.AppendUint16(dst, f16FromFloat32(x))
		}
	case BF16:
		for _, x := range src {
			dst = binary.LittleEndian.AppendUint16(dst, bf16FromFloat32(x))
		}
	case Q8_0:
		for ; len(src) > 0; src = src[32:] {
			dst = appendQ8(dst, (*[32]float32)(src))
		}
	case Q5_0:
		for ; len(src) > 0; src = src[32:] {
			dst = appendQ5(dst, (*[32]float32)(src))
		}
	case Q4_0:
		for ; len(src) > 0; src = src[32:] {
			dst = appendQ4(dst, (*[32]float32)(src))
		}
	case Q4_K:
		for ; len(src) > 0; src = src[256:] {
			dst = appendQ4K(dst, (*[256]float32)(src))
		}
	default:
		return dst, fmt.Errorf("encode a row as %v: %w", t, errors.ErrUnsupported)
	}
	return dst, nil
}

// belowHalf is the float32 just below 0.5: added to a small number with its sign, it makes truncation round halves
// away from zero, and nothing else up.
const belowHalf = 0x3effffff

// appendQ8 writes 34 bytes: f16 scale d = max|x|/127, then 32 signed bytes x/d, halves away from zero.
func appendQ8(dst []byte, x *[32]float32) []byte {
	d := abs32(extreme(x)) / 127
	inv := inverse(d)
	dst = binary.LittleEndian.AppendUint16(dst, f16FromFloat32(d))
	var q [32]byte
	for i, v := range x {
		v = float32(v * inv)
		half := math.Float32frombits(math.Float32bits(v)&(1<<31) | belowHalf)
		q[i] = byte(int32(v + half))
	}
	return append(dst, q[:]...)
}

// appendQ4 writes 18 bytes: f16 scale d = -(value of largest magnitude)/8, then 16 bytes of x/d+8, value i beside
// value i+16.
func appendQ4(dst []byte, x *[32]float32) []byte {
	d := extreme(x) / -8
	inv := inverse(d)
	dst = binary.LittleEndian.AppendUint16(dst, f16FromFloat32(d))
	var q [16]byte
	for i := range q {
		lo := min(15, uint8(int8(float32(x[i]*inv)+8.5)))
		hi := min(15, uint8(int8(float32(x[i+16]*inv)+8.5)))
		q[i] = lo | hi<<4
	}
	return append(dst, q[:]...)
}

// appendQ5 writes 22 bytes: f16 scale d = -(value of largest magnitude)/16, the fifth bits, then the low four as in
// Q4_0.
func appendQ5(dst []byte, x *[32]float32) []byte {
	d := extreme(x) / -16
	inv := inverse(d)
	dst = binary.LittleEndian.AppendUint16(dst, f16FromFloat32(d))
	var q [16]byte
	var fifth uint32
	for i := range q {
		lo := uint32(min(31, uint8(int8(float32(x[i]*inv)+16.5))))
		hi := uint32(min(31, uint8(int8(float32(x[i+16]*inv)+16.5))))
		q[i] = byte(lo&15 | hi&15<<4)
		fifth |= lo>>4<<i | hi>>4<<(i+16)
	}
	dst = binary.LittleEndian.AppendUint32(dst, fifth)
	return append(dst, q[:]...)
}

// extreme is the value of largest magnitude, the first of several.
func extreme(x *[32]float32) float32 {
	var top, at float32
	for _, v := range x {
		if a := abs32(v); a > top {
			top, at = a, v
		}
	}
	return at
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}
