package analyze

import (
	"fmt"
	"image/color"
	"math"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// stroke is the mark of a censored life: a short vertical line.
type stroke struct{}

// DrawGlyph draws one.
func (stroke) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	line := draw.LineStyle{Color: style.Color, Width: vg.Points(0.6)}
	c.StrokeLine2(line, at.X, at.Y-style.Radius, at.X, at.Y+style.Radius)
}

// strokes are such marks in a colour.
func strokes(c color.Color) *sheet.Dots {
	return &sheet.Dots{Style: draw.GlyphStyle{Color: c, Radius: vg.Points(2.5), Shape: stroke{}}}
}

// retention draws for which share of what is written it is needed for at most so long: by Kaplan and Meier, and
// withUnit censored lives taken for ended ones.
func retention(d *figureData) *sheet.Picture {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range d.Lives {
		for step := range l.Survival.Steps() {
			if step.Duration > 0 {
				low, high = min(low, lg(step.Duration)), max(high, lg(step.Duration))
			}
		}
	}
	if high < low {
		return nil
	}
	low, high = math.Floor(low-0.3), math.Ceil(high+0.1)
	p := sheet.Column.Panel(d.Title)
	p.X.Label.Text, p.Y.Label.Text = "needed for at most (write to last read)", "share of bytes written"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, 0, 1.02
	p.X.Tick.Marker = sheet.Decades(low, high, 7, sheet.TimeDecade)
	p.Y.Tick.Marker = sheet.Steps(0, 1, 5)
	p.Add(gridLines)
	unclear := unresolved(d.Resolution, low)
	p.Add(unclear)
	threshold := &sheet.Curve{Style: draw.LineStyle{Color: sheet.Gray, Width: vg.Points(0.8),
		Dashes: []vg.Length{vg.Points(3), vg.Points(2)}}}
	for _, at := range []float64{0, 1} { // mrm-trace's thresholds
		if at >= low && at <= high {
			threshold.X, threshold.Y = append(threshold.X, at, at, at), append(threshold.Y, 0, 1, math.NaN())
		}
	}
	p.Add(threshold)
	names := 0
	for _, l := range d.Lives {
		if l.Survival == nil || l.Survival.Count == 0 {
			continue
		}
		km, plain, marks := steps(l, low, high)
		p.Add(plain, km, marks)
		share, _ := l.Survival.CensoredShare()
		p.Legend.Add(fmt.Sprintf("%s (%s written, %.0f %% censored)", l.Type,
			sheet.WithUnit(sheet.ByteUnits, float64(l.Survival.Count)), 100*share), km)
		names++
	}
	p.Legend.Add("censored", strokes(sheet.Black))
	p.Legend.Add("censored lives counted as ended", &sheet.Curve{Style: dashed(sheet.Black)})
	if len(threshold.X) > 0 {
		p.Legend.Add("1 s and 10 s, thresholds of mrm-trace", threshold)
		names++
	}
	if len(unclear.All) > 0 {
		p.Legend.Add("below the resolution of times", unclear)
		names++
	}
	beneath(p, names+2)
	return &sheet.Picture{Style: sheet.Column, Panels: []*plot.Plot{p},
		Height: vg.Length(2.2+0.13*float64(names+2)) * vg.Inch}
}

// unresolved is the part of the axis in which times are not exact.
func unresolved(seconds, low float64) *sheet.Boxes {
	b := &sheet.Boxes{}
	if x := math.Log10(max(seconds, 1e-30)); x > low {
		b.All = []sheet.Rect{sheet.Box(low, 0, x, 1, color.NRGBA{0xee, 0xee, 0xee, 255})}
	}
	return b
}

// gridLines are those of the grid: at ticks with labels.
var gridLines = sheet.Grid{Vertical: true, Horizontal: true, Labelled: true}

// beneath gives a legend of so many lines the room above the curves, which it else would cover.
func beneath(p *plot.Plot, lines int) {
	span := p.Y.Max - p.Y.Min
	p.Y.Max += span * 0.085 * float64(lines)
	p.Legend.Left = true
	p.Legend.XOffs = vg.Points(2)
}

func dashed(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: vg.Points(0.6), Dashes: []vg.Length{vg.Points(1.5), vg.Points(1.5)}}
}

// lg is a duration in ns as drawn on the axis, in powers of ten of seconds.
func lg(ns int64) float64 { return math.Log10(float64(ns) / 1e9) }

// steps are the curves of a type, which begin at the left edge and end at the right one where they have come to 1.
func steps(l typeLives, low, high float64) (km, plain *sheet.Curve, marks *sheet.Dots) {
	c := colorOf(l.Type)
	km = &sheet.Curve{Style: draw.LineStyle{Color: c, Width: vg.Points(1.2)}}
	plain = &sheet.Curve{Style: dashed(c)}
	marks = strokes(c)
	seen, dead, kmAt := int64(0), 0.0, low
	add := func(curve *sheet.Curve, x, from, to float64) {
		curve.X, curve.Y = append(curve.X, x, x), append(curve.Y, from, to)
	}
	add(km, low, 0, 0)
	add(plain, low, 0, 0)
	for step := range l.Survival.Steps() {
		x := low
		if step.Duration > 0 {
			x = lg(step.Duration)
		}
		add(km, x, dead, 1-step.Alive)
		dead, kmAt = 1-step.Alive, x
		before := float64(seen) / float64(l.Survival.Count)
		seen += step.Ended + step.Censored
		add(plain, x, before, float64(seen)/float64(l.Survival.Count))
		// On a curve that is one stroke beside the other nothing would be seen of them.
		if n := len(marks.X); step.Censored > 0 && (n == 0 || x-marks.X[n-1] > (high-low)/80) {
			marks.X, marks.Y = append(marks.X, x), append(marks.Y, dead)
		}
	}
	if dead > 1-1e-9 {
		add(km, high, dead, dead)
	} else {
		add(km, kmAt, dead, dead) // nobody knows what comes behind
	}
	add(plain, high, 1, 1)
	return km, plain, marks
}
