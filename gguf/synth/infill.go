package synth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/gguf"
)

// controlToken is llama.h's LLAMA_TOKEN_TYPE_CONTROL.
const controlToken = 3

// infillTokens are the tokens of a model that fills text in between two others, and the keys that name them.
var infillTokens = []struct{ key, text string }{
	{"fim_pre_token_id", "<|fim_prefix|>"},
	{"fim_suf_token_id", "<|fim_suffix|>"},
	{"fim_mid_token_id", "<|fim_middle|>"},
	{"fim_pad_token_id", "<|fim_pad|>"},
	{"fim_rep_token_id", "<|repo_name|>"},
	{"fim_sep_token_id", "<|file_sep|>"},
	{"eot_token_id", "<|eot_id|>"},
}

// AddInfill gives a tokenizer the control tokens of infill, <|fim_prefix|> and so on, and one that ends what was
// filled in, <|eot_id|>. They take the places of the first unused tokens, by their kind or by a name such as
// <|unused7|>, so that the vocabulary stays as large as it was and suits weights that exist. A tokenizer with too
// few unused tokens is refused, and left as it was.
func AddInfill(meta *gguf.Metadata) error {
	tokens, _ := meta.Texts("tokenizer.ggml.tokens")
	kinds, _ := meta.Ints("tokenizer.ggml.token_type")
	free := make([]int, 0, len(infillTokens))
	for id, kind := range kinds[:min(len(kinds), len(tokens))] {
		unused := kind == unusedToken || kind == controlToken && strings.HasPrefix(tokens[id], "<|unused")
		if unused && len(free) < len(infillTokens) {
			free = append(free, id)
		}
	}
	if len(free) < len(infillTokens) {
		return fmt.Errorf("infill needs %d unused tokens and the tokenizer has %d: make its vocabulary larger by %d",
			len(infillTokens), len(free), len(infillTokens)-len(free))
	}
	tokens = slices.Clone(tokens)
	types := make([]int32, len(kinds))
	for id, kind := range kinds {
		types[id] = int32(kind)
	}
	for i, t := range infillTokens {
		tokens[free[i]], types[free[i]] = t.text, controlToken
		meta.Set("tokenizer.ggml."+t.key, uint32(free[i]))
	}
	meta.Set("tokenizer.ggml.tokens", tokens)
	meta.Set("tokenizer.ggml.token_type", types)
	return nil
}
