package gguf

import "fmt"

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

var valueTypes = [...]struct {
	name  string
	bytes int64 // size of one value; for a string the least that it can take
}{
	Uint8: {"uint8", 1}, Int8: {"int8", 1}, Uint16: {"uint16", 2}, Int16: {"int16", 2}, Uint32: {"uint32", 4},
	Int32: {"int32", 4}, Float32: {"float32", 4}, Bool: {"bool", 1}, String: {"string", 8}, Array: {"array", 12},
	Uint64: {"uint64", 8}, Int64: {"int64", 8}, Float64: {"float64", 8},
}

// String is gguf's name of the type.
func (t ValueType) String() string {
	if int64(t) >= int64(len(valueTypes)) {
		return fmt.Sprintf("value type %d", uint32(t))
	}
	return valueTypes[t].name
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
	switch v.Data.(type) {
	case uint8:
		return Uint8, 0, true
	case int8:
		return Int8, 0, true
	case uint16:
		return Uint16, 0, true
	case int16:
		return Int16, 0, true
	case uint32:
		return Uint32, 0, true
	case int32:
		return Int32, 0, true
	case uint64:
		return Uint64, 0, true
	case int64:
		return Int64, 0, true
	case float32:
		return Float32, 0, true
	case float64:
		return Float64, 0, true
	case bool:
		return Bool, 0, true
	case string:
		return String, 0, true
	}
	elem, ok = v.elemType()
	return Array, elem, ok
}

func (v Value) elemType() (ValueType, bool) {
	switch v.Data.(type) {
	case []uint8:
		return Uint8, true
	case []int8:
		return Int8, true
	case []uint16:
		return Uint16, true
	case []int16:
		return Int16, true
	case []uint32:
		return Uint32, true
	case []int32:
		return Int32, true
	case []uint64:
		return Uint64, true
	case []int64:
		return Int64, true
	case []float32:
		return Float32, true
	case []float64:
		return Float64, true
	case []bool:
		return Bool, true
	case []string:
		return String, true
	}
	return 0, false
}
