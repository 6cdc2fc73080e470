package kvcache

import "slices"

// SnapshotKey is the key of the table's metadata under which a Snapshot stands, as JSON: how the caches were used
// when watching ended.
const SnapshotKey = "llamatap_kv"

// Snapshot says how the caches of a run are used now. It stands as JSON in the metadata of
// kv_block_lifecycle.parquet, too, as it was at the end of the run, before the last lives ended.
type Snapshot struct {
	UnixNS int64   `json:"unix_ns"`
	Caches []Gauge `json:"caches"`
	// Freed are caches whose memory was freed, as they were before: those that a program freed last, at most MaxFreed.
	Freed []Gauge `json:"freed,omitempty"`
	// MadeUnixNS is when the first graph of the newest cache began. Caches that were freed before were gone by then.
	MadeUnixNS int64 `json:"made_unix_ns,omitempty"`
	Reuse      Reuse `json:"reuse"`
	// Lifetime and Idle are those of lives that ended: from their first cell to their last one's end, and how much
	// of that nobody touched them for at the end.
	Lifetime Histogram `json:"lifetime"`
	Idle     Histogram `json:"idle"`
	Doubts   Doubts    `json:"doubts"`
}

// Latest are the caches that there were since the newest one was made, as they are now or were when they were freed.
func (s *Snapshot) Latest() []Gauge {
	isFreed := func(g Gauge) bool { return g.FreedUnixNS < s.MadeUnixNS }
	return slices.Concat(s.Caches, slices.DeleteFunc(slices.Clone(s.Freed), isFreed))
}

// MaxFreed bounds what is remembered of caches that are gone.
const MaxFreed = 64

// Gauge is how one cache is used now. Cells are slots for a token, or states.
type Gauge struct {
	Ctx       uint32 `json:"ctx"`
	Cache     Kind   `json:"cache"`
	Layers    int    `json:"layers"`
	Streams   int    `json:"streams"`
	Block     int    `json:"block_cells"`
	CellBytes int64  `json:"cell_bytes"` // of all layers
	Cells     int    `json:"cells"`
	Used      int    `json:"used"`
	Free      int    `json:"free"`
	Shared    int    `json:"shared"` // by two sequences or more
	// Occupancy is Used ÷ Cells.
	Occupancy float64    `json:"occupancy"`
	Sequences []SeqGauge `json:"sequences,omitempty"`
	// Whole is false while some sequence may have cells that nobody saw, because they were loaded with a state.
	// Used is then at least what it says.
	Whole bool `json:"whole"`
	// Attended is what attention has read; nil where nothing of it is known.
	Attended *Attended `json:"attended,omitempty"`
	// FreedUnixNS is when the cache's memory was freed, 0 = it was not.
	FreedUnixNS int64 `json:"freed_unix_ns,omitempty"`
}

// Attended adds up the cells that attention read of a cache, in one layer, graph by graph.
type Attended struct {
	// Graphs are those whose cells are added up, OfGraphs all with attention to the cache: the rest read it while it
	// may have had cells that nobody saw. 0 of 0: recorded by a version that did not count them.
	Graphs   int64 `json:"graphs,omitempty"`
	OfGraphs int64 `json:"of_graphs,omitempty"`
	Cells    int64 `json:"cells"`    // all that the graphs give to attention
	Readable int64 `json:"readable"` // that a token of the graph could read
	Free     int64 `json:"free"`     // that no sequence has, below the last cell in use: the cache is fragmented
}

// SeqGauge is what one sequence has of a cache.
type SeqGauge struct {
	Seq    int32 `json:"seq_id"`
	Cells  int   `json:"cells"`
	Shared int   `json:"shared"` // of these, with other sequences
	PosMin int32 `json:"pos_min"`
	PosMax int32 `json:"pos_max"`
	Known  bool  `json:"known"` // false: it may have cells, and positions, that nobody saw
}

// Reuse is how much of what prompts needed was in the cache already. A draft model's prompts, which are those of its
// target, do not count.
type Reuse struct {
	Requests int64 `json:"requests"`
	Hits     int64 `json:"hits"`   // requests that found something
	Needed   int64 `json:"needed"` // cells that prompts take
	Reused   int64 `json:"reused"` // cells of these that were there
	// Unknown are requests of sequences that may have had cells which nobody saw; they count in none of the others.
	Unknown int64 `json:"unknown,omitempty"`
	// Gap is how long before a request what it reuses was last computed with.
	Gap Histogram `json:"gap"`
}

// Ratio is Reused ÷ Needed; false where nothing was needed.
func (r *Reuse) Ratio() (ratio float64, ok bool) {
	if r.Needed == 0 {
		return 0, false
	}
	return float64(r.Reused) / float64(r.Needed), true
}

// Doubts count what did not fit what had been seen. In a run whose every step was seen all of them are 0.
type Doubts struct {
	Found    int64 `json:"found,omitempty"`    // cells that a token could read, and that nobody had seen written
	Outside  int64 `json:"outside,omitempty"`  // rows that were written outside of the cache
	Differ   int64 `json:"differ,omitempty"`   // rows whose keys and values went to different cells
	Unknown  int64 `json:"unknown,omitempty"`  // rows whose sequence is not known
	Unplaced int64 `json:"unplaced,omitempty"` // executions that write cells which are not known
}

// Clone returns a copy that does not change when the run continues.
func (s *Snapshot) Clone() Snapshot {
	copied := *s
	copied.Lifetime, copied.Idle, copied.Reuse.Gap = s.Lifetime.clone(), s.Idle.clone(), s.Reuse.Gap.clone()
	return copied
}
