package memory

import (
	"context"
	"fmt"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// Parts of a run that figures are of. All is every execution but set-up, those of mixed batches included.
const (
	PartAll     = "all"
	PartPrefill = "prefill"
	PartDecode  = "decode"
)

// PartWindow is the window of working sets of [Part.Time], in nanoseconds. Those of [Part.Steps] are one execution.
const PartWindow = 100_000_000

// Part is what a part of a run did to the regions of one type. Loading and set-up are in none. Each part is metered
// as if it were the whole run: weights count as written just before its first execution, what was written in
// another part as never written, and what the part leaves behind is censored.
type Part struct {
	Name   string
	Type   memtrace.RegionType
	Bytes  uint64 // of all regions of the type, accessed or not; of activations the memory that they share
	Padded uint64 // bytes of masked cells that ops were given; in no other figure
	// Executions of graphs in the part, and the different tokens that they were for, whatever type they touched.
	Executions, Tokens int64
	// Steps has times in executions of the part, from 0, so that it does not depend on the machine's speed; Time has
	// them in nanoseconds. All figures without a time are the same in both.
	Steps, Time *memtrace.TypeMetrics
}

// part is one that is being metered.
type part struct {
	name        string
	steps, time *memtrace.Meter
	begun       bool
	executions  int64
	graph       [2]int64 // context and number of the execution
	tokens      map[int64]struct{}
	padded      [16]uint64
	next        int   // of the ends of lives
	last        int64 // time of the newest touch
}

// beforeFirst is the step at which a part's weights count as written; its first execution is the next one.
const beforeFirst = 1

// Parts meters a run's ledger: all of it, and its prefill and decode each for itself. Types that a part did not access
// are left out. A run without a table of accesses is [ErrNoTrace].
func Parts(ctx context.Context, dir string) ([]Part, error) {
	t, err := openTrace(dir)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	regions, err := readRegions(ctx, dir)
	if err != nil {
		return nil, err
	}
	l, err := readLives(ctx, dir, regions)
	if err != nil {
		return nil, err
	}
	s := &splitting{regions: regions, ends: l.ends, current: -1}
	for i, name := range []string{PartAll, PartPrefill, PartDecode} {
		s.parts[i] = &part{name: name, steps: memtrace.NewMeter(1), time: memtrace.NewMeter(PartWindow),
			tokens: map[int64]struct{}{}}
	}
	err = eachRows(ctx, t, append([]int{memtrace.TraceStep, memtrace.TraceCtx}, others...), s.rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrNoTrace, err)
	}
	var parts []Part
	for _, p := range s.parts {
		parts = p.finish(parts, regions)
	}
	return parts, nil
}

// splitting gives the rows of a ledger to the parts that they belong to.
type splitting struct {
	regions *regionTable
	ends    []lifeEnd
	parts   [3]*part
	current int // the part that the newest execution belongs to, besides all; -1: none
	touches [atOnce]memtrace.Touch
}

func (s *splitting) rows(r *rows) error {
	for from := 0; from < r.n; from += len(s.touches) {
		some := s.touches[:min(len(s.touches), r.n-from)]
		r.touches(from, some)
		for i := range some {
			s.row(r, from+i, &some[i])
		}
	}
	return nil
}

// row takes a row in. An allocation or a release in the middle of a run is every part's.
func (s *splitting) row(r *rows, row int, t *memtrace.Touch) {
	phase := r.phases.valueAt(r.columns[memtrace.TracePhase], row)
	if r.from.valueAt(r.columns[memtrace.TraceCollector], row) != memtrace.CollectorGraph ||
		phase == memtrace.WeightLoad || phase == memtrace.Setup {
		return
	}
	isPlaced := number(r.columns[memtrace.TraceGraphSeq], row, -1) >= 0
	if isPlaced {
		s.current = s.partOf(r.columns[memtrace.TraceStep], row)
	}
	for i, p := range s.parts {
		isMine := i == 0 || i == s.current
		if isMine {
			p.until(t.NS, s.ends)
		}
		switch {
		case isPlaced && isMine:
			p.execute(r, row, t, s.regions)
		case !isPlaced && p.begun && phase != memtrace.Teardown:
			p.follow(t)
		}
	}
}

// partOf is the number of the part of a row's execution.
func (s *splitting) partOf(v *table.Vector, row int) int {
	if v != nil && v.Codes[row] >= 0 {
		for i, p := range s.parts {
			if v.Words[v.Codes[row]] == p.name {
				return i
			}
		}
	}
	return -1
}

// until ends the lives of cells that ended up to a time.
func (p *part) until(ns int64, ends []lifeEnd) {
	for ; p.next < len(ends) && ends[p.next].ns <= ns; p.next++ {
		if e := &ends[p.next]; p.begun {
			p.steps.EndCells(e.region, e.first, e.end, e.cellBytes, beforeFirst+p.executions)
			p.time.EndCells(e.region, e.first, e.end, e.cellBytes, e.ns)
		}
	}
}

// execute takes a row of an execution in.
func (p *part) execute(r *rows, row int, t *memtrace.Touch, regions *regionTable) {
	graph := [2]int64{number(r.columns[memtrace.TraceCtx], row, 0), number(r.columns[memtrace.TraceGraphSeq], row, 0)}
	if !p.begun {
		p.begun = true
		for id, g := range regions.all {
			if place := g.place(); g.kind != memtrace.Activation {
				for meter, at := range map[*memtrace.Meter]int64{p.steps: beforeFirst, p.time: t.NS} {
					if place.Written = 0; g.kind == memtrace.Weight {
						place.Written = at
					}
					meter.Declare(id, g.kind, place)
				}
			}
		}
		p.graph = graph
		p.executions = 1
	} else if graph != p.graph {
		p.graph = graph
		p.executions++
	}
	if token := number(r.columns[memtrace.TraceToken], row, -1); token >= 0 {
		p.tokens[token] = struct{}{}
	}
	if memtrace.TraceFlag(r.ints[memtrace.TraceFlags][row])&memtrace.TracePadded != 0 {
		p.padded[t.Type] += t.Size
		return
	}
	p.follow(t)
}

// follow gives both meters a touch.
func (p *part) follow(t *memtrace.Touch) {
	p.last = max(p.last, t.NS)
	p.time.Add(t)
	inSteps := *t
	inSteps.NS = beforeFirst + p.executions
	p.steps.Add(&inSteps)
}

// finish ends the part, and appends its types.
func (p *part) finish(parts []Part, regions *regionTable) []Part {
	p.steps.Finish(beforeFirst + p.executions)
	p.time.Finish(p.last)
	for _, kind := range memtrace.RegionTypes() {
		if m := p.steps.Type(kind); m != nil && m.Reads+m.Writes > 0 {
			parts = append(parts, Part{p.name, kind, regions.bytes(kind), p.padded[kind], p.executions,
				int64(len(p.tokens)), m,
				p.time.Type(kind)})
		}
	}
	return parts
}
