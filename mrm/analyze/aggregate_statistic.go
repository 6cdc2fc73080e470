package analyze

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Statistic summarises one figure over the repetitions of a cell.
type Statistic struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	// SD is the standard deviation of the sample. It is nil for a single run and for a share of runs.
	SD *float64 `json:"sd,omitempty"`
	// Low and High bound the 95 % confidence interval of the true mean, computed by Method. They are nil where
	// Method is empty.
	Low    *float64 `json:"ci95_low,omitempty"`
	High   *float64 `json:"ci95_high,omitempty"`
	Min    float64  `json:"min"`
	Max    float64  `json:"max"`
	Method string   `json:"method,omitempty"`
}

// The methods of intervals.
const (
	// studentT is mean ± t · sd/√n, t of n-1 degrees of freedom, cut to the figure's range. A true mean lies in
	// that range, so the cut does not lower the confidence. One run has no interval.
	studentT = "student_t"
	// wilson is the score interval of a binomial proportion, without continuity correction: E. B. Wilson, Probable
	// inference, the law of succession, and statistical inference, JASA 22 (1927). It lies in [0, 1] for every n.
	wilson = "wilson"
)

const confidence = 0.95

// upper returns the largest value that a metric can have. The smallest is zero for every metric: they are counts,
// bytes, times, rates and ratios.
func upper(metric string) float64 {
	switch metric {
	case "write_once_ratio", "censored_share", "locality_score":
		return 1
	}
	return math.Inf(1)
}

// meanOf summarises values of a figure between 0 and most; values must not be empty.
func meanOf(values []float64, most float64) Statistic {
	s := Statistic{N: len(values), Mean: stat.Mean(values, nil), Min: math.Inf(1), Max: math.Inf(-1)}
	for _, v := range values {
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	if s.Min == s.Max {
		s.Mean = s.Min // without the rounding of a sum
	}
	if s.N < 2 {
		return s
	}
	sd := stat.StdDev(values, nil)
	if s.Min == s.Max {
		sd = 0
	}
	half := distuv.StudentsT{Sigma: 1, Nu: float64(s.N - 1)}.Quantile((1+confidence)/2) * sd / math.Sqrt(float64(s.N))
	low, high := max(s.Mean-half, 0), min(s.Mean+half, most)
	s.SD, s.Low, s.High, s.Method = &sd, &low, &high, studentT
	return s
}

// shareOfRuns summarises how many of n runs have a property.
func shareOfRuns(k, n int) Statistic {
	p, count := float64(k)/float64(n), float64(n)
	z := distuv.UnitNormal.Quantile((1 + confidence) / 2)
	centre, half := p+z*z/(2*count), z*math.Sqrt(p*(1-p)/count+z*z/(4*count*count))
	low, high := (centre-half)/(1+z*z/count), (centre+half)/(1+z*z/count)
	if k == 0 {
		low = 0 // exactly, without the rounding of a difference
	}
	if k == n {
		high = 1
	}
	s := Statistic{N: n, Mean: p, Low: &low, High: &high, Method: wilson}
	if k == n {
		s.Min = 1
	}
	if k > 0 {
		s.Max = 1
	}
	return s
}
