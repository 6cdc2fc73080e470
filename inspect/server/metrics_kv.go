package server

import (
	"strconv"

	"github.com/llamatap/llamatap/kvcache"
)

// What the collector of a live run knows of its caches, cell by cell.
var (
	kvSequence = gauge("kv_sequence_cells", "Cells of a KV cache that a sequence has.", "ctx", "cache", "seq_id")
	kvNeeded   = counter("kv_prompt_cells_total", "Cells that prompts needed.")
	kvReused   = counter("kv_prompt_cells_reused_total", "Cells that prompts needed and found in a KV cache.")
	kvHits     = counter("kv_prompt_hits_total", "Prompts that found cells in a KV cache.")
	kvLifetime = histogram("kv_block_lifetime_seconds",
		"Time from the first cell of a block to the end of its last one, of lives that ended.")
	kvIdle = histogram("kv_block_idle_seconds",
		"The part of it at its end in which nobody touched the block.")
	kvGap = histogram("kv_reuse_gap_seconds",
		"Time before a request in which what it reuses was last computed with.")
)

// snapshot describes how the caches of a live run are used.
func (t *metricFold) snapshot(s *kvcache.Snapshot) {
	for _, c := range s.Caches {
		ctx, cache := strconv.FormatUint(uint64(c.Ctx), 10), c.Cache.String()
		for state, cells := range map[string]int{"used": c.Used, "free": c.Free, "shared": c.Shared,
			"capacity": c.Cells} {
			t.add(kvCells, float64(cells), ctx, cache, state)
		}
		for _, seq := range c.Sequences {
			t.add(kvSequence, float64(seq.Cells), ctx, cache, strconv.Itoa(int(seq.Seq)))
		}
	}
	t.add(kvNeeded, float64(s.Reuse.Needed))
	t.add(kvReused, float64(s.Reuse.Reused))
	t.add(kvHits, float64(s.Reuse.Hits))
	t.histogram(kvLifetime, &s.Lifetime)
	t.histogram(kvIdle, &s.Idle)
	t.histogram(kvGap, &s.Reuse.Gap)
}

func (t *metricFold) histogram(of *metric, h *kvcache.Histogram) {
	t.all = append(t.all, of.durations(h, t.run))
}
