package memory

import (
	"cmp"
	"math"
	"strconv"

	"github.com/llamatap/llamatap/memtrace"
)

// Samples are what one collector of samples recorded.
type Samples struct {
	Collector string  `json:"collector"`
	Source    string  `json:"source"` // measured where every event was reported, else estimated
	Samples   int64   `json:"samples"`
	Period    float64 `json:"period"` // events that a sample stands for, on average

	PerSecond float64      `json:"samples_per_s"`
	Types     []SampleType `json:"types"`
}

// SampleType is what samples say of a type of region. Of what they did not see they say nothing: there is no
// write-once ratio and no retention.
type SampleType struct {
	Type    string                 `json:"region_type"`
	Samples int64                  `json:"samples"`
	Share   float64                `json:"share"` // of the collector's events
	Events  map[string]EventCounts `json:"events"`
	// PagesSeen is how many different pages of 4096 bytes were seen: at least so many were touched.
	PagesSeen int64 `json:"pages_seen"`
}

// EventCounts is how many events of an op there were, and the 95 % confidence interval of that.
type EventCounts struct {
	Samples int64   `json:"samples"`
	Events  float64 `json:"events"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Share   float64 `json:"share"` // of the collector's events
}

// sampleSums gather what samples say.
type sampleSums struct {
	isForeign bool                 // mrm-trace wrote the trace
	by        [8]*memtrace.Sampled // by collector
	observed  memtrace.Observed
	crowded   error       // why not all of them are in observed
	groupings []*grouping // where they were asked for
	phases    *phases     // nil: the run has none
	witnesses witnesses
}

// add takes a row of a collector of samples in. One of several written pages is a sample of each.
func (s *sampleSums) add(r *rows, row int, from memtrace.Collector) {
	c := &r.columns
	w := witness{from: from, ns: c[memtrace.TraceTime].Ints[row], addr: uint64(number(c[memtrace.TraceAddr], row, 0)),
		size:   min(uint64(number(c[memtrace.TraceSize], row, 0)), maxSampleBytes),
		region: number(c[memtrace.TraceRegion], row, -1),
		op:     r.ops.valueAt(c[memtrace.TraceOp], row), kind: r.types.valueAt(c[memtrace.TraceRegionType], row)}
	weight := number(c[memtrace.TraceWeight], row, 1)
	if s.by[from] == nil {
		s.by[from] = &memtrace.Sampled{}
	}
	for from == memtrace.CollectorPage && w.size > memtrace.PageBytes {
		page := w
		page.size = memtrace.PageBytes
		s.addOne(r, row, page, weight)
		w.addr, w.size = w.addr+memtrace.PageBytes, w.size-memtrace.PageBytes
	}
	s.addOne(r, row, w, weight)
}

// addOne takes a sample of a row in.
func (s *sampleSums) addOne(r *rows, row int, w witness, weight int64) {
	c, from := &r.columns, w.from
	s.by[from].Add(w.ns, w.kind, w.op, w.addr, w.size, weight)
	if s.crowded == nil {
		s.crowded = s.observed.Add(w.ns, number(c[memtrace.TraceRegion], row, -1-int64(w.kind)), w.kind, w.op, w.addr)
	}
	s.witnesses.add(w)
	s.phases.add(&w, weight)
	for _, g := range s.groupings {
		g.add(r, row, &w, weight)
	}
}

// source is what the figures of a collector are.
func (s *sampleSums) source(from memtrace.Collector) string {
	if s.by[from].Period() == 1 && !s.isForeign { // mrm-trace's rows have no period
		return Measured
	}
	return Estimated
}

// eventsOf are the events of a collector by op, and all of them together.
func (s *sampleSums) eventsOf(from memtrace.Collector, ops []memtrace.Estimate) (events map[string]EventCounts,
	all memtrace.Estimate) {
	total := s.by[from].Period() * float64(s.by[from].Samples)
	events = map[string]EventCounts{}
	for op := range ops {
		if e := &ops[op]; e.Samples > 0 {
			low, high := e.Interval()
			events[cmp.Or(memtrace.AccessOp(op).String(), "unknown")] = EventCounts{e.Samples, e.Events, low, high,
				e.Events / total}
			all.Merge(e)
		}
	}
	return events, all
}

// text returns how many events of an op there were.
func (e EventCounts) text() string { return strconv.FormatFloat(e.Events, 'f', 0, 64) }

// eventText is how many events of an op there were, or another text where there were none.
func eventText(events map[string]EventCounts, op, none string) string {
	if e, ok := events[op]; ok {
		return e.text()
	}
	return none
}

// maxSampleBytes is how many bytes one row of a sample may cover.
const maxSampleBytes = 1 << 32

// fillTypes writes out what samples say of types of regions.
func (s *sampleSums) fillTypes(r *Report, regions *regionTable, hasLedger bool) {
	for from, by := range s.by {
		if by == nil {
			continue
		}
		from := memtrace.Collector(from)
		all := Samples{Collector: from.String(), Samples: by.Samples, Period: by.Period(), Source: s.source(from)}
		if by.Last > by.First {
			all.PerSecond = float64(by.Samples) / (float64(by.Last-by.First) / 1e9)
		}
		for _, kind := range memtrace.RegionTypes() {
			t := &by.Types[kind]
			if t.Samples == 0 {
				continue
			}
			sampleType := SampleType{Type: kind.String(), Samples: t.Samples, PagesSeen: t.Pages}
			var sum memtrace.Estimate
			sampleType.Events, sum = s.eventsOf(from, t.Ops[:])
			sampleType.Share = sum.Events / (all.Period * float64(all.Samples))
			all.Types = append(all.Types, sampleType)
		}
		r.Samples = append(r.Samples, all)
		if !hasLedger {
			typesOf(r, by, from, regions)
		}
	}
	if hasLedger || len(r.Samples) == 0 {
		return
	}
	s.fillObserved(r)
	r.note("there is no ledger in this run (--tap-ledger rows): samples miss accesses, so write-once, retention, " +
		"intervals and working sets are reported only as sampled, in the columns mrm_trace_… of --format csv")
}

// typesOf makes the table of types of a run without ledger: what samples can say. Page faults, and pages that
// were found written, are not accesses, of which there are many more: they count in no column of reads and writes.
func typesOf(r *Report, s *memtrace.Sampled, from memtrace.Collector, regions *regionTable) {
	source := r.Samples[len(r.Samples)-1].Source
	if r.BeginUnixNS == 0 || s.First < r.BeginUnixNS {
		r.BeginUnixNS = s.First
	}
	r.EndUnixNS = max(r.EndUnixNS, s.Last)
	isAccess := from != memtrace.CollectorFault && from != memtrace.CollectorPage
	for _, kind := range memtrace.RegionTypes() {
		t := &s.Types[kind]
		if t.Samples == 0 {
			continue
		}
		of := r.Type(kind.String())
		if of == nil {
			r.Types = append(r.Types, Type{Type: kind.String(), Bytes: regions.bytes(kind),
				Figures: Figures{Source: source}})
			of = &r.Types[len(r.Types)-1]
		}
		if isAccess && of.Reads+of.Writes == 0 {
			of.Source, of.Reads, of.Writes = source, int64(math.Round(t.Ops[memtrace.OpRead].Events)),
				int64(math.Round(t.Ops[memtrace.OpWrite].Events))
		}
	}
}

// fillObserved fills in what was observed of types.
func (s *sampleSums) fillObserved(r *Report) {
	if s.crowded != nil {
		r.note("samples touched too many different addresses to say anything of retention and working sets")
		return
	}
	reads := map[memtrace.RegionType]int64{}
	for _, o := range s.observed.Regions() {
		reads[o.Type] += o.Reads
	}
	for _, o := range s.observed.Types() {
		of := r.Type(o.Type.String())
		if of == nil {
			continue
		}
		of.Regions = o.Regions
		of.Observed = &Observed{Regions: o.Regions, Pages: o.Pages}
		if reads[o.Type] > 0 { // else it is not known when anything was read last
			of.Observed.RetentionP50, of.Observed.RetentionP90, of.Observed.RetentionP99 = &o.RetentionP50,
				&o.RetentionP90, &o.RetentionP99
		}
		if !math.IsNaN(o.WriteOnce) {
			of.Observed.WriteOnce = &o.WriteOnce
		}
		if reads[o.Type] > 0 && of.Observed.WriteOnce != nil {
			of.Observed.Suitability = string(o.Label(r.Thresholds))
		}
	}
}
