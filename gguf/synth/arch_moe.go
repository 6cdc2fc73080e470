package synth

import "github.com/llamatap/llamatap/gguf"

// moeShape spreads the feed-forward network over eight experts (four in small models), two of which work on a
// token. Each is a multiple of 256 wide, so that Q4_K fits.
func moeShape(c *Config) {
	c.Experts, c.ExpertsUsed = 8, 2
	if c.FF < 2048 {
		c.Experts = 4
	}
	c.ExpertFF = (c.FF/c.Experts + 255) / 256 * 256
}

// oneWidthShape: feed_forward_length is the width of an expert too.
func oneWidthShape(c *Config) {
	moeShape(c)
	c.FF = c.ExpertFF
}

func expertKeys(c *Config, set setKey) {
	set("expert_count", uint32(c.Experts))
	set("expert_used_count", uint32(c.ExpertsUsed))
	set("expert_feed_forward_length", uint32(c.ExpertFF))
}

// mixtralLayer: llama with experts takes their width from feed_forward_length.
func mixtralLayer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	attention(b)
	b.norm("ffn_norm", b.Width)
	experts(b, b.FF)
}

func qwen3moeLayer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	attention(b)
	headNorms(b)
	b.norm("ffn_norm", b.Width)
	experts(b, b.ExpertFF)
}

func qwen2moeKeys(c *Config, set setKey) {
	expertKeys(c, set)
	set("expert_shared_feed_forward_length", uint32(c.FF))
}

// qwen2moeLayer has one expert more that works on every token, with a gate of its own.
func qwen2moeLayer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	attention(b)
	qkvBias(b)
	b.norm("ffn_norm", b.Width)
	experts(b, b.ExpertFF)
	b.add("ffn_gate_inp_shexp.weight", gguf.F32, normal(0, 0.05), b.Width)
	b.matrix("ffn_gate_shexp", b.Width, b.FF)
	b.matrix("ffn_up_shexp", b.Width, b.FF)
	b.matrix("ffn_down_shexp", b.FF, b.Width)
}

func gptossKeys(c *Config, set setKey) {
	expertKeys(c, set)
	set("attention.sliding_window", uint32(c.Window))
}

// gptossLayer has attention sinks: a logit per head that takes attention away from all positions.
func gptossLayer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	attention(b)
	qkvBias(b)
	b.bias("attn_output", b.Width)
	b.add("attn_sinks.weight", gguf.F32, normal(0, 1), b.Heads)
	b.norm("post_attention_norm", b.Width)
	experts(b, b.ExpertFF)
	b.bias("ffn_gate_inp", b.Experts)
	b.bias("ffn_gate_exps", b.ExpertFF, b.Experts)
	b.bias("ffn_up_exps", b.ExpertFF, b.Experts)
	b.bias("ffn_down_exps", b.Width, b.Experts)
}
