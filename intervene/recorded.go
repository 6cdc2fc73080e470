package intervene

import (
	"context"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// Recorded reads points of a run that was recorded with --tap-points, for Sweep.Recorded.
func Recorded(ctx context.Context, run *tensors.Run, points []ggmlhooks.PointRef) (func(Site) []float32, error) {
	recorded, err := run.Points()
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has none of the points: record it with --tap-points %s", run.Path, points[0])
	}
	return func(s Site) []float32 { return rows[s] }, nil
}
