//go:build linux

package session

import (
	"errors"
	"fmt"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/kvcache/request"
)

// requests is the recorder of requests with the table that it writes.
type requests struct {
	*request.Recorder
	table *request.Table
	ended kvcache.RequestTotals
}

func newRequests(r *run) *requests {
	q := &requests{table: request.NewTable(r.dir, r.unixOffset())}
	q.Recorder = request.New(request.Options{Done: func(done *kvcache.Request) error {
		q.ended.Add(done)
		return q.table.Append(done)
	}})
	return q
}

// tick writes what waited long enough, while nothing comes.
func (q *requests) tick() error {
	if q == nil {
		return nil
	}
	return errors.Join(q.Tick(monotonic()), q.table.Settle())
}

// Close hands on what goes on, and completes the table.
func (q *requests) Close() error { return errors.Join(q.Recorder.Close(), q.table.Close()) }

// now is how the requests are; nil where they are not recorded.
func (q *requests) now() *kvcache.RequestsNow {
	if q == nil {
		return nil
	}
	running, waiting := q.Live()
	return &kvcache.RequestsNow{Running: running, Waiting: waiting, Ended: q.ended.Clone()}
}

// words say how much of prompts was computed, and computed again.
func (q *requests) words() string {
	e := &q.ended
	text := fmt.Sprintf("requests  %d, of whose prompts %d tokens were cached and %d computed", e.Requests, e.Cached,
		e.Computed)
	var again, cost int64
	for _, a := range e.Again {
		again, cost = again+a.Tokens, cost+a.CostNS
	}
	if again > 0 {
		text += fmt.Sprintf(", %d of them again in %s: llamatap requests", again, present.Nanoseconds(cost))
	}
	return text
}
