package analyze

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/table"
)

// WriteJSON writes the report with everything that its figures were computed from.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// rowHeader are the columns of rows in CSV.
var rowHeader = []string{
	"region_type", "region_id", "name", "regions", "class", "bytes", "bytes_read_per_day", "bytes_written_per_day",
	"refreshes_per_day_low", "refreshes_per_day_high", "bytes_refreshed_per_day_low", "bytes_refreshed_per_day_high",
	"writes_per_cell_per_day_low", "writes_per_cell_per_day_high", "lifetime_years_low", "lifetime_years_high",
	"read_j", "write_j", "refresh_j_low", "refresh_j_high", "total_j_low", "total_j_high", "energy_per_token_j_low",
	"energy_per_token_j_high", "verdict",
}

// pair is bounds in two fields.
func pair(b *Bounds) []any {
	if b == nil {
		return []any{nil, nil}
	}
	return []any{b.Low, b.High}
}

func (r *Row) fields() []any {
	fields := []any{r.Type, r.Region, r.Name, r.Regions, r.Class, r.Bytes, r.ReadPerDay, r.WrittenPerDay}
	for _, b := range []*Bounds{&r.Refreshes, &r.RefreshedPerDay, &r.WritesPerCell, (*Bounds)(r.Lifetime)} {
		fields = append(fields, pair(b)...)
	}
	fields = append(fields, r.Energy.Read, r.Energy.Write)
	for _, b := range []*Bounds{r.Energy.Refresh, r.Energy.Total, r.EnergyPerToken} {
		fields = append(fields, pair(b)...)
	}
	return append(fields, r.Verdict)
}

// WriteCSV writes the rows, those of types before those of regions.
func (r *Report) WriteCSV(w io.Writer) error {
	out := table.NewCSV(w, rowHeader...)
	for _, rows := range [][]Row{r.Types, r.Regions} {
		for i := range rows {
			out.Row(rows[i].fields()...)
		}
	}
	return out.Close()
}

// writeSensitivityCSV writes what follows where a figure of a class is another one.
func (r *Report) writeSensitivityCSV(w io.Writer) error {
	out := table.NewCSV(w, append([]string{"parameter", "factor", "value"}, rowHeader...)...)
	for i := range r.Sensitivity {
		s := &r.Sensitivity[i]
		out.Row(append([]any{s.Parameter, s.Factor, s.Value}, s.Row.fields()...)...)
	}
	return out.Close()
}

// writeLabelsCSV writes the labels of types.
func (r *Report) writeLabelsCSV(w io.Writer) error {
	out := table.NewCSV(w, "region_type", "n_regions", "bytes", "bytes_lived", "write_once_ratio", "censored_share",
		"retention_p50_s", "retention_p99_s",
		"retention_km_p50_s", "retention_km_p50_known", "retention_km_p99_s", "retention_km_p99_known",
		"time_resolution_s", "mrm_label", "mrm_label_censored")
	for i := range r.Labels {
		l := &r.Labels[i]
		out.Row(l.Type, l.Regions, l.Bytes, l.Lives, l.WriteOnce, l.CensoredShare, l.Plain.P50, l.Plain.P99,
			l.KaplanMeier.P50, l.IsKnown50, l.KaplanMeier.P99, l.IsKnown99, l.Resolution, l.Label, l.LabelCensor)
	}
	return out.Close()
}

// WriteText writes tables for people.
func (r *Report) WriteText(w io.Writer) error {
	out := &present.Text{W: w}
	if len(r.Labels) == 0 {
		out.Line("What if: nothing to judge, as no access of a region is known: record the run with a ledger " +
			"(--tap-ledger; collector.graph_trace of an experiment)")
		return out.Err
	}
	tokens := ""
	if r.Tokens > 0 {
		tokens = fmt.Sprintf(", %d tokens with set-up's", r.Tokens)
	}
	out.Line("What if: a run of %s%s; cells are to live %g years\n", sheet.WithUnit(sheet.TimeUnits, r.Seconds), tokens,
		r.Years)
	rows := [][]string{{"region type", "regions", "bytes", "write-once", "needed p50",
		"needed p99", "censored", "label",
		"censored label"}}
	for i := range r.Labels {
		l := &r.Labels[i]
		rows = append(rows, []string{l.Type, strconv.Itoa(l.Regions), present.Bytes(l.Bytes),
			present.Maybe(l.WriteOnce, present.Percent), l.needed(l.KaplanMeier.P50, l.IsKnown50),
			l.needed(l.KaplanMeier.P99, l.IsKnown99), present.Maybe(l.CensoredShare, present.Percent), dash(l.Label),
			dash(l.LabelCensor)})
	}
	out.Columns(rows)
	rows = [][]string{{"region type", "class", "refreshes/day", "refreshed/day", "writes/cell/day", "years", "J/day",
		"verdict"}}
	for i := range r.Types {
		row := &r.Types[i]
		rows = append(rows, []string{row.Type, row.Class, bounds(&row.Refreshes, threeDigits),
			bounds(&row.RefreshedPerDay, present.Bytes), bounds(&row.WritesPerCell, threeDigits),
			bounds((*Bounds)(row.Lifetime), threeDigits), bounds(row.Energy.Total, threeDigits), string(row.Verdict)})
	}
	out.Line("")
	out.Columns(rows)
	if out.Err != nil {
		return out.Err
	}
	return r.writeInputs(w)
}

// writeInputs writes what figures were computed from, and by what.
func (r *Report) writeInputs(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nFigures of devices, and where they stand:\n")
	for i := range r.Classes {
		c := &r.Classes[i]
		var all []string
		for _, f := range c.figures() {
			if f.Figure != nil {
				note := ""
				if f.Note != "" {
					note = ": " + f.Note
				}
				all = append(all, fmt.Sprintf("%s %s [%s%s]", f.key, threeDigits(f.Value), f.Source, note))
			}
		}
		fmt.Fprintf(&b, "  %s: %s, refresh %s\n", c.ID, strings.Join(all, ", "), c.Refresh)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Sources)) {
		s := r.Sources[key]
		read := ""
		if s.Read != "" {
			read = " (read: " + s.Read + ")"
		}
		fmt.Fprintf(&b, "  [%s] %s (%d) %s%s\n", key, s.Text, s.Year, s.URL, read)
	}
	b.WriteString("Two figures with .. between are bounds: lives that went on at the end of the run may end with " +
		"it, or never. ≥: at least so long.\nFormulas:\n")
	for _, key := range []string{"refreshes_per_day", "bytes_refreshed_per_day", "writes_per_cell_per_day",
		"lifetime_years", "read_j", "write_j", "refresh_j"} {
		fmt.Fprintf(&b, "  %s = %s\n", key, formulas[key])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// bounds writes two figures, or one where they are equal.
func bounds(b *Bounds, text func(float64) string) string {
	if b == nil {
		return "-"
	}
	low, high := text(b.Low), text(b.High)
	if low == high {
		return low
	}
	return low + " .. " + high
}

// threeDigits writes a number of three digits.
func threeDigits(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "inf"
	case v == 0:
		return "0"
	case math.Abs(v) >= 1e5, math.Abs(v) < 1e-2:
		return strconv.FormatFloat(v, 'e', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// needed returns the text for how long data is needed.
func (l *Labels) needed(seconds *float64, known bool) string {
	switch {
	case seconds == nil:
		return "-"
	case *seconds < l.Resolution:
		return "< " + sheet.WithUnit(sheet.TimeUnits, l.Resolution)
	case !known:
		return "≥ " + sheet.WithUnit(sheet.TimeUnits, *seconds)
	}
	return sheet.WithUnit(sheet.TimeUnits, *seconds)
}
