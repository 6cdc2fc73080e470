package tensors

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestDivergence: added up in pieces it is what the probabilities give, also of logits far apart, and 0 of equal rows.
func TestDivergence(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, scale := range []float64{0.1, 3, 60, 3000} {
		const n = 257
		a, b := make([]float32, n), make([]float32, n)
		for i := range a {
			a[i] = float32(scale * random.NormFloat64())
			b[i] = a[i] + float32(0.3*random.NormFloat64())
		}
		probabilities := func(x []float32) []float64 {
			most, sum := math.Inf(-1), 0.0
			for _, v := range x {
				most = max(most, float64(v))
			}
			logs := make([]float64, len(x))
			for _, v := range x {
				sum += math.Exp(float64(v) - most)
			}
			for i, v := range x {
				logs[i] = float64(v) - most - math.Log(sum)
			}
			return logs
		}
		p, q, want, top := probabilities(a), probabilities(b), 0.0, 0
		for i := range p {
			want += math.Exp(p[i]) * (p[i] - q[i])
			if p[i] > p[top] {
				top = i
			}
		}
		row, same := newLogitRow(), newLogitRow()
		for from := 0; from < n; from += 50 {
			to := min(n, from+50)
			row.add(a[from:to], b[from:to])
			same.add(a[from:to], a[from:to])
		}
		if got := row.divergence(); math.Abs(got-want) > 1e-9*(1+want) || row.a.top != top {
			t.Errorf("scale %v: %v, want %v; most probable %d, want %d", scale, got, want, row.a.top, top)
		}
		if got := same.divergence(); got > 1e-12 {
			t.Errorf("scale %v: %v of equal rows", scale, got)
		}
	}
	masked := newLogitRow()
	inf := float32(math.Inf(-1))
	masked.add([]float32{inf, 1, inf, 2}, []float32{inf, 1, inf, 2})
	if got := masked.divergence(); got > 1e-12 {
		t.Errorf("of rows with a masked token: %v", got)
	}
}

// TestLogitsNotFinite: rows without a finite divergence are counted and left out.
func TestLogitsNotFinite(t *testing.T) {
	d := &LogitsDiff{}
	for _, kl := range []float64{math.NaN(), math.Inf(1)} {
		row := RowDiff{}
		l := newLogitRow()
		l.a, l.b, l.across = softmax{sum: 1}, softmax{sum: 1}, kl
		if err := d.add(&row, &l); err != nil || row.KL != nil {
			t.Errorf("%v: %v, divergence %v", kl, err, row.KL)
		}
	}
	d.settle()
	if text, err := json.Marshal(d); err != nil || string(text) != `{"rows":0,"non_finite":2}` {
		t.Errorf("%s, %v", text, err)
	}
	l := newLogitRow()
	l.a, l.b, l.across = softmax{sum: 1}, softmax{sum: 1}, 0.5
	if err := d.add(&RowDiff{}, &l); err != nil {
		t.Fatal(err)
	}
	d.settle()
	var text strings.Builder
	d.write(&text)
	if d.Rows != 1 || d.Mean != 0.5 || d.Median != 0.5 || !strings.Contains(text.String(), "2 rows left out") {
		t.Errorf("%+v\n%s", d, text.String())
	}
}

// TestEqualLogits: of equal rows none differs most.
func TestEqualLogits(t *testing.T) {
	d := &LogitsDiff{}
	l := newLogitRow()
	l.a, l.b = softmax{sum: 1}, softmax{sum: 1}
	if err := d.add(&RowDiff{}, &l); err != nil {
		t.Fatal(err)
	}
	d.settle()
	if text, err := json.Marshal(d); err != nil || d.Rows != 1 || !strings.HasSuffix(string(text), `"worst":[]}`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestWorstLogits: the figures are of all rows, and the worst of them are listed, the worst first.
func TestWorstLogits(t *testing.T) {
	d := &LogitsDiff{}
	for i := range 100 {
		kl := float64((i*37)%100) + 0.5
		row := newLogitRow()
		row.a, row.b = softmax{sum: 1, top: i % 4}, softmax{sum: 1, top: 0}
		row.across = kl
		if err := d.add(&RowDiff{Token: int64(i)}, &row); err != nil {
			t.Fatal(err)
		}
	}
	d.settle()
	if d.Rows != 100 || d.Mean != 50 || d.Median != 50 || math.Abs(d.P99-98.51) > 1e-9 || d.Max != 99.5 ||
		d.SameTop != 0.25 { // the quantiles are those of NumPy
		t.Errorf("%+v", d)
	}
	for i, w := range d.Worst {
		if w.KL != 99.5-float64(i) || (w.Token*37)%100 != 99-int64(i) {
			t.Errorf("worst %d: %+v", i, w)
		}
	}
	if len(d.Worst) != worstLogits {
		t.Errorf("%d are listed", len(d.Worst))
	}
}
