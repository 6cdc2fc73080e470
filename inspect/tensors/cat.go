package tensors

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
)

// WriteNPY writes the slice as a NumPy file: token axis first, C order, elements as they are stored.
func (s *Slice) WriteNPY(w io.Writer) error {
	descr, known := NPYTypes[s.DType]
	if !known {
		return fmt.Errorf("tensor %s: NumPy has no type for %v: use --format json", s.Name, s.DType)
	}
	header, err := AppendNPYHeader(nil, descr, s.Shape)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	var wide []byte
	return s.eachBytes(func(data []byte) error {
		if s.DType == codec.BF16 {
			wide = AppendWidened(wide[:0], data)
			data = wide
		}
		_, err := w.Write(data)
		return err
	})
}

// WriteText writes name, type, shape and row numbers in one line, then the corners of the array.
func (s *Slice) WriteText(w io.Writer) error {
	var b strings.Builder
	// C order, as NumPy prints it
	head := strings.NewReplacer(" ", ", ", "[", "(", "]", ")").Replace(fmt.Sprint(s.Shape))
	fmt.Fprintf(&b, "%s  %v  %s  %s\n", s.Name, s.DType, head, s.labelsText())
	made, err := readMaking(s)
	if err != nil {
		return err
	}
	b.WriteString(made.text())
	shape, places := cornersOf(s.Shape)
	kept := make([]float64, len(places))
	next := 0
	err = s.eachValues(func(at int64, values []float64) {
		for ; next < len(places) && places[next] < at+int64(len(values)); next++ {
			if i := places[next] - at; i >= 0 {
				kept[next] = values[i]
			}
		}
	})
	if err != nil {
		return err
	}
	writeCorners(&b, shape, kept, "", s.bits())
	_, err = io.WriteString(w, b.String())
	return err
}

// labelsText names the rows: tokens 0-6, executions 3,9.
func (s *Slice) labelsText() string {
	var runs []string
	for i := 0; i < len(s.parts); {
		first, next := s.parts[i].label, s.parts[i].label+s.parts[i].rows
		for i++; i < len(s.parts) && s.parts[i].label == next; i++ {
			next += s.parts[i].rows
		}
		if next == first+1 {
			runs = append(runs, fmt.Sprint(first))
		} else {
			runs = append(runs, fmt.Sprintf("%d-%d", first, next-1))
		}
	}
	const most = 8
	if len(runs) > most {
		runs = append(runs[:most-1], "…", runs[len(runs)-1])
	}
	plural := ""
	if s.Shape[0] != 1 {
		plural = "s"
	}
	return fmt.Sprintf("%s%s %s", s.Axis, plural, strings.Join(runs, ","))
}

// WriteJSON writes one object: name, ctx, dtype, shape, axis, the number of every row, what its Making says, and
// the values as nested lists, row by row. NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".
func (s *Slice) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	made, err := readMaking(s)
	if err != nil {
		return err
	}
	head, err := json.Marshal(struct {
		Name  string  `json:"name"`
		Ctx   uint32  `json:"ctx"`
		DType string  `json:"dtype"`
		Shape []int64 `json:"shape"`
		Axis  Axis    `json:"axis"`
		Rows  []int64 `json:"rows"`
		*Making
	}{s.Name, s.Ctx, s.DType.String(), s.Shape, s.Axis, s.labels(), made})
	if err != nil {
		return err
	}
	out.Write(head[:len(head)-1])
	out.WriteString(`,"values":[`)
	strides := make([]int64, len(s.Shape)) // in values, of an entry of each dimension
	for d, n := len(s.Shape)-1, int64(1); d >= 0; n, d = n*s.Shape[d], d-1 {
		strides[d] = n
	}
	err = s.eachValues(func(at int64, values []float64) {
		for i, v := range values {
			n := at + int64(i)
			if n > 0 {
				out.WriteByte(',')
			}
			if n%strides[0] == 0 {
				out.WriteByte('\n')
			}
			for _, stride := range strides[:len(strides)-1] {
				if n%stride == 0 {
					out.WriteByte('[')
				}
			}
			out.Write(appendJSONValue(out.AvailableBuffer(), v, s.bits()))
			for _, stride := range strides[:len(strides)-1] {
				if (n+1)%stride == 0 {
					out.WriteByte(']')
				}
			}
		}
	})
	if err != nil {
		return err
	}
	out.WriteString("\n]}\n")
	return out.Flush()
}

// bits is the size of the float type that values are written for.
func (s *Slice) bits() int {
	switch s.DType {
	case codec.F32, codec.F16, codec.BF16:
		return 32
	}
	return 64
}

// eachValues calls fn with the values of the slice in order, at most valuesAtOnce of them, and the number of the first:
// a row may be a whole packet, and its values take up to eight times its bytes. They are valid during the call.
func (s *Slice) eachValues(fn func(at int64, values []float64)) error {
	const valuesAtOnce = 16 << 10
	size := s.DType.Size()
	if s.rowBytes() == 0 {
		return nil
	}
	var decoder valueDecoder
	var values []float64
	var cut []byte // the beginning of an element whose end comes with the next bytes
	at := int64(0)
	decode := func(data []byte) (err error) {
		if values, err = decoder.append(values[:0], data, s.DType); err == nil {
			fn(at, values)
			at += int64(len(values))
		}
		return err
	}
	return s.eachBytes(func(data []byte) error {
		if n := min(size-len(cut), len(data)); len(cut) > 0 {
			cut, data = append(cut, data[:n]...), data[n:]
			if len(cut) < size {
				return nil
			}
			if err := decode(cut); err != nil {
				return err
			}
		}
		whole := len(data) / size * size
		cut = append(cut[:0], data[whole:]...)
		for piece := range slices.Chunk(data[:whole], valuesAtOnce*size) {
			if err := decode(piece); err != nil {
				return err
			}
		}
		return nil
	})
}

// valueDecoder decodes elements of any type to float64.
type valueDecoder struct{ narrow []float32 }

// append appends the elements of data. Every type but I64 fits float64 exactly; Raw gives the bytes.
func (v *valueDecoder) append(dst []float64, data []byte, d codec.DType) (_ []float64, err error) {
	le := binary.LittleEndian
	switch d {
	case codec.Raw:
		for _, b := range data {
			dst = append(dst, float64(b))
		}
	case codec.F64:
		for ; len(data) >= 8; data = data[8:] {
			dst = append(dst, math.Float64frombits(le.Uint64(data)))
		}
	case codec.I32:
		for ; len(data) >= 4; data = data[4:] {
			dst = append(dst, float64(int32(le.Uint32(data))))
		}
	case codec.I64:
		for ; len(data) >= 8; data = data[8:] {
			dst = append(dst, float64(int64(le.Uint64(data))))
		}
	default:
		if v.narrow, err = codec.AppendFloat32(v.narrow[:0], data, d); err != nil {
			return dst, err
		}
		for _, x := range v.narrow {
			dst = append(dst, float64(x))
		}
	}
	return dst, nil
}
