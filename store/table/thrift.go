package table

import (
	"encoding/binary"
	"errors"
	"math"
)

// Parquet's footers and page heads are structs of Thrift's compact protocol. What is read here comes from files
// that anybody may have written: nothing is allocated by a length that a file claims, and structs lie only so deep
// in one another.

// Kinds of fields.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftStruct = 12
)

// thriftWriter writes structs. Fields of one come in the order of their numbers.
type thriftWriter struct {
	b    []byte
	last []int16 // the last field of each struct that is open
}

func (w *thriftWriter) begin() { w.last = append(w.last, 0) }

func (w *thriftWriter) end() {
	w.b = append(w.b, 0)
	w.last = w.last[:len(w.last)-1]
}

func (w *thriftWriter) field(id int16, kind byte) {
	last := &w.last[len(w.last)-1]
	w.b = append(w.b, byte(id-*last)<<4|kind)
	*last = id
}

func (w *thriftWriter) zigzag(v int64) { w.b = binary.AppendVarint(w.b, v) }

func (w *thriftWriter) i32(id int16, v int) {
	w.field(id, thriftI32)
	w.zigzag(int64(v))
}

func (w *thriftWriter) i64(id int16, v int64) {
	w.field(id, thriftI64)
	w.zigzag(v)
}

func (w *thriftWriter) truth(id int16, v bool) {
	if v {
		w.field(id, thriftTrue)
	} else {
		w.field(id, thriftFalse)
	}
}

func (w *thriftWriter) text(id int16, v string) {
	w.field(id, thriftBinary)
	w.string(v)
}

// string is a text without its field, as elements of lists are.
func (w *thriftWriter) string(v string) {
	w.b = binary.AppendUvarint(w.b, uint64(len(v)))
	w.b = append(w.b, v...)
}

// list begins a list of n elements.
func (w *thriftWriter) list(id int16, kind byte, n int) {
	w.field(id, thriftList)
	if n < 15 {
		w.b = append(w.b, byte(n)<<4|kind)
		return
	}
	w.b = append(w.b, 15<<4|kind)
	w.b = binary.AppendUvarint(w.b, uint64(n))
}

// inner begins a struct that is a field.
func (w *thriftWriter) inner(id int16) {
	w.field(id, thriftStruct)
	w.begin()
}

// empty is a struct without fields as a field.
func (w *thriftWriter) empty(id int16) {
	w.inner(id)
	w.end()
}

// errThrift occurs where bytes are not a struct of Thrift.
var errThrift = errors.New("a structure is damaged")

// maxThriftDepth is how deep structs and lists may lie in one another.
const maxThriftDepth = 24

// thriftReader reads structs. After the first error everything it returns is 0.
type thriftReader struct {
	b     []byte
	err   error
	depth int
}

func (r *thriftReader) fail() {
	if r.err == nil {
		r.err = errThrift
	}
	r.b = nil
}

func (r *thriftReader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *thriftReader) zigzag() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// fields reads a struct: field is called for each of its fields, and reports whether it took the value.
func (r *thriftReader) fields(field func(id int16, kind byte) (taken bool)) {
	if !r.descend() {
		return
	}
	defer r.higher()
	last := int16(0)
	for r.err == nil {
		head := r.byte()
		kind := head & 15
		if kind == 0 {
			return
		}
		if step := head >> 4; step != 0 {
			last += int16(step)
		} else {
			last = int16(r.zigzag())
		}
		if !field(last, kind) {
			r.skip(kind)
		}
	}
}

func (r *thriftReader) descend() bool {
	if r.depth++; r.depth > maxThriftDepth {
		r.fail()
	}
	return r.err == nil
}

func (r *thriftReader) higher() { r.depth-- }

// i64 reads the integer of a field of a kind.
func (r *thriftReader) i64(kind byte) int64 {
	switch kind {
	case thriftByte:
		return int64(int8(r.byte()))
	case thriftI16, thriftI32, thriftI64:
		return r.zigzag()
	}
	r.fail()
	return 0
}

// i32 is an integer that must be one of 32 bits.
func (r *thriftReader) i32(kind byte) int {
	v := r.i64(kind)
	if v != int64(int32(v)) {
		r.fail()
		return 0
	}
	return int(v)
}

func (r *thriftReader) truth(kind byte) bool {
	if kind != thriftTrue && kind != thriftFalse {
		r.fail()
	}
	return kind == thriftTrue
}

// bytes reads a text or bytes, which stay where they are.
func (r *thriftReader) bytes(kind byte) []byte {
	n := uint64(math.MaxUint64)
	if kind == thriftBinary {
		n = r.uvarint()
	}
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// list reads a list: element is called for each of its elements, and must take it.
func (r *thriftReader) list(kind byte, element func(kind byte)) {
	if kind != thriftList && kind != thriftSet || !r.descend() {
		r.fail()
		return
	}
	defer r.higher()
	head := r.byte()
	n, of := uint64(head>>4), head&15
	if n == 15 {
		n = r.uvarint()
	}
	if n > uint64(len(r.b)) { // each takes a byte at least
		r.fail()
		return
	}
	for range n {
		if r.err != nil {
			return
		}
		element(of)
	}
}

// skip passes over a value.
func (r *thriftReader) skip(kind byte) {
	switch kind {
	case thriftTrue, thriftFalse: // the kind is the value
	case thriftByte:
		r.byte()
	case thriftI16, thriftI32, thriftI64:
		r.uvarint()
	case thriftDouble:
		if len(r.b) < 8 {
			r.fail()
			return
		}
		r.b = r.b[8:]
	case thriftBinary:
		r.bytes(kind)
	case thriftList, thriftSet:
		r.list(kind, r.element)
	case thriftStruct:
		r.fields(func(int16, byte) bool { return false })
	default: // Parquet has no maps
		r.fail()
	}
}

// element passes over an element of a list, where a truth takes a byte.
func (r *thriftReader) element(kind byte) {
	if kind == thriftTrue || kind == thriftFalse {
		kind = thriftByte
	}
	r.skip(kind)
}
