package oplog

import (
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
)

// cells records what happens to cells. It keeps the starts of resource ids, so that they are not made anew for each
// event, and the devices that have a layer's cache.
type cells struct {
	*writer
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

// noteDevices notes on which devices the caches of a graph lie.
func (c *cells) noteDevices(g *ggmlhooks.Graph, device func(buffer uint64) string) {
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

func (c *cells) id(ctx uint32, cache kvcache.Kind, layer int) string {
	key := cacheID{c.devices[cacheLayer{ctx, layer}], cache, layer}
	id, ok := c.starts[key]
	if !ok {
		id = idStart(key.device, "cache", layer, cache.String())
		c.starts[key] = id
	}
	return id
}

// record writes one event per layer.
func (c *cells) record(op *kvcache.Operation) {
	c.noteTime(op.MonoNS)
	if !c.level().Includes(resource.KindKV) {
		return
	}
	if len(op.Layers) == 0 {
		c.recordLayer(op, nil)
	}
	for i := range op.Layers {
		c.recordLayer(op, &op.Layers[i])
	}
}

// recordLayer records one layer; of is nil where its bytes are not known.
func (c *cells) recordLayer(op *kvcache.Operation, of *kvcache.LayerBytes) {
	layer := ggmlhooks.NoLayer
	if of != nil {
		layer = int(of.Layer)
	}
	c.begin(resource.KindKV, op.MonoNS, int64(op.Ctx))
	c.resourceID(c.id(op.Ctx, op.Cache, layer), op.MonoNS)
	if op.Exec != 0 {
		c.Uint("exec", op.Exec)
	}
	kind := "key_value"
	if op.Cache == kvcache.Recurrent {
		kind = "recurrent"
	}
	c.String("cache_type", kind)
	c.String("cache", op.Cache.String())
	c.Int("layer_id", int64(layer))
	if op.Seq >= 0 {
		c.Int("seq_id", int64(op.Seq))
	}
	if op.PosFirst >= 0 {
		c.Int("cache_start_pos", int64(op.PosFirst))
		c.Int("cache_end_pos", int64(op.PosEnd))
	}
	c.measured("cells", int64(op.Cells))
	weakest := resource.Measured
	if of != nil {
		weakest = resource.Computed
		c.Int("key_bytes", of.K)
		c.Int("value_bytes", of.V)
		c.Float("key_cache_size_mb", float64(of.K)/mib)
		c.Float("value_cache_size_mb", float64(of.V)/mib)
		c.mark(resource.Computed, "key_bytes", "value_bytes", "key_cache_size_mb", "value_cache_size_mb")
		if op.Written > 0 || op.Reason == kvcache.Loaded {
			c.Int("key_bytes_written", of.KWritten)
			c.Int("value_bytes_written", of.VWritten)
			c.mark(resource.Computed, "key_bytes_written", "value_bytes_written")
		}
	}
	switch {
	case op.Needed > 0:
		weakest = resource.Computed
		c.Float("cache_hit_ratio", float64(op.Reused)/float64(op.Needed))
		c.mark(resource.Computed, "cache_hit_ratio")
	case c.legacy:
		c.Float("cache_hit_ratio", resource.LegacyHitRatio)
		weakest = resource.Estimated
	}
	if op.AllNeeded > 0 {
		c.measured("reused_cells", op.AllReused)
		c.measured("needed_cells", op.AllNeeded)
	}
	c.String("cache_operation", op.Action.String())
	if why := op.Reason.String(); why != "" {
		c.String("reason", why)
	}
	c.put(weakest)
}
