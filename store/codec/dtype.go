package codec

import "fmt"

// DType is the type of stored elements. The numbers are stored in index files; never renumber them.
type DType uint8

// The element types, all little-endian.
const (
	Raw  DType = iota // bytes of a type that is not a plain element, such as a block-quantised one
	F32               // IEEE 754 binary32
	F16               // IEEE 754 binary16
	BF16              // upper half of a binary32
	F64               // IEEE 754 binary64
	I8
	I16
	I32
	I64
)

var dtypes = [...]struct {
	name string
	size int
	ggml int
}{{"raw", 1, -1}, {"f32", 4, 0}, {"f16", 2, 1}, {"bf16", 2, 30}, {"f64", 8, 28}, {"i8", 1, 24}, {"i16", 2, 25},
	{"i32", 4, 26}, {"i64", 8, 27}}

// DTypeOf returns the element type of a ggml type number, Raw for every block-quantised one.
func DTypeOf(ggmlType int) DType {
	for i, d := range dtypes {
		if d.ggml == ggmlType && i > 0 {
			return DType(i)
		}
	}
	return Raw
}

// String returns the type's name as flags and files spell it.
func (d DType) String() string {
	if d.Known() {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Known reports whether this version knows the type.
func (d DType) Known() bool { return int(d) < len(dtypes) }

// Size returns the bytes per element, 1 for Raw.
func (d DType) Size() int {
	if d.Known() {
		return dtypes[d].size
	}
	return 1
}

// ParseDType is the inverse of String.
func ParseDType(s string) (DType, error) {
	for i, d := range dtypes {
		if d.name == s {
			return DType(i), nil
		}
	}
	return Raw, fmt.Errorf("element type %q: %w; use f32, f16 or bf16", s, ErrUnknown)
}

// MarshalText writes the type's name.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the type's name.
func (d *DType) UnmarshalText(text []byte) error {
	parsed, err := ParseDType(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}
