package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// lives are those of blocks of cache cells: when they ended, which the ledger does not record, and how long what was
// written into them was needed.
type lives struct {
	ends     []lifeEnd // by time
	next     int
	unplaced int64
	regions  map[cacheTensor]int // several: -1
	kinds    map[string]*blockSums
}

// cacheTensor names a tensor of a cache, as far as the table of regions does: before its version 1.1 it did not
// hold the context.
type cacheTensor struct {
	ctx, layer int64
	kv         string
}

// noContext stands for a context that is not reported.
const noContext = -1

// contextOf is the context of a row of a table.
func contextOf(s *table.Row) int64 {
	if ctx, ok := s.Value("ctx"); ok {
		return ctx
	}
	return noContext
}

// lifeEnd is bytes of a cache that nobody needs any more.
type lifeEnd struct {
	ns         int64
	region     int
	first, end int64 // cells
	cellBytes  int64
}

// blockSums gather the lives of blocks in one kind of tensor.
type blockSums struct {
	retention memtrace.Survival
	ended     map[string]int64
	censored  int64
}

// KVBlocks is how long blocks of cache cells were needed, by kind of tensor: k and v, of recurrent layers r and s.
type KVBlocks struct {
	Tensor string `json:"kv"`
	Lives  int64  `json:"lives"`
	// Retention is from the first write of a block to its last read, one value for each life, in seconds.
	Retention Retention        `json:"retention"`
	Ended     map[string]int64 `json:"ended"` // lives by why their last cell was evicted
	Censored  int64            `json:"censored"`
}

// maxLives bounds how many lives a table may have, maxEnds how many of them are placed in time.
const (
	maxLives = 1 << 32
	maxEnds  = 1 << 20
)

// readLives reads a run's table of lives; one that is not there is empty.
func readLives(ctx context.Context, dir string, regions *regionTable) (*lives, error) {
	l := &lives{regions: map[cacheTensor]int{}, kinds: map[string]*blockSums{}}
	for id, g := range regions.all {
		if g.kind != memtrace.KVCache || g.layer == nil {
			continue
		}
		key := cacheTensor{g.ctx, *g.layer, g.kv}
		if _, isKnown := l.regions[key]; isKnown {
			id = -1 // of several contexts, and it is not reported which, or of several models of one
		}
		l.regions[key] = id
	}
	form := table.Form{Name: rundir.LivesName, Columns: []table.Column{
		{Name: "layer", Kind: table.Int64}, {Name: "kv", Kind: table.Text}, {Name: "cell_start", Kind: table.Int64},
		{Name: "cell_end", Kind: table.Int64},
		{Name: "first_write_ns", Kind: table.Int64}, {Name: "last_read_ns", Kind: table.Int64},
		{Name: "evict_ns", Kind: table.Int64},
	}}
	if _, err := table.EachRow(ctx, dir, form, []string{"evict_reason", "cells", "cell_bytes", "ctx"}, maxLives,
		l.row); err != nil {
		return nil, err
	}
	slices.SortFunc(l.ends, func(a, b lifeEnd) int { return cmp.Compare(a.ns, b.ns) })
	return l, nil
}

// row takes the life of a block in one tensor in.
func (l *lives) row(s *table.Row) error {
	kv, reason := s.Text("kv"), s.Text("evict_reason")
	evict, isEvicted := s.Value("evict_ns")
	k := l.kinds[kv]
	if k == nil {
		k = &blockSums{ended: map[string]int64{}}
		l.kinds[kv] = k
	}
	if write, ok := s.Value("first_write_ns"); ok {
		read, isRead := s.Value("last_read_ns")
		if !isRead {
			read = write
		}
		k.retention.Add(read-write, 1, !isEvicted)
	}
	if !isEvicted {
		k.censored++
		return nil
	}
	k.ended[reason]++
	if reason == kvcache.Overwrite.String() {
		return nil // the write itself ends it
	}
	first, end := s.Int("cell_start"), s.Int("cell_end")
	key := cacheTensor{contextOf(s), s.Int("layer"), kv}
	region, isKnown := l.regions[key]
	if !isKnown {
		key.ctx = noContext
		region, isKnown = l.regions[key]
	}
	if !isKnown || region < 0 || s.Int("cells") != end-first || s.Int("cell_bytes") <= 0 ||
		len(l.ends) == maxEnds {
		l.unplaced++
		return nil
	}
	l.ends = append(l.ends, lifeEnd{ns: evict, region: region, first: first, end: end,
		cellBytes: s.Int("cell_bytes")})
	return nil
}

// until ends the lives that ended up to a time.
func (l *lives) until(ns int64, m *memtrace.Meter) {
	for ; l.next < len(l.ends) && l.ends[l.next].ns <= ns; l.next++ {
		e := &l.ends[l.next]
		if !m.EndCells(e.region, e.first, e.end, e.cellBytes, e.ns) {
			l.unplaced++
		}
	}
}

// blocks says how long blocks were needed.
func (l *lives) blocks() (all []KVBlocks) {
	for kv, k := range l.kinds {
		b := KVBlocks{Tensor: kv, Lives: k.retention.Count, Ended: k.ended, Censored: k.censored}
		if r := retention(&k.retention); r != nil {
			b.Retention = *r
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b KVBlocks) int { return cmp.Compare(a.Tensor, b.Tensor) })
	return all
}

// Life is the life of a block of cache cells in one tensor.
type Life struct {
	Ctx          int64 // -1: not known
	Block, Layer int64
	KV           string // k, v, r or s
	Seq          int64  // that wrote its cells; -1: not known
	Cell, End    int64  // its cells: Cell ≤ i < End
	// Addr is where the first cell of keys lies in the process; 0: on a device, of values, whose cells may lie
	// apart, or unknown.
	Addr                   uint64
	WriteNS, ReadNS, EndNS int64 // first write, last read, end: Unix time; 0: never
	Reads                  int64
}

// EachLife calls f for every row of a run's table of lives; a run without one has none.
func EachLife(ctx context.Context, dir string, f func(*Life) error) error {
	regions, err := readRegions(ctx, dir)
	if err != nil {
		return err
	}
	starts := map[cacheTensor]uint64{}
	for _, g := range regions.all {
		if g.kind == memtrace.KVCache && g.layer != nil {
			starts[cacheTensor{g.ctx, *g.layer, g.kv}] = g.start
		}
	}
	form := table.Form{Name: rundir.LivesName, Columns: []table.Column{
		{Name: "block_id", Kind: table.Int64}, {Name: "layer", Kind: table.Int64}, {Name: "kv", Kind: table.Text},
		{Name: "cell_start", Kind: table.Int64}, {Name: "cell_end", Kind: table.Int64},
		{Name: "first_write_ns", Kind: table.Int64}, {Name: "last_read_ns", Kind: table.Int64},
		{Name: "evict_ns", Kind: table.Int64}, {Name: "n_reads", Kind: table.Int64},
	}}
	_, err = table.EachRow(ctx, dir, form, []string{"cell_bytes", "ctx", "seq_id"}, maxLives, func(s *table.Row) error {
		l := Life{
			Ctx: contextOf(s), Block: s.Int("block_id"), Layer: s.Int("layer"), KV: s.Text("kv"),
			WriteNS: s.Int("first_write_ns"), ReadNS: s.Int("last_read_ns"),
			EndNS: s.Int("evict_ns"), Reads: s.Int("n_reads"), Seq: -1,
			Cell: s.Int("cell_start"), End: s.Int("cell_end"),
		}
		if seq, ok := s.Value("seq_id"); ok {
			l.Seq = seq
		}
		if start := starts[cacheTensor{l.Ctx, l.Layer, l.KV}]; start != 0 && l.KV == "k" &&
			s.Int("cell_bytes") > 0 {
			l.Addr = start + uint64(s.Int("cell_start")*s.Int("cell_bytes"))
		}
		return f(&l)
	})
	return err
}
