package memory

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/present"
)

// Picture draws what was read and written by type of region, on one logarithmic axis: reads are many times the writes.
// It is nil where no access has a size.
func (r *Report) Picture() *sheet.Picture {
	types := slices.Clone(r.Types)
	types = slices.DeleteFunc(types, func(t Type) bool { return t.BytesRead+t.BytesWritten == 0 })
	if len(types) == 0 {
		return nil
	}
	read := &sheet.Dots{Style: draw.GlyphStyle{Color: sheet.Blue, Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}}
	written := &sheet.Dots{Style: draw.GlyphStyle{Color: sheet.Orange, Radius: vg.Points(4.5),
		Shape: draw.SquareGlyph{}}} // hollow: with a dot in it both are seen
	var names sheet.Fixed
	var values []plot.Plotter
	low, high := math.Inf(1), math.Inf(-1)
	for i, t := range types {
		y := float64(len(types) - i)
		name := t.Type
		if t.Source != "" {
			name += " (" + t.Source + ")"
		}
		names = append(names, plot.Tick{Value: y, Label: name})
		for _, b := range []struct {
			to    *sheet.Dots
			bytes uint64
			above float64
		}{{read, t.BytesRead, 9}, {written, t.BytesWritten, -9}} {
			if b.bytes == 0 {
				continue
			}
			x := math.Log10(float64(b.bytes))
			low, high = min(low, x), max(high, x)
			b.to.X, b.to.Y = append(b.to.X, x), append(b.to.Y, y)
			values = append(values, sheet.Note{X: x, Y: y, DY: b.above, Text: present.Bytes(b.bytes),
				Align: text.XCenter, Color: b.to.Style.Color})
		}
	}
	p := sheet.Screen.Panel(fmt.Sprintf("Bytes read and written by type of memory in %s", present.Seconds(r.Seconds())))
	p.X.Label.Text = "bytes"
	p.X.Min, p.X.Max = math.Floor(low-0.05), math.Ceil(high+0.05)
	p.X.Tick.Marker = sheet.Decades(p.X.Min, p.X.Max, 8, sheet.ByteDecade)
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker, p.Y.Tick.Length = 0.4, float64(len(types))+1.1, names, 0
	p.Add(sheet.Both, written, read)
	p.Add(values...)
	p.Legend.Add("read", read)
	p.Legend.Add("written", written)
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Note: filepath.Base(r.Path),
		Height: vg.Length(1.2+0.5*float64(len(types))) * vg.Inch}
}
