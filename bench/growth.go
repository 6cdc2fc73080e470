package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Growth measures how what the tap costs grows with one thing at a time, and fits exponents.
type Growth struct {
	*Stage
	Series []Series
	Time   time.Duration
}

// Series is one thing that grows: the same item at several sizes.
type Series struct {
	Name   string // of what grows, such as context
	Label  string // of the model and what is recorded, for the line
	Unit   string // of one of what the cost is of: token, or step of all sequences
	Points []Point
}

// Point is a size and its item; the item has a tap configuration, and is measured without it too.
type Point struct {
	Size int
	Item Item
}

// Contexts is a series of tokens that are generated behind contexts of some depths. A depth is computed once, and
// stays in a file of the stage's folder beside the models.
func (s *Stage) Contexts(m NamedModel, tap TapSetting, gen int, depths ...int) Series {
	series := Series{Name: "context", Label: m.Name + " tg", Unit: "token"}
	for _, depth := range depths {
		spec := s.spec(m.Path, 0, gen)
		spec.Depth, spec.State = depth, filepath.Join(s.Dir, fmt.Sprintf("state-%s-%d", m.Name, depth))
		series.Points = append(series.Points, Point{depth, Item{Spec: spec, Tap: tap}})
	}
	return series
}

// Batches is a series of a prompt in micro-batches of some sizes.
func (s *Stage) Batches(m NamedModel, tap TapSetting, prompt int, sizes ...int) Series {
	series := Series{Name: "batch", Label: m.Name + " pp", Unit: "token"}
	for _, size := range sizes {
		spec := s.spec(m.Path, prompt, 0)
		spec.MicroBatch = size
		series.Points = append(series.Points, Point{size, Item{Spec: spec, Tap: tap}})
	}
	return series
}

// Sequences is a series of several sequences that are generated at a time.
func (s *Stage) Sequences(m NamedModel, tap TapSetting, gen int, counts ...int) Series {
	series := Series{Name: "sequences", Label: m.Name + " tg", Unit: "step"}
	for _, n := range counts {
		spec := s.spec(m.Path, 0, gen)
		spec.Sequences = n
		series.Points = append(series.Points, Point{n, Item{Spec: spec, Tap: tap}})
	}
	return series
}

// Layers is a series of models that have some numbers of layers, and are the same otherwise.
func (s *Stage) Layers(models map[int]NamedModel, tap TapSetting, gen int, counts ...int) Series {
	series := Series{Name: "layers", Label: "tg", Unit: "token"}
	for _, n := range counts {
		series.Points = append(series.Points, Point{n, Item{Spec: s.spec(models[n].Path, 0, gen), Tap: tap}})
	}
	return series
}

// Captured is a series of one model of which ever more layers are recorded, and so of tensors.
func (s *Stage) Captured(m NamedModel, gen int, layers ...int) Series {
	series := Series{Name: "tensors", Label: m.Name + " tg", Unit: "token"}
	for _, n := range layers {
		tap := TapSetting{Name: fmt.Sprintf("%d layers", n), Flags: []string{fmt.Sprintf("--tap-layers=0-%d", n-1)}}
		series.Points = append(series.Points, Point{n, Item{Spec: s.spec(m.Path, 0, gen), Tap: tap}})
	}
	return series
}

// Run measures series by series, each for an equal share of the time that is left, and fills the table. Files of
// depths that are not there are made first, on top of the time.
func (g Growth) Run(ctx context.Context) error {
	end := time.Now().Add(g.Time)
	for i := range g.Series {
		made, err := g.prepare(ctx, &g.Series[i])
		if err != nil {
			return err
		}
		end = end.Add(made)
		until := time.Now().Add(time.Until(end) / time.Duration(len(g.Series)-i))
		if err := g.series(ctx, &g.Series[i], until); err != nil {
			return err
		}
	}
	return nil
}

func (g Growth) series(ctx context.Context, s *Series, until time.Time) error {
	var items []Item
	for i := range s.Points {
		off := s.Points[i].Item
		off.Tap = TapSetting{Name: "off"}
		items = append(items, off, s.Points[i].Item)
	}
	visits, err := g.rounds(ctx, "growth with "+s.Name+", "+s.Label, items, until)
	if err != nil {
		return err
	}
	g.fill(s, visits)
	return nil
}

// prepare makes the files of depths that are not there, with visits that do not count, and tells how long it took.
func (g Growth) prepare(ctx context.Context, s *Series) (took time.Duration, err error) {
	begin := time.Now()
	look := g.visit
	if look == nil {
		look = g.one
	}
	for _, p := range s.Points {
		item := p.Item
		if item.Spec.State == "" {
			continue
		}
		if _, err := os.Stat(item.Spec.State); err == nil {
			continue
		}
		g.Progress(fmt.Sprintf("growth: %s, a context of %d tokens is computed", s.Label, p.Size))
		item.Tap, item.Spec.NoWarmUp = TapSetting{Name: "off"}, true
		if _, err := look(ctx, &item, 1, g.Dir); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// fill fits how the tap's own time and the time that its presence adds grow. visits holds, for each point, those
// without and those with.
func (g Growth) fill(s *Series, visits [][]Visit) {
	var sizes []float64
	var own, added, base [][]float64
	for i, p := range s.Points {
		off, on := visits[2*i], visits[2*i+1]
		sizes = append(sizes, float64(p.Size))
		plain, with := each(off, p.cost), each(on, p.cost)
		var more []float64
		for k := range min(len(plain), len(with)) {
			more = append(more, with[k]-plain[k])
		}
		base, added, own = append(base, plain), append(added, more), append(own, each(on, p.own))
		cost := MedianInterval(with)
		ratio := MedianInterval(quotients(plain, with))
		g.Table.Add(Line{Section: "growth", Name: fmt.Sprintf("%s, %s %d, %s", s.Label, s.Name, p.Size, p.Item.Tap.Name), Value: cost.Median,
			Unit: "µs/" + s.Unit, Limit: "the rate off", Ratio: &ratio, Verdict: ratio.difference()})
	}
	for _, of := range []struct {
		name   string
		values [][]float64
	}{{"without the tap", base}, {"own time of the tap", own}, {"time that the tap adds", added}} {
		fit, resolved := growth(sizes, of.values)
		line := Line{Section: "growth", Name: fmt.Sprintf("%s: %s per %s", s.Label, of.name, s.Unit), Figure: growthFigure(s.Name, fit), Verdict: Unresolved}
		if resolved {
			line.Verdict = kindOf(fit)
		}
		if len(of.values[0]) > 0 && len(of.values[len(of.values)-1]) > 0 {
			first, last := MedianInterval(of.values[0]).Median, MedianInterval(of.values[len(of.values)-1]).Median
			line.Figure += fmt.Sprintf(", %.4g to %.4g µs", first, last)
		}
		g.Table.Add(line)
	}
}

// nearly is how far from 0 or 1 an exponent may be and still be told as that.
const nearly = 0.02

// kindOf names an exponent's interval.
func kindOf(fit Interval) Verdict {
	switch {
	case fit.High < -nearly:
		return "shrinks"
	case fit.Low <= nearly:
		return "does not grow"
	case fit.High < 1-nearly:
		return "grows more slowly than in proportion"
	case fit.Low > 1+nearly:
		return "grows faster than in proportion"
	}
	return "grows in proportion"
}

// cost is a visit's time per unit in µs: per token of the prompt, or per step of all sequences.
func (p *Point) cost(v *Visit) float64 {
	if p.Item.Spec.Gen > 0 {
		return decodeNS(v) / 1e3 / float64(p.Item.Spec.Gen)
	}
	return prefillNS(v) / 1e3 / float64(p.Item.Spec.Prompt)
}

// own is what the tap measured of itself, per unit in µs; 0 where it told nothing.
func (p *Point) own(v *Visit) float64 {
	r := v.Recorded
	if r == nil || r.OwnNS == nil || r.Tokens == 0 {
		return 0
	}
	rows := float64(max(p.Item.Spec.Sequences, 1)) // token rows of a step
	return float64(*r.OwnNS) / 1e3 / float64(r.Tokens) * rows
}
