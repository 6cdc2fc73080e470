package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// exponent fits y = a·x^b: b is the slope of the least squares line through the logarithms. ok is false where there
// is none: fewer than two different x, or a value that is not above 0.
func exponent(x, y []float64) (b float64, ok bool) {
	var mx, my float64
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			return 0, false
		}
		mx += math.Log(x[i]) / float64(len(x))
		my += math.Log(y[i]) / float64(len(x))
	}
	var xx, xy float64
	for i := range x {
		dx := math.Log(x[i]) - mx
		xx += dx * dx
		xy += dx * (math.Log(y[i]) - my)
	}
	if xx == 0 {
		return 0, false
	}
	return xy / xx, true
}

// widestExponent is the widest interval of an exponent that tells how something grows.
const widestExponent = 0.5

// growth is how a figure grows with a variable: an exponent with its 95 % bootstrap interval. values[i] are the
// rounds' values at x[i]; each resample draws rounds with replacement at every x and fits the medians. resolved is
// false where a median is not above 0, in the values or in more than one in 40 resamples, with fewer than six
// rounds, or where the interval is wider than 0.5.
func growth(x []float64, values [][]float64) (of Interval, resolved bool) {
	rounds := math.MaxInt
	middle := make([]float64, len(x))
	for i := range x {
		if len(values[i]) == 0 {
			return Interval{}, false
		}
		rounds = min(rounds, len(values[i]))
		middle[i] = median(slices.Clone(values[i]))
	}
	b, ok := exponent(x, middle)
	if !ok {
		return Interval{Pairs: rounds}, false
	}
	random := rand.New(rand.NewPCG(1, uint64(rounds)))
	var fits []float64
	for range resamples {
		for i := range x {
			drawn := make([]float64, len(values[i]))
			for k := range drawn {
				drawn[k] = values[i][random.IntN(len(values[i]))]
			}
			middle[i] = median(drawn)
		}
		if fit, ok := exponent(x, middle); ok {
			fits = append(fits, fit)
		}
	}
	if len(fits) < resamples*39/40 {
		return Interval{Median: b, Pairs: rounds}, false
	}
	slices.Sort(fits)
	of = Interval{Median: b, Low: fits[len(fits)*25/1000], High: fits[len(fits)*975/1000], Pairs: rounds}
	return of, rounds >= fewestPairs && of.High-of.Low <= widestExponent
}

// growthFigure writes an exponent for people.
func growthFigure(name string, of Interval) string {
	if of.Low == 0 && of.High == 0 {
		return "∝ " + name + "^?"
	}
	return fmt.Sprintf("∝ %s^%.2f [%.2f, %.2f] of %d rounds", name, of.Median, of.Low, of.High, of.Pairs)
}
