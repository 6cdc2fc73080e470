package gguf

import (
	"fmt"
	"math"
	"strings"
)

// maxDims is the number of dimensions that ggml knows.
const maxDims = 4

// maxNameBytes is the length of the longest tensor name that ggml can hold (GGML_MAX_NAME less the terminator).
const maxNameBytes = 63

// Tensor says what a tensor is and where its bytes lie.
type Tensor struct {
	Name string
	Type Type
	// Shape is ggml's ne without trailing ones: Shape[0] is the length of a row, the fastest dimension.
	Shape []int64
	// Offset is where the tensor begins, in bytes from the start of the file.
	Offset int64
	// Bytes is the tensor's size in the file, padding not included.
	Bytes int64
}

// Values is the number of values of the tensor.
func (t *Tensor) Values() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// RowValues is the number of values in a row.
func (t *Tensor) RowValues() int64 {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[0]
}

// End is the offset of the first byte behind the tensor.
func (t *Tensor) End() int64 { return t.Offset + t.Bytes }

// String shows name, type and shape.
func (t *Tensor) String() string {
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = fmt.Sprint(d)
	}
	return fmt.Sprintf("%s %v [%s]", t.Name, t.Type, strings.Join(dims, " × "))
}

// size computes Bytes from type and shape and refuses what no file can hold.
func (t *Tensor) size() (int64, error) {
	if len(t.Shape) > maxDims {
		return 0, fmt.Errorf("%d dimensions, ggml knows at most %d", len(t.Shape), maxDims)
	}
	values := int64(1)
	for i, d := range t.Shape {
		if d < 0 {
			return 0, fmt.Errorf("dimension %d is negative (%d)", i, d)
		}
		if d > 0 && values > math.MaxInt64/8/d {
			return 0, fmt.Errorf("shape %v has more values than memory has addresses", t.Shape)
		}
		values *= d
	}
	row, err := t.Type.RowBytes(t.RowValues())
	if err != nil {
		return 0, err
	}
	if t.RowValues() == 0 {
		return 0, nil
	}
	rows := values / t.RowValues()
	if row > 0 && rows > math.MaxInt64/2/row {
		return 0, fmt.Errorf("shape %v has more bytes than a file can", t.Shape)
	}
	return row * rows, nil
}
