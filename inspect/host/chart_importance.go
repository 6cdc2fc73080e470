package host

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/present"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// metricTexts are what axes call the metrics.
var metricTexts = []struct{ name, unit string }{
	{"off-CPU time", "ms"}, {"page faults", "1/s"}, {"CPU pressure", "%"}, {"I/O pressure", "%"},
	{"memory pressure", "%"},
}

// metricText is what people call a metric.
func metricText(name string) string {
	if i := slices.Index(metricNames[:], name); i >= 0 {
		return metricTexts[i].name
	}
	return name
}

// shownDevices is how many devices have dots beside the bars of all together.
const shownDevices = 7

// correlations draws how far metrics go with the latency: a bar for all devices, a dot for each.
func correlations(r *Report) *sheet.Picture {
	if r.Importance == nil {
		return nil
	}
	rows := r.Importance.Rows
	if !slices.ContainsFunc(rows, func(c ImportanceRow) bool { return c.R != nil }) {
		return nil // with too few snapshots, as a note says
	}
	whole := rows[0].DeviceID
	p := sheet.Screen.Panel(fmt.Sprintf("correlation of metrics with the latency (p%s)",
		percentText(r.Importance.Percent)))
	p.X.Label.Text = "Pearson's r; pale where chance explains it (q > 0.05)"
	p.X.Min, p.X.Max = -1, 1.9
	p.X.Tick.Marker = sheet.Fixed{{Value: -1, Label: "-1"}, {Value: -0.5, Label: "-0.5"}, {Value: 0, Label: "0"},
		{Value: 0.5, Label: "0.5"}, {Value: 1, Label: "1"}}
	p.Add(sheet.Grid{Vertical: true})
	bars, place := &sheet.Boxes{}, map[string]float64{}
	var names sheet.Fixed
	var notes []plot.Plotter
	for _, row := range rows {
		if row.DeviceID != whole {
			continue
		}
		y := -float64(len(place))
		place[row.Metric] = y
		names = append(names, plot.Tick{Value: y, Label: metricText(row.Metric)})
		words := row.Why
		if row.R != nil {
			fill := sheet.Blue
			if *row.R < 0 {
				fill = sheet.Red
			}
			if *row.Q > 0.05 {
				fill.A = 80
			}
			bars.All = append(bars.All, sheet.Box(min(0, *row.R), y-0.33, max(0, *row.R), y+0.33, fill))
			words = fmt.Sprintf("%+.2f, n %d, %s", *row.R, row.N, probability("q", *row.Q))
			if b := row.Best; b != nil && b.Lag != 0 {
				words += fmt.Sprintf("; %+.2f at lag %+d", *b.R, b.Lag)
			}
		}
		notes = append(notes, sheet.Note{X: 1.03, Y: y, Text: words, Align: draw.XLeft, Color: sheet.Black})
	}
	p.Y.Min, p.Y.Max = -float64(len(place))+0.4, 0.6
	p.Y.Tick.Marker = names
	p.Y.Tick.Length = 0
	p.Add(bars, sheet.Mark{X: 0, Color: sheet.Black})
	p.Add(notes...)
	addDevices(p, rows, whole, place)
	height := 1.3 + 0.45*float64(len(place))
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: vg.Length(height) * vg.Inch}
}

// addDevices adds a dot for each device and metric.
func addDevices(p *plot.Plot, rows []ImportanceRow, whole int64, place map[string]float64) {
	devices := map[int64]*sheet.Dots{}
	for _, row := range rows {
		if row.DeviceID == whole || row.R == nil || devices[row.DeviceID] == nil && len(devices) >= shownDevices {
			continue
		}
		dots := devices[row.DeviceID]
		if dots == nil {
			i := len(devices)
			dots = &sheet.Dots{Halo: true, Style: draw.GlyphStyle{Color: sheet.Curves[(i+1)%len(sheet.Curves)],
				Radius: vg.Points(3), Shape: glyphs[i%len(glyphs)]}}
			devices[row.DeviceID] = dots
			p.Add(dots)
			p.Legend.Add(row.Device, dots)
		}
		dots.X, dots.Y = append(dots.X, *row.R), append(dots.Y, place[row.Metric])
	}
	if len(devices) > 0 {
		p.Y.Max += 0.5 + 0.42*float64(len(devices))
	}
}

// glyphs distinguish devices where colours do not.
var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}

func probability(name string, p float64) string {
	if p < 0.0001 {
		return name + " < 0.0001"
	}
	return fmt.Sprintf("%s = %.4f", name, p)
}

// topOffCPU draws which ids were off the CPU most.
func topOffCPU(r *Report) *sheet.Picture {
	return top(r.OffCPU, "longest off-CPU time", "off-CPU time", sheet.Purple, 1e-3, "s")
}

// top draws ids with their bars.
func top(t *TopIDs, title, axis string, fill color.Color, by float64, unit string) *sheet.Picture {
	if t == nil || len(t.Top) == 0 {
		return nil
	}
	p := sheet.Screen.Panel(fmt.Sprintf("%s: %d of %d ids", title, len(t.Top), t.IDs))
	if p.X.Label.Text = axis; unit != "" {
		p.X.Label.Text += " (" + unit + ")"
	}
	bars := &sheet.Boxes{}
	var names sheet.Fixed
	var notes []plot.Plotter
	for i, row := range t.Top {
		y, v := -float64(i), row.Value*by
		name := row.ID
		if row.Name != "" {
			name += "  " + row.Name
		}
		names = append(names, plot.Tick{Value: y, Label: name})
		bars.All = append(bars.All, stack(row.By, y, v, by, fill)...)
		notes = append(notes, sheet.Note{X: v, Y: y, DX: 4,
			Text:  fmt.Sprintf("%s %s (%s)", threeDigits(v), unit, present.Percent(row.Share)),
			Align: text.XLeft, Color: sheet.Black})
	}
	p.X.Min, p.X.Max = 0, max(t.Top[0].Value*by, 1e-9)*1.16
	if t.By != nil { // and room for the legend
		p.X.Max *= 1.16
	}
	p.X.Tick.Marker = sheet.Steps(0, p.X.Max, 8)
	p.Y.Min, p.Y.Max = -float64(len(t.Top))+0.4, 0.6
	p.Y.Tick.Marker = names
	p.Y.Tick.Length = 0
	p.Add(sheet.Grid{Vertical: true}, bars)
	p.Add(notes...)
	if t.By != nil {
		for i, reason := range Reasons {
			p.Legend.Add(reason, &sheet.Boxes{All: []sheet.Rect{{Fill: byReason[i]}}})
		}
		p.Legend.Top = false
		p.Legend.YOffs = -p.Legend.YOffs
	}
	height := 1.1 + 0.33*float64(len(t.Top))
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: vg.Length(height) * vg.Inch}
}

// byReason are the colours of reasons for being off the CPU.
var byReason = [len(Reasons)]color.NRGBA{sheet.Orange, sheet.Blue, sheet.Purple, sheet.Gray}

// stack is the bar of an id: in pieces, where the reasons are known.
func stack(reasons *ByReason, y, v, by float64, fill color.Color) []sheet.Rect {
	bar := sheet.Box(0, y-0.36, v, y+0.36, fill)
	if reasons == nil {
		return []sheet.Rect{bar}
	}
	var pieces []sheet.Rect
	at := 0.0
	for i, part := range reasons.Values() {
		pieces = append(pieces, sheet.Box(at, bar.Y0, at+part*by, bar.Y1, byReason[i]))
		at += part * by
	}
	if at < v*0.999 { // for which no thread's line has a reason
		pieces = append(pieces, sheet.Box(at, bar.Y0, v, bar.Y1, sheet.Pale))
	}
	return pieces
}

// trends draws the latency and every metric that was recorded, above each other. One snapshot is not a trend.
func trends(r *Report) *sheet.Picture {
	if r.Importance == nil || len(r.Importance.Trend) < 2 {
		return nil
	}
	all := r.Importance.Trend
	c := newClock(all[0].Time, all[len(all)-1].Time)
	times := make([]float64, len(all))
	for i := range all {
		times[i] = all[i].Time
	}
	x, y := c.broken(times, func(i int) float64 { return all[i].LatencyUS })
	p := sheet.Screen.Panel("latency and metrics over time")
	p.Y.Label.Text = fmt.Sprintf("p%s ≤", percentText(r.Importance.Percent))
	low, high := maxKnown(y), maxKnown(y)
	for i, v := range y {
		if !math.IsNaN(v) {
			low, y[i] = min(low, v), lg(v)
		}
	}
	logAxis(&p.Y, max(least, low*0.8), high*1.25)
	p.Add(sheet.Both, sheet.NewCurve(x, y, sheet.Blue, 1.3))
	panels := []*plot.Plot{p}
	for m, name := range metricTexts {
		by, unit := 1.0, name.unit
		if m == metricOffCPU {
			by, unit = 1e-3, "s"
		}
		x, y := c.broken(times, func(i int) float64 { return all[i].Metric[m] * by })
		if !slices.ContainsFunc(y, func(v float64) bool { return !math.IsNaN(v) }) {
			continue
		}
		p := sheet.Screen.Panel("")
		p.Y.Label.Text = name.name + " (" + unit + ")"
		sheet.FromZero(&p.Y, maxKnown(y))
		p.Y.Tick.Marker = sheet.Steps(0, p.Y.Max, 3)
		p.Add(sheet.Both, sheet.NewCurve(x, y, sheet.Curves[(m+1)%len(sheet.Curves)], 1.3))
		panels = append(panels, p)
	}
	for i, p := range panels {
		c.axis(&p.X)
		if i < len(panels)-1 {
			sheet.Bare(&p.X)
		}
		p.Y.Label.TextStyle.Font.Size = vg.Points(8.5)
	}
	return &sheet.Picture{Style: sheet.Screen, Panels: panels,
		Height: vg.Length(0.8+1.35*float64(len(panels))) * vg.Inch}
}
