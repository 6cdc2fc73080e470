package intervene

import (
	"context"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
)

// Recording is what a run that was recorded with --tap-point holds of some points.
type Recording struct {
	Path   string
	Model  string // name of the model; "" where the run does not state it
	Tokens []llama.Token
	rows   map[Site][]float32
}

// OpenRecording reads points of a run, and its tokens.
func OpenRecording(ctx context.Context, run *tensors.Run, points []ggmlhooks.PointRef) (*Recording, error) {
	r := &Recording{Path: run.Path, rows: map[Site][]float32{}}
	if run.Metadata != nil {
		r.Model = run.Metadata.Model.Name
	}
	recorded, err := run.Points()
	if err != nil {
		return nil, err
	}
	if _, err := run.EachToken(func(t *tensors.Token) error {
		r.Tokens = append(r.Tokens, llama.Token(t.ID))
		return nil
	}); err != nil {
		return nil, err
	}
	for _, p := range recorded {
		wanted := slices.ContainsFunc(points, func(ref ggmlhooks.PointRef) bool {
			return ref.Means(p.Point, p.LayerNumber())
		})
		if !wanted || p.How != ggmlhooks.PointServed {
			continue
		}
		err := tensors.EachTokenRow(ctx, run, tensors.Filter{Tensor: p.Tensor}, func(row *tensors.TokenRow) error {
			site := Site{p.Point, p.LayerNumber(), int(row.Token), AllHeads}
			if r.rows[site] == nil {
				r.rows[site] = slices.Clone(row.Values)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(r.rows) == 0 {
		return nil, fmt.Errorf("%s has none of the points: record it with --tap-point %s", run.Path, points[0])
	}
	return r, nil
}

// check refuses a recording of another model, or of another prompt.
func (r *Recording) check(model string, clean []llama.Token, prompt string) error {
	if r.Model != "" && r.Model != model {
		return fmt.Errorf("%s is of the model %q, and this one is %q: record the prompt with this model", r.Path,
			r.Model,
			model)
	}
	if n := len(clean); n > len(r.Tokens) || !slices.Equal(clean, r.Tokens[:n]) {
		return fmt.Errorf("the recording is not of the clean prompt %q: record that one, with --tap-point", prompt)
	}
	return nil
}
