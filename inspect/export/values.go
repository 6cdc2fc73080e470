package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
)

// ErrInexact is wrapped when a value of a tensor is not one of float32's.
var ErrInexact = errors.New("float32 cannot hold it")

// plain replaces the bytes of a block-quantised piece by its values as float32, and its layout by theirs.
func (s *source) plain(p *piece, data []byte) ([]byte, error) {
	if p.DType != codec.Raw {
		return data, nil
	}
	t := gguf.Type(p.SrcType)
	values := make([]float32, p.NE[0]*p.NE[1]*p.NE[2]*p.NE[3])
	err := errors.ErrUnsupported
	if n, sizeErr := t.RowBytes(int64(len(values))); sizeErr == nil && n == int64(len(data)) {
		err = gguf.DecodeRow(values, t, data)
	}
	if err != nil {
		return nil,
			fmt.Errorf(
				"%s: tensor %s is %v, which is not decoded here: leave it out with --tensor or --component, or "+
					"export it as npy, byte by byte",
				s.run.Path, p.Name, t)
	}
	p.DType, p.RawBytes = codec.F32, int64(4*len(values))
	p.Layout = tensors.LayoutOf(&p.Packet)
	s.chooseRows(p)
	plain := make([]byte, 0, p.RawBytes)
	for _, v := range values {
		plain = binary.LittleEndian.AppendUint32(plain, math.Float32bits(v))
	}
	return plain, nil
}

// appendFloats appends the elements of a row as float32; one that float32 cannot hold is ErrInexact.
func (s *source) appendFloats(dst []float32, data []byte, p *piece) ([]float32, error) {
	before := len(dst)
	dst, err := codec.AppendFloat32(dst, data, p.DType)
	if err != nil {
		return dst, err
	}
	if p.DType != codec.I32 && p.DType != codec.I64 && p.DType != codec.F64 {
		return dst, nil
	}
	le := binary.LittleEndian
	for i, v := range dst[before:] {
		exact := true
		switch p.DType {
		case codec.I32:
			exact = float64(v) == float64(int32(le.Uint32(data[4*i:])))
		case codec.I64:
			n := int64(le.Uint64(data[8*i:]))
			exact = v < 1<<63 && int64(v) == n
		case codec.F64:
			x := math.Float64frombits(le.Uint64(data[8*i:]))
			exact = float64(v) == x || x != x
		}
		if !exact {
			return dst,
				fmt.Errorf(
					"%s: tensor %s of type %v, execution %d: %w: leave it out with --tensor or --component, or "+
						"export it as npy",
					s.run.Path, p.Name, p.DType, p.Exec, ErrInexact)
		}
	}
	return dst, nil
}
