package activations

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Space says how many directions the sampled rows of a tensor take up.
type Space struct {
	Tokens int `json:"tokens"` // sampled, evenly over the tensor's tokens
	// EffectiveRank is exp of the entropy of the singular values, divided by their sum (Roy and Vetterli 2007). It is
	// between 1 and the smaller one of tokens and channels.
	EffectiveRank float64 `json:"effective_rank"`
	// Explained are the shares of the variance of the first principal components, of the rows less their mean; empty
	// where all rows are the same.
	Explained []float64 `json:"explained_variance"`
}

// components is how many principal components are computed.
const components = 2

// span computes the tensor's Space of the sampled rows; none where one of them has a value that is not finite.
func (t *Tensor) span() {
	n := len(t.sampled)
	if n == 0 || t.NaN+t.Inf > 0 {
		return
	}
	rows := mat.NewDense(n, t.Width, nil)
	for i, row := range t.sampled {
		for k, v := range row {
			rows.Set(i, k, float64(v))
		}
	}
	t.Space = &Space{Tokens: n, EffectiveRank: 1, Explained: []float64{}}
	var gram mat.SymDense
	gram.SymOuterK(1, rows)
	// The eigenvalues of rows × rowsᵀ are the squared singular values of rows.
	if values, _, ok := eigen(&gram, false); ok {
		sum, entropy := 0.0, 0.0
		for i, v := range values {
			values[i] = math.Sqrt(v)
			sum += values[i]
		}
		for _, v := range values {
			if p := v / sum; p > 0 {
				entropy -= p * math.Log(p)
			}
		}
		t.Space.EffectiveRank = math.Exp(entropy)
	}
	for k := range t.Width { // less the mean of each channel
		mean := mat.Sum(rows.ColView(k)) / float64(n)
		for i := range n {
			rows.Set(i, k, rows.At(i, k)-mean)
		}
	}
	gram.Reset()
	gram.SymOuterK(1, rows)
	values, vectors, ok := eigen(&gram, true)
	if !ok {
		return
	}
	total := 0.0
	for _, v := range values {
		total += v
	}
	for c := range min(components, n) {
		at := n - 1 - c // they ascend
		t.Space.Explained = append(t.Space.Explained, values[at]/total)
		sign, largest := 1.0, 0.0 // a component has no sign of its own: the largest coordinate is positive
		for i := range n {
			if v := vectors.At(i, at); math.Abs(v) > largest {
				sign, largest = math.Copysign(1, v), math.Abs(v)
			}
		}
		for i, place := range t.places {
			row := &t.Rows[place]
			row.Component = append(row.Component, sign*vectors.At(i, at)*math.Sqrt(values[at]))
		}
	}
}

// eigen returns the eigenvalues of a positive semidefinite matrix, ascending and not below 0, and its eigenvectors
// if they are wanted; false if all are 0.
func eigen(m mat.Symmetric, wantVectors bool) (values []float64, vectors *mat.Dense, ok bool) {
	var e mat.EigenSym
	if !e.Factorize(m, wantVectors) {
		return nil, nil, false
	}
	values, vectors = e.Values(nil), new(mat.Dense)
	if wantVectors {
		e.VectorsTo(vectors)
	}
	least := values[len(values)-1] * 1e-14 // rounding
	for i, v := range values {
		if v <= least {
			values[i] = 0
		}
	}
	return values, vectors, values[len(values)-1] > 0
}
