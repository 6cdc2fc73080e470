package resources

import (
	"context"
	"encoding/json"
	"math"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/llamatap/llamatap/resource"
)

// Paces is how long a run took per token, with what intervals of the means are computed from.
type Paces struct {
	// Phases are prefill, decode, and mixed for executions that have tokens of both.
	Phases  map[string]*Pace
	Latency Series // from generated token to generated token of a sequence, as a whole
}

// Pace is the time of a phase per token.
type Pace struct {
	Graphs Series // of all executions, as a whole
	Inside Series // of those that were timed inside, by part
}

// Part is what the time of an execution is divided by. The zero value is all of it.
type Part struct {
	By   string // ByComponent, ByLayer or ByOp
	Name string
}

// phaseMixed is the phase of executions with tokens of prefill and decode.
const phaseMixed = "mixed"

// ReadPaces reads the log of a run directory, live or sealed. It returns early when ctx is done.
func ReadPaces(ctx context.Context, dir string) (*Paces, error) {
	p := &paceReading{Paces: &Paces{Phases: map[string]*Pace{}}, inside: map[uint64]map[Part]int64{},
		generated: map[uint32][]*Series{}}
	if err := EachEvent(ctx, dir, p.addEvent); err != nil {
		return nil, err
	}
	return p.Paces, ctx.Err()
}

// paceReading reads events in their order: those of an execution's nodes come before its graph.
type paceReading struct {
	*Paces
	inside map[uint64]map[Part]int64 // of executions whose graph is not read yet, at most maxExecs
	work   work
	// generated is where the tokens are that a context generated last.
	generated map[uint32][]*Series
}

// addEvent adds an event. What is none is passed over.
func (p *paceReading) addEvent(kind resource.Kind, text []byte) error {
	switch kind {
	case resource.KindCompute:
		p.work.clear()
		if json.Unmarshal(text, &p.work) == nil {
			p.node(&p.work)
		}
	case resource.KindGraph:
		var g resource.Graph
		if json.Unmarshal(text, &g) == nil {
			p.graph(&g)
		}
	case resource.KindSessionEnd:
		var e resource.SessionEnd
		if json.Unmarshal(text, &e) == nil {
			p.reject(e.Ctx, e.Rejected)
		}
	case resource.KindOutputToken:
		var t resource.OutputToken
		if json.Unmarshal(text, &t) == nil && t.LatencyNS != nil && !t.First {
			p.Latency.add(1, map[Part]int64{{}: *t.LatencyNS})
		}
	}
	return nil
}

// node adds the time of a node, or of several, to the parts of its execution.
func (p *paceReading) node(e *work) {
	if !e.adds() || e.DurationNS < 0 {
		return
	}
	parts := p.inside[e.Exec]
	if parts == nil {
		if len(p.inside) >= maxExecs {
			clear(p.inside) // their graphs were lost
		}
		parts = map[Part]int64{}
		p.inside[e.Exec] = parts
	}
	parts[Part{ByComponent, e.ComponentType}] += e.DurationNS
	parts[Part{ByLayer, strconv.Itoa(e.LayerID)}] += e.DurationNS
	if op := e.op(); op != SeveralOps {
		parts[Part{ByOp, op}] += e.DurationNS
	}
}

// reject takes back drafts, which are of what a context generated last.
func (p *paceReading) reject(ctx *uint32, tokens int64) {
	for _, s := range p.generated[ContextOf(ctx)] {
		s.Tokens -= tokens
		s.batches[len(s.batches)-1].tokens -= tokens
	}
}

// graph ends an execution.
func (p *paceReading) graph(g *resource.Graph) {
	p.reject(g.Ctx, g.Rejected)
	parts := p.inside[g.Exec]
	delete(p.inside, g.Exec)
	if g.Phase == PhaseSetup || g.Tokens == 0 || g.DurationNS == nil || g.Status != 0 {
		return
	}
	phase := g.Phase
	if n, m := g.PrefillTokens, g.DecodeTokens; n != nil && m != nil && *n > 0 && *m > 0 {
		phase = phaseMixed
	}
	of := p.Phases[phase]
	if of == nil {
		if of = (&Pace{}); len(p.Phases) < maxPhases {
			p.Phases[phase] = of
		}
	}
	tokens := int64(g.Tokens)
	if g.Drafts { // its time is a price of its target's tokens
		tokens = 0
	}
	series := []*Series{&of.Graphs}
	of.Graphs.add(tokens, map[Part]int64{{}: *g.DurationNS})
	if parts != nil {
		series = append(series, &of.Inside)
		of.Inside.add(tokens, parts)
	}
	if phase != phasePrefill && !g.Drafts {
		p.generated[ContextOf(g.Ctx)] = series
	}
}

// Series is times that follow each other, in at most maxBatches batches of equally many. The mean of a batch varies
// less with the times just before it than a single time does, which is what makes an interval of batches valid for
// times that depend on each other (batch means; Schmeiser, Batch size effects in the analysis of simulation output,
// 1982).
type Series struct {
	Tokens  int64
	NS      map[Part]int64 // of all
	batches []batch
	size    int64 // times in a full batch
}

// batch is the sum of some times.
type batch struct {
	times, tokens int64
	ns            map[Part]int64
}

// maxBatches is even: a full series is put together by pairs.
const maxBatches = 40

func (s *Series) add(tokens int64, ns map[Part]int64) {
	if s.NS == nil {
		s.NS, s.size = map[Part]int64{}, 1
	}
	n := len(s.batches)
	if n == maxBatches && s.batches[n-1].times == s.size {
		for i := range n / 2 {
			s.batches[i] = s.batches[2*i]
			s.batches[i].add(&s.batches[2*i+1])
		}
		n, s.size = n/2, 2*s.size
		s.batches = s.batches[:n]
	}
	if n == 0 || s.batches[n-1].times == s.size {
		s.batches = append(s.batches, batch{ns: map[Part]int64{}})
		n++
	}
	s.batches[n-1].add(&batch{1, tokens, ns})
	s.Tokens += tokens
	for part, v := range ns {
		s.NS[part] += v
	}
}

func (b *batch) add(more *batch) {
	b.times += more.times
	b.tokens += more.tokens
	for part, v := range more.ns {
		b.ns[part] += v
	}
}

// Mean is a mean with the standard error that its batches show.
type Mean struct {
	Value, Error float64
	Batches      int // 0 or 1: there is no error
}

// PerToken is the time of a part per token, in ns: all of its time by all tokens. The error is that of a ratio
// (Cochran, Sampling Techniques, 3rd ed., 6.4), over full batches.
func (s *Series) PerToken(part Part) Mean {
	m := Mean{Value: float64(s.NS[part]) / float64(s.Tokens)}
	var full []batch
	var tokens, ns float64
	for _, b := range s.batches {
		if b.times == s.size {
			full, tokens, ns = append(full, b), tokens+float64(b.tokens), ns+float64(b.ns[part])
		}
	}
	if m.Batches = len(full); m.Batches < 2 {
		return m
	}
	n, squares := float64(len(full)), 0.0
	for _, b := range full {
		away := float64(b.ns[part]) - ns/tokens*float64(b.tokens)
		squares += away * away
	}
	m.Error = math.Sqrt(squares/(n-1)/n) / (tokens / n)
	return m
}

// Inverse is 1/m times a factor, as tokens per second of seconds per token, with its error to first order; 0 for 0.
func (m Mean) Inverse(factor float64) Mean {
	if m.Value == 0 {
		return Mean{}
	}
	return Mean{factor / m.Value, factor * m.Error / (m.Value * m.Value), m.Batches}
}

// Half is half of the 95 % interval of the mean, by Student's t; ok is false where there are no two batches.
func (m Mean) Half() (half float64, ok bool) {
	if m.Batches < 2 {
		return 0, false
	}
	return m.Error * quantileT(float64(m.Batches-1)), true
}

// Change is how much larger another mean is than m, and half of its 95 % interval by Welch's t (The generalization of
// 'Student's' problem when several different population variances are involved, 1947).
func (m Mean) Change(to Mean) (change, half float64, ok bool) {
	change = to.Value - m.Value
	if m.Batches < 2 || to.Batches < 2 {
		return change, 0, false
	}
	a, b := m.Error*m.Error, to.Error*to.Error
	if a+b == 0 {
		return change, 0, true
	}
	freedom := (a + b) * (a + b) / (a*a/float64(m.Batches-1) + b*b/float64(to.Batches-1))
	return change, math.Sqrt(a+b) * quantileT(freedom), true
}

func quantileT(freedom float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(0.975)
}
