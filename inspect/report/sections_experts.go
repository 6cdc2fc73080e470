package report

import (
	"context"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
)

// maxRouted bounds the choices that are read for a page.
const maxRouted = 1 << 21

// expertsSection is which experts were chosen, and how often a cache would have held them; nil where a run has none.
func expertsSection(ctx context.Context, r *Run, _ *tracks) (*section, error) {
	if r.Resources == nil || r.Resources.Routed == 0 {
		return nil, nil
	}
	s := &section{ID: "experts", Title: "Experts"}
	if r.Resources.Routed > maxRouted {
		s.Missing = fmt.Sprintf("%s choices are too many for this page: 'llamatap experts' reads them",
			present.Count(r.Resources.Routed))
		return s, nil
	}
	all, err := resources.OpenExperts(ctx, r.Path, resources.ExpertOptions{Ctx: -1})
	if err != nil {
		s.Missing = err.Error()
		return s, ctx.Err()
	}
	s.Text = append(s.Text, fmt.Sprintf("%s chose experts %s times. A graph reads an expert once for all of its "+
		"tokens: %s, of which a cache would have some. 'llamatap experts' has more.",
		present.Plural(all.Tokens, "token"), present.Count(all.Choices), present.Plural(all.Uses, "read")))
	if all.Lost > 0 {
		s.Text = append(s.Text, fmt.Sprintf("%s are lost: the figures are of the others.",
			present.Plural(all.Lost, "choice")))
	}
	c := &figure{Kind: drawnLines, Title: "Hit rate of a cache of each layer's newest experts",
		X: axis{Name: "experts per layer", Unit: "experts"}, Y: axis{Name: "hit rate", Unit: "%"}}
	held := &curve{Name: "LRU, each layer alone", Line: true}
	for _, n := range all.Slots {
		held.X, held.Y = append(held.X, float64(n.Slots)), append(held.Y, 100*float64(n.Hits)/float64(all.Uses))
	}
	c.Series = []*curve{held}
	if all.Caches == nil {
		s.Text = append(s.Text, "No prediction by size: "+all.NoModel+".")
	} else {
		if all.Another != "" {
			s.Text = append(s.Text, fmt.Sprintf("%s is not the run's model: %s.", all.Model, all.Another))
		}
		c.Title, c.X = "Predicted hit rate of --moe-cache-mib", axis{Name: "size of the cache", Unit: "B"}
		lru, cache := &curve{Name: "plain LRU", Line: true}, &curve{Name: "llama.cpp", Line: true}
		for _, of := range all.Caches {
			lru.X, lru.Y = append(lru.X, float64(of.MiB<<20)), append(lru.Y, 100*of.LRURate())
			cache.X, cache.Y = append(cache.X, float64(of.MiB<<20)), append(cache.Y, 100*of.Rate())
		}
		c.Series = []*curve{cache, lru}
		s.Tables = append(s.Tables, &titled{"Predicted caches", trimmed(all.CacheRows())})
	}
	s.Charts = append(s.Charts, c)
	s.Tables = append(s.Tables, &titled{"Experts by layer", trimmed(all.LayerRows(5))})
	return s, nil
}

// trimmed are rows without the spaces that say how columns are aligned in text.
func trimmed(rows [][]string) [][]string {
	for i, cell := range rows[0] {
		rows[0][i] = strings.TrimSpace(cell)
	}
	return rows
}
