package analyze

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/table"
)

// WriteJSON writes everything, cell by cell.
func (r *Aggregated) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

// aggregateColumns are those of the table, one row per cell and figure.
var aggregateColumns = []table.Column{
	{Name: "experiment", Kind: table.Text, Description: "name of the experiment"},
	{Name: "cell", Kind: table.Text, Description: "key of the cell of the matrix"},
	{Name: "model_id", Kind: table.Text, Description: "model"},
	{Name: "prompt", Kind: table.Text, Description: "id of the prompt"},
	{Name: "n_ctx", Kind: table.Int64, Unit: "tokens", Description: "size of the context"},
	{Name: "kv_type", Kind: table.Text, Description: "types of keys and values in the cache"},
	{Name: "max_tokens", Kind: table.Int64, Unit: "tokens", Description: "most tokens generated per prompt"},
	{Name: "concurrency", Kind: table.Int64, Description: "prompts at a time"},
	{Name: "region_type", Kind: table.Text, Description: "type of region; run: of the run as a whole"},
	{Name: "metric", Kind: table.Text, Description: "column of metrics.csv, or figure of the run; its name ends " +
		"with its unit"},
	{Name: "n", Kind: table.Int64, Description: "runs with a value"},
	{Name: "marginal", Kind: table.Int64, Description: "of the runs of the cell, those of class marginal"},
	{Name: "contaminated", Kind: table.Int64, Description: "of the runs of the cell, those of class contaminated"},
	{Name: "mean", Kind: table.Float64, Description: "mean over the runs"},
	{Name: "sd", Kind: table.Float64, Null: true, Description: "standard deviation over the runs; null: one run"},
	{Name: "ci95_low", Kind: table.Float64, Null: true,
		Description: "lower end of the 95 % confidence interval of the mean"},
	{Name: "ci95_high", Kind: table.Float64, Null: true,
		Description: "upper end of the 95 % confidence interval of the mean"},
	{Name: "min", Kind: table.Float64, Description: "least value"},
	{Name: "max", Kind: table.Float64, Description: "greatest value"},
	{Name: "method", Kind: table.Text, Null: true, Description: "how the interval is computed; null: none"},
}

// rows are a value per column for each cell and figure: texts, integers and numbers.
func (r *Aggregated) rows() (all [][]any) {
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Rows {
			row, c := &g.Rows[k], &g.Cell
			all = append(all, []any{
				g.Experiment, c.Key, c.ModelID, c.Prompt, c.NCtx, c.KVType, c.MaxTokens, c.Concurrency, row.Type,
				row.Metric, row.N, g.Marginal, g.Contaminated,
				&row.Mean, row.SD, row.Low, row.High, &row.Min, &row.Max, row.Method,
			})
		}
	}
	return all
}

// WriteCSV writes a row for each cell and figure.
func (r *Aggregated) WriteCSV(w io.Writer) error {
	var names []string
	for _, c := range aggregateColumns {
		names = append(names, c.Name)
	}
	out := table.NewCSV(w, names...)
	for _, values := range r.rows() {
		out.Row(values...)
	}
	return out.Close()
}

// WriteParquet writes the same rows.
func (r *Aggregated) WriteParquet(w io.Writer) error {
	return writeRows(w, table.Schema{Columns: aggregateColumns}, r.rows())
}

// writeRows writes a table of texts, integers and numbers. A value that is nil, and an empty text of a column that may
// lack one, are null.
func writeRows(w io.Writer, s table.Schema, rows [][]any) error {
	s.Metadata = append(s.Metadata, [2]string{table.VersionKey, table.Version})
	out, err := table.NewParquet(w, s)
	if err != nil {
		return err
	}
	b := table.NewBatch(s)
	for _, values := range rows {
		for i, v := range values {
			switch v := v.(type) {
			case string:
				if v != "" || !s.Columns[i].Null {
					b.Text(i, v)
				}
			case int:
				b.Int(i, int64(v))
			case int64:
				b.Int(i, v)
			case *int64:
				if v != nil {
					b.Int(i, *v)
				}
			case float64:
				b.Int(i, int64(math.Float64bits(v)))
			case *float64:
				if v != nil {
					b.Int(i, int64(math.Float64bits(*v)))
				}
			}
		}
		if err := b.EndRow(); err != nil {
			return err
		}
	}
	if err := out.Write(b); err != nil {
		return err
	}
	return out.Close()
}

// WriteText writes the figures that most ask for, as a table for people.
func (r *Aggregated) WriteText(w io.Writer) error {
	out := &present.Text{W: w}
	out.Line("%s in %s; mean [95 %% interval: Student's t, of shares of runs Wilson's]; %s "+
		"left out", present.Plural(r.Runs, "run"), present.Plural(len(r.Groups), "cell"),
		present.Plural(len(r.Contaminated), "contaminated run"))
	for i := range r.Groups {
		g := &r.Groups[i]
		warning := ""
		if g.Marginal > 0 {
			warning = fmt.Sprintf(" (%d marginal)", g.Marginal)
		}
		if g.Contaminated > 0 {
			warning += fmt.Sprintf(" (%d contaminated: not to be published)", g.Contaminated)
		}
		out.Line("\n%s: %s, prompt %s, context %d, KV %s, n = %d%s", g.Experiment, g.Cell.ModelID, g.Cell.Prompt,
			g.Cell.NCtx, g.Cell.KVType, len(g.Runs), warning)
		var rows [][]string
		for k := range g.Rows {
			row := &g.Rows[k]
			rows = append(rows, []string{row.Type, row.Metric, row.text()})
		}
		var table strings.Builder
		present.Table(&table, rows)
		for line := range strings.Lines(table.String()) {
			out.Line("  %s", strings.TrimSuffix(line, "\n"))
		}
	}
	return out.Err
}

// text returns the mean with its interval; a share of runs also has its count.
func (s *Statistic) text() string {
	text := strconv.FormatFloat(s.Mean, 'g', 5, 64)
	switch s.Method {
	case "":
		return text + " (one run)"
	case wilson:
		text += fmt.Sprintf(" (%.0f of %d)", s.Mean*float64(s.N), s.N)
	}
	return text + fmt.Sprintf(" [%.4g, %.4g]", *s.Low, *s.High)
}
