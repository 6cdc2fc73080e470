package analyze

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
)

// mostKVLives is how many lives of a cache are kept to be drawn.
const mostKVLives = 20000

var kvColumns = []string{
	"block_id", "layer", "kv", "alloc_ns", "first_write_ns", "last_write_ns", "n_writes", "first_read_ns",
	"last_read_ns", "n_reads",
	"evict_ns", "evict_reason", "censored", "ctx", "cache", "cells", "cell_bytes", "cell_start", "cell_end",
}

// cachePart is a tensor of a cache.
type cachePart struct {
	ctx   int64
	layer int64
	kv    string
}

// cacheUse is what is known of the cells of a tensor of a cache.
type cacheUse struct {
	lives         memtrace.Survival
	cellBytes     int64
	written, once int64
	writes, reads int64
}

// kv reads the lives of the KV cache's blocks.
func (s *survey) kv(ctx context.Context) (found bool, err error) {
	s.caches = map[cachePart]*cacheUse{}
	var shown *cachePart
	found, err = each(ctx, filepath.Join(s.Dir, rundir.LivesName), kvColumns, nil, func(g *rowGroup) error {
		for i := range g.rows {
			part := cachePart{g.number("ctx", i), g.number("layer", i), g.text("kv", i)}
			s.life(part, g, i)
			if shown == nil {
				shown = &part
				s.KV = &kvLivesData{Name: fmt.Sprintf("the %s cache, %s of layer %d", g.text("cache", i), part.kv,
					part.layer)}
			}
			if *shown == part {
				s.show(g, i)
			}
		}
		return nil
	})
	return found, err
}

// life takes a row in: each of its cells had a life. What was written is needed from its first write to its last
// read; cells that were written again since, by a context shift, from the last write on.
func (s *survey) life(part cachePart, g *rowGroup, i int) {
	u := s.caches[part]
	if u == nil {
		u = &cacheUse{cellBytes: g.number("cell_bytes", i)}
		s.caches[part] = u
	}
	cells, writes := g.number("cells", i), g.number("n_writes", i)
	u.writes += writes
	u.reads += g.number("n_reads", i)
	s.see(g.number("alloc_ns", i), g.number("last_write_ns", i), g.number("last_read_ns", i), g.number("evict_ns", i))
	written, known := g.integer("first_write_ns", i)
	if !known {
		return // loaded with a state: nobody saw it written
	}
	if writes > cells {
		written = g.number("last_write_ns", i)
	} else {
		u.once += cells
	}
	u.written += cells
	needed := max(g.number("last_read_ns", i)-written, 0)
	u.lives.Add(needed, cells*u.cellBytes, g.number("censored", i) != 0)
}

// show keeps a life to be drawn.
func (s *survey) show(g *rowGroup, i int) {
	s.KV.Cells = max(s.KV.Cells, g.number("cell_end", i)-g.number("cell_start", i))
	s.KV.Blocks = max(s.KV.Blocks, g.number("block_id", i)+1)
	if len(s.KV.Lives) >= mostKVLives {
		s.KV.More++
		return
	}
	begin, ok := g.integer("alloc_ns", i)
	if !ok {
		begin = g.number("first_read_ns", i)
	}
	// Times are seconds since the run began, which is known when everything has been read: until then, they are
	// Unix nanoseconds.
	s.kvTimes = append(s.kvTimes, [3]int64{begin, g.number("evict_ns", i), g.number("last_read_ns", i)})
	s.KV.Lives = append(s.KV.Lives, kvLife{Block: g.number("block_id", i), Reason: g.text("evict_reason", i)})
}

// settleKV works out the times of lives, now that the run's are known.
func (s *survey) settleKV() {
	if s.KV == nil {
		return
	}
	since := func(ns int64) float64 {
		if ns == 0 {
			return 0
		}
		return max(float64(ns-s.Begin)/1e9, 0)
	}
	s.KV.Seconds = s.seconds()
	for i, t := range s.kvTimes {
		l := &s.KV.Lives[i]
		l.From, l.LastRead, l.To = since(t[0]), since(t[2]), since(t[1])
		if t[1] == 0 {
			l.To = s.seconds()
		}
	}
	s.kvTimes = nil
}
