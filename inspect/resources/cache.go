package resources

import (
	"cmp"
	"maps"
	"slices"

	"github.com/llamatap/llamatap/resource"
)

// CacheUse is what events report of one KV cache, or recurrent memory. Each layer has the same cells; cells are those
// of its first layer.
type CacheUse struct {
	Ctx       uint32 `json:"ctx"`
	Type      string `json:"cache_type"`
	Cache     string `json:"cache,omitempty"` // base, swa or recurrent
	Layers    int    `json:"layers"`
	Used      int64  `json:"cells_used"` // now: allocated, and not evicted since
	Peak      int64  `json:"cells_peak"`
	Allocated int64  `json:"cells_allocated"`
	Updated   int64  `json:"cells_updated"`
	Evicted   int64  `json:"cells_evicted"`
	// Bytes of keys and values that were written in cells in use, in all layers; absent where no event had them.
	// The graph of a context shift writes all cells.
	KeyBytes   *int64 `json:"key_bytes_written,omitempty"`
	ValueBytes *int64 `json:"value_bytes_written,omitempty"`
	// cells that the prompts of all requests found ÷ cells that they needed; absent in logs of older versions
	HitRatio   *float64       `json:"hit_ratio,omitempty"`
	Operations int64          `json:"operations"` // events
	Sequences  []*SequenceUse `json:"sequences,omitempty"`

	first  int // the layer whose cells are counted
	layers map[int]bool
	seqs   map[int32]*SequenceUse
}

// SequenceUse is what one sequence has of a cache.
type SequenceUse struct {
	Seq    int32 `json:"seq_id"` // -1: unknown
	Cells  int64 `json:"cells"`
	PosEnd int32 `json:"pos_end"` // after the highest position that was written
}

// noSeq stands for cells of which it is not known whose they are.
const noSeq int32 = -1

type cacheKey struct {
	ctx         uint32
	kind, cache string
}

// caches are those of a run.
type caches map[cacheKey]*CacheUse

// The operations of an event.
const (
	opAllocate = "allocate"
	opUpdate   = "update"
	opEvict    = "evict"
)

func (m caches) add(e *resource.KV) {
	key := cacheKey{ContextOf(e.Ctx), e.CacheType, e.Cache}
	c := m[key]
	if c == nil {
		c = &CacheUse{Ctx: key.ctx, Type: key.kind, Cache: key.cache, first: e.LayerID, layers: map[int]bool{},
			seqs: map[int32]*SequenceUse{}}
		if len(m) < maxSeqs {
			m[key] = c
		}
	}
	c.Operations++
	if len(c.layers) < maxSeqs {
		c.layers[e.LayerID] = true
		c.Layers = len(c.layers)
	}
	c.wrote(e)
	if e.NeededCells > 0 {
		c.HitRatio = new(float64(e.ReusedCells) / float64(e.NeededCells))
	}
	if e.LayerID == c.first {
		c.cells(e)
	}
}

// wrote adds the bytes that an execution wrote. Older versions recorded only what the cells hold: of those that an
// execution took it is the same.
func (c *CacheUse) wrote(e *resource.KV) {
	switch {
	case e.KeyWritten != nil || e.ValueWritten != nil:
		addTo(&c.KeyBytes, e.KeyWritten)
		addTo(&c.ValueBytes, e.ValueWritten)
	case e.CacheOperation == opAllocate && e.Exec != nil:
		addTo(&c.KeyBytes, e.KeyBytes)
		addTo(&c.ValueBytes, e.ValueBytes)
	}
}

// addTo adds a figure that may be absent.
func addTo(sum **int64, n *int64) {
	if n == nil {
		return
	}
	if *sum == nil {
		*sum = new(int64)
	}
	**sum += *n
}

// cells counts the cells of an event.
func (c *CacheUse) cells(e *resource.KV) {
	n, seq := int64(e.Cells), noSeq
	if e.SeqID != nil {
		seq = *e.SeqID
	}
	s := c.seqs[seq]
	if s == nil {
		s = &SequenceUse{Seq: seq}
		if len(c.seqs) < maxSeqs {
			c.seqs[seq] = s
		}
	}
	switch e.CacheOperation {
	case opAllocate:
		c.Allocated += n
		c.Used += n
		s.Cells += n
	case opUpdate:
		c.Updated += n
	case opEvict:
		c.Evicted += n
		c.Used = max(c.Used-n, 0)
		s.Cells = max(s.Cells-n, 0)
	}
	if e.CacheOperation != opEvict && e.CacheEndPos != nil {
		s.PosEnd = max(s.PosEnd, *e.CacheEndPos)
	}
	c.Peak = max(c.Peak, c.Used)
}

// list lists the caches by context and type, and their sequences.
func (m caches) list() []*CacheUse {
	cacheUses := slices.SortedFunc(maps.Values(m), func(a, b *CacheUse) int {
		return cmp.Or(cmp.Compare(a.Ctx, b.Ctx), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Cache, b.Cache))
	})
	for _, c := range cacheUses {
		c.Sequences = slices.SortedFunc(maps.Values(c.seqs), func(a, b *SequenceUse) int {
			return cmp.Compare(a.Seq, b.Seq)
		})
	}
	return cacheUses
}
