package capture

import (
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// addPoints adds the points of a graph that are selected, unless they are known.
func (u *Use) addPoints(g *graph, s *ggmlhooks.Selection) {
	if len(s.Points) == 0 || g.Tokens == 0 {
		return
	}
	for _, site := range g.Points() {
		if !s.WantsPoint(site.Point, site.Layer) || site.Node >= 0 && !g.Nodes[site.Node].Wanted {
			continue
		}
		p := ggmlhooks.PointRecord{Ctx: g.Ctx, Point: site.Point, Layer: &site.Layer, How: site.How, Why: site.Why}
		if site.Layer == ggmlhooks.NoLayer {
			p.Layer = nil
		}
		if site.Node >= 0 {
			p.Tensor = g.names[site.Node]
		}
		if !slices.ContainsFunc(u.Points, p.Same) {
			u.Points = append(u.Points, p)
		}
	}
}
