// Hot path: 3 ns per value, nothing per value of a run but writing it.

package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Vector is rows of one column: Ints, of integers and truths, or Codes, of texts. It stays with the reader, which
// fills it again.
type Vector struct {
	Ints  []int64  // 0 where there is no value; those of Uint64 columns are bits
	Codes []int32  // places in Words, -1 where there is no value
	Words []string // in a [Scan] a code stands for the same text from the first row to the last
	Valid []bool   // nil: every row has a value
	valid []bool
}

// Len is the number of rows.
func (v *Vector) Len() int { return len(v.Ints) + len(v.Codes) }

// Null reports whether a row has no value.
func (v *Vector) Null(row int) bool { return v.Valid != nil && !v.Valid[row] }

// Text is the text of a row, "" where there is none.
func (v *Vector) Text(row int) string {
	if code := v.Codes[row]; code >= 0 {
		return v.Words[code]
	}
	return ""
}

// invalid makes rows null; there are n in all.
func (v *Vector) invalid(from, end, n int) {
	if v.Valid == nil {
		v.valid = resize(v.valid, n)
		v.Valid = v.valid
		for i := range v.Valid {
			v.Valid[i] = true
		}
	}
	clear(v.Valid[from:end])
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// cursor reads a column from its first row on.
type cursor struct {
	t      *Reader
	leaf   leaf
	text   bool
	pages  *pages
	left   int // rows of the page
	levels hybridReader
	level  []int32 // buffer
	// Values of the page: by code, as differences, or as they are.
	encoding int
	codes    hybridReader
	code     []int32 // buffer
	delta    *deltaReader
	plain    []byte
	bit      int
	texts    []int32 // of texts that are packed in other ways, all of the page
	// The dictionary of the row group: integers, or what codes of the file are here.
	ints  []int64
	known []int32
	words *textList
}

// textList are texts by code.
type textList struct {
	codes map[string]int32
	list  []string
	bytes int
	most  int
}

const maxTextBytes = 256 << 20

// code is the code of a text.
func (w *textList) code(v []byte) (int32, error) {
	if code, ok := w.codes[string(v)]; ok {
		return code, nil
	}
	if len(w.list) >= w.most || w.bytes+len(v) > maxTextBytes {
		return 0, fmt.Errorf("it has more than %d different texts, or more than %d MiB of them: read it by row groups",
			len(w.list), w.bytes>>20)
	}
	code := int32(len(w.list))
	w.list = append(w.list, string(v))
	w.codes[w.list[code]] = code
	w.bytes += len(v)
	return code, nil
}

// newCursor begins before the first row group.
func newCursor(t *Reader, name string) (*cursor, error) {
	l, ok := t.names[name]
	if !ok {
		return nil, fmt.Errorf("%w: it has no column %s, or a list there: is it another table?", ErrTable, name)
	}
	kind, ok := l.kind()
	if !ok {
		return nil, columnError(name,
			fmt.Errorf("its values are neither integers nor truths nor texts (physical type %d)",
				l.physical))
	}
	return &cursor{t: t, leaf: l, text: kind == Text, words: &textList{codes: map[string]int32{}, most: 1 << 20}}, nil
}

// begin goes to the beginning of a row group.
func (c *cursor) begin(group int) error {
	chunk := &c.t.meta.groups[group].chunks[c.leaf.at]
	if chunk.physical != c.leaf.physical {
		return fmt.Errorf("%w: it has another type in row group %d", errFooter, group)
	}
	c.left, c.ints, c.known = 0, nil, nil
	if c.pages == nil {
		c.pages = new(pages)
	}
	return c.pages.begin(c.t.from, c.t.size, chunk)
}

// read reads n rows of the row group; io.ErrUnexpectedEOF where it has fewer.
func (c *cursor) read(v *Vector, n int) error {
	v.Valid = nil
	if c.text {
		v.Codes = resize(v.Codes, n)
	} else {
		v.Ints = resize(v.Ints, n)
	}
	for at := 0; at < n; {
		if c.left == 0 {
			if err := c.page(); err != nil {
				return err
			}
			continue
		}
		rows := min(c.left, n-at)
		if err := c.rows(v, at, rows, n); err != nil {
			return err
		}
		at += rows
		c.left -= rows
	}
	v.Words = c.words.list[:len(c.words.list):len(c.words.list)]
	return nil
}

// page begins the next page.
func (c *cursor) page() error {
	h, body, err := c.pages.next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	switch h.kind {
	case pageDict:
		return c.dictionary(&h, body)
	case pageData, pageDataV2:
	default:
		return nil // an index, of which nobody needs to know
	}
	if h.values < 0 {
		return errThrift
	}
	if c.leaf.null {
		if body, err = c.beginLevels(&h, body); err != nil {
			return err
		}
	} else if h.kind == pageDataV2 {
		body = body[h.defBytes+h.repBytes:]
	}
	c.left, c.encoding = h.values, h.encoding
	return c.beginValues(body)
}

var errLevels = errors.New("a page does not say which of its rows have values")

// beginLevels finds the definition levels, and returns what is after them.
func (c *cursor) beginLevels(h *pageHead, body []byte) ([]byte, error) {
	if h.kind == pageDataV2 {
		if h.repBytes != 0 {
			return nil, errLevels
		}
		c.levels = newHybridReader(body[:h.defBytes], 1)
		return body[h.defBytes:], nil
	}
	if h.levels != encodeRuns || len(body) < 4 || uint64(binary.LittleEndian.Uint32(body)) > uint64(len(body)-4) {
		return nil, errLevels
	}
	n := int(binary.LittleEndian.Uint32(body))
	c.levels = newHybridReader(body[4:4+n], 1)
	return body[4+n:], nil
}

var errValues = errors.New("a page has fewer values than it says")

// beginValues begins the values of a page.
func (c *cursor) beginValues(body []byte) (err error) {
	switch c.encoding {
	case encodeDict, encodeOldDict:
		if c.ints == nil && c.known == nil {
			return errors.New("a page refers to a dictionary that there is not")
		}
		if len(body) == 0 {
			body = []byte{0} // no row has a value
		}
		if body[0] > 32 {
			return errValues
		}
		c.encoding, c.codes = encodeDict, newHybridReader(body[1:], int(body[0]))
	case encodePlain:
		c.plain, c.bit = body, 0
		if c.text {
			return c.listTexts(func(each func([]byte) error) error { return plainTexts(body, each) })
		}
	case encodeDelta:
		if c.text || c.leaf.physical == physicalBool {
			return c.unknown()
		}
		c.delta, err = newDeltaReader(body)
	case encodeRuns:
		if c.leaf.physical != physicalBool || len(body) < 4 {
			return c.unknown()
		}
		c.codes = newHybridReader(body[4:], 1)
	case encodeDeltaLength, encodeDeltaBytes:
		if !c.text {
			return c.unknown()
		}
		prefixes := c.encoding == encodeDeltaBytes
		return c.listTexts(func(each func([]byte) error) error { return deltaTexts(body, prefixes, each) })
	default:
		return c.unknown()
	}
	return err
}

func (c *cursor) unknown() error {
	return fmt.Errorf("its encoding %d is not known: write it again, as with pyarrow's use_dictionary", c.encoding)
}

// listTexts takes all texts of a page in.
func (c *cursor) listTexts(walk func(each func([]byte) error) error) error {
	c.encoding, c.texts = encodePlain, c.texts[:0]
	return walk(func(v []byte) error {
		code, err := c.words.code(v)
		c.texts = append(c.texts, code)
		return err
	})
}

// dictionary reads the dictionary of the row group.
func (c *cursor) dictionary(h *pageHead, body []byte) error {
	if h.encoding != encodePlain && h.encoding != encodeOldDict || h.values < 0 || c.leaf.physical == physicalBool {
		return errors.New("its dictionary is damaged")
	}
	if c.text {
		c.known = make([]int32, 0, min(h.values, len(body)/4))
		return plainTexts(body, func(v []byte) error {
			code, err := c.words.code(v)
			c.known = append(c.known, code)
			return err
		})
	}
	size := 8
	if c.leaf.physical == physicalInt32 {
		size = 4
	}
	c.ints = make([]int64, len(body)/size)
	plainInts(c.ints, body, &c.leaf)
	return nil
}

// rows reads rows of the page. The vector has n.
func (c *cursor) rows(v *Vector, at, rows, n int) error {
	if !c.leaf.null {
		return c.values(v, at, rows)
	}
	for end := at + rows; at < end; {
		if !c.levels.next() {
			return errLevels
		}
		k := min(c.levels.left, end-at)
		var err error
		switch {
		case c.levels.bits != nil:
			err = c.mixed(v, at, k, n)
		case c.levels.value == 1:
			err = c.values(v, at, k)
		default:
			v.invalid(at, at+k, n)
			v.blank(at, at+k)
		}
		if err != nil {
			return err
		}
		c.levels.left -= k
		at += k
	}
	return nil
}

// blank is the placeholder for a missing value.
func (v *Vector) blank(from, end int) {
	if v.Codes == nil {
		clear(v.Ints[from:end])
		return
	}
	for i := range v.Codes[from:end] {
		v.Codes[from+i] = -1
	}
}

// mixed reads k rows some of which have values: these are read side by side, and then moved to their places, from
// the last on.
func (c *cursor) mixed(v *Vector, at, k, n int) error {
	c.level = resize(c.level, k)
	c.levels.unpack(c.level)
	there := 0
	for _, l := range c.level {
		there += int(l)
	}
	if err := c.values(v, at, there); err != nil || there == k {
		return err
	}
	v.invalid(at, at, n)
	from := at + there
	for i := k - 1; i >= 0; i-- {
		if c.level[i] != 0 {
			from--
			v.move(at+i, from)
			continue
		}
		v.Valid[at+i] = false
		v.blank(at+i, at+i+1)
	}
	return nil
}

func (v *Vector) move(to, from int) {
	if v.Codes == nil {
		v.Ints[to] = v.Ints[from]
	} else {
		v.Codes[to] = v.Codes[from]
	}
}

// values reads k values, side by side.
func (c *cursor) values(v *Vector, at, k int) error {
	if k == 0 {
		return nil
	}
	ok := true
	switch {
	case c.encoding == encodeDict && c.text:
		ok = byCodes(c, v.Codes[at:at+k], c.known)
	case c.encoding == encodeDict:
		ok = byCodes(c, v.Ints[at:at+k], c.ints)
	case c.text:
		ok = k <= len(c.texts)
		if ok {
			copy(v.Codes[at:at+k], c.texts)
			c.texts = c.texts[k:]
		}
	case c.encoding == encodeRuns:
		ok = byCodes(c, v.Ints[at:at+k], []int64{0, 1})
	case c.encoding == encodeDelta:
		ok = c.delta.read(v.Ints[at : at+k])
		c.leaf.fit(v.Ints[at : at+k])
	case c.leaf.physical == physicalBool:
		ok = c.truths(v.Ints[at : at+k])
	default:
		ok = plainInts(v.Ints[at:at+k], c.plain, &c.leaf)
		if ok {
			c.plain = c.plain[k*c.leaf.width():]
		}
	}
	if !ok {
		return errValues
	}
	return nil
}

// byCodes reads values of a dictionary.
func byCodes[T int32 | int64](c *cursor, to, dictionary []T) bool {
	for len(to) > 0 {
		if !c.codes.next() {
			return false
		}
		n := min(c.codes.left, len(to))
		if c.codes.bits == nil {
			if int64(c.codes.value) >= int64(len(dictionary)) {
				return false
			}
			v := dictionary[c.codes.value]
			for i := range to[:n] {
				to[i] = v
			}
		} else {
			c.code = resize(c.code, n)
			c.codes.unpack(c.code)
			for i, code := range c.code {
				if uint32(code) >= uint32(len(dictionary)) {
					return false
				}
				to[i] = dictionary[code]
			}
		}
		c.codes.left -= n
		to = to[n:]
	}
	return true
}

// truths reads bits.
func (c *cursor) truths(to []int64) bool {
	if c.bit+len(to) > 8*len(c.plain) {
		return false
	}
	for i := range to {
		to[i] = int64(c.plain[c.bit>>3] >> (c.bit & 7) & 1)
		c.bit++
	}
	return true
}

// width is how many bytes an integer has.
func (l *leaf) width() int {
	if l.physical == physicalInt32 {
		return 4
	}
	return 8
}

// fit cuts what integers have beyond their 32 bits.
func (l *leaf) fit(v []int64) {
	switch {
	case l.physical != physicalInt32:
	case l.unsigned:
		for i, x := range v {
			v[i] = int64(uint32(x))
		}
	default:
		for i, x := range v {
			v[i] = int64(int32(x))
		}
	}
}

// plainInts reads integers as they are; false where there are not so many.
func plainInts(to []int64, b []byte, l *leaf) bool {
	if len(b) < len(to)*l.width() {
		return false
	}
	if l.physical == physicalInt64 {
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
		return true
	}
	for i := range to {
		to[i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	l.fit(to)
	return true
}
