package report

import (
	"errors"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// ErrNoTime occurs when a run has nothing that can be drawn over time.
var ErrNoTime = errors.New("nothing of the run has a time: record with --tap-resource-level MINIMAL")

// maxPanels is how many charts a picture has.
const maxPanels = 5

// Save draws the charts over time above each other, and writes them as PNG, SVG or PDF by the end of the name.
func (p *Page) Save(path string) error {
	picture := &sheet.Picture{Style: sheet.Screen, Note: headline(p.Verdict)}
	from, to := math.Inf(1), math.Inf(-1)
	for _, s := range p.Sections {
		for _, c := range s.Charts {
			if !c.X.Time || len(picture.Panels) == maxPanels {
				continue
			}
			panel := sheet.Screen.Panel(c.Title)
			if c.Kind == drawnSpans {
				low, high := c.drawSpans(panel)
				from, to = min(from, low), max(to, high)
			} else {
				c.drawLines(panel)
			}
			picture.Panels = append(picture.Panels, panel)
		}
	}
	if !(to > from) {
		return ErrNoTime
	}
	for i, panel := range picture.Panels {
		panel.X.Min, panel.X.Max, panel.X.Label.Text = from, to, "time (s)"
		panel.X.Tick.Marker = sheet.Steps(from, to, 8)
		if i+1 < len(picture.Panels) {
			sheet.Bare(&panel.X)
		}
	}
	picture.Height = vg.Length(len(picture.Panels))*1.9*vg.Inch + 0.4*vg.Inch
	return picture.Save(path)
}

// colour is that of the series number i.
func (s *curve) colour(i int) color.Color {
	if s.Colour > 0 {
		i = s.Colour - 1
	}
	return sheet.Curves[i%len(sheet.Curves)]
}

// drawSpans draws spans in rows, and returns their time.
func (c *figure) drawSpans(p *plot.Plot) (from, to float64) {
	from, to = math.Inf(1), math.Inf(-1)
	for i, s := range c.Series {
		boxes := &sheet.Boxes{}
		for k, x := range s.X {
			y := float64(len(c.Rows) - s.Row[k])
			boxes.All = append(boxes.All, sheet.Box(x, y-0.9, x+s.W[k], y-0.1, s.colour(i)))
			from, to = min(from, x), max(to, x+s.W[k])
		}
		p.Add(boxes)
		p.Legend.Add(s.Name, boxes)
	}
	var ticks sheet.Fixed
	for i, name := range c.Rows {
		if len(c.Rows) <= 12 {
			ticks = append(ticks, plot.Tick{Value: float64(len(c.Rows)-i) - 0.5, Label: name})
		}
	}
	room := 0.12 * float64(len(c.Series)+1) // for the legend
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = 0, float64(len(c.Rows))*(1+room), ticks
	return from, to
}

// drawLines draws values over time.
func (c *figure) drawLines(p *plot.Plot) {
	most := 0.0
	p.Add(sheet.Both)
	for i, s := range c.Series {
		x, y := s.X, s.Y
		if s.Step {
			x, y = nil, nil
			for k := range s.X {
				if k > 0 {
					x, y = append(x, s.X[k]), append(y, s.Y[k-1])
				}
				x, y = append(x, s.X[k]), append(y, s.Y[k])
			}
		}
		curve := sheet.NewCurve(x, y, s.colour(i), 1.2)
		if curve.IsDots = !s.Line || len(x) == 1; !s.Line {
			curve.Style.Width = 0
		}
		most = max(most, slices.Max(y))
		p.Add(curve)
		if len(c.Series) > 1 {
			p.Legend.Add(s.Name, curve)
		}
	}
	p.Y.Label.Text = c.Y.Name
	if c.Y.Unit != "" && c.Y.Unit != c.Y.Name {
		p.Y.Label.Text += " (" + c.Y.Unit + ")"
	}
	sheet.FromZero(&p.Y, most)
}
