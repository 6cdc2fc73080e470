package resources

import (
	"cmp"
	"context"
	"slices"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/table"
)

// kvReading reads the rows of a table twice: once for all that is counted, and once, when it is known how long it
// went on, for the timeline.
type kvReading struct {
	*KV
	r         *table.Reader
	points    int
	progress  func(done, total int64)
	groups    int64 // that were read
	first     int64 // Unix time, ns
	last      int64
	witness   map[kvCacheKey]kvPartKey // the part whose rows stand for the cache: each life counts once
	sequences map[kvSeqKey]*KVSequence
	layers    map[kvLayerKey]*KVLayer
	timelines map[kvCacheKey]*KVCache
	columns   map[string]table.Values
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

func (k *kvReading) all(ctx context.Context) error {
	k.witness, k.sequences = map[kvCacheKey]kvPartKey{}, map[kvSeqKey]*KVSequence{}
	k.layers, k.timelines = map[kvLayerKey]*KVLayer{}, map[kvCacheKey]*KVCache{}
	if err := k.each(ctx, k.count); err != nil {
		return err
	}
	k.last = max(k.last, k.Last.UnixNS)
	if k.first == 0 { // no row
		k.first = k.last
	}
	k.BeginUnixNS, k.Seconds = k.first, float64(k.last-k.first)/1e9
	if err := k.each(ctx, k.draw); err != nil {
		return err
	}
	k.settle()
	return nil
}

// each calls f for every row.
func (k *kvReading) each(ctx context.Context, f func(i int)) error {
	for group := range k.r.Groups() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if k.groups++; k.progress != nil {
			k.progress(k.groups-1, 2*int64(k.r.Groups()))
		}
		k.columns = map[string]table.Values{}
		for _, name := range kvColumns {
			v, err := k.r.Column(group, name)
			if err != nil {
				return err
			}
			k.columns[name] = v
		}
		for i := range k.columns["layer"].Valid {
			f(i)
		}
	}
	return nil
}

// value is that of a column of integers; ok is false for null, and for a column of another kind.
func (k *kvReading) value(name string, i int) (v int64, ok bool) {
	c := k.columns[name]
	if i >= len(c.Ints) || !c.Valid[i] {
		return 0, false
	}
	return c.Ints[i], true
}

func (k *kvReading) number(name string, i int) int64 {
	v, _ := k.value(name, i)
	return v
}

func (k *kvReading) text(name string, i int) string {
	c := k.columns[name]
	if i >= len(c.Texts) {
		return ""
	}
	return c.Texts[i]
}

func (k *kvReading) cache(i int) kvCacheKey {
	return kvCacheKey{k.number("ctx", i), k.text("cache", i)}
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
func (k *kvReading) count(i int) {
	key, part := k.cache(i), kvPartKey{k.number("layer", i), k.text("kv", i)}
	for _, name := range []string{"alloc_ns", "first_write_ns", "last_write_ns", "first_read_ns", "last_read_ns",
		"evict_ns"} {
		if ns, ok := k.value(name, i); ok {
			if k.first == 0 || ns < k.first {
				k.first = ns
			}
			k.last = max(k.last, ns)
		}
	}
	l := k.layers[kvLayerKey{key, part}]
	if l == nil {
		l = &KVLayer{Ctx: key.ctx, Cache: key.cache, Layer: part.layer, Tensor: part.kv,
			CellBytes: k.number("cell_bytes", i)}
		k.layers[kvLayerKey{key, part}] = l
	}
	l.Writes += k.number("n_writes", i)
	l.Reads += k.number("n_reads", i)
	if k.isWitness(key, part) {
		k.countLife(key, i)
	}
}

func (k *kvReading) countLife(key kvCacheKey, i int) {
	seq, ok := k.value("seq_id", i)
	if !ok {
		seq = -1
	}
	s := k.sequences[kvSeqKey{key, seq}]
	if s == nil {
		s = &KVSequence{Ctx: key.ctx, Cache: key.cache, Seq: seq, Ended: map[string]int64{}}
		k.sequences[kvSeqKey{key, seq}] = s
	}
	s.Lives++
	s.Cells += k.number("cells", i)
	s.Writes += k.number("n_writes", i)
	s.Reads += k.number("n_reads", i)
	if k.text("origin", i) == kvcache.Found.String() {
		s.Found++
	}
	end, evicted := k.value("evict_ns", i)
	if !evicted {
		s.Censored++
		return
	}
	s.Ended[k.text("evict_reason", i)]++
	if alloc, ok := k.value("alloc_ns", i); ok {
		s.Lifetime.add(float64(end-alloc) / 1e9)
	}
	touched := max(k.number("last_write_ns", i), k.number("last_read_ns", i))
	if touched > 0 {
		s.Idle.add(max(float64(end-touched)/1e9, 0))
	}
}

// draw adds a life to the timeline: its cells in each part of the time, as much of it as it lasted.
func (k *kvReading) draw(i int) {
	key := k.cache(i)
	if !k.isWitness(key, kvPartKey{k.number("layer", i), k.text("kv", i)}) {
		return
	}
	t := k.timelines[key]
	if t == nil {
		t = &KVCache{Ctx: key.ctx, Cache: key.cache, Cells: make([]float64, k.points)}
		k.timelines[key] = t
	}
	begin, ok := k.value("alloc_ns", i)
	if !ok { // nobody saw it begin: from when it was read first
		if begin, ok = k.value("first_read_ns", i); !ok {
			return
		}
	}
	end, ok := k.value("evict_ns", i)
	if !ok {
		end = k.last
	}
	t.add(float64(begin-k.first), float64(end-k.first), float64(k.last-k.first), float64(k.number("cells", i)))
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
