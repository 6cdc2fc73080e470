package figures

import (
	"image/color"
	"math"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// heatMap draws how often each place was touched, over time, a panel for each type of regions.
func heatMap(d *Data) *sheet.Picture {
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
		seconds(&p.X, 0, float64(d.Heat.Bins)*d.Heat.BinS)
		if i < len(panels)-1 {
			sheet.Bare(&p.X)
		}
	}
	height := vg.Length(0.5+1.15*float64(len(panels))) * vg.Inch
	return &sheet.Picture{Style: sheet.Page, Panels: panels, Height: height, Right: heatBar(low, high, d.Heat.BinS), RightWidth: vg.Points(44)}
}

// times is how often each byte of a cell was touched.
func (p *HeatPanel) times(cell int) float64 { return p.Touched[cell] * float64(p.Rows) / p.Bytes }

// span is the range of how often bytes were touched, in powers of ten.
func (h *Heat) span() (low, high float64) {
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

func heatPanel(h *Heat, from *HeatPanel, low, high float64) *plot.Plot {
	p := sheet.Page.Panel("")
	p.BackgroundColor = sheet.White
	u := of(byteUnits, from.Bytes)
	p.Y.Min, p.Y.Max = 0, from.Bytes/u.by
	ticks := sheet.Steps(0, p.Y.Max, 4)
	p.Y.Tick.Marker = ticks
	p.Y.Label.Text = from.Type + " (" + u.name + ")"
	cells := &sheet.Boxes{}
	for row := range from.Rows {
		y0, y1 := p.Y.Max*float64(row)/float64(from.Rows), p.Y.Max*float64(row+1)/float64(from.Rows)
		for bin := 0; bin < h.Bins; {
			fill := h.shade(from, row*h.Bins+bin, low, high)
			end := bin + 1
			for end < h.Bins && h.shade(from, row*h.Bins+end, low, high) == fill {
				end++
			}
			if fill != sheet.White {
				cells.All = append(cells.All, sheet.Box(float64(bin)*h.BinS, y0, float64(end)*h.BinS, y1, fill))
			}
			bin = end
		}
	}
	p.Add(cells)
	return p
}

// shadesOfHeat is how many colours there are, so that neighbours of one colour become one rectangle.
const shadesOfHeat = 24

// shade is the colour of a cell, white where nothing was touched.
func (h *Heat) shade(p *HeatPanel, cell int, low, high float64) color.NRGBA {
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
	p.Y.Label.Text = "touches of a byte in " + with(timeUnits, bin)
	p.Y.Tick.Marker = decades(low, high, 5, power)
	bar := &sheet.Boxes{}
	for i := range shadesOfHeat {
		y0, y1 := low+(high-low)*float64(i)/shadesOfHeat, low+(high-low)*float64(i+1)/shadesOfHeat
		bar.All = append(bar.All, sheet.Box(0, y0, 1, y1, sheet.Shade(float64(i)/(shadesOfHeat-1))))
	}
	p.Add(bar)
	return p
}
