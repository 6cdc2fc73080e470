package export

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// array is all chosen rows of a tensor that have one element type and one shape: a rectangle.
type array struct {
	label     string // its name, with context and shape where the tensor's name alone is not enough
	tensor    string
	ctx       uint32
	layer     int32
	component label.Component
	op        string
	ggmlType  int
	dtype     codec.DType
	axis      tensors.Axis
	shape     []int64 // of a row, C order
	sampled   bool
	count     int64 // rows
	table     *rowTable

	sum  hash.Hash // of whose the rows are
	out  place
	wide []byte
}

// rowBytes is the size of a row as it is stored.
func (a *array) rowBytes() int64 { return elementsOf(a.shape) * int64(a.dtype.Size()) }

// rowTable says whose the rows of arrays are. Arrays with the same rows share one.
type rowTable struct {
	name  string
	first *array // by which it is written
	count int64
	outs  []place // one per field, or one for all
}

// arrayKey identifies an array.
type arrayKey struct {
	tensorKey
	dtype codec.DType
	axis  tensors.Axis
	shape [4]int64 // of a row, without dimensions of 1; 0 after the end
}

func keyOf(p *piece) arrayKey {
	key := arrayKey{tensorKey: tensorKey{p.Ctx, p.Name}, dtype: p.DType, axis: p.Axis}
	copy(key.shape[:], squeeze(p.Shape))
	return key
}

// squeeze leaves out dimensions of 1, which some tensors have in micro-batches of one token and not in others.
func squeeze(shape []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(shape), func(n int64) bool { return n == 1 })
}

// arrays is the plan of an export of arrays.
type arrays struct {
	all    []*array // in the stream's order
	byKey  map[arrayKey]*array
	tables []*rowTable
}

// newArray begins the array of a piece.
func newArray(p *piece) *array {
	return &array{tensor: p.Name, ctx: p.Ctx, layer: p.Layer, component: p.Component, op: p.Op, ggmlType: p.SrcType,
		dtype: p.DType, axis: p.Axis, shape: slices.Clone(p.Shape), sampled: p.SampleTotal > 0, sum: fnv.New128a()}
}

// plan goes through the index and finds out which arrays there will be.
func plan(s *source) (*arrays, error) {
	all := &arrays{byKey: map[arrayKey]*array{}}
	err := s.eachPiece(func(p *piece) error {
		key := keyOf(p)
		a := all.byKey[key]
		if a == nil {
			a = newArray(p)
			all.byKey[key] = a
			all.all = append(all.all, a)
		}
		if !slices.Equal(a.shape, p.Shape) {
			a.shape = squeeze(a.shape)
		}
		var whose [24]byte
		for i := range p.rows {
			binary.LittleEndian.PutUint64(whose[:], p.Exec)
			binary.LittleEndian.PutUint64(whose[8:], uint64(p.rows[i].index))
			binary.LittleEndian.PutUint64(whose[16:], p.SampleSeed)
			a.sum.Write(whose[:])
		}
		a.count += int64(len(p.rows))
		return nil
	})
	if err == nil && len(all.all) == 0 {
		err = s.emptySelectionError()
	}
	if err != nil {
		return nil, err
	}
	all.label()
	all.share()
	return all, nil
}

// label names the arrays: as their tensors, with the context where there are several, and with the shape, the element
// type and the axis where rows of a tensor have several.
func (all *arrays) label() {
	contexts, first, several := map[uint32]bool{}, map[tensorKey][3]string{}, map[tensorKey][3]bool{}
	for _, a := range all.all {
		contexts[a.ctx] = true
		key, kinds := tensorKey{a.ctx, a.tensor}, a.kinds()
		if _, known := first[key]; !known {
			first[key] = kinds
		}
		differ := several[key]
		for i, kind := range kinds {
			differ[i] = differ[i] || kind != first[key][i]
		}
		several[key] = differ
	}
	for _, a := range all.all {
		a.label = a.tensor
		if len(contexts) > 1 {
			a.label = fmt.Sprintf("ctx%d.%s", a.ctx, a.label)
		}
		for i, kind := range a.kinds() {
			if several[tensorKey{a.ctx, a.tensor}][i] {
				a.label += "@" + kind
			}
		}
	}
}

// kinds are what distinguishes an array from others of its tensor.
func (a *array) kinds() [3]string {
	return [...]string{shapeText(a.shape), a.dtype.String(), string(a.axis)}
}

// shapeText writes a shape as 8x256, that of a single number as 1.
func shapeText(shape []int64) string {
	if len(shape) == 0 {
		return "1"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", "x"), "[]")
}

// share gives arrays with the same rows one table.
func (all *arrays) share() {
	tables := map[string]*rowTable{}
	for _, a := range all.all {
		key := fmt.Sprint(a.sampled, a.count) + string(a.sum.Sum(nil))
		t := tables[key]
		if t == nil {
			t = &rowTable{name: fmt.Sprintf("rows-%d", len(all.tables)), first: a, count: a.count}
			tables[key] = t
			all.tables = append(all.tables, t)
		}
		a.table, a.sum = t, nil
	}
}

// fill goes through the stream and writes every row at its place. put writes whose a row is.
func (all *arrays) fill(s *source, widen bool, put func(*rowTable, *piece, *row) error) error {
	limit := min(max(bufferBytes/(2*len(all.all)+1), minBuffer), maxBuffer)
	for _, a := range all.all {
		a.out.limit = limit
		for i := range a.table.outs {
			a.table.outs[i].limit = limit / len(a.table.outs)
		}
	}
	var data, turned []byte
	err := s.eachPiece(func(p *piece) (err error) {
		if data, err = s.read(p, data); err != nil {
			return err
		}
		a := all.byKey[keyOf(p)]
		for i := range p.rows {
			turned = p.appendRow(turned[:0], data, p.rows[i].at)
			if err := a.write(turned, widen); err != nil {
				return err
			}
			if a.table.first == a {
				if err := put(a.table, p, &p.rows[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return all.flush()
}

func (a *array) write(data []byte, widen bool) error {
	if widen && a.dtype == codec.BF16 {
		a.wide = tensors.AppendWidened(a.wide[:0], data)
		data = a.wide
	}
	return a.out.write(data)
}

func (all *arrays) flush() error {
	for _, a := range all.all {
		if err := a.out.flush(); err != nil {
			return err
		}
	}
	for _, t := range all.tables {
		for i := range t.outs {
			if err := t.outs[i].flush(); err != nil {
				return err
			}
		}
	}
	return nil
}
