package resources

import (
	"cmp"
	"context"
	"slices"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/table"
)

// kvReading reads the rows of a table twice: once for all that is counted, and once, when it is known how long it
// continued, for the timeline.
type kvReading struct {
	*KV
	r         *table.Reader
	points    int
	progress  func(done, total int64)
	done      int64 // rows that were read
	first     int64 // Unix time, ns
	last      int64
	witness   map[kvCacheKey]kvPartKey // the part whose rows stand for the cache: each life counts once
	sequences map[kvSeqKey]*KVSequence
	layers    map[kvLayerKey]*KVLayer
	timelines map[kvCacheKey]*KVCache
	until     map[kvCacheKey]int64 // when a cache was freed, or the recording ended
}

type kvCacheKey struct {
	ctx   int64
	cache string
}

type kvPartKey struct {
	layer int64
	kv    string
}

type kvSeqKey struct {
	kvCacheKey
	seq int64
}

type kvLayerKey struct {
	kvCacheKey
	kvPartKey
}

// kvColumns are the columns that are read.
var kvColumns = []string{"layer", "kv", "seq_id", "alloc_ns", "first_write_ns", "last_write_ns", "n_writes",
	"first_read_ns", "last_read_ns", "n_reads",
	"evict_ns", "evict_reason", "censored", "ctx", "cache", "cells", "cell_bytes", "origin"}

// kvProgressRows is how many rows there are from one call of progress to the next.
const kvProgressRows = 1 << 16

func (k *kvReading) readAll(ctx context.Context) error {
	k.witness, k.sequences = map[kvCacheKey]kvPartKey{}, map[kvSeqKey]*KVSequence{}
	k.layers, k.timelines = map[kvLayerKey]*KVLayer{}, map[kvCacheKey]*KVCache{}
	if err := k.eachRow(ctx, k.count); err != nil {
		return err
	}
	k.last = max(k.last, k.Last.UnixNS)
	if k.first == 0 { // no row
		k.first = k.last
	}
	k.BeginUnixNS, k.Seconds = k.first, float64(k.last-k.first)/1e9
	k.until = map[kvCacheKey]int64{}
	for _, g := range k.Gauges() {
		k.until[kvCacheKey{int64(g.Ctx), g.Cache.String()}] = cmp.Or(g.FreedUnixNS, k.last)
	}
	if err := k.eachRow(ctx, k.draw); err != nil {
		return err
	}
	k.settle()
	return nil
}

// eachRow calls f for every row.
func (k *kvReading) eachRow(ctx context.Context, f func(*table.Row)) error {
	return k.r.EachRow(ctx, kvColumns, func(row *table.Row) error {
		if k.done++; k.progress != nil && k.done%kvProgressRows == 0 {
			k.progress(k.done, 2*k.Rows)
		}
		f(row)
		return nil
	})
}

func kvCacheOf(row *table.Row) kvCacheKey {
	return kvCacheKey{row.Int("ctx"), row.Text("cache")}
}

// isWitness reports whether a row stands for its life, and not for one of its further parts.
func (k *kvReading) isWitness(key kvCacheKey, part kvPartKey) bool {
	first, ok := k.witness[key]
	if !ok {
		k.witness[key], first = part, part
	}
	return first == part
}

// count takes a row in.
func (k *kvReading) count(row *table.Row) {
	key, part := kvCacheOf(row), kvPartKey{row.Int("layer"), row.Text("kv")}
	for _, name := range []string{"alloc_ns", "first_write_ns", "last_write_ns", "first_read_ns", "last_read_ns",
		"evict_ns"} {
		if ns, ok := row.Value(name); ok {
			if k.first == 0 || ns < k.first {
				k.first = ns
			}
			k.last = max(k.last, ns)
		}
	}
	l := k.layers[kvLayerKey{key, part}]
	if l == nil {
		l = &KVLayer{Ctx: key.ctx, Cache: key.cache, Layer: part.layer, Tensor: part.kv,
			CellBytes: row.Int("cell_bytes")}
		k.layers[kvLayerKey{key, part}] = l
	}
	l.Writes += row.Int("n_writes")
	l.Reads += row.Int("n_reads")
	if k.isWitness(key, part) {
		k.countLife(key, row)
	}
}

func (k *kvReading) countLife(key kvCacheKey, row *table.Row) {
	seq, ok := row.Value("seq_id")
	if !ok {
		seq = -1
	}
	s := k.sequences[kvSeqKey{key, seq}]
	if s == nil {
		s = &KVSequence{Ctx: key.ctx, Cache: key.cache, Seq: seq, Ended: map[string]int64{}}
		k.sequences[kvSeqKey{key, seq}] = s
	}
	s.Lives++
	s.Cells += row.Int("cells")
	s.Writes += row.Int("n_writes")
	s.Reads += row.Int("n_reads")
	if row.Text("origin") == kvcache.Found.String() {
		s.Found++
	}
	end, evicted := row.Value("evict_ns")
	if !evicted {
		s.Censored++
		return
	}
	s.Ended[row.Text("evict_reason")]++
	if alloc, ok := row.Value("alloc_ns"); ok {
		s.Lifetime.add(float64(end-alloc) / 1e9)
	}
	touched := max(row.Int("last_write_ns"), row.Int("last_read_ns"))
	if touched > 0 {
		s.Idle.add(max(float64(end-touched)/1e9, 0))
	}
}

// draw adds a life to the timeline: its cells in each part of the time, as much of it as it lasted.
func (k *kvReading) draw(row *table.Row) {
	key := kvCacheOf(row)
	if !k.isWitness(key, kvPartKey{row.Int("layer"), row.Text("kv")}) {
		return
	}
	t := k.timelines[key]
	if t == nil {
		t = &KVCache{Ctx: key.ctx, Cache: key.cache, Cells: make([]float64, k.points)}
		k.timelines[key] = t
	}
	begin, ok := row.Value("alloc_ns")
	if !ok { // nobody saw it begin: from when it was read first
		if begin, ok = row.Value("first_read_ns"); !ok {
			return
		}
	}
	end, ok := row.Value("evict_ns")
	if !ok {
		end = k.watched(key, row)
	}
	t.add(float64(begin-k.first), float64(end-k.first), float64(k.last-k.first), float64(row.Int("cells")))
}

// watched is until when a life that did not end was watched: until its cache was freed, or the recording ended. Of a
// cache that the snapshot has forgotten, it is until the life was touched last.
func (k *kvReading) watched(key kvCacheKey, row *table.Row) int64 {
	if until, ok := k.until[key]; ok {
		return until
	}
	if len(k.Last.Freed) == kvcache.MaxFreed {
		return max(row.Int("last_write_ns"), row.Int("last_read_ns"))
	}
	return k.last
}

// add adds cells that were in use from begin to end, of a whole.
func (t *KVCache) add(begin, end, whole, cells float64) {
	n := float64(len(t.Cells))
	if whole <= 0 {
		whole, end = 1, 1
	}
	from, to := begin/whole*n, end/whole*n
	for at := max(int(from), 0); at < len(t.Cells) && float64(at) < to; at++ {
		overlap := min(to, float64(at+1)) - max(from, float64(at))
		t.Cells[at] += cells * max(overlap, 0)
	}
}

// settle sorts what was gathered, and works out what follows from it.
func (k *kvReading) settle() {
	for _, s := range k.sequences {
		s.Lifetime.settle()
		s.Idle.settle()
		k.Sequences = append(k.Sequences, *s)
	}
	slices.SortFunc(k.Sequences, func(a, b KVSequence) int {
		return cmp.Or(cmp.Compare(a.Ctx, b.Ctx), cmp.Compare(a.Cache, b.Cache), cmp.Compare(a.Seq, b.Seq))
	})
	for _, l := range k.layers {
		l.BytesWritten, l.BytesRead = l.Writes*l.CellBytes, l.Reads*l.CellBytes
		k.Layers = append(k.Layers, *l)
	}
	slices.SortFunc(k.Layers, func(a, b KVLayer) int {
		return cmp.Or(cmp.Compare(a.Ctx, b.Ctx), cmp.Compare(a.Cache, b.Cache), cmp.Compare(a.Layer, b.Layer),
			cmp.Compare(a.Tensor, b.Tensor))
	})
	for _, t := range k.timelines {
		for _, g := range k.Gauges() {
			if int64(g.Ctx) == t.Ctx && g.Cache.String() == t.Cache {
				t.Total, t.Block = int64(g.Cells), int64(g.Block)
			}
		}
		k.Timeline = append(k.Timeline, *t)
	}
	slices.SortFunc(k.Timeline, func(a, b KVCache) int {
		return cmp.Or(cmp.Compare(a.Ctx, b.Ctx), cmp.Compare(a.Cache, b.Cache))
	})
}
