package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"
)

// headBufferBytes is how much of the file is read at a time.
const headBufferBytes = 64 << 10

// leastTensorBytes and leastKVBytes are the smallest that one entry of the header can be.
const (
	leastTensorBytes = 8 + 4 + 4 + 8
	leastKVBytes     = 8 + 4 + 1
)

// Open reads and checks the header of the file at path. Nothing stays open.
func Open(path string) (*File, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: name the .gguf file in it", path)
	}
	size := info.Size()
	if !info.Mode().IsRegular() {
		f, err := readStream(in)
		return f, inFile(path, err)
	}
	f, err := Read(in, size)
	return f, inFile(path, err)
}

func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Read reads and checks the header of a file of size bytes. Of the tensor data it checks only that it is there.
func Read(r io.ReaderAt, size int64) (*File, error) {
	return decode(io.NewSectionReader(r, 0, size), size)
}

// ReadBytes is Read of a file in memory.
func ReadBytes(data []byte) (*File, error) { return Read(bytes.NewReader(data), int64(len(data))) }

// readStream reads and checks the header from a stream whose length is not known; that the tensor data is complete
// is left to whoever reads it. It may have read more from r than the header.
func readStream(r io.Reader) (*File, error) {
	return decode(r, -1)
}

func decode(r io.Reader, size int64) (*File, error) {
	h := header{
		decoder: &decoder{r: bufio.NewReaderSize(r, headBufferBytes), size: size},
		file:    &File{Size: size},
	}
	nTensors, nKV := h.preamble()
	h.metadata(nKV)
	h.tensors(nTensors)
	if h.err != nil {
		return nil, h.err
	}
	if err := h.file.setOffsets(h.pos); err != nil {
		return nil, err
	}
	return h.file, nil
}

// header reads the parts of a file's header into a File. Fields come from the decoder, which keeps the first error.
type header struct {
	*decoder
	file *File
}

// preamble reads magic, version and the two counts.
func (h header) preamble() (tensors, kvs int64) {
	var magic [4]byte
	if !h.full(magic[:]) {
		if h.size == 0 {
			h.err = fmt.Errorf("%w: it is empty", ErrNotGGUF)
		} else if h.pos < 4 {
			h.err = fmt.Errorf("%w: it has only %d bytes", ErrNotGGUF, h.pos)
		}
		return 0, 0
	}
	if string(magic[:]) != "GGUF" {
		h.fail(fmt.Errorf("%w: it begins with %q instead of \"GGUF\"%s", ErrNotGGUF, magic[:], guess(magic)))
		return 0, 0
	}
	h.file.Version = h.u32()
	if err := checkVersion(h.file.Version); err != nil {
		h.fail(err)
		return 0, 0
	}
	tensors = h.count("tensor count", leastTensorBytes)
	return tensors, h.count("key count", leastKVBytes)
}

// guess names what a file might be that is not GGUF.
func guess(magic [4]byte) string {
	switch string(magic[:]) {
	case "lmgg", "tjgg", "fmgg", "algg":
		return " (a ggml file from before GGUF; convert it with llama.cpp's converter)"
	case "PK\x03\x04":
		return " (a zip archive, perhaps a PyTorch checkpoint; convert it with llama.cpp's converter)"
	case "vers":
		return " (a Git LFS pointer; fetch the real file with 'git lfs pull')"
	}
	if magic[0] == '<' {
		return " (a web page; the download went wrong)"
	}
	return ""
}

func checkVersion(v uint32) error {
	switch {
	case v == 2 || v == 3:
		return nil
	case v == 1:
		return fmt.Errorf("%w 1: convert the model again with a current llama.cpp", ErrVersion)
	case v != 0 && v&0xffff == 0:
		var p [4]byte
		binary.LittleEndian.PutUint32(p[:], v)
		return fmt.Errorf("%w: version %d in big-endian byte order; a little-endian file is needed",
			ErrVersion, binary.BigEndian.Uint32(p[:]))
	}
	return fmt.Errorf("%w %d: versions 2 and 3 can be read", ErrVersion, v)
}

func (h header) metadata(n int64) {
	for i := int64(0); i < n && h.err == nil; i++ {
		key := h.str()
		if h.err == nil && (key == "" || !utf8.ValidString(key)) {
			h.malformed("name %q of key %d of %d is not valid text", key, i, n)
		}
		v := h.value(key)
		if h.err != nil {
			h.err = fmt.Errorf("key %d of %d: %w", i, n, h.err)
			return
		}
		if err := checkText(key, v); err != nil {
			h.malformed("%v", err)
			return
		}
		if err := h.file.Metadata.add(KV{key, v}); err != nil {
			h.malformed("%v", err)
			return
		}
	}
	if h.err == nil {
		var err error
		if h.file.Alignment, err = h.file.Metadata.alignment(); err != nil {
			h.malformed("%v", err)
		}
	}
}

// checkText refuses strings that are not UTF-8. A tokenizer's pieces may be any bytes.
func checkText(key string, v Value) error {
	if strings.HasPrefix(key, "tokenizer.") {
		return nil
	}
	switch s := v.Data.(type) {
	case string:
		if !utf8.ValidString(s) {
			return fmt.Errorf("the text of key %q is not UTF-8", key)
		}
	case []string:
		for i := range s {
			if !utf8.ValidString(s[i]) {
				return fmt.Errorf("text %d of key %q is not UTF-8", i, key)
			}
		}
	}
	return nil
}

// alignmentKey is the one key that changes how the file is read.
const alignmentKey = "general.alignment"

// alignment is that of the tensors of a file with this metadata.
func (m *Metadata) alignment() (int64, error) {
	v, ok := m.Value(alignmentKey)
	if !ok {
		return defaultAlignment, nil
	}
	a, ok := v.Data.(uint32)
	if !ok || a == 0 || a&(a-1) != 0 {
		return 0, fmt.Errorf("%s is %v, not a uint32 power of two", alignmentKey, v.Data)
	}
	return int64(a), nil
}

func (h header) tensors(n int64) {
	f := h.file
	f.byName = make(map[string]int)
	for i := int64(0); i < n && h.err == nil; i++ {
		t := h.tensor()
		if h.err != nil {
			h.err = fmt.Errorf("tensor %d of %d: %w", i, n, h.err)
			return
		}
		if _, twice := f.byName[t.Name]; twice {
			h.malformed("tensor %q stands twice", t.Name)
			return
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
}

// tensor reads one tensor's entry. Its Offset still counts from the start of the data section.
func (h header) tensor() Tensor {
	t := Tensor{Name: h.str()}
	switch {
	case h.err != nil:
		return t
	case t.Name == "" || !utf8.ValidString(t.Name):
		h.malformed("tensor name %q is not valid text", t.Name)
	case len(t.Name) > maxNameBytes:
		h.malformed("tensor name %.20q… has %d bytes, ggml holds at most %d", t.Name, len(t.Name), maxNameBytes)
	}
	dims := h.u32()
	if dims > maxDims {
		h.malformed("tensor %q has %d dimensions, ggml knows at most %d", t.Name, dims, maxDims)
		return t
	}
	t.Shape = make([]int64, dims)
	for i := range t.Shape {
		t.Shape[i] = int64(h.u64())
	}
	t.Type = Type(h.u32())
	offset := h.u64()
	if h.err != nil {
		return t
	}
	var err error
	if t.Bytes, err = t.size(); err != nil {
		h.malformed("tensor %q: %v", t.Name, err)
	}
	if offset > math.MaxInt64/2 {
		h.malformed("tensor %q begins at impossible offset %d", t.Name, offset)
	}
	t.Offset = int64(offset)
	return t
}
