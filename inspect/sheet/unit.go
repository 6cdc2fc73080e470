package sheet

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// Unit is a unit with what it is in the basic one.
type Unit struct {
	By   float64
	Name string
}

// The units of time and of bytes, the largest first.
var (
	TimeUnits = []Unit{{365.25 * 86400, "y"}, {86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"},
		{1e-6, "µs"}, {1e-9, "ns"}}
	ByteUnits = []Unit{{1 << 60, "EiB"}, {1 << 50, "PiB"}, {1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"},
		{1 << 10, "KiB"}, {1, "B"}}
)

// UnitOf is the largest unit that a value has at least one of.
func UnitOf(units []Unit, v float64) Unit {
	for _, u := range units {
		if math.Abs(v) >= u.By*0.9995 {
			return u
		}
	}
	return units[len(units)-1]
}

// WithUnit writes a value with three digits and its unit.
func WithUnit(units []Unit, v float64) string {
	u := UnitOf(units, v)
	return strconv.FormatFloat(Round(v/u.By, 3), 'f', -1, 64) + " " + u.Name
}

// Round rounds to so many digits.
func Round(v float64, digits int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	by := math.Pow(10, float64(digits)-1-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*by) / by
}

// Power writes a power of ten: 0.01, 1, 100, and beyond as 1e5. (The font has no superscripts for all digits.)
func Power(e int) string {
	if e >= -3 && e <= 4 {
		return strconv.FormatFloat(math.Pow10(e), 'f', -1, 64)
	}
	return "1e" + strconv.Itoa(e)
}

// Decades are ticks of a logarithmic axis, which holds log10 of values: a label at powers of ten, at most most of
// them, and small ticks between.
func Decades(low, high float64, most int, label func(e int) string) (ticks Fixed) {
	first, last := int(math.Floor(low+1e-9)), int(math.Ceil(high-1e-9))
	each := max(1, int(math.Ceil(float64(last-first)/float64(most))))
	few := math.Floor(high+1e-9)-math.Ceil(low-1e-9) < 1 // powers of ten: one, or none
	for e := first; e <= last; e++ {
		for m := 1; m < 10; m++ {
			v := float64(e) + math.Log10(float64(m))
			if v < low-1e-9 || v > high+1e-9 || m > 1 && last-first > 8 {
				continue
			}
			tick := plot.Tick{Value: v}
			if m == 1 && e%each == 0 {
				tick.Label = label(e)
			} else if few && (m == 2 || m == 5) {
				tick.Label = timesPower(m, label(e))
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// timesPower is the label of a multiple of a power of ten, whose own label it is given.
func timesPower(m int, label string) string {
	number, unit, _ := strings.Cut(label, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strconv.FormatFloat(float64(m)*v, 'g', 6, 64) + " " + unit)
}

// TimeDecade writes a power of ten of seconds.
func TimeDecade(e int) string {
	names := map[int]string{-9: "1 ns", -6: "1 µs", -3: "1 ms", 0: "1 s"}
	switch {
	case names[e] != "":
		return names[e]
	case e < 0:
		base := -3 * ((-e + 2) / 3)
		return strconv.Itoa(int(math.Pow10(e-base))) + names[base][1:]
	case e <= 4:
		return strconv.Itoa(int(math.Pow10(e))) + " s"
	}
	return Power(e) + " s"
}

// Ages are ticks of a logarithmic axis of seconds, from microseconds to years.
func Ages(low, high float64) (ticks Fixed) {
	for _, u := range TimeUnits {
		if v := math.Log10(u.By); v >= low && v <= high {
			ticks = append(ticks, plot.Tick{Value: v, Label: "1 " + u.Name})
		}
	}
	return ticks
}

// ByteDecade writes a power of ten of bytes.
func ByteDecade(e int) string {
	for _, u := range []struct {
		e    int
		name string
	}{{24, " YB"}, {21, " ZB"}, {18, " EB"}, {15, " PB"}, {12, " TB"}, {9, " GB"}, {6, " MB"}, {3, " kB"}, {0, " B"}} {
		if e >= u.e && e <= 26 {
			return strconv.Itoa(int(math.Pow10(e-u.e))) + u.name
		}
	}
	return Power(e) + " B"
}

// TimeAxis makes the horizontal axis one of time since the beginning of the run.
func TimeAxis(axis *plot.Axis, from, to float64) {
	u := Unit{1, "s"}
	for _, c := range []Unit{{3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}} {
		if u = c; to-from >= 3*c.By {
			break
		}
	}
	axis.Min, axis.Max = from, to
	if to <= from {
		axis.Max = from + 1
	}
	ticks := Steps(axis.Min/u.By, axis.Max/u.By, 6)
	for i := range ticks {
		ticks[i].Value *= u.By
	}
	axis.Tick.Marker = ticks
	axis.Label.Text = "time since the run began (" + u.Name + ")"
}
