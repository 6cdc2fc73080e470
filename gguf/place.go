package gguf

import (
	"fmt"
	"sort"
)

// place turns the tensors' offsets into file offsets, given where the header ends, and checks that they are
// aligned, apart from each other and inside the file.
func (f *File) place(headerEnd int64) error {
	f.DataOffset = pad(headerEnd, f.Alignment)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset%f.Alignment != 0 {
			return fmt.Errorf(
				"%w: tensor %q begins at offset %d of the data section, which is no multiple of the alignment %d",
				ErrMalformed, t.Name, t.Offset, f.Alignment)
		}
		if t.End() < 0 || t.End()+f.DataOffset < 0 {
			return fmt.Errorf("%w: tensor %q ends beyond any file", ErrMalformed, t.Name)
		}
		t.Offset += f.DataOffset
	}
	f.sortByOffset()
	if err := f.checkOverlap(); err != nil {
		return err
	}
	return f.checkEnd()
}

func (f *File) sortByOffset() {
	f.byOffset = f.byOffset[:0]
	for i := range f.Tensors {
		if f.Tensors[i].Bytes > 0 {
			f.byOffset = append(f.byOffset, i)
		}
	}
	sort.SliceStable(f.byOffset, func(a, b int) bool {
		return f.Tensors[f.byOffset[a]].Offset < f.Tensors[f.byOffset[b]].Offset
	})
}

func (f *File) checkOverlap() error {
	for i := 1; i < len(f.byOffset); i++ {
		before, t := &f.Tensors[f.byOffset[i-1]], &f.Tensors[f.byOffset[i]]
		if t.Offset < before.End() {
			return fmt.Errorf("%w: tensor %q begins at byte %d, inside tensor %q (bytes %d to %d)",
				ErrMalformed, t.Name, t.Offset, before.Name, before.Offset, before.End())
		}
	}
	return nil
}

func (f *File) checkEnd() error {
	if f.Size < 0 || len(f.byOffset) == 0 {
		return nil
	}
	if last := &f.Tensors[f.byOffset[len(f.byOffset)-1]]; last.End() > f.Size {
		return fmt.Errorf("%w: tensor %q should end at byte %d, the file ends at byte %d",
			ErrTruncated, last.Name, last.End(), f.Size)
	}
	return nil
}
