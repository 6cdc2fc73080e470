package sheet

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// Fixed are ticks that were chosen beforehand.
type Fixed []plot.Tick

// Ticks returns them all.
func (f Fixed) Ticks(_, _ float64) []plot.Tick { return f }

// Steps are ticks at 1, 2 or 5 times a power of ten, about n of them, with a half of it between.
func Steps(low, high float64, n int) (ticks Fixed) {
	if !(high > low) {
		return Fixed{{Value: low, Label: plain(low)}}
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

// Bare leaves the ticks of an axis of time without labels, for a panel above another one.
func Bare(axis *plot.Axis) {
	ticks := axis.Tick.Marker.Ticks(axis.Min, axis.Max)
	for i := range ticks {
		ticks[i].Label = ""
	}
	axis.Tick.Marker, axis.Label.Text = Fixed(ticks), ""
}

// FromZero makes the vertical axis one from 0 to a bit above the most.
func FromZero(axis *plot.Axis, most float64) {
	if !(most > 0) {
		most = 1
	}
	axis.Min, axis.Max = 0, most*1.08
	axis.Tick.Marker = Steps(0, axis.Max, 5)
}
