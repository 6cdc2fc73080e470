package chart

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
)

// fixed are ticks that were chosen beforehand.
type fixed []plot.Tick

// Ticks returns them all.
func (f fixed) Ticks(_, _ float64) []plot.Tick { return f }

// steps are ticks at 1, 2 or 5 times a power of ten, about n of them, with a half of it between.
func steps(low, high float64, n int) (ticks fixed) {
	if !(high > low) {
		return fixed{{Value: low, Label: plain(low)}}
	}
	raw := (high - low) / float64(n)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, by := range []float64{1, 2, 5, 10} {
		if step*by >= raw*0.999 {
			step *= by
			break
		}
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		v := i*step + 0 // and no -0
		ticks = append(ticks, plot.Tick{Value: v, Label: plain(v)})
	}
	return ticks
}

// plain writes a figure at a tick: thousands, millions and so on with their letter.
func plain(v float64) string {
	for _, unit := range []struct {
		by   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= unit.by {
			by := unit.by
			if unit.name == "k" {
				by = 1e3
			}
			return strconv.FormatFloat(v/by, 'g', 6, 64) + " " + unit.name
		}
	}
	return strconv.FormatFloat(math.Round(v*1e9)/1e9+0, 'g', 6, 64)
}

// least is the smallest latency on a logarithmic axis in µs, where that of less than 1 µs stands.
const least = 0.5

// lg is a latency as it stands on a logarithmic axis. (The package plot has such axes too, and leaves room in the wrong place for the words
// beside them.)
func lg(us float64) float64 { return math.Log10(max(us, least)) }

// latencyTicks are those of a logarithmic axis of µs: a label at each power of ten, with its unit, and small ticks between. Where there
// are fewer than two powers of ten, 2 and 5 have labels too.
func latencyTicks(low, high float64) (ticks fixed) {
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

// at is a moment as it stands on the axis.
func (c clock) at(t float64) float64 { return (t - c.begin) / c.unit }

// axis makes the horizontal axis one of time.
func (c clock) axis(axis *plot.Axis) {
	axis.Min, axis.Max = 0, c.at(c.end)
	if axis.Max <= 0 {
		axis.Min, axis.Max = -0.5, 0.5
	}
	axis.Tick.Marker = steps(axis.Min, axis.Max, 10)
	axis.Label.Text = fmt.Sprintf("%s since %s", c.name, time.UnixMilli(int64(math.Round(c.begin*1e3))).UTC().Format("2006-01-02 15:04:05 UTC"))
}

// bare leaves the ticks of an axis of time without labels, for a panel above another one.
func bare(axis *plot.Axis) {
	ticks := axis.Tick.Marker.Ticks(axis.Min, axis.Max)
	for i := range ticks {
		ticks[i].Label = ""
	}
	axis.Tick.Marker, axis.Label.Text = fixed(ticks), ""
}

// fromZero makes the vertical axis one from 0 to a bit above the most.
func fromZero(axis *plot.Axis, most float64) {
	if !(most > 0) {
		most = 1
	}
	axis.Min, axis.Max = 0, most*1.08
	axis.Tick.Marker = steps(0, axis.Max, 5)
}
