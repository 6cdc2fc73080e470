package memory

import (
	"fmt"
	"io"
	"strconv"
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
		out.Write(append([]string{t.Type, strconv.Itoa(t.Regions), table.Cell(t.Bytes)}, t.cells()...)...)
	}
	return out.Close()
}

// cells are the columns of metrics.csv after those that say what they are about.
func (f *Figures) cells() []string {
	cells := []string{table.Cell(f.WriteOnce), "", "", "", "", table.Cell(f.ReadFrequency),
		strconv.FormatInt(f.Reads, 10),
		strconv.FormatInt(f.Writes, 10), "", "", "",
		table.Cell(f.Locality), f.Label, "", "", "", "", "", "", ""}
	if q := f.Retention; q != nil {
		cells[1], cells[2], cells[3], cells[4], cells[13] = table.Cell(&q.P50), table.Cell(&q.P90), table.Cell(&q.P99),
			table.Cell(&q.Max), table.Cell(&q.CensoredShare)
	}
	if o := f.Observed; o != nil {
		copy(cells[14:], []string{table.Cell(o.RetentionP50), table.Cell(o.RetentionP90), table.Cell(o.RetentionP99),
			table.Cell(o.WriteOnce), strconv.FormatInt(o.Pages, 10), o.Suitability})
		if f.Reads+f.Writes == 0 { // page faults, which are not accesses
			cells[6], cells[7] = "", ""
		}
	}
	if n := len(f.WorkingSet); n > 0 {
		cells[8] = table.Cell(&f.WorkingSet[n-1].MeanBytes)
	}
	if f.IAI != nil && f.IAI.P50 != nil {
		cells[9], cells[10] = strconv.FormatInt(*f.IAI.P50, 10), strconv.FormatInt(*f.IAI.P99, 10)
	}
	return cells
}

// WriteCSV writes one table, of [Tables].
func (r *Report) WriteCSV(w io.Writer, by By) error {
	var rows [][]string
	switch by {
	case ByType:
		return r.WriteMetrics(w)
	case ByRegion:
		rows = append(rows, append([]string{"region_id", "region_type", "name", "layer", "kv", "bytes_read",
			"bytes_written",
			"bytes_per_step_mean", "bytes"}, MetricsColumns[3:]...))
		for i := range r.Regions {
			rows = append(rows, r.Regions[i].row())
		}
	case ByStep, ByTime:
		rows = movedRows(r, by)
	case ByPhase:
		rows = phaseRows(r)
	default:
		if column, ok := usesBy(by); ok {
			rows = useRows(r, column)
			break
		}
		return fmt.Errorf("there is no table by %.40q: use %s", string(by), names(Tables))
	}
	out := table.NewCSV(w, rows[0]...)
	for _, row := range rows[1:] {
		out.Write(row...)
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

func (g *Region) row() []string {
	layer, perStep := "", ""
	if g.Layer != nil {
		layer = strconv.FormatInt(*g.Layer, 10)
	}
	if g.PerStep != nil {
		perStep = table.Cell(&g.PerStep.Mean)
	}
	return append([]string{strconv.Itoa(g.ID), g.Type, g.Name, layer, g.KV, table.Cell(g.BytesRead),
		table.Cell(g.BytesWritten), perStep, table.Cell(g.Bytes)}, g.cells()...)
}

// movedRows are bytes by type of region, for all types that occur: of executions of graphs, or over time.
func movedRows(r *Report, by By) [][]string {
	t := &r.Traffic
	head, n := []string{"ts_ns", "seconds"}, len(t.Bins)
	width := float64(t.WidthNS) / 1e9
	row := func(i int) ([]string, *memtrace.Moved) {
		return []string{strconv.FormatInt(t.First+int64(i)*t.WidthNS, 10), table.Cell(&width)}, &t.Bins[i]
	}
	if by == ByStep {
		head, n = []string{"graph_seq", "token_index", "ts_ns"}, len(t.Steps)
		row = func(i int) ([]string, *memtrace.Moved) {
			s := &t.Steps[i]
			token := ""
			if s.Token >= 0 {
				token = strconv.FormatInt(s.Token, 10)
			}
			return []string{strconv.FormatInt(s.Graph, 10), token, strconv.FormatInt(s.NS, 10)}, &s.Moved
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
	rows := [][]string{head}
	for i := range n {
		cells, m := row(i)
		for _, kind := range types {
			read, written := m.Of(kind)
			cells = append(cells, table.Cell(read), table.Cell(written))
		}
		rows = append(rows, cells)
	}
	return rows
}
