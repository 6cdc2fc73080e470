package aggregate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/mrm/figures"
)

// drawn are the metrics that are drawn, with the words of their axes.
var drawn = []struct {
	metric, label string
	isOfRuns      bool
}{
	{"retention_p99_s", "99th percentile of the retention (s)", false},
	{"write_once_ratio", "write-once ratio", false},
	{"working_set_bytes", "working set (bytes)", false},
	{"decode_tokens_per_s", "generation (tokens/s)", true},
	{"decode_ratio", "speed of generation, tapped / untapped", true},
}

// Figures are pictures of the metrics that most look at, a dot and an interval for each cell of an experiment.
func (r *Result) Figures() (all []figures.Across) {
	var names []string
	for i := range r.Groups {
		if name := r.Groups[i].Experiment; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		groups := slices.DeleteFunc(slices.Clone(r.Groups), func(g Group) bool { return g.Experiment != name })
		cells, common := cellNames(groups)
		for _, d := range drawn {
			a := figures.Across{Name: name + "_" + d.metric, Title: name + common, Label: d.label + ", 95 % interval", Cells: cells}
			for i := range groups {
				if groups[i].Contaminated > 0 {
					a.Warning = "with contaminated runs, not to be published"
				}
				for k := range groups[i].Rows {
					if row := &groups[i].Rows[k]; row.Metric == d.metric && (row.Type == ofRuns) == d.isOfRuns {
						a.Means = append(a.Means, figures.CellMean{Cell: i, Type: row.Type, Mean: row.Mean, Low: row.Low, High: row.High})
					}
				}
			}
			if len(a.Means) > 0 {
				all = append(all, a)
			}
		}
	}
	return all
}

// cellNames are cells by what tells them apart, and what they have in common.
func cellNames(groups []Group) (names []string, common string) {
	parts := []func(c *Cell) string{
		func(c *Cell) string { return c.ModelID },
		func(c *Cell) string { return c.Prompt },
		func(c *Cell) string { return fmt.Sprintf("context %d", c.NCtx) },
		func(c *Cell) string { return c.KVType },
		func(c *Cell) string { return fmt.Sprintf("%d tokens", c.MaxTokens) },
		func(c *Cell) string { return fmt.Sprintf("%d requests", c.Concurrency) },
	}
	words := make([][]string, len(groups))
	for p, part := range parts {
		first := part(&groups[0].Cell)
		if !slices.ContainsFunc(groups, func(g Group) bool { return part(&g.Cell) != first }) {
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
		names = append(names, fmt.Sprintf("%s (n = %d)", name, len(groups[i].Runs)))
	}
	return names, common
}
