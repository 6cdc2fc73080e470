package figures

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Across is one metric of the cells of an experiment.
type Across struct {
	Name  string // of the file, without its end
	Title string
	Label string // of the axis, with the unit
	Cells []string
	Means []CellMean
	// Warning is as that of [Data].
	Warning string
}

// CellMean is the mean of a metric over the repetitions of a cell, with its interval; Low and High are nil where there is none, of a single run.
type CellMean struct {
	Cell      int    // its number in Cells
	Type      string // of regions; run for the run as a whole
	Mean      float64
	Low, High *float64
}

// DrawAcross draws each metric into a folder: a dot for each mean, with its interval as a bar. It returns the paths of the files.
func DrawAcross(all []Across, dir string, forms []string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	for i := range all {
		picture := all[i].picture()
		for _, form := range forms {
			path := filepath.Join(dir, all[i].Name+"."+form)
			if err := picture.Save(path); err != nil {
				return paths, err
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// picture draws the cells below each other.
func (a *Across) picture() *sheet.Picture {
	p := sheet.Column.Panel(a.Title)
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
	p.X.Tick.Marker = sheet.Steps(p.X.Min, p.X.Max, 5)
	n := len(a.Cells)
	p.Y.Min, p.Y.Max = -0.6, float64(n)-0.4
	var ticks sheet.Fixed
	for i, name := range a.Cells {
		ticks = append(ticks, plot.Tick{Value: float64(n - 1 - i), Label: name})
	}
	p.Y.Tick.Marker = ticks
	p.Add(lines)
	for k, kind := range types {
		bars := &intervals{color: colorOf(kind)}
		if kind == "run" {
			bars.color = sheet.Black
		}
		for i := range a.Means {
			if m := &a.Means[i]; m.Type == kind {
				at := float64(n-1-m.Cell) + 0.5*(float64(len(types)-1)/2-float64(k))/float64(len(types))
				bars.all = append(bars.all, interval{at, m.Mean, *cmp.Or(m.Low, &m.Mean), *cmp.Or(m.High, &m.Mean)})
			}
		}
		p.Add(bars)
		if len(types) > 1 {
			p.Legend.Add(kind, bars)
		}
	}
	if len(types) > 1 {
		p.Y.Max += 0.42 * float64(len(types)) * max(float64(n)/6, 1)
	}
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p}, Height: vg.Length(1.1+0.22*float64(n)+0.13*float64(len(types))) * vg.Inch, Warning: a.Warning}
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
