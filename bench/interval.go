package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Interval is a median with its 95 % bootstrap interval.
type Interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Pairs  int     `json:"pairs"`
}

// resamples is the number of bootstrap samples.
const resamples = 4000

// medianInterval estimates the median of values and its 95 % interval by resampling with a fixed seed (percentile
// bootstrap, Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13). values must not be empty.
func medianInterval(values []float64) Interval {
	random, sample := rand.New(rand.NewPCG(1, uint64(len(values)))), make([]float64, len(values))
	low, high := bootstrap(func() float64 { return median(draw(random, sample, values)) })
	return Interval{Median: median(slices.Clone(values)), Low: low, High: high, Pairs: len(values)}
}

// bootstrap returns the bounds that 95 % of the values of a statistic lie between; resample draws one.
func bootstrap(resample func() float64) (low, high float64) {
	values := make([]float64, resamples)
	for i := range values {
		values[i] = resample()
	}
	slices.Sort(values)
	return values[resamples*25/1000], values[resamples*975/1000]
}

// median sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// Verdict is what an interval says of a gate.
type Verdict string

// The verdicts.
const (
	Passed     Verdict = "passed"
	Failed     Verdict = "failed"
	Unresolved Verdict = "not resolved on this machine"
)

// fewestPairs is how many pairs resolve something: of fewer, the interval holds the true median too rarely.
const fewestPairs = 6

// AtLeast judges a gate that the ratio must reach. Fewer than six pairs resolve nothing.
func (i Interval) AtLeast(gate float64) Verdict {
	switch {
	case i.Pairs < fewestPairs:
		return Unresolved
	case i.Low >= gate:
		return Passed
	case i.High < gate:
		return Failed
	}
	return Unresolved
}

// widest is the widest interval that shows two things to be the same.
const widest = 0.1

// holds judges a ratio that must be value: its interval holds it, and is narrow. Fewer than six pairs resolve nothing.
func (i Interval) holds(value float64) Verdict {
	switch {
	case i.Pairs < fewestPairs:
		return Unresolved
	case i.High < value || i.Low > value:
		return Failed
	case i.High-i.Low > widest:
		return Unresolved
	}
	return Passed
}

// String writes the median and the interval.
func (i Interval) String() string {
	return fmt.Sprintf("%.3f [%.3f, %.3f] of %d pairs", i.Median, i.Low, i.High, i.Pairs)
}
