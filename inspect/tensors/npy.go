package tensors

import (
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
)

// NPYTypes are NumPy's names of the element types. NumPy has no bfloat16; it is widened to float32, which is exact.
var NPYTypes = map[codec.DType]string{
	codec.Raw: "|u1", codec.F32: "<f4", codec.F16: "<f2", codec.BF16: "<f4", codec.F64: "<f8",
	codec.I8: "|i1", codec.I16: "<i2", codec.I32: "<i4", codec.I64: "<i8",
}

// AppendWidened appends bfloat16 elements as float32.
func AppendWidened(dst, data []byte) []byte {
	for i := 0; i+1 < len(data); i += 2 {
		dst = append(dst, 0, 0, data[i], data[i+1])
	}
	return dst
}

// AppendNPYHeader appends the header of a NumPy file, version 1.0 (numpy/lib/format.py), for C order: magic,
// version, length of the description, description, padded with blanks so that the data begins at a multiple of 64.
// descr is NumPy's type, such as "<f4", or a list of fields with their types, such as "[('token', '<i8')]".
func AppendNPYHeader(dst []byte, descr string, shape []int64) ([]byte, error) {
	const prefix, align, longest = 10, 64, 1<<16 - 1
	var dims strings.Builder
	for _, n := range shape {
		fmt.Fprintf(&dims, "%d, ", n)
	}
	list := strings.TrimSuffix(dims.String(), " ") // a tuple of one keeps its comma
	if len(shape) > 1 {
		list = strings.TrimSuffix(list, ",")
	}
	if !strings.HasPrefix(descr, "[") {
		descr = "'" + descr + "'"
	}
	text := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': (%s), }", descr, list)
	text += strings.Repeat(" ", align-1-(prefix+len(text))%align) + "\n"
	if len(text) > longest {
		return dst,
			fmt.Errorf(
				"npy header of %d bytes is longer than the format can say (%d): the shape has too many dimensions",
				len(text), longest)
	}
	dst = append(dst, "\x93NUMPY\x01\x00"...)
	dst = append(dst, byte(len(text)), byte(len(text)>>8))
	return append(dst, text...), nil
}
