package analyze

import (
	"context"
	"fmt"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// mostKVLives is how many lives of a cache are kept to be drawn.
const mostKVLives = 20000

var kvForm = form(rundir.LivesName, []string{"kv", "evict_reason", "cache"}, []string{"censored"},
	"block_id", "layer", "alloc_ns", "first_write_ns", "last_write_ns", "n_writes", "first_read_ns", "last_read_ns",
	"evict_ns", "ctx", "cells", "cell_bytes", "cell_start", "cell_end")

// form is a table with columns of texts, truths and integers.
func form(name string, texts, truths []string, integers ...string) table.Form {
	f := table.Form{Name: name}
	for _, group := range []struct {
		kind  table.Kind
		names []string
	}{{table.Text, texts}, {table.Bool, truths}, {table.Int64, integers}} {
		for _, column := range group.names {
			f.Columns = append(f.Columns, table.Column{Name: column, Kind: group.kind})
		}
	}
	return f
}

// mostRows bounds the rows of a table that are read.
const mostRows = 1 << 32

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
	found, err = table.EachRow(ctx, dir, kvForm, nil, mostRows, func(r *table.Row) error {
		part := cachePart{r.Int("ctx"), r.Int("layer"), r.Text("kv")}
		c.life(part, r)
		if c.kv == nil {
			c.shown = part
			c.kv = &kvLivesData{Name: fmt.Sprintf("the %s cache, %s of layer %d", r.Text("cache"), part.kv, part.layer)}
		}
		if c.shown == part {
			c.show(r)
		}
		return nil
	})
	return c, found, err
}

// life takes a row in: each of its cells had a life. What was written is needed from its first write to its last
// read; cells that were written again since, by a context shift, from the last write on.
func (c *caches) life(part cachePart, r *table.Row) {
	u := c.uses[part]
	if u == nil {
		u = &cacheUse{cellBytes: r.Int("cell_bytes")}
		c.uses[part] = u
	}
	cells, writes := r.Int("cells"), r.Int("n_writes")
	c.extend(r.Int("alloc_ns"), r.Int("last_write_ns"), r.Int("last_read_ns"), r.Int("evict_ns"))
	written, known := r.Value("first_write_ns")
	if !known {
		return // loaded with a state: nobody saw it written
	}
	if writes > cells {
		written = r.Int("last_write_ns")
	} else {
		u.once += cells
	}
	u.written += cells
	needed := max(r.Int("last_read_ns")-written, 0)
	u.lives.Add(needed, cells*u.cellBytes, r.Int("censored") != 0)
}

// show keeps a life to be drawn.
func (c *caches) show(r *table.Row) {
	c.kv.Cells = max(c.kv.Cells, r.Int("cell_end")-r.Int("cell_start"))
	c.kv.Blocks = max(c.kv.Blocks, r.Int("block_id")+1)
	if len(c.kv.Lives) >= mostKVLives {
		c.kv.More++
		return
	}
	begin, ok := r.Value("alloc_ns")
	if !ok {
		begin = r.Int("first_read_ns")
	}
	// Times are seconds since the run began, which is known when everything has been read: until then, they are
	// Unix nanoseconds.
	c.times = append(c.times, [3]int64{begin, r.Int("evict_ns"), r.Int("last_read_ns")})
	c.kv.Lives = append(c.kv.Lives, kvLife{Block: r.Int("block_id"), Reason: r.Text("evict_reason")})
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
