package sheet

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/llamatap/llamatap/store/rundir"
)

// Style is the size of pictures and of what is written in them.
type Style struct {
	Width              vg.Length // the usual one
	DPI                int       // of PNG
	Title, Label, Tick float64   // points
}

// The styles: for a screen, and for a column of a journal (89 mm) or a whole page (183 mm), where nothing is below
// 6 points.
var (
	Screen = Style{Width: 10 * vg.Inch, DPI: 150, Title: 12, Label: 10, Tick: 9}
	Column = Style{Width: 89 * vg.Millimeter, DPI: 300, Title: 8, Label: 7, Tick: 6.5}
	Page   = Style{Width: 183 * vg.Millimeter, DPI: 300, Title: 8, Label: 7, Tick: 6.5}
)

// snap is the grid to which rectangles are drawn, in dots per inch.
const snap = 150

// The colours of curves and bars; they can be distinguished by those who see no red or green.
var (
	Blue   = color.NRGBA{0x33, 0x6b, 0xa8, 255}
	Orange = color.NRGBA{0xe0, 0x7b, 0x27, 255}
	Green  = color.NRGBA{0x2a, 0x8c, 0x5a, 255}
	Red    = color.NRGBA{0xbd, 0x31, 0x1e, 255}
	Purple = color.NRGBA{0x8a, 0x4d, 0x9e, 255}
	Cyan   = color.NRGBA{0x2c, 0x9f, 0xb8, 255}
	Gray   = color.NRGBA{0x80, 0x80, 0x80, 255}
	Pale   = color.NRGBA{0xe6, 0xe6, 0xe6, 255}
	Black  = color.NRGBA{0x20, 0x20, 0x20, 255}
	White  = color.NRGBA{255, 255, 255, 255}
)

// Curves are the colours of several curves in one chart.
var Curves = []color.NRGBA{Blue, Orange, Green, Red, Purple, Cyan, Gray, {0x6b, 0x5a, 0x2e, 255}}

// Picture is panels above each other, which share their horizontal axis if there are several.
type Picture struct {
	Style  Style
	Panels []*plot.Plot
	Height vg.Length
	// Right is drawn beside the panels, RightWidth wide; nil for none.
	Right      *plot.Plot
	RightWidth vg.Length
	// Warning is drawn in red above everything, as of a run that is not to be published; "" for none.
	Warning string
	// Note is drawn small and gray below everything: what the picture is of; "" for none.
	Note string
}

// Forms are the forms of pictures, by the ends of their files' names.
var Forms = []string{"png", "svg", "pdf"}

// ParseForms reads a list of forms ([Forms]) with commas; "" is all.
func ParseForms(list string) ([]string, error) {
	var forms []string
	for form := range strings.SplitSeq(list, ",") {
		switch form = strings.ToLower(strings.TrimSpace(form)); {
		case form == "":
		case !slices.Contains(Forms, form):
			last := len(Forms) - 1
			return nil, fmt.Errorf("unsupported image format %.20q: use %s or %s", form,
				strings.Join(Forms[:last], ", "), Forms[last])
		case !slices.Contains(forms, form):
			forms = append(forms, form)
		}
	}
	if forms == nil {
		return Forms, nil
	}
	return forms, nil
}

// The rooms of a warning and of a note.
const warningHeight, noteHeight = 12, 10

// Panel makes an empty chart.
func (s Style) Panel(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	sans(&p.Title.TextStyle, s.Title)
	p.Title.TextStyle.Font.Weight = 3 // bold
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		sans(&axis.Label.TextStyle, s.Label)
		sans(&axis.Tick.Label, s.Tick)
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = Gray, Gray
		axis.Tick.Length = vg.Points(5)
		axis.Padding = 0
		axis.Label.Padding = vg.Points(3)
	}
	sans(&p.Legend.TextStyle, s.Tick)
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	p.Legend.ThumbnailWidth = vg.Points(16)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(-6), vg.Points(-4)
	return p
}

// sans makes a style one without serifs, of so many points.
func sans(style *text.Style, points float64) {
	style.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(points))
	style.Color = Black
}

// Save draws the picture and writes it, as PNG, SVG or PDF by the name's end. The file is there when it is whole.
func (p *Picture) Save(path string) error {
	height := p.Height
	if p.Warning != "" {
		height += warningHeight
	}
	if p.Note != "" {
		height += noteHeight
	}
	switch filepath.Ext(path) {
	case ".svg":
		canvas := vgsvg.NewWith(vgsvg.UseWH(p.Style.Width, height))
		canvas.SetColor(White)
		canvas.Fill(vg.Rectangle{Max: vg.Point{X: p.Style.Width, Y: height}}.Path())
		p.draw(draw.New(canvas))
		return write(path, named{canvas})
	case ".pdf":
		canvas := vgpdf.New(p.Style.Width, height)
		p.draw(draw.New(outlined{canvas}))
		return write(path, canvas)
	}
	canvas := vgimg.NewWith(vgimg.UseWH(p.Style.Width, height), vgimg.UseDPI(p.Style.DPI),
		vgimg.UseBackgroundColor(White))
	p.draw(draw.New(canvas))
	return write(path, vgimg.PngCanvas{Canvas: canvas})
}

// SaveForms saves the picture in these forms, under a path to which it adds their ends, and returns the paths. It
// removes files of an earlier call in all other forms; in all forms if the picture is nil.
func (p *Picture) SaveForms(base string, forms []string) (paths []string, err error) {
	for _, form := range Forms {
		path := base + "." + form
		if p == nil || !slices.Contains(forms, form) {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return paths, fmt.Errorf("remove an old figure: %w", err)
			}
			continue
		}
		if err := p.Save(path); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// named is a picture in SVG whose texts name fonts instead of holding them: those that have the widths of
// Liberation Sans, and any other without serifs.
type named struct{ *vgsvg.Canvas }

// WriteTo writes it.
func (n named) WriteTo(w io.Writer) (int64, error) {
	var text bytes.Buffer
	if _, err := n.Canvas.WriteTo(&text); err != nil {
		return 0, err
	}
	family := []byte("font-family:Liberation Sans")
	all := bytes.ReplaceAll(text.Bytes(), family, append(family, ",Arial,Helvetica,sans-serif"...))
	// What vgsvg embeds are PNG images, and they fill their place whatever its shape.
	all = bytes.ReplaceAll(all, []byte(`xlink:href="data:image/jpg;`),
		[]byte(`preserveAspectRatio="none" xlink:href="data:image/png;`))
	written, err := w.Write(all)
	return int64(written), err
}

// draw draws the panels, so that their axes stand above each other.
func (p *Picture) draw(c draw.Canvas) {
	const margin = 8
	c = draw.Crop(c, margin, -margin-4, margin, -margin)
	room := c.Max.X - c.Min.X
	if p.Warning != "" {
		style := draw.TextStyle{XAlign: draw.XCenter, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
		sans(&style, p.Style.Label)
		style.Font.Weight, style.Color = 3, Red
		text := fit(&style, p.Warning, room)
		c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y}, text)
		c = draw.Crop(c, 0, 0, 0, -warningHeight)
	}
	if p.Note != "" {
		style := draw.TextStyle{XAlign: draw.XLeft, YAlign: draw.YBottom, Handler: plot.DefaultTextHandler}
		sans(&style, leastPoints)
		style.Color = Gray
		text := fit(&style, p.Note, room)
		c.FillText(style, c.Min, text)
		c = draw.Crop(c, 0, 0, noteHeight, 0)
	}
	beside := c
	if p.Right != nil {
		c = draw.Crop(c, 0, -p.RightWidth-vg.Points(8), 0, 0)
	}
	rows := make([][]*plot.Plot, len(p.Panels))
	for i, panel := range p.Panels {
		rows[i] = []*plot.Plot{panel}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Points(4)}
	for _, panel := range p.Panels {
		panel.Title.Text = fit(&panel.Title.TextStyle, panel.Title.Text, c.Max.X-c.Min.X)
	}
	aligned := plot.Align(rows, tiles, c)
	for i, row := range aligned {
		p.Panels[i].Draw(row[0])
	}
	if p.Right != nil {
		last := len(aligned) - 1
		area := p.Panels[0].DataCanvas(aligned[0][0])
		area.Min.Y = p.Panels[last].DataCanvas(aligned[last][0]).Min.Y
		level(p.Right, draw.Crop(beside, beside.Max.X-beside.Min.X-p.RightWidth, 0, 0, 0), area)
	}
}

// leastPoints is how small letters may be.
const leastPoints = 6

// fit makes a line of text no wider than its room: it lessens the size of the style, and if that is not enough
// leaves out the middle of the text.
func fit(style *text.Style, line string, room vg.Length) string {
	for style.Width(line) > room && style.Font.Size > vg.Points(leastPoints) {
		style.Font.Size = max(style.Font.Size-vg.Points(0.25), vg.Points(leastPoints))
	}
	all := []rune(line)
	for keep := len(all) - 1; keep > 1 && style.Width(line) > room; keep-- {
		line = string(all[:(keep+1)/2]) + "…" + string(all[len(all)-keep/2:])
	}
	return line
}

// level draws a chart so that its own area is as high and stands as high as another one's.
func level(p *plot.Plot, c, other draw.Canvas) {
	own := p.DataCanvas(c)
	p.Draw(draw.Crop(c, 0, 0, other.Min.Y-own.Min.Y, other.Max.Y-own.Max.Y))
}

// Shades are the colours of a heat map, from few to many.
var Shades = []color.NRGBA{{0xf1, 0xf7, 0xd9, 255}, {0xc7, 0xe9, 0xb4, 255}, {0x7f, 0xcd, 0xbb, 255},
	{0x41, 0xb6, 0xc4, 255}, {0x22, 0x5e, 0xa8, 255}, {0x14, 0x2d, 0x6e, 255}, {0x06, 0x10, 0x30, 255}}

// Shade is the colour of a share from 0 to 1.
func Shade(share float64) color.NRGBA {
	at := min(max(share, 0), 1) * float64(len(Shades)-1)
	i := min(int(at), len(Shades)-2)
	part := at - float64(i)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a)*(1-part) + float64(b)*part)) }
	a, b := Shades[i], Shades[i+1]
	return color.NRGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// write writes a file that is there when it is whole.
func write(path string, picture io.WriterTo) error {
	err := rundir.WriteFile(path, 0o600, func(w io.Writer) error {
		_, err := picture.WriteTo(w)
		return err
	})
	if err != nil {
		return fmt.Errorf("write chart %s: %w", path, err)
	}
	return nil
}
