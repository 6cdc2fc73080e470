package host

import (
	"math"
	"strconv"

	"github.com/llamatap/llamatap/inspect/sheet"
	"gonum.org/v1/plot"
)

// least is the smallest latency on a logarithmic axis in µs, where that of less than 1 µs stands.
const least = 0.5

// lg is a latency as drawn on a logarithmic axis. (The package plot has such axes too, and leaves room in the
// wrong place for the words beside them.)
func lg(us float64) float64 { return math.Log10(max(us, least)) }

// latencyTicks are those of a logarithmic axis of µs: a label at each power of ten, with its unit, and small ticks
// between. Where there are fewer than two powers of ten, 2 and 5 have labels too.
func latencyTicks(low, high float64) (ticks sheet.Fixed) {
	labels := 0
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		if v := math.Pow(10, e); v >= low && v <= high {
			labels++
		}
	}
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			tick := plot.Tick{Value: lg(v)}
			if m == 1 || labels < 2 && (m == 2 || m == 5) {
				tick.Label = latencyText(v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// latencyText is a latency given in µs.
func latencyText(us float64) string {
	switch {
	case us < 999.5:
		return strconv.FormatFloat(us, 'g', 3, 64) + " µs"
	case us < 999.5e3:
		return strconv.FormatFloat(us/1e3, 'g', 3, 64) + " ms"
	case us < 999.5e6:
		return strconv.FormatFloat(us/1e6, 'g', 3, 64) + " s"
	}
	return strconv.FormatFloat(us/1e6, 'f', 0, 64) + " s"
}

// logAxis makes an axis logarithmic, from low to high µs; of less than a power of ten it shows more.
func logAxis(axis *plot.Axis, low, high float64) {
	for high < low*10 {
		low, high = max(least, low/2), high*2
	}
	axis.Min, axis.Max = lg(low), lg(high)
	axis.Tick.Marker = latencyTicks(low, high)
}

// clock turns seconds since 1970 into those since the beginning of what is drawn, in a unit that suits its length.
type clock struct {
	begin, unit float64
	name        string
	end         float64
}

// newClock is for what happened from one time to another.
func newClock(from, to float64) clock {
	c := clock{begin: from, unit: 1, name: "s", end: to}
	switch span := to - from; {
	case span > 3*86400:
		c.unit, c.name = 86400, "days"
	case span > 3*3600:
		c.unit, c.name = 3600, "h"
	case span > 600:
		c.unit, c.name = 60, "min"
	}
	return c
}

// at is a moment as drawn on the axis.
func (c clock) at(t float64) float64 { return (t - c.begin) / c.unit }

// axis makes the horizontal axis one of time.
func (c clock) axis(axis *plot.Axis) {
	axis.Min, axis.Max = 0, c.at(c.end)
	if axis.Max <= 0 {
		axis.Min, axis.Max = -0.5, 0.5
	}
	axis.Tick.Marker = sheet.Steps(axis.Min, axis.Max, 10)
	axis.Label.Text = c.name + " since " + utc(c.begin)
}
