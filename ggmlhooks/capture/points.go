package capture

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Point says for readers which packets are a point that was selected, or why the model has none.
type Point struct {
	Ctx   uint32             `json:"ctx"`
	Point ggmlhooks.Point    `json:"point"`
	Layer *int               `json:"layer"` // null for a point of the whole model
	How   ggmlhooks.PointHow `json:"how"`
	// Tensor is the name of the packets: of the point, or of what it is recomputed from.
	Tensor string `json:"tensor,omitempty"`
	Why    string `json:"why,omitempty"` // why it is impossible, or how it is recomputed
}

func (p *Point) same(q *Point) bool {
	layer := func(l *int) int {
		if l == nil {
			return ggmlhooks.NoLayer
		}
		return *l
	}
	return p.Ctx == q.Ctx && p.Point == q.Point && layer(p.Layer) == layer(q.Layer) && p.How == q.How &&
		p.Tensor == q.Tensor
}

// addPoints adds the points of a graph that are selected, unless they are known.
func (u *Use) addPoints(g *graph, s *ggmlhooks.Selection) {
	if len(s.Points) == 0 || g.Tokens == 0 {
		return
	}
	for _, site := range g.Points() {
		if !s.WantsPoint(site.Point, site.Layer) || site.Node >= 0 && !g.Nodes[site.Node].Wanted {
			continue
		}
		p := Point{Ctx: g.Ctx, Point: site.Point, How: site.How, Why: site.Why}
		if site.Layer != ggmlhooks.NoLayer {
			p.Layer = &site.Layer
		}
		if site.Node >= 0 {
			p.Tensor = g.names[site.Node]
		}
		if !slices.ContainsFunc(u.Points, func(q Point) bool { return q.same(&p) }) {
			u.Points = append(u.Points, p)
		}
	}
}
