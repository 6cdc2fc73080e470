package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
)

// KV records what happened to cells, one event per layer. It is what kvcache/track calls for each operation, and
// keeps nothing of it.
func (r *Recorder) KV(op *kvcache.Operation) error {
	r.head.see(op.MonoNS)
	if !r.Level().Includes(resource.KindKV) {
		return nil
	}
	if len(op.Layers) == 0 {
		r.emitKV(op, nil)
	}
	for i := range op.Layers {
		r.emitKV(op, &op.Layers[i])
	}
	return nil
}

// cacheIDs are the starts of resource ids that are not made anew for each event, and the devices that have a
// layer's cache.
type cacheIDs struct {
	starts  map[cacheID]string
	devices map[cacheLayer]string
}

type cacheID struct {
	device string
	cache  kvcache.Kind
	layer  int
}

type cacheLayer struct {
	ctx   uint32
	layer int
}

// place notes on which devices the caches of a graph lie.
func (c *cacheIDs) place(g *ggmlhooks.Graph, device func(buffer uint64) string) {
	for i := range g.Leafs {
		if _, layer, ok := ggmlhooks.CacheTensor(g.Leafs[i].Name); ok {
			name := device(g.Leafs[i].Buffer)
			c.devices[cacheLayer{g.Ctx, layer}] = name
			if _, known := c.devices[cacheLayer{g.Ctx, ggmlhooks.NoLayer}]; !known {
				c.devices[cacheLayer{g.Ctx, ggmlhooks.NoLayer}] = name
			}
		}
	}
}

func (c *cacheIDs) of(ctx uint32, cache kvcache.Kind, layer int) string {
	key := cacheID{c.devices[cacheLayer{ctx, layer}], cache, layer}
	id, ok := c.starts[key]
	if !ok {
		id = idStart(key.device, "cache", layer, cache.String())
		c.starts[key] = id
	}
	return id
}

// emitKV records one layer; nil where its bytes are not known.
func (r *Recorder) emitKV(op *kvcache.Operation, of *kvcache.LayerBytes) {
	layer := ggmlhooks.NoLayer
	if of != nil {
		layer = int(of.Layer)
	}
	l := &r.line
	r.begin(resource.KindKV, op.MonoNS, int64(op.Ctx))
	r.head.resourceID(l, r.caches.of(op.Ctx, op.Cache, layer), op.MonoNS)
	if op.Exec != 0 {
		l.Uint("exec", op.Exec)
	}
	kind := "key_value"
	if op.Cache == kvcache.Recurrent {
		kind = "recurrent"
	}
	l.String("cache_type", kind)
	l.String("cache", op.Cache.String())
	l.Int("layer_id", int64(layer))
	if op.Seq >= 0 {
		l.Int("seq_id", int64(op.Seq))
	}
	if op.PosFirst >= 0 {
		l.Int("cache_start_pos", int64(op.PosFirst))
		l.Int("cache_end_pos", int64(op.PosEnd))
	}
	l.Int("cells", int64(op.Cells))
	r.mark(resource.Measured, "cells")
	weakest := resource.Measured
	if of != nil {
		weakest = resource.Computed
		l.Int("key_bytes", of.K)
		l.Int("value_bytes", of.V)
		l.Float("key_cache_size_mb", float64(of.K)/mib)
		l.Float("value_cache_size_mb", float64(of.V)/mib)
		r.mark(resource.Computed, "key_bytes", "value_bytes", "key_cache_size_mb", "value_cache_size_mb")
		if op.Written > 0 {
			l.Int("key_bytes_written", of.KWritten)
			l.Int("value_bytes_written", of.VWritten)
			r.mark(resource.Computed, "key_bytes_written", "value_bytes_written")
		}
	}
	switch {
	case op.Needed > 0:
		weakest = resource.Computed
		l.Float("cache_hit_ratio", float64(op.Reused)/float64(op.Needed))
		r.mark(resource.Computed, "cache_hit_ratio")
	case r.o.Legacy:
		l.Float("cache_hit_ratio", resource.LegacyHitRatio)
		weakest = resource.Estimated
	}
	l.String("cache_operation", op.Action.String())
	if why := op.Reason.String(); why != "" {
		l.String("reason", why)
	}
	r.put(resource.KindKV, weakest)
}
