package activations

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Correlation is Pearson's r of a metric of two tensors over their common tokens. It is not a cause: layers of the
// residual stream share what the layers before them added. P is two-sided, of Student's t with N-2 degrees of freedom,
// which assumes independent tokens; tokens of one text are not, so P is too small.
type Correlation struct {
	A string  `json:"layer_a"`
	B string  `json:"layer_b"`
	R float64 `json:"correlation"`
	N int     `json:"n"`
	P float64 `json:"p"`
}

// fewestPairs is how many tokens a correlation needs, maxCorrelated of how many tensors pairs are computed.
const (
	fewestPairs   = 4
	maxCorrelated = 1 << 10
)

// correlate computes the pairs of which |r| is at least least, by descending r as STRAP-LLM sorts them, and keeps the
// first top of them.
func (a *Analysis) correlate(least float64, top int) {
	a.Correlations = []Correlation{}
	if len(a.Tensors) > maxCorrelated {
		return
	}
	var x, y []float64
	for i, tensor := range a.Tensors {
		for _, other := range a.Tensors[:i] {
			x, y = x[:0], y[:0]
			for l, r := 0, 0; l < len(other.Rows) && r < len(tensor.Rows); {
				switch before, after := &other.Rows[l], &tensor.Rows[r]; {
				case before.Token < after.Token:
					l++
				case before.Token > after.Token:
					r++
				default:
					if v, w := before.metric(a.Metric), after.metric(a.Metric); !math.IsNaN(v + w) {
						x, y = append(x, v), append(y, w)
					}
					l, r = l+1, r+1
				}
			}
			if len(x) < fewestPairs || other.Ctx != tensor.Ctx || slices.Min(x) == slices.Max(x) ||
				slices.Min(y) == slices.Max(y) {
				continue
			}
			r := stat.Correlation(x, y, nil)
			if math.Abs(r) < least {
				continue
			}
			r = max(-1, min(1, r))
			n := float64(len(x))
			t := math.Abs(r) * math.Sqrt((n-2)/((1-r)*(1+r)))
			p := 2 * distuv.StudentsT{Sigma: 1, Nu: n - 2}.Survival(t)
			a.Correlations = append(a.Correlations, Correlation{other.Name, tensor.Name, r, len(x), min(1, p)})
		}
	}
	slices.SortStableFunc(a.Correlations, func(x, y Correlation) int { return cmp.Compare(y.R, x.R) })
	if top > 0 && len(a.Correlations) > top {
		a.Correlations = a.Correlations[:top]
	}
}
