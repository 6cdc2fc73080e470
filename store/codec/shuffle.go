package codec

// Hot path: one pass over the source, 0 allocations once dst has grown; several times as fast as the compression
// after it.

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A payload of codec ZstdShuffle is the width of an element, one byte, and that many Zstandard frames, each after
// its size in four bytes: the first byte of every element, the second of every element and so on; what is not a whole
// element is in the last frame. Frames of their own, because the bytes of one frame share a code: the lower bytes,
// which are noise, would spoil the upper ones'.

// appendShuffled appends the bytes of src, whose elements are width bytes wide, sorted by their place in the element.
func appendShuffled(dst, src []byte, width int) []byte {
	n, at := len(src)/width, len(dst)
	dst = slices.Grow(dst, len(src))[:at+len(src)]
	out := dst[at:]
	done := 0
	if width == 2 {
		done = split16(out[:n], out[n:2*n], src)
	}
	for place := range width {
		lane := out[place*n : (place+1)*n]
		for i := done; i < len(lane); i++ {
			lane[i] = src[i*width+place]
		}
	}
	copy(out[n*width:], src[n*width:])
	return dst
}

// appendUnshuffled is the inverse of appendShuffled.
func appendUnshuffled(dst, src []byte, width int) []byte {
	n, at := len(src)/width, len(dst)
	dst = slices.Grow(dst, len(src))[:at+len(src)]
	out := dst[at:]
	done := 0
	if width == 2 {
		done = join16(out, src[:n], src[n:2*n])
	}
	for place := range width {
		lane := src[place*n : (place+1)*n]
		for i := done; i < len(lane); i++ {
			out[i*width+place] = lane[i]
		}
	}
	copy(out[n*width:], src[n*width:])
	return dst
}

// split16 takes whole groups of eight elements of two bytes apart and returns the number of elements.
func split16(low, high, src []byte) int {
	n := len(low) &^ 7
	for i := 0; i < n; i += 8 {
		a, b := binary.LittleEndian.Uint64(src[2*i:]), binary.LittleEndian.Uint64(src[2*i+8:])
		binary.LittleEndian.PutUint64(low[i:], squeeze(a)|squeeze(b)<<32)
		binary.LittleEndian.PutUint64(high[i:], squeeze(a>>8)|squeeze(b>>8)<<32)
	}
	return n
}

// join16 is the inverse of split16.
func join16(dst, low, high []byte) int {
	n := len(low) &^ 7
	for i := 0; i < n; i += 8 {
		l, h := binary.LittleEndian.Uint64(low[i:]), binary.LittleEndian.Uint64(high[i:])
		binary.LittleEndian.PutUint64(dst[2*i:], spread(l)|spread(h)<<8)
		binary.LittleEndian.PutUint64(dst[2*i+8:], spread(l>>32)|spread(h>>32)<<8)
	}
	return n
}

// squeeze moves the bytes 0, 2, 4 and 6 together.
func squeeze(x uint64) uint64 {
	x &= 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return (x | x>>16) & 0xffffffff
}

// spread moves the bytes 0 to 3 apart, to 0, 2, 4 and 6.
func spread(x uint64) uint64 {
	x &= 0xffffffff
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}

// appendShuffledZstd appends a payload of ZstdShuffle.
func (e *Encoder) appendShuffledZstd(dst, src []byte, width int) []byte {
	e.shuffled = appendShuffled(e.shuffled[:0], src, width)
	dst = append(dst, byte(width))
	n := len(src) / width
	for place := range width {
		lane := e.shuffled[place*n : (place+1)*n]
		if place == width-1 {
			lane = e.shuffled[place*n:]
		}
		head := len(dst)
		dst = e.zstd.EncodeAll(lane, append(dst, 0, 0, 0, 0))
		binary.LittleEndian.PutUint32(dst[head:], uint32(len(dst)-head-4))
	}
	return dst
}

// decodeShuffledZstd appends the content of a payload of ZstdShuffle.
func (d *Decoder) decodeShuffledZstd(dst, src []byte, limit int) ([]byte, error) {
	size, ok := shuffledSize(src)
	if !ok || size > int64(limit) {
		return dst, fmt.Errorf("shuffled zstd frames: %w: not as many as bytes of an element, or more than %d bytes",
			ErrCorrupt, limit)
	}
	width := int(src[0])
	n := int(size) / width
	d.shuffled = d.shuffled[:0]
	for rest := src[1:]; len(rest) > 0; {
		frame := rest[4 : 4+binary.LittleEndian.Uint32(rest)]
		rest = rest[4+len(frame):]
		want := n
		if len(rest) == 0 {
			want = int(size) - len(d.shuffled)
		}
		before := len(d.shuffled)
		var err error
		if d.shuffled, err = d.decodeZstd(d.shuffled, frame, want); err != nil {
			return dst, err
		}
		if len(d.shuffled)-before != want {
			return dst, fmt.Errorf("shuffled zstd frames: %w: one is shorter than the others", ErrCorrupt)
		}
	}
	return appendUnshuffled(dst, d.shuffled, width), nil
}

// shuffledSize is the content size that a payload of ZstdShuffle states; false where it is none.
func shuffledSize(src []byte) (size int64, ok bool) {
	if len(src) == 0 || src[0] == 0 || src[0] > maxWidth {
		return 0, false
	}
	rest := src[1:]
	for range src[0] {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return 0, false
		}
		frame := rest[4 : 4+binary.LittleEndian.Uint32(rest)]
		rest = rest[4+len(frame):]
		n, known := zstdSize(frame)
		if size += n; !known || n > math.MaxInt32 {
			return 0, false
		}
	}
	return size, len(rest) == 0
}

// maxWidth is the widest element type.
const maxWidth = 8
