package gguf

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// written is a file of these keys and tensors, read back.
func written(t *testing.T, meta map[string]any, tensors ...Tensor) *File {
	t.Helper()
	var m Metadata
	for key, value := range meta {
		m.Set(key, value)
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, &m, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, w.File().TensorBytes())); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Read(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCheckAdapter(t *testing.T) {
	base := written(t, map[string]any{"general.architecture": "llama"}, Tensor{Name: "q", Shape: []int64{256, 256}},
		Tensor{Name: "experts", Shape: []int64{256, 64, 4}})
	a := Tensor{Name: "q.lora_a", Shape: []int64{256, 4}}
	tests := []struct {
		name   string
		meta   map[string]any // besides what an adapter has
		tensor Tensor
		want   string // "": accepted
	}{
		{"good", nil, a, ""},
		{"without alpha", map[string]any{"adapter.lora.alpha": nil}, a, ""},
		{"of experts", nil, Tensor{Name: "experts.lora_b", Shape: []int64{4, 64, 4}}, ""},
		{"of a tensor that another file holds", nil, Tensor{Name: "x.lora_a", Shape: []int64{2, 2, 2}}, ""},
		{"a quantised type", nil, Tensor{Name: "q.lora_b", Type: Q8_0, Shape: []int64{32, 256}}, ""},
		{"another type of file", map[string]any{"general.type": "model"}, a, "general.type"},
		{"another type of adapter", map[string]any{"adapter.type": int32(3)}, a, "adapter.type"},
		{"another architecture", map[string]any{"general.architecture": "gemma"}, a, `"llama"`},
		{"alpha", map[string]any{"adapter.lora.alpha": float64(3)}, a, "32-bit float"},
		{"whole numbers", nil, Tensor{Name: "q.lora_a", Type: I32, Shape: []int64{256, 4}}, "i32"},
		{"an intermediate type", nil, Tensor{Name: "q.lora_a", Type: Q8_K, Shape: []int64{256, 4}}, "q8_K"},
		{"a third dimension", nil, Tensor{Name: "q.lora_b", Shape: []int64{4, 256, 2}}, "does not fit"},
		{"a missing dimension", nil, Tensor{Name: "experts.lora_a", Shape: []int64{256, 4}}, "does not fit"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			meta := map[string]any{"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora",
				"adapter.lora.alpha": float32(8)}
			for key, value := range test.meta {
				if meta[key] = value; value == nil {
					delete(meta, key)
				}
			}
			err := written(t, meta, test.tensor).CheckAdapter(base)
			if test.want == "" && err != nil || test.want != "" &&
				(!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
