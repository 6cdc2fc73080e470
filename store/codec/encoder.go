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

	shuffled []byte
}

// NewEncoder returns an encoder, or ErrUnknown.
func NewEncoder(id ID) (*Encoder, error) {
	if !id.Known() {
		return nil, fmt.Errorf("encode %v: %w", id, ErrUnknown)
	}
	e := &Encoder{id: id}
	switch id {
	case Q, QFSE:
		return e, e.SetBound(Bound{})
	case Zstd, ZstdShuffle:
	default:
		return e, nil
	}
	var err error
	// Single segment, or else frames below 256 bytes would lack their content size.
	e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)),
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithZeroFrames(true),
		zstd.WithLowerEncoderMem(true),
		// activations have no repetitions, but some bytes are more frequent than others
		zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		return nil, fmt.Errorf("start zstd encoder: %w", err)
	}
	return e, nil
}

// ID is the codec.
func (e *Encoder) ID() ID { return e.id }

// SetBound sets what the codecs Q and QFSE promise; before, it is the zero value's.
func (e *Encoder) SetBound(b Bound) error {
	if err := b.Check(); err != nil {
		return err
	}
	e.q = &quantizer{bound: b, entropy: e.id == QFSE}
	return nil
}

// AppendRows appends src, rows of n values of type F32, packed with Q or QFSE, and returns the error that was made.
// dst must not overlap src.
func (e *Encoder) AppendRows(dst, src []byte, n int) ([]byte, Achieved, error) {
	if e.q == nil {
		return dst, Achieved{}, fmt.Errorf("quantise with %v: %w", e.id, ErrUnknown)
	}
	dst, err := e.q.append(dst, src, n)
	return dst, e.q.achieved, err
}

// Append appends src, compressed into one whole frame, to dst. dst must not overlap src.
func (e *Encoder) Append(dst, src []byte) ([]byte, error) { return e.AppendElements(dst, src, 1) }

// AppendElements is Append for elements of so many bytes, 1 to 8, which ZstdShuffle makes use of.
func (e *Encoder) AppendElements(dst, src []byte, width int) ([]byte, error) {
	switch e.id {
	case LZ4:
		return appendLZ4(&e.lz4, dst, src)
	case Zstd:
		return e.zstd.EncodeAll(src, dst), nil
	case ZstdShuffle:
		return e.appendShuffledZstd(dst, src, width), nil
	case Q, QFSE:
		return dst, fmt.Errorf("encode with %v: %w: only rows of f32, with AppendRows", e.id, ErrUnknown)
	}
	return append(dst, src...), nil
}

// Scratch returns how many bytes an encoder of the codec holds at most while it packs n source bytes, beside what
// it appends and what the libraries have for themselves.
func (id ID) Scratch(n int) int {
	switch id {
	case ZstdShuffle:
		return n
	case Q:
		return 2 * n // a row as multiples, and without its exceptions
	case QFSE:
		return 2*n + boundQ(n) + n/4 // and the rows and their symbols until both are known
	}
	return 0
}

// Trim gives up buffers of more bytes than that.
func (e *Encoder) Trim(keep int) {
	if cap(e.shuffled) > keep {
		e.shuffled = nil
	}
	if z := e.q; z != nil && 4*cap(z.q)+cap(z.clean)+cap(z.body)+cap(z.symbols) > keep {
		z.q, z.clean, z.body, z.symbols = nil, nil, nil, nil
	}
}

// Bound returns how many bytes n source bytes become at most.
func (id ID) Bound(n int) int {
	switch id {
	case LZ4:
		return lz4FrameOverhead + n + 4*(n/lz4MaxBlock+1)
	case Zstd:
		return n + n>>8 + 64
	case ZstdShuffle:
		return 1 + n + n>>8 + maxWidth*(4+64)
	case Q, QFSE:
		return boundQ(n)
	}
	return n
}
