package tensors

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// Axis says what the first dimension of a Slice runs over.
type Axis string

// The axes.
const (
	AxisToken     Axis = "token"     // one row per token
	AxisExecution Axis = "execution" // one row per micro-batch: no dimension of the tensor runs over tokens
	AxisPacket    Axis = "packet"    // one row per packet: samples, block-quantised bytes, streams without index
	// AxisRow is one row per greatest common divisor of the packets' lengths: a stream without index says neither
	// shapes nor tokens, and a packet of a prompt holds as many rows as it has tokens.
	AxisRow Axis = "row"
)

// ErrRagged is wrapped when the rows of a tensor have different shapes, or run over different things, so that they are
// no array.
var ErrRagged = errors.New("rows differ")

// Slice is one tensor of a run, or some tokens of it, as an array with the token axis first and the other
// dimensions in C order. It holds places in the stream, not values.
type Slice struct {
	Name  string
	Ctx   uint32
	DType codec.DType // of the stored elements
	Axis  Axis
	Shape []int64 // Shape[0] is the number of rows

	run   *Run
	parts []part
	more  [][]int32 // numbers of further packets, of tensors that were cut into pieces
}

// mostParts bounds the parts of a slice.
const mostParts = 1 << 22

// part is what one execution, or one packet, adds to a slice. A slice of a long run has many.
type part struct {
	packet int32 // number of its first one
	more   int32 // place in Slice.more + 1; 0: there are none
	label  int64 // token, execution or packet number of the first row
	skip   int64 // rows left out at the beginning
	rows   int64 // rows taken
	form   *form
}

// form is what many parts have in common.
type form struct {
	shape []int64 // of one row, C order
	outer int64   // >1: the row dimension is not the slowest, so that the part is transposed
	total int64   // rows that are there
}

// packets are the numbers of a part's packets, in stream order.
func (s *Slice) packets(pt *part) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		if yield(pt.packet) && pt.more > 0 {
			slices.Values(s.more[pt.more-1])(yield)
		}
	}
}

// SliceOptions says which tensor, and which of its tokens.
type SliceOptions struct {
	Tensor string // packet name, or with Layer the name without its layer suffix
	Layer  *int
	Ctx    *uint32 // needed only when several contexts have the tensor
	// First and End select token indices First ≤ i < End; End -1 means no end. The zero value with End 0 selects all.
	First, End int64
}

// NewSlice finds a tensor. A name that is not there is an error that lists those that are.
func NewSlice(r *Run, o SliceOptions) (*Slice, error) {
	if o.End == 0 {
		o.First, o.End = 0, -1
	}
	s := &Slice{run: r}
	names := o.names()
	found := false
	b := sliceBuilder{slice: s, options: o, forms: map[formKey]*form{}}
	for i, p := range r.Stream.Packets() {
		if !slices.Contains(names, p.Name) || o.Layer != nil && int(p.Layer) != *o.Layer && r.Kind != KindForeign ||
			o.Ctx != nil && p.Ctx != *o.Ctx {
			continue
		}
		found = true
		if err := b.add(i, p); err != nil {
			return nil, err
		}
	}
	if err := r.Stream.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Path, err)
	}
	if !found {
		return nil, r.Unknown(Filter{Layer: o.Layer, Tensor: o.Tensor})
	}
	if len(s.parts) == 0 {
		return nil, fmt.Errorf("%s: tensor %s has no row for token %s: it has %s", r.Path, o.Tensor, tokenRange(o),
			b.have())
	}
	return s, b.finish()
}

// names returns the packet names that the options may mean.
func (o SliceOptions) names() []string {
	if o.Layer == nil {
		return []string{o.Tensor}
	}
	node, occurrence, _ := strings.Cut(o.Tensor, "#")
	if occurrence != "" {
		occurrence = "#" + occurrence
	}
	return []string{o.Tensor, fmt.Sprintf("%s-%d%s", node, *o.Layer, occurrence)}
}

func tokenRange(o SliceOptions) string {
	switch {
	case o.End == o.First+1:
		return fmt.Sprint(o.First)
	case o.End < 0:
		return fmt.Sprintf("%d and after", o.First)
	}
	return fmt.Sprintf("%d to %d", o.First, o.End-1)
}

// sliceBuilder gathers the parts of one slice in stream order.
type sliceBuilder struct {
	slice       *Slice
	options     SliceOptions
	open        bool  // the last part waits for more pieces
	first, last int64 // tokens that exist
	any         bool
	forms       map[formKey]*form
}

// formKey identifies a form.
type formKey struct {
	outer, total int64
	dims         int
	shape        [4]int64
}

func (b *sliceBuilder) add(i int, p *stream.Packet) error {
	s := b.slice
	if b.any && (p.Ctx != s.Ctx) {
		return fmt.Errorf("%s: tensor %s is there in contexts %d and %d: choose one with --ctx", s.run.Path, p.Name,
			s.Ctx, p.Ctx)
	}
	if p.Block > 0 {
		if b.open {
			last := &s.parts[len(s.parts)-1]
			if last.more == 0 {
				s.more = append(s.more, nil)
				last.more = int32(len(s.more))
			}
			s.more[last.more-1] = append(s.more[last.more-1], int32(i))
		}
		return nil
	}
	pt, axis := partOf(i, p)
	if s.run.Stream.Info().Assumed != "" { // executions have no numbers
		pt.label, axis = int64(i), AxisPacket
	}
	if !b.any {
		s.Name, s.Ctx, b.first = p.Name, p.Ctx, p.TokenFirst
	}
	b.any, b.last = true, max(b.last, p.TokenFirst+int64(p.TokenCount)-1)
	key := formKey{outer: pt.form.outer, total: pt.form.total, dims: len(pt.form.shape)}
	copy(key.shape[:], pt.form.shape)
	if known := b.forms[key]; known != nil {
		pt.form = known
	} else {
		b.forms[key] = pt.form
	}
	b.open = b.choose(&pt, p, axis)
	if !b.open {
		return nil
	}
	if len(s.parts) == 0 {
		s.DType, s.Axis = p.DType, axis
	}
	switch {
	case p.DType != s.DType:
		return fmt.Errorf("%s: tensor %s is stored as %v and as %v: choose tokens of one type with --token", s.run.Path,
			p.Name, s.DType, p.DType)
	case axis != s.Axis:
		return fmt.Errorf("%s: tensor %s: %w, one per %s and one per %s: choose tokens of one kind with --token",
			s.run.Path, p.Name, ErrRagged, s.Axis, axis)
	case len(s.parts) == mostParts:
		return fmt.Errorf("%s: tensor %s has more than %d packets: choose some with --token", s.run.Path, p.Name,
			mostParts)
	}
	s.parts = append(s.parts, pt)
	return nil
}

// Layout says how the elements of a packet, or of all pieces of a tensor that was cut, are rows.
type Layout struct {
	Axis  Axis
	Rows  int64
	Shape []int64 // of one row, C order
	// Outer above 1 means that the row dimension is not the slowest: the elements lie as [Outer][Rows][rest of a row].
	Outer int64
}

// LayoutOf is the layout of the tensor that a packet is, or begins.
func LayoutOf(p *stream.Packet) Layout {
	l := Layout{Axis: AxisPacket, Rows: 1, Outer: 1}
	switch {
	case p.SampleTotal > 0 || p.DType == codec.Raw || elements(p.NE)*int64(p.DType.Size()) != p.RawBytes &&
		p.Blocks <= 1:
		l.Shape = []int64{p.RawBytes / int64(p.DType.Size())}
		return l
	case p.Rows == label.RowsNone:
		l.Axis, l.Shape = AxisExecution, cOrder(p.NE)
		return l
	}
	dim := int(p.RowDim)
	l.Axis, l.Rows, l.Shape = AxisToken, p.NE[dim], rowShape(p.NE, dim)
	for d := dim + 1; d < len(p.NE); d++ {
		l.Outer *= p.NE[d]
	}
	return l
}

// partOf describes a packet that begins a part.
func partOf(i int, p *stream.Packet) (part, Axis) {
	l := LayoutOf(p)
	pt := part{packet: int32(i), rows: l.Rows, form: &form{shape: l.Shape, outer: l.Outer, total: l.Rows},
		label: int64(i)}
	switch l.Axis {
	case AxisExecution:
		pt.label = int64(p.Exec)
	case AxisToken:
		pt.label = p.TokenFirst
	}
	return pt, l.Axis
}

// rowShape is the shape of one row in C order: the dimensions above the row dimension, less leading ones, and all
// below it.
func rowShape(ne [4]int64, rowDim int) []int64 {
	shape := []int64{}
	for d := len(ne) - 1; d >= 0; d-- {
		if d < rowDim || d > rowDim && (ne[d] > 1 || len(shape) > 0) {
			shape = append(shape, ne[d])
		}
	}
	return shape
}

func cOrder(ne [4]int64) []int64 {
	shape := trimShape(ne)
	slices.Reverse(shape)
	return shape
}

func elements(ne [4]int64) int64 { return ne[0] * ne[1] * ne[2] * ne[3] }

// choose cuts a part to the wanted tokens and reports whether anything is left.
func (b *sliceBuilder) choose(pt *part, p *stream.Packet, axis Axis) bool {
	first, end := b.options.First, b.options.End
	if end < 0 {
		end = math.MaxInt64
	}
	all := first == 0 && end == math.MaxInt64
	if axis != AxisToken {
		return all || p.TokenFirst < end && p.TokenFirst+int64(p.TokenCount) > first
	}
	pt.skip = max(first-pt.label, 0)
	pt.rows = min(end-pt.label, pt.form.total) - pt.skip
	pt.label += pt.skip
	return pt.rows > 0
}

func (b *sliceBuilder) have() string {
	if b.first < 0 {
		return "no token numbers"
	}
	return fmt.Sprintf("tokens from %d to %d", b.first, b.last)
}

// finish sorts the parts by token and settles the shape.
func (b *sliceBuilder) finish() error {
	s := b.slice
	slices.SortStableFunc(s.parts, func(a, b part) int { return cmp.Compare(a.label, b.label) })
	if s.run.Stream.Info().Assumed != "" {
		b.cutPackets()
	}
	rows := int64(0)
	for _, pt := range s.parts {
		if pt.form != s.parts[0].form && !sameRow(pt.form.shape, s.parts[0].form.shape) {
			return fmt.Errorf("%s: tensor %s: %w in shape, %v and %v: choose tokens of one shape with --token",
				s.run.Path, s.Name, ErrRagged, s.parts[0].form.shape, pt.form.shape)
		}
		rows += pt.rows
	}
	s.Shape = append([]int64{rows}, s.parts[0].form.shape...)
	return nil
}

// sameRow reports whether rows of two shapes have the same elements in the same order: an inferred row dimension
// may be the one before or after a dimension of one.
func sameRow(a, b []int64) bool {
	wide := func(shape []int64) []int64 {
		return slices.DeleteFunc(slices.Clone(shape), func(n int64) bool { return n == 1 })
	}
	return slices.Equal(a, b) || slices.Equal(wide(a), wide(b))
}

// cutPackets makes rows of one length of packets that have several.
func (b *sliceBuilder) cutPackets() {
	s := b.slice
	width, one := int64(0), true
	for _, pt := range s.parts {
		one = one && pt.form.shape[0] == s.parts[0].form.shape[0]
		for a, b := width, pt.form.shape[0]; ; a, b = b, a%b {
			if b == 0 {
				width = a
				break
			}
		}
	}
	if one || width == 0 {
		return
	}
	s.Axis = AxisRow
	forms, label := map[int64]*form{}, int64(0)
	for i := range s.parts {
		pt := &s.parts[i]
		total := pt.form.shape[0] / width
		if forms[total] == nil {
			forms[total] = &form{shape: []int64{width}, outer: 1, total: total}
		}
		pt.rows, pt.form, pt.label = total, forms[total], label
		label += pt.rows
	}
}

// labels returns the number of every row: its token, execution or packet.
func (s *Slice) labels() []int64 {
	labels := make([]int64, 0, s.Shape[0])
	for _, pt := range s.parts {
		for i := int64(0); i < pt.rows; i++ {
			labels = append(labels, pt.label+i)
		}
	}
	return labels
}
