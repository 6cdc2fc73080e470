package gguf

import (
	"sort"
)

// DefaultAlignment is the alignment of tensor data where general.alignment does not say otherwise.
const DefaultAlignment = 32

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

// pad rounds n up to a multiple of align, a power of two.
func pad(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
