package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// Agreement is how far one collector of samples and the ledger agree.
type Agreement struct {
	Collector string `json:"collector"`
	Samples   int64  `json:"samples"` // that were reported
	Compared  int64  `json:"compared"`
	// of these, those whose bytes the ledger says were accessed in the same execution, in the same way
	Explained int64 `json:"explained"`
	// NotCompared counts the others by why.
	NotCompared map[string]int64  `json:"not_compared,omitempty"`
	Types       []AgreementType   `json:"types"`
	Regions     []AgreementRegion `json:"regions,omitempty"` // by samples, most first
	Steps       []AgreementStep   `json:"steps,omitempty"`
	// Written compares pages, of Intervals between scans.
	Written    []Written   `json:"written_pages,omitempty"`
	Intervals  int64       `json:"intervals,omitempty"`
	FirstTouch *FirstTouch `json:"first_touch,omitempty"`
}

// AgreementType is the agreement on a type of region.
type AgreementType struct {
	Type      string `json:"region_type"`
	Compared  int64  `json:"compared"`
	Explained int64  `json:"explained"`
}

// AgreementRegion is the agreement on a region.
type AgreementRegion struct {
	ID        int64  `json:"region_id"`
	Type      string `json:"region_type"`
	Name      string `json:"name,omitempty"`
	Compared  int64  `json:"compared"`
	Explained int64  `json:"explained"`
}

// AgreementStep is the agreement on an execution of a graph.
type AgreementStep struct {
	Graph     int64 `json:"graph_seq"`
	Token     int64 `json:"token_index"` // negative: none
	Compared  int64 `json:"compared"`
	Explained int64 `json:"explained"`
}

// FirstTouch compares the order in which regions were touched first.
type FirstTouch struct {
	Regions    int      `json:"regions"` // that both saw
	KendallTau *float64 `json:"kendall_tau,omitempty"`
}

// Why samples are not compared.
const (
	noAddress    = "no address"
	outsideGraph = "before the first execution of a graph"
	tooMany      = "left out at random, for there are too many"
)

// judge compares witnesses with the ledger, graph by graph.
type judge struct {
	ledger   memtrace.Footprint
	samples  []witness
	next     int
	graph    int64
	token    int64
	begun    bool
	order    int64 // of the ledger's rows
	first    map[int64]int64
	by       map[memtrace.Collector]*verdicts
	steps    map[memtrace.Collector]*AgreementStep
	scans    []scan
	nextScan int
	// Of pages that were found written.
	written   []Written // by group of types
	intervals int64
	regions   *regionTable
}

// verdicts are those on one collector.
type verdicts struct {
	Agreement
	types   map[memtrace.RegionType]*AgreementType
	regions map[int64]*AgreementRegion
	first   map[int64]int64 // when regions were seen first
}

// compareWithLedger compares samples with the ledger, where both are there. It reads the table once more.
func (a *analysis) compareWithLedger(ctx context.Context, t *table.Table) error {
	if len(a.samples.witnesses.all) == 0 || a.counts[memtrace.CollectorGraph] == 0 {
		return nil
	}
	if a.window > 0 {
		a.report.note("samples are not compared with the ledger, which was recorded as sums over windows")
		return nil
	}
	slices.SortStableFunc(a.samples.witnesses.all, func(a, b witness) int { return cmp.Compare(a.ns, b.ns) })
	j := &judge{samples: a.samples.witnesses.all, first: map[int64]int64{}, by: map[memtrace.Collector]*verdicts{},
		steps: map[memtrace.Collector]*AgreementStep{}, regions: a.regions}
	if a.samples.witnesses.seen == int64(len(a.samples.witnesses.all)) {
		j.findScans()
	}
	if err := eachRows(ctx, t, others, j.rows); err != nil {
		return err
	}
	j.until(memtrace.Forever)
	j.endScans(memtrace.Forever)
	a.report.Agreement = j.agreements(a)
	return nil
}

// rows takes rows of the ledger in.
func (j *judge) rows(r *rows) error {
	addr, graphs, tokens := r.columns[memtrace.TraceAddr], r.columns[memtrace.TraceGraphSeq],
		r.columns[memtrace.TraceToken]
	if addr == nil {
		return nil
	}
	var touches [1]memtrace.Touch
	eachCodeRun(r.columns[memtrace.TraceCollector].Codes, func(code int32, from, end int) {
		for row := from; row < end && r.from.known[code+1] == memtrace.CollectorGraph; row++ {
			if addr.Null(row) {
				continue
			}
			r.touches(row, touches[:])
			touches[0].Offset = uint64(addr.Ints[row])
			j.row(&touches[0], memtrace.TraceFlag(r.ints[memtrace.TraceFlags][row]), number(graphs, row, -1),
				number(tokens, row, -1))
		}
	})
	return nil
}

// row takes a row in. Samples that were taken since the graph before began, and before this one does, are judged
// when it begins.
func (j *judge) row(a *memtrace.Touch, flags memtrace.TraceFlag, graph, token int64) {
	if a.Op == memtrace.OpAlloc || a.Op == memtrace.OpFree {
		j.ledger.Forget(a.Offset, a.Offset+a.Size)
		return
	}
	if graph < 0 { // loading the model
		return
	}
	if !j.begun || graph != j.graph {
		j.until(a.NS)
		j.endScans(a.NS)
		j.graph, j.token, j.begun = graph, token, true
		j.ledger.Begin(graph)
		for _, s := range j.steps {
			*s = AgreementStep{}
		}
	}
	j.token = max(j.token, token)
	j.order++
	if _, ok := j.first[int64(a.Region)]; !ok && a.Region >= 0 {
		j.first[int64(a.Region)] = j.order
	}
	if flags&(memtrace.TraceScattered|memtrace.TraceUnknown) == 0 {
		j.ledger.Add(a)
	}
}

// until judges the samples that were taken before a time, in the execution that has been read.
func (j *judge) until(ns int64) {
	for ; j.next < len(j.samples) && j.samples[j.next].ns < ns; j.next++ {
		j.judgeSample(&j.samples[j.next])
	}
	for from, s := range j.steps {
		if v := j.by[from]; s.Compared > 0 && len(v.Steps) < memtrace.MaxSteps {
			v.Steps = append(v.Steps, *s)
		}
		*s = AgreementStep{}
	}
}

// judgeSample judges a sample.
func (j *judge) judgeSample(w *witness) {
	v := j.by[w.from]
	if v == nil {
		v = &verdicts{types: map[memtrace.RegionType]*AgreementType{}, regions: map[int64]*AgreementRegion{},
			first: map[int64]int64{}}
		v.Collector, v.NotCompared = w.from.String(), map[string]int64{}
		j.by[w.from], j.steps[w.from] = v, &AgreementStep{}
	}
	if _, ok := v.first[w.region]; !ok && w.region >= 0 && j.begun {
		v.first[w.region] = w.ns
	}
	switch {
	case w.addr == 0:
		v.NotCompared[noAddress]++
		return
	case !j.begun:
		v.NotCompared[outsideGraph]++
		return
	}
	start, end := w.addr, w.addr+max(w.size, 1)
	if w.from == memtrace.CollectorFault || w.from == memtrace.CollectorPage { // they describe pages
		start, end = start&^(memtrace.PageBytes-1), (end+memtrace.PageBytes-1)&^(memtrace.PageBytes-1)
	}
	explained := j.ledger.Touched(start, end, w.op == memtrace.OpWrite)
	v.count(w, explained, j.regions)
	s := j.steps[w.from]
	s.Graph, s.Token = j.graph, j.token
	s.Compared++
	if explained {
		s.Explained++
	}
}

func (v *verdicts) count(w *witness, explained bool, regions *regionTable) {
	t := v.types[w.kind]
	if t == nil {
		t = &AgreementType{Type: w.kind.String()}
		v.types[w.kind] = t
	}
	g := v.regions[w.region]
	if g == nil {
		g = &AgreementRegion{ID: w.region, Type: w.kind.String()}
		if row := regions.all[int(w.region)]; row != nil {
			g.Name = row.name
		}
		v.regions[w.region] = g
	}
	v.Compared, t.Compared, g.Compared = v.Compared+1, t.Compared+1, g.Compared+1
	if explained {
		v.Explained, t.Explained, g.Explained = v.Explained+1, t.Explained+1, g.Explained+1
	}
}

// agreements are the verdicts on all collectors.
func (j *judge) agreements(a *analysis) (agreements []Agreement) {
	for from, v := range j.by {
		v.Samples = a.samples.by[from].Samples
		if left := v.Samples - v.Compared - v.NotCompared[noAddress] - v.NotCompared[outsideGraph]; left > 0 {
			v.NotCompared[tooMany] = left
		}
		for _, t := range v.types {
			v.Types = append(v.Types, *t)
		}
		slices.SortFunc(v.Types, func(a, b AgreementType) int { return cmp.Compare(a.Type, b.Type) })
		for id, g := range v.regions {
			if id >= 0 {
				v.Regions = append(v.Regions, *g)
			}
		}
		slices.SortFunc(v.Regions, func(a, b AgreementRegion) int {
			return cmp.Or(cmp.Compare(b.Compared, a.Compared), cmp.Compare(a.ID, b.ID))
		})
		if from == memtrace.CollectorFault {
			v.FirstTouch = j.firstTouch(v)
		}
		if from == memtrace.CollectorPage && len(j.scans) > 0 {
			v.Written, v.Intervals = j.pages(), j.intervals
		}
		agreements = append(agreements, v.Agreement)
	}
	slices.SortFunc(agreements, func(a, b Agreement) int { return cmp.Compare(a.Collector, b.Collector) })
	return agreements
}

// firstTouch compares the orders in which regions were touched first.
func (j *judge) firstTouch(v *verdicts) *FirstTouch {
	var both []memtrace.Ordered
	for region, ns := range v.first {
		if order, ok := j.first[region]; ok {
			both = append(both, memtrace.Ordered{A: order, B: ns})
		}
	}
	f := &FirstTouch{Regions: len(both)}
	f.KendallTau = orNil(memtrace.KendallTau(both))
	return f
}
