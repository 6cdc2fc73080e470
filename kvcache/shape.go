package kvcache

import "github.com/llamatap/llamatap/store/label"

// Kind is a kind of cache. A context has at most one of each.
type Kind uint8

// The kinds.
const (
	Base      Kind = iota // keys and values of attention over everything
	SWA                   // those of layers with a sliding window, which llama.cpp keeps apart
	Recurrent             // states of recurrent layers: one cell per sequence
)

var kinds = label.Names[Kind]{What: "kind of memory", All: []string{"base", "swa", "recurrent"}}

// String returns the kind's name as written in files.
func (k Kind) String() string { return kinds.Text(k) }

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's name.
func (k *Kind) UnmarshalText(text []byte) error { return label.Unmarshal(k, text, kinds.Parse) }

// Tensor says which of a layer's tensors a part of a cache is.
type Tensor byte

// The tensors: keys and values of attention, and the two states of a recurrent layer, as llama.cpp names them.
const (
	K Tensor = 'k'
	V Tensor = 'v'
	R Tensor = 'r' // of the convolution
	S Tensor = 's' // of the recurrence
)

// String returns the tensor's letter.
func (t Tensor) String() string { return string(rune(t)) }

// Part is what one tensor of one layer holds of each cell.
type Part struct {
	Layer     int32
	Tensor    Tensor
	CellBytes int64 // of one cell, exactly: a row of the tensor
}

// DefaultBlock is how many cells a block has if nothing else is asked for.
const DefaultBlock = 32

// Shape is how many cells a cache has, and how they are counted.
type Shape struct {
	Kind    Kind
	Streams int // parts of the cache that sequences do not share: 1 for a unified cache, else one per sequence
	Size    int // cells of a stream
	Block   int // cells of a block; 0: DefaultBlock, and 1 for recurrent states. No block reaches over two streams.
}

func (s *Shape) settle() {
	s.Streams = max(s.Streams, 1)
	if s.Kind == Recurrent {
		s.Size, s.Streams, s.Block = s.Cells(), 1, 1
	} else if s.Block < 1 {
		s.Block = DefaultBlock
	}
}

// Cells is the number of cells of all streams.
func (s *Shape) Cells() int { return s.Streams * s.Size }

// blocksPerStream is the number of blocks of a stream; the last may have fewer cells.
func (s *Shape) blocksPerStream() int { return (s.Size + s.Block - 1) / s.Block }

// blockOf is the number of the block that a cell, counted over all streams, belongs to.
func (s *Shape) blockOf(cell int) int {
	return cell/s.Size*s.blocksPerStream() + cell%s.Size/s.Block
}

// blockCells are the cells of a block: first ≤ cell < end, counted over all streams.
func (s *Shape) blockCells(block int) (first, end int) {
	per := s.blocksPerStream()
	stream := block / per * s.Size
	first = stream + block%per*s.Block
	return first, min(first+s.Block, stream+s.Size)
}

// reach is the cells that positions of a sequence may lie in, those of its stream, or for -1 all cells.
func (s *Shape) reach(seq int32) (from, to int) {
	if seq < 0 {
		return 0, s.Cells()
	}
	from = s.streamOf(seq) * s.Size
	return from, from + s.Size
}

// streamOf is the stream that a sequence's cells lie in.
func (s *Shape) streamOf(seq int32) int {
	if s.Streams == 1 || seq < 0 || int(seq) >= s.Streams {
		return 0
	}
	return int(seq)
}
