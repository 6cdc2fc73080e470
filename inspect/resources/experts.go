package resources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/resource"
)

// ExpertOptions say what is read. The zero value reads the first context of the log that chose experts, and its model.
type ExpertOptions struct {
	Ctx   int    // context; below 0: the first that chose experts
	Model string // GGUF file; "": the one that the run's metadata name
	// Layers bounds the layers whose experts stay in host memory to the first ones, as --n-cpu-moe does; 0: all.
	Layers int
	MiB    []int64 // sizes of caches to predict, in MiB; nil: sixteenths of all experts
}

// Experts is what is known of the experts that a context of a run chose. A use is an expert of a layer that any token
// of a graph chose: a graph reads it once.
type Experts struct {
	Ctx     uint32         `json:"ctx"`
	Others  []uint32       `json:"other_contexts,omitempty"` // that chose experts too
	Tokens  int64          `json:"tokens"`                   // rows of the layer that has most
	Graphs  int64          `json:"graphs"`                   // of that layer
	Choices int64          `json:"choices"`                  // by tokens
	Uses    int64          `json:"uses"`                     // by graphs
	Lost    uint64         `json:"lost"`                     // events that the log lacks
	Layers  []*ExpertLayer `json:"layers"`
	// Slots is how often a cache that holds the newest experts of each layer alone would have held the one used.
	Slots []ExpertSlots `json:"slots"`
	// Model is where sizes come from; NoModel says why they are not known.
	Model   string         `json:"model,omitempty"`
	NoModel string         `json:"no_model,omitempty"`
	Another string         `json:"another_model,omitempty"` // how that file is not the run's model
	Bytes   int64          `json:"expert_bytes,omitempty"`  // of all experts of the layers that are cached
	Caches  []*ExpertCache `json:"caches,omitempty"`

	byLayer map[int]*ExpertLayer
	batches []expertBatch
	chosen  []uint16 // of the batches, one after the other
	open    struct {
		exec  uint64
		layer *ExpertLayer
		seen  []uint32 // by expert: the batch that it was seen in
		n     uint32
	}
}

// ExpertLayer is a layer's experts.
type ExpertLayer struct {
	Layer   int       `json:"layer"`
	Experts int       `json:"experts,omitempty"` // that it has; 0: not known
	Used    int       `json:"used"`              // for a token, at most
	Tokens  int64     `json:"tokens"`
	Uses    int64     `json:"uses"`
	Chosen  []int64   `json:"chosen"`            // by expert: tokens
	Weights []float64 `json:"weights,omitempty"` // by expert: sum, where weights are recorded
	Entropy float64   `json:"entropy_bits"`      // of Chosen
	// Balance is the mean of Chosen divided by the largest; absent where Experts is not known.
	Balance     *float64 `json:"balance,omitempty"`
	ExpertBytes int64    `json:"expert_bytes,omitempty"`

	number    int     // in Experts.Layers
	strides   []int64 // bytes of an expert in each of its tensors
	layout    string
	graphs    int64
	distances memtrace.Distances
	again     []int64 // uses by distance, in experts
}

// ExpertSlots is a size of a cache for each layer alone.
type ExpertSlots struct {
	Slots int   `json:"slots"`
	Hits  int64 `json:"hits"` // of Experts.Uses
}

// expertBatch is the distinct experts of a layer in a graph, in the order in which tokens chose them.
type expertBatch struct {
	layer    int32 // number in Experts.Layers, from settle on
	rows     int32
	from, to int64
}

var errManyUses = errors.New("too many uses of experts: record fewer tokens at --tap-resource-level DETAILED")

// OpenExperts reads the choices of a run directory, or of one file of resource events.
func OpenExperts(ctx context.Context, path string, o ExpertOptions) (*Experts, error) {
	r := &Experts{byLayer: map[int]*ExpertLayer{}}
	first := o.Ctx < 0
	if !first {
		r.Ctx = uint32(o.Ctx)
	}
	lost, err := EachRouting(ctx, path, func(e *resource.Routing) error {
		number := ContextOf(e.Ctx)
		if first {
			r.Ctx, first = number, false
		}
		if number != r.Ctx {
			if !slices.Contains(r.Others, number) && len(r.Others) < 64 {
				r.Others = append(r.Others, number)
			}
			return nil
		}
		return r.addRouting(e)
	})
	if err != nil {
		return nil, err
	}
	if r.Lost = lost; len(r.byLayer) == 0 {
		return nil, fmt.Errorf("%s: context %d chose no experts: --ctx takes one of %v", path, r.Ctx, r.Others)
	}
	r.settle()
	if err := r.readModel(path, &o); err != nil {
		return nil, err
	}
	r.measure()
	if r.Bytes > 0 {
		r.predict(&o)
	}
	return r, nil
}

// addRouting counts the choice of a token in a layer.
func (r *Experts) addRouting(e *resource.Routing) error {
	l := r.byLayer[e.LayerID]
	if l == nil {
		l = &ExpertLayer{Layer: e.LayerID}
		r.byLayer[e.LayerID] = l
	}
	if open := &r.open; open.layer != l || open.exec != e.Exec {
		open.layer, open.exec = l, e.Exec
		open.n++
		l.graphs++
		r.batches = append(r.batches, expertBatch{layer: int32(l.Layer), from: int64(len(r.chosen)),
			to: int64(len(r.chosen))})
	}
	b := &r.batches[len(r.batches)-1]
	b.rows++
	l.Tokens++
	l.Used = max(l.Used, len(e.Experts))
	for i, x := range e.Experts {
		l.Chosen = atLeast(l.Chosen, int(x)+1)
		r.open.seen = atLeast(r.open.seen, int(x)+1)
		l.Chosen[x]++
		if len(e.Weights) == len(e.Experts) {
			l.Weights = atLeast(l.Weights, int(x)+1)
			l.Weights[x] += float64(e.Weights[i])
		}
		if r.open.seen[x] != r.open.n {
			r.open.seen[x] = r.open.n
			r.chosen = append(r.chosen, uint16(x))
			l.Uses++
		}
		r.Choices++
	}
	if b.to = int64(len(r.chosen)); b.to > maxUses {
		return errManyUses
	}
	return nil
}

func atLeast[T any](s []T, n int) []T {
	return append(s, make([]T, max(n-len(s), 0))...)
}

// settle orders the layers and gives them numbers.
func (r *Experts) settle() {
	for _, l := range r.byLayer {
		r.Layers = append(r.Layers, l)
		r.Uses += l.Uses
		if l.Tokens > r.Tokens {
			r.Tokens, r.Graphs = l.Tokens, l.graphs
		}
	}
	slices.SortFunc(r.Layers, func(a, b *ExpertLayer) int { return a.Layer - b.Layer })
	for i, l := range r.Layers {
		l.number = i
	}
	for i := range r.batches {
		r.batches[i].layer = int32(r.byLayer[int(r.batches[i].layer)].number)
	}
	slices.Sort(r.Others)
}

// measure computes what follows from the choices alone.
func (r *Experts) measure() {
	for i := range r.batches {
		b := &r.batches[i]
		l := r.Layers[b.layer]
		for _, x := range r.chosen[b.from:b.to] {
			if d := l.distances.Touch(int(x), 1); d >= 0 {
				l.again = atLeast(l.again, int(d)+1)
				l.again[d]++
			}
		}
	}
	most := 0
	for _, l := range r.Layers {
		most = max(most, len(l.Chosen), l.Experts)
		l.Chosen = atLeast(l.Chosen, l.Experts)
		if l.Weights != nil {
			l.Weights = atLeast(l.Weights, l.Experts)
		}
		sum := int64(0)
		for _, n := range l.Chosen {
			sum += n
		}
		for _, n := range l.Chosen {
			if n > 0 {
				share := float64(n) / float64(sum)
				l.Entropy -= share * math.Log2(share)
			}
		}
		if l.Experts > 0 {
			l.Balance = new(float64(sum) / float64(l.Experts) / float64(slices.Max(l.Chosen)))
		}
	}
	for n := 1; ; n = min(2*n, most) {
		s := ExpertSlots{Slots: n}
		for _, l := range r.Layers {
			for _, uses := range l.again[:min(n, len(l.again))] {
				s.Hits += uses
			}
		}
		if r.Slots = append(r.Slots, s); n == most {
			return
		}
	}
}

// Hot are the experts of a layer by how often tokens chose them, most first.
func (l *ExpertLayer) Hot() []int {
	all := make([]int, len(l.Chosen))
	for i := range all {
		all[i] = i
	}
	slices.SortStableFunc(all, func(a, b int) int { return int(l.Chosen[b] - l.Chosen[a]) })
	return all
}

// Share is which part of a layer's choices an expert has.
func (l *ExpertLayer) Share(expert int) float64 {
	sum := int64(0)
	for _, n := range l.Chosen {
		sum += n
	}
	return float64(l.Chosen[expert]) / float64(sum)
}

// ErrNoExperts occurs when a run has no record of chosen experts.
var ErrNoExperts = errors.New("no choice of experts is recorded")

// maxLayerExperts bounds the experts of a layer, maxUses the uses that are kept, of 2 bytes each.
const (
	maxLayerExperts = 1 << 12
	maxUses         = 1 << 28
)

// EachRouting calls f with each recorded choice, in the order of the log. What it is called with is used again. lost is
// the number of events of choices that the log says were not recorded. Lines that cannot be read are passed over.
func EachRouting(ctx context.Context, path string, f func(*resource.Routing) error) (lost uint64, err error) {
	var e resource.Routing
	n := 0
	err = EachEvent(ctx, path, func(kind resource.Kind, text []byte) error {
		switch kind {
		case resource.KindLoss:
			var loss resource.Loss
			if json.Unmarshal(text, &loss) == nil && loss.Kind == resource.KindRouting.String() {
				lost += loss.Count
			}
		case resource.KindRouting:
			e = resource.Routing{Experts: e.Experts[:0], Weights: e.Weights[:0]}
			if json.Unmarshal(text, &e) == nil && validRouting(&e) {
				n++
				return f(&e)
			}
		}
		return nil
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: %w: record a model that has experts with --tap-resource-level DETAILED", path,
			ErrNoExperts)
	}
	return lost, err
}

// validRouting reports whether numbers are such that memory can be given by them.
func validRouting(e *resource.Routing) bool {
	for _, x := range e.Experts {
		if x < 0 || x >= maxLayerExperts {
			return false
		}
	}
	return e.LayerID >= 0 && e.LayerID < maxLayers && len(e.Experts) > 0
}
