package host

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b, by float64) bool { return math.Abs(a-b) <= by*max(1, math.Abs(b)) }

// TestPValue compares with the table of Student's t: t is 2.228 for p = 0.05 at 10 degrees of freedom, 12.706 at 1,
// 1.984 at 100.
func TestPValue(t *testing.T) {
	for freedom, critical := range map[float64]float64{1: 12.7062047, 2: 4.30265273, 10: 2.22813885, 100: 1.98397152} {
		r := critical / math.Sqrt(critical*critical+freedom)
		if p := pValue(r, freedom+2); !near(p, 0.05, 1e-8) || pValue(-r, freedom+2) != p {
			t.Errorf("p of r %v with %v degrees of freedom: %v", r, freedom, p)
		}
	}
	if pValue(1, 10) != 0 || pValue(0, 10) != 1 || pValue(0.9, 2) != 1 {
		t.Error("the ends")
	}
}

// TestAdjust is the example of Benjamini and Hochberg's paper (1995, 3.1): at 0.05 the first four of fifteen are
// findings.
func TestAdjust(t *testing.T) {
	p := []float64{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
		0.6528, 0.7590, 1.0000}
	for _, reversed := range []bool{false, true} {
		if reversed {
			slices.Reverse(p)
		}
		q := adjust(p)
		found := 0
		for i := range q {
			if q[i] <= 0.05 {
				found++
			}
			if q[i] < p[i] || q[i] > 1 {
				t.Errorf("q %v of p %v", q[i], p[i])
			}
		}
		if found != 4 {
			t.Errorf("%d findings: %v", found, q)
		}
	}
	if adjust(nil) == nil {
		t.Error("none of none")
	}
}

// TestAlign pairs snapshots by hand-made times: the tolerance is 0.75 of the longer interval, and at least 0.75 s.
func TestAlign(t *testing.T) {
	at := func(seconds float64, times ...float64) (s []sample) {
		for _, v := range times {
			s = append(s, sample{time: v, seconds: seconds})
		}
		return s
	}
	of := func(seconds float64, times ...float64) (m []metricSample) {
		for _, v := range times {
			m = append(m, metricSample{time: v, seconds: seconds})
		}
		return m
	}
	for name, c := range map[string]struct {
		latencies []sample
		metrics   []metricSample
		shift     float64
		want      [][2]float64
	}{
		"same":          {at(1, 1, 2, 3), of(1, 1, 2, 3), 0, [][2]float64{{1, 1}, {2, 2}, {3, 3}}},
		"edge":          {at(1, 10), of(1, 10.75), 0, [][2]float64{{10, 10.75}}},
		"beyond":        {at(1, 10), of(1, 10.76), 0, nil},
		"short":         {at(0.1, 10), of(0.1, 9.25), 0, [][2]float64{{10, 9.25}}},
		"long":          {at(5, 10, 15), of(1, 7, 8, 13), 0, [][2]float64{{10, 7}, {15, 13}}},
		"none known":    {at(math.NaN(), 10), of(math.NaN(), 10.7), 0, [][2]float64{{10, 10.7}}},
		"gap":           {at(1, 1, 2, 9), of(1, 2, 5, 9), 0, [][2]float64{{2, 2}, {9, 9}}},
		"shifted":       {at(1, 1, 2, 3), of(1, 1, 2, 3), 1, [][2]float64{{2, 1}, {3, 2}}},
		"shifted back":  {at(1, 1, 2, 3), of(1, 1, 2, 3), -2, [][2]float64{{1, 3}}},
		"nothing":       {nil, of(1, 1), 0, nil},
		"nothing there": {at(1, 1), nil, 0, nil},
	} {
		var got [][2]float64
		for _, p := range align(nil, c.latencies, c.metrics, c.shift) {
			got = append(got, [2]float64{p.latency.time, p.metric.time})
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestLag plants a latency that follows a metric two intervals later, and finds it there.
func TestLag(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var latencies []sample
	var series []metricSample
	var before [2]int
	for i := range 200 {
		now := 1000 + 5*float64(i)
		slot := 4 + random.IntN(8)
		s := metricSample{time: now + 0.2, seconds: 5}
		for m := range s.metric {
			s.metric[m] = math.NaN()
		}
		s.metric[metricIO] = float64(slotHigh(slot)) + random.Float64()
		s.metric[metricFaults] = random.Float64()
		s.metric[metricMemory] = 3
		series = append(series, s)
		if i >= 2 && i%10 != 7 { // and some snapshots without requests
			latencies = append(latencies, sample{now, 5, uint8(before[0])})
		}
		before = [2]int{before[1], slot}
	}
	rows := importance(latencies, series, 4, 5)
	io := rows[metricIO]
	if io.Best == nil || io.Best.Lag != 2 || io.Best.Seconds != 10 || *io.Best.R < 0.999 || *io.Best.P > 1e-50 ||
		math.Abs(*io.R) > 0.3 || len(io.Lags) != 9 {
		t.Errorf("%+v %+v", io, io.Best)
	}
	if b := rows[metricFaults].Best; *b.P < 0.01 || *b.P > 1 {
		t.Errorf("chance passes for a finding: %+v", b)
	}
	if rows[metricMemory].Why != "metric is constant" || rows[metricMemory].R != nil ||
		rows[metricMemory].Best != nil || rows[metricCPU].Why != "not recorded" {
		t.Errorf("%+v %+v", rows[metricMemory], rows[metricCPU])
	}
	if none := importance(nil, series, 0, 5); none[metricIO].Why != "too few" || none[metricCPU].Why != "not recorded" {
		t.Errorf("without requests: %+v", none)
	}
	if few := importance(latencies[:3], series, 1, 5)[metricIO]; few.Why != "too few" || few.N != 3 || few.Best != nil {
		t.Errorf("%+v", few)
	}
	for i := range latencies {
		latencies[i].slot = 5
	}
	if flat := importance(latencies, series, 0, 5)[metricIO]; flat.Why != "latency is constant" || flat.Lags != nil {
		t.Errorf("%+v", flat)
	}
}

// TestEffective gives series that remember: a slow wave is worth far fewer than its snapshots, noise is worth
// nearly all.
func TestEffective(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var slow, noise [2][]float64
	var v [2]float64
	for range 2000 {
		for i := range v {
			v[i] = 0.95*v[i] + random.NormFloat64()
			slow[i], noise[i] = append(slow[i], v[i]), append(noise[i], random.NormFloat64())
		}
	}
	m := correlate(slow[0], slow[1])
	if n := m.effective(); n < 50 || n > 250 { // 2000 · (1-0.9025)/(1+0.9025) is 102
		t.Errorf("slow: %v", n)
	}
	m = correlate(noise[0], noise[1])
	if n := m.effective(); n < 1900 || n > 2000 {
		t.Errorf("noise: %v", n)
	}
}
