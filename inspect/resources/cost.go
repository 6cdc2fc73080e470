package resources

import (
	"cmp"

	"github.com/llamatap/llamatap/resource"
)

// Cost is what nodes took. A figure that no event had is absent: its count is 0.
type Cost struct {
	Events int64 // events that were added up
	Nodes  int64

	Timed    int64 // events that had a duration
	NS       int64 // measured
	LookNS   int64 // what looking cost in them, measured; it lies within NS
	FLOPs    int64 // of events that had some; attention over all cells that graphs give it, padding included
	Useful   int64 // of them, those of cells that a token may read
	Counted  int64 // events that had FLOPs
	NoFLOPs  int64 // ops whose FLOPs are not known
	NoMask   int64 // ops of which it is not known how many are useful
	Read     int64 // bytes
	Written  int64
	Sized    int64 // events that had bytes
	NoBytes  int64 // ops whose bytes are not known
	roofNS   int64 // of events that had a share of the roofline
	roofPart float64
	scaledNS float64 // NS, scaled from the timed executions of its phase to all
	scaled   bool
}

func (c *Cost) add(d Cost) {
	c.Events += d.Events
	c.Nodes += d.Nodes
	c.Timed += d.Timed
	c.NS += d.NS
	c.LookNS += d.LookNS
	c.FLOPs += d.FLOPs
	c.Useful += d.Useful
	c.Counted += d.Counted
	c.NoFLOPs += d.NoFLOPs
	c.NoMask += d.NoMask
	c.Read += d.Read
	c.Written += d.Written
	c.Sized += d.Sized
	c.NoBytes += d.NoBytes
	c.roofNS += d.roofNS
	c.roofPart += d.roofPart
	c.scaledNS += d.scaledNS
	c.scaled = c.scaled || d.scaled
}

// allNS is the time that all executions took, as far as is known.
func (c *Cost) allNS() float64 {
	if c.scaled {
		return c.scaledNS
	}
	return float64(c.NS)
}

// scaled is the cost of nodes in the timed executions of a phase, with the time that they took in all of them.
func (r *Report) scaled(phase string, cost *Cost) Cost {
	c := *cost
	scale, ok := r.scale[phase]
	if !ok {
		scale = 1
	}
	c.scaledNS, c.scaled = float64(c.NS)*scale, true
	return c
}

// Roofline is the share of what the machine can do at this arithmetic intensity, the mean over the time that it is
// known for.
func (c *Cost) Roofline() (share float64, ok bool) {
	if c.roofNS == 0 {
		return 0, false
	}
	return c.roofPart / float64(c.roofNS), true
}

func costOf(e *work) Cost {
	c := Cost{Events: 1, Nodes: int64(e.NodeCount), NoFLOPs: int64(e.OpsWithoutFLOPs), NoMask: int64(e.OpsWithoutMask),
		NoBytes: int64(e.OpsWithoutBytes), LookNS: max(e.LookingNS, 0)}
	if e.DurationNS >= 0 {
		c.Timed, c.NS = 1, e.DurationNS
		if e.RooflineShare >= 0 {
			c.roofNS, c.roofPart = c.NS, e.RooflineShare*float64(c.NS)
		}
	}
	if e.FLOPs >= 0 {
		c.FLOPs, c.Useful, c.Counted = e.FLOPs, e.FLOPs, 1
		if e.FLOPsUnmasked >= 0 {
			c.Useful = e.FLOPsUnmasked
		}
	}
	if e.BytesRead >= 0 || e.BytesWritten >= 0 {
		c.Read, c.Written, c.Sized = max(e.BytesRead, 0), max(e.BytesWritten, 0), 1
	}
	return c
}

func (c *Cost) addBytes(read, written *int64) {
	if read != nil {
		c.Read += *read
	}
	if written != nil {
		c.Written += *written
	}
	if read != nil || written != nil {
		c.Sized++
	}
}

// Cell is what costs are added up by.
type Cell struct {
	Phase     string
	Layer     int // -1: none
	Component string
	Op        string // of a range of several nodes: SeveralOps
}

func (c Cell) compare(d Cell) int {
	return cmp.Or(cmp.Compare(c.Phase, d.Phase), cmp.Compare(c.Layer, d.Layer), cmp.Compare(c.Component, d.Component),
		cmp.Compare(c.Op, d.Op))
}

// SeveralOps stands for the op where nodes were timed together.
const SeveralOps = "(several)"

// PhaseSetup is the phase of what was computed and thrown away before the run proper. It is in the table of phases,
// and in none of the others that add up more than one phase.
const PhaseSetup = "setup"

// The phases of tokens.
const (
	phasePrefill = "prefill"
	phaseDecode  = "decode"
)

// opRange is how such an event calls its operation.
const opRange = "range"

// Tensor is what costs are added up by to find the most expensive.
type Tensor struct {
	Phase, Op, Name string // the tensor's name without its layer
}

func (t Tensor) compare(u Tensor) int {
	return cmp.Or(cmp.Compare(t.Phase, u.Phase), cmp.Compare(t.Op, u.Op), cmp.Compare(t.Name, u.Name))
}

// PhaseSum is the executions of a phase. Tokens have a phase of their own: those of an execution that has both a
// prompt's and generated ones are counted in both phases, its time and work in prefill.
type PhaseSum struct {
	Graphs, Tokens int64
	// Drafts are rows that a draft model computed, and Rejected drafts that the model computed and the program took
	// back: neither are in Tokens.
	Drafts, Rejected int64
	Mixed, MixedNS   int64           // executions that have tokens of another phase too, and their time
	Failed, FailedNS int64           // executions that failed or were aborted, and their time: they have no work
	aloneTokens      int64           // of executions that have tokens of this phase alone
	aloneNS          int64           // their time
	mixed            map[uint32]bool // contexts whose last tokens of this phase are of an execution that has others too
	Cost                             // Events are graphs; NS is their time
	done             Cost            // of those that did not fail
	Inside           int64           // executions that were timed inside, and as a whole
	InsideNS         int64           // their time
	partsNS          int64           // what was timed inside, also of executions whose own time is not known
	insideNS         int64           // of it, that of the executions of InsideNS
	Looked           bool            // whether what timing costs was reported
}

// PhaseSums are the phases of a run by their names.
type PhaseSums map[string]*PhaseSum

// findOrAdd returns the sum of a phase, new where it has none.
func (s PhaseSums) findOrAdd(name string) *PhaseSum {
	p := s[name]
	if p == nil {
		p = &PhaseSum{}
		if len(s) < maxPhases {
			s[name] = p
		}
	}
	return p
}

// reject takes out tokens of drafts that were rejected, which are those that a context generated last.
func (s PhaseSums) reject(ctx *uint32, tokens int64) {
	if tokens <= 0 {
		return
	}
	p := s.findOrAdd(phaseDecode)
	p.Tokens, p.Rejected = p.Tokens-tokens, p.Rejected+tokens
	if !p.mixed[ContextOf(ctx)] {
		p.aloneTokens -= tokens
	}
}

// generated notes whether a context's last tokens that were generated are of an execution that has others too.
func (s PhaseSums) generated(ctx *uint32, mixed bool) {
	p := s.findOrAdd(phaseDecode)
	if number := ContextOf(ctx); mixed || p.mixed[number] {
		if p.mixed == nil {
			p.mixed = map[uint32]bool{}
		}
		p.mixed[number] = mixed
	}
}

// ContextOf is the context of an event; one that names none is of the first.
func ContextOf(ctx *uint32) uint32 {
	if ctx == nil {
		return 0
	}
	return *ctx
}

// count adds the tokens that an execution of phase p computed, each to its own phase. What older versions recorded has
// one phase for all of them.
func (s PhaseSums) count(p *PhaseSum, e *resource.Graph) {
	s.reject(e.Ctx, e.Rejected)
	alone := e.PrefillTokens == nil || e.DecodeTokens == nil || *e.PrefillTokens == 0 || *e.DecodeTokens == 0
	switch {
	case e.Status != 0: // failed, or aborted: its tokens were not computed
	case e.Drafts && alone:
		p.Drafts += int64(e.Tokens)
	case e.Drafts:
		s.findOrAdd(phasePrefill).Drafts += int64(*e.PrefillTokens)
		s.findOrAdd(phaseDecode).Drafts += int64(*e.DecodeTokens)
	case alone:
		p.Tokens += int64(e.Tokens)
		p.aloneTokens += int64(e.Tokens)
		if e.Phase == phaseDecode {
			s.generated(e.Ctx, false)
		}
	default:
		s.findOrAdd(phasePrefill).Tokens += int64(*e.PrefillTokens)
		s.findOrAdd(phaseDecode).Tokens += int64(*e.DecodeTokens)
		s.generated(e.Ctx, true)
	}
	var ns int64
	if e.DurationNS != nil {
		ns = *e.DurationNS
	}
	if !alone {
		p.Mixed, p.MixedNS = p.Mixed+1, p.MixedNS+ns
	}
	if e.Status != 0 {
		p.Failed, p.FailedNS = p.Failed+1, p.FailedNS+ns
	} else if alone {
		p.aloneNS += ns
	}
}

// add adds an execution.
func (s PhaseSums) add(e *resource.Graph) {
	p := s.findOrAdd(e.Phase)
	p.Graphs++
	s.count(p, e)
	cost := graphCost(e)
	p.Cost.add(cost)
	if e.Status == 0 {
		p.done.add(cost)
	}
	if e.TimedNS != nil {
		p.partsNS += *e.TimedNS
	}
	if isInside(e) {
		p.Inside++
		p.InsideNS += *e.DurationNS
		p.insideNS += *e.TimedNS
	}
	p.Looked = p.Looked || e.LookingNS != nil
}

// isInside reports whether an execution was timed inside, and as a whole. A device has not ended one when the next one
// begins, and then the time of the whole is not known.
func isInside(e *resource.Graph) bool { return e.TimedNS != nil && e.DurationNS != nil }

// timedShare returns which part of what was timed inside is of executions that were timed as a whole.
func (p *PhaseSum) timedShare() float64 {
	if p == nil || p.partsNS == 0 {
		return 1
	}
	return float64(p.insideNS) / float64(p.partsNS)
}

func graphCost(e *resource.Graph) Cost {
	c := Cost{Events: 1, Nodes: int64(e.NodeCount), NoFLOPs: int64(e.OpsWithoutFLOPs), NoMask: int64(e.OpsWithoutMask),
		NoBytes: int64(e.OpsWithoutBytes)}
	c.addBytes(e.BytesRead, e.BytesWritten)
	if e.DurationNS != nil {
		c.Timed, c.NS = 1, *e.DurationNS
	}
	if e.FLOPs != nil {
		c.FLOPs, c.Useful, c.Counted = *e.FLOPs, *cmp.Or(e.FLOPsUnmasked, e.FLOPs), 1
	}
	if e.LookingNS != nil && e.DurationNS != nil {
		c.LookNS = *e.LookingNS * int64(e.Looks)
	}
	return c
}

// Costs are costs by a key, of which there is a bounded number.
type Costs[K comparable] struct {
	By   map[K]*Cost
	Rest Cost // of further keys
	most int
}

func (c *Costs[K]) add(key K, cost Cost) {
	sum := c.By[key]
	switch {
	case sum != nil:
	case len(c.By) >= c.most:
		sum = &c.Rest
	default:
		sum = &Cost{}
		c.By[key] = sum
	}
	sum.add(cost)
}
