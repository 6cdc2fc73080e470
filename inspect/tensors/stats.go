package tensors

import "math"

// Stats describes the values of one or many tensors. Moments are absent when there is no finite value to take them of.
type Stats struct {
	Elements uint64  `json:"elements"`
	Zeros    uint64  `json:"zeros"`    // exact zeros of either sign
	Sparsity float64 `json:"sparsity"` // Zeros / Elements; 0 when there are no elements
	NaN      uint64  `json:"nan"`
	Inf      uint64  `json:"inf"` // of either sign
	*Moments
}

// Moments are taken over the finite values, accumulated in float64.
type Moments struct {
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"` // of the population
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	L2   float64 `json:"l2_norm"` // Euclidean norm
}

// Accumulator computes Stats of values, in any order and any number of parts. The zero value is empty.
type Accumulator struct {
	elements, zeros, nan, inf uint64
	finite                    float64 // count of finite values
	mean, m2                  float64 // m2: sum of squared distances from mean
	squares                   float64
	min, max                  float64
}

// statsBlock is how many values are summed with two passes before they are merged: small enough to stay in the L1
// cache.
const statsBlock = 4096

// Add takes values into account.
func (a *Accumulator) Add(values []float32) {
	for len(values) > 0 {
		n := min(len(values), statsBlock)
		a.addBlock(values[:n])
		values = values[n:]
	}
}

// addBlock takes one block in two passes, mean first, so that a large mean does not cost the variance its digits.
func (a *Accumulator) addBlock(values []float32) {
	b := Accumulator{elements: uint64(len(values))}
	if !b.sumFinite(values) {
		b.sumAny(values)
	}
	a.Merge(&b)
}

// sumFinite fills b and reports true if all values are finite. Four sums run side by side, because one would wait
// for each addition.
func (b *Accumulator) sumFinite(values []float32) bool {
	var sum, squares [4]float64
	low, high := float32(math.Inf(1)), float32(math.Inf(-1))
	var zeros uint64
	for i, v := range values {
		x := float64(v)
		sum[i&3] += x
		squares[i&3] += x * x
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
		if v == 0 {
			zeros++
		}
	}
	b.squares = squares[0] + squares[1] + squares[2] + squares[3]
	if b.squares-b.squares != 0 || len(values) == 0 {
		return false // float32 squares cannot overflow float64, so a value was NaN or infinite
	}
	b.zeros, b.min, b.max, b.finite = zeros, float64(low), float64(high), float64(len(values))
	b.mean = (sum[0] + sum[1] + sum[2] + sum[3]) / b.finite
	var m2 [4]float64
	for i, v := range values {
		d := float64(v) - b.mean
		m2[i&3] += d * d
	}
	b.m2 = m2[0] + m2[1] + m2[2] + m2[3]
	return true
}

// sumAny is sumFinite for values of which some are NaN or infinite: those are counted and left out.
func (b *Accumulator) sumAny(values []float32) {
	finite := make([]float32, 0, statsBlock)
	for _, v := range values {
		switch {
		case v != v:
			b.nan++
		case v-v != 0:
			b.inf++
		default:
			finite = append(finite, v)
		}
	}
	if !b.sumFinite(finite) {
		b.squares = 0
	}
}

// Merge takes everything that b holds into account (Chan, Golub and LeVeque 1979).
func (a *Accumulator) Merge(b *Accumulator) {
	a.elements += b.elements
	a.zeros += b.zeros
	a.nan += b.nan
	a.inf += b.inf
	if b.finite == 0 {
		return
	}
	if a.finite == 0 {
		a.finite, a.mean, a.m2, a.squares, a.min, a.max = b.finite, b.mean, b.m2, b.squares, b.min, b.max
		return
	}
	n := a.finite + b.finite
	d := b.mean - a.mean
	a.m2 += b.m2 + d*d*a.finite*b.finite/n
	a.mean += d * b.finite / n
	a.finite = n
	a.squares += b.squares
	a.min, a.max = min(a.min, b.min), max(a.max, b.max)
}

// Stats returns what was gathered so far.
func (a *Accumulator) Stats() Stats {
	s := Stats{Elements: a.elements, Zeros: a.zeros, NaN: a.nan, Inf: a.inf}
	if a.elements > 0 {
		s.Sparsity = float64(a.zeros) / float64(a.elements)
	}
	if a.finite > 0 {
		s.Moments = &Moments{Mean: a.mean, Std: math.Sqrt(a.m2 / a.finite), Min: a.min, Max: a.max,
			L2: math.Sqrt(a.squares)}
	}
	return s
}
