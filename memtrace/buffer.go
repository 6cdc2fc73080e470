package memtrace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Usage is what a program said a buffer is for.
type Usage uint8

// The usages.
const (
	UsageAny Usage = iota // not said: caches and outputs, among others
	UsageWeights
	UsageCompute // intermediate results of graphs
)

// Buffer is a piece of memory that a ggml backend allocated, or took from a mapped file.
type Buffer struct {
	ID     uint64 // not 0
	Base   uint64 // address in the model's process if Host; else it means nothing outside of its device
	Size   uint64
	Host   bool
	Mapped bool // its memory is a mapped file's
	Usage  Usage
	Type   string // ggml's name of its kind: CPU, CPU_Mapped, CPU_REPACK, CUDA0, RPC[…]
	Device string
	From   int64 // CLOCK_MONOTONIC, when it was allocated
	To     int64 // when it was freed; Forever
	// File is the file that is mapped, as far as that is known, and FileOffset where in it the buffer begins.
	File       string
	FileOffset uint64
	cover      []*Region // by offset: tensors and gaps, which together are the whole buffer
	offsets    uint64    // of all tensors, one or the other: its lowest bit is what all of them are aligned to
	number     int       // in RegionMap.order
}

// Tensor is a tensor to be placed.
type Tensor struct {
	Name   string
	Layer  int
	Part   string // of a cache
	DType  string
	Shape  []int64
	Buffer uint64
	Offset uint64
	Bytes  uint64 // from its first byte past its last
}

// ErrPlace occurs when a tensor cannot lie where it should: outside of its buffer, in a buffer that was freed
// or is not known, or half in another tensor.
var ErrPlace = errors.New("no place for the tensor")

// asRegion returns the region that a buffer is before any tensor is known of.
func (b *Buffer) asRegion() Region {
	return Region{
		Type: b.restType(), Name: fmt.Sprintf("%s buffer %d", cmp.Or(b.Type, "unnamed"), b.ID), Layer: NoLayer,
		Buffer: b.ID, Bytes: b.Size,
		From: b.From, To: b.To, Ctx: -1,
	}
}

// holds is the type of a region of the buffer. llama.cpp says of no buffer that it is an adapter's.
func (b *Buffer) holds(r *Region) RegionType {
	switch {
	case r.Part != "":
		return KVCache
	case strings.HasSuffix(r.Tensor, ".lora_a") || strings.HasSuffix(r.Tensor, ".lora_b"):
		return Weight
	}
	return b.restType()
}

// restType returns the type of the bytes of a buffer outside its tensors.
func (b *Buffer) restType() RegionType {
	switch b.Usage {
	case UsageWeights:
		return Weight
	case UsageCompute:
		return ComputeBuffer
	}
	return Runtime
}

// index is the number of the region that a byte of the buffer lies in.
func (b *Buffer) index(offset uint64) int {
	return sort.Search(len(b.cover), func(i int) bool { r := b.cover[i]; return r.Offset+r.Bytes > offset })
}

// gap reports whether a region of a buffer is what lies between tensors.
func gap(r *Region) bool { return r.Tensor == "" }

// page is the most that a gap may have to count as padding.
const page = 4096

// padding reports whether a gap only brings the next tensor, or the buffer's end, to an offset as all tensors have.
func (b *Buffer) padding(i int) bool {
	align := uint64(page)
	if b.offsets != 0 {
		align = min(align, b.offsets&-b.offsets)
	}
	return i > 0 && b.cover[i].Bytes < align && b.Usage != UsageCompute
}

// settle says of the gaps from number first to last what they are, now that their neighbours are known.
func (b *Buffer) settle(first, last int) {
	for i := max(first, 0); i <= min(last, len(b.cover)-1); i++ {
		switch r := b.cover[i]; {
		case !gap(r):
		case b.padding(i):
			r.Type = Padding
		default:
			r.Type = b.restType()
		}
	}
}

// put makes a tensor's region part of the buffer. fresh gives regions their numbers.
func (b *Buffer) put(t Region, fresh func(Region) *Region) (*Region, error) {
	end := t.Offset + t.Bytes
	i, last := b.index(t.Offset), b.index(end-1)
	left, right := b.cover[i], b.cover[last]
	rightEnd := right.Offset + right.Bytes
	switch {
	case !gap(left) && end <= left.Offset+left.Bytes:
		return left, nil // a view, or another name of the same
	case !gap(left) && left.Offset < t.Offset, !gap(right) && end < rightEnd:
		return nil, fmt.Errorf("%w: %s at %d of buffer %d, %d bytes, lies half in another tensor", ErrPlace, t.Name,
			t.Offset, b.ID, t.Bytes)
	}
	r := fresh(t)
	row := make([]*Region, 0, 3)
	for _, within := range b.cover[i : last+1] {
		if gap(within) {
			continue
		}
		within.root = r // it was seen before the tensor that it is a view of
		r.Use.add(within.Use)
	}
	if gap(left) && left.Offset < r.Offset {
		left.Bytes = r.Offset - left.Offset
		row = append(row, left)
	}
	row = append(row, r)
	if gap(right) && end < rightEnd {
		if right == row[0] {
			right = fresh(b.asRegion())
		}
		right.Offset, right.Bytes = end, rightEnd-end
		row = append(row, right)
	}
	b.replace(i, last+1, row)
	return r, nil
}

// replace puts regions in the place of those from number i to end-1.
func (b *Buffer) replace(i, end int, row []*Region) {
	for _, gone := range b.cover[i:end] {
		if gap(gone) && !slices.Contains(row, gone) {
			gone.Bytes = 0
		}
	}
	b.cover = slices.Replace(b.cover, i, end, row...)
	before := b.offsets & -b.offsets
	for _, r := range row {
		if !gap(r) {
			b.offsets |= r.Offset
		}
	}
	if b.offsets&-b.offsets != before {
		b.settle(0, len(b.cover))
	} else {
		b.settle(i-1, i+len(row))
	}
}
