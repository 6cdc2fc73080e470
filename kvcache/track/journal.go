package track

import (
	"slices"

	"github.com/llamatap/llamatap/kvcache"
)

// journal reports what happens to cells, and writes the lives that end.
type journal struct {
	table          *lifeTable // nil: only events and gauges
	operation      func(*kvcache.Operation) error
	lifetime, idle kvcache.Histogram // of lives that ended
	freed          []kvcache.Gauge   // of caches whose memory was freed
	unixOffset     int64
	err            error // the first that a life's end or an operation brought
	layers         []kvcache.LayerBytes
}

// report reports what happened to the cells of a cache since the last call. times is how often the execution wrote
// each part; nil: it was the program.
func (j *journal) report(x *cacheContext, t *tracked, ns int64, exec uint64, times []int64) {
	for _, c := range t.TakeChanges() {
		if j.operation == nil {
			continue
		}
		op := kvcache.Operation{
			Change: c, Ctx: x.number, Cache: t.Kind, MonoNS: ns, Exec: exec, Layers: j.bytes(t, &c, times),
		}
		if q := x.requests.of[c.Seq]; q != nil && !q.unknown {
			op.Reused, op.Needed = q.reused, q.needed
		}
		op.AllReused, op.AllNeeded = x.requests.reused, x.requests.needed
		j.fail(j.operation(&op))
	}
}

// bytes are those of the cells of a change in each layer, and those that were written of them.
func (j *journal) bytes(t *tracked, c *kvcache.Change, times []int64) []kvcache.LayerBytes {
	j.layers = j.layers[:0]
	for i, part := range t.Parts {
		holds, written := int64(c.Cells)*part.CellBytes, int64(0)
		if i < len(times) {
			written = int64(c.Written) * part.CellBytes * times[i]
		}
		at := slices.IndexFunc(j.layers, func(l kvcache.LayerBytes) bool { return l.Layer == part.Layer })
		if at < 0 {
			at = len(j.layers)
			j.layers = append(j.layers, kvcache.LayerBytes{Layer: part.Layer})
		}
		if part.Tensor == kvcache.K || part.Tensor == kvcache.R {
			j.layers[at].K += holds
			j.layers[at].KWritten += written
		} else {
			j.layers[at].V += holds
			j.layers[at].VWritten += written
		}
	}
	return j.layers
}

// ended makes rows of a life that ended.
func (j *journal) ended(ctx uint32, t *tracked, life *kvcache.Life) {
	if life.Reason != kvcache.NotEvicted {
		if life.AllocNS != 0 {
			j.lifetime.Add(life.EndNS - life.AllocNS)
		}
		j.idle.Add(life.IdleNS())
	}
	if j.table == nil {
		return
	}
	for g, group := range t.Groups() {
		for _, part := range group {
			j.fail(j.table.append(ctx, t.Cache, life, part, &life.Touches[g]))
		}
	}
}

func (j *journal) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

// failed returns the first error, once.
func (j *journal) failed() error {
	err := j.err
	j.err = nil
	return err
}
