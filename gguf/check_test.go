package gguf

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// checkable is a model that Check has nothing to say against.
func checkable() *File {
	f := &File{Tensors: []Tensor{{Name: "blk.0.attn_q.weight", Type: Q8_0, Shape: []int64{32, 32}}}}
	for _, kv := range []KV{
		{"general.architecture", Value{"qwen3moe"}}, {"qwen3moe.block_count", Value{uint32(2)}},
		{"qwen3moe.embedding_length", Value{uint32(256)}},
		{"qwen3moe.attention.head_count", Value{uint32(4)}}, {"qwen3moe.rope.dimension_count", Value{uint32(64)}},
		{"qwen3moe.expert_count", Value{uint32(8)}}, {"qwen3moe.expert_used_count", Value{uint32(2)}},
		{"qwen3moe.attention.layer_norm_rms_epsilon", Value{float32(1e-5)}},
		{"tokenizer.ggml.model", Value{"gpt2"}}, {"tokenizer.ggml.tokens", Value{[]string{"a", "b", "", ""}}},
	} {
		f.Metadata.Set(kv.Key, kv.Value.Data)
	}
	return f
}

// allBytes are the tokens of a tokenizer that spells every byte.
func allBytes() []string {
	var list []string
	for b := range 256 {
		list = append(list, fmt.Sprintf("<0x%02X>", b))
	}
	return list
}

// Each of these ended llama.cpp 0.7.0 by a signal.
func TestCheck(t *testing.T) {
	if err := checkable().Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key   string
		value any
		word  string
	}{
		"no layers":          {"qwen3moe.block_count", uint32(0), "block_count is 0"},
		"too many layers":    {"qwen3moe.block_count", uint32(513), "513"},
		"nextn layers":       {"qwen3moe.nextn_predict_layers", uint32(3), "nextn"},
		"too many experts":   {"qwen3moe.expert_count", uint32(1025), "1025"},
		"experts used":       {"qwen3moe.expert_used_count", []uint32{1, 9}, "9, of 8"},
		"no expert used":     {"qwen3moe.expert_used_count", uint32(0), "at least one"},
		"expert groups":      {"qwen3moe.expert_group_count", uint32(3), "divide"},
		"expert groups used": {"qwen3moe.expert_group_count", uint32(2), "of 2 groups"},
		"negative epsilon":   {"qwen3moe.attention.layer_norm_rms_epsilon", float32(-1), "epsilon"},
		"epsilon NaN":        {"qwen3moe.attention.layer_norm_rms_epsilon", float32(math.NaN()), "NaN"},
		"rotation":           {"qwen3moe.rope.dimension_count", uint32(62), "64"},
		"key length":         {"qwen3moe.attention.key_length", uint32(32), "values"},
		"token twice":        {"tokenizer.ggml.tokens", []string{"a", "b", "a"}, `"a"`},
		"token with a zero":  {"tokenizer.ggml.tokens", []string{"a", "a\x00b"}, `"a"`},
		"forged empty token": {"tokenizer.ggml.tokens", []string{"", "[EMPTY_0]"}, "EMPTY"},
		"ends every text":    {"tokenizer.ggml.add_eos_token", true, "add_eos_token"},
		"t5's tokenizer":     {"tokenizer.ggml.model", "t5", "t5"},
		"bytes without name": {"tokenizer.ggml.model", "llama", "0x00"},
	} {
		f := checkable()
		f.Metadata.Set(c.key, c.value)
		if err := f.Check(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i, typ := range []Type{I8, I16, I32, I64, F64, Q8_1, Q8_K} {
		f := checkable()
		f.Tensors[0].Name, f.Tensors[0].Type = []string{"blk.0.ssm_d", "output.weight", "output_norm.bias"}[i%3], typ
		if err := f.Check(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), typ.String()) {
			t.Errorf("weights of %v: %v", typ, err)
		}
	}
}

// What looks alike and is right.
func TestCheckAccepts(t *testing.T) {
	for name, change := range map[string]func(*File){
		"no architecture":  func(f *File) { *f = File{} },
		"partial rotation": func(f *File) { f.Metadata.Set("general.architecture", "phi2") },
		"heads per layer":  func(f *File) { f.Metadata.Set("qwen3moe.attention.head_count", []uint32{4, 8}) },
		"an encoder's end": func(f *File) {
			f.Metadata.Set("general.architecture", "t5")
			f.Metadata.Set("tokenizer.ggml.add_eos_token", true)
		},
		"every byte": func(f *File) {
			f.Metadata.Set("tokenizer.ggml.model", "llama")
			f.Metadata.Set("tokenizer.ggml.tokens", allBytes())
		},
		"a table of experts": func(
			f *File) {
			f.Tensors[0] = Tensor{Name: "blk.0.ffn_gate_tid2eid.weight", Type: I32}
		},
		"numbers, no weights": func(f *File) { f.Tensors[0] = Tensor{Name: "positions", Type: I64} },
		"groups of experts": func(f *File) {
			f.Metadata.Set("qwen3moe.expert_group_count", uint32(4))
			f.Metadata.Set("qwen3moe.expert_group_used_count", uint32(2))
		},
	} {
		f := checkable()
		change(f)
		if err := f.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
