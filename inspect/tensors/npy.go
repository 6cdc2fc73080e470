package tensors

import (
	"fmt"
	"strings"
)

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
