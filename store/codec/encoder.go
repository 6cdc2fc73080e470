package codec

// Hot path: 0 allocations per call once dst has grown.

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Encoder compresses with one codec. It belongs to one goroutine.
type Encoder struct {
	id   ID
	lz4  lz4.Compressor
	zstd *zstd.Encoder
}

// NewEncoder returns an encoder, or ErrUnknown.
func NewEncoder(id ID) (*Encoder, error) {
	if !id.Known() {
		return nil, fmt.Errorf("encode %v: %w", id, ErrUnknown)
	}
	e := &Encoder{id: id}
	if id != Zstd {
		return e, nil
	}
	var err error
	// Single segment, or else frames below 256 bytes would lack their content size.
	e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithZeroFrames(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("start zstd encoder: %w", err)
	}
	return e, nil
}

// Append appends src, compressed into one whole frame, to dst. dst must not overlap src.
func (e *Encoder) Append(dst, src []byte) ([]byte, error) {
	switch e.id {
	case LZ4:
		return appendLZ4(&e.lz4, dst, src)
	case Zstd:
		return e.zstd.EncodeAll(src, dst), nil
	}
	return append(dst, src...), nil
}

// Bound returns how many bytes n source bytes become at most.
func (id ID) Bound(n int) int {
	switch id {
	case LZ4:
		return lz4FrameOverhead + n + 4*(n/lz4MaxBlock+1)
	case Zstd:
		return n + n>>8 + 64
	}
	return n
}
