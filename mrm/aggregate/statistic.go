package aggregate

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Statistic is what repetitions of a cell say of one figure.
type Statistic struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	// SD is the standard deviation of the sample, and Low and High the bounds of the interval that holds the true mean with 95 % confidence, by
	// Student's t with n-1 degrees of freedom: mean ± t · sd/√n. They are nil for a single run.
	SD   *float64 `json:"sd,omitempty"`
	Low  *float64 `json:"ci95_low,omitempty"`
	High *float64 `json:"ci95_high,omitempty"`
	Min  float64  `json:"min"`
	Max  float64  `json:"max"`
}

// Method names how intervals are made.
const Method = "student_t"

// of computes it; values must not be empty.
func of(values []float64) Statistic {
	s := Statistic{N: len(values), Mean: stat.Mean(values, nil), Min: math.Inf(1), Max: math.Inf(-1)}
	for _, v := range values {
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	if s.Min == s.Max {
		s.Mean = s.Min // and no rounding of equal figures
	}
	if s.N < 2 {
		return s
	}
	sd := stat.StdDev(values, nil)
	if s.Min == s.Max {
		sd = 0
	}
	half := distuv.StudentsT{Sigma: 1, Nu: float64(s.N - 1)}.Quantile(0.975) * sd / math.Sqrt(float64(s.N))
	low, high := s.Mean-half, s.Mean+half
	s.SD, s.Low, s.High = &sd, &low, &high
	return s
}
