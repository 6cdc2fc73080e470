package chart

import (
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// dpi is the resolution of pictures, and width the usual width.
const (
	dpi   = 150
	width = 10 * vg.Inch
)

// The colours of curves and bars; they can be told apart by those who see no red or green.
var (
	blue   = color.NRGBA{0x33, 0x6b, 0xa8, 255}
	orange = color.NRGBA{0xe0, 0x7b, 0x27, 255}
	green  = color.NRGBA{0x2a, 0x8c, 0x5a, 255}
	red    = color.NRGBA{0xbd, 0x31, 0x1e, 255}
	purple = color.NRGBA{0x8a, 0x4d, 0x9e, 255}
	cyan   = color.NRGBA{0x2c, 0x9f, 0xb8, 255}
	gray   = color.NRGBA{0x80, 0x80, 0x80, 255}
	pale   = color.NRGBA{0xe6, 0xe6, 0xe6, 255}
	black  = color.NRGBA{0x20, 0x20, 0x20, 255}
	white  = color.NRGBA{255, 255, 255, 255}
)

// curves are the colours of several curves in one chart.
var curves = []color.NRGBA{blue, orange, green, red, purple, cyan, gray, {0x6b, 0x5a, 0x2e, 255}}

// picture is panels above each other, which share their horizontal axis if there are several.
type picture struct {
	panels []*plot.Plot
	height vg.Length
	// right is drawn beside the panels, rightWidth wide; nil for none.
	right      *plot.Plot
	rightWidth vg.Length
}

// newPanel makes an empty chart.
func newPanel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	sans(&p.Title.TextStyle, 12)
	p.Title.TextStyle.Font.Weight = 3 // bold
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		sans(&axis.Label.TextStyle, 10)
		sans(&axis.Tick.Label, 9)
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = gray, gray
		axis.Tick.Length = vg.Points(5)
		axis.Padding = 0
		axis.Label.Padding = vg.Points(3)
	}
	sans(&p.Legend.TextStyle, 9)
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	p.Legend.ThumbnailWidth = vg.Points(16)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(-6), vg.Points(-4)
	return p
}

// sans makes a style one without serifs, of so many points.
func sans(style *text.Style, points float64) {
	style.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(points))
	style.Color = black
}

// save draws the picture and writes it.
func (p *picture) save(path string) error {
	canvas := vgimg.NewWith(vgimg.UseWH(width, p.height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(white))
	p.draw(draw.New(canvas))
	return write(path, func(file *os.File) error {
		_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(file)
		return err
	})
}

// draw draws the panels, so that their axes stand above each other.
func (p *picture) draw(c draw.Canvas) {
	const margin = 8
	c = draw.Crop(c, margin, -margin-4, margin, -margin)
	beside := c
	if p.right != nil {
		c = draw.Crop(c, 0, -p.rightWidth-vg.Points(8), 0, 0)
	}
	rows := make([][]*plot.Plot, len(p.panels))
	for i, panel := range p.panels {
		rows[i] = []*plot.Plot{panel}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Points(4)}
	for i, row := range plot.Align(rows, tiles, c) {
		p.panels[i].Draw(row[0])
	}
	if p.right != nil {
		level(p.right, draw.Crop(beside, beside.Max.X-beside.Min.X-p.rightWidth, 0, 0, 0), p.panels[0].DataCanvas(c))
	}
}

// level draws a chart so that its own area is as high and stands as high as another one's.
func level(p *plot.Plot, c, other draw.Canvas) {
	own := p.DataCanvas(c)
	p.Draw(draw.Crop(c, 0, 0, other.Min.Y-own.Min.Y, other.Max.Y-own.Max.Y))
}
