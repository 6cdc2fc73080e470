package host

import (
	"fmt"
	"math"
	"slices"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// edges are the bounds of a slot in µs: from its least latency to that of the next slot.
func edges(slot int) (low, high float64) {
	return max(least, float64(slotLow(slot))), float64(slotHigh(slot) + 1)
}

// span is the range that holds all slots of a device.
func span(d *Device) (low, high float64) {
	low, _ = edges(d.Buckets[0].Slot)
	_, high = edges(d.Buckets[len(d.Buckets)-1].Slot)
	return low, high
}

// histogram draws how many requests took how long.
func histogram(r *Report, d *Device) *sheet.Picture {
	if len(d.Buckets) == 0 {
		return nil
	}
	p := sheet.Screen.Panel(d.Name + ": latency of block requests")
	p.X.Label.Text, p.Y.Label.Text = "latency, in buckets from a power of two of µs to the next", "requests"
	bars, most := &sheet.Boxes{Line: sheet.White}, uint64(0)
	for _, b := range d.Buckets {
		low, high := edges(b.Slot)
		bars.All = append(bars.All, sheet.Box(lg(low), 0, lg(high), float64(b.Count), sheet.Blue))
		most = max(most, b.Count)
	}
	low, high := span(d)
	logAxis(&p.X, low, high*math.Pow(high/low, 0.28)) // with room for the legend
	sheet.FromZero(&p.Y, float64(most))
	p.Add(sheet.Grid{Horizontal: true}, bars)
	p.Legend.Add(fmt.Sprintf("%d requests", d.Requests), bars)
	if d.MeanUS != nil {
		m := sheet.Mark{X: lg(*d.MeanUS), Color: sheet.Black, Dash: []vg.Length{vg.Points(2), vg.Points(2)}}
		p.Add(m)
		p.Legend.Add("mean ≈ "+latencyText(*d.MeanUS), m)
	}
	for i, q := range d.Percentiles {
		m := sheet.Mark{X: lg(float64(q.AtMostUS) + 1), Color: sheet.Curves[(i+1)%len(sheet.Curves)]}
		p.Add(m)
		p.Legend.Add(fmt.Sprintf("p%s ≤ %s", percentText(q.Percent), latencyText(float64(q.AtMostUS))), m)
	}
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: 4 * vg.Inch}
}

// percentiles draws latencies over time.
func percentiles(r *Report, d *Device) *sheet.Picture {
	if len(d.Buckets) == 0 || len(d.Series) == 0 {
		return nil
	}
	p := sheet.Screen.Panel(d.Name + ": percentiles of latency")
	p.Y.Label.Text = "latency at most"
	times := recorded(r)
	times.axis(&p.X)
	low, high := math.Inf(1), 0.0
	type line struct {
		name string
		*sheet.Curve
	}
	var lines []line
	series := thin(d.Series)
	for i, q := range d.Percentiles {
		x, y := values(series, times, func(at *Point) float64 {
			slot, ok := at.Latency.Percentile(q.Percent)
			if !ok {
				return math.NaN()
			}
			v := max(least, float64(slotHigh(slot)))
			low, high = min(low, v), max(high, v)
			return lg(v)
		})
		n := len(d.Percentiles)
		lines = append(lines, line{"p" + percentText(q.Percent),
			curve(series, x, y, sheet.Curves[i%len(sheet.Curves)], 1+0.9*float64(i)/float64(n))})
	}
	if high == 0 {
		return nil // no snapshot with requests has a time
	}
	logAxis(&p.Y, max(least, low*0.8), high*1.25*math.Pow(high/low, 0.2)) // with room above for the legend
	p.Add(sheet.Both)
	for _, l := range slices.Backward(lines) { // where they are equal the lowest is seen, thin on those behind it
		p.Add(l.Curve)
		p.Legend.Add(l.name, l.Curve)
	}
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: 4 * vg.Inch}
}

// heatMap draws which latencies there were when.
func heatMap(r *Report, d *Device) *sheet.Picture {
	if len(d.Buckets) == 0 || len(d.Series) == 0 {
		return nil
	}
	p := sheet.Screen.Panel(d.Name + ": latencies over time")
	p.Y.Label.Text = "latency"
	p.BackgroundColor = sheet.White
	times := recorded(r)
	times.axis(&p.X)
	low, high := span(d)
	logAxis(&p.Y, low, high)
	cells := &sheet.Boxes{}
	most := usual(d.Series)
	cells.All = append(cells.All, sheet.Box(p.X.Min, p.Y.Min, p.X.Max, p.Y.Max, sheet.Pale))
	for i := range r.All.Series {
		x0, x1 := column(r.All.Series, i)
		cells.All = append(cells.All, sheet.Box(times.at(x0), p.Y.Min, times.at(x1), p.Y.Max, sheet.White))
	}
	ground := len(cells.All)
	for i := range d.Series {
		at := &d.Series[i]
		x0, x1 := column(d.Series, i)
		for slot, n := range at.Latency {
			if n > 0 {
				y0, y1 := edges(slot)
				cells.All = append(cells.All, sheet.Box(times.at(x0), lg(y0), times.at(x1), lg(y1),
					sheet.Shade(float64(n)/float64(at.Requests)/most)))
			}
		}
	}
	p.Add(cells)
	if len(cells.All) == ground {
		return nil
	}
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: 4 * vg.Inch, Right: colourBar(most),
		RightWidth: vg.Points(58)}
}

// usual is the share that the darkest colour stands for: one that 99 of 100 cells do not pass, in steps of 5 %. A
// time with a single request has all of them in one cell, and would leave the others pale.
func usual(series []Point) float64 {
	var shares []float64
	for i := range series {
		for _, n := range series[i].Latency {
			if n > 0 {
				shares = append(shares, float64(n)/float64(series[i].Requests))
			}
		}
	}
	if len(shares) == 0 {
		return 1
	}
	slices.Sort(shares)
	return min(1, math.Ceil(20*shares[len(shares)*99/100])/20)
}

// column is the time that a point stands for: its intervals, or up to the point before where it is not known how
// long they were.
func column(series []Point, i int) (from, to float64) {
	p := &series[i]
	from, to = p.From, p.Time
	if p.Snapshots > 1 { // its time is the middle of those of its snapshots
		to = p.Time + (p.Time - p.From)
		if p.Seconds > 0 {
			to = p.Time + (p.Time-p.From)*(1-1/float64(p.Snapshots))
		}
	}
	if i+1 < len(series) && (to > series[i+1].From || series[i+1].From-to < (to-from)/2) {
		to = series[i+1].From // no slits where intervals are a bit longer than they are said to be
	}
	if to <= from {
		from = to - 1
	}
	return from, to
}

// colourBar explains the colours of a heat map.
func colourBar(most float64) *plot.Plot {
	p := sheet.Screen.Panel(" ")
	p.HideX()
	p.X.Min, p.X.Max = 0, 1
	p.Y.Min, p.Y.Max = 0, 100*most
	p.Y.Label.Text = "% of requests then"
	ticks := sheet.Steps(0, 100*most, 6)
	if last := &ticks[len(ticks)-1]; most < 1 && last.Value > 99.9*most {
		last.Label = "≥ " + last.Label
	}
	p.Y.Tick.Marker = ticks
	bar := &sheet.Boxes{}
	const n = 200
	for i := range n {
		at := float64(i) / n
		bar.All = append(bar.All, sheet.Box(0, 100*most*at, 1, 100*most*(at+1.0/n), sheet.Shade(at)))
	}
	p.Add(bar)
	return p
}
