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

// caches are the lives of the blocks of KV caches: what is known of the cells of each tensor, and the lives of the
// first tensor, to be drawn.
type caches struct {
	span
	uses  map[cachePart]*cacheUse
	shown cachePart
	kv    *kvLivesData
	times [][3]int64 // of kv.Lives: begin, end, last read
}

// readCaches reads a run's table of lives; one that is not there is empty, and found is false.
func readCaches(ctx context.Context, dir string) (c *caches, found bool, err error) {
	c = &caches{uses: map[cachePart]*cacheUse{}}
	found, err = each(ctx, filepath.Join(dir, rundir.LivesName), kvColumns, nil, func(g *rowGroup) error {
		for i := range g.rows {
			part := cachePart{g.number("ctx", i), g.number("layer", i), g.text("kv", i)}
			c.life(part, g, i)
			if c.kv == nil {
				c.shown = part
				c.kv = &kvLivesData{Name: fmt.Sprintf("the %s cache, %s of layer %d", g.text("cache", i), part.kv,
					part.layer)}
			}
			if c.shown == part {
				c.show(g, i)
			}
		}
		return nil
	})
	return c, found, err
}

// life takes a row in: each of its cells had a life. What was written is needed from its first write to its last
// read; cells that were written again since, by a context shift, from the last write on.
func (c *caches) life(part cachePart, g *rowGroup, i int) {
	u := c.uses[part]
	if u == nil {
		u = &cacheUse{cellBytes: g.number("cell_bytes", i)}
		c.uses[part] = u
	}
	cells, writes := g.number("cells", i), g.number("n_writes", i)
	u.writes += writes
	u.reads += g.number("n_reads", i)
	c.see(g.number("alloc_ns", i), g.number("last_write_ns", i), g.number("last_read_ns", i), g.number("evict_ns", i))
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
func (c *caches) show(g *rowGroup, i int) {
	c.kv.Cells = max(c.kv.Cells, g.number("cell_end", i)-g.number("cell_start", i))
	c.kv.Blocks = max(c.kv.Blocks, g.number("block_id", i)+1)
	if len(c.kv.Lives) >= mostKVLives {
		c.kv.More++
		return
	}
	begin, ok := g.integer("alloc_ns", i)
	if !ok {
		begin = g.number("first_read_ns", i)
	}
	// Times are seconds since the run began, which is known when everything has been read: until then, they are
	// Unix nanoseconds.
	c.times = append(c.times, [3]int64{begin, g.number("evict_ns", i), g.number("last_read_ns", i)})
	c.kv.Lives = append(c.kv.Lives, kvLife{Block: g.number("block_id", i), Reason: g.text("evict_reason", i)})
}

// drawn are the lives to be drawn, in seconds since a run began; nil where there are none.
func (c *caches) drawn(run *span) *kvLivesData {
	since := func(ns int64) float64 {
		if ns == 0 {
			return 0
		}
		return max(float64(ns-run.Begin)/1e9, 0)
	}
	for i, t := range c.times {
		l := &c.kv.Lives[i]
		l.From, l.LastRead, l.To = since(t[0]), since(t[2]), since(t[1])
		if t[1] == 0 {
			l.To = run.seconds()
		}
	}
	if c.kv != nil {
		c.kv.Seconds = run.seconds()
	}
	c.times = nil
	return c.kv
}
