package gguf

import "encoding/binary"

// appendQ4K writes 144 bytes for 256 values: f16 d and dmin, eight 6-bit scales and minima in 12 bytes, 128 bytes
// of 4 bits. A value is d·scale·q − dmin·min of its group of 32. Scales span each group's range from min(0,
// smallest) to the largest.
func appendQ4K(dst []byte, x *[256]float32) []byte {
	var scales, mins [8]float32
	for g := range scales {
		lo, hi := span(x[32*g : 32*g+32])
		scales[g], mins[g] = (hi-lo)/15, -lo
	}
	d, ls := sixBits(&scales)
	dmin, lm := sixBits(&mins)
	dst = binary.LittleEndian.AppendUint16(dst, d)
	dst = binary.LittleEndian.AppendUint16(dst, dmin)
	packed := packSixBits(&ls, &lm)
	dst = append(dst, packed[:]...)

	df, mf := f16ToFloat32(d), f16ToFloat32(dmin)
	var q [256]uint8
	for g := range ls {
		inv, m := inverse(df*float32(ls[g])), float32(mf*float32(lm[g]))
		for i := 32 * g; i < 32*g+32; i++ {
			q[i] = uint8(min(15, max(0, int32(float32((x[i]+m)*inv)+0.5))))
		}
	}
	var out [128]byte
	for i := range out {
		at := i/32*64 + i%32
		out[i] = q[at] | q[at+32]<<4
	}
	return append(dst, out[:]...)
}

// span is the range of the values, zero included.
func span(x []float32) (lo, hi float32) {
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// sixBits expresses eight numbers that are not negative as multiples 0 to 63 of one half-precision unit.
func sixBits(x *[8]float32) (unit uint16, n [8]uint8) {
	var top float32
	for _, v := range x {
		top = max(top, v)
	}
	unit = f16FromFloat32(top / 63)
	inv := inverse(f16ToFloat32(unit))
	for i, v := range x {
		n[i] = uint8(min(63, int32(float32(v*inv)+0.5)))
	}
	return unit, n
}

// packSixBits lays eight scales and eight minima into 12 bytes: the first four of each plainly, of the others four
// bits in the last four bytes and two on top of the first eight.
func packSixBits(s, m *[8]uint8) (out [12]byte) {
	for i := range 4 {
		out[i] = s[i] | s[i+4]>>4<<6
		out[i+4] = m[i] | m[i+4]>>4<<6
		out[i+8] = s[i+4]&15 | m[i+4]<<4
	}
	return out
}

// unpackSixBits undoes packSixBits.
func unpackSixBits(p []byte) (s, m [8]uint8) {
	for i := range 4 {
		s[i], m[i] = p[i]&63, p[i+4]&63
		s[i+4] = p[i+8]&15 | p[i]>>6<<4
		m[i+4] = p[i+8]>>4 | p[i+4]>>6<<4
	}
	return s, m
}
