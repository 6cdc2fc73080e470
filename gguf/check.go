package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits that llama.cpp 0.7.0 was built with.
const (
	maxLayers  = 512  // LLAMA_MAX_LAYERS
	maxExperts = 1024 // LLAMA_MAX_EXPERTS
)

// Check refuses a model whose keys or tensors llama.cpp would not refuse itself but end the process at: by an
// assertion, or worse. Whatever else is wrong, llama.cpp says. The rules come from the assertions of llama.cpp
// 0.7.0 and from mutated files at which it ended; the error wraps ErrMalformed.
func (f *File) Check() error {
	arch, ok := f.Metadata.Text("general.architecture")
	if !ok {
		return nil
	}
	c := shape{meta: &f.Metadata, arch: arch}
	for _, rule := range []func() error{c.layers, c.experts, c.expertGroups, c.epsilons, c.heads, c.tokens, f.weights} {
		if err := rule(); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return nil
}

// shape reads the keys of an architecture.
type shape struct {
	meta *Metadata
	arch string
}

// maxOf returns the largest number of a key that is a number or one per layer; ok is false where it is absent.
func (s *shape) maxOf(key string) (n int64, ok bool) {
	list, ok := s.meta.Ints(s.arch + "." + key)
	if !ok || len(list) == 0 {
		return 0, false
	}
	return slices.Max(list), true
}

func (s *shape) refuse(key string, value any, why string) error {
	return fmt.Errorf("%s.%s is %v, %s", s.arch, key, value, why)
}

func (s *shape) layers() error {
	n, ok := s.maxOf("block_count")
	if ok && (n < 1 || n > maxLayers) {
		return s.refuse("block_count", n, fmt.Sprintf("1 to %d are possible", maxLayers))
	}
	if next, given := s.maxOf("nextn_predict_layers"); given && ok && (next < 0 || next > n) {
		return s.refuse("nextn_predict_layers", next, fmt.Sprintf("and there are %d layers", n))
	}
	return nil
}

func (s *shape) experts() error {
	n, _ := s.maxOf("expert_count")
	used, _ := s.maxOf("expert_used_count")
	switch {
	case n < 0 || n > maxExperts:
		return s.refuse("expert_count", n, fmt.Sprintf("0 to %d are possible", maxExperts))
	case used < 0 || used > n:
		return s.refuse("expert_used_count", used, fmt.Sprintf("of %d experts", n))
	case n > 0 && used == 0:
		return s.refuse("expert_used_count", used, fmt.Sprintf("of %d experts: at least one is used", n))
	}
	return nil
}

func (s *shape) expertGroups() error {
	n, _ := s.maxOf("expert_count")
	groups, _ := s.maxOf("expert_group_count")
	used, _ := s.maxOf("expert_group_used_count")
	switch {
	case n == 0 && groups != 0:
		return s.refuse("expert_group_count", groups, "and there are no experts")
	case groups < 0 || groups > 1 && (groups >= n || n%groups != 0):
		return s.refuse("expert_group_count", groups, fmt.Sprintf("which does not divide %d experts", n))
	case groups > 1 && (used < 1 || used >= groups):
		return s.refuse("expert_group_used_count", used, fmt.Sprintf("of %d groups", groups))
	}
	return nil
}

// epsilons: a norm's epsilon is under a root.
func (s *shape) epsilons() error {
	for _, kv := range s.meta.All() {
		if !strings.HasPrefix(kv.Key, s.arch+".") || !strings.HasSuffix(kv.Key, "epsilon") {
			continue
		}
		if e, ok := s.meta.Float(kv.Key); ok && (math.IsNaN(e) || e < 0) {
			return fmt.Errorf("%s is %v, a number of at least 0 is needed", kv.Key, e)
		}
	}
	return nil
}

// wholeHeads are the architectures whose attention rotates whole heads, keys and values of the same length.
var wholeHeads = strings.Fields(`apertus arcee arctic baichuan chameleon codeshell cogvlm dbrx deepseek dots1 dream
	ernie4_5 ernie4_5-moe exaone falcon granite granitemoe grok grovemoe hunyuan-moe internlm2 jais2 llada llada-moe
	llama llama4 maincoder mistral3 olmo olmo2 olmoe orion plamo qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl
	qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2 xverse`)

func (s *shape) heads() error {
	width, ok := s.meta.Int(s.arch + ".embedding_length")
	heads, one := s.meta.Int(s.arch + ".attention.head_count")
	if !ok || !one || heads <= 0 || !slices.Contains(wholeHeads, s.arch) {
		return nil
	}
	key, value := width/heads, width/heads
	if n, ok := s.meta.Int(s.arch + ".attention.key_length"); ok {
		key = n
	}
	if n, ok := s.meta.Int(s.arch + ".attention.value_length"); ok {
		value = n
	}
	if key != value {
		return s.refuse("attention.key_length", key, fmt.Sprintf("and the values' is %d", value))
	}
	if rot, ok := s.meta.Int(s.arch + ".rope.dimension_count"); ok && rot != key {
		return s.refuse("rope.dimension_count", rot, fmt.Sprintf("and a head has %d values", key))
	}
	return nil
}

// tokens: each has a text of its own; empty ones get one from llama.cpp. A text that an end token closes cannot be
// continued.
func (s *shape) tokens() error {
	ends, given := s.meta.Flag("tokenizer.ggml.add_eos_token")
	kind, _ := s.meta.Text("tokenizer.ggml.model")
	if encodes := strings.HasPrefix(s.arch, "t5"); !encodes && (ends || kind == "t5" && !given) {
		return fmt.Errorf(
			"its tokenizer (%s) ends every text, so that none can be continued; clear tokenizer.ggml.add_eos_token",
			kind)
	}
	list, _ := s.meta.Texts("tokenizer.ggml.tokens")
	seen := make(map[string]int, len(list))
	for i, text := range list {
		text, _, _ = strings.Cut(text, "\x00") // llama.cpp reads as far as a C string goes
		if text == "" {
			text = fmt.Sprintf("[EMPTY_%d]", i)
		}
		if first, twice := seen[text]; twice {
			return fmt.Errorf("tokenizer.ggml.tokens %d and %d are both %q", first, i, text)
		}
		seen[text] = i
	}
	if kind != "llama" || len(list) == 0 {
		return nil
	}
	for b := range 256 { // what no token spells is spelt in bytes
		_, named := seen[fmt.Sprintf("<0x%02X>", b)]
		if _, plain := seen[string([]byte{byte(b)})]; !named && !plain {
			return fmt.Errorf("the tokenizer (%s) has no token for byte 0x%02X", kind, b)
		}
	}
	return nil
}

// weights: nothing multiplies whole numbers, numbers of eight bytes, or the types that a product's other side is
// rounded to.
func (f *File) weights() error {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		switch t.Type {
		case I8, I16, I64, F64, Q8_1, Q8_K:
		case I32:
			if strings.Contains(t.Name, "tid2eid") { // a table of experts
				continue
			}
		default:
			continue
		}
		if strings.HasPrefix(t.Name, "blk.") || strings.HasSuffix(t.Name, ".weight") ||
			strings.HasSuffix(t.Name, ".bias") {
			return fmt.Errorf("tensor %s: no weight can have this type", t)
		}
	}
	return nil
}

// CheckAdapter refuses a LoRA adapter that does not fit the model base, or at which llama.cpp would end the process:
// its keys have other types, its tensors are of types that cannot be multiplied, or have more dimensions than what
// they are for. Whatever else is wrong, llama.cpp says. The error wraps ErrMalformed.
func (f *File) CheckAdapter(base *File) error {
	arch, _ := base.Metadata.Text("general.architecture")
	for _, want := range [][2]string{{"general.type", "adapter"}, {"adapter.type", "lora"},
		{"general.architecture", arch}} {
		if text, ok := f.Metadata.Text(want[0]); !ok || text != want[1] {
			return fmt.Errorf("%w: its %s is not %q", ErrMalformed, want[0], want[1])
		}
	}
	if alpha, ok := f.Metadata.Value("adapter.lora.alpha"); ok {
		if _, ok := alpha.Data.(float32); !ok {
			return fmt.Errorf("%w: its adapter.lora.alpha is no 32-bit float", ErrMalformed)
		}
	}
	for i := range f.Tensors {
		if err := f.Tensors[i].checkLora(base); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return nil
}

// checkLora refuses a tensor of an adapter. One for a tensor that base lacks, as the first file of a split model
// may, passes.
func (t *Tensor) checkLora(base *File) error {
	switch t.Type {
	case I8, I16, I32, I64, F64, Q8_1, Q8_K:
		return fmt.Errorf("tensor %s: no adapter can have this type", t)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(t.Name, ".lora_a"), ".lora_b")
	to, ok := base.Tensor(name)
	if ok && !slices.Equal(t.Shape[min(2, len(t.Shape)):], to.Shape[min(2, len(to.Shape)):]) {
		return fmt.Errorf("tensor %s does not fit %s", t, to)
	}
	return nil
}
