package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format, https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md. The frame is written here
// rather than by the library's Writer, because a frame of known size needs no copy into blocks and no allocation.
const (
	lz4Magic         = 0x184d2204
	lz4FlagVersion   = 1 << 6
	lz4FlagVersions  = 3 << 6
	lz4FlagIndep     = 1 << 5
	lz4FlagBlockSum  = 1 << 4
	lz4FlagSize      = 1 << 3
	lz4FlagSum       = 1 << 2
	lz4FlagReserved  = 1 << 1
	lz4FlagDict      = 1 << 0
	lz4Stored        = 1 << 31 // of a block's size: not compressed
	lz4HeaderSize    = 4 + 2 + 8 + 1
	lz4MaxBlock      = 4 << 20
	lz4Window        = 64 << 10
	lz4MaxExpansion  = 255
	lz4FrameOverhead = lz4HeaderSize + 4
)

// appendLZ4 appends src as one frame with its content size, independent blocks and no checksum; the block size is the
// smallest of the format that takes src whole, at most 4 MiB.
func appendLZ4(c *lz4.Compressor, dst, src []byte) ([]byte, error) {
	block, blockCode := lz4.Block64Kb, byte(4)
	for ; int(block) < len(src) && int(block) < lz4MaxBlock; blockCode++ {
		block *= 4
	}
	start := len(dst)
	dst = slices.Grow(dst, lz4FrameOverhead+len(src)+4*(len(src)/int(block)+1))
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4FlagVersion|lz4FlagIndep|lz4FlagSize, blockCode<<4)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(src)))
	dst = append(dst, byte(xxh32Short(dst[start+4:])>>8))
	for chunk := range slices.Chunk(src, int(block)) {
		var err error
		if dst, err = appendLZ4Block(c, dst, chunk); err != nil {
			return dst[:start], err
		}
	}
	return binary.LittleEndian.AppendUint32(dst, 0), nil
}

// appendLZ4Block appends one block with its size; dst has room for it stored.
func appendLZ4Block(c *lz4.Compressor, dst, src []byte) ([]byte, error) {
	at := len(dst)
	body := dst[at+4 : at+4+len(src)]
	n, err := c.CompressBlock(src, body[:len(src)-1])
	if err != nil && !errors.Is(err, lz4.ErrInvalidSourceShortBuffer) {
		return dst, fmt.Errorf("compress lz4 block: %w", err)
	}
	size := uint32(n)
	if n == 0 || err != nil {
		n = copy(body, src)
		size = uint32(n) | lz4Stored
	}
	dst = binary.LittleEndian.AppendUint32(dst, size)
	return dst[:at+4+n], nil
}

// lz4Size returns the content size that a frame's header states.
func lz4Size(src []byte) (int64, bool) {
	if len(src) < lz4HeaderSize || binary.LittleEndian.Uint32(src) != lz4Magic || src[4]&lz4FlagSize == 0 {
		return 0, false
	}
	size := binary.LittleEndian.Uint64(src[6:])
	return int64(size), size <= math.MaxInt64
}

// decodeLZ4 appends the content of the frame src, at most limit bytes. Frames without checksums and dictionary, which
// is all that appendLZ4 and STRAP-LLM write, are decoded in place; every other goes through the library's Reader.
func decodeLZ4(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < lz4FrameOverhead-8 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return dst, fmt.Errorf("lz4 frame: %w: no frame header", ErrCorrupt)
	}
	flags := src[4]
	if flags&(lz4FlagBlockSum|lz4FlagSum|lz4FlagDict) != 0 {
		return readLZ4(dst, src, limit)
	}
	header := 4 + 2 + 1
	if flags&lz4FlagSize != 0 {
		header += 8
	}
	if flags&(lz4FlagVersions|lz4FlagReserved) != lz4FlagVersion || len(src) < header+4 || src[5]&0x8f != 0 ||
		src[5] < 4<<4 {
		return dst, fmt.Errorf("lz4 frame: %w: bad descriptor", ErrCorrupt)
	}
	if byte(xxh32Short(src[4:header-1])>>8) != src[header-1] {
		return dst, fmt.Errorf("lz4 frame: %w: header checksum", ErrCorrupt)
	}
	f := lz4Frame{linked: flags&lz4FlagIndep == 0, block: 1 << (8 + 2*(src[5]>>4)), limit: limit, start: len(dst)}
	return f.decode(dst, src[header:])
}

// lz4Frame is a frame being decoded.
type lz4Frame struct {
	linked bool // blocks refer to earlier ones
	block  int  // largest block
	limit  int  // most content bytes
	start  int  // of the content in dst
}

// decode appends the content of the blocks in src, up to the end mark, which must be its last bytes.
func (f lz4Frame) decode(dst, src []byte) ([]byte, error) {
	for len(src) >= 4 {
		size := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if size == 0 {
			if len(src) != 0 {
				return dst, fmt.Errorf("lz4 frame: %w: %d bytes behind the end mark", ErrCorrupt, len(src))
			}
			return dst, nil
		}
		n := int(size &^ lz4Stored)
		if n > len(src) || n > f.block {
			return dst, fmt.Errorf("lz4 frame: %w: block of %d bytes", ErrCorrupt, n)
		}
		var err error
		if dst, err = f.appendBlock(dst, src[:n], size&lz4Stored != 0); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, fmt.Errorf("lz4 frame: %w: no end mark", ErrCorrupt)
}

func (f lz4Frame) appendBlock(dst, src []byte, stored bool) ([]byte, error) {
	room := f.limit - (len(dst) - f.start)
	if stored {
		if len(src) > room {
			return dst, fmt.Errorf("lz4 frame: %w: more than %d bytes", ErrCorrupt, f.limit)
		}
		return append(dst, src...), nil
	}
	if room == 0 {
		// The library's decoder reads memory that is not there when it is given none to write to, and only a block
		// of no bytes could fit: a token without literals or match.
		if len(src) == 1 && src[0] == 0 {
			return dst, nil
		}
		return dst, fmt.Errorf("lz4 frame: %w: more than %d bytes", ErrCorrupt, f.limit)
	}
	at := len(dst)
	dst = slices.Grow(dst, min(room, f.block, len(src)*lz4MaxExpansion))
	out := dst[at : at+min(room, f.block, cap(dst)-at)]
	var dict []byte
	if f.linked {
		dict = dst[max(f.start, at-lz4Window):at]
	}
	n, err := lz4.UncompressBlockWithDict(src, out, dict)
	if err != nil {
		return dst, fmt.Errorf("lz4 block: %w: %w", ErrCorrupt, err)
	}
	return dst[:at+n], nil
}

// readLZ4 is decodeLZ4 for every legal frame.
func readLZ4(dst, src []byte, limit int) ([]byte, error) {
	start := len(dst)
	var block [4096]byte
	for r := lz4.NewReader(bytes.NewReader(src)); ; {
		n, err := r.Read(block[:])
		dst = append(dst, block[:n]...)
		switch {
		case len(dst)-start > limit:
			return dst, fmt.Errorf("lz4 frame: %w: more than %d bytes", ErrCorrupt, limit)
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, fmt.Errorf("lz4 frame: %w: %w", ErrCorrupt, err)
		}
	}
}

// xxh32Short is XXH32 with seed 0 of less than 16 bytes,
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
func xxh32Short(b []byte) uint32 {
	const prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := prime5 + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*prime3, 17) * prime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>15) * prime2
	h = (h ^ h>>13) * prime3
	return h ^ h>>16
}
