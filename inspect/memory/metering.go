package memory

import "github.com/llamatap/llamatap/memtrace"

// metering runs a meter beside what reads the table: touches go to it in batches, which come back to be filled again.
type metering struct {
	full  chan []memtrace.Touch
	empty chan []memtrace.Touch
	done  chan struct{}
	batch []memtrace.Touch
}

const (
	batchTouches = 1024
	batches      = 4
)

// meter begins to meter. The meter and lives are not to be touched until it has ended.
func meter(m *memtrace.Meter, l *lives) *metering {
	g := &metering{full: make(chan []memtrace.Touch, batches), empty: make(chan []memtrace.Touch, batches), done: make(chan struct{})}
	for range batches {
		g.empty <- make([]memtrace.Touch, 0, batchTouches)
	}
	g.batch = <-g.empty
	go func() {
		defer close(g.done)
		for batch := range g.full {
			for i := range batch {
				l.until(batch[i].NS, m)
				m.Add(&batch[i])
			}
			g.empty <- batch[:0]
		}
	}()
	return g
}

// next is room for a touch, which is metered unless it goes back.
func (g *metering) next() *memtrace.Touch {
	if len(g.batch) == cap(g.batch) {
		g.full <- g.batch
		g.batch = <-g.empty
	}
	g.batch = g.batch[:len(g.batch)+1]
	return &g.batch[len(g.batch)-1]
}

// back takes the room of the newest touch back.
func (g *metering) back() { g.batch = g.batch[:len(g.batch)-1] }

// end waits until all is metered.
func (g *metering) end() {
	g.full <- g.batch
	close(g.full)
	<-g.done
}
