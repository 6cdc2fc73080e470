package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// Writer writes a GGUF file as a stream. NewWriter writes the header, Write takes the tensors' bytes in the
// header's order and puts the padding between them, Close checks that all came. It never seeks and does not close
// what it writes to.
type Writer struct {
	out    io.Writer
	file   *File
	pos    int64 // in the file
	next   int   // tensor that the next byte belongs to
	closed bool
	err    error
}

// NewWriter lays the tensors out one after another in the order given (their Offset and Bytes are computed, what
// the caller put there is ignored) and writes a header of version 3. The alignment is general.alignment of meta, or
// defaultAlignment.
func NewWriter(out io.Writer, meta *Metadata, tensors []Tensor) (*Writer, error) {
	f, head, err := layout(meta, tensors)
	if err != nil {
		return nil, fmt.Errorf("lay out GGUF file: %w", err)
	}
	w := &Writer{out: out, file: f}
	w.put(head)
	w.fill(f.DataOffset)
	if w.err != nil {
		return nil, fmt.Errorf("write GGUF header: %w", w.err)
	}
	return w, nil
}

// File describes what is being written: final offsets and sizes.
func (w *Writer) File() *File { return w.file }

// Written is the number of bytes of the file written so far.
func (w *Writer) Written() int64 { return w.pos }

// Write takes further bytes of tensor data; one call may span tensors. p is not kept.
func (w *Writer) Write(p []byte) (int, error) {
	if w.closed {
		return 0, errors.New("write to a closed GGUF writer")
	}
	done := 0
	for len(p) > 0 && w.err == nil {
		t := w.current()
		if t == nil {
			w.err = fmt.Errorf("%d bytes more than the tensors have", len(p))
			break
		}
		w.fill(t.Offset)
		n := min(int64(len(p)), t.End()-w.pos)
		w.put(p[:n])
		p = p[n:]
		if w.err == nil {
			done += int(n)
		}
	}
	return done, w.err
}

// Close pads the last tensor and fails if bytes are missing.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	if w.err != nil {
		return w.err
	}
	if t := w.current(); t != nil {
		return fmt.Errorf("tensor %q lacks %d bytes", t.Name, t.End()-max(w.pos, t.Offset))
	}
	w.fill(w.file.Size)
	return w.err
}

// current is the tensor that the next byte belongs to, nil at the end.
func (w *Writer) current() *Tensor {
	for ; w.next < len(w.file.Tensors); w.next++ {
		if t := &w.file.Tensors[w.next]; t.Bytes > 0 && w.pos < t.End() {
			return t
		}
	}
	return nil
}

// zeros is what padding is made of.
var zeros [4096]byte

// fill writes zeros up to the offset to.
func (w *Writer) fill(to int64) {
	for w.pos < to && w.err == nil {
		w.put(zeros[:min(to-w.pos, int64(len(zeros)))])
	}
}

func (w *Writer) put(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.out.Write(p)
	w.pos += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.err = err
}

// layout computes every place of the file and the bytes of its header, without the padding behind it.
func layout(meta *Metadata, tensors []Tensor) (*File, []byte, error) {
	f := &File{Version: 3, Metadata: *meta, byName: make(map[string]int, len(tensors))}
	var err error
	if f.Alignment, err = meta.alignment(); err != nil {
		return nil, nil, err
	}
	if err := f.adopt(tensors); err != nil {
		return nil, nil, err
	}
	head, err := f.appendHeader(nil)
	if err != nil {
		return nil, nil, err
	}
	end := int64(0)
	for i := range f.Tensors {
		end = pad(f.Tensors[i].End(), f.Alignment)
	}
	f.Size = pad(int64(len(head)), f.Alignment) + end
	if err := f.setOffsets(int64(len(head))); err != nil {
		return nil, nil, err
	}
	return f, head, nil
}

// adopt copies the tensors and gives them sizes and offsets within the data section.
func (f *File) adopt(tensors []Tensor) error {
	f.Tensors = make([]Tensor, 0, len(tensors))
	offset := int64(0)
	for _, t := range tensors {
		if t.Name == "" || len(t.Name) > maxNameBytes || !utf8.ValidString(t.Name) {
			return fmt.Errorf("tensor name %q: 1 to %d bytes of valid text are possible", t.Name, maxNameBytes)
		}
		if _, twice := f.byName[t.Name]; twice {
			return fmt.Errorf("tensor %q stands twice", t.Name)
		}
		var err error
		if t.Bytes, err = t.size(); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		t.Offset = offset
		if offset = pad(t.End(), f.Alignment); offset < 0 {
			return fmt.Errorf("tensor %q ends beyond any file", t.Name)
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	return nil
}

func (f *File) appendHeader(dst []byte) ([]byte, error) {
	le := binary.LittleEndian
	dst = append(dst, "GGUF"...)
	dst = le.AppendUint32(dst, f.Version)
	dst = le.AppendUint64(dst, uint64(len(f.Tensors)))
	dst = le.AppendUint64(dst, uint64(f.Metadata.Len()))
	for _, kv := range f.Metadata.All() {
		var err error
		if dst, err = appendKV(dst, kv); err != nil {
			return nil, err
		}
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		dst = appendString(dst, t.Name)
		dst = le.AppendUint32(dst, uint32(len(t.Shape)))
		for _, d := range t.Shape {
			dst = le.AppendUint64(dst, uint64(d))
		}
		dst = le.AppendUint32(dst, uint32(t.Type))
		dst = le.AppendUint64(dst, uint64(t.Offset))
	}
	return dst, nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, uint64(len(s))), s...)
}

func appendKV(dst []byte, kv KV) ([]byte, error) {
	t, elem, ok := kv.Value.Type()
	if !ok {
		return nil, fmt.Errorf("key %q holds a %T, which GGUF cannot store", kv.Key, kv.Value.Data)
	}
	if kv.Key == "" || !utf8.ValidString(kv.Key) {
		return nil, fmt.Errorf("key name %q is not valid text", kv.Key)
	}
	dst = appendString(dst, kv.Key)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	if t == Array {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(elem))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(reflect.ValueOf(kv.Value.Data).Len()))
	}
	switch data := kv.Value.Data.(type) {
	case string:
		return appendString(dst, data), nil
	case []string:
		for _, s := range data {
			dst = appendString(dst, s)
		}
		return dst, nil
	default:
		return binary.Append(dst, binary.LittleEndian, data)
	}
}
