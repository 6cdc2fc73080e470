package gguf

import (
	"fmt"
	"sort"
)

// defaultAlignment is the alignment of tensor data where general.alignment does not say otherwise.
const defaultAlignment = 32

// File is everything of a GGUF file but the tensor data, as Open and Read checked it.
type File struct {
	// Version of the format, 2 or 3.
	Version uint32
	// Metadata are the key-values.
	Metadata Metadata
	// Tensors are the tensors in the order of the header.
	Tensors []Tensor
	// Alignment is what every tensor's place in the data section is a multiple of.
	Alignment int64
	// DataOffset is where the data section begins, in bytes from the start of the file.
	DataOffset int64
	// Size is the size of the file in bytes, or -1 where it came as a stream.
	Size int64

	byName   map[string]int
	byOffset []int // indices of the tensors that have bytes, by offset
}

// Tensor finds a tensor by name. The result belongs to f.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return nil, false
	}
	return &f.Tensors[i], true
}

// At finds the tensor that holds the byte at offset, counted from the start of the file. Header and padding belong
// to none.
func (f *File) At(offset int64) (*Tensor, bool) {
	i := sort.Search(len(f.byOffset), func(i int) bool { return f.Tensors[f.byOffset[i]].End() > offset })
	if i == len(f.byOffset) {
		return nil, false
	}
	if t := &f.Tensors[f.byOffset[i]]; t.Offset <= offset {
		return t, true
	}
	return nil, false
}

// Next finds the first tensor that begins behind offset, counted from the start of the file.
func (f *File) Next(offset int64) (*Tensor, bool) {
	i := sort.Search(len(f.byOffset), func(i int) bool { return f.Tensors[f.byOffset[i]].Offset > offset })
	if i == len(f.byOffset) {
		return nil, false
	}
	return &f.Tensors[f.byOffset[i]], true
}

// TensorBytes is the size of all tensors, padding not included.
func (f *File) TensorBytes() int64 {
	var n int64
	for i := range f.Tensors {
		n += f.Tensors[i].Bytes
	}
	return n
}

// Parameters is the number of values in all tensors.
func (f *File) Parameters() int64 {
	var n int64
	for i := range f.Tensors {
		n += f.Tensors[i].Values()
	}
	return n
}

// setOffsets turns the tensors' offsets into file offsets, given where the header ends, and checks that they are
// aligned, apart from each other and inside the file.
func (f *File) setOffsets(headerEnd int64) error {
	f.DataOffset = pad(headerEnd, f.Alignment)
	f.byOffset = f.byOffset[:0]
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset%f.Alignment != 0 {
			return fmt.Errorf(
				"%w: tensor %q begins at offset %d of the data section, which is not a multiple of the alignment %d",
				ErrMalformed, t.Name, t.Offset, f.Alignment)
		}
		if t.End() < 0 || t.End()+f.DataOffset < 0 {
			return fmt.Errorf("%w: tensor %q ends beyond any file", ErrMalformed, t.Name)
		}
		t.Offset += f.DataOffset
		if t.Bytes > 0 {
			f.byOffset = append(f.byOffset, i)
		}
	}
	sort.SliceStable(f.byOffset, func(a, b int) bool {
		return f.Tensors[f.byOffset[a]].Offset < f.Tensors[f.byOffset[b]].Offset
	})
	end := int64(0)
	var last *Tensor
	for _, i := range f.byOffset {
		t := &f.Tensors[i]
		if last != nil && t.Offset < end {
			return fmt.Errorf("%w: tensor %q begins at byte %d, inside tensor %q (bytes %d to %d)",
				ErrMalformed, t.Name, t.Offset, last.Name, last.Offset, end)
		}
		last, end = t, t.End()
	}
	if f.Size >= 0 && end > f.Size {
		return fmt.Errorf("%w: tensor %q should end at byte %d, the file ends at byte %d",
			ErrTruncated, last.Name, end, f.Size)
	}
	return nil
}

// pad rounds n up to a multiple of align, a power of two.
func pad(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
