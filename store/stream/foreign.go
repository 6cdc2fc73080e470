package stream

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// OpenForeign opens a stream without its index, as STRAP-LLM writes it. Packets have a name, an offset and sizes;
// for the rest see Info.Assumed. A torn last packet is left out, and is in Info.Damage.
func OpenForeign(path string) (*Reader, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	r, err := newForeign(f, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.parts[0].file = f
	return r, nil
}

// foreign is what a stream without an index says of its packets, and no more: there may be millions.
type foreign struct {
	codec  codec.ID
	chunks [][]foreignEntry // of foreignChunk entries each, the last one of less: growing copies nothing
	n      int
	names  []string
	ids    map[string]uint32 // places in names, so that a name is in memory once
}

const foreignChunk = 1 << 14

type foreignEntry struct {
	offset      int64
	raw, stored uint32
	name        uint32
}

const (
	mostForeignIDs     = 1 << 16 // in foreign.ids; a model has some thousand nodes
	mostForeignPackets = 1 << 22 // that are listed without an index
)

// add takes a packet in.
func (f *foreign) add(p *Packet) {
	name, ok := f.ids[p.Name]
	if !ok {
		name = uint32(len(f.names))
		f.names = append(f.names, p.Name)
		if len(f.ids) < mostForeignIDs {
			f.ids[p.Name] = name
		}
	}
	if f.n%foreignChunk == 0 {
		f.chunks = append(f.chunks, make([]foreignEntry, 0, foreignChunk))
	}
	last := &f.chunks[len(f.chunks)-1]
	*last = append(*last, foreignEntry{p.Offset, uint32(p.Stored), uint32(p.Stored), name})
	f.n++
}

func (f *foreign) entry(i int) *foreignEntry { return &f.chunks[i/foreignChunk][i%foreignChunk] }

// packet fills p with packet i.
func (f *foreign) packet(i int, p *Packet) {
	e := f.entry(i)
	raw := int64(e.raw)
	*p = barePacket(f.names[e.name], e.offset, int64(e.stored))
	p.Codec, p.SrcBytes, p.RawBytes, p.NE = f.codec, raw, raw, [4]int64{raw / 2, 1, 1, 1}
}

// barePacket is a packet of which nothing is known but what the stream says.
func barePacket(name string, offset, stored int64) Packet {
	return Packet{
		Offset: offset, Stored: stored, DType: codec.F16, Name: name, Node: name, Occurrence: 1,
		Layer: label.NoLayer, SrcType: -1, TokenFirst: -1, NodeIndex: -1,
	}
}

// readAhead reads a file from front to back in blocks, for a reader that asks for small pieces.
type readAhead struct {
	from  io.ReaderAt
	at    int64
	block []byte
}

// ReadAt is that of io.ReaderAt. Pieces that are larger than a block are read as they are.
func (r *readAhead) ReadAt(p []byte, at int64) (int, error) {
	const size = 4 << 10
	if len(p) > size {
		return r.from.ReadAt(p, at)
	}
	if at < r.at || at+int64(len(p)) > r.at+int64(len(r.block)) {
		if r.block == nil {
			r.block = make([]byte, size)
		}
		n, err := r.from.ReadAt(r.block[:size], at)
		if r.at, r.block = at, r.block[:n]; n < len(p) {
			return copy(p, r.block), err
		}
	}
	return copy(p, r.block[at-r.at:]), nil
}

// newForeign is OpenForeign for a stream of that size.
func newForeign(stream io.ReaderAt, size int64) (*Reader, error) {
	f := &foreign{ids: map[string]uint32{}}
	in := &part{payloads: payloads{in: stream, size: size}, foreign: f}
	r := &Reader{parts: []placed{{part: in}}}
	ahead := &readAhead{from: stream}
	var magics [3]int // by codec
	for at := int64(0); at < size; {
		p, magic, err := foreignPacket(ahead, size, at)
		if err != nil {
			return nil, fmt.Errorf("read packet header at byte %d: %w", at, err)
		}
		if p.Offset < 0 || at == 0 && !likelyName(p.Name) {
			r.info.Damage = append(r.info.Damage,
				fmt.Errorf("stream: %w: the last %d bytes are not a whole packet, or not a stream", ErrTruncated,
					size-at))
			break
		}
		if f.n == mostForeignPackets {
			return nil,
				fmt.Errorf("stream: more than %d packets and no index: make one with 'llamatap verify --repair'",
					mostForeignPackets)
		}
		magics[magic]++
		f.add(&p)
		at += packetHeader + int64(len(p.Name)) + p.Stored
	}
	for _, candidate := range []codec.ID{codec.LZ4, codec.Zstd} {
		if f.n > 0 && magics[candidate] == f.n {
			f.codec = candidate
		}
	}
	r.info.Assumed = fmt.Sprintf(
		"no index: element type f16 as STRAP-LLM stores it, codec %v by the payloads' first bytes; shape, layer, "+
			"tokens, time and checksums are unknown", f.codec)
	if f.codec != codec.None {
		r.info.Damage = append(r.info.Damage, in.sizes()...)
	}
	var p Packet
	for i := range f.n {
		f.packet(i, &p)
		r.info.Totals.addPacket(&p)
	}
	r.packets = f.n
	return r, nil
}

// sizes fills in the sizes of packets that are compressed. Damage comes back.
func (in *part) sizes() (damage []error) {
	s := in.borrow()
	defer in.scratch.Put(s)
	const reported = 100 // damaged packets, each by itself
	var p Packet
	damaged := 0
	for i := range in.foreign.n {
		in.foreign.packet(i, &p)
		raw, err := in.contentSize(&p, s)
		if err != nil {
			if damaged++; damaged <= reported {
				damage = append(damage, inPacket(&p, err))
			}
		}
		in.foreign.entry(i).raw = uint32(raw) // at most codec.MaxContent
	}
	if damaged > reported {
		damage = append(damage, fmt.Errorf("stream: %w: %d more packets are damaged", ErrCorrupt, damaged-reported))
	}
	return damage
}

// likelyName reports whether bytes are a packet's name, and not those of another kind of file.
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
	p = barePacket(string(body[:nameLen]), at, stored)
	if stored >= 4 {
		magic = codec.Detect(body[nameLen:])
	}
	return p, magic, nil
}
