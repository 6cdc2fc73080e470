package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// AnySize is a content size that is not known.
const AnySize = -1

// Decoder decompresses every codec. It belongs to one goroutine. The zero value is ready.
type Decoder struct {
	zstd *zstd.Decoder
	q    unquantizer

	shuffled []byte
}

// MaxContent is the most content in bytes that a packet may have, so that no file makes a reader take memory out of
// proportion. The tap cuts larger tensors into packets of that size.
const MaxContent = 64 << 20

// Append appends the content of src, which the codec packed, to dst. Unless rawSize is AnySize, a content of any
// other size is ErrCorrupt; no more memory than that size is taken for it, and none for a size that src cannot
// hold, or above MaxContent.
func (d *Decoder) Append(dst, src []byte, id ID, rawSize int) ([]byte, error) {
	if !id.Known() {
		return dst, fmt.Errorf("decode %v: %w", id, ErrUnknown)
	}
	limit := min(maxSize(id, len(src)), MaxContent)
	if rawSize > limit || rawSize < AnySize {
		return dst, fmt.Errorf("decode %v: %w: %d bytes hold at most %d, not %d", id, ErrCorrupt, len(src), limit,
			rawSize)
	}
	if rawSize != AnySize {
		limit = rawSize
		dst = slices.Grow(dst, rawSize)
	}
	start := len(dst)
	var err error
	switch id {
	case LZ4:
		dst, err = decodeLZ4(dst, src, limit)
	case Zstd:
		dst, err = d.decodeZstd(dst, src, limit)
	case ZstdShuffle:
		dst, err = d.decodeShuffledZstd(dst, src, limit)
	case Q, QFSE:
		if rawSize == AnySize {
			return dst, fmt.Errorf("decode %v: %w: its size must be known", id, ErrUnknown)
		}
		dst, err = d.q.append(dst, src, rawSize)
	default:
		dst = append(dst, src...)
	}
	if err == nil && rawSize != AnySize && len(dst)-start != rawSize {
		err = fmt.Errorf("decode %v: %w: %d bytes instead of %d", id, ErrCorrupt, len(dst)-start, rawSize)
	}
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

// Size returns the content size that packed bytes state; their first 32 bytes are enough, but for ZstdShuffle.
func Size(src []byte, id ID) (int64, bool) {
	switch id {
	case None:
		return int64(len(src)), true
	case LZ4:
		return lz4Size(src)
	case Zstd:
		return zstdSize(src)
	case ZstdShuffle:
		return shuffledSize(src)
	case Q, QFSE:
		return boundedSize(src)
	}
	return 0, false
}

// boundedSize takes the size of rows from their head.
func boundedSize(src []byte) (int64, bool) {
	const before = 1 + 1 + 3*4 // version, metric, bound, errors
	if len(src) < before {
		return 0, false
	}
	row, n := binary.Uvarint(src[before:])
	if n <= 0 {
		return 0, false
	}
	rows, m := binary.Uvarint(src[before+n:])
	if m <= 0 || row > 1<<24 || rows > math.MaxInt64>>27 {
		return 0, false
	}
	return int64(row * rows * 4), true
}

// maxSize is the largest content that n packed bytes can stand for.
func maxSize(id ID, n int) int {
	switch id {
	case LZ4:
		return min(n, math.MaxInt/lz4MaxExpansion) * lz4MaxExpansion
	case Zstd, ZstdShuffle:
		const expansion = 128 << 10 / 4 // a run-length block of 4 bytes stands for at most 128 KiB
		return min(n, math.MaxInt/expansion) * expansion
	case Q, QFSE:
		const longest = 1 << 24 // values of a row, which can all be the same
		return min(n, math.MaxInt/longest/4) * longest * 4
	}
	return n
}

func zstdSize(src []byte) (int64, bool) {
	var h zstd.Header
	if err := h.Decode(src); err != nil || !h.HasFCS || h.FrameContentSize > math.MaxInt64 {
		return 0, false
	}
	return int64(h.FrameContentSize), true
}

// decodeZstd appends the content of one frame that states its size.
func (d *Decoder) decodeZstd(dst, src []byte, limit int) ([]byte, error) {
	size, ok := zstdSize(src)
	if !ok || size > int64(limit) {
		return dst, fmt.Errorf("zstd frame: %w: no content size, or more than %d bytes", ErrCorrupt, limit)
	}
	if d.zstd == nil {
		var err error
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderLowmem(true))
		if err != nil {
			return dst, fmt.Errorf("start zstd decoder: %w", err)
		}
	}
	start := len(dst)
	dst = slices.Grow(dst, int(size))
	// Cap the slice, so that the content cannot be larger than the frame says.
	out, err := d.zstd.DecodeAll(src, dst[:start:start+int(size)])
	if err != nil {
		return dst, fmt.Errorf("zstd frame: %w: %w", ErrCorrupt, err)
	}
	if len(out)-start != int(size) {
		return dst, fmt.Errorf("zstd frame: %w: %d bytes instead of %d", ErrCorrupt, len(out)-start, size)
	}
	return dst[:len(out)], nil
}

// Detect guesses the codec of a payload from its first four bytes. A payload without compression may look like a frame.
func Detect(src []byte) ID {
	if len(src) >= 4 {
		switch binary.LittleEndian.Uint32(src) {
		case lz4Magic:
			return LZ4
		case 0xfd2fb528:
			return Zstd
		}
	}
	return None
}
