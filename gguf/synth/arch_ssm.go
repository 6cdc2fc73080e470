package synth

import (
	"math"

	"github.com/llamatap/llamatap/gguf"
)

// Sizes that every published Mamba model shares.
const (
	ssmConv  = 4  // length of the convolution
	ssmState = 16 // state per channel
)

func ssmInner(c *Config) int  { return 2 * c.Width } // llama.cpp knows no other expansion
func ssmDTRank(c *Config) int { return (c.Width + 15) / 16 }

// mambaShape: there is no attention and no feed-forward network, so more layers make the same size.
func mambaShape(c *Config) {
	c.Layers = map[string]int{"tiny": 4, "6m": 12, "125m": 32, "350m": 52, "1b": 38}[c.Preset]
	c.Heads, c.KVHeads = 1, 1
}

func ssmKeys(c *Config, set setKey) {
	set("ssm.conv_kernel", uint32(ssmConv))
	set("ssm.inner_size", uint32(ssmInner(c)))
	set("ssm.state_size", uint32(ssmState))
	set("ssm.time_step_rank", uint32(ssmDTRank(c)))
}

func mambaKeys(_ *Config, set setKey) {
	set("feed_forward_length", uint32(0))
	set("attention.head_count", uint32(0))
	set("attention.layer_norm_rms_epsilon", float32(1e-5))
}

func mambaOnlyLayer(b *builder, _ int) {
	b.norm("attn_norm", b.Width)
	mambaMixer(b)
}

// mambaMixer adds a selective state space. A = −1 … −16 and steps around 0.01 are Mamba's own initialisation.
func mambaMixer(b *builder) {
	inner, rank := ssmInner(b.Config), ssmDTRank(b.Config)
	b.matrix("ssm_in", b.Width, 2*inner)
	b.small("ssm_conv1d", ssmConv, inner)
	b.bias("ssm_conv1d", inner)
	b.matrix("ssm_x", inner, rank+2*ssmState)
	b.matrix("ssm_dt", rank, inner)
	b.add("ssm_dt.bias", gguf.F32, normal(math.Log(math.Expm1(0.01)), 0.5), inner)
	b.plain("ssm_a", stateDecay, ssmState, inner)
	b.plain("ssm_d", constant(1), inner)
	b.matrix("ssm_out", inner, b.Width)
}

func stateDecay(dst []float32, _ uint64, first int64) {
	for i := range dst {
		dst[i] = -float32((first+int64(i))%ssmState + 1)
	}
}

// jambaShape: one layer in eight has attention (the last but one of four in small models), every second one has
// experts.
func jambaShape(c *Config) {
	oneWidthShape(c)
}

// jambaAttends reports whether layer i has attention instead of a state space.
func jambaAttends(c *Config, i int) bool {
	if c.Layers < 8 {
		return i == c.Layers/2
	}
	return i%8 == 4
}

func jambaKeys(c *Config, set setKey) {
	ssmKeys(c, set)
	set("expert_count", uint32(c.Experts))
	set("expert_used_count", uint32(c.ExpertsUsed))
}

func jambaAttentionKeys(c *Config, set setKey) {
	kv := make([]uint32, c.Layers)
	for i := range kv {
		if jambaAttends(c, i) {
			kv[i] = uint32(c.KVHeads)
		}
	}
	set("attention.head_count", uint32(c.Heads))
	set("attention.head_count_kv", kv)
	set("attention.layer_norm_rms_epsilon", float32(1e-6))
}

func jambaLayer(b *builder, i int) {
	b.norm("attn_norm", b.Width)
	if jambaAttends(b.Config, i) {
		attention(b)
	} else {
		mambaMixer(b)
		b.norm("ssm_dt_norm", ssmDTRank(b.Config))
		b.norm("ssm_b_norm", ssmState)
		b.norm("ssm_c_norm", ssmState)
	}
	b.norm("ffn_norm", b.Width)
	if i%2 == 1 {
		experts(b, b.FF)
	} else {
		gated(b)
	}
}
