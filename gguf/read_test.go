package gguf

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func read(p []byte) (*File, error) { return Read(bytes.NewReader(p), int64(len(p))) }

func TestReadSmall(t *testing.T) {
	p := rawSmall()
	f, err := read(p)
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || f.Alignment != 32 || f.Size != int64(len(p)) || f.DataOffset != int64(len(p))-64-68 {
		t.Errorf("version %d, alignment %d, size %d, data at %d", f.Version, f.Alignment, f.Size, f.DataOffset)
	}
	if s, _ := f.Metadata.Text("general.architecture"); s != "llama" {
		t.Errorf("architecture %q", s)
	}
	if s, _ := f.Metadata.Texts("tokenizer.ggml.tokens"); len(s) != 3 || s[1] != "\xff" {
		t.Errorf("tokens %q: a tokenizer's pieces may be any bytes", s)
	}
	b, ok := f.Tensor("b")
	if !ok || b.Type != Q8_0 || b.Bytes != 68 || b.Offset != f.DataOffset+64 || b.Values() != 64 || b.End() != f.Size {
		t.Errorf("tensor b: %v, %+v", ok, b)
	}
	if b.String() != "b q8_0 [32 × 2]" {
		t.Errorf("String() = %q", b)
	}
	if _, ok := f.Tensor("c"); ok {
		t.Error("found a tensor that is not there")
	}
}

func TestAt(t *testing.T) {
	// "b" before "a" in the data, a gap of 32 bytes between, an empty one at the same place as "a"
	r := rawHead(3, 4, 0)
	r = r.tensor("a", 24, 96, 40).tensor("b", 24, 0, 33).tensor("none", 24, 96, 0).tensor("c", 24, 160, 1).padTo(32)
	data := int64(len(r))
	f, err := read(r.zeros(161))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   int64
		want string
	}{
		{-1, ""}, {0, ""}, {data - 1, ""}, {data, "b"}, {data + 32, "b"}, {data + 33, ""}, {data + 95, ""},
		{data + 96, "a"},
		{data + 135, "a"}, {data + 136, ""}, {data + 160, "c"}, {data + 161, ""}, {1 << 60, ""},
	} {
		got, ok := f.At(c.at)
		if ok != (c.want != "") || ok && got.Name != c.want {
			t.Errorf("At(data%+d) = %v, %v; want %q", c.at-data, got, ok, c.want)
		}
	}
}

// bad files, with the error that they must give and words that the message must have.
var bad = []struct {
	name string
	file raw
	err  error
	say  string
}{
	{"empty", nil, ErrNotGGUF, "empty"},
	{"two bytes", raw("GG"), ErrNotGGUF, "only 2 bytes"},
	{"text", raw("hello, this is text"), ErrNotGGUF, `"hell"`},
	{"old ggml", raw("lmggxxxx"), ErrNotGGUF, "before GGUF"},
	{"zip", raw("PK\x03\x04xxxx"), ErrNotGGUF, "PyTorch"},
	{"LFS pointer", raw("version https://git-lfs.github.com/spec/v1"), ErrNotGGUF, "git lfs pull"},
	{"web page", raw("<!DOCTYPE html>"), ErrNotGGUF, "web page"},
	{"version 0", rawHead(0, 0, 0), ErrVersion, "version 0"},
	{"version 1", rawHead(1, 0, 0), ErrVersion, "convert"},
	{"version 4", rawHead(4, 0, 0), ErrVersion, "versions 2 and 3"},
	{"big-endian", raw("GGUF\x00\x00\x00\x03").zeros(16), ErrVersion, "version 3 in big-endian"},
	{"tensor count", rawHead(3, 1<<40, 0), ErrTruncated, "tensor count 1099511627776 at byte 8"},
	{"negative count", rawHead(3, 1<<63, 0), ErrMalformed, "tensor count"},
	{"key count", rawHead(3, 0, 1<<40), ErrTruncated, "key count 1099511627776 at byte 16"},
	{"key length", rawHead(3, 0, 1).u64(1 << 50).zeros(64), ErrTruncated, "string length"},
	{"empty key", rawHead(3, 0, 1).text("").u32(4).u32(1), ErrMalformed, "key 0 of 1"},
	{"key not UTF-8", rawHead(3, 0, 1).text("a\xc0").u32(4).u32(1), ErrMalformed, "not valid text"},
	{"value type", rawHead(3, 0, 1).text("k").u32(13).zeros(8), ErrMalformed, `key "k" has unknown value type 13`},
	{"array of arrays", rawHead(3, 0, 1).text("k").u32(9).u32(9).u64(0), ErrMalformed, "array of array"},
	{"array type", rawHead(3, 0, 1).text("k").u32(9).u32(99).u64(0), ErrMalformed, "array of value type 99"},
	{"array length", rawHead(3, 0, 1).text("k").u32(9).u32(4).u64(1 << 40).
		zeros(64), ErrTruncated, `array length of key "k"`},
	{"bool", rawHead(3, 0, 1).text("k").u32(7).u8(2), ErrMalformed, "bool with value 2"},
	{"text not UTF-8", rawHead(3, 0, 1).text("k").u32(8).text("\xff"), ErrMalformed, `key "k" is not UTF-8`},
	{"texts not UTF-8", rawHead(3, 0, 1).text("k").u32(9).u32(8).u64(2).text("a").
		text("\xff"), ErrMalformed, `text 1 of key "k"`},
	{"key twice", rawHead(3, 0, 2).text("k").u32(4).u32(1).text("k").u32(4).
		u32(2), ErrMalformed, `key "k" stands twice`},
	{"alignment 0", rawHead(3, 0, 1).text("general.alignment").u32(4).u32(0), ErrMalformed, "general.alignment is 0"},
	{"alignment 48", rawHead(3, 0, 1).text("general.alignment").u32(4).u32(48), ErrMalformed, "power of two"},
	{"alignment type", rawHead(3, 0, 1).text("general.alignment").u32(10).u64(32), ErrMalformed, "uint32"},
	{"tensor twice", rawHead(3, 2, 0).tensor("t", 0, 0, 8).tensor("t", 0, 32, 8).padTo(32).
		zeros(64), ErrMalformed, `"t" stands twice`},
	{"long name", rawHead(3, 1, 0).tensor(strings.Repeat("n", 64), 0, 0, 8).padTo(32).
		zeros(32), ErrMalformed, "64 bytes"},
	{"no name", rawHead(3, 1, 0).tensor("", 0, 0, 8).padTo(32).zeros(32), ErrMalformed, "tensor name"},
	{"five dimensions", rawHead(3, 1, 0).tensor("t", 0, 0, 1, 1, 1, 1, 1).padTo(32).
		zeros(32), ErrMalformed, "5 dimensions"},
	{"negative dimension", rawHead(3, 1, 0).tensor("t", 0, 0, 1<<63).
		zeros(64), ErrMalformed, "dimension 0 is negative"},
	{"too many values", rawHead(3, 1, 0).tensor("t", 0, 0, 1<<31, 1<<31).zeros(64), ErrMalformed, "more values"},
	{"half a block", rawHead(3, 1, 0).tensor("t", 8, 0, 33).zeros(64), ErrMalformed, "blocks of 32"},
	{"removed type", rawHead(3, 1, 0).tensor("t", 4, 0, 32).zeros(64), ErrMalformed, "unknown tensor type 4"},
	{"huge offset", rawHead(3, 1, 0).tensor("t", 0, 1<<63, 8).zeros(64), ErrMalformed, "impossible offset"},
	{"misaligned", rawHead(3, 1, 0).tensor("t", 0, 8, 8).padTo(32).
		zeros(64), ErrMalformed, "multiple of the alignment 32"},
	{"overlap", rawHead(3, 2, 0).tensor("t", 0, 0, 16).tensor("u", 0, 32, 8).padTo(32).
		zeros(64), ErrMalformed, `inside tensor "t"`},
	{"data missing", rawHead(3, 1, 0).tensor("t", 0, 0, 8).padTo(32).
		zeros(31), ErrTruncated, "the file ends at byte 95"},
	{"no data", rawHead(3, 1, 0).tensor("t", 0, 1<<40, 8).padTo(32), ErrTruncated, `tensor "t" should end`},
}

func TestReadRefuses(t *testing.T) {
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(c.file)
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v; want %v with %q", err, c.err, c.say)
			}
		})
	}
}

// TestReadEveryPrefix: no beginning of a good file is a good file, and each says that it was cut.
func TestReadEveryPrefix(t *testing.T) {
	whole := rawSmall()
	for n := range len(whole) {
		want := ErrTruncated
		if n < 4 {
			want = ErrNotGGUF
		}
		if _, err := read(whole[:n]); !errors.Is(err, want) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

// TestReadStream: the same file without a known length, in small pieces; a stream may end with the header.
func TestReadStream(t *testing.T) {
	p := rawSmall()
	f, err := readStream(iotest.OneByteReader(bytes.NewReader(p)))
	if err != nil || f.Size != -1 || len(f.Tensors) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := readStream(bytes.NewReader(p[:100])); !errors.Is(err, ErrTruncated) {
		t.Errorf("cut stream: %v", err)
	}
	broken := io.MultiReader(bytes.NewReader(p[:100]), iotest.ErrReader(errors.ErrUnsupported))
	if _, err := readStream(broken); !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ErrTruncated) {
		t.Errorf("broken stream: %v", err)
	}
}

// TestReadMemory: a stream that promises much and holds little costs little. The length is unknown, so no count can be
// refused by it.
func TestReadMemory(t *testing.T) {
	for name, file := range map[string]raw{
		"string": rawHead(3, 0, 1).u64(1 << 50),
		"array":  rawHead(3, 0, 1).text("k").u32(9).u32(12).u64(1 << 50),
		"texts":  rawHead(3, 0, 1).text("k").u32(9).u32(8).u64(1 << 50),
		"keys":   rawHead(3, 0, 1<<50),
		"tensor": rawHead(3, 1<<50, 0),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := readStream(bytes.NewReader(file)); !errors.Is(err, ErrTruncated) {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("%d bytes were allocated for a file of %d", took, len(file))
			}
		})
	}
}

func TestOpen(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "m.gguf")
	if err := os.WriteFile(path, rawSmall(), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(path); err != nil || len(f.Tensors) != 2 {
		t.Errorf("%v, %v", f, err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.Truncate(path, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), path) {
		t.Errorf("a cut file: %v", err)
	}
}

// FuzzRead: no input breaks the reader, and what it accepts can be written and read again as the same thing.
func FuzzRead(f *testing.F) {
	f.Add([]byte(rawSmall()))
	f.Add([]byte(rawHead(2, 0, 0)))
	f.Add([]byte(everyValue(f)))
	for _, c := range bad {
		f.Add([]byte(c.file))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		file, err := read(p)
		stream, streamErr := readStream(bytes.NewReader(p))
		if err != nil {
			return
		}
		if streamErr != nil {
			t.Fatalf("a stream of it: %v", streamErr)
		}
		same(t, file, stream)
		Identify(file, "x.gguf")
		for i := range file.Tensors {
			tensor := &file.Tensors[i]
			if tensor.Offset < file.DataOffset || tensor.End() > file.Size && tensor.Bytes > 0 {
				t.Fatalf("%v lies at %d to %d of %d", tensor, tensor.Offset, tensor.End(), file.Size)
			}
		}
		rewrite(t, file)
	})
}
