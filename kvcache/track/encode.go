package track

import (
	"encoding/binary"
	"math"
)

// medium is where vLLM says that blocks are which attention reads.
const medium = "GPU"

// encode appends a batch of events in msgpack: [seconds since 1970, [event …], data-parallel rank]. Events are maps,
// as those of current vLLM, or arrays, as they were before June 2026.
func encode(b []byte, seconds float64, events []event, size int, asMap bool) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 0x93, 0xcb), math.Float64bits(seconds))
	b = packHead(b, 0x90, 0xdc, len(events))
	for i := range events {
		e := &events[i]
		p := packer{b, asMap}
		switch {
		case len(e.stored) > 0:
			p.begin("BlockStored", 7)
			p.key("block_hashes").hashes(e.stored)
			if p.key("parent_block_hash"); e.parent == nil {
				p.null()
			} else {
				p.uint(*e.parent)
			}
			p.key("token_ids")
			p.b = packHead(p.b, 0x90, 0xdc, len(e.tokens))
			for _, token := range e.tokens {
				p.uint(uint64(token))
			}
			p.key("block_size").uint(uint64(size))
			p.key("lora_id").null()
			p.key("medium").text(medium)
			p.key("lora_name").null()
		case len(e.removed) > 0:
			p.begin("BlockRemoved", 2)
			p.key("block_hashes").hashes(e.removed)
			p.key("medium").text(medium)
		default:
			p.begin("AllBlocksCleared", 0)
		}
		b = p.b
	}
	return append(b, 0) // the rank
}

// packer appends an event as msgspec does a tagged struct: a map with the tag as "type", or an array that begins with
// the tag.
type packer struct {
	b     []byte
	asMap bool
}

func (p *packer) begin(tag string, fields int) {
	if p.asMap {
		p.b = packHead(p.b, 0x80, 0xde, fields+1)
		p.text("type")
	} else {
		p.b = packHead(p.b, 0x90, 0xdc, fields+1)
	}
	p.text(tag)
}

// key begins a field.
func (p *packer) key(name string) *packer {
	if p.asMap {
		p.text(name)
	}
	return p
}

func (p *packer) null() { p.b = append(p.b, 0xc0) }

// text appends one of fewer than 32 bytes.
func (p *packer) text(s string) { p.b = append(append(p.b, 0xa0|byte(len(s))), s...) }

func (p *packer) hashes(list []uint64) {
	p.b = packHead(p.b, 0x90, 0xdc, len(list))
	for _, hash := range list {
		p.uint(hash)
	}
}

func (p *packer) uint(n uint64) {
	switch {
	case n < 0x80:
		p.b = append(p.b, byte(n))
	case n <= math.MaxUint8:
		p.b = append(p.b, 0xcc, byte(n))
	case n <= math.MaxUint16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xcd), uint16(n))
	case n <= math.MaxUint32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, 0xce), uint32(n))
	default:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcf), n)
	}
}

// packHead appends the head of an array or map of n elements: in short, fix | n; else the code for 16 bits of n, or the
// next one for 32.
func packHead(b []byte, fix, code byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, fix|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, code), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, code+1), uint32(n))
}
