package export

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/llamatap/llamatap/store/rundir"
)

// recentRequests is among how many block requests that of a page fault is looked for: those that ended last before it.
const recentRequests = 256

// waited holds the keys of a line of host_faults.jsonl that a timeline shows.
type waited struct {
	Kind    string  `json:"kind"`
	Exec    uint64  `json:"exec"`
	BeginNS int64   `json:"begin_mono_ns"`
	WaitNS  int64   `json:"wait_ns"`
	TID     int     `json:"tid"`
	File    string  `json:"file"`
	Offset  *uint64 `json:"offset"`
	Bytes   uint64  `json:"bytes"`
	Memory  string  `json:"memory"`
	Tensor  string  `json:"tensor"`
}

func (w *waited) end() int64 { return w.BeginNS + w.WaitNS }

// resourceName names what was waited for.
func (w *waited) resourceName() string {
	file := ""
	if w.File != "" {
		file = filepath.Base(w.File)
	}
	return cmp.Or(w.Tensor, file, w.Memory)
}

// waitedFor reports whether a page fault waited for a request: it made it, or the request read the page of the fault
// while that waited.
func (w *waited) waitedFor(q *waited) bool {
	if q.TID == w.TID && w.BeginNS <= q.BeginNS && q.BeginNS <= w.end() {
		return true
	}
	return q.File != "" && q.File == w.File && q.Offset != nil && w.Offset != nil &&
		*q.Offset <= *w.Offset && *w.Offset < *q.Offset+q.Bytes && q.BeginNS <= w.end() && w.BeginNS <= q.end()
}

// held is a request with the arrows that lead to it.
type held struct {
	waited
	flows []uint64
}

// readFaults hands on the page faults that threads of the model waited for, and the block requests, where the run
// recorded them. The file has them in the order in which they ended.
func (r beside) readFaults(ctx context.Context, dir string) error {
	var recent []*held
	arrows := uint64(0)
	hand := func(q *held) error {
		return r.to.request(&request{q.BeginNS, q.end(), q.resourceName(), int64(q.Bytes), q.flows})
	}
	err := r.lines(ctx, filepath.Join(dir, rundir.FaultsName), func(text []byte) error {
		var w waited
		if json.Unmarshal(text, &w) != nil {
			r.result.BadLines++
			return nil
		}
		switch {
		case w.Kind == "request" && r.result.Requests >= maxSamples && !r.isBounded:
			r.result.RequestsLeft++
		case w.Kind == "request":
			r.result.Requests++
			if recent = append(recent, &held{waited: w}); len(recent) > recentRequests {
				oldest := recent[0]
				recent = recent[1:]
				return hand(oldest)
			}
		case w.Kind == "fault" && r.result.Faults >= maxSamples && !r.isBounded:
			r.result.FaultsLeft++
		case w.Kind == "fault":
			r.result.Faults++
			f := &fault{tid: w.TID, start: w.BeginNS, end: w.end(), place: w.resourceName(), exec: w.Exec}
			for _, q := range recent {
				if w.waitedFor(&q.waited) {
					arrows++
					f.flows, q.flows = append(f.flows, arrows), append(q.flows, arrows)
				}
			}
			return r.to.fault(f)
		}
		return nil
	})
	for _, q := range recent {
		if err == nil {
			err = hand(q)
		}
	}
	return err
}
