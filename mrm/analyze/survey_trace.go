package analyze

// Hot path: every row of a trace passes here, in about a hundred nanoseconds; nothing is allocated per row.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// figureColumns are the columns of the trace that figures need.
var figureColumns = []int{
	memtrace.TraceTime, memtrace.TracePhase, memtrace.TraceOp, memtrace.TraceSize, memtrace.TraceRegion,
	memtrace.TraceRegionType, memtrace.TraceCollector,
	memtrace.TraceAddr, memtrace.TraceBuffer, memtrace.TraceOffset, memtrace.TracePieces, memtrace.TraceStride,
	memtrace.TraceFlags,
}

// binner gathers the rows of a trace.
type binner struct {
	s       *survey
	places  map[string]*placed // by type of region
	byID    map[int64]*region
	phases  map[[2]string]*phaseBytes
	last    *phaseBytes // of the row before
	heat    clockBins
	begun   bool  // there were rows
	samples bool  // what is drawn is of samples, for there is no ledger
	lost    int64 // rows whose place is not known
	window  int64 // of working sets, ns
}

// rows takes rows in while the trace is analysed. What was gathered of samples is forgotten when there is a ledger too.
func (b *binner) rows(r *memory.Rows) error {
	for _, c := range figureColumns {
		if r.Columns[c] == nil {
			return fmt.Errorf("the table has no column %s, which figures need", memtrace.TraceColumns()[c].Name)
		}
	}
	hasLedger := slices.Contains(r.Columns[memtrace.TraceCollector].Words, memtrace.CollectorGraph.String())
	if !b.begun || b.samples && hasLedger {
		*b = *newBinner(b.s)
		b.begun, b.samples = true, !hasLedger
	}
	b.add(r)
	return nil
}

// noPhase is the heading of accesses of which nothing says their phase: before the first marker, or under one whose
// name is not a phase.
const noPhase = "no phase"

// newBinner prepares the axes of all types of regions.
func newBinner(s *survey) *binner {
	b := &binner{s: s, places: map[string]*placed{}, byID: map[int64]*region{}, phases: map[[2]string]*phaseBytes{},
		heat: clockBins{width: 1 << 16}}
	b.window = nice((s.End - s.Begin) / 200)
	extents := map[string][]extent{}
	ends, graphs := map[int64]uint64{}, map[int64]bool{}
	for i := range s.Regions {
		r := &s.Regions[i]
		b.byID[r.ID] = r
		if r.Buffer == 0 {
			continue
		}
		ends[r.Buffer] = max(ends[r.Buffer], r.Offset+r.Bytes)
		switch r.Type {
		case memtrace.Activation, memtrace.ComputeBuffer:
			graphs[r.Buffer] = true
		default:
			if r.Reads+r.Writes > 0 {
				extents[r.Type.String()] = append(extents[r.Type.String()],
					extent{r.Buffer, r.Offset, r.Offset + r.Bytes})
			}
		}
	}
	for buffer := range graphs { // activations may lie anywhere in it
		extents[memtrace.Activation.String()] = append(extents[memtrace.Activation.String()],
			extent{buffer, 0, ends[buffer]})
	}
	for kind, all := range extents {
		b.places[kind] = newPlaced(kind, newSpace(all), b.window)
	}
	b.places[memtrace.ComputeBuffer.String()] = b.places[memtrace.Activation.String()]
	return b
}

// nice is a length of time of 1, 2 or 5 times a power of ten, at least as long.
func nice(ns int64) int64 {
	for by := int64(1e5); ; by *= 10 {
		for _, m := range []int64{1, 2, 5} {
			if by*m >= ns || by >= 1e15 {
				return by * m
			}
		}
	}
}

// add takes rows in, but for cells of a cache that a mask hides: kernels may pass over them.
func (b *binner) add(rows *memory.Rows) {
	c := rows.Columns
	isGraph, isWrite, isOther := codesOf(c[memtrace.TraceCollector].Words, "graph"),
		codesOf(c[memtrace.TraceOp].Words, "write"), codesOf(c[memtrace.TraceOp].Words, "alloc", "free")
	for i := range rows.N {
		size := c[memtrace.TraceSize].Ints[i]
		isSample := !isGraph.has(c[memtrace.TraceCollector].Codes[i])
		if isSample != b.samples || isOther.has(c[memtrace.TraceOp].Codes[i]) || size <= 0 && !isSample ||
			memtrace.TraceFlag(c[memtrace.TraceFlags].Ints[i])&memtrace.TracePadded != 0 {
			continue
		}
		size = max(size, 1)
		kind := c[memtrace.TraceRegionType].Text(i)
		sum := b.phase(c[memtrace.TracePhase].Text(i), kind)
		if isWrite.has(c[memtrace.TraceOp].Codes[i]) {
			sum.Written += float64(size)
		} else {
			sum.Read += float64(size)
		}
		p := b.places[kind]
		at, ok := b.locate(c, i, p)
		if !ok {
			b.lost++
			continue
		}
		at.size, at.pieces, at.stride, at.ns = uint64(size), max(c[memtrace.TracePieces].Ints[i], 1),
			uint64(c[memtrace.TraceStride].Ints[i]), c[memtrace.TraceTime].Ints[i]
		p.touch(&b.heat, &at)
	}
}

// codes are some of the words of a column.
type codes uint64

// codesOf are the codes of words; a column of these has fewer than 64.
func codesOf(words []string, some ...string) (set codes) {
	for code, word := range words {
		if code < 64 && slices.Contains(some, word) {
			set |= 1 << code
		}
	}
	return set
}

func (s codes) has(code int32) bool { return code >= 0 && code < 64 && s>>code&1 == 1 }

// phase is what was read and written in a phase, in regions of a type. Rows of one come one behind the other.
func (b *binner) phase(name, kind string) *phaseBytes {
	if b.last != nil && b.last.Phase == name && b.last.Type == kind {
		return b.last
	}
	sum := b.phases[[2]string{name, kind}]
	if sum == nil {
		sum = &phaseBytes{Phase: name, Type: kind}
		b.phases[[2]string{name, kind}] = sum
	}
	b.last = sum
	return sum
}

// locate finds where on its type's axis a row lies: by buffer and offset, or by the address in its region.
func (b *binner) locate(c []*table.Vector, i int, p *placed) (at access, ok bool) {
	if p == nil {
		return at, false
	}
	in, from := c[memtrace.TraceBuffer].Ints[i], uint64(c[memtrace.TraceOffset].Ints[i])
	if c[memtrace.TraceBuffer].Null(i) || in == 0 {
		r := b.byID[c[memtrace.TraceRegion].Ints[i]]
		addr := uint64(c[memtrace.TraceAddr].Ints[i])
		if c[memtrace.TraceRegion].Null(i) || r == nil || r.Buffer == 0 || r.Start == 0 || addr < r.Start {
			return at, false
		}
		in, from = r.Buffer, r.Offset+addr-r.Start
	}
	at.axis, at.left, ok = p.space.at(in, from)
	return at, ok
}

// finish hands over what was gathered.
func (b *binner) finish() {
	s := b.s
	s.Phases = nil
	if !b.samples {
		s.From = "trace"
	}
	if b.lost > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d accesses are not drawn, for it is not known where they went", b.lost))
	}
	if b.samples {
		s.Notes = append(s.Notes, "figures of accesses are of samples: what is not drawn was not sampled")
	}
	for _, sum := range b.phases {
		s.Phases = append(s.Phases, *sum)
		if of := &s.Phases[len(s.Phases)-1]; of.Phase == "" {
			of.Phase = noPhase
		}
	}
	order := []string{"weight_load", "setup", "generation", "maintenance", "teardown", noPhase}
	slices.SortFunc(s.Phases, func(x, y phaseBytes) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.Phase), slices.Index(order, y.Phase)),
			cmp.Compare(rank(x.Type), rank(y.Type)), cmp.Compare(x.Type, y.Type))
	})
	s.Heat, s.Working = b.figures()
}

// rank orders types of regions.
func rank(kind string) int {
	t, _ := memtrace.ParseRegionType(kind)
	return int(t)
}

// figures are the heat map and the working sets.
func (b *binner) figures() (*heatData, *workingData) {
	heat := &heatData{BinS: float64(b.heat.width) / 1e9, Bins: b.heat.bins()}
	work := &workingData{WindowS: float64(b.window) / 1e9, Granularity: 1}
	for kind := memtrace.Other; ; kind++ {
		name := kind.String()
		if _, err := memtrace.ParseRegionType(name); err != nil {
			break
		}
		p := b.places[name]
		if p == nil || p.kind != name || !p.isTouched {
			continue
		}
		p.finish()
		heat.Panels = append(heat.Panels, heatPanelData{Type: name, Bytes: float64(p.space.bytes), Rows: p.rows,
			Touched: p.cells(&b.heat)})
		work.Granularity = max(work.Granularity, int64(1)<<p.shift)
		work.Types = append(work.Types, workingType{Type: name, Bytes: p.working(b.heat.begin())})
	}
	if len(heat.Panels) == 0 {
		return nil, nil
	}
	return heat, work
}
