package resources

import (
	"container/list"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
)

// What llama.cpp 0.7.0 does (src/llama-moe-cache.cpp): see docs/EXPERTS.md.
const (
	cacheBatch     = 32  // rows of a graph that uses the cache, at most
	cacheSmall     = 8   // rows of a graph that is counted as small, at most
	cacheAlignment = 128 // bytes, of buffers of CUDA
)

// ExpertCache is what a size of --moe-cache-mib is predicted to hold.
type ExpertCache struct {
	MiB int64 `json:"mib"`
	// LRU is the uses that the newest experts of all layers, as many as fit, would have held.
	LRU int64 `json:"lru_hits"`
	Of  int64 `json:"uses"` // of the layers that are cached
	// Groups are layers whose experts are alike: they share slots.
	Groups []ExpertGroup `json:"groups"`
	Small  ExpertCounter `json:"ubatch_up_to_8"`
	Large  ExpertCounter `json:"ubatch_over_8"`
	Past   int64         `json:"past"` // uses by graphs that pass the cache by
}

// ExpertGroup is layers that share slots.
type ExpertGroup struct {
	Layers int `json:"layers"`
	Slots  int `json:"slots"`
}

// ExpertCounter counts what llama.cpp prints at the end of a context.
type ExpertCounter struct {
	Hits   int64 `json:"hits"`
	Misses int64 `json:"misses"`
	Bytes  int64 `json:"uploaded_bytes"`
}

// Rate is the hits of all uses of the layers that are cached: a graph that passes the cache by hits nothing.
func (c *ExpertCache) Rate() float64 { return share(c.Small.Hits+c.Large.Hits, c.Of) }

// LRURate is the same of the plain LRU cache.
func (c *ExpertCache) LRURate() float64 { return share(c.LRU, c.Of) }

func share(part, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}

// slotGroup is layers whose experts are alike, and the experts that its slots hold.
type slotGroup struct {
	layers []*ExpertLayer
	bytes  int64 // of all experts
	slots  int
	number map[int]int     // of a layer in layers, by its number in the run
	used   list.List       // experts in slots, the one used longest ago first
	held   []*list.Element // of each expert in used; nil: it has no slot
}

// predict fills r.Caches.
func (r *Experts) predict(o *ExpertOptions) {
	layers := r.cached(o)
	sizes := o.MiB
	if sizes == nil {
		for i := range int64(16) {
			sizes = append(sizes, (r.Bytes*(i+1)+16<<20-1)/(16<<20))
		}
	}
	sizes = slices.Clone(sizes)
	slices.Sort(sizes)
	for _, mib := range slices.Compact(sizes) {
		c := &ExpertCache{MiB: mib}
		for _, l := range layers {
			c.Of += l.Uses
		}
		r.simulate(c, groupsOf(layers, r.Bytes, mib<<20))
		r.Caches = append(r.Caches, c)
	}
	r.lru(len(layers))
}

// lru counts the hits of the plain LRU caches, of all sizes at once: it holds an expert where the bytes used since,
// its own included, fit.
func (r *Experts) lru(layers int) {
	var d memtrace.Distances
	bases, n := make([]int, layers), 0
	for i, l := range r.Layers[:layers] {
		bases[i] = n
		n += l.Experts
	}
	for i := range r.batches {
		b := &r.batches[i]
		if int(b.layer) >= layers {
			continue
		}
		bytes := r.Layers[b.layer].ExpertBytes
		for _, x := range r.chosen[b.from:b.to] {
			since := d.Touch(bases[b.layer]+int(x), bytes)
			if since < 0 {
				continue
			}
			for k := len(r.Caches) - 1; k >= 0 && since+bytes <= r.Caches[k].MiB<<20; k-- {
				r.Caches[k].LRU++
			}
		}
	}
}

// groupsOf puts layers into groups, each with its part of a budget in bytes.
func groupsOf(layers []*ExpertLayer, all, budget int64) []*slotGroup {
	var groups []*slotGroup
	used := 0
	for _, l := range layers {
		used = max(used, l.Used)
		i := slices.IndexFunc(groups, func(g *slotGroup) bool { return g.layers[0].layout == l.layout })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &slotGroup{number: map[int]int{}})
		}
		g := groups[i]
		g.number[l.number] = len(g.layers)
		g.layers = append(g.layers, l)
		g.bytes += l.ExpertBytes * int64(l.Experts)
	}
	for _, g := range groups {
		items := len(g.layers) * g.layers[0].Experts
		part := int64(float64(budget) * float64(g.bytes) / float64(all))
		for g.slots < items && g.alloc(g.slots+1) <= part {
			g.slots++
		}
		if g.slots < used {
			g.slots = 0
		}
		g.held = make([]*list.Element, items)
	}
	return groups
}

// alloc is the bytes of so many slots: there is one more behind them.
func (g *slotGroup) alloc(slots int) (bytes int64) {
	for _, stride := range g.layers[0].strides {
		bytes += (stride*int64(slots+1) + cacheAlignment - 1) / cacheAlignment * cacheAlignment
	}
	return bytes
}

// simulate counts what llama.cpp's cache would do.
func (r *Experts) simulate(c *ExpertCache, groups []*slotGroup) {
	of := map[int32]*slotGroup{}
	for _, g := range groups {
		c.Groups = append(c.Groups, ExpertGroup{len(g.layers), g.slots})
		for _, l := range g.layers {
			of[int32(l.number)] = g
		}
	}
	var missing []int
	for i := range r.batches {
		b := &r.batches[i]
		g := of[b.layer]
		if g == nil {
			continue
		}
		l, chosen := r.Layers[b.layer], r.chosen[b.from:b.to]
		if b.rows > cacheBatch || min(int(b.rows)*l.Used, l.Experts) > g.slots {
			c.Past += int64(len(chosen))
			continue
		}
		to := &c.Small
		if b.rows > cacheSmall {
			to = &c.Large
		}
		base := g.number[l.number] * l.Experts
		missing = missing[:0]
		for _, x := range chosen {
			if item := base + int(x); g.held[item] != nil {
				g.used.MoveToBack(g.held[item])
				to.Hits++
			} else {
				missing = append(missing, item)
			}
		}
		slices.Sort(missing) // as llama.cpp fills slots
		for _, item := range missing {
			if g.used.Len() == g.slots {
				g.held[g.used.Remove(g.used.Front()).(int)] = nil
			}
			g.held[item] = g.used.PushBack(item)
			to.Misses++
			to.Bytes += l.ExpertBytes
		}
	}
}
