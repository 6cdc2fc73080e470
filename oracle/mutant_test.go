//go:build linux

package oracle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

// mutant is a GGUF file in parts, which may contradict each other and still be written.
type mutant struct {
	keys    []gguf.KV
	tensors []gguf.Tensor // Offset counts from the data section
	align   int
	data    []byte
	// What the file claims beside.
	nKeys, nTensors uint64
	version         uint32
	what            []string // mutations
}

func newMutant(t *testing.T, path string) *mutant {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &mutant{keys: f.Metadata.All(), align: int(f.Alignment), data: b[f.DataOffset:], version: 3}
	for _, t := range f.Tensors {
		t.Offset -= f.DataOffset
		m.tensors = append(m.tensors, t)
	}
	m.nKeys, m.nTensors = uint64(len(m.keys)), uint64(len(m.tensors))
	return m
}

// clone is a copy whose keys and tensors may be changed; values are replaced whole.
func (m *mutant) clone() *mutant {
	c := *m
	c.keys, c.tensors, c.what = slices.Clone(m.keys), slices.Clone(m.tensors), nil
	for i := range c.tensors {
		c.tensors[i].Shape = slices.Clone(c.tensors[i].Shape)
	}
	return &c
}

func (m *mutant) note(format string, args ...any) {
	m.what = append(m.what, fmt.Sprintf(format, args...))
}

// bytes is the file.
func (m *mutant) bytes() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, len(m.data)+1<<20), "GGUF"...)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint32(b, m.version), m.nTensors), m.nKeys)
	for _, kv := range m.keys {
		b = appendMutantValue(appendMutantText(b, kv.Key), kv.Value)
	}
	for _, t := range m.tensors {
		b = le.AppendUint32(appendMutantText(b, t.Name), uint32(len(t.Shape)))
		for _, d := range t.Shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(le.AppendUint32(b, uint32(t.Type)), uint64(t.Offset))
	}
	for len(b)%m.align != 0 {
		b = append(b, 0)
	}
	return append(b, m.data...)
}

func appendMutantText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendMutantValue(b []byte, v gguf.Value) []byte {
	le := binary.LittleEndian
	kind, elem, _ := v.Type()
	b = le.AppendUint32(b, uint32(kind))
	switch d := v.Data.(type) {
	case string:
		return appendMutantText(b, d)
	case []string:
		b = le.AppendUint64(le.AppendUint32(b, uint32(elem)), uint64(len(d)))
		for _, s := range d {
			b = appendMutantText(b, s)
		}
		return b
	}
	var body bytes.Buffer
	if err := binary.Write(&body, le, v.Data); err != nil {
		panic(err)
	}
	if kind == gguf.Array {
		b = le.AppendUint64(le.AppendUint32(b, uint32(elem)), uint64(mutantLen(v.Data)))
	}
	return append(b, body.Bytes()...)
}

func mutantLen(list any) int {
	switch d := list.(type) {
	case []uint8:
		return len(d)
	case []int32:
		return len(d)
	case []uint32:
		return len(d)
	case []float32:
		return len(d)
	case []bool:
		return len(d)
	case []uint64:
		return len(d)
	case []int64:
		return len(d)
	}
	panic(fmt.Sprintf("an array of %T", list))
}

// mutate changes one thing.
func (m *mutant) mutate(r *rand.Rand) {
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		m.changeKey(r)
	case 4:
		m.dropKey(r)
	case 5, 6, 7:
		m.changeTensor(r)
	case 8:
		m.dropTensor(r)
	case 9:
		m.changeCount(r)
	}
}

// Numbers at which code goes wrong.
var extremes = []int64{0, 1, 2, 3, 5, 7, 31, 33, 63, 64, 127, 128, 255, 256, 257, 511, 513, 1000, 1024, 1025, 4095,
	4097, 65535, 65536, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, -1, -2, math.MinInt32}

func extreme(r *rand.Rand) int64 { return extremes[r.IntN(len(extremes))] }

func (m *mutant) changeKey(r *rand.Rand) {
	i := r.IntN(len(m.keys))
	if r.IntN(3) > 0 { // the keys that shape the model, rather than the tokenizer's and the general ones
		arch, _ := m.keys[0].Value.Data.(string)
		for range 50 {
			if strings.HasPrefix(m.keys[i].Key, arch+".") || strings.HasPrefix(m.keys[i].Key, "tokenizer.") &&
				r.IntN(3) == 0 {
				break
			}
			i = r.IntN(len(m.keys))
		}
	}
	old := m.keys[i].Value.Data
	data := otherValue(r, old)
	m.keys[i].Value.Data = data
	m.note("%s: %s → %s", m.keys[i].Key, shortly(old), shortly(data))
}

func shortly(v any) string {
	s := fmt.Sprintf("%T %v", v, v)
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return s
}

// otherValue is a value of the same type with other contents, or, sometimes, of another type.
func otherValue(r *rand.Rand, old any) any {
	if r.IntN(8) == 0 {
		others := []any{uint32(extreme(r)), int32(extreme(r)), "", "llama", true, float32(extreme(r)), []int32{},
			[]int32{int32(extreme(r)), 1}, []string{}, []string{"a"}, uint64(extreme(r)), []float32{1}, uint8(3),
			[]bool{true}}
		return others[r.IntN(len(others))]
	}
	switch d := old.(type) {
	case uint32:
		return uint32(near(r, int64(d)))
	case int32:
		return int32(near(r, int64(d)))
	case uint64:
		return uint64(near(r, int64(d)))
	case float32:
		return []float32{0, -1, 1e-38, 1e38, float32(math.Inf(1)), float32(math.NaN()), 1e-6, 10000}[r.IntN(8)]
	case bool:
		return !d
	case string:
		return []string{"", "llama", "qwen2", "gpt2", "mamba", "bert", "t5", "no-such", strings.Repeat("x", 70000),
			"gemma3", "default", "spm", "\x00", d + "x"}[r.IntN(14)]
	case []string:
		return otherList(r, d, []string{"", "\xff", "<0x0A>", strings.Repeat("y", 300), "▁"})
	case []int32:
		return otherList(r, d, []int32{-1, 0, 1, 2, 3, 6, 99, math.MaxInt32})
	case []float32:
		return otherList(r, d, []float32{0, float32(math.NaN()), float32(math.Inf(-1)), -1e30})
	case []uint32:
		return otherList(r, d, []uint32{0, 1, math.MaxUint32})
	case []bool:
		return otherList(r, d, []bool{true, false})
	}
	return uint32(extreme(r))
}

func near(r *rand.Rand, n int64) int64 {
	switch r.IntN(4) {
	case 0:
		return n + int64(r.IntN(5)) - 2
	case 1:
		return n * 2
	case 2:
		return n / 2
	}
	return extreme(r)
}

func otherList[T any](r *rand.Rand, old []T, values []T) []T {
	switch r.IntN(4) {
	case 0:
		return old[:r.IntN(len(old)+1)]
	case 1:
		return append(slices.Clone(old), values[r.IntN(len(values))])
	case 2:
		return []T{}
	}
	c := slices.Clone(old)
	for range 1 + r.IntN(4) {
		if len(c) > 0 {
			c[r.IntN(len(c))] = values[r.IntN(len(values))]
		}
	}
	return c
}

func (m *mutant) dropKey(r *rand.Rand) {
	i := r.IntN(len(m.keys))
	m.note("without %s", m.keys[i].Key)
	m.keys = slices.Delete(m.keys, i, i+1)
	m.nKeys--
}

func (m *mutant) changeTensor(r *rand.Rand) {
	t := &m.tensors[r.IntN(len(m.tensors))]
	before := t.String()
	switch r.IntN(6) {
	case 0:
		if len(t.Shape) > 0 {
			i := r.IntN(len(t.Shape))
			t.Shape[i] = near(r, t.Shape[i])
		}
	case 1:
		t.Shape = append(t.Shape, []int64{1, 2, 0, 1 << 40}[r.IntN(4)])
	case 2:
		if len(t.Shape) > 1 {
			t.Shape[0], t.Shape[1] = t.Shape[1], t.Shape[0]
		} else {
			t.Shape = nil
		}
	case 3:
		t.Type = gguf.Type(r.IntN(45))
	case 4:
		before += fmt.Sprintf(" at %d", t.Offset)
		t.Offset = []int64{0, t.Offset + int64(m.align), t.Offset + 1, -1, int64(len(m.data)), int64(len(m.data)) - 32,
			1 << 40}[r.IntN(7)]
	case 5:
		t.Name = []string{m.tensors[r.IntN(len(m.tensors))].Name, "", t.Name + "x", strings.Repeat("n", 64),
			"blk.99.attn_q.weight", "blk.-1.attn_q.weight"}[r.IntN(6)]
	}
	m.note("%s → %s at %d", before, t, t.Offset)
}

func (m *mutant) dropTensor(r *rand.Rand) {
	i := r.IntN(len(m.tensors))
	m.note("without tensor %s", m.tensors[i].Name)
	m.tensors = slices.Delete(m.tensors, i, i+1)
	m.nTensors--
}

func (m *mutant) changeCount(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		m.nKeys = uint64(near(r, int64(m.nKeys)))
	case 1:
		m.nTensors = uint64(near(r, int64(m.nTensors)))
	case 2:
		m.version = uint32(extreme(r))
	case 3:
		m.data = m.data[:r.IntN(len(m.data)+1)]
	}
	m.note("keys %d, tensors %d, version %d, data %d", m.nKeys, m.nTensors, m.version, len(m.data))
}

// flip changes bytes of the header without knowing what they mean.
func flip(r *rand.Rand, b []byte, head int) ([]byte, string) {
	b = slices.Clone(b)
	what := ""
	for range 1 + r.IntN(3) {
		at := r.IntN(head)
		switch r.IntN(3) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.IntN(256))
		case 2:
			at = min(at, head-8)
			binary.LittleEndian.PutUint64(b[at:], uint64(extreme(r)))
		}
		what += fmt.Sprintf("byte %d; ", at)
	}
	if r.IntN(10) == 0 {
		b = b[:r.IntN(len(b))]
		what += fmt.Sprintf("cut at %d", len(b))
	}
	return b, what
}
