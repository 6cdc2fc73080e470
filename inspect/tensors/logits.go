package tensors

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/llamatap/llamatap/internal/present"
)

// Logits is the name of the tensor of which KL divergences are computed.
const Logits = "result_output"

// The bounds of what is kept of rows of logits.
const (
	worstLogits = 8
	maxLogits   = 1 << 22 // of percentiles; a gigabyte of text has fewer tokens
)

// LogitsDiff is how the probabilities of two runs differ, over the rows of logits that both have. Divergences are
// KL(a‖b), in nats.
type LogitsDiff struct {
	Rows      int     `json:"rows"`       // that the figures are of
	NonFinite int     `json:"non_finite"` // rows whose divergence is not a finite number
	Mean      float64 `json:"kl_mean"`
	Median    float64 `json:"kl_median"`
	P99       float64 `json:"kl_p99"`
	Max       float64 `json:"kl_max"`
	SameTop   float64 `json:"same_top"` // share of rows in which both have the same most probable token
	// Worst are the tokens after which the runs differ most, at most eight; none where they are equal.
	Worst []WorstLogits `json:"worst"`

	all  []float64
	same int
}

// MarshalJSON writes the figures, of no rows only how many there are.
func (d *LogitsDiff) MarshalJSON() ([]byte, error) {
	if d.Rows == 0 {
		return fmt.Appendf(nil, `{"rows":0,"non_finite":%d}`, d.NonFinite), nil
	}
	type plain LogitsDiff
	p := plain(*d)
	p.Worst = append([]WorstLogits{}, d.Worst...) // a list, also of none
	return json.Marshal(p)
}

// WorstLogits is a token after which two runs expect different ones.
type WorstLogits struct {
	Token int64   `json:"token_index"` // in the first run
	ID    int32   `json:"token_id"`
	KL    float64 `json:"kl_divergence"`
	TopA  int     `json:"top_a"` // the most probable next token's id
	TopB  int     `json:"top_b"`
}

// add takes a row into account.
func (d *LogitsDiff) add(row *RowDiff, l *logitRow) error {
	kl := l.divergence()
	if math.IsNaN(kl) || math.IsInf(kl, 0) {
		d.NonFinite++
		return nil
	}
	if d.Rows++; d.Rows > maxLogits {
		return fmt.Errorf("more than %d rows of logits: compare fewer with --tensor", maxLogits)
	}
	row.KL = &kl
	d.all = append(d.all, kl)
	if l.a.top == l.b.top {
		d.same++
	}
	at, _ := slices.BinarySearchFunc(d.Worst, kl, func(w WorstLogits, kl float64) int { return cmp.Compare(kl, w.KL) })
	if at < worstLogits && kl != 0 {
		d.Worst = slices.Insert(d.Worst, at, WorstLogits{row.Token, row.ID, kl, l.a.top, l.b.top})
		d.Worst = d.Worst[:min(len(d.Worst), worstLogits)]
	}
	return nil
}

// settle computes what needs all rows.
func (d *LogitsDiff) settle() {
	n := len(d.all)
	if n == 0 {
		return
	}
	slices.Sort(d.all)
	for _, kl := range d.all {
		d.Mean += kl / float64(n)
	}
	quantile := func(q float64) float64 { // between neighbours, as llama-perplexity has it
		at, share := math.Modf(q * float64(n-1))
		i := int(at)
		return (1-share)*d.all[i] + share*d.all[min(i+1, n-1)]
	}
	d.Median, d.P99, d.Max = quantile(0.5), quantile(0.99), d.all[n-1]
	d.SameTop = float64(d.same) / float64(n)
	d.all = nil
}

// write writes the figures as lines of a text.
func (d *LogitsDiff) write(w io.Writer) {
	fmt.Fprintln(w)
	if d.NonFinite > 0 {
		fmt.Fprintf(w, "logits    %s left out: the KL(a‖b) is NaN or infinite\n", present.Plural(d.NonFinite, "row"))
	}
	if d.Rows == 0 {
		return
	}
	fmt.Fprintf(w,
		"logits    %s: KL(a‖b) mean %.6g, median %.6g, 99 %% %.6g, max %.6g nats; same most probable "+
			"token %.2f %%\n", present.Plural(d.Rows, "row"), d.Mean, d.Median, d.P99, d.Max, 100*d.SameTop)
	for _, worst := range d.Worst {
		fmt.Fprintf(w, "          after token %d (id %d): KL %.6g, most probable %d in a, %d in b\n", worst.Token,
			worst.ID, worst.KL, worst.TopA, worst.TopB)
	}
}

// logitRow adds up what the KL divergence of two rows of logits needs, stretch by stretch. Numerators are divided by
// e^most, which grows with the row.
type logitRow struct {
	a, b   softmax
	across float64 // sum of e^(a−most of a) × (a − b)
	n      int
}

// softmax is the denominator of one.
type softmax struct {
	most float64
	sum  float64
	top  int
}

func newLogitRow() logitRow {
	return logitRow{a: softmax{most: math.Inf(-1)}, b: softmax{most: math.Inf(-1)}}
}

// addLogit adds a logit, and returns what earlier numerators are to be multiplied by.
func (s *softmax) addLogit(x float64, at int) (scale float64) {
	if math.IsInf(x, -1) { // a masked token has no probability
		return 1
	}
	scale = 1
	if x > s.most {
		scale = math.Exp(s.most - x)
		s.most, s.top = x, at
		s.sum *= scale
	}
	s.sum += math.Exp(x - s.most)
	return scale
}

// add takes values of both rows.
func (r *logitRow) add(a, b []float32) {
	for i, v := range a {
		x, y := float64(v), float64(b[i])
		r.across *= r.a.addLogit(x, r.n)
		r.b.addLogit(y, r.n)
		if !math.IsInf(x, -1) {
			r.across += math.Exp(x-r.a.most) * (x - y)
		}
		r.n++
	}
}

// divergence is KL(a‖b) in nats, not below 0; NaN where a row has values that are not finite.
func (r *logitRow) divergence() float64 {
	kl := r.across/r.a.sum + (r.b.most - r.a.most) + (math.Log(r.b.sum) - math.Log(r.a.sum)) // 0 where both are equal
	return max(0, kl)
}
