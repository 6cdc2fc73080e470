package intervene

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// reading is what a model computed of a chunk.
type reading struct {
	logits [][]float32 // by token; nil in the first half
	rows   map[ggmlhooks.PointRef][][]float32
}

// reader runs chunks of text through a model, each from an empty cache, as one micro-batch.
type reader struct {
	*Engine
	places map[ggmlhooks.PointRef]*place // nil until they were looked for
	why    map[ggmlhooks.PointRef]string // there are no others
}

// openReader loads a model, with room for chunks of n tokens.
func openReader(ctx context.Context, o Options, n int) (*reader, error) {
	e, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	p := llama.DefaultContextParams()
	p.Sequences, p.Size, p.Batch, p.MicroBatch, p.Watch, p.NoPerf = 1, n, n, n, true, true
	p.Threads, p.BatchThreads = e.options.Threads, e.options.Threads
	if e.x, err = e.model.NewContext(p); err != nil {
		e.Close()
		return nil, fmt.Errorf("make room for %d tokens: %w: use shorter chunks, with --chunk", n, err)
	}
	if e.batch, err = llama.NewBatch(n, 1); err != nil {
		e.Close()
		return nil, err
	}
	return &reader{Engine: e}, nil
}

// find looks for the points of the graph.
func (r *reader) find(tokens []llama.Token, s shape) error {
	if err := r.decode(tokens, nil); err != nil {
		return err
	}
	g, err := r.x.Graph()
	if err == nil {
		r.places, r.why = layout(g, s, r.heads)
	}
	return err
}

// compared reports whether all rows of a place are numbers that can be subtracted.
func (p *place) compared() bool { return !p.raw && !p.outputs }

// lack is why none of what a reference means is compared; "" where something is.
func (r *reader) lack(ref ggmlhooks.PointRef) string {
	why := ""
	for layer := ggmlhooks.NoLayer; layer < r.layers(); layer++ {
		if !ref.Means(ref.Point, layer) {
			continue
		}
		at := ggmlhooks.PointRef{Point: ref.Point, Layer: layer}
		reason, _, _ := strings.Cut(r.why[at], ": ") // the remedy is one of llamatap run
		switch p := r.places[at]; {
		case p == nil:
		case p.compared():
			return ""
		case p.raw:
			reason = "its values are numbers of experts"
		default:
			reason = "it has rows of output tokens alone"
		}
		why = cmp.Or(why, reason)
	}
	return cmp.Or(why, fmt.Sprintf("the model has %d layers", r.layers()))
}

// read runs a chunk and reads the logits of its second half, and rows of points.
func (r *reader) read(ctx context.Context, tokens []llama.Token, points []ggmlhooks.PointRef) (*reading, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", llama.ErrInterrupted, err)
	}
	n := len(tokens)
	defer until(ctx, r.x)()
	s := shape{1, n, n - 1}
	if len(points) > 0 && r.places == nil {
		if err := r.find(tokens, s); err != nil {
			return nil, err
		}
	}
	cut := cuts{s, r.places, map[int]*llama.WatchSite{}}
	var refs []ggmlhooks.PointRef
	for ref, p := range r.places {
		wanted := func(w ggmlhooks.PointRef) bool { return w.Means(ref.Point, ref.Layer) }
		if !slices.ContainsFunc(points, wanted) || !p.compared() {
			continue
		}
		refs = append(refs, ref)
		if err := cut.observe(Site{ref.Point, ref.Layer, 0, AllHeads}); err != nil {
			return nil, err
		}
	}
	if len(points) > 0 && len(refs) == 0 {
		return nil, fmt.Errorf("%s has none of the points: 'llamatap inspect MODEL --points' lists them",
			r.options.Model)
	}
	if err := r.decode(tokens, cut.list()); err != nil {
		return nil, err
	}
	all := &reading{logits: make([][]float32, n), rows: map[ggmlhooks.PointRef][][]float32{}}
	for i := range n {
		if i >= n/2 {
			l, err := r.x.Logits(i)
			if err != nil {
				return nil, err
			}
			all.logits[i] = slices.Clone(l)
		}
		for _, ref := range refs {
			all.rows[ref] = append(all.rows[ref], cut.value(0, Site{ref.Point, ref.Layer, i, AllHeads}))
		}
	}
	return all, nil
}

// decode computes all tokens, with the logits of each.
func (r *reader) decode(tokens []llama.Token, sites []llama.WatchSite) error {
	r.x.Memory().Clear(false)
	r.batch.Reset()
	for i, t := range tokens {
		if err := r.batch.Add(t, llama.Pos(i), true, 0); err != nil {
			return err
		}
	}
	return r.x.DecodeWatched(r.batch, sites)
}
