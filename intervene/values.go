package intervene

import (
	"context"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

// record reads rows of a run, and its logits.
func (s *sweeper) record(ctx context.Context, prompt []llama.Token, rows []Site) (values map[Site][]float32,
	logits []float32, err error) {
	values = make(map[Site][]float32, len(rows))
	err = s.engine.Run(ctx, prompt, []Trial{nil}, RunOptions{Observe: rows, Whole: true}, func(r *Result) error {
		logits = slices.Clone(r.Control)
		for _, row := range rows {
			if v := r.ControlValue(row); v != nil {
				values[row] = v
			}
		}
		return nil
	})
	return values, logits, err
}

// load reads a pair's rows and computes what interventions make of them.
func (s *sweeper) load(ctx context.Context, p *pairRun) (base, source []float32, err error) {
	if p.own, base, err = s.record(ctx, p.base, s.rows); err != nil {
		return nil, nil, err
	}
	p.target = make(map[Site][]float32, len(p.own))
	if p.source != nil {
		p.target, source, err = s.record(ctx, p.source, s.rows)
		return base, source, err
	}
	for row, own := range p.own {
		target := make([]float32, len(own))
		switch {
		case s.Recorded != nil:
			if target = s.Recorded.rows[row]; len(target) != len(own) {
				return nil, nil, fmt.Errorf("the recording has %d values at %s, the model %d: record a prompt of %d "+
					"tokens with this model and --tap-point %s", len(target), row, len(own), len(p.base), row.Point)
			}
		case s.Action == "mean":
			ref := row.ref()
			mean := s.means[ref]
			if len(mean) > 0 && len(mean) != len(own) {
				return nil, nil, unequal(ref, len(mean), len(own))
			}
			for i, x := range mean {
				target[i] = float32(x)
			}
		case s.Action == "project":
			d := s.directions.at(row.Point, row.Layer)
			along := 0.0
			for i := range min(len(own), len(d)) {
				along += float64(own[i]) * float64(d[i])
			}
			for i := range min(len(own), len(d)) {
				target[i] = own[i] - float32(along)*d[i]
			}
		}
		p.target[row] = target
	}
	return base, nil, nil
}

// average computes the mean row of each point, over all tokens of all corrupt prompts, or of the clean ones.
func (s *sweeper) average(ctx context.Context, pairs []*pairRun) error {
	s.means = map[ggmlhooks.PointRef][]float64{}
	counts := map[ggmlhooks.PointRef]float64{}
	for i, p := range pairs {
		prompt := p.base
		if s.Pairs[i].Corrupt != "" {
			var err error
			if prompt, err = s.engine.Vocab().Tokenize(s.Pairs[i].Corrupt, true, true); err != nil {
				return err
			}
		}
		var rows []Site
		for _, row := range s.rows {
			if row.Token == s.rows[0].Token {
				for row.Token = range prompt {
					rows = append(rows, row)
				}
			}
		}
		values, _, err := s.record(ctx, prompt, rows)
		if err != nil {
			return err
		}
		for row, value := range values {
			ref := row.ref()
			if s.means[ref] == nil {
				s.means[ref] = make([]float64, len(value))
			}
			if len(s.means[ref]) != len(value) {
				return unequal(ref, len(s.means[ref]), len(value))
			}
			for i, x := range value {
				s.means[ref][i] += float64(x)
			}
			counts[ref]++
		}
	}
	for ref, sum := range s.means {
		for i := range sum {
			sum[i] /= counts[ref]
		}
	}
	return nil
}

// unequal is the error for a point whose rows are longer in a longer prompt, as those of patterns are.
func unequal(ref ggmlhooks.PointRef, a, b int) error {
	return fmt.Errorf("%s has %d values in one prompt and %d in another: take the mean of prompts of one length", ref,
		a, b)
}

// part is what a site has of its row.
func (s *sweeper) part(site Site, row []float32) []float32 {
	if site.Head == AllHeads || row == nil {
		return row
	}
	width := len(row) / s.heads[site.ref()]
	return row[site.Head*width:][:width]
}

// change is the edit of a site.
func (s *sweeper) change(p *pairRun, site Site) Edit {
	if s.Action == "project" { // of the value that the site has then
		return Edit{Site: site, Kind: llama.WatchProject, Values: s.directions.at(site.Point, site.Layer)}
	}
	return Edit{Site: site, Values: s.part(site, p.target[site.row()])}
}

// directions are of length 1, by layer.
type directions map[int][]float32

// at is the direction at a point. A control vector acts after a layer, so what enters a layer has that of the one
// before.
func (d directions) at(point ggmlhooks.Point, layer int) []float32 {
	if point == ggmlhooks.PointResidPre {
		layer--
	}
	return d[layer]
}

// unit gives the directions of a control vector length 1.
func unit(v *gguf.ControlVector) directions {
	units := directions{}
	for layer, direction := range v.Directions {
		if norm := v.Norm(layer); norm > 0 {
			d := slices.Clone(direction)
			for i := range d {
				d[i] /= float32(norm)
			}
			units[layer] = d
		}
	}
	return units
}
