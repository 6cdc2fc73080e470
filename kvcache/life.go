package kvcache

// Reason says why the cells of a life went, and Loaded why others came.
type Reason uint8

// The reasons.
const (
	NotEvicted Reason = iota
	SeqRm             // the program removed positions of a sequence, or moved them below 0
	SeqKeep           // the program kept another sequence
	Clear             // the program cleared the memory, or loaded a whole state into it
	Overwrite         // llama.cpp put other positions there, as a window slides, or copied a stream over it
	Loaded            // cells that a state was loaded into, and that a token may read now
)

var reasons = [...]string{"", "seq_rm", "seq_keep", "clear", "overwrite", "loaded"}

// String returns the reason's name as written in files; "" for what was written, or is there.
func (r Reason) String() string { return reasons[r] }

// Origin says where a life's cells come from.
type Origin uint8

// The origins.
const (
	Written Origin = iota // tokens were computed
	Copied                // llama.cpp copied a stream
	Found                 // a token was allowed to read cells that nobody saw written: they were loaded with a state
)

var origins = [...]string{"written", "copied", "found"}

// String returns the origin's name as written in files.
func (o Origin) String() string { return origins[o] }

// Moment is when an execution wrote and read the parts of a cache: the beginning of the measured interval in which
// it did. Where nodes were not timed that is the beginning of the execution.
type Moment struct {
	NS int64 // CLOCK_MONOTONIC
	// Writes and Reads are those of each part, after NS and in units of 2^Shift ns; empty where no node was timed.
	Writes, Reads []uint32
	Shift         uint8
}

// Write is when a part was written, CLOCK_MONOTONIC in ns; 0 for a nil Moment.
func (m *Moment) Write(part int) int64 { return m.at(part, true) }

// Read is when a part was read, as Write has it.
func (m *Moment) Read(part int) int64 { return m.at(part, false) }

func (m *Moment) at(part int, write bool) int64 {
	if m == nil {
		return 0
	}
	offsets := m.Reads
	if write {
		offsets = m.Writes
	}
	if part >= len(offsets) {
		return m.NS
	}
	return m.NS + int64(offsets[part])<<m.Shift
}

// Touch is how the parts of one group were written and read.
type Touch struct {
	FirstWrite, LastWrite, FirstRead, LastRead *Moment // nil: never
	// Writes and Reads count cells: one for each cell that was written, and one for each cell that an attention
	// node, or a recurrent layer, was allowed to read in an execution, by however many tokens.
	Writes, Reads int64
}

func (t *Touch) write(cells int64, m *Moment) {
	if t.FirstWrite == nil {
		t.FirstWrite = m
	}
	t.LastWrite = m
	t.Writes += cells
}

func (t *Touch) read(cells int64, m *Moment) {
	if t.FirstRead == nil {
		t.FirstRead = m
	}
	t.LastRead = m
	t.Reads += cells
}

// last is when the life was touched last.
func (t *Touch) last() int64 {
	ns := int64(0)
	for _, m := range []*Moment{t.LastWrite, t.LastRead} {
		if m != nil {
			ns = max(ns, m.NS)
		}
	}
	return ns
}

// Life is that of the cells of one block that one sequence wrote. It begins with the first of them. Further cells
// that the sequence writes into the block join it, until one of them takes the place of a cell of this life: with
// that another life begins, and this one continues without it. It ends with its last cell.
//
// Positions are those of its cells, moved where they were moved; PosUnknown where none is known.
type Life struct {
	Block              int
	Seq                int32 // that wrote its first cell, -1 = unknown
	PosFirst, PosEnd   int32 // PosFirst ≤ position < PosEnd
	CellFirst, CellEnd int   // counted over all streams
	Cells              int   // the most that it had at a time
	Sharers            int   // the most sequences that one of its cells belonged to
	Moves              int   // times that positions of it were changed
	Origin             Origin
	AllocNS            int64 // CLOCK_MONOTONIC; 0 = nobody saw it
	EndNS              int64 // when its last cell went, or watching ended
	Reason             Reason
	Touches            []Touch // per group

	alive  int
	closed bool
	next   *Life // of the block
}

func (l *Life) holds(cell int, pos int32) {
	if l.CellEnd == 0 {
		l.CellFirst, l.CellEnd = cell, cell+1
	}
	l.CellFirst, l.CellEnd = min(l.CellFirst, cell), max(l.CellEnd, cell+1)
	widen(&l.PosFirst, &l.PosEnd, pos)
}

// widen takes a position, unless it is not known, into a range of them.
func widen(first, end *int32, pos int32) {
	switch {
	case pos < 0:
	case *first == PosUnknown:
		*first, *end = pos, pos+1
	default:
		*first, *end = min(*first, pos), max(*end, pos+1)
	}
}

// IdleNS is how long before its end it was touched last; 0 where nobody saw it touched.
func (l *Life) IdleNS() int64 {
	last := l.AllocNS
	for i := range l.Touches {
		last = max(last, l.Touches[i].last())
	}
	if last == 0 {
		return 0
	}
	return max(l.EndNS-last, 0)
}
