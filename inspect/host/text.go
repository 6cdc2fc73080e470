package host

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llamatap/llamatap/internal/present"
)

// The bounds of the text: JSON has all rows.
const (
	textDevices    = 40
	textImportance = 45
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	r.writeHead(&b)
	r.writeDevices(&b)
	r.writeOps(&b)
	r.writePhases(&b)
	r.writeImportance(&b)
	writeTop(&b, r.OffCPU, "off the CPU", func(v float64) string { return msText(v) })
	writeTop(&b, r.Faults, "page faults", func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) })
	if r.Prof != nil {
		for _, t := range r.Prof.tables(r.percents) {
			if len(t) > 1 {
				t.write(&b)
			}
		}
	}
	for _, alert := range r.Alerts {
		b.WriteString("\n")
		wrap(&b, "alert: ", alert)
	}
	for i, note := range r.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		wrap(&b, "note: ", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes a paragraph of at most 100 columns, its lines behind the first indented.
func wrap(b *strings.Builder, head, text string) {
	b.WriteString(head + present.Wrap(text, utf8.RuneCountInString(head), 100) + "\n")
}

// writeHead lists what was read.
func (r *Report) writeHead(b *strings.Builder) {
	if r.Run != "" {
		model := ""
		if r.Model != "" {
			model = ", model " + r.Model
		}
		fmt.Fprintf(b, "run        %s%s\n", r.Run, model)
	}
	for _, s := range []struct {
		key    string
		source *Source
	}{{"block I/O", r.Block}, {"system", r.System}} {
		if s.source != nil {
			fmt.Fprintf(b, "%-11s%s\n", s.key, s.source.text())
		}
	}
	if r.Prof != nil {
		fmt.Fprintf(b, "prof       %s\n", r.Prof.text())
	}
	if r.WindowS > 0 {
		fmt.Fprintf(b, "window     %s: snapshots are put together before they are compared\n",
			present.Seconds(r.WindowS))
	}
	if r.Block != nil {
		fmt.Fprintf(b, "devices    %d\n", r.DeviceCount)
	}
}

func (s *Source) text() string {
	text := fmt.Sprintf("%s in %s", present.Plural(s.Snapshots, "snapshot"), s.Path)
	if s.SpacingS > 0 {
		text += fmt.Sprintf(", one in %s", present.Seconds(s.SpacingS))
	}
	if s.First != nil && s.Last != nil {
		text += fmt.Sprintf(", %s from %s", present.Seconds(*s.Last-*s.First), utc(*s.First))
	}
	return text
}

// utc is a time in seconds since 1970 as people write it.
func utc(t float64) string {
	return time.UnixMilli(int64(math.Round(t * 1e3))).UTC().Format("2006-01-02 15:04:05 UTC")
}

// writeDevices writes a line per device.
func (r *Report) writeDevices(b *strings.Builder) {
	switch {
	case r.Block == nil:
		return
	case len(r.Devices) == 0:
		b.WriteString("\nno block device had requests\n")
		return
	}
	t := grid{slices.Concat([]string{"device", " id", " requests", " per s", " peak per s", " mean ≈"},
		percentileHead(r.percents), []string{" queue mean", " max"})}
	shown := r.Devices[:min(len(r.Devices), textDevices)]
	for _, d := range shown {
		t = append(t, d.cells(r))
	}
	if r.All != nil && r.DeviceCount > 1 {
		t = append(t, r.All.cells(r))
	}
	t.write(b)
	if more := r.DeviceCount - len(shown); more > 0 {
		fmt.Fprintf(b, "and %d more\n", more)
	}
}

func (d *Device) cells(r *Report) []string {
	id := "-"
	if d.ID >= 0 {
		id = strconv.FormatInt(d.ID, 10)
	}
	name := d.Name
	if name == "" {
		name = "?"
	}
	row := []string{name, id, strconv.FormatUint(d.Requests, 10), present.Maybe(d.PerSecond, threeDigits),
		present.Maybe(d.PeakPerSecond, threeDigits), present.Maybe(d.MeanUS, usText)}
	row = append(row, percentileCells(r.percents, d.Percentiles)...)
	if d.Queue == nil {
		return append(row, "-", "-")
	}
	mean, most := d.Queue.Mean, strconv.FormatUint(d.Queue.Max, 10)
	if d.Queue.WithinMean != nil {
		mean, most = *d.Queue.WithinMean, present.Maybe(d.Queue.WithinMax, threeDigits)
	}
	return append(row, strconv.FormatFloat(mean, 'f', 2, 64), most)
}

// writeImportance writes how far metrics go with the latency.
func (r *Report) writeImportance(b *strings.Builder) {
	im := r.Importance
	if im == nil {
		return
	}
	fmt.Fprintf(b, "\nlatency (p%s) against metrics, by |r|", percentText(im.Percent))
	if im.Lags > 0 && im.StepS > 0 {
		fmt.Fprintf(b, "; lags up to %d × %s, + where the latency follows the metric", im.Lags,
			present.Seconds(im.StepS))
	}
	b.WriteString("\n")
	t := grid{{"device", "metric", " r", " n", " p", " q", " n eff.", " p eff.", " best lag", " r", " p"}}
	for _, row := range im.Rows[:min(len(im.Rows), textImportance)] {
		t = append(t, row.cells())
	}
	if im.Lags == 0 {
		for i := range t {
			t[i] = t[i][:8]
		}
	}
	t.write(b)
	if more := len(im.Rows) - textImportance; more > 0 {
		fmt.Fprintf(b, "and %d more; --json has all\n", more)
	}
}

func (c *ImportanceRow) cells() []string {
	n := strconv.Itoa(c.N)
	row := []string{c.Device, c.Metric, c.Why, n, "", "", "", ""}
	if c.R != nil {
		row = []string{c.Device, c.Metric, signed(*c.R), n, pText(*c.P), pText(*c.Q), threeDigits(*c.Effective),
			pText(*c.PEffective)}
	}
	if c.Best == nil {
		return append(row, "", "", "")
	}
	return append(row, fmt.Sprintf("%+d", c.Best.Lag), signed(*c.Best.R), pText(*c.Best.P))
}

// writeTop writes the ids of which most was counted.
func writeTop(b *strings.Builder, top *TopIDs, what string, text func(float64) string) {
	if top == nil {
		return
	}
	defer writeIdle(b, top.By, text)
	if len(top.Top) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s: %s, of %d ids\n", what, text(top.Total), top.IDs)
	head := []string{"id", "of process", "name", " " + what, " share"}
	if top.By != nil {
		for _, reason := range Reasons {
			head = append(head, " "+reason)
		}
		head = append(head, "role")
	}
	t := grid{head}
	for _, row := range top.Top {
		tgid := ""
		if row.TGID > 0 {
			tgid = strconv.FormatInt(row.TGID, 10)
		}
		cells := append([]string{row.ID, tgid, row.Name, text(row.Value), present.Percent(row.Share)},
			reasonCells(row.By, text)...)
		if row.By != nil {
			cells = append(cells, row.Role)
		}
		t = append(t, cells)
	}
	if top.By != nil {
		t = append(t, append(append([]string{"all ids", "", "", text(top.Total), ""}, reasonCells(top.By, text)...),
			""))
	}
	t.write(b)
}

// writeIdle writes waits that are not delays: time in which threads waited for work, and sleep in futexes of unknown
// reason.
func writeIdle(b *strings.Builder, by *ByReason, text func(float64) string) {
	if by != nil && by.ForWork+by.Unknown > 0 {
		fmt.Fprintf(b, "\nno delay, and not in the table: threads waited for work %s; in futexes, reason unknown, %s\n",
			text(by.ForWork), text(by.Unknown))
	}
}

// reasonCells are the columns of reasons, where they are known.
func reasonCells(by *ByReason, text func(float64) string) (cells []string) {
	if by == nil {
		return nil
	}
	for _, v := range by.Values() {
		cells = append(cells, text(v))
	}
	return cells
}

// writePhases writes what happened in which phase.
func (r *Report) writePhases(b *strings.Builder) {
	if len(r.Phases) == 0 {
		return
	}
	b.WriteString("\nby phase of the run\n")
	head := []string{"phase", " intervals", " time", " tokens", " requests", " per token", " mean ≈"}
	if r.Block != nil {
		head = append(head, percentileHead(r.percents)...)
	}
	t := grid{append(head, " off the CPU", " per token", " faults", " per token")}
	for i := range r.Phases {
		t = append(t, r.Phases[i].cells(r))
	}
	t.write(b)
}

func (p *PhaseRow) cells(r *Report) []string {
	n, seconds, tokens := p.BlockIntervals, p.BlockSeconds, p.BlockTokens
	if r.Block == nil {
		n, seconds, tokens = p.SystemIntervals, p.SystemSeconds, p.SystemTokens
	}
	row := []string{p.Phase, strconv.FormatInt(n, 10), present.Seconds(seconds),
		strconv.FormatFloat(tokens, 'f', 1, 64)}
	if r.Block != nil {
		row = append(row, strconv.FormatUint(p.Requests, 10), present.Maybe(p.RequestsPerToken, threeDigits),
			present.Maybe(p.MeanUS, usText))
		row = append(row, percentileCells(r.percents, p.Percentiles)...)
	} else {
		row = append(row, "-", "-", "-")
	}
	return append(row, present.Maybe(p.OffCPUMS, msText), present.Maybe(p.OffCPUPerToken, msText),
		present.Maybe(p.Faults, threeDigits),
		present.Maybe(p.FaultsPerToken, threeDigits))
}
