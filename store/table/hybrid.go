// Hot path: 5 ns per value, nothing per value of a run.

package table

import "encoding/binary"

// hybrid writes small numbers as Parquet's mixture of runs and packed values. Its width is 1 or 2 bits for levels,
// else whole bytes: numbers that lie on bytes are packed again by zstd, which finds what repeats, and packs it
// closer than bits would.
type hybrid struct {
	width int
	out   []byte
	// The run that is not written yet.
	value uint32
	run   int
	// Values that are in no run, packed already, to which a head is to be written.
	packed []byte
	n      int
	acc    byte // bits of the last ones, where they fill no byte
	spare  []byte
}

const (
	minRun    = 16      // values that are a run, at least
	maxPacked = 1 << 16 // values after one head
)

func (h *hybrid) reset(width int) {
	h.width, h.out, h.run, h.packed, h.n, h.acc = width, h.out[:0], 0, h.packed[:0], 0, 0
}

// size is about how many bytes there are.
func (h *hybrid) size() int { return len(h.out) + len(h.packed) }

// put appends a value.
func (h *hybrid) put(v uint32) {
	if v == h.value {
		h.run++
		return
	}
	if h.run != 0 {
		h.endRun()
	}
	h.value, h.run = v, 1
}

// repeat appends a value n times.
func (h *hybrid) repeat(v uint32, n int) {
	if v != h.value && h.run != 0 {
		h.endRun()
	}
	h.value = v
	h.run += n
}

// endRun writes the run, or makes it packed values. Before a run there are eight packed ones or a multiple.
func (h *hybrid) endRun() {
	if h.run == 1 { // the most frequent
		h.pack(h.value, 1)
		h.run = 0
		return
	}
	if missing := -h.n & 7; h.run >= minRun+missing {
		h.pack(h.value, missing)
		h.endPacked()
		h.out = binary.AppendUvarint(h.out, uint64(h.run-missing)<<1)
		h.out = h.append(h.out, h.value)
	} else {
		h.pack(h.value, h.run)
	}
	h.run = 0
}

// widen makes values of 8 bits those of 16, all that were put.
func (h *hybrid) widen() {
	wide := h.spare[:0]
	for rest := h.out; len(rest) > 0; {
		head, n := binary.Uvarint(rest)
		count := 1
		if head&1 != 0 {
			count = int(head>>1) * 8
		}
		wide = spread(append(wide, rest[:n]...), rest[n:n+count])
		rest = rest[n+count:]
	}
	h.out, h.spare = wide, h.out
	wide = spread(h.spare[:0], h.packed)
	h.packed, h.spare = wide, h.packed
	h.width = 16
}

// renumber gives values other numbers: v becomes to[v]. They have 8 or 16 bits.
func (h *hybrid) renumber(to []uint32) {
	for rest := h.out; len(rest) > 0; {
		head, n := binary.Uvarint(rest)
		count := h.width / 8
		if head&1 != 0 {
			count *= int(head>>1) * 8
		}
		h.replace(rest[n:n+count], to)
		rest = rest[n+count:]
	}
	h.replace(h.packed, to)
	if h.run > 0 {
		h.value = to[h.value]
	}
}

func (h *hybrid) replace(values []byte, to []uint32) {
	if h.width == 8 {
		for i, v := range values {
			values[i] = byte(to[v])
		}
		return
	}
	for ; len(values) > 1; values = values[2:] {
		binary.LittleEndian.PutUint16(values, uint16(to[binary.LittleEndian.Uint16(values)]))
	}
}

// spread appends bytes as numbers of two bytes.
func spread(to, from []byte) []byte {
	for _, v := range from {
		to = append(to, v, 0)
	}
	return to
}

// append writes a value in whole bytes.
func (h *hybrid) append(to []byte, v uint32) []byte {
	switch {
	case h.width <= 8:
		return append(to, byte(v))
	case h.width == 16:
		return append(to, byte(v), byte(v>>8))
	}
	return binary.LittleEndian.AppendUint32(to, v)
}

// pack packs a value n times.
func (h *hybrid) pack(v uint32, n int) {
	for range n {
		switch h.width {
		case 8:
			h.packed = append(h.packed, byte(v))
		case 16:
			h.packed = append(h.packed, byte(v), byte(v>>8))
		case 1, 2:
			at := h.n * h.width & 7
			if h.acc |= byte(v) << at; at+h.width == 8 {
				h.packed = append(h.packed, h.acc)
				h.acc = 0
			}
		default:
			h.packed = h.append(h.packed, v)
		}
		if h.n++; h.n == maxPacked {
			h.endPacked()
		}
	}
}

// endPacked writes the packed values after a head.
func (h *hybrid) endPacked() {
	if h.n == 0 {
		return
	}
	h.out = binary.AppendUvarint(h.out, uint64(h.n+7)/8<<1|1)
	h.out = append(h.out, h.packed...)
	h.packed, h.n = h.packed[:0], 0
}

// finish writes what is left, and returns everything until the next reset.
func (h *hybrid) finish() []byte {
	if h.run > 0 {
		h.endRun()
	}
	for h.n&7 != 0 { // nobody reads them
		h.pack(0, 1)
	}
	h.endPacked()
	return h.out
}

// hybridReader reads what hybrid and other programs write, of any width to 32 bits.
type hybridReader struct {
	b     []byte // after the run
	width int
	left  int // values of the run
	value uint32
	bits  []byte // of packed values; nil: the run is one of value
	at    int    // the next of them
}

func newHybridReader(b []byte, width int) hybridReader { return hybridReader{b: b, width: width} }

// next begins the next run if the last one is over; false where there is none.
func (h *hybridReader) next() bool {
	for h.left == 0 {
		head, n := binary.Uvarint(h.b)
		if n <= 0 {
			return false
		}
		rest := h.b[n:]
		if head&1 == 0 {
			bytes := (h.width + 7) / 8
			if len(rest) < bytes {
				return false
			}
			h.value = 0
			for i := range bytes {
				h.value |= uint32(rest[i]) << (8 * i)
			}
			h.b, h.bits, h.left = rest[bytes:], nil, int(min(head>>1, 1<<30))
			continue
		}
		if h.width == 0 {
			h.value, h.bits, h.b, h.left = 0, nil, rest, int(min(head>>1, 1<<27))*8
			continue
		}
		groups := min(head>>1, uint64(len(rest)+h.width-1)/uint64(h.width)) // the last one may be cut off
		bytes := min(int(groups)*h.width, len(rest))
		h.bits, h.b, h.at = rest[:bytes:bytes], rest[bytes:], 0
		if h.left = min(int(groups)*8, bytes*8/h.width); h.left == 0 && groups == 0 && head>>1 != 0 {
			return false
		}
	}
	return true
}

// unpack unpacks values, which are there.
func (h *hybridReader) unpack(to []int32) {
	switch h.width {
	case 8:
		for i, v := range h.bits[h.at : h.at+len(to)] {
			to[i] = int32(v)
		}
	case 16:
		from := h.bits[2*h.at:]
		for i := range to {
			to[i] = int32(from[2*i]) | int32(from[2*i+1])<<8
		}
	case 1:
		for i := range to {
			at := h.at + i
			to[i] = int32(h.bits[at>>3] >> (at & 7) & 1)
		}
	default:
		unpackBits(to, h.bits, h.at, h.width)
	}
	h.at += len(to)
}

// unpackBits unpacks values of any width to 32 bits, from value number at on.
func unpackBits(to []int32, bits []byte, at, width int) {
	mask := uint64(1)<<width - 1
	for i := range to {
		bit := (at + i) * width
		first := bit >> 3
		var word uint64
		if first+8 <= len(bits) {
			word = binary.LittleEndian.Uint64(bits[first:])
		} else {
			for k, v := range bits[first:] {
				word |= uint64(v) << (8 * k)
			}
		}
		to[i] = int32(word >> (bit & 7) & mask)
	}
}
