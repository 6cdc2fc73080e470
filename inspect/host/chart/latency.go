package chart

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/inspect/host"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// edges are the bounds of a slot in µs: from its least latency to that of the next slot.
func edges(slot int) (low, high float64) {
	return max(least, float64(host.SlotLow(slot))), float64(host.SlotHigh(slot) + 1)
}

// span is the range that holds all slots of a device.
func span(d *host.Device) (low, high float64) {
	low, _ = edges(d.Buckets[0].Slot)
	_, high = edges(d.Buckets[len(d.Buckets)-1].Slot)
	return low, high
}

// histogram draws how many requests took how long.
func histogram(r *host.Report, d *host.Device) *picture {
	if len(d.Buckets) == 0 {
		return nil
	}
	p := newPanel(d.Name + ": latency of block requests")
	p.X.Label.Text, p.Y.Label.Text = "latency, in buckets from a power of two of µs to the next", "requests"
	bars, most := &boxes{line: white}, uint64(0)
	for _, b := range d.Buckets {
		low, high := edges(b.Slot)
		bars.all = append(bars.all, box{lg(low), 0, lg(high), float64(b.Count), blue})
		most = max(most, b.Count)
	}
	low, high := span(d)
	logAxis(&p.X, low, high*math.Pow(high/low, 0.28)) // with room for the legend
	fromZero(&p.Y, float64(most))
	p.Add(rules{horizontal: true}, bars)
	p.Legend.Add(fmt.Sprintf("%d requests", d.Requests), bars)
	if d.MeanUS != nil {
		m := mark{lg(*d.MeanUS), black, []vg.Length{vg.Points(2), vg.Points(2)}}
		p.Add(m)
		p.Legend.Add("mean ≈ "+latencyText(*d.MeanUS), m)
	}
	for i, q := range d.Percentiles {
		m := mark{lg(float64(q.AtMostUS) + 1), curves[(i+1)%len(curves)], nil}
		p.Add(m)
		p.Legend.Add(fmt.Sprintf("p%s ≤ %s", percentText(q.Percent), latencyText(float64(q.AtMostUS))), m)
	}
	return &picture{panels: []*plot.Plot{p}, height: 4 * vg.Inch}
}

func percentText(p float64) string { return strconv.FormatFloat(p, 'g', -1, 64) }

// percentiles draws latencies over time.
func percentiles(r *host.Report, d *host.Device) *picture {
	if len(d.Buckets) == 0 || len(d.Series) == 0 {
		return nil
	}
	p := newPanel(d.Name + ": percentiles of latency")
	p.Y.Label.Text = "latency at most"
	times := recorded(r)
	times.axis(&p.X)
	low, high := math.Inf(1), 0.0
	type line struct {
		name string
		*curve
	}
	var lines []line
	series := thin(d.Series)
	for i, q := range d.Percentiles {
		x, y := values(series, times, func(at *host.Point) float64 {
			slot, ok := at.Latency.Percentile(q.Percent)
			if !ok {
				return math.NaN()
			}
			v := max(least, float64(host.SlotHigh(slot)))
			low, high = min(low, v), max(high, v)
			return lg(v)
		})
		n := len(d.Percentiles)
		lines = append(lines, line{"p" + percentText(q.Percent), newCurve(x, y, curves[i%len(curves)], 1+0.9*float64(i)/float64(n))})
	}
	if high == 0 {
		return nil // no snapshot with requests has a time
	}
	logAxis(&p.Y, max(least, low*0.8), high*1.25*math.Pow(high/low, 0.2)) // with room above for the legend
	p.Add(rules{true, true})
	for _, l := range slices.Backward(lines) { // where they are equal the lowest is seen, thin on those behind it
		p.Add(l.curve)
		p.Legend.Add(l.name, l.curve)
	}
	return &picture{panels: []*plot.Plot{p}, height: 4 * vg.Inch}
}

// shades are the colours of a heat map, from few to many.
var shades = []color.NRGBA{{0xf1, 0xf7, 0xd9, 255}, {0xc7, 0xe9, 0xb4, 255}, {0x7f, 0xcd, 0xbb, 255}, {0x41, 0xb6, 0xc4, 255}, {0x22, 0x5e, 0xa8, 255}, {0x14, 0x2d, 0x6e, 255}, {0x06, 0x10, 0x30, 255}}

// shade is the colour of a share from 0 to 1.
func shade(share float64) color.NRGBA {
	at := min(max(share, 0), 1) * float64(len(shades)-1)
	i := min(int(at), len(shades)-2)
	part := at - float64(i)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a)*(1-part) + float64(b)*part)) }
	a, b := shades[i], shades[i+1]
	return color.NRGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// heatMap draws which latencies there were when.
func heatMap(r *host.Report, d *host.Device) *picture {
	if len(d.Buckets) == 0 || len(d.Series) == 0 {
		return nil
	}
	p := newPanel(d.Name + ": latencies over time")
	p.Y.Label.Text = "latency"
	p.BackgroundColor = white
	times := recorded(r)
	times.axis(&p.X)
	low, high := span(d)
	logAxis(&p.Y, low, high)
	ground, cells := &boxes{}, &boxes{}
	most := usual(d.Series)
	ground.all = append(ground.all, box{p.X.Min, p.Y.Min, p.X.Max, p.Y.Max, pale})
	for i := range r.All.Series {
		x0, x1 := column(r.All.Series, i)
		ground.all = append(ground.all, box{times.at(x0), p.Y.Min, times.at(x1), p.Y.Max, white})
	}
	for i := range d.Series {
		at := &d.Series[i]
		x0, x1 := column(d.Series, i)
		for slot, n := range at.Latency {
			if n > 0 {
				y0, y1 := edges(slot)
				cells.all = append(cells.all, box{times.at(x0), lg(y0), times.at(x1), lg(y1), shade(float64(n) / float64(at.Requests) / most)})
			}
		}
	}
	p.Add(ground, cells)
	if len(cells.all) == 0 {
		return nil
	}
	return &picture{panels: []*plot.Plot{p}, height: 4 * vg.Inch, right: colourBar(most), rightWidth: vg.Points(58)}
}

// usual is the share that the darkest colour stands for: one that 99 of 100 cells do not pass, in steps of 5 %. A time with a single request
// has all of them in one cell, and would leave the others pale.
func usual(series []host.Point) float64 {
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

// column is the time that a point stands for: its intervals, or up to the point before where it is not known how long they were.
func column(series []host.Point, i int) (from, to float64) {
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
	p := newPanel(" ")
	p.HideX()
	p.X.Min, p.X.Max = 0, 1
	p.Y.Min, p.Y.Max = 0, 100*most
	p.Y.Label.Text = "% of requests then"
	ticks := steps(0, 100*most, 6)
	if last := &ticks[len(ticks)-1]; most < 1 && last.Value > 99.9*most {
		last.Label = "≥ " + last.Label
	}
	p.Y.Tick.Marker = ticks
	bar := &boxes{}
	const n = 200
	for i := range n {
		at := float64(i) / n
		bar.all = append(bar.all, box{0, 100 * most * at, 1, 100 * most * (at + 1.0/n), shade(at)})
	}
	p.Add(bar)
	return p
}
