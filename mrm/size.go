package mrm

import (
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/gguf"
)

// contextPadding is what llama.cpp rounds the length of a context up to, and the part of it that each sequence has.
const contextPadding = 256

// context is the number of cells of a context of that length for so many sequences; 0 is what the model was trained
// for.
func (s *Source) context(nCtx, sequences int64) int64 {
	if nCtx == 0 {
		nCtx = max(s.Identity.Context, 1)
	}
	return padded(padded(nCtx)/sequences) * sequences
}

func padded(nCtx int64) int64 { return (nCtx + contextPadding - 1) / contextPadding * contextPadding }

// context is the number of cells that llama.cpp allocates for a cell of the matrix.
func (cell *Cell) context() int64 {
	return cell.Source.context(int64(cell.NCtx), int64(cell.Concurrency))
}

// perLayer is a key of the header that is one number for all layers, or a list of one per layer.
func (s *Source) perLayer(key string, absent int64) []int64 {
	layers := make([]int64, s.Identity.Layers)
	values, _ := s.File.Metadata.Ints(s.Identity.Architecture + "." + key)
	for i := range layers {
		switch {
		case len(values) == 0:
			layers[i] = absent
		case i < len(values):
			layers[i] = values[i]
		default:
			layers[i] = values[len(values)-1]
		}
	}
	return layers
}

// cacheBytes are those of the KV cache with so many cells, and of recurrent states of so many sequences, as the
// header says. Layers with a sliding window count as if they had none, so that it is at most this.
func (s *Source) cacheBytes(cells int64, kvType string, sequences int64) (int64, error) {
	first, second := kvTypes(kvType)
	k, err := gguf.ParseType(first)
	if err != nil {
		return 0, err
	}
	v, err := gguf.ParseType(second)
	if err != nil {
		return 0, err
	}
	id := s.Identity
	head := int64(0)
	if id.Heads > 0 {
		head = id.Width / id.Heads
	}
	keys, values := s.perLayer("attention.key_length", head), s.perLayer("attention.value_length", head)
	heads := s.perLayer("attention.head_count_kv", id.KVHeads)
	sum := int64(0)
	for i := range heads {
		for _, part := range []struct {
			values int64
			kind   gguf.Type
		}{{heads[i] * keys[i], k}, {heads[i] * values[i], v}} {
			if part.values == 0 {
				continue
			}
			row, err := part.kind.RowBytes(part.values)
			if err != nil {
				return 0, fmt.Errorf("a cache of %s does not go with this model: %w", kvType, err)
			}
			sum += row * cells
		}
		if heads[i] == 0 || id.Heads == 0 { // recurrent; of all layers where the header has no heads
			sum += s.stateBytes() * sequences
		}
	}
	return sum, nil
}

// stateBytes are those of a recurrent layer's state of one sequence; 0 where the header has none.
func (s *Source) stateBytes() int64 {
	number := func(key string) int64 {
		n, _ := s.File.Metadata.Int(s.Identity.Architecture + ".ssm." + key)
		return n
	}
	inner, state, groups := number("inner_size"), number("state_size"), number("group_count")
	convolution := max(number("conv_kernel")-1, 0) * (inner + 2*groups*state)
	return 4 * (convolution + inner*state)
}

// tokenBytes are the bytes of weights that a token reads: all of a dense model, the chosen experts of another, and
// of the table of embeddings a row, unless it is the output's too.
func (s *Source) tokenBytes() int64 {
	_, untied := s.File.Tensor("output.weight")
	sum := int64(0)
	for i := range s.File.Tensors {
		t := &s.File.Tensors[i]
		switch {
		case strings.Contains(t.Name, "_exps") && s.Identity.Experts > 0:
			sum += t.Bytes / s.Identity.Experts * s.Identity.ExpertsUsed
		case untied && t.Name == "token_embd.weight":
		default:
			sum += t.Bytes
		}
	}
	return sum
}
