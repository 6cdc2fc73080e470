package codec

// Hot path: some nanoseconds per value, 0 allocations.

import (
	"encoding/binary"
	"math"
	"slices"
)

// statsOf looks at a row.
func statsOf(row []byte) (s rowStats) {
	for len(row) > 0 {
		part := row[:min(len(row), 4*qGroup)]
		row = row[len(part):]
		largest, squares, exceptions := rowStatistics(part)
		s.largest = max(s.largest, largest)
		s.squares += float64(squares)
		s.exceptions += exceptions
	}
	return s
}

// lookSums are what eight lanes have seen of a row: value i belongs to lane i%8.
type lookSums struct {
	most       [8]uint32 // largest absolute bits
	squares    [8]float32
	exceptions [8]int32
}

// rowStatistics returns the largest magnitude, the sum of squares and the exceptions of at most qGroup values.
func rowStatistics(part []byte) (largest, squares float32, exceptions int) {
	var s lookSums
	lookPlain(part[lookVector(part, &s):], &s)
	for i := range s.most {
		largest = max(largest, math.Float32frombits(s.most[i]))
		exceptions += int(s.exceptions[i])
	}
	return largest, sum8(&s.squares), exceptions
}

func lookPlain(part []byte, s *lookSums) {
	for i := 0; 4*i < len(part); i++ {
		bits := binary.LittleEndian.Uint32(part[4*i:])
		if exceptional(bits) {
			s.exceptions[i%8]++
			continue
		}
		s.most[i%8] = max(s.most[i%8], bits&absMask)
		v := math.Float32frombits(bits)
		s.squares[i%8] += float32(v * v)
	}
}

func sum8(s *[8]float32) float32 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// quantSums are what eight lanes have made of a row.
type quantSums struct {
	worst   [8]float32 // largest error
	squares [8]float32
	most    [8]int32 // largest absolute multiple
}

// farthest bounds the multiples, so that they fit an int32. It is far beyond qMaxWidth.
const farthest = 1 << 25

// quantize writes the nearest multiple of step of each of at most qGroup values, ties to even, and returns the
// largest error, the sum of squared errors and the largest absolute multiple. inverse is 1/step.
func quantize(q []int32, values []byte, inverse, step float32) (worst, squares float32, most int32) {
	var s quantSums
	n := quantizeVector(q, values, inverse, step, &s)
	quantizePlain(q[n:], values[4*n:], inverse, step, &s)
	for i := range s.worst {
		worst, most = max(worst, s.worst[i]), max(most, s.most[i])
	}
	return worst, sum8(&s.squares), most
}

func quantizePlain(q []int32, values []byte, inverse, step float32, s *quantSums) {
	for i := range q {
		v := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
		x := int32(math.RoundToEven(float64(max(min(v*inverse, farthest), -farthest))))
		q[i] = x
		e := v - float32(float32(x)*step)
		s.worst[i%8] = max(s.worst[i%8], float32(math.Abs(float64(e))))
		s.squares[i%8] += float32(e * e)
		s.most[i%8] = max(s.most[i%8], x, -x)
	}
}

// appendPacked appends the low width bits of each value, the first value in the lowest bits.
func appendPacked(dst []byte, q []int32, width int) []byte {
	n := (len(q)*width + 7) / 8
	at := len(dst)
	dst = slices.Grow(dst, n+8)[:at+n]
	if width > 0 {
		pack(dst[at:at+n:at+n+8], q, width)
	}
	return dst
}

// pack fills dst, which has a capacity of 8 bytes more.
func pack(dst []byte, q []int32, width int) {
	if width <= 16 {
		done := packVector(dst[:len(dst)+8], q, width)
		if done == 0 {
			done = packEights(dst[:len(dst)+8], q, width)
		}
		dst, q = dst[done*width/8:], q[done:]
	}
	packPlain(dst, q, width)
}

// packEights packs as many values as groups of 8 take, of at most 16 bits each, and returns how many: a group begins
// and ends with a byte, and is written in one or two words, of which the next one overwrites what is too much.
func packEights(dst []byte, q []int32, width int) (done int) {
	w := uint(width)
	mask := uint64(1)<<w - 1
	low := func(v int32) uint64 { return uint64(v) & mask }
	for ; len(q)-done >= 8; done += 8 {
		v := (*[8]int32)(q[done:])
		first := low(v[0]) | low(v[1])<<(w&63) | low(v[2])<<(2*w&63) | low(v[3])<<(3*w&63)
		second := low(v[4]) | low(v[5])<<(w&63) | low(v[6])<<(2*w&63) | low(v[7])<<(3*w&63)
		binary.LittleEndian.PutUint64(dst, first|second<<(4*w)) // 64 shifts all of it away
		if w > 8 {
			binary.LittleEndian.PutUint64(dst[8:], second>>(64-4*w))
		}
		dst = dst[w:]
	}
	return done
}

func packPlain(dst []byte, q []int32, width int) {
	var acc uint64
	bits := 0
	mask := uint64(1)<<width - 1
	out := dst[:0]
	for _, v := range q {
		acc |= uint64(v) & mask << bits
		if bits += width; bits >= 32 {
			out = binary.LittleEndian.AppendUint32(out, uint32(acc))
			acc >>= 32
			bits -= 32
		}
	}
	for ; bits > 0; bits -= 8 {
		out = append(out, byte(acc))
		acc >>= 8
	}
}

// unpackEights reads groups of eight signed values of at most 16 bits, as long as whole words of them can be read,
// and returns how many values.
func unpackEights(q []int32, src []byte, width int) (done int) {
	w := uint(width)
	half, odd := width/2, 4*(w&1)
	top := 64 - w
	high := func(word uint64, at uint) int32 { return int32(int64(word<<((top-at*w)&63)) >> (top & 63)) }
	for ; len(q)-done >= 8 && len(src) >= half+8; done += 8 {
		v := (*[8]int32)(q[done:])
		first := binary.LittleEndian.Uint64(src)
		second := binary.LittleEndian.Uint64(src[half:]) >> odd
		v[0], v[1], v[2], v[3] = high(first, 0), high(first, 1), high(first, 2), high(first, 3)
		v[4], v[5], v[6], v[7] = high(second, 0), high(second, 1), high(second, 2), high(second, 3)
		src = src[width:]
	}
	return done
}

// unpack reads what pack wrote; signed values get their sign back.
func unpack(q []int32, src []byte, width int, signed bool) {
	if width == 0 {
		clear(q)
		return
	}
	if width <= 16 && signed {
		done := unpackEights(q, src, width)
		q, src = q[done:], src[done*width/8:]
	}
	var acc uint64
	bits := 0
	mask := uint64(1)<<width - 1
	shift := 0
	if signed {
		shift = 32 - width
	}
	for i := range q {
		for bits < width {
			if len(src) >= 4 && bits <= 32 {
				acc |= uint64(binary.LittleEndian.Uint32(src)) << bits
				src = src[4:]
				bits += 32
			} else {
				acc |= uint64(src[0]) << bits
				src = src[1:]
				bits += 8
			}
		}
		q[i] = int32(acc&mask) << shift >> shift
		acc >>= width
		bits -= width
	}
}
