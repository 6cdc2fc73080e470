package oplog

import (
	"maps"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// running is the executions that have begun and may still be recorded, by number.
type running struct{ open map[uint64]begun }

// begun is an execution of a context, and when it began.
type begun struct {
	ctx  uint32
	mono int64
}

// Begin notes an execution.
func (r *running) Begin(x *ggmlhooks.Execution) error {
	r.open[x.Number] = begun{x.Ctx, x.MonoNS}
	return nil
}

// End does nothing: one that has ended may wait to be recorded.
func (r *running) End(*ggmlhooks.Execution) error { return nil }

// Resolve does nothing.
func (r *running) Resolve(ggmlhooks.Resolve) error { return nil }

// forget forgets an execution that is recorded, and those of its context before it, which are recorded before it.
func (r *running) forget(x *ggmlhooks.Execution) {
	maps.DeleteFunc(r.open, func(number uint64, b begun) bool { return b.ctx == x.Ctx && number <= x.Number })
}

// rejections is how many tokens of drafts were taken back since a context's last recorded execution.
type rejections map[uint32]int64

// SeqChange counts those that the program takes back.
func (r rejections) SeqChange(c *ggmlhooks.SeqChange) error {
	if c.Rejected > 0 {
		r[c.Ctx] += int64(c.Rejected)
	}
	return nil
}

// popCount returns how many there are of a context, and forgets them.
func (r rejections) popCount(ctx uint32) int64 {
	n := r[ctx]
	delete(r, ctx)
	return n
}

// total returns how many there are of all contexts.
func (r rejections) total() (sum int64) {
	for _, n := range r {
		sum += n
	}
	return sum
}
