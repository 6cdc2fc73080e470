package memory

import (
	"fmt"
	"io"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// By is what a line of a table stands for.
type By string

// What a line stands for: a type of region, a region, an execution of a graph, or a part of the time; of samples a
// function, a variable, a process, or a phase.
const (
	ByType       By = "type"
	ByRegion     By = "region"
	ByStep       By = "step"
	ByTime       By = "time"
	BySymbol     By = "symbol"
	ByDataSymbol By = "data_symbol"
	ByProcess    By = "process"
	ByPhase      By = "phase"
)

// Tables lists them.
var Tables = []By{ByType, ByRegion, ByStep, ByTime, BySymbol, ByDataSymbol, ByProcess, ByPhase}

// MetricsColumns are the columns of metrics.csv.
var MetricsColumns = []string{"region_type", "n_regions", "bytes", "write_once_ratio", "retention_p50_s",
	"retention_p90_s", "retention_p99_s", "retention_max_s",
	"read_freq_hz", "reads", "writes", "working_set_bytes", "iai_p50_ns", "iai_p99_ns", "locality_score", "mrm_label",
	"censored_share",
	"mrm_trace_retention_p50_s", "mrm_trace_retention_p90_s", "mrm_trace_retention_p99_s", "mrm_trace_write_once_ratio",
	"mrm_trace_unique_pages", "mrm_trace_suitability"}

// WriteMetrics writes metrics.csv: one row per type of region. What is not known is an empty cell; the working set
// is the mean over the longest windows.
func (r *Report) WriteMetrics(w io.Writer) error {
	out := table.NewCSV(w, MetricsColumns...)
	for i := range r.Types {
		t := &r.Types[i]
		out.Row(append([]any{t.Type, t.Regions, t.Bytes}, t.cells()...)...)
	}
	return out.Close()
}

// cells are the columns of metrics.csv after those that say what they are about.
func (f *Figures) cells() []any {
	cells := make([]any, len(MetricsColumns)-3)
	cells[0], cells[5], cells[6], cells[7] = f.WriteOnce, f.ReadFrequency, f.Reads, f.Writes
	cells[11], cells[12] = f.Locality, f.Label
	if q := f.Retention; q != nil {
		cells[1], cells[2], cells[3], cells[4], cells[13] = q.P50, q.P90, q.P99, q.Max, q.CensoredShare
	}
	if o := f.Observed; o != nil {
		copy(cells[14:], []any{o.RetentionP50, o.RetentionP90, o.RetentionP99, o.WriteOnce, o.Pages, o.Suitability})
		if f.Reads+f.Writes == 0 { // page faults, which are not accesses
			cells[6], cells[7] = nil, nil
		}
	}
	if n := len(f.WorkingSet); n > 0 {
		cells[8] = f.WorkingSet[n-1].MeanBytes
	}
	if f.IAI != nil {
		cells[9], cells[10] = f.IAI.P50, f.IAI.P99
	}
	return cells
}

// WriteCSV writes one table, of [Tables].
func (r *Report) WriteCSV(w io.Writer, by By) error {
	var head []string
	var rows [][]any
	switch by {
	case ByType:
		return r.WriteMetrics(w)
	case ByRegion:
		head = append([]string{"region_id", "region_type", "name", "layer", "kv", "bytes_read", "bytes_written",
			"bytes_per_step_mean", "bytes"}, MetricsColumns[3:]...)
		for i := range r.Regions {
			rows = append(rows, r.Regions[i].row())
		}
	case ByStep, ByTime:
		head, rows = movedRows(r, by)
	case ByPhase:
		head, rows = phaseRows(r)
	default:
		if column, ok := usesBy(by); ok {
			head, rows = useRows(r, column)
			break
		}
		return fmt.Errorf("there is no table by %.40q: use %s", string(by), names(Tables))
	}
	out := table.NewCSV(w, head...)
	for _, row := range rows {
		out.Row(row...)
	}
	return out.Close()
}

func names(all []By) string {
	texts := make([]string, len(all))
	for i, by := range all {
		texts[i] = string(by)
	}
	return strings.Join(texts, ", ")
}

func (g *Region) row() []any {
	var perStep any
	if g.PerStep != nil {
		perStep = g.PerStep.Mean
	}
	return append([]any{g.ID, g.Type, g.Name, g.Layer, g.KV, g.BytesRead, g.BytesWritten, perStep, g.Bytes},
		g.cells()...)
}

// movedRows are bytes by type of region, for all types that occur: of executions of graphs, or over time.
func movedRows(r *Report, by By) (head []string, rows [][]any) {
	t := &r.Traffic
	head, n := []string{"ts_ns", "seconds"}, len(t.Bins)
	width := float64(t.WidthNS) / 1e9
	row := func(i int) ([]any, *memtrace.Moved) { return []any{t.First + int64(i)*t.WidthNS, width}, &t.Bins[i] }
	if by == ByStep {
		head, n = []string{"graph_seq", "token_index", "ts_ns"}, len(t.Steps)
		row = func(i int) ([]any, *memtrace.Moved) {
			s := &t.Steps[i]
			cells := []any{s.Graph, nil, s.NS}
			if s.Token >= 0 {
				cells[1] = s.Token
			}
			return cells, &s.Moved
		}
	}
	var all memtrace.Moved
	for i := range t.Bins {
		all.Add(&t.Bins[i])
	}
	var types []memtrace.RegionType
	for _, kind := range memtrace.RegionTypes() {
		if read, written := all.Of(kind); read+written > 0 {
			types = append(types, kind)
			head = append(head, kind.String()+"_bytes_read", kind.String()+"_bytes_written")
		}
	}
	for i := range n {
		cells, m := row(i)
		for _, kind := range types {
			read, written := m.Of(kind)
			cells = append(cells, read, written)
		}
		rows = append(rows, cells)
	}
	return head, rows
}
