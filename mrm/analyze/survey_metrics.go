package analyze

import (
	"context"
	"errors"
	"io"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// measure computes the metrics of mrm-trace, as far as they can be, and returns what writes them as metrics.csv. A
// trace is read once, for metrics and figures: subjects, figures and notes are of it afterwards.
func (s *survey) measure(ctx context.Context, o memory.Options) (
	write func(io.Writer) error, err error,
) {
	b := newBinner(s)
	o.Rows = b.rows
	r, err := memory.Analyze(ctx, s.Dir, o)
	if errors.Is(err, memory.ErrNoTable) {
		return func(w io.Writer) error { return s.writeMetrics(w, o.Thresholds) }, nil
	}
	if err != nil {
		return nil, err
	}
	b.finish()
	s.metered = map[int64]*memtrace.Metrics{}
	for i := range r.Regions {
		s.metered[int64(r.Regions[i].ID)] = r.Regions[i].Metrics
	}
	s.Notes = append(s.Notes, r.Notes...)
	if len(r.Phases) > 0 {
		s.WriteMarked = func(w io.Writer) error { return r.WriteCSV(w, memory.ByPhase) }
	}
	if s.From == "trace" && r.TimeSources[memtrace.TimeOfGraph.String()] == 0 {
		s.Resolution = 0 // ops were timed
	}
	if s.From != "trace" { // samples alone
		if len(byType(s.subjects())) == 0 {
			return r.WriteMetrics, nil // no graph was seen: another program's run
		}
		return func(w io.Writer) error { return s.writeMetrics(w, o.Thresholds) }, nil
	}
	s.types = map[memtrace.RegionType]subject{}
	for i := range r.Types {
		t := &r.Types[i]
		kind, err := memtrace.ParseRegionType(t.Type)
		if err != nil {
			return nil, err
		}
		s.types[kind] = subject{
			Type: kind, Regions: t.Regions, Bytes: t.Bytes, Seconds: s.seconds(), Resolution: s.Resolution,
			BytesRead: t.BytesRead, BytesWritten: t.BytesWritten,
			Lives: &t.Metrics.Retention, Written: t.Metrics.Written, WrittenOnce: t.Metrics.WrittenOnce,
		}
	}
	return r.WriteMetrics, nil
}

// writeMetrics writes metrics.csv by what is known without a trace: what would need one is empty.
func (s *survey) writeMetrics(w io.Writer, t memtrace.Thresholds) error {
	out := table.NewCSV(w, memory.MetricsColumns...)
	used := map[memtrace.RegionType][2]int64{}
	for i := range s.Regions {
		r := &s.Regions[i]
		n := used[r.Type]
		used[r.Type] = [2]int64{n[0] + r.Reads, n[1] + r.Writes}
	}
	for _, group := range byType(s.subjects()) {
		kind := group[0].Type
		row := make([]any, len(memory.MetricsColumns))
		whole := mergeSubjects(group)
		l := whole.labels(t)
		row[0], row[1], row[2] = kind.String(), l.Regions, l.Bytes
		row[9], row[10] = used[kind][0], used[kind][1]
		row[3] = l.WriteOnce
		var read float64
		for i := range group {
			read += float64(group[i].BytesRead)
		}
		if s.seconds() > 0 && l.Bytes > 0 && kind == memtrace.Weight { // other memory did not live all the time
			row[8] = read / float64(l.Bytes) / s.seconds()
		}
		if l.Lives > 0 {
			lives := livesByType(group)[0].Survival
			for i, p := range []float64{0.5, 0.9, 0.99, 1} {
				v, _ := lives.Quantile(p)
				row[4+i] = float64(v) / 1e9
			}
			row[15], row[16] = l.Label, l.CensoredShare
		}
		out.Row(row...)
	}
	return out.Close()
}
