package intervene

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Graph is the causal graph of a prompt: sites whose change has an effect, and by which edges the effects travel.
type Graph struct {
	Nodes []Node `json:"nodes"` // in the order of computation; the last one is the output
	Links []Link `json:"links"`
}

// Node is a site with its effect on the metric, or the output, which has none.
type Node struct {
	ID     string     `json:"id"`
	Site   *Site      `json:"site,omitempty"`
	Effect *Statistic `json:"effect,omitempty"`
}

// Link is an edge. Its weight is what the metric changes by when the target gets the value that it has where the source
// alone is changed and every other site of the sweep keeps its own; of a link to the output it is what the metric
// changes by then.
type Link struct {
	Source string    `json:"source"`
	Target string    `json:"target"`
	Weight Statistic `json:"weight"`
	Share  *float64  `json:"share,omitempty"` // of the target's change by its own intervention; mean of all pairs
	shares Statistic
}

// outputID is the ID of the node that stands for the metric.
const outputID = "output"

// nodes are the interventions that become nodes: those with the largest effects, in the order of computation.
func (s *sweeper) nodes() (list []Effect) {
	for _, f := range s.report.Effects {
		if len(f.sites) == 1 && s.counts(&f.Effect) {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(a, b Effect) int {
		return cmp.Compare(math.Abs(b.Effect.Mean), math.Abs(a.Effect.Mean))
	})
	list = list[:min(len(list), s.Top)]
	slices.SortStableFunc(list, func(a, b Effect) int {
		x, y := a.sites[0], b.sites[0]
		return cmp.Or(cmp.Compare(order(x), order(y)), cmp.Compare(x.Layer, y.Layer), cmp.Compare(x.Point, y.Point),
			cmp.Compare(x.Token, y.Token), cmp.Compare(x.Head, y.Head))
	})
	return list
}

// order is 0 for what is computed before the layers, 1 within them, 2 after them.
func order(s Site) int {
	switch {
	case s.Point == ggmlhooks.PointEmbeddings:
		return 0
	case s.Layer != ggmlhooks.NoLayer:
		return 1
	}
	return 2
}

// counts reports whether an effect is large enough to be part of the graph.
func (s *sweeper) counts(x *Statistic) bool {
	largest := 0.0
	for i := range s.report.Effects {
		largest = max(largest, math.Abs(s.report.Effects[i].Effect.Mean))
	}
	size := math.Abs(x.Mean)
	return size > s.report.Noise && size >= s.Least*largest && x.excludesZero()
}

// paths measures the edges of the graph.
func (s *sweeper) paths(ctx context.Context, pairs []*pairRun) error {
	nodes := s.nodes()
	s.total += int64(len(pairs) * len(nodes))
	links := map[[2]int]*Link{}
	done := 0
	var err error
	for _, p := range pairs {
		if err = s.pathsOf(ctx, p, nodes, links); err != nil {
			break
		}
		done++
		for _, l := range links { // where nothing arrived the weight is 0, and the share
			for l.Weight.N < done {
				l.Weight.add(0)
				l.shares.add(0)
			}
		}
	}
	s.report.Graph = s.graph(nodes, links)
	return err
}

// pathsOf measures the edges for one pair.
func (s *sweeper) pathsOf(ctx context.Context, p *pairRun, nodes []Effect, links map[[2]int]*Link) error {
	if p.own == nil {
		if _, _, err := s.load(ctx, p); err != nil {
			return err
		}
		defer func() { p.own, p.target = nil, nil }()
	}
	hold := make([]Edit, 0, len(s.rows)) // every row keeps its own value
	for _, row := range s.rows {
		if own := p.own[row]; own != nil {
			hold = append(hold, Edit{Site: row, Values: own})
		}
	}
	sources, observe := make([]Trial, len(nodes)), make([]Site, len(nodes))
	for i := range nodes {
		site := nodes[i].sites[0]
		sources[i] = Trial{{Site: site, Values: s.part(site, p.target[site.row()])}}
		observe[i] = site
	}
	output := len(nodes)
	var arrived [][2]int // edges on which something arrives, with what the target becomes then
	var targets []Trial
	err := s.engine.Run(ctx, p.base, sources, RunOptions{Base: hold, Observe: observe}, func(r *Result) error {
		from := r.Trial
		link(links, from, output).Weight.add(p.metric.effect(r.Logits, r.Control))
		for to := range nodes {
			site := nodes[to].sites[0]
			moved, own, changed := r.Value(site), slices.Clone(s.part(site, p.own[site.row()])), false
			for i, x := range r.ControlValue(site) {
				changed = changed || moved[i] != x
				own[i] += moved[i] - x
			}
			if changed && to != from {
				arrived = append(arrived, [2]int{from, to})
				targets = append(targets, Trial{{Site: site, Values: own}})
			}
		}
		s.step()
		return nil
	})
	if err != nil {
		return err
	}
	s.total += int64(len(targets))
	return s.engine.Run(ctx, p.base, targets, RunOptions{}, func(r *Result) error {
		edge, site := arrived[r.Trial], targets[r.Trial][0].Site
		l := link(links, edge[0], edge[1])
		l.Weight.add(p.metric.effect(r.Logits, r.Control))
		own, target := s.part(site, p.own[site.row()]), s.part(site, p.target[site.row()])
		l.shares.add(share(targets[r.Trial][0].Values, own, target))
		s.step()
		return nil
	})
}

// link is the link of an edge.
func link(links map[[2]int]*Link, from, to int) *Link {
	l := links[[2]int{from, to}]
	if l == nil {
		l = &Link{}
		links[[2]int{from, to}] = l
	}
	return l
}

// share is the part of the way from own to target that moved has gone.
func share(moved, own, target []float32) float64 {
	along, whole := 0.0, 0.0
	for i := range own {
		way := float64(target[i]) - float64(own[i])
		along += (float64(moved[i]) - float64(own[i])) * way
		whole += way * way
	}
	if whole == 0 {
		return 0
	}
	return along / whole
}

// graph puts together what is large enough. Nodes are those of effects, and the output.
func (s *sweeper) graph(nodes []Effect, links map[[2]int]*Link) *Graph {
	g := &Graph{Nodes: []Node{}, Links: []Link{}}
	for i := range nodes {
		site := nodes[i].sites[0]
		g.Nodes = append(g.Nodes, Node{ID: site.String(), Site: &site, Effect: &nodes[i].Effect})
	}
	g.Nodes = append(g.Nodes, Node{ID: outputID})
	for from := range g.Nodes {
		for to := range g.Nodes {
			l := links[[2]int{from, to}]
			if l == nil || l.Weight.N == 0 || !s.counts(&l.Weight) {
				continue
			}
			l.Source, l.Target = g.Nodes[from].ID, g.Nodes[to].ID
			if l.shares.N > 0 {
				l.Share = &l.shares.Mean
			}
			g.Links = append(g.Links, *l)
		}
	}
	return g
}
