package table

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// press compresses pages one after the other.
type press struct {
	raw, packed, other []byte
}

// pack packs a page. Of numbers that lie a few bytes apart, as those of a dictionary often do, the quicker encoder
// often finds more: of a dictionary the shorter outcome of both is taken.
func (p *press) pack(kind int) {
	e := encoders.Get().(*zstd.Encoder)
	p.packed = e.EncodeAll(p.raw, p.packed[:0])
	encoders.Put(e)
	if kind != pageDict {
		return
	}
	e = quick.Get().(*zstd.Encoder)
	p.other = e.EncodeAll(p.raw, p.other[:0])
	quick.Put(e)
	if len(p.other) < len(p.packed) {
		p.packed, p.other = p.other, p.packed
	}
}

// page appends a page of bytes to out, with its head, and returns how many bytes that is before compression too.
func (p *press) page(out []byte, head pageHead) ([]byte, int64) {
	p.pack(head.kind)
	head.raw, head.packed, head.crc = len(p.raw), len(p.packed), crc(p.packed)
	before := len(out)
	out = head.append(out)
	raw := int64(len(out) - before + len(p.raw))
	return append(out, p.packed...), raw
}

// level appends levels after their length.
func (p *press) level(h *hybrid) {
	b := h.finish()
	p.raw = binary.LittleEndian.AppendUint32(p.raw, uint32(len(b)))
	p.raw = append(p.raw, b...)
}

// endPage packs the page, if there are rows in it.
func (k *chunk) endPage() {
	if k.pageLevels == 0 {
		return
	}
	p := presses.Get().(*press)
	defer presses.Put(p)
	p.raw = p.raw[:0]
	if k.isList() {
		p.level(&k.rep)
	}
	if k.defWidth() > 0 {
		p.level(&k.def)
	}
	head := pageHead{kind: pageData, values: k.pageLevels}
	switch k.mode {
	case byCode:
		if k.entries() == 0 { // all rows are null, and need no dictionary
			break
		}
		head.encoding = encodeDict
		p.raw = append(p.raw, byte(k.codes.width))
		p.raw = append(p.raw, k.codes.finish()...)
	case byDelta:
		head.encoding = encodeDelta
		p.raw = k.delta.finish(p.raw)
	case byteStream:
		head.encoding = encodeSplit
		p.raw = split(p.raw, k.plain)
	default:
		head.encoding = encodePlain
		p.raw = append(p.raw, k.plain...)
	}
	var raw int64
	k.out, raw = p.page(k.out, head)
	k.raw += raw
	k.levels += int64(k.pageLevels)
	k.modes |= 1 << head.encoding
	k.beginPage()
}

// split appends the first bytes of all floats, then the second ones, and so on.
func split(to, from []byte) []byte {
	n := len(from) / 4
	at := len(to)
	to = slices.Grow(to, len(from))[:at+len(from)]
	for b := range 4 {
		row := to[at+b*n : at+(b+1)*n]
		for i := range row {
			row[i] = from[4*i+b]
		}
	}
	return to
}

// finish ends the last page. It returns what the footer says of the column, as if it began at a place of the file,
// and the dictionary's page, which stands before the others.
func (k *chunk) finish(at int64) (chunkMeta, []byte) {
	if k.mode == byCode && len(k.out) == 0 && len(k.ints.values) > 1 { // one page: its numbers can be others yet, and what is in order packs closer
		k.codes.renumber(k.ints.sort(k.unsigned()))
	}
	k.endPage()
	m := chunkMeta{physical: k.physical(), path: []string{k.column.Name}, codec: codecZstd, values: k.levels,
		raw: k.raw, data: at}
	if k.isList() {
		m.path = append(m.path, "list", "element")
	}
	var dictionary []byte
	if k.modes&(1<<encodeDict) != 0 {
		var raw int64
		dictionary, raw = k.dictionary()
		m.dict, m.data, m.raw = at, at+int64(len(dictionary)), m.raw+raw
		k.modes |= 1 << encodePlain
	}
	m.packed = int64(len(dictionary) + len(k.out))
	for encoding := range 10 {
		if k.modes&(1<<encoding) != 0 || encoding == encodeRuns && k.defWidth() > 0 {
			m.encodings = append(m.encodings, encoding)
		}
	}
	m.stats = k.statistics()
	return m, dictionary
}

func (k *chunk) physical() int {
	switch k.column.Kind {
	case Bool:
		return physicalBool
	case Text:
		return physicalBytes
	case Float32List:
		return physicalFloat
	case Float64:
		return physicalDouble
	}
	if k.narrow() {
		return physicalInt32
	}
	return physicalInt64
}

// dictionary is the dictionary's page.
func (k *chunk) dictionary() ([]byte, int64) {
	p := presses.Get().(*press)
	defer presses.Put(p)
	p.raw = k.appendInts(p.raw[:0], k.ints.values)
	for _, v := range k.texts.list {
		p.raw = binary.LittleEndian.AppendUint32(p.raw, uint32(len(v)))
		p.raw = append(p.raw, v...)
	}
	return p.page(nil, pageHead{kind: pageDict, values: k.entries(), encoding: encodePlain})
}

// maxBound is the longest text in bytes that statistics hold.
const maxBound = 256

// statistics let a reader skip the row group. Lists, booleans and floats have none.
func (k *chunk) statistics() statistics {
	s := statistics{nulls: k.nulls}
	switch k.column.Kind {
	case Int32List, Float32List:
		return statistics{nulls: -1}
	case Bool, Float64:
	case Text:
		for _, v := range k.texts.list {
			if !k.some {
				k.low, k.high, k.some = v, v, true
			}
			k.low, k.high = min(k.low, v), max(k.high, v)
		}
		if k.some && len(k.low) <= maxBound && len(k.high) <= maxBound {
			s.min, s.max = []byte(k.low), []byte(k.high)
		}
	default:
		k.bounds.add(k.ints.values, k.unsigned())
		if k.bounds.some {
			s.min, s.max = k.appendInts(nil, []int64{k.bounds.low}), k.appendInts(nil, []int64{k.bounds.high})
		}
	}
	return s
}

// lists appends a batch's lists: a list begins with repetition 0, and its elements are one level deeper than itself.
func (k *chunk) lists(v *values) {
	defined := uint32(0)
	if k.column.Null {
		defined = 1
	}
	begin := 0
	for row, end := range v.ends {
		switch {
		case !v.valid[row]:
			k.level(0, 1)
			k.nulls++
		case begin == end:
			k.level(defined, 1)
		default:
			k.level(defined+1, end-begin)
			k.elements(v, begin, end)
		}
		begin = end
		k.rows++
		k.full()
	}
}

// level appends the levels of n elements, or of a list that has none.
func (k *chunk) level(def uint32, n int) {
	k.rep.put(0)
	k.rep.repeat(1, n-1)
	k.def.repeat(def, n)
	k.pageLevels += n
}

func (k *chunk) elements(v *values, begin, end int) {
	if k.column.Kind == Int32List {
		k.plain = k.appendInts(k.plain, v.ints[begin:end])
		return
	}
	k.plain = slices.Grow(k.plain, 4*(end-begin))
	for _, x := range v.floats[begin:end] {
		k.plain = binary.LittleEndian.AppendUint32(k.plain, math.Float32bits(x))
	}
}
