package gguf

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// everyValue is a file with a value of each type and tensors of several.
func everyValue(t testing.TB) []byte {
	var m Metadata
	for _, kv := range []KV{
		{"u8", Value{uint8(200)}}, {"i8", Value{int8(-100)}}, {"u16", Value{uint16(60000)}},
		{"i16", Value{int16(-30000)}},
		{"u32", Value{uint32(4e9)}}, {"i32", Value{int32(-2e9)}}, {"u64", Value{uint64(math.MaxUint64)}},
		{"i64", Value{int64(math.MinInt64)}}, {"f32", Value{float32(1.5)}}, {"f64", Value{math.Pi}},
		{"yes", Value{true}}, {"no", Value{false}}, {"text", Value{"Grüße, 世界"}},
		{"general.alignment", Value{uint32(64)}},
		{"u8s", Value{[]uint8{1, 2}}}, {"i8s", Value{[]int8{-1, 2}}}, {"u16s", Value{[]uint16{1, 2}}},
		{"i16s", Value{[]int16{-1, 2}}}, {"u32s", Value{[]uint32{1, 2}}}, {"i32s", Value{[]int32{-1, 2}}},
		{"u64s", Value{[]uint64{1, 2}}}, {"i64s", Value{[]int64{-1, 2}}}, {"f32s", Value{[]float32{-1, 2}}},
		{"f64s", Value{[]float64{-1, 2}}}, {"bools", Value{[]bool{true, false}}}, {"texts", Value{[]string{"", "x"}}},
		{"none", Value{[]uint32{}}},
	} {
		m.Set(kv.Key, kv.Value.Data)
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, &m, []Tensor{
		{Name: "one", Type: F32, Shape: []int64{1}}, {Name: "scalar", Type: F16},
		{Name: "empty", Type: Q8_0, Shape: []int64{0, 3}},
		{Name: "q", Type: Q4_0, Shape: []int64{32, 2, 3}}, {Name: "four", Type: I8, Shape: []int64{2, 2, 2, 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for i := range 4 + 2 + 108 + 16 {
		data = append(data, byte(i+1))
	}
	if n, err := w.Write(data); err != nil || n != len(data) {
		t.Fatal(n, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Written() != int64(out.Len()) || w.File().Size != int64(out.Len()) {
		t.Fatalf("%d bytes, but Written %d and Size %d", out.Len(), w.Written(), w.File().Size)
	}
	return out.Bytes()
}

// TestWriteGolden keeps the bytes of the format.
func TestWriteGolden(t *testing.T) {
	const path = "testdata/every_value.gguf.golden"
	got := everyValue(t)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the writer's bytes have changed")
	}
}

// TestWriteEqualsHand: the writer gives the bytes that were put together by hand.
func TestWriteEqualsHand(t *testing.T) {
	want := rawSmall()
	f, err := read(want)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, &f.Metadata, f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	for range 132 {
		if _, err := w.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := out.Bytes(); !bytes.Equal(got, want.padTo(32)) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	p := everyValue(t)
	f, err := read(p)
	if err != nil {
		t.Fatal(err)
	}
	if f.Alignment != 64 {
		t.Errorf("alignment %d", f.Alignment)
	}
	q, _ := f.Tensor("q")
	if q.Offset%64 != 0 || q.Bytes != 108 || p[q.Offset] != 7 || p[q.End()] != 0 {
		t.Errorf("tensor q: %+v begins with %d", q, p[q.Offset])
	}
	if s, _ := f.Tensor("scalar"); s.Values() != 1 || s.Bytes != 2 || s.RowValues() != 1 {
		t.Errorf("scalar: %+v", s)
	}
	rewrite(t, f)
}

// rewrite writes file's header again, zeros as data, and compares. Files that would be too large for a test are
// left out.
func rewrite(t *testing.T, file *File) {
	t.Helper()
	if file.TensorBytes() > 1<<20 || file.Alignment > 1<<16 {
		return
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, &file.Metadata, file.Tensors)
	if err != nil {
		t.Fatalf("write what was read: %v", err)
	}
	if _, err := w.Write(make([]byte, w.File().TensorBytes())); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := read(out.Bytes())
	if err != nil {
		t.Fatalf("read what was written: %v", err)
	}
	same(t, again, w.File())
	for i := range file.Tensors {
		a, b := file.Tensors[i], again.Tensors[i]
		a.Offset, b.Offset = 0, 0
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("tensor %v became %v", a, b)
		}
	}
}

// same compares everything but Size and Version.
func same(t *testing.T, a, b *File) {
	t.Helper()
	if a.DataOffset != b.DataOffset || a.Alignment != b.Alignment || len(a.Tensors) != len(b.Tensors) {
		t.Fatalf("%d %d %d against %d %d %d", a.DataOffset, a.Alignment, len(a.Tensors), b.DataOffset, b.Alignment,
			len(b.Tensors))
	}
	for i := range a.Tensors {
		if !reflect.DeepEqual(a.Tensors[i], b.Tensors[i]) {
			t.Fatalf("tensor %v against %v", a.Tensors[i], b.Tensors[i])
		}
	}
	// Compared as bytes, because a NaN does not equal itself.
	for i, kv := range a.Metadata.All() {
		x, errX := appendKV(nil, kv)
		y, errY := appendKV(nil, b.Metadata.All()[i])
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			t.Fatalf("key %q differs: %v %v", kv.Key, errX, errY)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	tensor := func(name string, typ Type, shape ...int64) []Tensor {
		return []Tensor{{Name: name, Type: typ, Shape: shape}}
	}
	for _, c := range []struct {
		name    string
		data    any
		tensors []Tensor
		say     string
	}{
		{"type of value", int(1), nil, "holds a int"},
		{"nested array", [][]string{{"x"}}, nil, "GGUF cannot store"},
		{"nil", nil, nil, "<nil>"},
		{"row", uint8(1), tensor("t", Q8_0, 31), "blocks of 32"},
		{"name", uint8(1), tensor(strings.Repeat("x", 64), F32, 1), "63 bytes"},
		{"type", uint8(1), tensor("t", Type(5), 1), "unknown tensor type 5"},
		{"size", uint8(1), tensor("t", F32, 1<<40, 1<<40), "more values"},
		{"twice", uint8(1), append(tensor("t", F32, 1), tensor("t", F32, 1)...), "twice"},
		{"dimensions", uint8(1), tensor("t", F32, 1, 1, 1, 1, 1), "5 dimensions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Metadata
			m.Set("k", c.data)
			if _, err := NewWriter(io.Discard, &m, c.tensors); err == nil || !strings.Contains(err.Error(), c.say) {
				t.Errorf("got %v, want %q", err, c.say)
			}
		})
	}
	var m Metadata
	m.Set(alignmentKey, uint32(3))
	if _, err := NewWriter(io.Discard, &m, nil); err == nil {
		t.Error("alignment 3 was taken")
	}
}

func TestWriterCountsBytes(t *testing.T) {
	start := func() *Writer {
		w, err := NewWriter(io.Discard, &Metadata{},
			[]Tensor{{Name: "t", Type: F32, Shape: []int64{4}}, {Name: "u", Type: I8, Shape: []int64{5}}})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := start()
	if _, err := w.Write(make([]byte, 18)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), `"u" lacks 3 bytes`) {
		t.Errorf("too few: %v", err)
	}
	w = start()
	if n, err := w.Write(make([]byte, 22)); n != 21 || err == nil || w.Close() == nil {
		t.Errorf("too many: %d, %v", n, err)
	}
	w = start()
	if _, err := w.Write(make([]byte, 21)); err != nil || w.Close() != nil || w.Close() != nil {
		t.Errorf("just right: %v", err)
	}
	if _, err := w.Write([]byte{1}); err == nil {
		t.Error("wrote after Close")
	}
}

// failing takes n bytes and then fails.
type failing struct{ n int }

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.n {
		defer func() { f.n = 0 }()
		return f.n, io.ErrClosedPipe
	}
	f.n -= len(p)
	return len(p), nil
}

// TestWriterPassesErrorsOn: whichever write fails, the error comes out at once or at Close.
func TestWriterPassesErrorsOn(t *testing.T) {
	tensors := []Tensor{{Name: "t", Type: F32, Shape: []int64{4}}, {Name: "u", Type: I8, Shape: []int64{5}}}
	for n := range 160 { // the length of the file
		w, err := NewWriter(&failing{n}, &Metadata{}, tensors)
		if err == nil {
			_, err = w.Write(make([]byte, 21))
			if err == nil {
				err = w.Close()
			}
		}
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Fatalf("a disk that takes %d bytes: %v", n, err)
		}
	}
}
