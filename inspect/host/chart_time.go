package host

import (
	"image/color"
	"math"
	"slices"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// recorded is the time in which block I/O was recorded.
func recorded(r *Report) clock {
	first, last := math.Inf(1), math.Inf(-1)
	for i := range r.All.Series {
		from, to := column(r.All.Series, i)
		first, last = min(first, from), max(last, to)
	}
	return newClock(first, last)
}

// maxCurve bounds the points of a curve, so that several can be distinguished.
const maxCurve = 400

// thin makes at most maxCurve points of a series.
func thin(series []Point) []Point {
	if len(series) <= maxCurve {
		return series
	}
	each := (len(series) + maxCurve - 1) / maxCurve
	var thinned []Point
	for some := range slices.Chunk(series, each) {
		var p Point
		for i := range some {
			p.Add(&some[i])
		}
		thinned = append(thinned, p)
	}
	return thinned
}

// few is how many points a series has at most that is drawn as levels over its intervals. A curve would make a dot
// of a snapshot that is alone, and slopes of what nobody measured between the others.
const few = 60

// curve draws values that [values] took out of a series.
func curve(series []Point, x, y []float64, c color.Color, points float64) *sheet.Curve {
	line := sheet.NewCurve(x, y, c, points)
	line.IsDots = line.IsDots && len(series) > few
	return line
}

// values takes a figure out of every point, or its level over each interval where there are few; between points
// that lie far apart a NaN breaks the curve.
func values(series []Point, c clock, of func(*Point) float64) (x, y []float64) {
	if len(series) <= few {
		end := 0.0
		for i := range series {
			from, to := column(series, i)
			if i > 0 && from-end > 0.01*(to-from) { // nothing was recorded between
				x, y = append(x, c.at(from)), append(y, math.NaN())
			}
			x, y = append(x, c.at(from), c.at(to)), append(y, of(&series[i]), of(&series[i]))
			end = to
		}
		return x, y
	}
	times := make([]float64, len(series))
	for i := range series {
		times[i] = series[i].Time
	}
	return c.broken(times, func(i int) float64 { return of(&series[i]) })
}

// broken is a curve of a value at each of some times, with a NaN where more than four times the usual distance lies
// between two of them.
func (c clock) broken(times []float64, value func(i int) float64) (x, y []float64) {
	limit := math.Inf(1)
	if len(times) > 2 {
		limit = 4 * medianGap(times)
	}
	for i, t := range times {
		if i > 0 && t-times[i-1] > limit {
			x, y = append(x, c.at(t)), append(y, math.NaN())
		}
		x, y = append(x, c.at(t)), append(y, value(i))
	}
	return x, y
}

// maxKnown returns the largest value that is known.
func maxKnown(y []float64) (v float64) {
	for _, f := range y {
		if f > v {
			v = f
		}
	}
	return v
}

// depthPanel draws how many requests were in flight.
func depthPanel(d *Device, c clock, title string) *plot.Plot {
	p := sheet.Screen.Panel(title)
	p.Y.Label.Text = "requests in flight"
	c.axis(&p.X)
	series := thin(d.Series)
	x, mean := values(series, c, func(at *Point) float64 { return at.Depth })
	_, top := values(series, c, func(at *Point) float64 { return float64(at.DepthMost) })
	sheet.FromZero(&p.Y, maxKnown(top))
	p.Add(sheet.Both)
	if !slices.ContainsFunc(series, func(p Point) bool { return float64(p.DepthMost) > p.Depth*1.001 }) {
		p.Add(curve(series, x, mean, sheet.Orange, 1.3))
		return p
	}
	upper, middle := curve(series, x, top, sheet.Shades[2], 1), curve(series, x, mean, sheet.Orange, 1.3)
	p.Add(upper, middle)
	p.Legend.Add("most", upper)
	p.Legend.Add("mean", middle)
	p.Y.Max *= 1.15 // room for the legend
	return p
}

// requestPanel draws how many requests were completed per second.
func requestPanel(d *Device, c clock, title string) *plot.Plot {
	p := sheet.Screen.Panel(title)
	p.Y.Label.Text = "requests/s"
	timed := slices.ContainsFunc(d.Series, func(at Point) bool { return at.Seconds > 0 })
	if !timed {
		p.Y.Label.Text = "requests per snapshot"
	}
	c.axis(&p.X)
	series := thin(d.Series)
	x, y := values(series, c, func(at *Point) float64 {
		switch {
		case at.Seconds > 0:
			return float64(at.Requests) / at.Seconds
		case timed:
			return math.NaN()
		}
		return float64(at.Requests)
	})
	sheet.FromZero(&p.Y, maxKnown(y))
	p.Add(sheet.Both, curve(series, x, y, sheet.Green, 1.3))
	return p
}

// queueDepth draws how many requests were in flight over time.
func queueDepth(r *Report, d *Device) *sheet.Picture {
	if len(d.Series) == 0 {
		return nil
	}
	p := depthPanel(d, recorded(r), d.Name+": requests in flight")
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: 4 * vg.Inch}
}

// requests draws how many requests were completed over time.
func requests(r *Report, d *Device) *sheet.Picture {
	if len(d.Series) == 0 || d.Requests == 0 {
		return nil
	}
	p := requestPanel(d, recorded(r), d.Name+": completed requests")
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{p}, Height: 4 * vg.Inch}
}

// queueAndRequests draws both above each other.
func queueAndRequests(r *Report, d *Device) *sheet.Picture {
	if len(d.Series) == 0 {
		return nil
	}
	c := recorded(r)
	upper, lower := depthPanel(d, c, d.Name+": queue against throughput"), requestPanel(d, c, "")
	sheet.Bare(&upper.X)
	return &sheet.Picture{Style: sheet.Screen, Panels: []*plot.Plot{upper, lower}, Height: 5 * vg.Inch}
}
