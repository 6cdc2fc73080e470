package tensors

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Array is a tensor's values with the shape in C order: last dimension fastest.
type Array struct {
	Shape  []int64
	Values []float32
}

// cornerEdge is how many values text shows at either end of a dimension.
const cornerEdge = 3

// WriteCorners writes an array as nested lists; of a dimension longer than six only its first and last three entries, as numpy and
// llama.cpp's tools print arrays.
func WriteCorners(w io.Writer, a Array) error {
	var b strings.Builder
	writeCorners(&b, a.Shape, a.Values, "")
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCorners(b *strings.Builder, shape []int64, values []float32, indent string) {
	if len(shape) == 0 {
		fmt.Fprintf(b, "%s%s\n", indent, valueText(values[0]))
		return
	}
	if len(shape) == 1 {
		b.WriteString(indent + "[")
		eachCorner(shape[0], func(i int64, first bool) {
			if !first {
				b.WriteString(", ")
			}
			if i < 0 {
				b.WriteString("…")
				return
			}
			b.WriteString(valueText(values[i]))
		})
		b.WriteString("]\n")
		return
	}
	stride := int64(len(values)) / max(shape[0], 1)
	b.WriteString(indent + "[\n")
	eachCorner(shape[0], func(i int64, _ bool) {
		if i < 0 {
			b.WriteString(indent + " …\n")
			return
		}
		writeCorners(b, shape[1:], values[i*stride:(i+1)*stride], indent+" ")
	})
	b.WriteString(indent + "]\n")
}

// eachCorner calls fn with the indices to show, and with -1 in place of those left out.
func eachCorner(n int64, fn func(i int64, first bool)) {
	for i := int64(0); i < n; i++ {
		if n > 2*cornerEdge && i == cornerEdge {
			fn(-1, false)
			i = n - cornerEdge
		}
		fn(i, i == 0)
	}
}

// valueText writes a value with as many digits as tell it from every other float32.
func valueText(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }

// jsonFloat is a float32 that JSON can carry: NaN and infinities become the strings "NaN", "Infinity" and "-Infinity".
type jsonFloat float32

// MarshalJSON writes the value.
func (f jsonFloat) MarshalJSON() ([]byte, error) {
	x := float64(f)
	switch {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Infinity"`), nil
	}
	return strconv.AppendFloat(nil, x, 'g', -1, 32), nil
}
