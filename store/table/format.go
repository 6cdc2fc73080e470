package table

// This is Parquet's file format as its specification (apache/parquet-format, parquet.thrift) has it, as far as
// tables of this package need it: what is written, and what is read of other programs' files.

// Physical types.
const (
	physicalBool   = 0
	physicalInt32  = 1
	physicalInt64  = 2
	physicalFloat  = 4
	physicalDouble = 5
	physicalBytes  = 6
	physicalNone   = -1 // of a group of columns
)

// Encodings.
const (
	encodePlain       = 0
	encodeOldDict     = 2 // as encodeDict, in old files
	encodeRuns        = 3
	encodeDelta       = 5
	encodeDeltaLength = 6
	encodeDeltaBytes  = 7
	encodeDict        = 8
	encodeSplit       = 9
)

// Codecs.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecZstd   = 6
	codecLZ4Raw = 7
)

// Kinds of pages.
const (
	pageData   = 0
	pageDict   = 2
	pageDataV2 = 3
)

// Repetitions of a column.
const (
	required = 0
	optional = 1
	repeated = 2
)

// Converted types: what a physical type stands for.
const (
	convertedNone   = -1
	convertedUTF8   = 0
	convertedList   = 3
	convertedUint32 = 13
	convertedUint64 = 14
	convertedInt32  = 17
	convertedInt64  = 18
)

// magic begins and ends a file.
const magic = "PAR1"

// fileMeta is a footer.
type fileMeta struct {
	schema []element
	rows   int64
	groups []groupMeta
	about  [][2]string
}

// element is a column, or a group of those that follow it.
type element struct {
	name       string
	physical   int
	repetition int
	children   int
	converted  int
	unsigned   bool // as its logical type says
	time       bool // nanoseconds since 1970
}

// groupMeta is a row group.
type groupMeta struct {
	chunks []chunkMeta
	rows   int64
}

// chunkMeta is a column of a row group.
type chunkMeta struct {
	physical  int
	encodings []int
	path      []string
	codec     int
	values    int64 // nulls too
	raw       int64 // bytes of its pages with their heads, before compression
	packed    int64 // and in the file
	data      int64 // where the first data page is
	dict      int64 // where the dictionary is; 0: there is none
	stats     statistics
}

// statistics are what a reader may pass a column by for.
type statistics struct {
	min, max []byte // nil: not reported
	nulls    int64  // -1: not reported
}

// pageHead is the header before a page.
type pageHead struct {
	kind        int
	raw, packed int
	crc         uint32
	hasCRC      bool
	values      int // levels, of a list
	encoding    int
	levels      int // encoding of definition levels
	// Of the newer form of pages, where levels are not compressed.
	repBytes, defBytes int
	plain              bool // nothing is compressed
}

// footer is a footer's bytes, with length and magic.
func (m *fileMeta) footer() []byte {
	w := &thriftWriter{}
	w.begin()
	w.i32(1, 2)
	w.list(2, thriftStruct, len(m.schema))
	for i := range m.schema {
		m.schema[i].write(w)
	}
	w.i64(3, m.rows)
	w.list(4, thriftStruct, len(m.groups))
	for i := range m.groups {
		m.groups[i].write(w, i)
	}
	w.list(5, thriftStruct, len(m.about))
	for _, pair := range m.about {
		w.begin()
		w.text(1, pair[0])
		w.text(2, pair[1])
		w.end()
	}
	w.text(6, "llamatap")
	leaves := 0
	for i := range m.schema {
		if m.schema[i].physical != physicalNone {
			leaves++
		}
	}
	w.list(7, thriftStruct, leaves)
	for range leaves { // values are ordered as their types say
		w.begin()
		w.empty(1)
		w.end()
	}
	w.end()
	n := uint32(len(w.b))
	return append(append(w.b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)), magic...)
}

func (e *element) write(w *thriftWriter) {
	w.begin()
	if e.physical != physicalNone {
		w.i32(1, e.physical)
	}
	if e.repetition >= 0 {
		w.i32(3, e.repetition)
	}
	w.text(4, e.name)
	if e.physical == physicalNone {
		w.i32(5, e.children)
	}
	if e.converted != convertedNone {
		w.i32(6, e.converted)
	}
	if e.converted != convertedNone || e.time {
		w.inner(10)
		e.logical(w)
		w.end()
	}
	w.end()
}

// logical says the same as the converted type, as newer readers want it.
func (e *element) logical(w *thriftWriter) {
	switch {
	case e.time:
		// Not "adjusted to UTC", although it is UTC: DuckDB cuts times that are to microseconds.
		w.inner(8)
		w.truth(1, false)
		w.inner(2)
		w.empty(3)
		w.end()
		w.end()
	case e.converted == convertedUTF8:
		w.empty(1)
	case e.converted == convertedList:
		w.empty(3)
	default:
		bits := byte(32)
		if e.physical == physicalInt64 {
			bits = 64
		}
		w.inner(10)
		w.field(1, thriftByte)
		w.b = append(w.b, bits)
		w.truth(2, !e.unsigned)
		w.end()
	}
}

func (g *groupMeta) write(w *thriftWriter, ordinal int) {
	w.begin()
	w.list(1, thriftStruct, len(g.chunks))
	var raw, packed int64
	for i := range g.chunks {
		c := &g.chunks[i]
		raw, packed = raw+c.raw, packed+c.packed
		w.begin()
		w.i64(2, c.begin())
		w.inner(3)
		c.write(w)
		w.end()
		w.end()
	}
	w.i64(2, raw)
	w.i64(3, g.rows)
	if len(g.chunks) > 0 {
		w.i64(5, g.chunks[0].begin())
	}
	w.i64(6, packed)
	if ordinal < 1<<15 {
		w.field(7, thriftI16)
		w.zigzag(int64(ordinal))
	}
	w.end()
}

// begin is where the chunk begins.
func (c *chunkMeta) begin() int64 {
	if c.dict > 0 {
		return min(c.dict, c.data)
	}
	return c.data
}

func (c *chunkMeta) write(w *thriftWriter) {
	w.i32(1, c.physical)
	w.list(2, thriftI32, len(c.encodings))
	for _, e := range c.encodings {
		w.zigzag(int64(e))
	}
	w.list(3, thriftBinary, len(c.path))
	for _, name := range c.path {
		w.string(name)
	}
	w.i32(4, c.codec)
	w.i64(5, c.values)
	w.i64(6, c.raw)
	w.i64(7, c.packed)
	w.i64(9, c.data)
	if c.dict > 0 {
		w.i64(11, c.dict)
	}
	w.inner(12)
	if c.stats.nulls >= 0 {
		w.i64(3, c.stats.nulls)
	}
	if c.stats.max != nil {
		w.text(5, string(c.stats.max))
		w.text(6, string(c.stats.min))
	}
	w.end()
}

// append writes the head of a page.
func (h *pageHead) append(to []byte) []byte {
	w := thriftWriter{b: to, last: make([]int16, 0, 2)}
	w.begin()
	w.i32(1, h.kind)
	w.i32(2, h.raw)
	w.i32(3, h.packed)
	w.i32(4, int(int32(h.crc)))
	if h.kind == pageDict {
		w.inner(7)
		w.i32(1, h.values)
		w.i32(2, h.encoding)
	} else {
		w.inner(5)
		w.i32(1, h.values)
		w.i32(2, h.encoding)
		w.i32(3, encodeRuns)
		w.i32(4, encodeRuns)
	}
	w.end()
	w.end()
	return w.b
}
