package gguf_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
)

func defaultModel(t testing.TB) *gguf.File {
	f, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDefaultModel reads the embedded model, which llama-quantize wrote, and compares keys and tensor map with the
// golden file, whose tensor lines agree with those of 'llama-gguf FILE r n'.
func TestDefaultModel(t *testing.T) {
	f := defaultModel(t)
	var got strings.Builder
	for _, kv := range f.Metadata.All() {
		if typ, elem, _ := kv.Value.Type(); typ == gguf.Array {
			fmt.Fprintf(&got, "%s: %v of %v\n", kv.Key, typ, elem)
		} else {
			fmt.Fprintf(&got, "%s: %v %v\n", kv.Key, typ, kv.Value.Data)
		}
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		fmt.Fprintf(&got, "%v: %d bytes at %d\n", t, t.Bytes, t.Offset-f.DataOffset)
	}
	const path = "testdata/gopher.golden"
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s", got.String())
	}
	if f.Size != int64(len(llamatap.DefaultModel)) || f.Tensors[len(f.Tensors)-1].End() != f.Size {
		t.Errorf("size %d, last tensor ends at %d", f.Size, f.Tensors[len(f.Tensors)-1].End())
	}
}

func TestIdentifyDefaultModel(t *testing.T) {
	id := gguf.Identify(defaultModel(t), "")
	want := gguf.Identity{
		Name: "gopher-6m", Architecture: "llama", FileType: "Q8_0", Layers: 6, Width: 256, Vocab: 2080, Context: 512,
		Heads: 4, KVHeads: 2, FF: 768, Parameters: 5786880, TensorBytes: id.TensorBytes,
	}
	if id != want {
		t.Errorf("got  %+v\nwant %+v", id, want)
	}
	if id.ID() != "gopher-6m-Q8_0" {
		t.Errorf("ID %q", id.ID())
	}
	if s := id.String(); s != "gopher-6m: llama, Q8_0, 5786880 parameters, 6 layers × 256, vocabulary 2080" {
		t.Errorf("String %q", s)
	}
}

func TestIdentify(t *testing.T) {
	f := &gguf.File{Tensors: []gguf.Tensor{{Name: "a", Type: gguf.F32, Shape: []int64{8}, Bytes: 32},
		{Name: "b", Type: gguf.Q4_K, Shape: []int64{256}, Bytes: 144}}}
	m := &f.Metadata
	m.Set("general.architecture", "jamba")
	m.Set("jamba.attention.head_count", int32(8))
	m.Set("jamba.attention.head_count_kv", []int32{0, 2, 0})
	m.Set("jamba.expert_count", uint32(4))
	m.Set("jamba.expert_used_count", uint32(2))
	m.Set("jamba.block_count", "three")
	m.Set("tokenizer.ggml.tokens", []string{"a", "b"})
	m.Set("split.count", uint16(3))
	got := gguf.Identify(f, "/models/../x y.gguf")
	want := gguf.Identity{Name: "x y", Architecture: "jamba", FileType: "Q4_K", Heads: 8, KVHeads: 2, Experts: 4,
		ExpertsUsed: 2,
		Vocab:       2, Parameters: 264, TensorBytes: 176, Splits: 3}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s := got.String(); !strings.Contains(s, "2 of 4 experts") {
		t.Error(s)
	}
	if empty := gguf.Identify(&gguf.File{}, ""); empty != (gguf.Identity{}) {
		t.Errorf("an empty file: %+v", empty)
	}
}

func TestModelID(t *testing.T) {
	for _, c := range []struct{ name, ftype, want string }{
		{"Qwen3 4B", "Q4_K_M", "Qwen3-4B-Q4_K_M"},
		{"model-q8_0", "Q8_0", "model-q8_0"},
		{"../../etc/passwd", "", "etc-passwd"},
		{"..", "F16", "model-F16"},
		{"", "", "model"},
		{"größe\x00", "", "gr--e"},
		{strings.Repeat("x", 300), "F16", strings.Repeat("x", 120)},
	} {
		if got := (gguf.Identity{Name: c.name, FileType: c.ftype}).ID(); got != c.want {
			t.Errorf("%q %q: %q, want %q", c.name, c.ftype, got, c.want)
		}
	}
}

func TestMetadataTypes(t *testing.T) {
	var m gguf.Metadata
	for key, data := range map[string]any{"u8": uint8(7), "i8": int8(7), "u16": uint16(7), "i16": int16(7),
		"u32": uint32(7),
		"i32": int32(7), "u64": uint64(7), "i64": int64(7)} {
		m.Set(key, data)
		if n, ok := m.Int(key); n != 7 || !ok {
			t.Errorf("Int(%s) = %d, %v", key, n, ok)
		}
		if list, ok := m.Ints(key); len(list) != 1 || list[0] != 7 || !ok {
			t.Errorf("Ints(%s) = %v, %v", key, list, ok)
		}
	}
	for key, data := range map[string]any{"u8s": []uint8{7}, "i8s": []int8{7}, "u16s": []uint16{7}, "i16s": []int16{7},
		"u32s": []uint32{7}, "i32s": []int32{7}, "u64s": []uint64{7}, "i64s": []int64{7}} {
		m.Set(key, data)
		if list, ok := m.Ints(key); len(list) != 1 || list[0] != 7 || !ok {
			t.Errorf("Ints(%s) = %v, %v", key, list, ok)
		}
		if _, ok := m.Int(key); ok {
			t.Errorf("Int(%s) took an array", key)
		}
	}
	m.Set("huge", uint64(1<<63))
	m.Set("huges", []uint64{1 << 63})
	m.Set("text", "x")
	m.Set("f32", float32(1.5))
	m.Set("f64", 2.5)
	m.Set("flag", true)
	m.Set("flag", false)
	if _, ok := m.Int("huge"); ok {
		t.Error("Int gave what int64 cannot hold")
	}
	if _, ok := m.Ints("huges"); ok {
		t.Error("Ints gave what int64 cannot hold")
	}
	if _, ok := m.Int("text"); ok {
		t.Error("Int took a text")
	}
	if f, ok := m.Float("f32"); f != 1.5 || !ok {
		t.Errorf("Float(f32) = %g", f)
	}
	if f, ok := m.Float("f64"); f != 2.5 || !ok {
		t.Errorf("Float(f64) = %g", f)
	}
	if b, ok := m.Flag("flag"); b || !ok || m.Len() != 22 {
		t.Errorf("Flag = %v, %v; %d entries", b, ok, m.Len())
	}
	if _, ok := m.Flag("none"); ok || m.Has("none") {
		t.Error("found what is not there")
	}
}

func BenchmarkRead(b *testing.B) {
	f := defaultModel(b)
	b.SetBytes(f.DataOffset)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gguf.ReadBytes(llamatap.DefaultModel); err != nil {
			b.Fatal(err)
		}
	}
}
