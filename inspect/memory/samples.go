package memory

import (
	"cmp"
	"math"

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

// sample takes a row of a collector of samples in.
func (a *analysis) sample(r *rows, row int, from memtrace.Collector) {
	c := &r.columns
	op, kind := r.ops.of(c[memtrace.TraceOp], row), r.types.of(c[memtrace.TraceRegionType], row)
	s := a.samples[from]
	if s == nil {
		s = &memtrace.Sampled{}
		a.samples[from] = s
	}
	ns, addr := c[memtrace.TraceTime].Ints[row], uint64(number(c[memtrace.TraceAddr], row, 0))
	size := min(uint64(number(c[memtrace.TraceSize], row, 0)), maxSampleBytes)
	s.Add(ns, kind, op, addr, size, number(c[memtrace.TraceWeight], row, 1))
	if a.crowded == nil {
		a.crowded = a.observed.Add(ns, number(c[memtrace.TraceRegion], row, -1-int64(kind)), kind, op, addr)
	}
	w := witness{ns: ns, addr: addr, size: size, region: number(c[memtrace.TraceRegion], row, -1), op: op, kind: kind,
		from: from}
	a.witnesses.add(w)
	a.phases.add(&w, number(c[memtrace.TraceWeight], row, 1))
	for _, g := range a.groupings {
		g.add(r, row, from, &w, number(c[memtrace.TracePID], row, -1))
	}
}

// maxSampleBytes is how many bytes one row of a sample may cover.
const maxSampleBytes = 1 << 32

// fillSamples writes out what samples say.
func (a *analysis) fillSamples() {
	for from, s := range a.samples {
		if s == nil {
			continue
		}
		all := Samples{Collector: memtrace.Collector(from).String(), Samples: s.Samples, Period: s.Period(),
			Source: sourceOf(s, a.isForeign)}
		if s.Last > s.First {
			all.PerSecond = float64(s.Samples) / (float64(s.Last-s.First) / 1e9)
		}
		for _, kind := range memtrace.RegionTypes() {
			if t := &s.Types[kind]; t.Samples > 0 {
				all.Types = append(all.Types, sampleType(kind, t, all.Period*float64(s.Samples)))
			}
		}
		a.report.Samples = append(a.report.Samples, all)
		if a.counts[memtrace.CollectorGraph] == 0 {
			a.fromSamples(s, memtrace.Collector(from), all.Source)
		}
	}
	a.fillObserved()
	if a.counts[memtrace.CollectorGraph] == 0 && len(a.report.Samples) > 0 {
		a.report.note("there is no ledger in this run (--tap-ledger rows): samples do not show what was not accessed, so nothing is said of write-once, retention, intervals and working sets but what was seen of them, by mrm-trace's definitions: columns mrm_trace_… of --format csv")
	}
}

func sampleType(kind memtrace.RegionType, t *memtrace.SampledType, events float64) SampleType {
	all := t.All()
	s := SampleType{Type: kind.String(), Samples: t.Samples, PagesSeen: t.Pages, Share: all.Events / events,
		Events: map[string]EventCounts{}}
	for op := range t.Ops {
		e := &t.Ops[op]
		if e.Samples == 0 {
			continue
		}
		s.Events[opName(op)] = countsOf(e, events)
	}
	return s
}

// sourceOf is what the figures of a collector are.
func sourceOf(s *memtrace.Sampled, isForeign bool) string {
	if s.Period() == 1 && !isForeign { // mrm-trace's rows have no period
		return Measured
	}
	return Estimated
}

// opName is what events of an op are called.
func opName(op int) string {
	return cmp.Or(memtrace.AccessOp(op).String(), "unknown")
}

// countsOf is an op's part of a collector's events.
func countsOf(e *memtrace.Estimate, events float64) EventCounts {
	low, high := e.Interval()
	return EventCounts{e.Samples, e.Events, low, high, e.Events / events}
}

// fromSamples makes the table of types of a run without ledger: what samples can say. Page faults, and pages that
// were found written, are no accesses, of which there are many more: they count in no column of reads and writes.
func (a *analysis) fromSamples(s *memtrace.Sampled, from memtrace.Collector, source string) {
	r := a.report
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
			r.Types = append(r.Types, Type{Type: kind.String(), Bytes: a.regions.bytes(kind),
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
func (a *analysis) fillObserved() {
	if a.counts[memtrace.CollectorGraph] > 0 {
		return
	}
	if a.crowded != nil {
		a.report.note("samples touched too many different addresses to say anything of retention and working sets")
		return
	}
	reads := map[memtrace.RegionType]int64{}
	for _, r := range a.observed.Regions() {
		reads[r.Type] += r.Reads
	}
	for _, o := range a.observed.Types() {
		of := a.report.Type(o.Type.String())
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
			of.Observed.Suitability = string(o.Label(a.report.Thresholds))
		}
	}
}
