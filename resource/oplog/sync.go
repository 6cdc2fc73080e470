package oplog

import (
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// A graph that a device has part in is told of when its scheduler was synchronised behind it. Executions of a
// context are told in order, so one that ends before that is told without its time.

// awaits keeps an execution that a device may still compute. A program that never synchronises has them told
// without their times.
func (r *Recorder) awaits(ctx *context, x *execution) {
	if len(ctx.running) == maxHeld {
		r.give(ctx, 1)
	}
	x.waits = true
	ctx.running = append(ctx.running, x)
}

// give tells of the first n executions that wait.
func (r *Recorder) give(ctx *context, n int) {
	for _, x := range ctx.running[:n] {
		x.waits = false
		if !slices.Contains(ctx.pending, x) {
			r.tell(ctx, x)
		}
	}
	ctx.running = slices.Delete(ctx.running, 0, n)
}

// Sync tells of the executions that are done. The time of one is known where there is but one.
func (r *Recorder) Sync(e ggmlhooks.Sync) error {
	r.head.see(e.MonoNS)
	for _, ctx := range r.ctxs {
		n := slices.IndexFunc(ctx.running, func(x *execution) bool { return x.exec == e.Exec }) + 1
		if n == 0 {
			continue
		}
		for i, x := range ctx.running[:n] {
			if x.until = e.MonoNS; i+1 < n {
				x.until = ctx.running[i+1].mono
			}
		}
		if x := ctx.running[0]; n == 1 && e.Graphs == 1 && !x.early(e.WaitNS) {
			x.done, x.wait = e.MonoNS, e.WaitNS
		}
		r.give(ctx, n)
	}
	return nil
}

// atOnce is a synchronisation that waited for nothing.
const atOnce = 10_000

// early tells whether a device behind a network may go on though it was synchronised: with some of ggml's versions
// that waits for nothing. It is done when its results were fetched.
func (x *execution) early(waitNS int64) bool {
	return x.plan.remote && len(x.outputs) == 0 && waitNS < atOnce
}

// remote tells whether a part of a graph lies on a device behind a network.
func (r *Recorder) remote(g *ggmlhooks.Graph) bool {
	last, remote := uint64(0), false
	for i := range g.Nodes {
		if id := g.Nodes[i].Buffer; id != last {
			last = id
			remote = remote || strings.HasPrefix(r.memory.device(id), "RPC")
		}
	}
	return remote
}
