package intervene

import (
	"context"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// Recorded reads points of a run that was recorded with --tap-points, and its tokens, for Sweep.Recorded and
// Sweep.RecordedTokens.
func Recorded(ctx context.Context, run *tensors.Run, points []ggmlhooks.PointRef) (values func(Site) []float32,
	tokens []llama.Token, err error) {
	recorded, err := run.Points()
	if err != nil {
		return nil, nil, err
	}
	if _, err := run.EachToken(func(t *tensors.Token) error {
		tokens = append(tokens, llama.Token(t.ID))
		return nil
	}); err != nil {
		return nil, nil, err
	}
	rows := map[Site][]float32{}
	for _, p := range recorded {
		wanted := slices.ContainsFunc(points, func(ref ggmlhooks.PointRef) bool {
			return ref.Means(p.Point, p.LayerNumber())
		})
		if !wanted || p.How != ggmlhooks.PointServed {
			continue
		}
		err := tensors.EachTokenRow(ctx, run, tensors.Filter{Tensor: p.Tensor}, func(row *tensors.TokenRow) error {
			site := Site{p.Point, p.LayerNumber(), int(row.Token), AllHeads}
			if rows[site] == nil {
				rows[site] = slices.Clone(row.Values)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	if len(rows) == 0 {
		return nil, nil, fmt.Errorf("%s has none of the points: record it with --tap-points %s", run.Path, points[0])
	}
	return func(s Site) []float32 { return rows[s] }, tokens, nil
}
