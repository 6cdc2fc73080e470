package sheet

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Cells is one figure of several things, such as the cells of an experiment or the tests of a benchmark.
type Cells struct {
	Title string
	Label string // of the axis, with the unit
	Names []string
	Means []CellMean
	// IsBytes is set where the values are bytes; Label has no unit then, the largest value gives it.
	IsBytes bool
	Color   func(kind string) color.Color // of means of a type; nil: all are black
	// Warning and Note are as those of [Picture].
	Warning, Note string
}

// CellMean is the mean of a cell, or another figure of several repetitions, with its interval; Low and High are nil
// where there is none, of a single one.
type CellMean struct {
	Cell      int    // its number in Names
	Type      string // what the legend calls it, where there are several
	Mean      float64
	Low, High *float64
}

// Picture draws the cells below each other: a dot for each mean, with its interval as a bar.
func (a *Cells) Picture() *Picture {
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
	by := Unit{By: 1}
	if a.IsBytes {
		by = UnitOf(ByteUnits, high)
		p.X.Label.Text += " (" + by.Name + ")"
	}
	values := Steps(p.X.Min/by.By, p.X.Max/by.By, 5)
	for i := range values {
		values[i].Value *= by.By
	}
	p.X.Tick.Marker = values
	n := len(a.Names)
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	var ticks Fixed
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: float64(n - 1 - i), Label: name})
	}
	p.Y.Tick.Marker = ticks
	p.Add(Grid{Vertical: true, Horizontal: true, Labelled: true})
	for k, kind := range types {
		bars := &intervals{color: Black}
		if a.Color != nil {
			bars.color = a.Color(kind)
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
	return &Picture{Style: style, Panels: []*plot.Plot{p}, Height: height, Warning: a.Warning, Note: a.Note}
}

// NameWidth is how many letters a line of a cell's name has at most.
const NameWidth = 45

// names are the cells as they are written at the axis, in so many lines at most, and the style of the picture: long
// names need the width of a page.
func (a *Cells) names() (style Style, names []string, most int) {
	const inColumn = 34
	style = Column
	for _, name := range a.Names {
		if len([]rune(name)) > inColumn {
			style = Page
		}
		all := strings.Split(Wrap(name, NameWidth), "\n")
		for i, line := range all {
			if r := []rune(line); len(r) > NameWidth {
				all[i] = string(r[:NameWidth/2]) + "…" + string(r[len(r)-NameWidth/2:])
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

// Wrap breaks a name into lines of at most so many letters, at spaces.
func Wrap(name string, most int) string {
	line, all := "", []string{}
	for _, word := range strings.Fields(name) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > most {
			all, line = append(all, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(all, line), "\n")
}
