package capture

import (
	"cmp"
	"math"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// settled is the tokens of an execution that is over and decided about.
type settled struct {
	ctx  uint32
	rows []ggmlhooks.Row
}

// maxSettled bounds how many executions wait. A context that is never decided about must not keep the others'
// tokens for ever: beyond this they are written out of order.
const maxSettled = 1 << 16

// settle counts an execution as what it was, and takes its tokens in; flushTokens then hands them on.
func (r *Recorder) settle(x *execution, phase ggmlhooks.Phase) error {
	r.use.Graphs[phase]++
	r.use.NS[phase] += x.ns
	if phase == ggmlhooks.PhaseSetup {
		r.use.Rows[phase] += int64(len(x.Rows))
		r.use.Setup.Add(&x.flow)
		return nil
	}
	r.use.Run.Add(&x.flow)
	if len(x.Rows) > 0 && r.use.FirstNS == 0 {
		r.use.FirstNS = x.MonoNS
	}
	r.use.LastNS = x.MonoNS + x.ns
	r.use.Requests += int64(len(x.begun))
	for i := range x.Rows {
		r.use.Rows[x.Rows[i].Phase]++
	}
	if x.alone() {
		r.use.AloneRows[phase] += int64(len(x.Rows))
		r.use.AloneNS[phase] += x.ns
	}
	if !x.written {
		return nil
	}
	return r.name(x)
}

// alone reports whether all tokens of an execution are of its phase.
func (x *execution) alone() bool { return len(x.Rows) > 0 && ggmlhooks.OnePhase(x.Rows) == x.phase }

// name hands the tokens of an execution on, or keeps them until those before are known.
func (r *Recorder) name(x *execution) error {
	if r.o.Tokens == nil || len(x.Rows) == 0 || x.named {
		return nil
	}
	x.named = true
	if len(r.settled) == 0 && x.TokenFirst <= r.undecided() {
		return r.tokens(x.Execution.Ctx, x.Rows)
	}
	at, _ := slices.BinarySearchFunc(r.settled, x.TokenFirst, func(s settled, first int64) int { return cmp.Compare(s.rows[0].Index, first) })
	r.settled = slices.Insert(r.settled, at, settled{x.Execution.Ctx, slices.Clone(x.Rows)})
	return nil
}

// flushTokens hands on the tokens before which nothing is open any more: contexts that compute side by side are decided
// about in any order, and tokens are written in theirs.
func (r *Recorder) flushTokens() error {
	bound, n := r.undecided(), 0
	for n < len(r.settled) && (r.settled[n].rows[0].Index < bound || len(r.settled)-n > maxSettled) {
		if err := r.tokens(r.settled[n].ctx, r.settled[n].rows); err != nil {
			return err
		}
		n++
	}
	r.settled = slices.Delete(r.settled, 0, n)
	return nil
}

// FlushTokens hands on every token that is settled, also before one that is not: the file that they belong to ends.
func (r *Recorder) FlushTokens() error {
	for _, s := range r.settled {
		if err := r.tokens(s.ctx, s.rows); err != nil {
			return err
		}
	}
	r.settled = r.settled[:0]
	return nil
}

func (r *Recorder) tokens(ctx uint32, rows []ggmlhooks.Row) error {
	for i := range rows {
		if err := r.o.Tokens.Append(ctx, &rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// undecided is the first token of an execution that is not over, or not decided about.
func (r *Recorder) undecided() int64 {
	first := int64(math.MaxInt64)
	for _, x := range r.open {
		if len(x.Rows) > 0 {
			first = min(first, x.TokenFirst)
		}
	}
	for _, ctx := range r.ctxs {
		if len(ctx.pending) > 0 && len(ctx.pending[0].Rows) > 0 {
			first = min(first, ctx.pending[0].TokenFirst)
		}
	}
	return first
}
