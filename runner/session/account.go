//go:build linux

package session

import (
	"errors"
	"maps"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// counter is the outcome of what the model computed, as the recorder of tensors counted it, and why recording ended.
type counter struct {
	run      *run
	recorder *capture.Recorder // nil until the first context
	begun    bool              // it gets what the tap reports
	halted   *halted           // nil: recording has not ended before the program
	taken    *taken            // nil before the program has started
}

// totals returns what the recorder counted so far.
func (c *counter) totals() capture.Use {
	if c.recorder == nil {
		return capture.Use{}
	}
	u := c.recorder.Use()
	u.Graphs, u.Rows, u.NS, u.Drafts = maps.Clone(u.Graphs), maps.Clone(u.Rows), maps.Clone(u.NS), maps.Clone(u.Drafts)
	u.Run, u.Setup = u.Run.Since(&capture.Flow{}), u.Setup.Since(&capture.Flow{})
	sum := c.taken.settle(u.FirstNS, u.LastNS)
	u.TakenNS, u.RunnableNS, u.WatchedNS = sum.taken, sum.waits, sum.over
	return u
}

// follow begins to look at a process. What follows from its first graph may be read long after that: a busy model
// leaves this process no processor.
func (c *counter) follow(pid int) {
	if c.taken != nil && c.taken.pid == pid {
		return
	}
	if c.taken != nil { // the program has started another one
		c.taken.stop()
	}
	c.taken = newTaken(pid)
	c.watch()
}

// watch bounds what this process takes from the model while that computes: an execution has ended.
func (c *counter) watch() {
	if c.taken.full() {
		c.totals()
	}
	c.taken.watch(stream.MonoNS())
}

// tokens is how many were computed up to now.
func (c *counter) tokens() (n int64) {
	use := c.totals()
	for _, rows := range use.Rows {
		n += rows
	}
	return n
}

// useSince is what the recorder counted between two moments.
func useSince(a, b capture.Use) capture.Use {
	for _, m := range []struct{ of, before map[ggmlhooks.Phase]int64 }{
		{a.Graphs, b.Graphs}, {a.Rows, b.Rows}, {a.NS, b.NS}, {a.Drafts, b.Drafts},
	} {
		for phase, n := range m.before {
			if m.of[phase] -= n; m.of[phase] == 0 {
				delete(m.of, phase)
			}
		}
	}
	if b.FirstNS != 0 {
		a.FirstNS, a.FirstOwnNS = b.LastNS, 0
	}
	a.Requests, a.Rejected = a.Requests-b.Requests, a.Rejected-b.Rejected
	a.TakenNS, a.WatchedNS, a.RunnableNS = a.TakenNS-b.TakenNS, a.WatchedNS-b.WatchedNS, a.RunnableNS-b.RunnableNS
	a.Run, a.Setup = a.Run.Since(&b.Run), a.Setup.Since(&b.Setup)
	return a
}

// tally is the account of a stretch of the run, as the recorder counted it and as far as tensors were handed to the
// stream.
func (c *counter) tally(use capture.Use) *rundir.Account {
	a := &rundir.Account{Selected: rundir.Amount(use.Run.Selected), Captured: rundir.Amount(use.Run.Written),
		Lost: []rundir.Loss{}}
	c.addLosses(a, &use.Run)
	setup := rundir.Account{}
	c.addLosses(&setup, &use.Setup)
	a.Setup = rundir.SetupAccount{
		Tokens: use.Rows[ggmlhooks.PhaseSetup], Discarded: rundir.Amount(use.Setup.Discarded), Lost: setup.Lost,
		TapNS: use.Setup.OwnNS, WaitNS: use.Setup.WaitNS,
	}
	a.Setup.Discarded.Packets += use.Setup.Written.Packets
	a.Setup.Discarded.Bytes += use.Setup.Written.Bytes
	a.Time = rundir.TimeAccount{
		TapNS: use.Run.OwnNS, WaitNS: use.Run.WaitNS, WallNS: use.LastNS - use.FirstNS + use.FirstOwnNS,
		Tokens: use.Rows[ggmlhooks.PhasePrefill] + use.Rows[ggmlhooks.PhaseDecode],
		Cuts:   use.Run.Cuts,
	}
	// A run may have begun before this process looked.
	t := &a.Time
	if t.WallNS > 0 && use.WatchedNS >= t.WallNS/5*4 {
		all := func(ns int64) *int64 {
			ns = int64(float64(ns) * float64(t.WallNS) / float64(use.WatchedNS))
			return &ns
		}
		t.TakenNS, t.RunnableNS = all(use.TakenNS), all(use.RunnableNS)
	}
	// The median of few probes may be too large on a busy machine: what was not lost otherwise is the most that
	// cuts can have cost.
	t.CutNS = min(t.Cuts*use.CutNS, max(0, t.WallNS-t.TapNS-t.WaitNS))
	return a
}

// addLosses adds what the tap lost and what the recorder refused.
func (c *counter) addLosses(a *rundir.Account, f *capture.Flow) {
	for cause, n := range f.Losses {
		a.AddLost(c.cause(cause), n.Packets, n.Bytes)
	}
	a.AddLost(c.cause(collect.LossStopped), f.Refused.Packets, f.Refused.Bytes)
}

// cause names a loss: what the tap counts because recording has stopped is lost for the reason why it did.
func (c *counter) cause(cause string) string {
	if c.halted != nil && (cause == collect.LossStopped || cause == collect.LossGone) {
		return c.halted.cause
	}
	return cause
}

// addUnreported adds what the tap counted and no execution reported: a graph without a place in the tap's tables,
// the end of the last execution; and, where its reports could not be read to their end, all that is missing.
func (c *counter) addUnreported(a *rundir.Account, use *capture.Use) {
	stats := c.run.region.Stats()
	own := int64(stats.Own()) - use.Run.OwnNS - use.Setup.OwnNS
	a.Time.TapNS += own
	waited := int64(stats.WaitNS) - use.Run.WaitNS - use.Setup.WaitNS
	a.Time.WaitNS += waited
	if a.Time.WallNS > 0 && !c.blind() {
		a.Time.WallNS += max(0, own) + max(0, waited) // behind the last graph's end
	}
	if c.blind() {
		total := ggmlhooks.Count{Packets: stats.Copies, Bytes: stats.CopiedBytes}
		for _, l := range stats.Losses {
			total.Add(l.Count)
		}
		lost := a.LostTotal()
		selected, recorded := total.Minus(use.Setup.Selected), a.Recorded()
		if errors.Is(c.halted.err, ErrRepeat) { // the recording stays what it was, whatever the program did again
			selected = ggmlhooks.Count{Packets: recorded.Packets + lost.Packets, Bytes: recorded.Bytes + lost.Bytes}
		}
		a.AddLost(c.halted.cause, selected.Packets-recorded.Packets-lost.Packets,
			selected.Bytes-recorded.Bytes-lost.Bytes)
		a.Selected = rundir.Amount(selected)
		return
	}
	for _, l := range stats.Losses {
		rest := l.Count.Minus(use.Run.Losses[l.Cause]).Minus(use.Setup.Losses[l.Cause])
		if l.Cause == collect.LossGone && rest.Packets == 0 {
			continue // what only framed a graph of which nothing was selected
		}
		a.AddLost(c.cause(l.Cause), rest.Packets, rest.Bytes)
		a.Selected.Packets += rest.Packets
		a.Selected.Bytes += rest.Bytes
	}
}

// losses is what a stream says about missing packets; use is of the stretch of the run that it holds.
func (c *counter) losses(use capture.Use) (losses []stream.Loss) {
	for _, l := range c.tally(use).Lost {
		losses = append(losses, stream.Loss{Cause: l.Cause, Packets: l.Packets, Bytes: l.Bytes})
	}
	if c.halted != nil && len(losses) == 0 {
		losses = append(losses, stream.Loss{Cause: c.halted.cause}) // what follows is counted in the metadata
	}
	return losses
}

// halt notes why recording has ended. What the model computes from now on is counted, where that can be done.
func (c *counter) halt(err error) {
	c.halted = &halted{err: err, cause: causeOf(err), at: time.Now(), tokens: c.tokens()}
	if c.blind() {
		c.run.region.Stop()
	} else {
		c.run.region.Count()
	}
}

// blind reports whether what the model computes can not be counted any more, because recording stopped for a
// defect, or before it began.
func (c *counter) blind() bool {
	if c.halted == nil {
		return false
	}
	err := c.halted.err
	return !c.begun || errors.Is(err, ggmlhooks.ErrDesync) || errors.Is(err, collect.ErrQueue) ||
		errors.Is(err, ErrSelection) || errors.Is(err, ErrRepeat)
}

// stopped is what metadata.json says of a recording that ended early, behind a token.
func (c *counter) stopped(last *int64) *rundir.Stopped {
	if c.halted == nil {
		return nil
	}
	stopped := &rundir.Stopped{Cause: c.halted.cause, At: c.halted.at.UTC(),
		GraphsAfter: c.run.region.Stats().Unrecorded, LastToken: last}
	if !c.halted.limited() {
		stopped.Error = c.halted.err.Error()
	}
	return stopped
}
