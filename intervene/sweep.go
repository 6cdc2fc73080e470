package intervene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

// Actions are what a sweep does to sites.
//
//	patch     runs the corrupt prompt and puts values of the clean one in: what restores the clean answer?
//	resample  runs the clean prompt and puts values of the corrupt one in: what is the answer lost without?
//	zero      runs the clean prompt with zeros
//	mean      … with the mean over all tokens of all corrupt prompts, or of the clean ones where there are none
//	project   … without the part along the direction of a control vector
var Actions = []string{"patch", "resample", "zero", "mean", "project"}

// Axes are what Sweep.Together may name.
var Axes = []string{"points", "layers", "tokens", "heads"}

// DefaultPoints write to the residual stream, so that edges between them are paths through it. A model without
// attention lacks some of them.
var DefaultPoints = []ggmlhooks.PointRef{{Point: ggmlhooks.PointEmbeddings, Layer: ggmlhooks.NoLayer},
	{Point: ggmlhooks.PointAttnOutPost, Layer: ggmlhooks.NoLayer},
	{Point: ggmlhooks.PointMLPOutPost, Layer: ggmlhooks.NoLayer}}

// Pair is a prompt, and one like it with another answer; both have the same number of tokens.
type Pair struct {
	Clean   string `json:"clean"`
	Corrupt string `json:"corrupt,omitempty"`
	Answer  string `json:"answer,omitempty"` // the token that the clean prompt should be followed by
	Wrong   string `json:"wrong,omitempty"`  // the one that the corrupt prompt should be followed by
}

// Sweep says which interventions are tried.
type Sweep struct {
	Action   string
	Points   []ggmlhooks.PointRef // empty: those of DefaultPoints that the model has
	Layers   ggmlhooks.LayerSet   // empty: all
	Tokens   []int                // positions in the prompt, from the end where negative; empty: all
	Heads    bool                 // each head of points that have heads by itself
	Together []string             // Axes along which sites are changed at once, in one intervention
	Metric   string
	Pairs    []Pair
	Vector   *gguf.ControlVector // of project
	// Recorded, if not nil, is what patch puts in, instead of the clean prompt's values. Its tokens begin with the
	// clean prompt.
	Recorded *Recording
	Graph    bool    // measure edges as well
	Top      int     // nodes of the graph at most
	Least    float64 // effects below this fraction of the largest are not part of the graph
	Progress func(done, total int64)
}

// pairRun is a pair of prompts with what was measured of it.
type pairRun struct {
	metric       metric
	base, source []llama.Token      // source is nil where values come from no other prompt
	own          map[Site][]float32 // rows of the base run
	target       map[Site][]float32 // rows as interventions make them
}

// sweeper is a sweep that runs.
type sweeper struct {
	Sweep
	engine      *Engine
	heads       map[ggmlhooks.PointRef]int
	rows        []Site // of all tokens that a pair has
	report      *Report
	means       map[ggmlhooks.PointRef][]float64
	directions  directions
	done, total int64
}

// Run runs the sweep. When ctx ends, the report is of what was done until then, and the error is nil if that is
// something.
func (sweep Sweep) Run(ctx context.Context, e *Engine) (*Report, error) {
	s := &sweeper{Sweep: sweep, engine: e}
	s.report = &Report{Model: e.name(), Action: s.Action, Metric: s.Metric, Layers: e.layers(), Pairs: s.Pairs}
	pairs := make([]*pairRun, len(s.Pairs))
	for i := range s.Pairs {
		var err error
		if pairs[i], err = s.tokenize(e, &s.Pairs[i]); err != nil {
			return nil, fmt.Errorf("pair %d: %w", i+1, err)
		}
		if a, b := len(pairs[0].base), len(pairs[i].base); a != b {
			return nil, fmt.Errorf("the first prompt has %d tokens, that of pair %d has %d: change words so that they "+
				"are as many", a, i+1, b)
		}
	}
	if len(pairs) == 0 {
		return nil, errors.New("a sweep needs a prompt: give one with --clean")
	}
	s.describe(pairs[0].base)
	s.report.TrainedContext = e.trainedContextBelow(len(pairs[0].base))
	if s.Metric != "kl" {
		s.report.Answer, s.report.AnswerID = s.Pairs[0].Answer, &pairs[0].metric.answer
	}
	if s.Action == "project" {
		s.directions = unit(s.Vector)
	}
	var why map[ggmlhooks.PointRef]string
	var err error
	if s.heads, why, err = e.Places(ctx, pairs[0].base); err != nil {
		return nil, err
	}
	if len(s.Points) == 0 {
		s.Points = slices.DeleteFunc(slices.Clone(DefaultPoints), func(ref ggmlhooks.PointRef) bool {
			if s.Action == "project" && ref.Point.Global() { // directions belong to layers
				return true
			}
			for at := range s.heads {
				if at.Point == ref.Point {
					return false
				}
			}
			return true
		})
	}
	if s.report.Effects, err = s.interventions(len(pairs[0].base), why); err != nil {
		return nil, err
	}
	if s.Action == "mean" {
		if err := s.average(ctx, pairs); err != nil {
			return nil, err
		}
	}
	pairs = distinct(pairs)
	begun := time.Now()
	s.total *= int64(len(pairs))
	for _, p := range pairs {
		if err = s.measure(ctx, p); err != nil {
			break
		}
	}
	if err == nil && s.Graph {
		err = s.paths(ctx, pairs)
	}
	r := s.report
	r.Seconds, r.Interventions = time.Since(begun).Seconds(), s.done
	r.PerSecond = float64(r.Interventions) / r.Seconds
	if errors.Is(err, llama.ErrInterrupted) && r.Interventions > 0 {
		r.Partial, err = true, nil
	}
	r.Effects = slices.DeleteFunc(r.Effects, func(f Effect) bool { return f.Effect.N == 0 })
	slices.SortStableFunc(r.Effects, func(a, b Effect) int {
		return cmp.Compare(math.Abs(b.Effect.Mean), math.Abs(a.Effect.Mean))
	})
	return r, err
}

// distinct leaves out pairs of which the same would be measured again, as with zeros in the same clean prompt: repeated
// figures would count as independent ones.
func distinct(pairs []*pairRun) (list []*pairRun) {
	for _, p := range pairs {
		if !slices.ContainsFunc(list, func(q *pairRun) bool {
			return slices.Equal(p.base, q.base) && slices.Equal(p.source, q.source) && p.metric == q.metric
		}) {
			list = append(list, p)
		}
	}
	return list
}

// describe notes the prompt.
func (s *sweeper) describe(prompt []llama.Token) {
	for _, token := range prompt {
		piece := s.engine.Vocab().AppendPiece(nil, token, true)
		s.report.Tokens = append(s.report.Tokens, string(piece))
		s.report.TokenIDs = append(s.report.TokenIDs, token)
		s.report.Prompt += string(piece)
	}
}

// interventions lists what is tried on prompts of n tokens.
func (s *sweeper) interventions(n int, why map[ggmlhooks.PointRef]string) ([]Effect, error) {
	positions, err := s.positions(n)
	if err != nil {
		return nil, err
	}
	if last := s.Layers.Max(); last >= s.engine.layers() {
		return nil, fmt.Errorf("--layers names layer %d, and the model has layers 0 to %d: shorten the list", last,
			s.engine.layers()-1)
	}
	var list []Effect
	split := false           // by heads
	seen := map[string]int{} // where sites belong that are changed together
	for _, ref := range s.Points {
		if ref.Point == ggmlhooks.PointExpertIndices && s.Action != "patch" && s.Action != "resample" {
			return nil, fmt.Errorf("%s are numbers of experts: patch or resample them", ref)
		}
		found := false
		for layer := range max(s.engine.layers(), 1) {
			switch {
			case ref.Point.Global() && layer > 0, ref.Layer != ggmlhooks.NoLayer && layer != ref.Layer,
				!ref.Point.Global() && !s.Layers.Empty() && !s.Layers.Has(layer):
				continue
			case ref.Point.Global():
				layer = ggmlhooks.NoLayer
			}
			at := ggmlhooks.PointRef{Point: ref.Point, Layer: layer}
			count, ok := s.heads[at]
			if !ok || s.Action == "project" && s.directions.at(ref.Point, layer) == nil {
				continue
			}
			found = true
			heads := []int{AllHeads}
			if s.Heads && count > 0 {
				heads, split = heads[:0], true
				for h := range count {
					heads = append(heads, h)
				}
			}
			for _, token := range positions {
				s.rows = append(s.rows, Site{ref.Point, layer, token, AllHeads})
				for _, head := range heads {
					site := Site{ref.Point, layer, token, head}
					f, key := s.effect(site)
					if i, known := seen[key]; known {
						list[i].sites = append(list[i].sites, site)
						continue
					}
					seen[key] = len(list)
					list = append(list, f)
				}
			}
		}
		if !found {
			return nil, s.missing(ref, why)
		}
	}
	if s.Heads && !split {
		return nil, errors.New("--heads: none of the points has heads: add one that has, such as z, or drop --heads")
	}
	s.total = int64(len(list) + len(positions)) // own values are written for each token
	return list, nil
}

// missing is the error for a point that cannot be changed in any layer asked for.
func (s *sweeper) missing(ref ggmlhooks.PointRef, why map[ggmlhooks.PointRef]string) error {
	if s.Action == "project" {
		return fmt.Errorf("the control vector has no direction for %s in the layers chosen: 'llamatap vector FILE' "+
			"lists those that it has", ref)
	}
	for at, reason := range why {
		if at.Point == ref.Point && (ref.Layer == ggmlhooks.NoLayer || ref.Layer == at.Layer) {
			return fmt.Errorf("the model has no %s to change: %s: 'llamatap inspect MODEL --points' lists its points",
				ref, reason)
		}
	}
	if ref.Layer != ggmlhooks.NoLayer && ref.Layer < s.engine.layers() {
		return fmt.Errorf("--layers leaves layer %d of %s out: name the point without a layer, or drop --layers",
			ref.Layer,
			ref)
	}
	return fmt.Errorf("the model has no %s: it has %d layers", ref, s.engine.layers())
}

// measure runs all interventions on one pair.
func (s *sweeper) measure(ctx context.Context, p *pairRun) error {
	base, source, err := s.load(ctx, p)
	if err != nil {
		return err
	}
	s.report.Base.add(p.metric.evaluate(base, base))
	if source != nil {
		if s.report.Source == nil {
			s.report.Source = &Statistic{}
		}
		s.report.Source.add(p.metric.evaluate(source, base))
	}
	effects := s.report.Effects
	trials := make([]Trial, len(effects))
	for i := range effects {
		for _, site := range effects[i].sites {
			trials[i] = append(trials[i], s.change(p, site))
		}
	}
	own := map[int]Trial{} // by token
	for _, row := range s.rows {
		own[row.Token] = append(own[row.Token], Edit{Site: row, Kind: llama.WatchKeep})
	}
	for _, token := range slices.Sorted(maps.Keys(own)) {
		trials = append(trials, own[token])
	}
	err = s.engine.Run(ctx, p.base, trials, RunOptions{}, func(r *Result) error {
		x := p.metric.effect(r.Logits, r.Control)
		if math.IsNaN(x) {
			return fmt.Errorf("the metric %s of an intervention is not a number: the logits are not finite: check the "+
				"model, or use another action", s.Metric)
		}
		if r.Trial < len(effects) {
			effects[r.Trial].Effect.add(x)
		} else {
			s.report.Noise = max(s.report.Noise, math.Abs(x))
		}
		s.step()
		return nil
	})
	if err != nil {
		return err
	}
	if len(s.Pairs) > 1 { // bounds memory: paths reads them again
		p.own, p.target = nil, nil
	}
	return nil
}

// step reports progress.
func (s *sweeper) step() {
	if s.done++; s.Progress != nil {
		s.Progress(s.done, max(s.total, s.done))
	}
}
