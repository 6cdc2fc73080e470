package memory

import "github.com/llamatap/llamatap/memtrace"

// metering lets a meter follow touches beside what reads the table and counts them: they go to it in batches, which
// come back to be filled again.
type metering struct {
	full  chan []memtrace.Touch
	empty chan []memtrace.Touch
	done  chan struct{}
	batch []memtrace.Touch
}

const (
	batchTouches = 1024
	batches      = 8
	atOnce       = 256 // touches that are filled in at a time, for they stay in the nearest cache
)

// meter begins to follow. The meter may count meanwhile; lives are not to be touched until it has ended.
func meter(m *memtrace.Meter, l *lives) *metering {
	g := &metering{full: make(chan []memtrace.Touch, batches), empty: make(chan []memtrace.Touch, batches),
		done: make(chan struct{})}
	for range batches {
		g.empty <- make([]memtrace.Touch, 0, batchTouches)
	}
	g.batch = <-g.empty
	go func() {
		defer close(g.done)
		for batch := range g.full {
			for i := range batch {
				l.until(batch[i].NS, m)
				m.Follow(&batch[i])
			}
			g.empty <- batch[:0]
		}
	}()
	return g
}

// freeTouches returns the unused touches of the batch, at least one.
func (g *metering) freeTouches() []memtrace.Touch {
	if len(g.batch) == cap(g.batch) {
		g.full <- g.batch
		g.batch = <-g.empty
	}
	free := g.batch[len(g.batch):cap(g.batch)]
	return free[:min(len(free), atOnce)]
}

// end waits until all is metered.
func (g *metering) end() {
	g.full <- g.batch
	close(g.full)
	<-g.done
}
