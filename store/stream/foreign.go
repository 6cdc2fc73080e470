package stream

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/codec"
)

// OpenForeign opens a stream without its index, as STRAP-LLM writes it. Packets have a name, an offset and sizes; for the rest
// see Assumed. A torn last packet is left out and told by Damage.
func OpenForeign(path string) (*Reader, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	r, err := NewForeign(f, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.file = f
	return r, nil
}

// NewForeign is OpenForeign for a stream of that size.
func NewForeign(stream io.ReaderAt, size int64) (*Reader, error) {
	r := &Reader{stream: stream, size: size}
	var magics [3]int // by codec
	for at := int64(0); at < size; {
		p, magic, err := foreignPacket(stream, size, at)
		if err != nil {
			return nil, fmt.Errorf("read packet header at byte %d: %w", at, err)
		}
		if p.Offset < 0 || at == 0 && !likelyName(p.Name) {
			r.damage = append(r.damage, fmt.Errorf("stream: %w: the last %d bytes are no whole packet, or this is no stream", ErrTruncated, size-at))
			break
		}
		magics[magic]++
		r.foreign = append(r.foreign, p)
		at += packetHeader + int64(len(p.Name)) + p.Stored
	}
	id := codec.None
	for _, candidate := range []codec.ID{codec.LZ4, codec.Zstd} {
		if len(r.foreign) > 0 && magics[candidate] == len(r.foreign) {
			id = candidate
		}
	}
	r.assumed = fmt.Sprintf("no index: element type f16 as STRAP-LLM stores it, codec %v by the payloads' first bytes; shape, layer, tokens, time and checksums are unknown", id)
	return r, r.size16(id)
}

// likelyName tells a packet's name from the bytes of another kind of file that happen to stand there.
func likelyName(name string) bool { return utf8.ValidString(name) && strings.IndexByte(name, 0) < 0 }

// foreignPacket reads the packet's head; Offset is -1 if the stream ends before the packet does.
func foreignPacket(stream io.ReaderAt, size, at int64) (p Packet, magic codec.ID, err error) {
	p.Offset = -1
	var head [packetHeader]byte
	if size-at < packetHeader {
		return p, codec.None, nil
	}
	if err := readAt(stream, head[:], at); err != nil {
		return p, codec.None, err
	}
	nameLen, stored := int64(binary.BigEndian.Uint16(head[:])), int64(binary.BigEndian.Uint32(head[2:]))
	if size-at-packetHeader < nameLen+stored {
		return p, codec.None, nil
	}
	body := make([]byte, nameLen+min(stored, 4))
	if err := readAt(stream, body, at+packetHeader); err != nil {
		return p, codec.None, err
	}
	p = Packet{
		Offset: at, Stored: stored, DType: codec.F16, Name: string(body[:nameLen]), Node: string(body[:nameLen]), Occurrence: 1,
		Layer: ggmlhooks.NoLayer, SrcType: -1, TokenFirst: -1, NodeIndex: -1,
	}
	if stored >= 4 {
		magic = codec.Detect(body[nameLen:])
	}
	return p, magic, nil
}

// size16 fills in codec, sizes and shape.
func (r *Reader) size16(id codec.ID) error {
	s := r.borrow()
	defer r.scratch.Put(s)
	for i := range r.foreign {
		p := &r.foreign[i]
		p.Codec, p.RawBytes = id, p.Stored
		if id != codec.None {
			raw, err := r.contentSize(p, s)
			if err != nil {
				r.damage = append(r.damage, r.at(p, err))
			}
			p.RawBytes = raw
		}
		p.SrcBytes = p.RawBytes
		p.NE = [4]int64{p.RawBytes / 2, 1, 1, 1}
	}
	return nil
}

// maxStored is the most bytes that the payload of a packet may take: what cannot be packed grows by less than a part in 64.
const maxStored = codec.MaxContent + codec.MaxContent/64

func tooLarge(size int64) error {
	return fmt.Errorf("%w: a packet of %d bytes: at most %d can be read: record it again, larger tensors are cut into packets",
		ErrCorrupt, size, int64(codec.MaxContent))
}

// contentSize takes a payload's size from its frame header, or, where that does not state it, from decoding it.
func (r *Reader) contentSize(p *Packet, s *scratch) (int64, error) {
	var head [32]byte
	n := min(p.Stored, int64(len(head)))
	if err := readAt(r.stream, head[:n], p.Offset+packetHeader+int64(len(p.Name))); err != nil {
		return 0, err
	}
	if size, ok := codec.Size(head[:n], p.Codec); ok {
		if size > codec.MaxContent {
			return 0, tooLarge(size)
		}
		return size, nil
	}
	payload, err := r.payload(p, s)
	if err != nil {
		return 0, err
	}
	s.raw, err = s.decoder.Append(s.raw[:0], payload, p.Codec, codec.AnySize)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return int64(len(s.raw)), nil
}
