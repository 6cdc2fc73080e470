package analyze

import (
	"image"
	"image/color"
	"math"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// heatMap draws how often each place was touched, over time, a panel for each type of regions.
func heatMap(d *figureData) *sheet.Picture {
	if d.Heat == nil || len(d.Heat.Panels) == 0 || d.Heat.Bins == 0 {
		return nil
	}
	low, high := d.Heat.span()
	if high < low {
		return nil
	}
	var panels []*plot.Plot
	for i := range d.Heat.Panels {
		panels = append(panels, heatPanel(d.Heat, &d.Heat.Panels[i], low, high))
	}
	panels[0].Title.Text = d.Title
	for i, p := range panels {
		sheet.TimeAxis(&p.X, 0, float64(d.Heat.Bins)*d.Heat.BinS)
		if i < len(panels)-1 {
			sheet.Bare(&p.X)
		}
	}
	height := vg.Length(0.5+1.15*float64(len(panels))) * vg.Inch
	return &sheet.Picture{Style: sheet.Page, Panels: panels, Height: height, Right: heatBar(low, high, d.Heat.BinS),
		RightWidth: vg.Points(44)}
}

// timesPower is how often each byte of a cell was touched.
func (p *heatPanelData) times(cell int) float64 { return p.Touched[cell] * float64(p.Rows) / p.Bytes }

// span is the range of how often bytes were touched, in powers of ten.
func (h *heatData) span() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for i := range h.Panels {
		p := &h.Panels[i]
		for cell, bytes := range p.Touched {
			if bytes > 0 {
				v := math.Log10(p.times(cell))
				low, high = min(low, v), max(high, v)
			}
		}
	}
	low = max(low, high-5) // what is below is as pale as that
	if high-low < 1 {
		low, high = low-0.5, high+0.5
	}
	return low, high
}

func heatPanel(h *heatData, from *heatPanelData, low, high float64) *plot.Plot {
	p := sheet.Page.Panel("")
	p.BackgroundColor = sheet.White
	u := sheet.UnitOf(sheet.ByteUnits, from.Bytes)
	p.Y.Min, p.Y.Max = 0, from.Bytes/u.By
	ticks := sheet.Steps(0, p.Y.Max, 4)
	p.Y.Tick.Marker = ticks
	p.Y.Label.Text = from.Type + " (" + u.Name + ")"
	p.Add(&heatCells{h, from, low, high})
	return p
}

// heatCells draws the cells of a panel as one image: as rectangles they would make SVG and PDF large.
type heatCells struct {
	heat      *heatData
	panel     *heatPanelData
	low, high float64
}

// Least pixels of the image, so that the edges of its cells are sharp in print.
const heatWidth, heatHeight = 2000, 320

// Plot draws them.
func (m *heatCells) Plot(c draw.Canvas, p *plot.Plot) {
	bins, rows := m.heat.Bins, m.panel.Rows
	wide, high := (heatWidth+bins-1)/bins, (heatHeight+rows-1)/rows
	picture := image.NewPaletted(image.Rect(0, 0, bins*wide, rows*high), nil)
	codes := map[color.NRGBA]uint8{}
	for row := range rows {
		for bin := range bins {
			fill := m.heat.shade(m.panel, row*bins+bin, m.low, m.high)
			code, ok := codes[fill]
			if !ok {
				code = uint8(len(codes)) // there are few shades
				codes[fill], picture.Palette = code, append(picture.Palette, fill)
			}
			top := (rows - 1 - row) * high
			for y := top; y < top+high; y++ {
				for x := bin * wide; x < (bin+1)*wide; x++ {
					picture.SetColorIndex(x, y, code)
				}
			}
		}
	}
	atX, atY := p.Transforms(&c)
	c.DrawImage(vg.Rectangle{Min: vg.Point{X: atX(0), Y: atY(0)},
		Max: vg.Point{X: atX(float64(bins) * m.heat.BinS), Y: atY(p.Y.Max)}}, picture)
}

// shadesOfHeat is how many colours there are.
const shadesOfHeat = 24

// shade is the colour of a cell, white where nothing was touched.
func (h *heatData) shade(p *heatPanelData, cell int, low, high float64) color.NRGBA {
	if p.Touched[cell] <= 0 {
		return sheet.White
	}
	share := (math.Log10(p.times(cell)) - low) / (high - low)
	return sheet.Shade(math.Round(min(max(share, 0), 1)*(shadesOfHeat-1)) / (shadesOfHeat - 1))
}

// heatBar explains the colours.
func heatBar(low, high, bin float64) *plot.Plot {
	p := sheet.Page.Panel(" ")
	p.HideX()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, low, high
	p.Y.Label.Text = "touches of a byte in " + sheet.WithUnit(sheet.TimeUnits, bin)
	p.Y.Tick.Marker = sheet.Decades(low, high, 5, sheet.Power)
	bar := &sheet.Boxes{}
	for i := range shadesOfHeat {
		y0, y1 := low+(high-low)*float64(i)/shadesOfHeat, low+(high-low)*float64(i+1)/shadesOfHeat
		bar.All = append(bar.All, sheet.Box(0, y0, 1, y1, sheet.Shade(float64(i)/(shadesOfHeat-1))))
	}
	p.Add(bar)
	return p
}
