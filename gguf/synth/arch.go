package synth

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/gguf"
)

// arch says what an architecture consists of. Facts (tensor names, shapes, keys) are those that llama.cpp 0.7.0
// asks for.
type arch struct {
	// file is general.architecture where it is not the name itself.
	file string
	// label stands for the name in general.name where llama.cpp would draw conclusions from the name.
	label string
	// shape changes a preset to suit the architecture.
	shape func(c *Config)
	// keys sets the keys of the architecture beyond those of attention.
	keys func(c *Config, set setKey)
	// layer adds the tensors of layer i.
	layer func(b *builder, i int)
	// ends adds embedding and output; nil for an untied pair and an RMS norm.
	ends func(b *builder)
	// attentionKeys sets the keys of attention; nil for the usual ones.
	attentionKeys func(c *Config, set setKey)
	// tokenizer sets keys beside those of the donor's tokenizer; nil for none.
	tokenizer func(meta *gguf.Metadata)
}

// setKey sets the key "<architecture>.<name>".
type setKey func(name string, data any)

var archs = map[string]arch{
	"llama":      {layer: llamaLayer},
	"mixtral":    {file: "llama", shape: oneWidthShape, keys: expertKeys, layer: mixtralLayer},
	"qwen2":      {layer: qwen2Layer},
	"qwen2moe":   {shape: oneWidthShape, keys: qwen2moeKeys, layer: qwen2moeLayer},
	"qwen3":      {layer: qwen3Layer},
	"qwen3moe":   {shape: moeShape, keys: expertKeys, layer: qwen3moeLayer},
	"gemma2":     {keys: gemma2Keys, layer: gemma2Layer, ends: tiedEnds},
	"gemma3":     {keys: gemma3Keys, layer: gemma3Layer, ends: tiedEnds},
	"phi3":       {label: "phi", layer: phi3Layer}, // a model named phi3 must have Phi-3's special tokens
	"gpt2":       {shape: gpt2Shape, layer: gpt2Layer, ends: gpt2Ends, attentionKeys: gpt2Keys},
	"starcoder2": {layer: starcoder2Layer, ends: layerNormEnds, attentionKeys: layerNormKeys},
	"gpt-oss":    {shape: moeShape, keys: gptossKeys, layer: gptossLayer},
	"mamba":      {shape: mambaShape, keys: ssmKeys, layer: mambaOnlyLayer, attentionKeys: mambaKeys},
	"jamba":      {shape: jambaShape, keys: jambaKeys, layer: jambaLayer, attentionKeys: jambaAttentionKeys},
}

// Archs are the names of the architectures that generate text.
func Archs() []string { return slices.Sorted(maps.Keys(archs)) }

// Encoders are the names of those that compute embeddings and scores: bert, and qwen3-rerank, which is Qwen3 with a
// head for scores.
func Encoders() []string { return slices.Sorted(maps.Keys(encoders)) }

// findArch finds an architecture of either kind.
func findArch(name string) (arch, bool) {
	if a, ok := archs[name]; ok {
		return a, true
	}
	a, ok := encoders[name]
	return a, ok
}

// unknownArch is the error for a name that findArch does not know.
func unknownArch(name string) error {
	return fmt.Errorf("unknown architecture %q: choose one of %s", name,
		strings.Join(append(Archs(), Encoders()...), ", "))
}

// attentionKeys are those of an RMS-normed transformer with rotary positions.
func attentionKeys(c *Config, set setKey) {
	headKeys(c, set)
	set("attention.layer_norm_rms_epsilon", float32(1e-5))
	ropeKeys(c, set)
}

func layerNormKeys(c *Config, set setKey) {
	headKeys(c, set)
	set("attention.layer_norm_epsilon", float32(1e-5))
	ropeKeys(c, set)
}

func headKeys(c *Config, set setKey) {
	set("attention.head_count", uint32(c.Heads))
	set("attention.head_count_kv", uint32(c.KVHeads))
	set("attention.key_length", uint32(c.HeadDim))
	set("attention.value_length", uint32(c.HeadDim))
}

func ropeKeys(c *Config, set setKey) {
	set("rope.dimension_count", uint32(c.HeadDim))
	set("rope.freq_base", float32(500000))
}

// untiedEnds are embedding, output norm and an output matrix of their own.
func untiedEnds(b *builder) {
	b.table("token_embd", b.Width, b.vocab, 1)
	b.norm("output_norm", b.Width)
	b.matrix("output", b.Width, b.vocab)
}

func layerNormEnds(b *builder) {
	untiedEnds(b)
	b.bias("output_norm", b.Width)
}

// attention adds separate query, key, value and output matrices.
func attention(b *builder) {
	b.matrix("attn_q", b.Width, b.qWidth())
	b.matrix("attn_k", b.Width, b.kvWidth())
	b.matrix("attn_v", b.Width, b.kvWidth())
	b.matrix("attn_output", b.qWidth(), b.Width)
}

// qkvBias adds the biases of query, key and value.
func qkvBias(b *builder) {
	b.bias("attn_q", b.qWidth())
	b.bias("attn_k", b.kvWidth())
	b.bias("attn_v", b.kvWidth())
}

// headNorms are norms of each head's query and key.
func headNorms(b *builder) {
	b.norm("attn_q_norm", b.HeadDim)
	b.norm("attn_k_norm", b.HeadDim)
}

// gated adds a feed-forward network with a gate.
func gated(b *builder) {
	b.matrix("ffn_gate", b.Width, b.FF)
	b.matrix("ffn_up", b.Width, b.FF)
	b.matrix("ffn_down", b.FF, b.Width)
}

// experts adds a router and gated experts of hidden width ff.
func experts(b *builder, ff int) {
	b.small("ffn_gate_inp", b.Width, b.Experts)
	b.matrix("ffn_gate_exps", b.Width, ff, b.Experts)
	b.matrix("ffn_up_exps", b.Width, ff, b.Experts)
	b.matrix("ffn_down_exps", ff, b.Width, b.Experts)
}

// constant fills with one value.
func constant(x float32) fill {
	return func(dst []float32, _ uint64, _ int64) {
		for i := range dst {
			dst[i] = x
		}
	}
}

// plain adds a tensor in F32 whose name has no suffix.
func (b *builder) plain(name string, f fill, shape ...int) { b.add(name, gguf.F32, f, shape...) }
