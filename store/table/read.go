package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrTable occurs when a file is not a Parquet file, or none that this package can read.
var ErrTable = errors.New("not a table that can be read")

// Reader reads a Parquet file, of this package or of another program: one row group at a time with [Reader.Column] and
// [Reader.Floats], or columns without lists as a stream with [NewScan], which is faster and needs less memory. It
// takes columns by name, so that files with more or other columns can be read as far as they are known. Several
// goroutines may use one.
type Reader struct {
	from  io.ReaderAt
	size  int64
	meta  *fileMeta
	names map[string]leaf
	lists map[string]leaf // columns with one element
	path  string          // for errors
}

// leaf is a column as it lies in a file.
type leaf struct {
	element
	at   int // number in its row group
	null bool
}

// Source is what a table is read from, such as a file.
type Source interface {
	io.ReaderAt
	io.Seeker
}

// NewReader begins to read a file, which must stay open. Damage is an error, as far as it is noticed.
func NewReader(r Source) (*Reader, error) {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTable, err)
	}
	t := &Reader{from: r, size: size, names: map[string]leaf{}, lists: map[string]leaf{}}
	if named, ok := r.(interface{ Name() string }); ok {
		t.path = named.Name()
	}
	b, err := t.footer()
	if err == nil {
		t.meta, err = parseFooter(b)
	}
	if err == nil {
		err = t.settle()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTable, err)
	}
	return t, nil
}

// footer reads the footer's bytes.
func (t *Reader) footer() ([]byte, error) {
	var head, tail [8]byte
	if t.size < 12 {
		return nil, fmt.Errorf("it has %d bytes, which is not a Parquet file: it was cut off, or is another file",
			t.size)
	}
	if _, err := t.from.ReadAt(head[:4], 0); err != nil {
		return nil, err
	}
	if _, err := t.from.ReadAt(tail[:], t.size-8); err != nil {
		return nil, err
	}
	switch begins, ends := string(head[:4]), string(tail[4:]); {
	case ends == "PARE":
		return nil, errors.New("it is encrypted: write it again without encryption")
	case begins == magic && ends != magic:
		return nil,
			errors.New("its end is missing: it was cut off while it was copied or written, copy or record it again")
	case begins != magic || ends != magic:
		return nil, errors.New("it is not a Parquet file: give a .parquet file")
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > t.size-12 {
		return nil, fmt.Errorf("its footer of %d bytes is longer than the file: it was cut off, or is damaged", n)
	}
	return readFull(io.NewSectionReader(t.from, t.size-8-n, n), nil, int(n))
}

// settle finds the columns, and looks whether the footer agrees with itself.
func (t *Reader) settle() error {
	n := 0
	rest, err := t.leaves(t.meta.schema, 0, &n)
	if err != nil || len(rest) > 0 {
		return errFooter
	}
	var rows int64
	for i := range t.meta.groups {
		g := &t.meta.groups[i]
		if len(g.chunks) != n || g.rows > t.meta.rows-rows {
			return fmt.Errorf("%w: row group %d has other columns or more rows than the file", errFooter, i)
		}
		rows += g.rows
	}
	if rows != t.meta.rows {
		return fmt.Errorf("%w: its row groups have %d rows and the file %d", errFooter, rows, t.meta.rows)
	}
	return nil
}

// leaves walks over a schema: first is a group or a column, what is after it and its children comes back. n counts
// columns.
func (t *Reader) leaves(first []element, depth int, n *int) (rest []element, err error) {
	e, rest := first[0], first[1:]
	if e.physical != physicalNone && depth > 0 {
		if depth == 1 && e.repetition != repeated {
			t.names[e.name] = leaf{e, *n, e.repetition == optional}
		}
		*n++
		return rest, nil
	}
	if depth > maxThriftDepth || e.children < 0 || e.children > len(rest) {
		return nil, errFooter
	}
	column := *n
	for range e.children {
		if len(rest) == 0 {
			return nil, errFooter
		}
		if rest, err = t.leaves(rest, depth+1, n); err != nil {
			return nil, err
		}
	}
	if depth == 1 && *n == column+1 {
		t.lists[e.name] = leaf{element: first[len(first)-len(rest)-1], at: column}
	}
	return rest, nil
}

// Metadata returns a text about the table as a whole; false where the file has none of that key.
func (t *Reader) Metadata(key string) (value string, ok bool) {
	for _, pair := range t.meta.about {
		if pair[0] == key {
			return pair[1], true
		}
	}
	return "", false
}

// Rows is the number of rows of the file.
func (t *Reader) Rows() int64 { return t.meta.rows }

// Groups is the number of row groups.
func (t *Reader) Groups() int { return len(t.meta.groups) }

// GroupRows is the number of rows of a row group.
func (t *Reader) GroupRows(group int) int64 { return t.meta.groups[group].rows }

// Has reports whether the file has a column of a name that can be read.
func (t *Reader) Has(name string) bool {
	l, ok := t.names[name]
	_, known := l.kind()
	return ok && known
}

// kind is what a column's values are; false where they are none of a [Kind].
func (l *leaf) kind() (Kind, bool) {
	switch l.physical {
	case physicalBool:
		return Bool, true
	case physicalInt32:
		if l.unsigned {
			return Uint32, true
		}
		return Int32, true
	case physicalInt64:
		if l.unsigned {
			return Uint64, true
		}
		return Int64, true
	case physicalBytes:
		return Text, true
	}
	return 0, false
}

// Bounds are the least and the greatest integer of a column in a row group, as the file states: row groups beyond
// the wanted range need not be read. False where the file has no bounds, or where no row has a value. Those of Uint64
// columns are bits.
func (t *Reader) Bounds(group int, name string) (low, high int64, ok bool) {
	l, ok := t.names[name]
	if !ok {
		return 0, 0, false
	}
	s := t.meta.groups[group].chunks[l.at].stats
	size := map[int]int{physicalInt32: 4, physicalInt64: 8}[l.physical]
	if size == 0 || len(s.min) != size || len(s.max) != size {
		return 0, 0, false
	}
	var both [2]int64
	if !plainInts(both[:1], s.min, &l) || !plainInts(both[1:], s.max, &l) {
		return 0, 0, false
	}
	return both[0], both[1], true
}

// Values are those of one column in one row group: Ints, of integers and truths, or Texts, one per row. What is
// null is not Valid.
type Values struct {
	Ints  []int64
	Texts []string
	Valid []bool
}

// maxColumn is how many rows Column reads at once.
const maxColumn = 1 << 24

// Column reads a column of a row group. A column that the file does not have is ErrTable.
func (t *Reader) Column(group int, name string) (v Values, err error) {
	n := t.meta.groups[group].rows
	if n > maxColumn {
		return v, fmt.Errorf(
			"%w: a row group of %d rows is more than can be read at once: write it again with smaller ones", ErrTable,
			n)
	}
	c, err := newCursor(t, name)
	if err != nil {
		return v, err
	}
	c.words.most = maxColumn
	var part Vector
	for done := int64(0); done < n; done += int64(part.Len()) {
		if err := c.step(&part, group, done, int(min(n-done, scanRows))); err != nil {
			return Values{}, columnError(name, err)
		}
		v.add(&part)
	}
	return v, nil
}

// add appends rows.
func (v *Values) add(part *Vector) {
	v.Ints = append(v.Ints, part.Ints...)
	for i := range part.Codes {
		v.Texts = append(v.Texts, part.Text(i))
	}
	if part.Valid != nil {
		v.Valid = append(v.Valid, part.Valid...)
		return
	}
	for range part.Len() {
		v.Valid = append(v.Valid, true)
	}
}

// columnError returns an error of a column.
func columnError(name string, err error) error {
	return fmt.Errorf("%w: column %s: %w", ErrTable, name, err)
}
