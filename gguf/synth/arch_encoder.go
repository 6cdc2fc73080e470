package synth

import "github.com/llamatap/llamatap/gguf"

// Values of llama.h's enum llama_pooling_type.
const (
	poolCLS  = 2
	poolRank = 4
)

// encoders are the architectures that compute embeddings and scores and generate no text.
var encoders = map[string]arch{
	"bert": {shape: bertShape, keys: bertKeys, layer: bertLayer, ends: bertEnds,
		attentionKeys: bertAttentionKeys, tokenizer: bertTokenizer},
	"qwen3-rerank": {file: "qwen3", keys: rerankKeys, layer: qwen3Layer, ends: rerankEnds, tokenizer: rerankTokenizer},
}

// tokenTypes is how many kinds of token BERT distinguishes: its first text and its second.
const tokenTypes = 2

// bertShape: positions are a table, and every head has its own keys.
func bertShape(c *Config) {
	c.Context = min(c.Context, 512)
	c.KVHeads = c.Heads
}

func bertAttentionKeys(c *Config, set setKey) {
	set("attention.head_count", uint32(c.Heads))
	set("attention.layer_norm_epsilon", float32(1e-5))
	set("attention.causal", false)
}

func bertKeys(_ *Config, set setKey) { set("pooling_type", uint32(poolCLS)) }

func bertTokenizer(meta *gguf.Metadata) {
	meta.Set("tokenizer.ggml.token_type_count", uint32(tokenTypes))
}

// bertEnds are the tables of tokens, their types and positions, and a head that makes a score of the first token.
func bertEnds(b *builder) {
	b.table("token_embd", b.Width, b.vocab, 1)
	b.small("token_types", b.Width, tokenTypes)
	b.small("position_embd", b.Width, b.Context)
	b.normBias("token_embd_norm", b.Width)
	b.matrixBias("cls", b.Width, b.Width)
	b.matrixBias("cls.output", b.Width, 1)
}

// bertLayer has its norms behind attention and feed-forward network.
func bertLayer(b *builder, _ int) {
	attention(b)
	qkvBias(b)
	b.bias("attn_output", b.Width)
	b.normBias("attn_output_norm", b.Width)
	upDown(b)
	b.normBias("layer_output_norm", b.Width)
}

// rerankEnds have a score for each label beside the output matrix.
func rerankEnds(b *builder) {
	untiedEnds(b)
	b.matrix("cls.output", b.Width, len(rerankLabels))
}

var rerankLabels = []string{"yes", "no"}

func rerankKeys(_ *Config, set setKey) {
	set("pooling_type", uint32(poolRank))
	set("classifier.output_labels", rerankLabels)
}

func rerankTokenizer(meta *gguf.Metadata) {
	meta.Set("tokenizer.chat_template.rerank", "query: {query}\ndocument: {document}\nanswer:")
}
