package intervene

import (
	"fmt"
	"maps"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// cuts are the nodes at which one decode reads and changes tensors.
type cuts struct {
	shape
	places map[ggmlhooks.PointRef]*place
	sites  map[int]*llama.WatchSite // by node
}

// find is where a site of a sequence lies. There is no run where the graph has no row of the token: it was computed
// before, or nothing reads it.
func (c *cuts) find(sequence int, s Site) (*place, []run, error) {
	p := c.places[s.ref()]
	if p == nil || s.Head != AllHeads && s.Head >= p.heads {
		return nil, nil, fmt.Errorf("the model has no %s that can be changed: 'llamatap inspect MODEL --points' lists "+
			"the points", s)
	}
	row, ok := c.row(sequence, s.Token, p.outputs)
	if !ok {
		return p, nil, nil
	}
	return p, p.runs(row, s.Head), nil
}

// site is the cut at a node.
func (c *cuts) site(node int) *llama.WatchSite {
	s := c.sites[node]
	if s == nil {
		s = &llama.WatchSite{Node: node}
		c.sites[node] = s
	}
	return s
}

// list returns the cuts in the order of the nodes.
func (c *cuts) list() []llama.WatchSite {
	list := make([]llama.WatchSite, 0, len(c.sites))
	for _, node := range slices.Sorted(maps.Keys(c.sites)) {
		list = append(list, *c.sites[node])
	}
	return list
}

// edit adds an edit of a sequence.
func (c *cuts) edit(sequence int, e *Edit) error {
	p, runs, err := c.find(sequence, e.Site)
	if err != nil {
		return err
	}
	if p.raw && e.Kind == llama.WatchProject {
		return fmt.Errorf("%s holds numbers of experts: patch or resample it", e.Site)
	}
	if want := p.to - p.from; len(runs) > 0 && e.Kind == llama.WatchProject && e.Head == AllHeads &&
		want != len(e.Values) {
		return fmt.Errorf("%s has %d values, and the direction %d: project a point of the residual stream, such as "+
			"resid_post", e.Site, want, len(e.Values))
	}
	at, n := c.site(p.node), 0
	for _, r := range runs {
		w := llama.WatchWrite{Kind: e.Kind, Offset: r.at, Bytes: valueBytes * r.n}
		if e.Kind != llama.WatchKeep {
			if n+r.n > len(e.Values) {
				return fmt.Errorf("%s has more than the %d values given", e.Site, len(e.Values))
			}
			w.Values = e.Values[n : n+r.n]
		}
		n += r.n
		at.Writes = append(at.Writes, w)
	}
	if n > 0 && n != len(e.Values) && e.Kind != llama.WatchKeep || e.Kind == llama.WatchProject && len(runs) > 1 {
		return fmt.Errorf("%s has %d values in %d pieces, not %d in one", e.Site, n, len(runs), len(e.Values))
	}
	return nil
}

// observe has a row read, of all sequences.
func (c *cuts) observe(s Site) error {
	p, _, err := c.find(0, s)
	if err != nil {
		return err
	}
	at := c.site(p.node)
	if end := int(p.offset) + p.span; len(at.Read) < end { // several points may lie in one tensor
		at.Read = make([]byte, end)
	}
	return nil
}

// value is what was read of a site of a sequence.
func (c *cuts) value(sequence int, s Site) []float32 {
	p, runs, err := c.find(sequence, s)
	if err != nil || c.sites[p.node] == nil || len(c.sites[p.node].Read) == 0 {
		return nil
	}
	var values []float32
	for _, r := range runs {
		for read := c.sites[p.node].Read[r.at:][:valueBytes*r.n]; len(read) > 0; read = read[valueBytes:] {
			values = append(values, float32At(read))
		}
	}
	return values
}
