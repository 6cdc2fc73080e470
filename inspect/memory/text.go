package memory

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// WriteText writes the report for people: types of regions, the largest top regions, what moved per execution,
// blocks of the cache, samples and notes; or one table, of [Tables] but the first.
func (r *Report) WriteText(w io.Writer, by By, top int) error {
	out := &present.Text{W: w}
	switch by {
	case ByRegion:
		writeRegionTable(out, r, len(r.Regions))
		return out.Err
	case ByStep, ByTime:
		head, rows := movedRows(r, by)
		texts := [][]string{head}
		for _, row := range rows {
			texts = append(texts, nil)
			for _, cell := range row {
				texts[len(texts)-1] = append(texts[len(texts)-1], table.Cell(cell))
			}
		}
		out.Table(texts)
		return out.Err
	case ByPhase:
		writePhaseTable(out, r)
		return out.Err
	}
	if column, ok := usesBy(by); ok {
		writeUseTable(out, r, column)
		return out.Err
	}
	writeHead(out, r)
	if r.Collectors[memtrace.CollectorGraph.String()] > 0 && len(r.Types) > 0 {
		out.Line("")
		writeTrafficTable(out, r)
		out.Line("")
		writeLifeTable(out, r)
	}
	if len(r.Regions) > 0 && top > 0 {
		out.Line("")
		writeRegionTable(out, r, top)
	}
	writeFlow(out, r)
	writeBlockTable(out, r)
	writeSampleTable(out, r)
	if len(r.Phases) > 0 {
		out.Line("")
		writePhaseTable(out, r)
	}
	writeAgreementTable(out, r)
	if len(r.Notes) > 0 {
		out.Line("")
	}
	for _, note := range r.Notes {
		out.Line("note    %s", note)
	}
	return out.Err
}

func writeHead(out *present.Text, r *Report) {
	out.Line("run     %s", r.Path)
	out.Line("trace   %d rows in %s, %s, schema %s", r.Rows, present.Plural(r.Parts, "file"),
		present.Seconds(r.Seconds()), r.Version)
	if r.GivenBack != "" {
		out.Line("NOT WHOLE %s: the figures are of the others", r.GivenBack)
	}
	if n := r.Collectors[memtrace.CollectorGraph.String()]; n > 0 {
		out.Line("ledger  %d rows: what graphs say, %s; each operand byte counts once per op, whatever caches held "+
			"of it", n, Computed)
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Source == Measured {
			out.Line("%-7s %s, every one of them: %s", s.Collector, present.Plural(s.Samples, "event"), s.Source)
		} else {
			if s.Period == 1 {
				out.Line("%-7s %d samples, of unknown period: %s", s.Collector, s.Samples, s.Source)
				continue
			}
			out.Line("%-7s %d samples, one for %.0f events: %s", s.Collector, s.Samples, s.Period, s.Source)
		}
	}
}

func writeTrafficTable(out *present.Text, r *Report) {
	rows := [][]string{{"region type", "regions", "size", "reads", "writes", "read", "written", "read:written"}}
	for _, s := range r.Windows {
		rows[0] = append(rows[0], "most in "+present.Seconds(s))
	}
	rows[0] = append(rows[0], "reuse p50", "locality", "source")
	for i := range r.Types {
		t := &r.Types[i]
		row := []string{t.Type, fmt.Sprint(t.Regions), present.Bytes(float64(t.Bytes)), fmt.Sprint(t.Reads),
			fmt.Sprint(t.Writes), present.Bytes(float64(t.BytesRead)), present.Bytes(float64(t.BytesWritten)),
			figure(t.ReadWrite, "%.3g")}
		for _, length := range r.Windows {
			cell := "-"
			for _, w := range t.WorkingSet {
				if w.WindowS == length {
					cell = present.Bytes(float64(w.MaxBytes))
				}
			}
			row = append(row, cell)
		}
		reuse := "-"
		if t.Reuse != nil && t.Reuse.P50 != nil {
			reuse = present.Bytes(float64(*t.Reuse.P50))
		}
		rows = append(rows, append(row, reuse, figure(t.Locality, "%.4f"), t.Source))
	}
	out.Table(rows)
}

func writeLifeTable(out *present.Text, r *Report) {
	rows := [][]string{{"region type", "write-once", "kept p50", "p90", "p99", "max", "p99 (KM)", "censored", "reads/s",
		"IAI p50", "IAI p99", "suits MRM", "with censoring"}}
	for i := range r.Types {
		t := &r.Types[i]
		row := []string{t.Type, figure(t.WriteOnce, "%.3f"), "-", "-", "-", "-", "-", "-",
			figure(t.ReadFrequency, "%.4g"), "-", "-", cmp.Or(t.Label, "-"), cmp.Or(t.LabelCensored, "-")}
		if q := t.Retention; q != nil {
			row[2], row[3], row[4], row[5], row[7] = present.Seconds(q.P50), present.Seconds(q.P90),
				present.Seconds(q.P99), present.Seconds(q.Max), present.Percent(q.CensoredShare)
			row[6] = "beyond"
			if q.KM99 != nil {
				row[6] = present.Seconds(*q.KM99)
			}
		}
		if t.IAI != nil && t.IAI.P50 != nil {
			row[9], row[10] = present.Seconds(float64(*t.IAI.P50)/1e9), present.Seconds(float64(*t.IAI.P99)/1e9)
		}
		rows = append(rows, row)
	}
	out.Table(rows)
}

func writeRegionTable(out *present.Text, r *Report, top int) {
	rows := [][]string{{"region", "type", "name", "size", "read", "written", "per step", "kept p99", "write-once",
		"reads/s", "suits MRM"}}
	for i := range r.Regions[:min(top, len(r.Regions))] {
		g := &r.Regions[i]
		row := []string{fmt.Sprint(g.ID), g.Type, short(g.Name), present.Bytes(float64(g.Bytes)),
			present.Bytes(float64(g.BytesRead)), present.Bytes(float64(g.BytesWritten)), "-", "-",
			figure(g.WriteOnce, "%.3f"),
			figure(g.ReadFrequency, "%.4g"), cmp.Or(g.Label, "-")}
		if g.PerStep != nil {
			row[6] = present.Bytes(g.PerStep.Mean)
		}
		if g.Retention != nil {
			row[7] = present.Seconds(g.Retention.P99)
		}
		rows = append(rows, row)
	}
	out.Table(rows)
	if left := len(r.Regions) - top; left > 0 {
		out.Line("… and %s: --by region, --top N", present.Plural(left, "region"))
	}
}

// short cuts a name that is too long for a table.
func short(name string) string {
	const most = 40
	if all := []rune(name); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return name
}

// flow says how much moved per execution of a graph, and over time.
func writeFlow(out *present.Text, r *Report) {
	t := &r.Traffic
	if len(t.Bins) == 0 {
		return
	}
	rows := [][]string{{"region type", "read per step", "least", "most", "written per step", "read/s", "most",
		"written/s", "most"}}
	for _, kind := range memtrace.RegionTypes() {
		var read, written, readBin, writtenBin memtrace.Tally
		for i := range t.Steps {
			r, w := t.Steps[i].Of(kind)
			read.Add(int64(r), 1)
			written.Add(int64(w), 1)
		}
		for i := range t.Bins {
			r, w := t.Bins[i].Of(kind)
			readBin.Add(int64(r), 1)
			writtenBin.Add(int64(w), 1)
		}
		if readBin.Sum+writtenBin.Sum == 0 {
			continue
		}
		span, bin := math.Max(r.Seconds(), float64(t.WidthNS)/1e9), float64(t.WidthNS)/1e9
		mean := func(t *memtrace.Tally) string {
			m, ok := t.Mean()
			if !ok {
				return "-"
			}
			return present.Bytes(m)
		}
		least, most := "-", "-"
		if read.Count > 0 {
			least, most = present.Bytes(float64(read.Min)), present.Bytes(float64(read.Max))
		}
		rows = append(rows, []string{kind.String(), mean(&read), least, most, mean(&written),
			present.Rate(readBin.Sum / span), present.Rate(float64(readBin.Max) / bin),
			present.Rate(writtenBin.Sum / span), present.Rate(float64(writtenBin.Max) / bin)})
	}
	out.Line("")
	out.Table(rows)
	if steps := int64(len(t.Steps)) + t.Uncounted; steps > 0 {
		out.Line("%s; the most of any %s", count(steps, "execution of a graph (step)", "executions of graphs (steps)"),
			present.Seconds(float64(t.WidthNS)/1e9))
	}
}

func writeBlockTable(out *present.Text, r *Report) {
	if len(r.KVBlocks) == 0 {
		return
	}
	rows := [][]string{{"cache blocks", "lives", "kept p50", "p90", "p99", "max", "censored"}}
	for i := range r.KVBlocks {
		b := &r.KVBlocks[i]
		q := &b.Retention
		rows = append(rows, []string{b.Tensor, fmt.Sprint(b.Lives), present.Seconds(q.P50), present.Seconds(q.P90),
			present.Seconds(q.P99), present.Seconds(q.Max), present.Percent(q.CensoredShare)})
	}
	out.Line("")
	out.Table(rows)
}

func writeSampleTable(out *present.Text, r *Report) {
	rows := [][]string{{"samples of", "region type", "samples", "share", "op", "events", "95 % interval",
		"pages, any op"}}
	for i := range r.Samples {
		s := &r.Samples[i]
		for k := range s.Types {
			t := &s.Types[k]
			pages := fmt.Sprint(t.PagesSeen) // of the type: in its first row alone
			for _, op := range []string{"read", "write", "alloc", "free", "unknown"} {
				e, ok := t.Events[op]
				if !ok {
					continue
				}
				interval := "exact"
				if s.Source != Measured && s.Period == 1 {
					interval = "unknown"
				}
				if e.Low != e.High {
					interval = fmt.Sprintf("%.0f to %.0f", e.Low, e.High)
				}
				rows = append(rows, []string{s.Collector, t.Type, fmt.Sprint(e.Samples),
					present.Percent(e.Share), op, fmt.Sprintf("%.0f", e.Events), interval, pages})
				pages = ""
			}
		}
	}
	if len(rows) > 1 {
		out.Line("")
		out.Table(rows)
	}
}

func writeAgreementTable(out *present.Text, r *Report) {
	for i := range r.Agreement {
		a := &r.Agreement[i]
		out.Line("")
		out.Line("ledger and %s: of %d samples %d compared, %s explained", a.Collector, a.Samples, a.Compared,
			share(a.Explained, a.Compared))
		for _, why := range slices.Sorted(maps.Keys(a.NotCompared)) {
			out.Line("  not compared: %d, %s", a.NotCompared[why], why)
		}
		for _, t := range a.Types {
			out.Line("  %-16s %s of %d", t.Type, share(t.Explained, t.Compared), t.Compared)
		}
		for _, w := range a.Written {
			out.Line("  written pages of %s: %s of %d found are in the ledger, %s of the ledger's %d were found, %s",
				w.Type, share(w.InLedger, w.Pages), w.Pages, share(w.Found, w.Ledger), w.Ledger,
				present.Plural(a.Intervals, "interval"))
		}
		if f := a.FirstTouch; f != nil && f.KendallTau != nil {
			out.Line("  first touch: %s in the same order by Kendall's tau %.4f",
				present.Plural(f.Regions, "region"), *f.KendallTau)
		}
	}
}

func share(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(of))
}

func figure[N any](x *N, format string) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x)
}
