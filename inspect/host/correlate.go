package host

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// fewest is how many pairs a correlation needs at least; of fewer nothing can be said.
const fewest = 4

// Correlation is how far a metric goes with the latency.
type Correlation struct {
	Metric string `json:"metric"`
	// Why says why there is no r: "too few", "latency is constant", "metric is constant", "not recorded".
	Why string `json:"undefined,omitempty"`
	N   int    `json:"n"`
	// R is Pearson's r without lag, P the probability of one as far from 0 where the two have nothing to do with
	// each other, and Q that probability for all rows of the table together (Benjamini and Hochberg). P holds for
	// snapshots that are independent of each other.
	R *float64 `json:"r,omitempty"`
	P *float64 `json:"p,omitempty"`
	Q *float64 `json:"q,omitempty"`
	// Effective is how many independent snapshots the n are worth, as both remember the snapshot before; PEffective
	// is P for that many.
	Effective  *float64 `json:"n_effective,omitempty"`
	PEffective *float64 `json:"p_effective,omitempty"`
	// Lags has r for each lag, from -k to k: Lag > 0 where the latency follows the metric. Best is the one that is
	// furthest from 0, and its P is corrected for the number of lags that were tried.
	Lags []LagRow `json:"lags,omitempty"`
	Best *LagRow  `json:"best_lag,omitempty"`
}

// LagRow is a correlation at a lag.
type LagRow struct {
	Lag     int      `json:"lag"` // in intervals
	Seconds float64  `json:"seconds"`
	N       int      `json:"n"`
	R       *float64 `json:"r,omitempty"`
	P       *float64 `json:"p,omitempty"`
}

// moments are what Pearson's r is made of.
type moments struct {
	n       int
	r       float64
	x, y    float64 // spread of each: 0 where it is constant
	xa, ya  float64 // correlation of each with its own predecessor
	defined bool
}

// correlate computes Pearson's r of pairs in the order of time.
func correlate(x, y []float64) (m moments) {
	m.n = len(x)
	if m.n == 0 {
		return m
	}
	var meanX, meanY float64
	for i := range x {
		meanX += x[i]
		meanY += y[i]
	}
	meanX, meanY = meanX/float64(m.n), meanY/float64(m.n)
	var xy, stepX, stepY float64
	for i := range x {
		dx, dy := x[i]-meanX, y[i]-meanY
		m.x += dx * dx
		m.y += dy * dy
		xy += dx * dy
		if i > 0 {
			stepX += dx * (x[i-1] - meanX)
			stepY += dy * (y[i-1] - meanY)
		}
	}
	if constant(x) {
		m.x = 0
	}
	if constant(y) {
		m.y = 0
	}
	if m.x > 0 && m.y > 0 {
		m.defined = true
		m.r = max(-1, min(1, xy/math.Sqrt(m.x)/math.Sqrt(m.y)))
		m.xa, m.ya = stepX/m.x, stepY/m.y
	}
	return m
}

// constant reports whether all values are the same; rounding may leave such a series a spread.
func constant(v []float64) bool {
	return !slices.ContainsFunc(v, func(f float64) bool { return f != v[0] })
}

// effective is how many independent pairs these are worth (Bartlett 1935, for series that remember one step).
func (m *moments) effective() float64 {
	both := m.xa * m.ya
	return min(float64(m.n), max(0, float64(m.n)*(1-both)/(1+both)))
}

// pValue is the probability that |r| or more comes of n pairs that have nothing to do with each other: two sides of
// Student's t with n-2 degrees of freedom. It is exact for pairs of a normal distribution.
func pValue(r, n float64) float64 {
	if n <= 2 {
		return 1
	}
	if math.Abs(r) >= 1 {
		return 0
	}
	t := math.Abs(r) * math.Sqrt((n-2)/((1-r)*(1+r)))
	return min(1, 2*distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 2}.Survival(t))
}

// adjust gives q for p: the smallest rate of false findings at which each would be one (Benjamini and Hochberg 1995).
func adjust(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[b], p[a]) }) // the largest first
	q, least := make([]float64, len(p)), 1.0
	for i, at := range order {
		rank := len(p) - i
		least = min(least, p[at]*float64(len(p))/float64(rank))
		q[at] = least
	}
	return q
}

// columns appends the values of a metric and their latencies out of pairs; a pair without the metric is left out.
func columns(latency, values []float64, pairs []pair, metric int) ([]float64, []float64) {
	for _, p := range pairs {
		if v := p.metric.metric[metric]; !math.IsNaN(v) {
			latency = append(latency, float64(slotHigh(int(p.latency.slot))))
			values = append(values, v)
		}
	}
	return latency, values
}

// importance correlates latencies with every metric, at lags from -k to k steps of so many seconds.
func importance(latencies []sample, series []metricSample, k int, step float64) []Correlation {
	if step <= 0 {
		k = 0
	}
	rows := make([]Correlation, metrics)
	var pairs []pair
	var x, y []float64
	for lag := -k; lag <= k; lag++ {
		pairs = align(pairs[:0], latencies, series, float64(lag)*step)
		for metric := range rows {
			x, y = columns(x[:0], y[:0], pairs, metric)
			m := correlate(x, y)
			if lag == 0 {
				rows[metric].zero(m, hasMetric(series, metric))
			}
			if k > 0 {
				row := LagRow{Lag: lag, Seconds: float64(lag) * step, N: m.n}
				if m.defined && m.n >= fewest {
					p := pValue(m.r, float64(m.n))
					row.R, row.P = &m.r, &p
				}
				rows[metric].Lags = append(rows[metric].Lags, row)
			}
		}
	}
	for metric := range rows {
		rows[metric].Metric = metricNames[metric]
		rows[metric].choose()
	}
	return rows
}

// hasMetric reports whether a snapshot has a metric.
func hasMetric(series []metricSample, metric int) bool {
	return slices.ContainsFunc(series, func(s metricSample) bool { return !math.IsNaN(s.metric[metric]) })
}

// zero fills in what holds without lag.
func (c *Correlation) zero(m moments, recorded bool) {
	c.N = m.n
	switch {
	case !recorded:
		c.Why = "not recorded"
	case m.n < fewest:
		c.Why = "too few"
	case m.y == 0:
		c.Why = "metric is constant"
	case m.x == 0:
		c.Why = "latency is constant"
	default:
		p, n := pValue(m.r, float64(m.n)), m.effective()
		pe := pValue(m.r, n)
		c.R, c.P, c.Effective, c.PEffective = &m.r, &p, &n, &pe
	}
}

// choose finds the best lag.
func (c *Correlation) choose() {
	best, tried := -1, 0
	for i, row := range c.Lags {
		if row.R == nil {
			continue
		}
		tried++
		if best < 0 || *row.P < *c.Lags[best].P || *row.P == *c.Lags[best].P && closer(row, c.Lags[best]) {
			best = i
		}
	}
	if best < 0 {
		c.Lags = nil
		return
	}
	row := c.Lags[best]
	row.P = new(max(0, -math.Expm1(float64(tried)*math.Log1p(-*row.P)))) // Šidák; and no -0
	c.Best = &row
}

// closer reports whether a is the stronger one, or as strong with the smaller lag.
func closer(a, b LagRow) bool {
	if x, y := math.Abs(*a.R), math.Abs(*b.R); x != y {
		return x > y
	}
	return max(a.Lag, -a.Lag) < max(b.Lag, -b.Lag)
}
