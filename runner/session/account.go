//go:build linux

package session

import (
	"maps"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// use is what the recorder counted so far.
func (s *sink) use() capture.Use {
	if s.recorder == nil {
		return capture.Use{}
	}
	u := s.recorder.Use()
	u.Graphs, u.Rows, u.NS = maps.Clone(u.Graphs), maps.Clone(u.Rows), maps.Clone(u.NS)
	u.Run, u.Setup = u.Run.Since(&capture.Flow{}), u.Setup.Since(&capture.Flow{})
	return u
}

// tokens is how many were computed up to now.
func (s *sink) tokens() (n int64) {
	use := s.use()
	for _, rows := range use.Rows {
		n += rows
	}
	return n
}

// useSince is what the recorder counted between two moments.
func useSince(a, b capture.Use) capture.Use {
	for _, m := range []struct{ of, before map[ggmlhooks.Phase]int64 }{{a.Graphs, b.Graphs}, {a.Rows, b.Rows}, {a.NS, b.NS}} {
		for phase, n := range m.before {
			if m.of[phase] -= n; m.of[phase] == 0 {
				delete(m.of, phase)
			}
		}
	}
	a.Requests -= b.Requests
	a.Run, a.Setup = a.Run.Since(&b.Run), a.Setup.Since(&b.Setup)
	return a
}

// tally is the account of a stretch of the run, as the recorder counted it and as far as tensors were handed to the
// stream.
func (s *sink) tally(use capture.Use) *rundir.Account {
	a := &rundir.Account{Selected: amount(use.Run.Selected), Captured: amount(use.Run.Written), Lost: []rundir.Loss{}}
	s.addLosses(a, &use.Run)
	setup := rundir.Account{}
	s.addLosses(&setup, &use.Setup)
	a.Setup = rundir.SetupAccount{
		Tokens: use.Rows[ggmlhooks.PhaseSetup], Discarded: amount(use.Setup.Discarded), Lost: setup.Lost,
		TapNS: use.Setup.OwnNS, WaitNS: use.Setup.WaitNS,
	}
	a.Setup.Discarded.Packets += use.Setup.Written.Packets
	a.Setup.Discarded.Bytes += use.Setup.Written.Bytes
	a.Time = rundir.TimeAccount{
		TapNS: use.Run.OwnNS, WaitNS: use.Run.WaitNS, WallNS: use.LastNS - use.FirstNS,
		Tokens: use.Rows[ggmlhooks.PhasePrefill] + use.Rows[ggmlhooks.PhaseDecode],
		Cuts:   use.Run.Cuts,
	}
	// The median of few probes may be too large on a busy machine: what was not lost otherwise is the most that
	// cuts can have cost.
	t := &a.Time
	t.CutNS = min(t.Cuts*use.CutNS, max(0, t.WallNS-t.TapNS-t.WaitNS))
	return a
}

func amount(c ggmlhooks.Count) rundir.Amount { return rundir.Amount(c) }

// addLosses adds what the tap lost and what the recorder refused.
func (s *sink) addLosses(a *rundir.Account, f *capture.Flow) {
	for cause, n := range f.Losses {
		a.AddLost(s.cause(cause), n.Packets, n.Bytes)
	}
	a.AddLost(s.cause(collect.LossStopped), f.Refused.Packets, f.Refused.Bytes)
}

// cause names a loss: what the tap counts because recording has stopped is lost for the reason why it did.
func (s *sink) cause(cause string) string {
	if s.halted != nil && (cause == collect.LossStopped || cause == collect.LossGone) {
		return s.halted.cause
	}
	return cause
}

// account is what became of the run up to now: while it is recorded, of what the recorder has read; once its files
// are closed, of what they hold.
func (s *sink) account() *rundir.Account {
	use := s.use()
	a := s.tally(use)
	if s.before != nil {
		a.Time.Tokens -= s.before.prompt + s.before.generated
	}
	if s.events != nil {
		a.Events = s.events.account()
		if s.halted != nil {
			a.Events.TokensAfter = s.tokens() - s.halted.tokens
		}
	}
	if !s.ended || s.current == nil {
		return a
	}
	kept := s.series.kept
	switch {
	case s.vanished():
		kept = ggmlhooks.Count{}
	case s.current.result == nil: // its files could not be closed: they hold what was written, for a repair to find
		kept = use.Run.Written
	default:
		kept.Add(s.current.kept)
	}
	if s.resumed != nil { // what the processes before this one have captured was selected by them
		a.Selected.Packets += kept.Packets - use.Run.Written.Packets
		a.Selected.Bytes += kept.Bytes - use.Run.Written.Bytes
	} else if s.halted != nil {
		cut := use.Run.Written.Minus(kept)
		a.AddLost(s.halted.cause, cut.Packets, cut.Bytes)
	}
	a.Captured = amount(kept)
	s.settleAccount(a, &use)
	a.Check()
	return a
}

// settleAccount adds what the tap counted and no execution reported: a graph without a place in the tap's tables,
// the end of the last execution; and, where its reports could not be read to their end, all that is missing.
func (s *sink) settleAccount(a *rundir.Account, use *capture.Use) {
	stats := s.region.Stats()
	a.Time.TapNS += int64(stats.Own()) - use.Run.OwnNS - use.Setup.OwnNS
	a.Time.WaitNS += int64(stats.WaitNS) - use.Run.WaitNS - use.Setup.WaitNS
	if s.blind() {
		total := ggmlhooks.Count{Packets: stats.Copies, Bytes: stats.CopiedBytes}
		for _, l := range stats.Losses {
			total.Add(l.Count)
		}
		lost := a.LostTotal()
		selected := total.Minus(use.Setup.Selected)
		a.AddLost(s.halted.cause, selected.Packets-a.Captured.Packets-lost.Packets, selected.Bytes-a.Captured.Bytes-lost.Bytes)
		a.Selected = amount(selected)
		return
	}
	for _, l := range stats.Losses {
		rest := l.Count.Minus(use.Run.Losses[l.Cause]).Minus(use.Setup.Losses[l.Cause])
		if l.Cause == collect.LossGone && rest.Packets == 0 {
			continue // what only framed a graph of which nothing was selected
		}
		a.AddLost(s.cause(l.Cause), rest.Packets, rest.Bytes)
		a.Selected.Packets += rest.Packets
		a.Selected.Bytes += rest.Bytes
	}
}

// setupIn counts the tensors of a stream that turned out to be set-up.
func setupIn(path string) (n ggmlhooks.Count, err error) {
	r, err := stream.Open(path)
	if err != nil {
		return n, err
	}
	defer r.Close()
	for _, p := range r.Packets() {
		if p.Phase == ggmlhooks.PhaseSetup {
			n.Add(ggmlhooks.Count{Packets: 1, Bytes: uint64(p.SrcBytes)})
		}
	}
	return n, r.Err()
}
