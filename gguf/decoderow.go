package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// DecodeRow decodes src, bytes of type t, into dst; the two must be of the same number of values. Types: F32, F16,
// BF16, Q8_0, Q5_0, Q4_0, Q4_K, Q6_K; others: errors.ErrUnsupported.
func DecodeRow(dst []float32, t Type, src []byte) error {
	n, err := t.RowBytes(int64(len(dst)))
	if err != nil {
		return err
	}
	if n != int64(len(src)) {
		return fmt.Errorf("decode a row of %d %v values: got %d bytes, it has %d", len(dst), t, len(src), n)
	}
	decode := decoders[t]
	if decode == nil {
		return fmt.Errorf("decode a row of %v: %w", t, errors.ErrUnsupported)
	}
	values, bytes := int(t.BlockValues()), int(t.BlockBytes())
	for ; len(dst) > 0; dst, src = dst[values:], src[bytes:] {
		decode(dst[:values], src[:bytes])
	}
	return nil
}

// decoders decode one block each.
var decoders = map[Type]func(dst []float32, src []byte){
	F32:  func(dst []float32, src []byte) { dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src)) },
	F16:  func(dst []float32, src []byte) { dst[0] = f16At(src) },
	BF16: func(dst []float32, src []byte) { dst[0] = bf16ToFloat32(binary.LittleEndian.Uint16(src)) },
	Q8_0: decodeQ8,
	Q4_0: decodeQ4,
	Q5_0: decodeQ5,
	Q4_K: decodeQ4K,
	Q6_K: decodeQ6K,
}

func f16At(src []byte) float32 { return f16ToFloat32(binary.LittleEndian.Uint16(src)) }

func decodeQ8(dst []float32, src []byte) {
	d := f16At(src)
	for i := range dst {
		dst[i] = d * float32(int8(src[2+i]))
	}
}

func decodeQ4(dst []float32, src []byte) {
	d := f16At(src)
	for i, b := range src[2:] {
		dst[i] = d * float32(int(b&15)-8)
		dst[i+16] = d * float32(int(b>>4)-8)
	}
}

func decodeQ5(dst []float32, src []byte) {
	d, fifth := f16At(src), binary.LittleEndian.Uint32(src[2:])
	for i, b := range src[6:] {
		dst[i] = d * float32(int(uint32(b&15)|fifth>>i&1<<4)-16)
		dst[i+16] = d * float32(int(uint32(b>>4)|fifth>>(i+16)&1<<4)-16)
	}
}

func decodeQ4K(dst []float32, src []byte) {
	d, dmin := f16At(src), f16At(src[2:])
	s, m := unpackSixBits(src[4:16])
	for i := range dst {
		g := i / 32
		q := src[16+i/64*32+i%32] >> (g & 1 * 4) & 15
		dst[i] = float32(d*float32(s[g]))*float32(q) - float32(dmin*float32(m[g]))
	}
}

// decodeQ6K decodes 210 bytes: 128 of low bits, 64 of high bits, 16 signed scales, f16 d. Each half of 128 values
// takes 64 and 32 of the bit bytes; within it value i of 32 stands four times, at 0, 32, 64 and 96.
func decodeQ6K(dst []float32, src []byte) {
	d := f16At(src[208:])
	for half := range 2 {
		low, high, scale := src[64*half:], src[128+32*half:], src[192+8*half:]
		for i := range 128 {
			quarter, at := i/32, i%32
			l := low[at+quarter&1*32] >> (quarter >> 1 * 4) & 15
			h := high[at] >> (2 * quarter) & 3
			dst[128*half+i] = d * float32(int8(scale[i/16])) * float32(int(l|h<<4)-32)
		}
	}
}
