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
	table                             *request.Table
	n, cached, computed, again, costs int64
}

func newRequests(r *run) *requests {
	q := &requests{table: request.NewTable(r.dir, r.unixOffset())}
	q.Recorder = request.New(request.Options{Done: func(done *kvcache.Request) error {
		q.n++
		q.cached, q.computed = q.cached+max(done.Cached, 0), q.computed+done.Computed
		if done.Cause != kvcache.CauseNone {
			q.again, q.costs = q.again+done.Again, q.costs+done.CostNS
		}
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

// words say how much of prompts was computed, and computed again.
func (q *requests) words() string {
	text := fmt.Sprintf("requests  %d, of whose prompts %d tokens were cached and %d computed", q.n, q.cached,
		q.computed)
	if q.again > 0 {
		text += fmt.Sprintf(", %d of them again in %s: llamatap requests", q.again, present.Nanoseconds(q.costs))
	}
	return text
}
