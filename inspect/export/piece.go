package export

import (
	"context"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// unknown stands for a number that is not known.
const unknown = -1

// row is one row of a piece: whose it is.
type row struct {
	at         int64 // its number in the piece
	index      int64 // token_index; unknown for one that is not a single token's
	first, end int64 // tokens that it is of: index and index+1, or those of the micro-batch
	id         int32
	pos        int32
	seqs       []int32
	request    int32
	phase      label.Phase
}

// seq is the row's first sequence; unknown also where it is of tokens of several.
func (r *row) seq() int32 {
	if len(r.seqs) == 0 || r.index < 0 && len(r.seqs) > 1 {
		return unknown
	}
	return r.seqs[0]
}

// piece is one tensor of one micro-batch, whole, and the rows of it that are chosen.
type piece struct {
	stream.Packet // of its first packet
	tensors.Layout
	rows    []row // chosen
	packets []int
}

// rowBytes is the size of a row as it is stored.
func (p *piece) rowBytes() int64 { return elementsOf(p.Shape) * int64(p.DType.Size()) }

func elementsOf(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// source goes through the chosen pieces of a run in the stream's order.
type source struct {
	run      *tensors.Run
	ctx      context.Context
	choose   *Selection
	progress func(done, total int64) // may be nil
	// Filled by each:
	torn    map[string]bool // tensors of which pieces are missing
	rebuilt map[string]bool // tensors of which type, shape and tokens are not known, because the index was lost

	chosen map[tensorKey]bool
	absent []string             // globs that name no tensor so far
	open   map[tensorKey]*piece // tensors in pieces, of which more come
	execs  map[uint64][]label.Row
	spare  []row
}

// tensorKey names a tensor of a context.
type tensorKey struct {
	ctx  uint32
	name string
}

// begin empties what each fills.
func (s *source) begin() {
	s.chosen, s.open, s.execs, s.torn, s.rebuilt = map[tensorKey]bool{}, map[tensorKey]*piece{},
		map[uint64][]label.Row{}, map[string]bool{}, map[string]bool{}
	s.absent = slices.Clone(s.choose.Tensors)
}

// eachPiece calls fn with every chosen piece; it is valid during the call.
func (s *source) eachPiece(fn func(*piece) error) error {
	s.begin()
	for i, p := range s.run.Stream.Packets() {
		if i%256 == 0 {
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			if s.progress != nil {
				s.progress(int64(i), int64(s.run.Stream.Len()))
			}
		}
		if err := s.addPacket(i, p, fn); err != nil {
			return err
		}
	}
	for key := range s.open {
		s.torn[key.name] = true
	}
	if err := s.run.Stream.Err(); err != nil {
		return err
	}
	return s.unnamed()
}

// addPacket adds a packet. A tensor in blocks is handed on with its last one.
func (s *source) addPacket(i int, p *stream.Packet, fn func(*piece) error) error {
	key := tensorKey{p.Ctx, p.Name}
	chosen, known := s.chosen[key]
	if !known {
		chosen = s.choose.tensor(p)
		s.chosen[key] = chosen
		s.absent = slices.DeleteFunc(s.absent, func(glob string) bool {
			return (&tensors.Filter{Tensor: glob}).Match(p)
		})
	}
	if !chosen {
		return nil
	}
	whole := s.open[key]
	if p.Blocks > 1 && p.SampleTotal == 0 && p.Block > 0 { // a sample of a block is a sample by itself
		if whole == nil || whole.Exec != p.Exec || len(whole.packets) != int(p.Block) {
			s.torn[p.Name] = true
			delete(s.open, key)
			return nil
		}
		whole.packets = append(whole.packets, i)
		if p.Block+1 < p.Blocks {
			return nil
		}
		delete(s.open, key)
		return s.emitPiece(whole, fn)
	}
	if whole != nil {
		s.torn[p.Name] = true
		delete(s.open, key)
	}
	begun := &piece{Packet: *p, Layout: tensors.LayoutOf(p), packets: []int{i}}
	if p.Blocks > 1 && p.SampleTotal == 0 {
		s.open[key] = begun
		return nil
	}
	return s.emitPiece(begun, fn)
}

// emitPiece finds out whose a piece's rows are, and hands it on if any is chosen.
func (s *source) emitPiece(p *piece, fn func(*piece) error) error {
	p.rows = s.spare[:0]
	s.chooseRows(p)
	s.spare = p.rows
	if len(p.rows) == 0 {
		return nil
	}
	return fn(p)
}

// chooseRows sets a piece's rows to those of its layout that are chosen.
func (s *source) chooseRows(p *piece) {
	var known []label.Row
	if p.Rebuilt {
		s.rebuilt[p.Name] = true
	} else {
		known = s.rowsOf(p.Exec)
	}
	p.rows = p.rows[:0]
	for i := range p.Layout.Rows {
		if r := rowOf(p, known, i); s.choose.row(&r) {
			p.rows = append(p.rows, r)
		}
	}
}

// rowOf returns the token that row i of a piece belongs to.
func rowOf(p *piece, known []label.Row, i int64) row {
	r := row{at: i, index: unknown, id: unknown, pos: unknown, request: unknown, phase: p.Phase,
		first: p.TokenFirst, end: p.TokenFirst + int64(p.TokenCount)}
	if p.Axis == tensors.AxisToken && i < int64(p.TokenCount) && p.TokenFirst >= 0 {
		r.index = p.TokenFirst + i
	} else if p.Axis != tensors.AxisToken && p.TokenCount == 1 {
		r.index = p.TokenFirst
	}
	if r.index >= 0 {
		r.first, r.end = r.index, r.index+1
	}
	if len(known) == 0 {
		return r
	}
	if r.index < 0 {
		for k := range known {
			for _, seq := range known[k].Seqs {
				if !slices.Contains(r.seqs, seq) {
					r.seqs = append(r.seqs, seq)
				}
			}
		}
		return r
	}
	at := r.index - known[0].Index
	if at < 0 || at >= int64(len(known)) || known[at].Index != r.index {
		return r
	}
	k := &known[at]
	r.id, r.pos, r.seqs, r.phase, r.request = k.Token, k.Pos, k.Seqs, k.Phase, k.Request
	return r
}

// rowsOf returns the rows of an execution. Few are kept: packets of one follow each other, but for contexts that
// compute at once.
func (s *source) rowsOf(exec uint64) []label.Row {
	rows, ok := s.execs[exec]
	if ok {
		return rows
	}
	if len(s.execs) >= 8 {
		clear(s.execs)
	}
	rows, _ = s.run.Stream.Rows(exec)
	s.execs[exec] = rows
	return rows
}

// read appends the elements of the whole piece to dst[:0], as they are stored.
func (s *source) read(p *piece, dst []byte) ([]byte, error) {
	dst = dst[:0]
	var packet stream.Packet
	for _, i := range p.packets {
		if err := s.run.Stream.Packet(i, &packet); err != nil {
			return dst, err
		}
		if len(p.packets) == 1 {
			return s.run.Stream.ReadInto(&packet, dst)
		}
		part, err := s.run.Stream.ReadInto(&packet, dst[len(dst):])
		if err != nil {
			return dst, err
		}
		dst = append(dst, part...)
	}
	if want := p.Layout.Rows * p.rowBytes(); int64(len(dst)) != want {
		return dst, fmt.Errorf("%s: tensor %s, execution %d: size %d bytes, and not %d: see 'llamatap verify'",
			s.run.Path, p.Name, p.Exec, len(dst), want)
	}
	return dst, nil
}

// appendRow appends row i of a piece whose elements are data, C order.
func (p *piece) appendRow(dst, data []byte, i int64) []byte {
	size := p.rowBytes()
	if p.Outer == 1 {
		return append(dst, data[i*size:(i+1)*size]...)
	}
	inner := size / p.Outer
	for o := range p.Outer {
		at := (o*p.Layout.Rows + i) * inner
		dst = append(dst, data[at:at+inner]...)
	}
	return dst
}
