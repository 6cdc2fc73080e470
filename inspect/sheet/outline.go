package sheet

import (
	"image"
	"image/color"

	"golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// outlined is a canvas that draws letters as shapes: a PDF has no font then, whose encoding would lack letters such
// as ≤.
type outlined struct{ vg.CanvasSizer }

// SetColor sets the colour of what is drawn next. The canvas of PDF takes the parts of a colour as they are, and
// its opacity beside them.
func (o outlined) SetColor(c color.Color) {
	o.CanvasSizer.SetColor(straight(color.NRGBAModel.Convert(c).(color.NRGBA)))
}

// straight is a colour whose parts are not multiplied by its opacity.
type straight color.NRGBA

// RGBA returns its parts.
func (s straight) RGBA() (r, g, b, a uint32) {
	return uint32(s.R) * 0x101, uint32(s.G) * 0x101, uint32(s.B) * 0x101, uint32(s.A) * 0x101
}

// DrawImage draws an image, which the canvas of PDF would turn upside down.
func (o outlined) DrawImage(r vg.Rectangle, picture image.Image) {
	b := picture.Bounds()
	turned := image.NewNRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	for y := range b.Dy() {
		for x := range b.Dx() {
			turned.Set(x, y, picture.At(b.Min.X+x, b.Max.Y-1-y))
		}
	}
	o.CanvasSizer.DrawImage(r, turned)
}

// FillString draws a text.
func (o outlined) FillString(face plotfont.Face, at vg.Point, text string) {
	units := fixed.Int26_6(face.Face.UnitsPerEm())
	scale := face.Font.Size / vg.Length(units)
	var buf sfnt.Buffer
	var before sfnt.GlyphIndex
	var path vg.Path
	x := at.X
	for i, letter := range text {
		glyph, err := face.Face.GlyphIndex(&buf, letter)
		if err != nil {
			continue
		}
		if i > 0 {
			if kern, err := face.Face.Kern(&buf, before, glyph, units, font.HintingNone); err == nil {
				x += vg.Length(kern) * scale
			}
		}
		before = glyph
		if segments, err := face.Face.LoadGlyph(&buf, glyph, units, nil); err == nil && len(segments) > 0 {
			path = appendShape(path, segments, vg.Point{X: x, Y: at.Y}, scale)
		}
		if width, err := face.Face.GlyphAdvance(&buf, glyph, units, font.HintingNone); err == nil {
			x += vg.Length(width) * scale
		}
	}
	if len(path) > 0 {
		o.Fill(path)
	}
}

// appendShape appends a letter at a place to a path.
func appendShape(path vg.Path, segments sfnt.Segments, at vg.Point, scale vg.Length) vg.Path {
	place := func(p fixed.Point26_6) vg.Point { // of a font, y goes down
		return vg.Point{X: at.X + vg.Length(p.X)*scale, Y: at.Y - vg.Length(p.Y)*scale}
	}
	for i, s := range segments {
		switch s.Op {
		case sfnt.SegmentOpMoveTo:
			if i > 0 {
				path.Close()
			}
			path.Move(place(s.Args[0]))
		case sfnt.SegmentOpLineTo:
			path.Line(place(s.Args[0]))
		case sfnt.SegmentOpQuadTo:
			path.QuadTo(place(s.Args[0]), place(s.Args[1]))
		case sfnt.SegmentOpCubeTo:
			path.CubeTo(place(s.Args[0]), place(s.Args[1]), place(s.Args[2]))
		}
	}
	path.Close()
	return path
}
