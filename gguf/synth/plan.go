package synth

import (
	"errors"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/gguf"
)

// Model is a model that is planned and not yet made: metadata and tensors, no weights.
type Model struct {
	Config Config
	Meta   gguf.Metadata

	parts []part
}

// Plan checks the shape and lays the model out. The tokenizer keys are copied from donor.
func Plan(c Config, donor *gguf.Metadata) (*Model, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("plan a %s model: %w", c.Arch, err)
	}
	tokens, ok := donor.Texts("tokenizer.ggml.tokens")
	if !ok {
		return nil, errors.New("plan a model: the tokenizer's model has no tokenizer.ggml.tokens")
	}
	if c.Vocab == 0 {
		c.Vocab = len(tokens)
	}
	if c.Vocab < len(tokens) || c.Vocab > 1<<24 {
		return nil,
			fmt.Errorf("plan a %s model: vocabulary of %d: the tokenizer has %d tokens, so %d to %d are possible",
				c.Arch, c.Vocab, len(tokens), len(tokens), 1<<24)
	}
	m := &Model{Config: c, parts: buildParts(&c)}
	m.setKeys(donor)
	if c.Infill {
		if err := AddInfill(&m.Meta); err != nil {
			return nil, fmt.Errorf("plan a %s model: %w", c.Arch, err)
		}
	}
	return m, nil
}

func buildParts(c *Config) []part {
	a, _ := findArch(c.Arch)
	b := &builder{Config: c, vocab: c.Vocab}
	if a.ends == nil {
		a.ends = untiedEnds
	}
	a.ends(b)
	for i := range c.Layers {
		b.layer(i)
		a.layer(b, i)
	}
	return b.parts
}

// Tensors are the tensors in file order, without offsets.
func (m *Model) Tensors() []gguf.Tensor {
	out := make([]gguf.Tensor, len(m.parts))
	for i := range m.parts {
		out[i] = m.parts[i].tensor
	}
	return out
}

// Parameters is the exact number of values.
func (m *Model) Parameters() int64 {
	var n int64
	for i := range m.parts {
		n += m.parts[i].tensor.Values()
	}
	return n
}

// dataBytes is the size of all tensors in the file.
func (m *Model) dataBytes() int64 {
	var n int64
	for i := range m.parts {
		t := &m.parts[i].tensor
		row, _ := t.Type.RowBytes(t.RowValues()) // fallback has seen to it that the row fits
		n += row * (t.Values() / t.RowValues())
	}
	return n
}

// Fallbacks counts, for each type other than the one asked for, the matrices that have it because their rows are no
// whole number of blocks.
func (m *Model) Fallbacks() map[gguf.Type]int {
	out := make(map[gguf.Type]int)
	for i := range m.parts {
		if p := &m.parts[i]; p.tensor.Type != p.wanted {
			out[p.tensor.Type]++
		}
	}
	return out
}

func (m *Model) setKeys(donor *gguf.Metadata) {
	c := &m.Config
	name := c.ggufArch()
	m.Meta.Set("general.architecture", name)
	m.Meta.Set("general.type", "model")
	m.Meta.Set("general.name", "synth-"+c.label()+"-"+c.Preset)
	m.Meta.Set("general.size_label", sizeLabel(m.Parameters()))
	m.Meta.Set("general.description", "random weights made by llamatap synth; not trained")
	m.Meta.Set("general.file_type", uint32(fileType(c.Type)))
	m.Meta.Set("general.quantization_version", uint32(2))
	m.Meta.Set("synth.seed", c.Seed)
	m.Meta.Set("synth.parameter_count", uint64(m.Parameters()))
	set := func(key string, data any) { m.Meta.Set(name+"."+key, data) }
	set("context_length", uint32(c.Context))
	set("embedding_length", uint32(c.Width))
	set("block_count", uint32(c.Layers))
	set("feed_forward_length", uint32(c.FF))
	set("vocab_size", uint32(c.Vocab))
	a, _ := findArch(c.Arch)
	if a.attentionKeys == nil {
		a.attentionKeys = attentionKeys
	}
	a.attentionKeys(c, set)
	if a.keys != nil {
		a.keys(c, set)
	}
	copyTokenizer(&m.Meta, donor, c.Vocab)
	if a.tokenizer != nil {
		a.tokenizer(&m.Meta)
	}
}

// fileType is the general.file_type of a file whose matrices have type t.
func fileType(t gguf.Type) gguf.FileType {
	switch t {
	case gguf.F32:
		return gguf.FileF32
	case gguf.BF16:
		return gguf.FileBF16
	case gguf.Q8_0:
		return gguf.FileQ8_0
	case gguf.Q5_0:
		return gguf.FileQ5_0
	case gguf.Q4_0:
		return gguf.FileQ4_0
	case gguf.Q4_K:
		return gguf.FileQ4_K_S
	}
	return gguf.FileF16
}

// unusedToken is llama.h's LLAMA_TOKEN_TYPE_UNUSED.
const unusedToken = 5

// copyTokenizer copies the tokenizer keys and adds unused tokens up to vocab.
func copyTokenizer(meta, donor *gguf.Metadata, vocab int) {
	for _, kv := range donor.All() {
		if !strings.HasPrefix(kv.Key, "tokenizer.") {
			continue
		}
		switch list := kv.Value.Data.(type) {
		case []string:
			if kv.Key == "tokenizer.ggml.tokens" {
				kv.Value.Data = padTokens(list, vocab)
			}
		case []int32:
			if kv.Key == "tokenizer.ggml.token_type" {
				kv.Value.Data = padded(list, vocab, unusedToken)
			}
		case []float32:
			if kv.Key == "tokenizer.ggml.scores" {
				kv.Value.Data = padded(list, vocab, 0)
			}
		}
		meta.Set(kv.Key, kv.Value.Data)
	}
}

func padTokens(tokens []string, n int) []string {
	out := append(make([]string, 0, n), tokens...)
	for i := len(out); i < n; i++ {
		out = append(out, fmt.Sprintf("<|synth_unused_%d|>", i))
	}
	return out
}

func padded[T any](list []T, n int, with T) []T {
	out := append(make([]T, 0, n), list...)
	for len(out) < n {
		out = append(out, with)
	}
	return out
}

// sizeLabel writes a number of parameters as model names do: 982M, 1.2B.
func sizeLabel(n int64) string {
	switch {
	case n >= 999_500_000:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 9_950_000:
		return fmt.Sprintf("%.0fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}
