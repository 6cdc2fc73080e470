package tensors

import (
	"math"
	"strconv"
	"strings"
)

// cornerEdge is how many values text shows at either end of a dimension.
const cornerEdge = 3

// writeCorners writes an array in C order as nested lists; of a dimension longer than six only its first and last
// three entries, as numpy and llama.cpp's tools print arrays. bits is the size of the float type whose shortest
// text distinguishes a value from every other.
func writeCorners(b *strings.Builder, shape []int64, values []float64, indent string, bits int) {
	if len(shape) == 0 {
		b.WriteString(indent + valueText(values[0], bits) + "\n")
		return
	}
	if len(shape) == 1 {
		var texts []string
		for _, i := range corners(shape[0]) {
			if i < 0 {
				texts = append(texts, "…")
			} else {
				texts = append(texts, valueText(values[i], bits))
			}
		}
		b.WriteString(indent + "[" + strings.Join(texts, ", ") + "]\n")
		return
	}
	stride := int64(len(values)) / max(shape[0], 1)
	b.WriteString(indent + "[\n")
	for _, i := range corners(shape[0]) {
		if i < 0 {
			b.WriteString(indent + " …\n")
		} else {
			writeCorners(b, shape[1:], values[i*stride:(i+1)*stride], indent+" ", bits)
		}
	}
	b.WriteString(indent + "]\n")
}

// corners returns the indices of n entries to show, with -1 in place of those left out.
func corners(n int64) []int64 {
	var indices []int64
	for i := int64(0); i < n; i++ {
		if n > 2*cornerEdge && i == cornerEdge {
			indices = append(indices, -1)
			i = n - cornerEdge
		}
		indices = append(indices, i)
	}
	return indices
}

// cornersOf returns the shape of what writeCorners shows of an array, with one entry in place of all that it leaves
// out of a dimension, and the place of each of its values in the array, in order.
func cornersOf(shape []int64) (shown, places []int64) {
	places = []int64{0}
	for _, n := range shape {
		entries := corners(n)
		shown = append(shown, int64(len(entries)))
		next := make([]int64, 0, len(places)*len(entries))
		for _, place := range places {
			for _, i := range entries {
				if i < 0 {
					i = cornerEdge
				}
				next = append(next, place*n+i)
			}
		}
		places = next
	}
	return shown, places
}

// valueText writes a value with as many digits as distinguish it from every other of its type.
func valueText(v float64, bits int) string { return strconv.FormatFloat(v, 'g', -1, bits) }

// appendJSONValue appends a value as JSON can carry it: NaN and infinities become the strings "NaN", "Infinity" and
// "-Infinity".
func appendJSONValue(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bits)
}
