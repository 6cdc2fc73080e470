package intervene

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// heatKey is a cell of a heat map.
type heatKey struct{ layer, column int }

// heatMap are the effects of a point, by layer and by token or head; of several effects in a cell the largest.
type heatMap struct {
	point  string
	cells  map[heatKey]float64
	layers []int
}

// Picture draws the effects as heat maps, one for each point: layers by tokens, or by heads where one token was
// changed. It is nil without effects.
func (r *Report) Picture() *sheet.Picture {
	var maps []*heatMap
	var tokens, heads []int
	largest := 0.0
	for i := range r.Effects {
		if f := &r.Effects[i]; f.Token != nil {
			tokens = append(tokens, *f.Token)
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	for i := range r.Effects {
		f := &r.Effects[i]
		at := slices.IndexFunc(maps, func(m *heatMap) bool { return m.point == f.Point })
		if at < 0 {
			at, maps = len(maps), append(maps, &heatMap{f.Point, map[heatKey]float64{}, nil})
		}
		m, key := maps[at], heatKey{layer: -1}
		if f.Layer != nil {
			key.layer = *f.Layer
		}
		switch {
		case len(tokens) > 1 && f.Token != nil:
			key.column = slices.Index(tokens, *f.Token)
		case f.Head != nil:
			key.column = *f.Head
			heads = append(heads, *f.Head)
		}
		if x := f.Effect.Mean; math.Abs(x) >= math.Abs(m.cells[key]) {
			m.cells[key] = x
			largest = max(largest, math.Abs(x))
		}
		if !slices.Contains(m.layers, key.layer) {
			m.layers = append(m.layers, key.layer)
		}
	}
	if len(maps) == 0 {
		return nil
	}
	var columns []string
	for _, token := range tokens {
		columns = append(columns, quoted(r.Tokens[token]))
	}
	if len(heads) > 0 {
		columns = columns[:0]
		for h := range slices.Max(heads) + 1 {
			columns = append(columns, "head "+strconv.Itoa(h))
		}
	}
	p := &sheet.Picture{Style: sheet.Screen, Height: 0.4 * vg.Inch}
	p.Note = fmt.Sprintf("%s: %s, effect on %s of one change; blue raises it, red lowers it, full colour is %.4g",
		r.Model, r.Action, r.Metric, largest)
	for _, m := range maps {
		slices.Sort(m.layers)
		p.Panels = append(p.Panels, m.panel(columns, largest))
		p.Height += vg.Length(1+0.22*float64(len(m.layers))) * vg.Inch
	}
	return p
}

// panel draws a heat map.
func (m *heatMap) panel(columns []string, largest float64) *plot.Plot {
	p := sheet.Screen.Panel(m.point)
	boxes := &sheet.Boxes{}
	for key, x := range m.cells {
		shade := color.RGBA{0x21, 0x66, 0xac, 0xff}
		if x < 0 {
			shade = color.RGBA{0xb2, 0x18, 0x2b, 0xff}
		}
		share := math.Abs(x) / max(largest, 1e-300)
		for _, c := range []*uint8{&shade.R, &shade.G, &shade.B} {
			*c = uint8(255 - share*float64(255-*c))
		}
		at, y := float64(key.column), float64(slices.Index(m.layers, key.layer))
		boxes.All = append(boxes.All, sheet.Box(at, y, at+1, y+1, shade))
	}
	var across, up sheet.Fixed
	for i, name := range columns {
		if i%((len(columns)+15)/16) == 0 {
			across = append(across, plot.Tick{Value: float64(i) + 0.5, Label: name})
		}
	}
	for i, layer := range m.layers {
		if layer >= 0 && i%((len(m.layers)+15)/16) == 0 {
			up = append(up, plot.Tick{Value: float64(i) + 0.5, Label: strconv.Itoa(layer)})
		}
	}
	p.X.Min, p.X.Max, p.X.Tick.Marker, p.X.Tick.Length = 0, float64(max(len(columns), 1)), across, vg.Points(3)
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker, p.Y.Tick.Length = 0, float64(len(m.layers)), up, 0
	if m.layers[len(m.layers)-1] >= 0 { // embeddings are of no layer
		p.Y.Label.Text = "layer"
	}
	p.Add(boxes)
	return p
}
