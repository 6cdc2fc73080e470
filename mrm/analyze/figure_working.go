package analyze

import (
	"math"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// workingSet draws how many different bytes were touched in windows of time.
func workingSet(d *figureData) *sheet.Picture {
	if d.Working == nil || len(d.Working.Types) == 0 {
		return nil
	}
	low, high, windows := math.Inf(1), 0.0, 0
	for _, t := range d.Working.Types {
		windows = max(windows, len(t.Bytes))
		for _, v := range t.Bytes {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		return nil
	}
	p := sheet.Column.Panel(d.Title)
	p.Y.Label.Text = "different bytes touched in " + sheet.WithUnit(sheet.TimeUnits, d.Working.WindowS)
	p.Y.Min, p.Y.Max = math.Floor(math.Log10(low)+0.05), math.Ceil(math.Log10(high)-0.05)
	if p.Y.Max <= p.Y.Min {
		p.Y.Max = p.Y.Min + 1
	}
	p.Y.Tick.Marker = sheet.Decades(p.Y.Min, p.Y.Max, 6, sheet.ByteDecade)
	sheet.TimeAxis(&p.X, 0, float64(windows)*d.Working.WindowS)
	p.Add(gridLines)
	for _, t := range d.Working.Types {
		c := workingCurve(t, d.Working.WindowS)
		p.Add(c)
		p.Legend.Add(t.Type, c)
	}
	beneath(p, len(d.Working.Types))
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p},
		Height: vg.Length(2.1+0.13*float64(len(d.Working.Types))) * vg.Inch}
}

// workingCurve is the curve of a type, in steps as wide as a window; windows in which nothing was touched are gaps.
func workingCurve(t workingType, window float64) *sheet.Curve {
	c := &sheet.Curve{Style: draw.LineStyle{Color: colorOf(t.Type), Width: vg.Points(1.6)}}
	for i, v := range t.Bytes {
		y := math.NaN()
		if v > 0 {
			y = math.Log10(v)
		}
		c.X, c.Y = append(c.X, float64(i)*window, float64(i+1)*window), append(c.Y, y, y)
	}
	return c
}

// phases draws what was read and written in each phase, by types of regions, on one logarithmic axis: reads are
// many times the writes.
func phases(d *figureData) *sheet.Picture {
	low, high := math.Inf(1), 0.0
	for _, b := range d.Phases {
		for _, v := range []float64{b.Read, b.Written} {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		return nil
	}
	p := sheet.Column.Panel(d.Title)
	p.X.Min, p.X.Max = math.Floor(math.Log10(low)-0.05), math.Ceil(math.Log10(high)+0.05)
	p.X.Tick.Marker = sheet.Decades(p.X.Min, p.X.Max, 6, sheet.ByteDecade)
	p.X.Label.Text = "bytes read and written"
	read := &sheet.Dots{Style: draw.GlyphStyle{Color: sheet.Blue, Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}}
	written := &sheet.Dots{Style: draw.GlyphStyle{Color: sheet.Orange, Radius: vg.Points(3),
		Shape: draw.SquareGlyph{}}} // hollow: with a dot in it both are seen
	ground := &sheet.Boxes{}
	var names sheet.Fixed
	y, phase := 0.0, ""
	var heads []plot.Plotter
	for _, b := range d.Phases {
		if b.Read <= 0 && b.Written <= 0 {
			continue
		}
		if b.Phase != phase {
			y -= 0.25
			heads = append(heads, sheet.Note{X: p.X.Min, Y: y, DX: 3, Text: b.Phase, Color: sheet.Black})
			phase = b.Phase
			y--
		}
		names = append(names, plot.Tick{Value: y, Label: b.Type})
		ground.All = append(ground.All, sheet.Box(p.X.Min, y-0.02, p.X.Max, y+0.02, sheet.Pale))
		if b.Read > 0 {
			read.X, read.Y = append(read.X, math.Log10(b.Read)), append(read.Y, y)
		}
		if b.Written > 0 {
			written.X, written.Y = append(written.X, math.Log10(b.Written)), append(written.Y, y)
		}
		y--
	}
	p.Y.Min, p.Y.Max = y+0.3, 1.6
	p.Y.Tick.Marker, p.Y.Tick.Length = names, 0
	p.Add(sheet.Grid{Vertical: true, Labelled: true}, ground, written, read)
	p.Add(heads...)
	p.Legend.Add("read", read)
	p.Legend.Add("written", written)
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p},
		Height: vg.Length(0.75+0.16*(p.Y.Max-p.Y.Min)) * vg.Inch}
}
