package ledger

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/memtrace"
)

// execution is one micro-batch whose accesses are written.
type execution struct {
	number  uint64
	ctx     uint32
	plan    *plan
	begin   int64 // when ggml was given the graph
	end     int64
	failed  bool
	open    bool // it may still turn out to be set-up
	phase   memtrace.Phase
	first   int64 // number of the first token in the run
	tokens  []int32
	pos     []int32
	outputs []int32
	rows    []ggmlhooks.Row
	only    int32           // the sequence of all tokens, none if they have several
	step    ggmlhooks.Phase // of all tokens, unknown if they have several
	times   []ggmlhooks.NodeTime
	cells   reported[int64] // by leaf
	masks   reported[cellRange]
	experts reported[int32] // by node
}

// none stands for a token, sequence or block that is not known, or that is several.
const none = -1

// reported are values by the number of the leaf or node that reported them. Few do.
type reported[T any] struct {
	by     []int
	ends   []int
	values []T
}

func (t *reported[T]) reset() { t.by, t.ends, t.values = t.by[:0], t.ends[:0], t.values[:0] }

// begin begins the values of another one.
func (t *reported[T]) begin(by int) {
	t.by, t.ends = append(t.by, by), append(t.ends, len(t.values))
}

func (t *reported[T]) add(v T) {
	t.values = append(t.values, v)
	t.ends[len(t.ends)-1] = len(t.values)
}

// reportsOf returns what one reported; false: nothing.
func (t *reported[T]) reportsOf(by int) ([]T, bool) {
	i := slices.Index(t.by, by)
	if i < 0 {
		return nil, false
	}
	begin := 0
	if i > 0 {
		begin = t.ends[i-1]
	}
	return t.values[begin:t.ends[i]], true
}

// cellRange is cells of a stream that one of its tokens may read.
type cellRange struct {
	stream     int64
	first, end int64
}

// fill makes it that of an execution, in its old memory.
func (x *execution) fill(of *ggmlhooks.Execution, p *plan) {
	*x = execution{
		number: of.Number, ctx: of.Ctx, plan: p, begin: of.BeganNS(), end: of.End.MonoNS, failed: !of.Ended ||
			of.Failed(), open: of.Undecided,
		phase: memtrace.Generation, first: of.TokenFirst, tokens: of.Tokens, pos: of.Pos, outputs: of.Outputs,
		rows: of.Rows,
		step: ggmlhooks.OnePhase(of.Rows), times: of.Times.Nodes, cells: x.cells, masks: x.masks, experts: x.experts,
	}
	switch {
	case of.Phase == ggmlhooks.PhaseSetup:
		x.phase, x.first = memtrace.Setup, none // its tokens are none of the run's
	case len(of.Tokens) == 0 && p.tokens == 0:
		x.phase = memtrace.Maintenance
	}
	x.only = x.seq(0, len(x.rows))
	x.cells.reset()
	x.masks.reset()
	x.experts.reset()
	for i := range of.Inputs {
		in := &of.Inputs[i]
		if in.Kind == ggmlhooks.InputMask {
			x.mask(in.Leaf, p.streams[in.Leaf], in.Ranges)
			continue
		}
		x.cells.begin(in.Leaf)
		for _, v := range in.Values {
			x.cells.add(v)
		}
	}
	for i := range of.Routing {
		if c := &of.Routing[i]; c.Type == int(gguf.I32) {
			x.chosen(c.Node, c.Data)
		}
	}
}

// mask keeps which cells may be read by a mask, by any token of each stream, in order.
func (x *execution) mask(leaf int, streams int64, ranges []ggmlhooks.CellRange) {
	per := max(int64(len(x.tokens))/max(streams, 1), 1)
	begin := len(x.masks.values)
	x.masks.begin(leaf)
	for _, r := range ranges {
		x.masks.add(cellRange{int64(r.Row) / per, int64(r.First), int64(r.End)})
	}
	cellRanges := x.masks.values[begin:]
	slices.SortFunc(cellRanges, func(a, b cellRange) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.first, b.first))
	})
	kept := 0
	for _, r := range cellRanges {
		if kept > 0 && cellRanges[kept-1].stream == r.stream && r.first <= cellRanges[kept-1].end {
			cellRanges[kept-1].end = max(cellRanges[kept-1].end, r.end)
			continue
		}
		cellRanges[kept] = r
		kept++
	}
	x.masks.values = x.masks.values[:begin+kept]
	x.masks.ends[len(x.masks.ends)-1] = begin + kept
}

// chosen keeps which experts a node reports, each once, in order.
func (x *execution) chosen(node int, data []byte) {
	begin := len(x.experts.values)
	x.experts.begin(node)
	for at := 0; at+4 <= len(data); at += 4 {
		x.experts.add(int32(binary.LittleEndian.Uint32(data[at:])))
	}
	all := x.experts.values[begin:]
	slices.Sort(all)
	n := len(slices.Compact(all))
	x.experts.values = x.experts.values[:begin+n]
	x.experts.ends[len(x.experts.ends)-1] = begin + n
}

// numbers are those of the rows that a lookup reads; false: they were not reported.
func (x *execution) numbers(l *lookup) (ids []int32, states []int64, ok bool) {
	switch l.from {
	case lookTokens:
		ids = x.tokens
	case lookPos:
		ids = x.pos
	case lookOutputs:
		ids = x.outputs
	case lookStates:
		states, ok = x.cells.reportsOf(l.by)
		if !ok || l.first < 0 || l.first+l.count > len(states) {
			return nil, nil, false
		}
		return nil, states[l.first : l.first+l.count], true
	}
	if l.first < 0 || l.first+l.count > len(ids) {
		return nil, nil, false
	}
	return ids[l.first : l.first+l.count], nil, true
}

// seq is the sequence of tokens first to end-1, none if they have several.
func (x *execution) seq(first, end int) int32 {
	if first >= end || end > len(x.rows) {
		return none
	}
	one := firstSeq(&x.rows[first])
	for i := first + 1; i < end; i++ {
		if firstSeq(&x.rows[i]) != one {
			return none
		}
	}
	return one
}

// firstSeq is a token's first sequence, none where it is not known.
func firstSeq(row *ggmlhooks.Row) int32 {
	if len(row.Seqs) == 0 {
		return none
	}
	return row.Seqs[0]
}

// stepOf is the step of a token by its number in the run, that of all tokens where it is none. Set-up has no step.
func (x *execution) stepOf(token int32) ggmlhooks.Phase {
	row := int64(token) - x.first
	switch {
	case x.open || x.phase != memtrace.Generation:
		return ggmlhooks.PhaseUnknown
	case token == none || x.first < 0 || row < 0 || row >= int64(len(x.rows)):
		return x.step
	}
	return x.rows[row].Phase
}

// token is the number in the run of a token of the execution.
func (x *execution) token(row int) int32 {
	if x.first < 0 || row < 0 || row >= len(x.tokens) {
		return none
	}
	return int32(x.first) + int32(row)
}

// interval is when the measured interval began in which a node was computed, and what that is.
func (x *execution) interval(node int32) (ns int64, source memtrace.TimeSource) {
	if len(x.times) == 0 {
		return x.begin, memtrace.TimeOfGraph
	}
	i := sort.Search(len(x.times), func(i int) bool { return x.times[i].Node >= node })
	ns, before := x.begin, int32(-1)
	if i > 0 {
		ns, before = x.begin+max(x.times[i-1].LeftNS, 0), x.times[i-1].Node
	}
	last := int32(1<<31 - 1)
	if i < len(x.times) {
		last = x.times[i].Node
	}
	if x.plan.computed(before, last) == 1 {
		return ns, memtrace.TimeOfOp
	}
	return ns, memtrace.TimeOfRange
}
