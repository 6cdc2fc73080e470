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
	q    *quantizer
}

// NewEncoder returns an encoder, or ErrUnknown.
func NewEncoder(id ID) (*Encoder, error) {
	if !id.Known() {
		return nil, fmt.Errorf("encode %v: %w", id, ErrUnknown)
	}
	e := &Encoder{id: id}
	switch id {
	case Q, QHuff:
		return e, e.SetBound(Bound{})
	case Zstd:
	default:
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

// ID is the codec.
func (e *Encoder) ID() ID { return e.id }

// SetBound sets what the codecs Q and QHuff promise; before, it is the zero value's.
func (e *Encoder) SetBound(b Bound) error {
	if err := b.Check(); err != nil {
		return err
	}
	e.q = &quantizer{bound: b, entropy: e.id == QHuff}
	return nil
}

// AppendRows appends src, rows of n values of type F32, packed with Q or QHuff, and tells the error that was made. dst must not
// overlap src.
func (e *Encoder) AppendRows(dst, src []byte, n int) ([]byte, Achieved, error) {
	if e.q == nil {
		return dst, Achieved{}, fmt.Errorf("quantise with %v: %w", e.id, ErrUnknown)
	}
	dst, err := e.q.append(dst, src, n)
	return dst, e.q.achieved, err
}

// Append appends src, compressed into one whole frame, to dst. dst must not overlap src.
func (e *Encoder) Append(dst, src []byte) ([]byte, error) {
	switch e.id {
	case LZ4:
		return appendLZ4(&e.lz4, dst, src)
	case Zstd:
		return e.zstd.EncodeAll(src, dst), nil
	case Q, QHuff:
		return dst, fmt.Errorf("encode with %v: %w: only rows of f32, with AppendRows", e.id, ErrUnknown)
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
	case Q, QHuff:
		return boundQ(n)
	}
	return n
}
