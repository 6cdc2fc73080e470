package sheet

import (
	"image"
	"image/color"
	pixels "image/draw"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Curve is values over another value. It is broken where a value is NaN, and a value between two breaks is a dot.
type Curve struct {
	X, Y   []float64
	Style  draw.LineStyle
	IsDots bool // at every value
}

// NewCurve makes a curve so many points wide; one of few values has dots.
func NewCurve(x, y []float64, c color.Color, points float64) *Curve {
	return &Curve{x, y, draw.LineStyle{Color: c, Width: vg.Points(points)}, len(x) <= 60}
}

// Plot draws it.
func (l *Curve) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	dot := draw.GlyphStyle{Color: l.Style.Color, Radius: l.Style.Width + vg.Points(0.8), Shape: draw.CircleGlyph{}}
	var line []vg.Point
	flush := func() {
		if len(line) > 1 {
			c.StrokeLines(l.Style, c.ClipLinesXY(line)...)
		}
		if len(line) == 1 || l.IsDots {
			for _, at := range line {
				c.DrawGlyph(dot, at)
			}
		}
		line = line[:0]
	}
	for i := range l.X {
		if math.IsNaN(l.Y[i]) {
			flush()
			continue
		}
		line = append(line, vg.Point{X: atX(l.X[i]), Y: atY(l.Y[i])})
	}
	flush()
}

// Thumbnail draws its sample in a legend.
func (l *Curve) Thumbnail(c *draw.Canvas) {
	style := l.Style
	if len(style.Dashes) == 0 { // a thicker line of dashes looks like another one
		style.Width = max(style.Width, vg.Points(1.5))
	}
	y := c.Center().Y
	c.StrokeLine2(style, c.Min.X, y, c.Max.X, y)
}

// Dots are points of one colour and shape.
type Dots struct {
	X, Y  []float64
	Style draw.GlyphStyle
	Halo  bool // each has a white rim, so that it shows on what is behind it
}

// Plot draws them.
func (d *Dots) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	halo := d.Style
	halo.Color, halo.Radius = White, halo.Radius+vg.Points(1)
	for i := range d.X {
		at := vg.Point{X: atX(d.X[i]), Y: atY(d.Y[i])}
		if d.Halo {
			c.DrawGlyph(halo, at)
		}
		c.DrawGlyph(d.Style, at)
	}
}

// Thumbnail draws a sample in a legend.
func (d *Dots) Thumbnail(c *draw.Canvas) { c.DrawGlyph(d.Style, c.Center()) }

// Rect is a rectangle in the units of the axes.
type Rect struct {
	X0, Y0, X1, Y1 float64
	Fill           color.Color
}

// Box is a rectangle from one corner to the other.
func Box(x0, y0, x1, y1 float64, fill color.Color) Rect { return Rect{x0, y0, x1, y1, fill} }

// Boxes are filled rectangles, drawn from pixel to pixel, so that neighbours touch.
type Boxes struct {
	All  []Rect
	Line color.Color // around each; nil for none
}

// mostBoxes is how many rectangles without lines are drawn one by one; more are one image of a pixel per place of
// the grid, which keeps SVG and PDF small.
const mostBoxes = 1000

// Plot draws them.
func (b *Boxes) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	pixel := func(v vg.Length) vg.Length { return vg.Length(math.Round(float64(v)*snap/72)) * 72 / snap }
	clip := func(v, low, high vg.Length) vg.Length { return pixel(min(max(v, low), high)) }
	number := func(v vg.Length) int { return int(math.Round(float64(v) * snap / 72)) }
	left, bottom, right, top := number(c.Min.X), number(c.Min.Y), number(c.Max.X), number(c.Max.Y)
	var picture *image.NRGBA
	if len(b.All) > mostBoxes && b.Line == nil {
		picture = image.NewNRGBA(image.Rect(0, 0, right-left, top-bottom))
	}
	for _, r := range b.All {
		x0, x1 := clip(atX(r.X0), c.Min.X, c.Max.X), clip(atX(r.X1), c.Min.X, c.Max.X)
		y0, y1 := clip(atY(r.Y0), c.Min.Y, c.Max.Y), clip(atY(r.Y1), c.Min.Y, c.Max.Y)
		if x1 == x0 && r.X1 > r.X0 {
			x1 += 72.0 / snap
		}
		if y1 == y0 && r.Y1 > r.Y0 {
			y1 += 72.0 / snap
		}
		if picture != nil {
			where := image.Rect(number(x0)-left, top-number(y1), number(x1)-left, top-number(y0))
			pixels.Draw(picture, where, image.NewUniform(r.Fill), image.Point{}, pixels.Over)
			continue
		}
		corners := []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
		c.FillPolygon(r.Fill, corners)
		if b.Line != nil {
			c.StrokeLines(draw.LineStyle{Color: b.Line, Width: vg.Points(0.5)}, append(corners, corners[0]))
		}
	}
	if picture != nil {
		c.DrawImage(vg.Rectangle{Min: vg.Point{X: pixel(c.Min.X), Y: pixel(c.Min.Y)},
			Max: vg.Point{X: pixel(c.Max.X), Y: pixel(c.Max.Y)}}, picture)
	}
}

// Thumbnail draws a sample in a legend.
func (b *Boxes) Thumbnail(c *draw.Canvas) {
	if len(b.All) > 0 {
		c.FillPolygon(b.All[0].Fill, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Max.X, Y: c.Min.Y},
			{X: c.Max.X, Y: c.Max.Y}, {X: c.Min.X, Y: c.Max.Y}})
	}
}

// Grid is lines at the ticks that have labels; vertical ones at all ticks, but with Labelled.
type Grid struct{ Vertical, Horizontal, Labelled bool }

// Both are lines of both kinds.
var Both = Grid{Vertical: true, Horizontal: true}

// Plot draws the grid.
func (r Grid) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	style := draw.LineStyle{Color: Pale, Width: vg.Points(0.5)}
	if r.Vertical {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if t.Value >= p.X.Min && t.Value <= p.X.Max && (t.Label != "" || !r.Labelled) {
				c.StrokeLine2(style, atX(t.Value), c.Min.Y, atX(t.Value), c.Max.Y)
			}
		}
	}
	if r.Horizontal {
		for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
			if t.Label != "" && t.Value >= p.Y.Min && t.Value <= p.Y.Max {
				c.StrokeLine2(style, c.Min.X, atY(t.Value), c.Max.X, atY(t.Value))
			}
		}
	}
}

// Mark is a line across the chart at a value of the horizontal axis.
type Mark struct {
	X     float64
	Color color.Color
	Dash  []vg.Length
}

// Plot draws it.
func (m Mark) Plot(c draw.Canvas, p *plot.Plot) {
	atX, _ := p.Transforms(&c)
	if x := atX(m.X); x >= c.Min.X && x <= c.Max.X {
		c.StrokeLine2(draw.LineStyle{Color: m.Color, Width: vg.Points(1), Dashes: m.Dash}, x, c.Min.Y, x, c.Max.Y)
	}
}

// Thumbnail draws its sample in a legend.
func (m Mark) Thumbnail(c *draw.Canvas) {
	x := c.Center().X
	c.StrokeLine2(draw.LineStyle{Color: m.Color, Width: vg.Points(1.2), Dashes: m.Dash}, x, c.Min.Y, x, c.Max.Y)
}

// Note is words at a place of the chart, moved by so many points.
type Note struct {
	X, Y   float64
	DX, DY float64
	Text   string
	Align  text.XAlignment
	Color  color.Color
}

// Plot writes them.
func (n Note) Plot(c draw.Canvas, p *plot.Plot) {
	atX, atY := p.Transforms(&c)
	style := p.X.Tick.Label
	style.Color, style.XAlign, style.YAlign = n.Color, n.Align, draw.YCenter
	c.FillText(style, vg.Point{X: atX(n.X) + vg.Points(n.DX), Y: atY(n.Y) + vg.Points(n.DY+1.8)}, n.Text)
}
