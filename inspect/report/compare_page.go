package report

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// ErrNoDifference occurs when two runs have no time per token that differs, so that there is nothing to draw.
var ErrNoDifference = errors.New("no time per token differs between the runs: --format html and text have all figures")

// maxDrawn is how many times per token are drawn.
const maxDrawn = 20

// WriteHTML writes the comparison as one file, as [WriteHTML] writes a run.
func (c *Comparison) WriteHTML(w io.Writer) error {
	d := &document{}
	d.head("two runs")
	d.add("<p class=\"run\">a: %s</p><p class=\"run\">b: %s</p><h1 id=\"verdict\">%s</h1>", c.A.Path, c.B.Path,
		changeOf(c.Speed))
	for name, r := range c.sides() {
		d.add("<p class=\"lead\">%s, %s: %s</p>", name, string(r.State), r.Verdict)
	}
	var all []*section
	for _, part := range c.tables() {
		title := upper(strings.TrimSpace(part.rows[0][0]))
		s := &section{ID: strings.ReplaceAll(strings.ToLower(title), " ", "-"), Title: title}
		for i, cell := range part.rows[0] {
			part.rows[0][i] = strings.TrimSpace(cell)
		}
		if chart := drawn(c.Times); part.rows[0][0] == timesHead && chart != nil {
			s.Charts = append(s.Charts, chart)
		}
		if len(part.rows) > 1 {
			s.Tables = append(s.Tables, &titled{Rows: part.rows})
		}
		if part.left != "" {
			s.notes = append(s.notes, upper(part.left)+".")
		}
		all = append(all, s)
	}
	if len(c.Notes) > 0 {
		all = append(all, &section{ID: "notes", Title: "Not compared", notes: c.Notes})
	}
	d.links(all)
	d.sections(all)
	_, err := w.Write(d.end(time.Now().Truncate(time.Second)))
	return err
}

// changeOf says how the speed changes from a to b.
func changeOf(speed []*Difference) string {
	var lines []string
	for _, d := range speed {
		cells := d.cells()
		switch {
		case d.Unit != unitRate:
		case d.Differs:
			lines = append(lines, fmt.Sprintf("%s: %s in a, %s in b (%s)", d.What, cells[1], cells[2], cells[4]))
		default:
			lines = append(lines, d.What+": no difference")
		}
	}
	if lines == nil {
		return "The speeds of the two runs cannot be compared."
	}
	return upper(strings.Join(lines, "; ")) + "."
}

// drawn is the times per token that differ, the largest change first; nil where none does.
func drawn(times []*Difference) *figure {
	f := &figure{Kind: drawnMeans, Title: "Time per token, with 95 % intervals",
		X:      axis{Name: "time per token", Unit: "s"},
		Series: []*curve{{Name: "a"}, {Name: "b"}}}
	for _, d := range times {
		if !d.Differs || d.isOnce() || len(f.Rows) == maxDrawn {
			continue
		}
		f.Rows = append(f.Rows, d.What)
		for i, of := range []Amount{d.A, d.B} {
			half := 0.0
			if of.Half != nil {
				half = *of.Half / 1e9
			}
			s := f.Series[i]
			s.Y, s.W = append(s.Y, of.Value/1e9), append(s.W, half)
		}
	}
	if f.Rows == nil {
		return nil
	}
	return f
}

// Save draws the times per token that differ, and writes the picture as PNG, SVG or PDF by the end of the name.
func (c *Comparison) Save(path string) error {
	f := drawn(c.Times)
	if f == nil {
		return ErrNoDifference
	}
	colors := map[string]color.NRGBA{"a": sheet.Curves[0], "b": sheet.Curves[1]}
	p := &sheet.Cells{Title: f.Title, Label: "time per token (ms)", Names: f.Rows, Note: changeOf(c.Speed),
		Color: func(kind string) color.Color { return colors[kind] }}
	for _, s := range f.Series {
		for i, mean := range s.Y {
			m := sheet.CellMean{Cell: i, Type: s.Name, Mean: 1e3 * mean}
			if half := s.W[i]; half > 0 {
				m.Low, m.High = new(1e3*math.Max(0, mean-half)), new(1e3*(mean+half))
			}
			p.Means = append(p.Means, m)
		}
	}
	return p.Picture().Save(path)
}
