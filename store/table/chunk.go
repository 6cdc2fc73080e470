// Hot path: 10 ns per value, nothing per value of a run, no allocation in steady state.

package table

// mode is how values are written now.
type mode uint8

const (
	byCode     mode = iota // numbers of a dictionary
	byDelta                // differences
	asBytes                // integers as they are; texts after their lengths
	asBits                 // truths
	byteStream             // floats, all first bytes, then all second ones …
)

const (
	maxDictionaryBytes = 1 << 20 // of a dictionary's texts; of values it has 65536 at most
	trial              = 1 << 12 // with so many values it is looked whether they repeat
)

// chunk writes one column of a row group, page by page.
type chunk struct {
	column     Column
	pageSize   int
	page       pageBuilder
	dictionary dictionary
	stats      columnStats
	again      int // row groups until a dictionary is tried again
	// Of the row group.
	out    []byte // pages
	raw    int64  // bytes of them before compression
	levels int64  // of them: rows, and further elements of lists
	modes  uint   // encodings that were used, as bits
}

func newChunk(c Column, pageSize int) *chunk {
	k := &chunk{column: c, pageSize: pageSize}
	k.page.kind, k.page.nullable, k.page.delta.small = c.Kind, c.Null, c.Kind.narrow()
	k.dictionary.text, k.stats.kind = c.Kind == Text, c.Kind
	k.begin()
	return k
}

// begin begins a row group.
func (k *chunk) begin() {
	k.out, k.raw, k.levels, k.modes = k.out[:0], 0, 0, 0
	k.stats.reset()
	k.dictionary.reset()
	k.page.codes.reset(8)
	k.page.mode = k.first()
	k.page.reset()
}

// first is the mode that a row group begins with.
func (k *chunk) first() mode {
	switch k.column.Kind {
	case Bool:
		return asBits
	case Int32List, Float64: // of which the bits are kept, as of an integer
		return asBytes
	case Float32List:
		return byteStream
	}
	integer := k.column.Kind != Text
	switch {
	case k.column.Encoding == Plain, k.column.Encoding == Delta && !integer:
		return asBytes
	case k.column.Encoding == Delta:
		return byDelta
	case k.column.Encoding == Auto && k.again > 0:
		if k.again--; integer {
			return byDelta
		}
		return asBytes
	}
	return byCode
}

// memory is about how much the row group takes until it is written.
func (k *chunk) memory() int64 {
	return int64(cap(k.out) + k.page.size() + k.dictionary.size())
}

// append appends a batch's values.
func (k *chunk) append(v *values) {
	if k.column.Kind.isList() {
		k.lists(v)
		return
	}
	if v.kind == Text {
		k.dictionary.texts.from(&v.words)
	}
	at := 0
	for _, s := range v.runs {
		switch s.how {
		case alike:
			k.repeat(s.value, s.n)
		case absent:
			k.null(s.n)
		case single:
			var valid []bool
			if v.null {
				valid = v.valid[at : at+s.n]
			}
			k.mixed(v.ints[at:at+s.n], valid)
			at += s.n
		}
	}
}

// mixed appends rows, those that are not valid as nulls.
func (k *chunk) mixed(v []int64, valid []bool) {
	for from := 0; from < len(v); {
		end := len(v)
		if valid != nil {
			is := valid[from]
			for end = from + 1; end < len(v) && valid[end] == is; end++ {
			}
			if !is {
				k.null(end - from)
				from = end
				continue
			}
		}
		for ; from < end; from += piece {
			k.put(v[from:min(from+piece, end)])
		}
		from = end
	}
}

// piece is how many values are appended before it is looked whether the page is full.
const piece = 1 << 13

// null appends n rows without a value.
func (k *chunk) null(n int) {
	k.page.null(n)
	k.stats.nulls += int64(n)
	k.full()
}

// firstPage is how large the first page of a column in a row group may become where rows are numbers of a
// dictionary: in one page these can be put in order.
const firstPage = 256 << 10

// full ends the page if it is full.
func (k *chunk) full() {
	size := k.pageSize
	if k.page.mode == byCode && len(k.out) == 0 {
		size = max(size, min(4*size, firstPage))
	}
	if k.page.size() >= size || k.page.levels >= 1<<30 {
		k.endPage()
	}
}

// put appends rows with values.
func (k *chunk) put(v []int64) {
	if k.page.mode == byCode {
		v = v[k.putCodes(v):]
	}
	if len(v) > 0 {
		if k.column.Kind == Text {
			list := k.dictionary.texts.of.list
			for _, x := range v {
				k.page.text(list[x])
				k.stats.text(list[x])
			}
		} else {
			k.page.ints(v)
			k.stats.ints(v)
		}
		k.page.present(len(v))
	}
	k.full()
}

// putCodes appends rows by code, and says how many: not all where the dictionary grew too large.
func (k *chunk) putCodes(v []int64) int {
	d, page := &k.dictionary, &k.page
	done := 0 // rows that have their levels
	last, code := v[0], d.code(v[0])
	for i, x := range v {
		if x != last || i == 0 {
			last, code = x, d.code(x)
			if code>>page.codes.width != 0 || code == trial && k.rarelyRepeats(i-done) ||
				d.texts.bytes > maxDictionaryBytes {
				page.present(i - done)
				done = i
				if !k.wider(code) {
					return done
				}
			}
		}
		page.codes.put(code)
	}
	page.present(len(v) - done)
	return len(v)
}

// rarelyRepeats reports whether values do not repeat, so that a dictionary is no use. There are more rows than levels.
func (k *chunk) rarelyRepeats(more int) bool {
	return k.column.Encoding == Auto &&
		k.levels+int64(k.page.levels+more)-k.stats.nulls < 3*int64(k.dictionary.len())
}

// wider makes codes wider, those of the page too, so that later rows share the dictionary; or begins a page without
// a dictionary, where wider codes do not help.
func (k *chunk) wider(code uint32) bool {
	if codes := &k.page.codes; codes.width == 8 && code>>8 != 0 && !(code == trial && k.rarelyRepeats(0)) &&
		k.dictionary.texts.bytes <= maxDictionaryBytes {
		codes.widen()
		return true
	}
	k.endPage()
	k.page.mode = byDelta // without the dictionary from here on
	if k.column.Kind == Text {
		k.page.mode = asBytes
	}
	k.again = 7
	return false
}

// repeat appends n rows of one value.
func (k *chunk) repeat(v int64, n int) {
	if k.page.mode == byCode {
		one := [1]int64{v}
		if k.put(one[:]); n == 1 {
			return
		}
		n--
	}
	switch k.page.mode {
	case byCode:
		k.page.codes.repeat(k.dictionary.code(v), n)
	case byDelta:
		k.stats.ints([]int64{v})
		k.page.delta.repeat(v, n)
	default:
		var all [256]int64
		for i := range all {
			all[i] = v
		}
		for ; n > 0; n -= len(all) {
			k.put(all[:min(n, len(all))])
		}
		return
	}
	k.page.present(n)
	k.full()
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
			k.page.list(0, 1)
			k.stats.nulls++
		case begin == end:
			k.page.list(defined, 1)
		default:
			k.page.list(defined+1, end-begin)
			if k.column.Kind == Int32List {
				k.page.ints(v.ints[begin:end])
			} else {
				k.page.floats(v.floats[begin:end])
			}
		}
		begin = end
		k.full()
	}
}

// endPage packs the page, if there are rows in it.
func (k *chunk) endPage() {
	if k.page.levels == 0 {
		return
	}
	p := presses.Get().(*press)
	defer presses.Put(p)
	p.raw = p.raw[:0]
	head := k.page.encode(p, k.dictionary.len() == 0)
	var raw int64
	k.out, raw = p.page(k.out, head)
	k.raw += raw
	k.levels += int64(k.page.levels)
	k.modes |= 1 << head.encoding
	k.page.reset()
}

// finish ends the last page. It returns the footer's entry of the column, whose first byte is at a place of the
// file, and the dictionary's page, which is before the others.
func (k *chunk) finish(at int64) (chunkMeta, []byte) {
	// In the only page, numbers can still change: a dictionary in order packs closer.
	if k.page.mode == byCode && len(k.out) == 0 && len(k.dictionary.ints.values) > 1 {
		k.page.codes.renumber(k.dictionary.ints.sort(k.column.Kind.unsigned()))
	}
	k.endPage()
	m := chunkMeta{physical: k.column.Kind.physical(), path: []string{k.column.Name}, codec: codecZstd,
		values: k.levels, raw: k.raw, data: at}
	if k.column.Kind.isList() {
		m.path = append(m.path, "list", "element")
	}
	var dictionary []byte
	if k.modes&(1<<encodeDict) != 0 {
		var raw int64
		dictionary, raw = k.dictionary.page(k.column.Kind.narrow())
		m.dict, m.data, m.raw = at, at+int64(len(dictionary)), m.raw+raw
		k.modes |= 1 << encodePlain
	}
	m.packed = int64(len(dictionary) + len(k.out))
	for encoding := range 10 {
		if k.modes&(1<<encoding) != 0 || encoding == encodeRuns && k.page.defWidth() > 0 {
			m.encodings = append(m.encodings, encoding)
		}
	}
	m.stats = k.stats.statistics(&k.dictionary)
	return m, dictionary
}
