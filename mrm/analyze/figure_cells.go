package analyze

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// metricFigure is one metric of the cells of an experiment.
type metricFigure struct {
	Name  string // of the file, without its end
	Title string
	Label string // of the axis, with the unit
	Cells []string
	Means []cellMean // none: nothing is drawn
	// IsBytes is set where the values are bytes; Label has no unit then, the largest value gives it.
	IsBytes bool
	// Warning and Note are as those of [Data].
	Warning, Note string
}

// cellMean is the mean of a metric over the repetitions of a cell, with its interval; Low and High are nil where
// there is none, of a single run.
type cellMean struct {
	Cell      int    // its number in Cells
	Type      string // of regions; run for the run as a whole
	Mean      float64
	Low, High *float64
}

// DrawAcross draws each metric into a folder: a dot for each mean, with its interval as a bar. It returns the paths
// of the files. A figure of an earlier call that has nothing to draw now, or another form, is removed.
func DrawAcross(all []metricFigure, dir string, forms []string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	for i := range all {
		var picture *sheet.Picture
		if len(all[i].Means) > 0 {
			picture = all[i].picture()
		}
		saved, err := picture.SaveForms(filepath.Join(dir, all[i].Name), forms)
		paths = append(paths, saved...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// picture draws the cells below each other.
func (a *metricFigure) picture() *sheet.Picture {
	style, names, nameLines := a.names()
	p := style.Panel(a.Title)
	p.X.Label.Text = a.Label
	var types []string
	low, high := math.Inf(1), math.Inf(-1)
	for i := range a.Means {
		m := &a.Means[i]
		if !slices.Contains(types, m.Type) {
			types = append(types, m.Type)
		}
		for _, v := range []*float64{&m.Mean, m.Low, m.High} {
			if v != nil {
				low, high = min(low, *v), max(high, *v)
			}
		}
	}
	p.X.Min, p.X.Max = min(low, 0), high*1.05
	if p.X.Max <= p.X.Min {
		p.X.Max = p.X.Min + 1
	}
	by := unit{by: 1}
	if a.IsBytes {
		by = unitOf(byteUnits, high)
		p.X.Label.Text += " (" + by.name + ")"
	}
	values := sheet.Steps(p.X.Min/by.by, p.X.Max/by.by, 5)
	for i := range values {
		values[i].Value *= by.by
	}
	p.X.Tick.Marker = values
	n := len(a.Cells)
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	var ticks sheet.Fixed
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: float64(n - 1 - i), Label: name})
	}
	p.Y.Tick.Marker = ticks
	p.Add(gridLines)
	for k, kind := range types {
		bars := &intervals{color: colorOf(kind)}
		if kind == "run" {
			bars.color = sheet.Black
		}
		for i := range a.Means {
			if m := &a.Means[i]; m.Type == kind {
				at := float64(n-1-m.Cell) + 0.7*(float64(len(types)-1)/2-float64(k))/float64(len(types))
				bars.all = append(bars.all, interval{at, m.Mean, *cmp.Or(m.Low, &m.Mean), *cmp.Or(m.High, &m.Mean)})
			}
		}
		p.Add(bars)
		if len(types) > 1 {
			p.Legend.Add(kind, bars)
		}
	}
	pitch := max(16, 6*float64(len(types)), 8.5*float64(nameLines)) // points from a cell to the next
	if len(types) > 1 {
		p.Y.Max += (8.5*float64(len(types)) + 6) / pitch // above the first cell, for the legend
	}
	height := vg.Points(64 + pitch*(p.Y.Max-p.Y.Min))
	return &sheet.Picture{Style: style, Panels: []*plot.Plot{p}, Height: height, Warning: a.Warning, Note: a.Note}
}

// nameWidth is how many letters a line of a cell's name has at most.
const nameWidth = 45

// names are the cells as they are written at the axis, in so many lines at most, and the style of the picture: long
// names need the width of a page.
func (a *metricFigure) names() (style sheet.Style, names []string, most int) {
	const inColumn = 34
	style = sheet.Column
	for _, name := range a.Cells {
		if len([]rune(name)) > inColumn {
			style = sheet.Page
		}
		all := strings.Split(wrap(name, nameWidth), "\n")
		for i, line := range all {
			if r := []rune(line); len(r) > nameWidth {
				all[i] = string(r[:nameWidth/2]) + "…" + string(r[len(r)-nameWidth/2:])
			}
		}
		names, most = append(names, strings.Join(all, "\n")), max(most, len(all))
	}
	return style, names, most
}

// interval is a mean with its bounds, at a height.
type interval struct{ y, mean, low, high float64 }

// intervals draws means as dots and their intervals as bars with ends.
type intervals struct {
	all   []interval
	color color.Color
}

// Plot draws them.
func (b *intervals) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	for _, v := range b.all {
		b.draw(&c, vg.Point{X: atX(v.mean), Y: atY(v.y)}, atX(v.low), atX(v.high))
	}
}

// Thumbnail draws a sample in a legend.
func (b *intervals) Thumbnail(c *draw.Canvas) { b.draw(c, c.Center(), c.Min.X, c.Max.X) }

// draw draws one.
func (b *intervals) draw(c *draw.Canvas, mean vg.Point, low, high vg.Length) {
	style := draw.LineStyle{Color: b.color, Width: vg.Points(0.9)}
	if high > low {
		end := vg.Points(2)
		c.StrokeLine2(style, low, mean.Y, high, mean.Y)
		c.StrokeLine2(style, low, mean.Y-end, low, mean.Y+end)
		c.StrokeLine2(style, high, mean.Y-end, high, mean.Y+end)
	}
	c.DrawGlyph(draw.GlyphStyle{Color: b.color, Radius: vg.Points(1.8), Shape: draw.CircleGlyph{}}, mean)
}
