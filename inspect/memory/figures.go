package memory

import (
	"cmp"
	"slices"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
)

// figuresOf writes metrics out.
func figuresOf(r *Report, m *memtrace.Metrics) Figures {
	f := Figures{
		Source: Computed, Reads: m.Reads, Writes: m.Writes, BytesRead: m.BytesRead, BytesWritten: m.BytesWritten,
		WriteOnce: orNil(m.WriteOnce()), ReadFrequency: orNil(m.ReadFrequency()), Locality: orNil(m.Locality()),
		Retention: retention(&m.Retention), IAI: tally(&m.IAI), Reuse: tally(&m.Reuse),
		Coarse: m.Coarse, Hulls: m.Hulls, Metrics: m,
	}
	if m.BytesWritten > 0 {
		f.ReadWrite = new(float64(m.BytesRead) / float64(m.BytesWritten))
	}
	if m.Grain > 1 {
		f.Grain = m.Grain
	}
	if label, ok := m.Label(r.Thresholds); ok {
		censored, _ := m.LabelCensored(r.Thresholds)
		f.Label, f.LabelCensored = string(label), string(censored)
	}
	if m.Coarse < m.Reads+m.Writes || m.IAI.Count > 0 {
		for k, length := range r.Windows {
			mean, most := m.WorkingSet(k)
			f.WorkingSet = append(f.WorkingSet, WorkingSet{length, mean, most})
		}
	}
	return f
}

// coarsen removes figures that sums over windows cannot show: the order of accesses, and times shorter than a window.
func (f *Figures) coarsen(window int64) {
	if window == 0 {
		return
	}
	f.IAI, f.Reuse, f.Stride, f.Locality = nil, nil, nil, nil
	f.WorkingSet = slices.DeleteFunc(f.WorkingSet, func(w WorkingSet) bool { return w.WindowS*1e9 < float64(window) })
}

func orNil(v float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	return &v
}

func retention(s *memtrace.Survival) *Retention {
	if s.Count == 0 {
		return nil
	}
	quantile := func(p float64) float64 { v, _ := s.Quantile(p); return float64(v) / 1e9 }
	estimate := func(p float64) *float64 {
		v, ok := s.KaplanMeier(p)
		return orNil(float64(v)/1e9, ok)
	}
	mean, _ := s.Mean()
	share, _ := s.CensoredShare()
	return &Retention{
		Bytes: s.Count, P50: quantile(0.5), P90: quantile(0.9), P99: quantile(0.99), Max: float64(s.Max) / 1e9,
		Mean: mean / 1e9, CensoredShare: share,
		KM50: estimate(0.5), KM90: estimate(0.9), KM99: estimate(0.99),
	}
}

func tally(t *memtrace.Tally) *Spread {
	mean, ok := t.Mean()
	if !ok {
		return nil
	}
	return &Spread{Count: t.Count, Mean: mean, Min: t.Min, Max: t.Max}
}

func spread(d *memtrace.Distribution) *Spread {
	s := tally(&d.Tally)
	if s != nil {
		at := func(p float64) *int64 { v, _ := d.Quantile(p); return &v }
		s.P50, s.P90, s.P99 = at(0.5), at(0.9), at(0.99)
	}
	return s
}

// fill puts what was analysed into the report.
func (a *analysis) fill() {
	r := a.report
	for _, kind := range memtrace.RegionTypes() {
		m := a.meter.Type(kind)
		if m == nil {
			continue
		}
		t := Type{Type: kind.String(), Regions: m.Regions, Bytes: a.regions.bytes(kind)}
		t.Figures = figuresOf(r, &m.Metrics)
		t.IAI, t.Reuse, t.Stride = spread(&m.IAIs), spread(&m.Reuses), spread(&m.Strides)
		t.coarsen(a.window)
		extra := &a.extras[kind]
		t.Fusible, t.Padded, t.Unsized = extra.fusible, extra.padded, extra.unsized
		r.Types = append(r.Types, t)
	}
	for _, id := range a.meter.Accessed() {
		m := a.meter.Region(id)
		g := Region{ID: id, Figures: figuresOf(r, m)}
		g.coarsen(a.window)
		a.regions.describe(&g)
		steps := a.traffic.PerStep(id)
		g.PerStep = tally(&steps)
		r.Regions = append(r.Regions, g)
	}
	slices.SortStableFunc(r.Regions, func(a, b Region) int {
		return cmp.Compare(b.BytesRead+b.BytesWritten, a.BytesRead+a.BytesWritten)
	})
	r.Traffic = a.traffic
	r.BeginUnixNS, r.EndUnixNS = a.meter.Span()
	a.notes()
}

// notes explain figures that do not cover the whole run.
func (a *analysis) notes() {
	r := a.report
	var coarse, hulls, unsized int64
	var padded uint64
	for i := range r.Types {
		t := &r.Types[i]
		coarse, hulls, unsized, padded = coarse+t.Coarse, hulls+t.Hulls, unsized+t.Unsized, padded+t.Padded
	}
	if padded > 0 {
		r.note(present.Bytes(float64(padded)) +
			" of cache cells that masks hide were given to ops as well: they are not counted (bytes_padded)")
	}
	if r.TimeSources[memtrace.TimeOfGraph.String()] > 0 {
		r.note("times of rows whose time_source is graph are those of their graph: what happens within one graph has " +
			"a duration of 0")
	}
	if a.window > 0 {
		r.note("the ledger was recorded as sums over windows (--tap-ledger windows): retention and working sets are " +
			"known only of regions that are accessed as a whole, to a window's length")
	}
	if coarse > 0 && a.window == 0 {
		r.note(count(coarse, "access", "accesses") + " of rows that nobody named count with their bytes alone")
	}
	if hulls > 0 {
		r.note(count(hulls, "strided access was", "strided accesses were") +
			" taken for all bytes from the first to the last")
	}
	if unsized > 0 {
		r.note(count(unsized, "access", "accesses") +
			" of experts that nobody saw being chosen: their bytes are missing in the sums (--tap-resource-level " +
			"DETAILED records them)")
	}
	if n := a.traffic.Uncounted; n > 0 {
		r.note(count(n, "execution of a graph stands", "executions of graphs stand") +
			" in no list of steps, for it is full")
	}
	if a.late > 0 {
		r.note(count(a.late, "row is", "rows are") +
			" older than rows before them, and counted as of the newest of those")
	}
}
