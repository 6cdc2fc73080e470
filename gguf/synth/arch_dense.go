package synth

import (
	"math"

	"github.com/llamatap/llamatap/gguf"
)

func llamaLayer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	attention(b)
	b.norm("ffn_norm", b.Width)
	gated(b)
}

func qwen2Layer(b *builder, i int) {
	llamaLayer(b, i)
	qkvBias(b)
}

func qwen3Layer(b *builder, i int) {
	llamaLayer(b, i)
	headNorms(b)
}

// phi3Layer has query, key and value in one matrix, and gate and up in another.
func phi3Layer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	b.matrix("attn_qkv", b.Width, b.qWidth()+2*b.kvWidth())
	b.matrix("attn_output", b.qWidth(), b.Width)
	b.norm("ffn_norm", b.Width)
	b.matrix("ffn_up", b.Width, 2*b.FF)
	b.matrix("ffn_down", b.FF, b.Width)
}

// tiedEnds use the embedding as output matrix too; llama.cpp multiplies it by √Width on the way in.
func tiedEnds(b *builder) {
	b.table("token_embd", b.Width, b.vocab, tiedScale(b.Config)/math.Sqrt(float64(b.Width)))
	b.norm("output_norm", b.Width)
}

// tiedScale is how large an embedding enters the residual stream, to which every layer adds about one. Where input
// and output share a matrix a larger one makes every token predict itself, a smaller one makes all positions alike.
func tiedScale(c *Config) float64 {
	return 1.5 * math.Sqrt(float64(c.Layers)/float64(c.Width))
}

// gemma2Layer has norms behind attention and feed-forward network too. That behind attention lets through as much as an
// embedding brings: random attention is nearly a mean over all tokens and would drown the difference between them.
func gemma2Layer(b *builder, i int) {
	llamaLayer(b, i)
	b.add("post_attention_norm.weight", gguf.F32, normal(tiedScale(b.Config), 0.1*tiedScale(b.Config)), b.Width)
	b.norm("post_ffw_norm", b.Width)
}

func gemma2Keys(c *Config, set setKey) {
	set("attention.sliding_window", uint32(c.Window))
	set("attn_logit_softcapping", float32(50))
	set("final_logit_softcapping", float32(30))
}

func gemma3Layer(b *builder, i int) {
	gemma2Layer(b, i)
	headNorms(b)
}

// gemma3Keys: of six layers five look at a window only; a model with fewer layers gets every second one.
func gemma3Keys(c *Config, set setKey) {
	set("attention.sliding_window", uint32(c.Window))
	if c.Layers < 6 {
		set("attention.sliding_window_pattern", uint32(2))
	}
}

// gpt2Shape: positions are a table, so the context is kept short; every head has its own keys.
func gpt2Shape(c *Config) {
	c.Context = min(c.Context, 1024)
	c.KVHeads = c.Heads
}

func gpt2Keys(c *Config, set setKey) {
	set("attention.head_count", uint32(c.Heads))
	set("attention.layer_norm_epsilon", float32(1e-5))
}

func gpt2Ends(b *builder) {
	layerNormEnds(b)
	b.small("position_embd", b.Width, b.Context)
}

func gpt2Layer(b *builder, _ int) {
	b.normBias("attn_norm", b.Width)
	b.matrixBias("attn_qkv", b.Width, 3*b.Width)
	b.matrixBias("attn_output", b.Width, b.Width)
	b.normBias("ffn_norm", b.Width)
	upDown(b)
}

// upDown adds a feed-forward network without gate, with biases.
func upDown(b *builder) {
	b.matrixBias("ffn_up", b.Width, b.FF)
	b.matrixBias("ffn_down", b.FF, b.Width)
}

func starcoder2Layer(b *builder, _ int) {
	b.normBias("attn_norm", b.Width)
	attention(b)
	qkvBias(b)
	b.bias("attn_output", b.Width)
	b.normBias("ffn_norm", b.Width)
	upDown(b)
}
