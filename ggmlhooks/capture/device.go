package capture

import "github.com/llamatap/llamatap/ggmlhooks"

// running are the executions of a context that a device computes beyond their ends: what they took is known
// when it is done.
type running struct {
	newest  uint64 // execution
	first   int64  // graph entry of the first
	counted int64  // of their time
	phase   ggmlhooks.Phase
	alone   bool       // the newest's tokens are all of its phase
	pending *execution // the newest, while it is not decided what it was
}

// add notes an execution that a device still computes.
func (w *running) add(x *execution, pending bool) {
	if w.newest == 0 {
		w.first = x.MonoNS
	}
	w.newest, w.counted, w.phase, w.alone, w.pending = x.Execution.Exec, w.counted+x.ns, x.phase, x.alone(), nil
	if pending {
		w.pending = x
	}
}

// decide notes what an execution was.
func (w *running) decide(x *execution, discarded bool) {
	if w.pending != x {
		return
	}
	w.pending = nil
	if discarded {
		w.phase, w.alone = ggmlhooks.PhaseSetup, false
	}
}

// Sync counts the time that a device took behind the ends of executions, up to where the program synchronised with it.
func (r *Recorder) Sync(e ggmlhooks.Sync) error {
	for _, ctx := range r.ctxs {
		w := &ctx.running
		if w.newest != e.Exec {
			continue
		}
		if ns := e.MonoNS - w.first - w.counted; ns > 0 && w.pending != nil {
			w.pending.ns += ns
		} else if ns > 0 {
			r.use.NS[w.phase] += ns
			if w.alone {
				r.use.AloneNS[w.phase] += ns
			}
			if w.phase != ggmlhooks.PhaseSetup {
				r.use.LastNS = max(r.use.LastNS, e.MonoNS)
			}
		}
		*w = running{}
	}
	return nil
}
