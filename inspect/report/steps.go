package report

import (
	"context"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/resource"
)

// The bounds of memory. Tokens beyond them are counted and not followed, so that Again is then too low.
const (
	maxPrefixes  = 1 << 20 // different beginnings of prompts
	maxSequences = 1 << 12 // and contexts
	maxPositions = 1 << 22 // of all sequences
)

// part is the time in some executions.
type part struct {
	NS     float64
	Graphs int64
	Tokens int64
}

func (p *part) add(ns float64, tokens int64) {
	p.NS += ns
	p.Graphs++
	p.Tokens += tokens
}

// steps are what the order of a run's executions shows. None of the figures has executions of set-up.
type steps struct {
	// GapNS is the part of WallNS outside of graphs; WallNS is from each decode execution's entry to the next one's.
	GapNS, WallNS int64
	Gaps          int64
	// Small are executions of fewer than smallBatch tokens of a prompt that another execution of prefill follows.
	Small part
	// Alone are executions of one generated token that belongs to another sequence than the one before.
	Alone part
	// Again are the prompt tokens that follow the same tokens as in an execution before, and their part of the time.
	Again    part
	Prompts  int64   // tokens of prompts whose predecessors are known
	PromptNS float64 // the part that tokens of prompts have of the time of their executions, by number
	Beyond   int64   // tokens that found no room

	last     *resource.Graph // the execution before; nil: its time is unknown
	contexts map[uint32]*following
	seqs     map[sequence][]uint64 // hashes of the tokens up to each position
	held     int                   // hashes in seqs
	seen     map[uint64]bool       // those of all sequences
}

// following is what is remembered of a context's executions.
type following struct {
	prefill *resource.Graph // the execution before, where it is of prefill
	exec    uint64          // that the next two fields are of, and that is reported after them
	again   int64           // tokens of its prompt that had been computed
	seq     int32
	before  *int32 // sequence of the decode execution before; nil: unknown, or several
}

type sequence struct {
	ctx uint32
	seq int32
}

// readSteps reads the executions and tokens of a log once more.
func readSteps(ctx context.Context, dir string) (*steps, error) {
	s := &steps{contexts: map[uint32]*following{}, seqs: map[sequence][]uint64{}, seen: map[uint64]bool{}}
	err := resources.EachEvent(ctx, dir, func(kind resource.Kind, text []byte) error {
		switch kind {
		case resource.KindGraph, resource.KindInputTokens, resource.KindOutputToken:
			if event, err := resource.Decode(text); err == nil {
				s.addEvent(event)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *steps) addEvent(event any) {
	switch e := event.(type) {
	case *resource.InputTokens:
		f := s.contextState(e.Ctx)
		f.exec, f.again = e.Exec, 0
		for i := range min(len(e.TokenIDs), len(e.Positions), len(e.SeqIDs)) {
			known, again := s.token(sequence{resources.ContextOf(e.Ctx), e.SeqIDs[i]}, e.Positions[i], e.TokenIDs[i])
			if known {
				s.Prompts++
			}
			if again {
				f.again++
			}
		}
	case *resource.OutputToken:
		f := s.contextState(e.Ctx)
		if f.exec != e.Exec {
			f.exec, f.again = e.Exec, 0
		}
		f.seq = -1
		if e.SeqID != nil {
			f.seq = *e.SeqID
			s.token(sequence{resources.ContextOf(e.Ctx), f.seq}, e.Pos, e.TokenID)
		}
	case *resource.Graph:
		s.graph(e)
	}
}

func (s *steps) contextState(ctx *uint32) *following {
	number := resources.ContextOf(ctx)
	f := s.contexts[number]
	if f == nil {
		f = &following{}
		if len(s.contexts) < maxSequences {
			s.contexts[number] = f
		}
	}
	return f
}

// token notes a token at its position. known reports whether the tokens before it are; again, whether they and it had
// been computed before, in any sequence of the context.
func (s *steps) token(of sequence, pos, id int32) (known, again bool) {
	hashes := s.seqs[of]
	if of.seq < 0 || id < 0 || pos < 0 || int(pos) > len(hashes) {
		return false, false
	}
	more := int(pos) + 1 - len(hashes)
	if hashes == nil && len(s.seqs) >= maxSequences || s.held+more > maxPositions {
		s.Beyond++
		return false, false
	}
	s.held += more
	hash := uint64(of.ctx) + 1
	if pos > 0 {
		hash = hashes[pos-1]
	}
	// SplitMix64's finalizer, so that each token changes all bits of what follows
	hash += uint64(uint32(id))<<1 + 0x9e3779b97f4a7c15
	hash = (hash ^ hash>>30) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>27) * 0x94d049bb133111eb
	hash ^= hash >> 31
	s.seqs[of] = append(hashes[:pos], hash)
	again = s.seen[hash]
	switch {
	case again:
	case len(s.seen) < maxPrefixes:
		s.seen[hash] = true
	default:
		s.Beyond++
	}
	return true, again
}

// graph adds an execution.
func (s *steps) graph(g *resource.Graph) {
	f, last := s.contextState(g.Ctx), s.last
	s.last = g
	if g.DurationNS == nil {
		s.last, f.prefill, f.before = nil, nil, nil
		return
	}
	ns := float64(*g.DurationNS)
	if last != nil && last.Phase == decode && g.Phase == decode && g.MonoNS > last.MonoNS {
		wall := g.MonoNS - last.MonoNS
		s.WallNS += wall
		s.GapNS += max(0, wall-*last.DurationNS)
		s.Gaps++
	}
	if n := g.PrefillTokens; n != nil && g.Tokens > 0 {
		s.PromptNS += ns * float64(*n) / float64(g.Tokens)
	} else if g.Phase == prefill {
		s.PromptNS += ns
	}
	if f.exec == g.Exec && f.again > 0 && g.Tokens > 0 {
		n := min(f.again, int64(g.Tokens))
		s.Again.add(ns*float64(n)/float64(g.Tokens), n)
	}
	if p := f.prefill; p != nil && g.Phase == prefill && p.Tokens < smallBatch {
		s.Small.add(float64(*p.DurationNS), int64(p.Tokens))
	}
	f.prefill = nil
	if g.Phase == prefill {
		f.prefill = g
	}
	if g.Phase != decode {
		return
	}
	if g.Tokens != 1 || f.exec != g.Exec || f.seq < 0 {
		f.before = nil
		return
	}
	if f.before != nil && *f.before != f.seq {
		s.Alone.add(ns, 1)
	}
	f.before = new(f.seq)
}
