package gguf

import (
	"encoding/binary"
	"fmt"
	"reflect"
)

// ValueType is the type of a metadata value, numbered as gguf.h numbers it.
type ValueType uint32

// Types of metadata values.
const (
	Uint8   ValueType = 0
	Int8    ValueType = 1
	Uint16  ValueType = 2
	Int16   ValueType = 3
	Uint32  ValueType = 4
	Int32   ValueType = 5
	Float32 ValueType = 6
	Bool    ValueType = 7
	String  ValueType = 8
	Array   ValueType = 9
	Uint64  ValueType = 10
	Int64   ValueType = 11
	Float64 ValueType = 12
)

// kind is what is known of the values of one type.
type kind struct {
	name       string
	bytes      int64        // size of one value; for a string the least that it can take
	one, array reflect.Type // that hold a value, and an array of them
	read       func(*decoder) Value
	readArray  func(d *decoder, n int64) Value
}

// kinds are the types, by number.
var kinds = [...]kind{
	Uint8:   numbers[uint8]("uint8"),
	Int8:    numbers[int8]("int8"),
	Uint16:  numbers[uint16]("uint16"),
	Int16:   numbers[int16]("int16"),
	Uint32:  numbers[uint32]("uint32"),
	Int32:   numbers[int32]("int32"),
	Float32: numbers[float32]("float32"),
	Bool:    anyArray("bool", 1, (*decoder).boolean),
	String:  anyArray("string", 8, (*decoder).str),
	Array:   {name: "array", bytes: 12},
	Uint64:  numbers[uint64]("uint64"),
	Int64:   numbers[int64]("int64"),
	Float64: numbers[float64]("float64"),
}

// numbers are values that are read as they stand.
func numbers[T any](name string) kind {
	size := int64(reflect.TypeFor[T]().Size())
	one := func(d *decoder) (v T) {
		if raw := d.buf[:size]; d.full(raw) {
			binary.Decode(raw, binary.LittleEndian, &v)
		}
		return v
	}
	return kind{name, size, reflect.TypeFor[T](), reflect.TypeFor[[]T](),
		func(d *decoder) Value { return Value{one(d)} },
		func(d *decoder, n int64) Value { return Value{readNumbers[T](d, n)} }}
}

// anyArray are values that read reads one by one.
func anyArray[T any](name string, bytes int64, read func(*decoder) T) kind {
	return kind{name, bytes, reflect.TypeFor[T](), reflect.TypeFor[[]T](),
		func(d *decoder) Value { return Value{read(d)} },
		func(d *decoder, n int64) Value { return Value{readEach(d, n, read)} }}
}

// String is gguf's name of the type.
func (t ValueType) String() string {
	if int64(t) >= int64(len(kinds)) {
		return fmt.Sprintf("value type %d", uint32(t))
	}
	return kinds[t].name
}

// Value is one metadata value. Data holds it as the Go type of the same meaning: uint8 … uint64, int8 … int64,
// float32, float64, bool or string, or, for an array, a slice of one of these. Arrays of arrays do not exist in
// files that llama.cpp reads, and are refused.
type Value struct {
	Data any
}

// Type is the value's type and, for an array, the type of its elements. ok is false where Data holds a Go type that
// a GGUF file cannot.
func (v Value) Type() (t, elem ValueType, ok bool) {
	of := reflect.TypeOf(v.Data)
	for i, k := range kinds {
		switch {
		case of == nil || k.one == nil:
		case of == k.one:
			return ValueType(i), 0, true
		case of == k.array:
			return Array, ValueType(i), true
		}
	}
	return Array, 0, false
}
