package intervene

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/llamatap/llamatap/cgo/llama"
)

// Metrics are the names of what an effect is measured by.
var Metrics = []string{"logit-diff", "logit", "prob", "kl"}

// metric is a number of a prompt's next token.
type metric struct {
	name          string
	answer, wrong llama.Token
}

// evaluate returns the metric of logits. kl is the Kullback-Leibler divergence in nats of the distribution from that of
// the control.
func (m *metric) evaluate(logits, control []float32) float64 {
	switch m.name {
	case "logit":
		return float64(logits[m.answer])
	case "logit-diff":
		return float64(logits[m.answer]) - float64(logits[m.wrong])
	case "prob":
		return math.Exp(float64(logits[m.answer]) - logSum(logits))
	}
	sum, of, from := 0.0, logSum(logits), logSum(control)
	for i := range logits {
		p, q := float64(control[i])-from, float64(logits[i])-of
		sum += math.Exp(p) * (p - q)
	}
	return max(sum, 0)
}

// effect returns how far the metric of logits is from that of the control.
func (m *metric) effect(logits, control []float32) float64 {
	return m.evaluate(logits, control) - m.evaluate(control, control)
}

// logSum is the logarithm of the sum of exponentials.
func logSum(logits []float32) float64 {
	most, sum := math.Inf(-1), 0.0
	for _, l := range logits {
		most = max(most, float64(l))
	}
	for _, l := range logits {
		sum += math.Exp(float64(l) - most)
	}
	return most + math.Log(sum)
}

// Statistic is a mean over pairs of prompts, with its 95 % confidence interval by Student's t; the interval is absent
// for one pair.
type Statistic struct {
	N    int      `json:"n"`
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	m2   float64
}

// add adds a value, by Welford's method.
func (s *Statistic) add(x float64) {
	s.N++
	d := x - s.Mean
	s.Mean += d / float64(s.N)
	s.m2 += d * (x - s.Mean)
	if s.N > 1 {
		t := distuv.StudentsT{Sigma: 1, Nu: float64(s.N - 1)}.Quantile(0.975)
		half := t * math.Sqrt(s.m2/float64(s.N-1)/float64(s.N))
		low, high := s.Mean-half, s.Mean+half
		s.Low, s.High = &low, &high
	}
}

// excludesZero reports whether the interval does not reach 0; so does a single value.
func (s *Statistic) excludesZero() bool { return s.N < 2 || *s.Low > 0 || *s.High < 0 }

// String writes the mean, and the interval where there is one.
func (s *Statistic) String() string {
	if s.Low == nil {
		return fmt.Sprintf("%.4g", s.Mean)
	}
	return fmt.Sprintf("%.4g [%.4g, %.4g]", s.Mean, *s.Low, *s.High)
}
