package gguf

import "math"

// f16FromFloat32 rounds f to the nearest half-precision number (ties to even; beyond 65504 it becomes infinite) and
// gives its bits.
func f16FromFloat32(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // not a number: keep it quiet
		return sign | 0x7e00
	case b >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case b >= 0x38800000: // normal
		b += 0xfff + b>>13&1
		return sign | uint16((b-0x38000000)>>13)
	case b < 0x33000000: // less than half of the smallest subnormal
		return sign
	}
	shift := 126 - b>>23 // subnormal: the mantissa with its leading one counts units of 2^-24
	m := b&0x7fffff | 0x800000
	half, rest := m>>shift, m&(1<<shift-1)
	if mid := uint32(1) << (shift - 1); rest > mid || rest == mid && half&1 == 1 {
		half++
	}
	return sign | uint16(half)
}

// f16ToFloat32 is the value of a half-precision number.
func f16ToFloat32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, m := uint32(h>>10&31), uint32(h&0x3ff)
	switch exp {
	case 0:
		f := float32(m) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | m<<13)
}

// bf16FromFloat32 rounds f to the nearest bfloat16 number (ties to even) and gives its bits.
func bf16FromFloat32(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// bf16ToFloat32 is the value of a bfloat16 number.
func bf16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
