//go:build linux

package session

import (
	"maps"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
)

// account is what the run did up to a moment, or in a stretch of it.
type account struct {
	use   capture.Use
	stats collect.Stats
}

// account is what the run did so far.
func (s *sink) account() account {
	a := account{stats: s.stats()}
	if s.recorder != nil {
		a.use = s.recorder.Use()
	}
	a.use.Graphs, a.use.Rows, a.use.NS = maps.Clone(a.use.Graphs), maps.Clone(a.use.Rows), maps.Clone(a.use.NS)
	return a
}

// since is what was recorded between two moments, and what the tap has lost. Its other counters run ahead of the recording and cannot be
// shared out.
func (a account) since(b account) account {
	for _, m := range []struct{ of, before map[ggmlhooks.Phase]int64 }{
		{a.use.Graphs, b.use.Graphs}, {a.use.Rows, b.use.Rows}, {a.use.NS, b.use.NS},
	} {
		for phase, n := range m.before {
			if m.of[phase] -= n; m.of[phase] == 0 {
				delete(m.of, phase)
			}
		}
	}
	a.use.Setup -= b.use.Setup
	a.use.Requests -= b.use.Requests
	a.stats.Losses = lossesSince(a.stats.Losses, b.stats.Losses)
	return a
}

// lossesSince takes what was lost before from what is lost now.
func lossesSince(now, before []collect.Loss) (since []collect.Loss) {
	for _, l := range now {
		for _, b := range before {
			if b.Cause == l.Cause {
				l.Packets, l.Bytes = l.Packets-b.Packets, l.Bytes-b.Bytes
			}
		}
		if l.Packets != 0 || l.Bytes != 0 {
			since = append(since, l)
		}
	}
	return since
}
