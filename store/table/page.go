package table

import (
	"encoding/binary"
	"math"
	"slices"
)

// pageBuilder is a page of a column that is being filled.
type pageBuilder struct {
	kind     Kind
	nullable bool
	mode     mode // the same from the page's first row to its last
	levels   int  // rows, and further elements of lists
	def, rep hybrid
	codes    hybrid
	delta    delta
	plain    []byte
	bits     int // truths in plain
}

// reset empties the page. Codes keep their width.
func (p *pageBuilder) reset() {
	p.def.reset(p.defWidth())
	p.rep.reset(1)
	p.codes.reset(p.codes.width)
	p.delta.reset()
	p.plain, p.levels, p.bits = p.plain[:0], 0, 0
}

// defWidth is the width in bits of a definition level; 0: every row has a value.
func (p *pageBuilder) defWidth() int {
	n := 0
	if p.nullable {
		n++
	}
	if p.kind.isList() {
		n++
	}
	return n
}

// size is about how many bytes the page has.
func (p *pageBuilder) size() int {
	return p.codes.size() + p.delta.size() + len(p.plain) + p.def.size() + p.rep.size()
}

// present appends the levels of n rows that have values.
func (p *pageBuilder) present(n int) {
	if p.nullable {
		p.def.repeat(1, n)
	}
	p.levels += n
}

// null appends n rows without a value.
func (p *pageBuilder) null(n int) {
	p.def.repeat(0, n)
	p.levels += n
}

// list appends the levels of n elements, or of a list that has none.
func (p *pageBuilder) list(def uint32, n int) {
	p.rep.put(0)
	p.rep.repeat(1, n-1)
	p.def.repeat(def, n)
	p.levels += n
}

// ints appends integers, truths and bits of numbers, as the mode says.
func (p *pageBuilder) ints(v []int64) {
	switch p.mode {
	case asBits:
		for _, x := range v {
			if p.bits&7 == 0 {
				p.plain = append(p.plain, 0)
			}
			if x != 0 {
				p.plain[len(p.plain)-1] |= 1 << (p.bits & 7)
			}
			p.bits++
		}
	case byDelta:
		p.delta.put(v)
	default:
		p.plain = appendInts(p.plain, v, p.kind.narrow())
	}
}

// text appends a text after its length.
func (p *pageBuilder) text(v string) {
	p.plain = binary.LittleEndian.AppendUint32(p.plain, uint32(len(v)))
	p.plain = append(p.plain, v...)
}

func (p *pageBuilder) floats(v []float32) {
	at := len(p.plain)
	p.plain = slices.Grow(p.plain, 4*len(v))[:at+4*len(v)]
	out := p.plain[at:]
	for i, x := range v {
		binary.LittleEndian.PutUint32(out[4*i:4*i+4], math.Float32bits(x))
	}
}

// encode appends the page to the press. In a page by codes without a dictionary, all rows are null.
func (p *pageBuilder) encode(to *press, noDictionary bool) pageHead {
	if p.kind.isList() {
		to.level(&p.rep)
	}
	if p.defWidth() > 0 {
		to.level(&p.def)
	}
	head := pageHead{kind: pageData, values: p.levels, encoding: encodePlain}
	switch p.mode {
	case byCode:
		if !noDictionary {
			head.encoding = encodeDict
			to.raw = append(to.raw, byte(p.codes.width))
			to.raw = append(to.raw, p.codes.finish()...)
		}
	case byDelta:
		head.encoding = encodeDelta
		to.raw = p.delta.finish(to.raw)
	case byteStream:
		head.encoding = encodeSplit
		to.floats, to.head = true, len(to.raw)
		to.raw = split(to.raw, p.plain)
	default:
		to.raw = append(to.raw, p.plain...)
	}
	return head
}

// split appends the first bytes of all floats, then the second ones, and so on.
func split(to, from []byte) []byte {
	n := len(from) / 4
	at := len(to)
	to = slices.Grow(to, len(from))[:at+len(from)]
	all := to[at:]
	first, second, third, fourth := all[:n], all[n:2*n], all[2*n:3*n], all[3*n:4*n]
	for i := range first {
		v := binary.LittleEndian.Uint32(from[4*i:])
		first[i], second[i], third[i], fourth[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	return to
}

// appendInts appends integers as they are, narrow ones in four bytes.
func appendInts(to []byte, v []int64, narrow bool) []byte {
	if narrow {
		to = slices.Grow(to, 4*len(v))
		for _, x := range v {
			to = binary.LittleEndian.AppendUint32(to, uint32(x))
		}
		return to
	}
	to = slices.Grow(to, 8*len(v))
	for _, x := range v {
		to = binary.LittleEndian.AppendUint64(to, uint64(x))
	}
	return to
}
