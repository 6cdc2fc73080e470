package activations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/inspect/tensors"
)

// The definition of attention sinks, after Gu et al. 2025, and the tokens that are read.
const (
	SinkWeight = 0.3 // mean weight above which a head has a sink
	SinkLater  = 16  // later tokens that a sink needs: a mean of few is attention to neighbours
	SinkTokens = 512 // tokens whose attention is read, from the first chosen one
)

// Sinks are the attention sinks of a run.
type Sinks struct {
	Tokens int     `json:"tokens"`            // whose attention was read
	Layers []int   `json:"layers"`            // that it was read of
	Why    string  `json:"missing,omitempty"` // why there are none, or not of all layers
	Found  []*Sink `json:"found"`             // by layer, the largest mean first
}

// Sink is a token that at least one head of a layer gives more than SinkWeight, as the mean of the later tokens that
// see it.
type Sink struct {
	Layer int     `json:"layer"`
	Token int64   `json:"token_index"`
	Later int     `json:"later_tokens"` // that see it, in the head with the most
	Mean  float64 `json:"mean"`         // weight, over heads
	Heads float64 `json:"heads"`        // share of heads whose mean weight is above SinkWeight
}

// weightSum adds up the weights that later tokens give a token in one head.
type weightSum struct {
	n   int
	sum float64
}

// findSinks reads the recorded attention of the chosen layers.
func findSinks(ctx context.Context, r *tensors.Run, o Options) (*Sinks, error) {
	s := &Sinks{Layers: []int{}, Found: []*Sink{}}
	of := uint32(0)
	if o.Filter.Ctx != nil {
		of = *o.Filter.Ctx
	}
	layers, err := r.AttentionLayers(of)
	if errors.Is(err, tensors.ErrNoAttention) {
		s.Why = "not recorded: --tap-attention"
		return s, nil
	} else if err != nil {
		return nil, err
	}
	slices.Sort(layers)
	for _, layer := range layers {
		if o.Filter.Layer != nil && *o.Filter.Layer != layer {
			continue
		}
		err := s.read(ctx, r, tensors.MapOptions{Layer: layer, Head: tensors.AllHeads, Ctx: of, First: o.First,
			End: min(o.End, o.First+SinkTokens)})
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil: // what was recorded of this layer cannot be read: the others may
			s.Why = err.Error()
		default:
			s.Layers = append(s.Layers, layer)
		}
	}
	return s, nil
}

// errNoCells is for a map that does not state which tokens its cells hold.
var errNoCells = errors.New("the tokens of KV cells are not known with --tap-attention exact: record with " +
	"--tap-attention")

// read adds the sinks of one layer.
func (s *Sinks) read(ctx context.Context, r *tensors.Run, o tensors.MapOptions) error {
	m, err := tensors.NewMap(r, o)
	if err != nil {
		return err
	}
	var heads []map[int64]*weightSum
	tokens := map[int64]bool{}
	err = m.EachRow(func(row *tensors.MapRow) error {
		if row.CellTokens == nil {
			return fmt.Errorf("layer %d: %w", o.Layer, errNoCells)
		}
		for row.Head >= len(heads) {
			heads = append(heads, map[int64]*weightSum{})
		}
		tokens[row.Token] = true
		for cell, weight := range row.Weights {
			at := row.CellTokens[cell]
			if weight == 0 || at < 0 || at >= row.Token {
				continue
			}
			sum := heads[row.Head][at]
			if sum == nil {
				sum = new(weightSum)
				heads[row.Head][at] = sum
			}
			sum.n++
			sum.sum += float64(weight)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	s.Tokens = max(s.Tokens, len(tokens))
	var found []*Sink
	for token := range tokens {
		sink := &Sink{Layer: o.Layer, Token: token}
		for _, head := range heads {
			if sum := head[token]; sum != nil {
				mean := sum.sum / float64(sum.n)
				sink.Later = max(sink.Later, sum.n)
				sink.Mean += mean / float64(len(heads))
				if mean > SinkWeight {
					sink.Heads += 1 / float64(len(heads))
				}
			}
		}
		if sink.Later >= SinkLater && sink.Heads > 0 {
			found = append(found, sink)
		}
	}
	slices.SortFunc(found, func(x, y *Sink) int {
		return cmp.Or(cmp.Compare(y.Mean, x.Mean), cmp.Compare(x.Token, y.Token))
	})
	s.Found = append(s.Found, found...)
	return nil
}
