package resources

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/table"
)

// KVBy is what the table of a KV shows.
type KVBy string

// What a table shows: a line per sequence, per tensor of a layer, or per part of the time.
const (
	KVBySequence KVBy = "sequence"
	KVByLayer    KVBy = "layer"
	KVByTime     KVBy = "time"
)

// WriteText writes caches, how full they were over time as a plot of at most width columns, and one table.
func (k *KV) WriteText(w io.Writer, by KVBy, width int) error {
	out := &present.Text{W: w}
	k.writeHead(out)
	for i := range k.Timeline {
		k.plot(out, &k.Timeline[i], width)
	}
	out.Line("")
	switch by {
	case KVByLayer:
		k.writeLayers(out)
	case KVByTime:
		k.writeTimes(out)
	default:
		k.writeSequences(out)
	}
	return out.Err
}

func (k *KV) writeHead(out *present.Text) {
	out.Line("run     %s", k.Path)
	out.Line("seen    %s, %s, schema %s", present.Seconds(k.Seconds), present.Plural(k.Rows, "row"), k.Version)
	if k.Missing != "" {
		out.Line("LOST    %s", k.Missing)
	}
	r := &k.Last.Reuse
	if ratio, ok := r.Ratio(); ok {
		text := fmt.Sprintf("reuse   %d of the %d cells that prompts needed were there (%s), for %d of %d requests",
			r.Reused, r.Needed,
			present.Percent(ratio), r.Hits, r.Requests)
		if r.Gap.Count > 0 {
			text += fmt.Sprintf("; the mean of these requests came %s after its cells were last used",
				present.Seconds(float64(r.Gap.SumNS)/float64(r.Gap.Count)/1e9))
		}
		out.Line("%s", text)
	}
	if r.Unknown > 0 {
		out.Line("        %s found cells that were loaded with a state: how many is not known",
			present.Plural(r.Unknown, "further request"))
	}
	d := &k.Last.Doubts
	if d.Found > 0 {
		out.Line("loaded  %s came with a state, and can be seen from the first read on",
			present.Plural(d.Found, "cell"))
	}
	if n := d.Outside + d.Differ + d.Unknown + d.Unplaced; n > 0 {
		out.Line("doubts  %d rows outside of the cache, %d with keys and values apart, %d of unknown sequences, %d "+
			"executions not understood", d.Outside, d.Differ, d.Unknown, d.Unplaced)
	}
	out.Line("")
	rows := [][]string{{"ctx", "cache", "cells", "in use at the end", "shared", "sequences", "layers", "bytes per cell",
		"size", "block"}}
	for _, g := range k.Gauges() {
		used := fmt.Sprintf("%d (%s)", g.Used, present.Percent(g.Occupancy))
		if !g.Whole {
			used = "at least " + used
		}
		rows = append(rows, []string{fmt.Sprint(g.Ctx), g.Cache.String(), fmt.Sprint(g.Cells), used,
			fmt.Sprint(g.Shared), fmt.Sprint(len(g.Sequences)),
			fmt.Sprint(g.Layers), fmt.Sprint(g.CellBytes), present.Bytes(g.CellBytes * int64(g.Cells)),
			fmt.Sprint(g.Block)})
	}
	if len(rows) == 1 {
		out.Line("no cache was seen: nothing was computed, or the model has none")
		return
	}
	out.Table(rows)
	for _, g := range k.Gauges() {
		if a := g.Attended; a != nil {
			share := func(n int64) string { return present.Percent(float64(n) / float64(a.Cells)) }
			graphs := ""
			if a.OfGraphs > 0 {
				graphs = fmt.Sprintf(" in %d of %s", a.Graphs, present.Plural(a.OfGraphs, "graph"))
			}
			out.Line("ctx %d, %s: attention of each layer read %s cells%s: %s readable by a token, %s free below the "+
				"last cell in use",
				g.Ctx, g.Cache, present.Count(a.Cells), graphs, share(a.Readable), share(a.Free))
		}
	}
}

// plotRows is the height of a plot.
const plotRows = 8

// plot draws how many cells were in use.
func (k *KV) plot(out *present.Text, t *KVCache, width int) {
	top := float64(t.Total)
	most := slices.Max(t.Cells)
	scale := ""
	if top == 0 || most < top/10 { // else little of the height would be used
		top, scale = max(most, 1), fmt.Sprintf(", of %d", t.Total)
	}
	unit := "cells"
	if t.Block > 1 {
		unit = fmt.Sprintf("cells in blocks of %d", t.Block)
	}
	label := len(strconv.FormatFloat(top, 'f', 0, 64))
	columns := kvSquash(t.Cells, max(width-label-3, 10))
	out.Line("")
	out.Line("ctx %d, %s: %s in use%s", t.Ctx, t.Cache, unit, scale)
	for row := plotRows; row >= 1; row-- {
		var line strings.Builder
		for _, v := range columns {
			line.WriteString(kvBar(v/top*plotRows - float64(row-1)))
		}
		name := ""
		if row == plotRows || row == plotRows/2 {
			name = strconv.FormatFloat(top*float64(row)/plotRows, 'f', 0, 64)
		}
		out.Line("%*s │%s", label, name, strings.TrimRight(line.String(), " "))
	}
	end := present.Seconds(k.Seconds)
	out.Line("%*s └%s", label, "0", strings.Repeat("─", len(columns)))
	out.Line("%*s  0%*s", label, "", len(columns)-1, end)
}

// kvBar is a column's piece of one line, full from 1 on.
func kvBar(filled float64) string {
	at := min(max(int(filled*8+0.5), 0), 8)
	if at == 0 && filled > 0 {
		at = 1
	}
	return string(eighths[at])
}

// kvSquash makes at most n values of some, each the mean of its own.
func kvSquash(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	squashed := make([]float64, n)
	for i := range squashed {
		from, to := i*len(values)/n, (i+1)*len(values)/n
		for _, v := range values[from:to] {
			squashed[i] += v / float64(to-from)
		}
	}
	return squashed
}

func (k *KV) writeSequences(out *present.Text) {
	rows := [][]string{{"ctx", "cache", "seq_id", "lives", "cells", "ended", "why", "censored", "life p50", "max",
		"idle p50", "max"}}
	for i := range k.Sequences {
		s := &k.Sequences[i]
		why, ended := []string{}, int64(0)
		for _, reason := range slices.Sorted(maps.Keys(s.Ended)) {
			why = append(why, fmt.Sprintf("%s %d", reason, s.Ended[reason]))
			ended += s.Ended[reason]
		}
		seq := fmt.Sprint(s.Seq)
		if s.Seq < 0 {
			seq = "?"
		}
		rows = append(rows, []string{fmt.Sprint(s.Ctx), s.Cache, seq, fmt.Sprint(s.Lives), fmt.Sprint(s.Cells),
			fmt.Sprint(ended), strings.Join(why, " "),
			fmt.Sprint(s.Censored), secondsText(s.Lifetime.P50), secondsText(s.Lifetime.Max),
			secondsText(s.Idle.P50), secondsText(s.Idle.Max)})
	}
	out.Table(rows)
}

func (k *KV) writeLayers(out *present.Text) {
	rows := [][]string{{"ctx", "cache", "layer", "kv", "bytes per cell", "cells written", "bytes written", "cells read",
		"bytes read"}}
	for _, l := range k.Layers {
		rows = append(rows, []string{fmt.Sprint(l.Ctx), l.Cache, fmt.Sprint(l.Layer), l.Tensor, fmt.Sprint(l.CellBytes),
			fmt.Sprint(l.Writes), present.Bytes(l.BytesWritten),
			fmt.Sprint(l.Reads), present.Bytes(l.BytesRead)})
	}
	out.Table(rows)
}

func (k *KV) writeTimes(out *present.Text) {
	rows := [][]string{{"ctx", "cache", "from", "cells in use"}}
	for _, t := range k.Timeline {
		for i, cells := range t.Cells {
			rows = append(rows, []string{fmt.Sprint(t.Ctx), t.Cache, present.Seconds(k.at(&t, i)),
				strconv.FormatFloat(cells, 'f', 1, 64)})
		}
	}
	out.Table(rows)
}

// at is when a part of the timeline begins.
func (k *KV) at(t *KVCache, i int) float64 { return k.Seconds * float64(i) / float64(len(t.Cells)) }

// WriteCSV writes one table: its first line names the columns, and what is not known is empty.
func (k *KV) WriteCSV(w io.Writer, by KVBy) error {
	var out *table.CSV
	switch by {
	case KVByLayer:
		out = table.NewCSV(w, "ctx", "cache", "layer", "kv", "cell_bytes", "writes", "reads", "bytes_written",
			"bytes_read")
		for _, l := range k.Layers {
			out.Row(l.Ctx, l.Cache, l.Layer, l.Tensor, l.CellBytes, l.Writes, l.Reads, l.BytesWritten, l.BytesRead)
		}
	case KVByTime:
		out = table.NewCSV(w, "ctx", "cache", "seconds", "cells", "total_cells")
		for _, t := range k.Timeline {
			for i, cells := range t.Cells {
				out.Row(t.Ctx, t.Cache, k.at(&t, i), cells, t.Total)
			}
		}
	default:
		out = k.csvSequences(w)
	}
	return out.Close()
}

func (k *KV) csvSequences(w io.Writer) *table.CSV {
	reasons := []string{"seq_rm", "seq_keep", "clear", "overwrite"}
	out := table.NewCSV(w, slices.Concat([]string{"ctx", "cache", "seq_id", "lives", "cells"}, reasons, []string{
		"censored", "found", "writes", "reads",
		"lifetime_mean_s", "lifetime_p50_s", "lifetime_p90_s", "lifetime_max_s", "idle_mean_s", "idle_p50_s",
		"idle_p90_s", "idle_max_s"})...)
	for i := range k.Sequences {
		s := &k.Sequences[i]
		row := []any{s.Ctx, s.Cache, s.Seq, s.Lives, s.Cells}
		if s.Seq < 0 {
			row[2] = nil
		}
		for _, reason := range reasons {
			row = append(row, s.Ended[reason])
		}
		row = append(row, s.Censored, s.Found, s.Writes, s.Reads)
		for _, spread := range []*Spread{&s.Lifetime, &s.Idle} {
			row = append(row, spread.Mean, spread.P50, spread.P90, spread.Max)
		}
		out.Row(row...)
	}
	return out
}
