package chart

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curve is values over time. It is broken where a value is NaN, and a value between two breaks is a dot.
type curve struct {
	x, y  []float64
	style draw.LineStyle
	dots  bool // at every value
}

// newCurve makes a curve; one of few values has dots.
func newCurve(x, y []float64, c color.Color, points float64) *curve {
	return &curve{x, y, draw.LineStyle{Color: c, Width: vg.Points(points)}, len(x) <= 60}
}

// Plot draws it.
func (l *curve) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	dot := draw.GlyphStyle{Color: l.style.Color, Radius: l.style.Width + vg.Points(0.8), Shape: draw.CircleGlyph{}}
	var line []vg.Point
	flush := func() {
		if len(line) > 1 {
			c.StrokeLines(l.style, c.ClipLinesXY(line)...)
		}
		if len(line) == 1 || l.dots {
			for _, at := range line {
				c.DrawGlyph(dot, at)
			}
		}
		line = line[:0]
	}
	for i := range l.x {
		if math.IsNaN(l.y[i]) {
			flush()
			continue
		}
		line = append(line, vg.Point{X: atX(l.x[i]), Y: atY(l.y[i])})
	}
	flush()
}

// Thumbnail draws its sample in a legend.
func (l *curve) Thumbnail(c *draw.Canvas) {
	style := l.style
	style.Width = max(style.Width, vg.Points(1.5))
	y := c.Center().Y
	c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
}

// box is a rectangle in the units of the axes.
type box struct {
	x0, y0, x1, y1 float64
	fill           color.Color
}

// boxes are filled rectangles, drawn from pixel to pixel, so that neighbours touch.
type boxes struct {
	all  []box
	line color.Color // around each; nil for none
}

// Plot draws them.
func (b *boxes) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	pixel := func(v vg.Length) vg.Length { return vg.Length(math.Round(float64(v)*dpi/72)) * 72 / dpi }
	clip := func(v, low, high vg.Length) vg.Length { return pixel(min(max(v, low), high)) }
	for _, r := range b.all {
		x0, x1 := clip(atX(r.x0), c.Min.X, c.Max.X), clip(atX(r.x1), c.Min.X, c.Max.X)
		y0, y1 := clip(atY(r.y0), c.Min.Y, c.Max.Y), clip(atY(r.y1), c.Min.Y, c.Max.Y)
		if x1 == x0 && r.x1 > r.x0 {
			x1 += 72.0 / dpi
		}
		if y1 == y0 && r.y1 > r.y0 {
			y1 += 72.0 / dpi
		}
		corners := []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
		c.FillPolygon(r.fill, corners)
		if b.line != nil {
			c.StrokeLines(draw.LineStyle{Color: b.line, Width: vg.Points(0.5)}, append(corners, corners[0]))
		}
	}
}

// Thumbnail draws a sample in a legend.
func (b *boxes) Thumbnail(c *draw.Canvas) {
	if len(b.all) > 0 {
		c.FillPolygon(b.all[0].fill, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y}})
	}
}

// rules are the lines of a grid, at the ticks that have labels.
type rules struct{ vertical, horizontal bool }

// Plot draws them.
func (r rules) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	style := draw.LineStyle{Color: pale, Width: vg.Points(0.5)}
	if r.vertical {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if t.Value >= p.X.Min && t.Value <= p.X.Max {
				c.StrokeLine2(style, atX(t.Value), c.Min.Y, atX(t.Value), c.Max.Y)
			}
		}
	}
	if r.horizontal {
		for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
			if t.Label != "" && t.Value >= p.Y.Min && t.Value <= p.Y.Max {
				c.StrokeLine2(style, c.Min.X, atY(t.Value), c.Max.X, atY(t.Value))
			}
		}
	}
}

// mark is a line across the chart at a value of the horizontal axis.
type mark struct {
	x     float64
	color color.Color
	dash  []vg.Length
}

// Plot draws it.
func (m mark) Plot(c draw.Canvas, p *plot.Plot) {
	atX, _ := p.Transforms(&c)
	if x := atX(m.x); x >= c.Min.X && x <= c.Max.X {
		c.StrokeLine2(draw.LineStyle{Color: m.color, Width: vg.Points(1), Dashes: m.dash}, x, c.Min.Y, x, c.Max.Y)
	}
}

// Thumbnail draws its sample in a legend.
func (m mark) Thumbnail(c *draw.Canvas) {
	x := c.Center().X
	c.StrokeLine2(draw.LineStyle{Color: m.color, Width: vg.Points(1.2), Dashes: m.dash}, x, c.Min.Y, x, c.Max.Y)
}

// note is words at a place of the chart, moved by so many points.
type note struct {
	x, y   float64
	dx, dy float64
	text   string
	align  text.XAlignment
	color  color.Color
}

// Plot writes them.
func (n note) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	style := p.X.Tick.Label
	style.Color, style.XAlign, style.YAlign = n.color, n.align, draw.YCenter
	c.FillText(style, vg.Point{X: atX(n.x) + vg.Points(n.dx), Y: atY(n.y) + vg.Points(n.dy+1.8)}, n.text)
}
