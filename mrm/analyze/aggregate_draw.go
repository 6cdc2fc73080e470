package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// drawn are the metrics that are drawn, with the words of their axes.
var drawn = []struct {
	metric, label     string
	isOfRuns, isBytes bool
}{
	{metric: "retention_p99_s", label: "99th percentile of the retention (s)"},
	{metric: "write_once_ratio", label: "write-once ratio"},
	{metric: "working_set_bytes", label: "working set", isBytes: true},
	{metric: "decode_tokens_per_s", label: "generation (tokens/s)", isOfRuns: true},
	{metric: "decode_ratio", label: "generation speed, tapped / untapped", isOfRuns: true},
	{metric: labelled + "high_mrm", label: "share of runs labelled high_mrm"},
	{metric: labelled + "medium_mrm", label: "share of runs labelled medium_mrm"},
	{metric: labelled + "low_mrm", label: "share of runs labelled low_mrm"},
}

// labelled begins the metrics that are shares of runs which have a label.
const labelled = "mrm_label="

// Figures are pictures of the main metrics, a dot and an interval for each cell of an experiment. One that no run
// has is without means.
func (r *Aggregated) Figures() (metricFigures []metricFigure) {
	var names []string
	for i := range r.Groups {
		if name := r.Groups[i].Experiment; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		groups := slices.DeleteFunc(slices.Clone(r.Groups), func(g cellGroup) bool { return g.Experiment != name })
		cells, common := cellNames(groups)
		warning := ""
		if slices.ContainsFunc(groups, func(g cellGroup) bool { return g.Contaminated > 0 }) {
			warning = "with contaminated runs, not to be published"
		}
		for _, d := range drawn {
			label, isShare := strings.CutPrefix(d.metric, labelled)
			a := metricFigure{Name: fileName(name + "_" + d.metric), Cells: sheet.Cells{Title: name + common,
				Label: d.label, Names: cells, IsBytes: d.isBytes, Color: cellColor, Warning: warning,
				Note: "dots: means of n runs; bars: 95 % intervals (Student's t), none of a single run"}}
			if isShare {
				a.Name, a.Note = fileName(name+"_"+label), "dots: shares of n runs; bars: 95 % intervals (Wilson)"
			}
			for i := range groups {
				rows := groups[i].Rows
				if isShare {
					rows = labelRows(rows, d.metric)
				}
				for k := range rows {
					if row := &rows[k]; row.Metric == d.metric && (row.Type == ofRuns) == d.isOfRuns {
						a.Means = append(a.Means,
							sheet.CellMean{Cell: i, Type: row.Type, Mean: row.Mean, Low: row.Low, High: row.High})
					}
				}
			}
			if isShare && !slices.ContainsFunc(a.Means, func(m sheet.CellMean) bool { return m.Mean > 0 }) {
				a.Means = nil // no run has the label
			}
			metricFigures = append(metricFigures, a)
		}
	}
	return metricFigures
}

// labelRows are the shares of runs that have a label, by type of region. Where other labels alone were given, the
// shareOfRuns is 0 of as many runs.
func labelRows(rows []statisticRow, metric string) (shares []statisticRow) {
	for i := range rows {
		if !strings.HasPrefix(rows[i].Metric, labelled) {
			continue
		}
		at := slices.IndexFunc(shares, func(r statisticRow) bool { return r.Type == rows[i].Type })
		if at < 0 {
			at = len(shares)
			shares = append(shares, statisticRow{rows[i].Type, metric, shareOfRuns(0, rows[i].N)})
		}
		if rows[i].Metric == metric {
			shares[at] = rows[i]
		}
	}
	return shares
}

// fileName is a name that stays in its folder; an experiment of elsewhere may have any.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, strings.TrimLeft(name, "."))
}

// cellNames are cells by what distinguishes them, and what they have in common.
func cellNames(groups []cellGroup) (names []string, common string) {
	parts := []func(c *matrixCell) string{
		func(c *matrixCell) string { return c.ModelID },
		func(c *matrixCell) string { return c.Prompt },
		func(c *matrixCell) string {
			if c.NCtx == 0 {
				return "the model's context"
			}
			return fmt.Sprintf("context %d", c.NCtx)
		},
		func(c *matrixCell) string { return "KV " + c.KVType },
		func(c *matrixCell) string { return fmt.Sprintf("%d tokens", c.MaxTokens) },
		func(c *matrixCell) string { return fmt.Sprintf("%d requests", c.Concurrency) },
	}
	words := make([][]string, len(groups))
	for p, part := range parts {
		first := part(&groups[0].Cell)
		if !slices.ContainsFunc(groups, func(g cellGroup) bool { return part(&g.Cell) != first }) {
			if p == 0 || p == 2 { // the model and its context
				common += ", " + first
			}
			continue
		}
		for i := range groups {
			words[i] = append(words[i], part(&groups[i].Cell))
		}
	}
	for i := range groups {
		name := strings.Join(words[i], ", ")
		if name == "" {
			name = groups[i].Cell.Prompt
		}
		if slices.ContainsFunc(groups, func(g cellGroup) bool {
			same := g.Cell
			same.Key = groups[i].Cell.Key
			return g.Cell != groups[i].Cell && same == groups[i].Cell
		}) {
			// they differ in what a cell does not say, as in the sizes of batches
			name += ", cell " + groups[i].Cell.Key
		}
		names = append(names, fmt.Sprintf("%s (n = %d)", name, len(groups[i].Runs)))
	}
	return names, common
}
