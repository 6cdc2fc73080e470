package tensors

import (
	"encoding/json"
	"math"
)

// Distance says how far values lie from others: sums over any number of rows, from which the figures come.
type Distance struct {
	Rows      int64
	Values    int64   // pairs in which both are finite
	NonFinite int64   // pairs in which one is not
	Max       float64 // largest difference
	CosineMin float64 // of the rows; 1 without any

	cosines float64 // sum over rows
	squares float64 // of the differences
	base    float64 // squares of the first values
}

// rowDistance sums up the distance of two rows, stretch by stretch. Pairs with a NaN or an infinity are counted and
// left out; equal ones are not even counted, so that two equal rows have no distance.
type rowDistance struct {
	d           Distance
	dot, aa, bb float64
}

func (s *rowDistance) add(a, b []float32) {
	d, dot, aa, bb := s.d, s.dot, s.aa, s.bb
	for i, v := range a {
		x, y := float64(v), float64(b[i])
		if math.IsNaN(x-y) || math.IsInf(x-y, 0) {
			if !(x == y || math.IsNaN(x) && math.IsNaN(y)) {
				d.NonFinite++
			}
			continue
		}
		d.Values++
		diff := math.Abs(x - y)
		d.Max = max(d.Max, diff)
		d.squares += diff * diff
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	s.d, s.dot, s.aa, s.bb = d, dot, aa, bb
}

func (s *rowDistance) distance() Distance {
	d := s.d
	d.Rows, d.base, d.CosineMin = 1, s.aa, 1
	if d.squares > 0 {
		d.CosineMin = cosine(s.dot, s.aa, s.bb)
	}
	d.cosines = d.CosineMin
	return d
}

// cosine of the angle between two vectors that differ: 0 if one is zero.
func cosine(dot, aa, bb float64) float64 {
	if aa == 0 || bb == 0 {
		return 0
	}
	return max(-1, min(1, dot/math.Sqrt(aa)/math.Sqrt(bb)))
}

// Merge adds the rows of e.
func (d *Distance) Merge(e *Distance) {
	if d.Rows == 0 {
		*d = *e
		return
	}
	d.Rows, d.Values, d.NonFinite = d.Rows+e.Rows, d.Values+e.Values, d.NonFinite+e.NonFinite
	d.Max, d.CosineMin = max(d.Max, e.Max), min(d.CosineMin, e.CosineMin)
	d.cosines, d.squares, d.base = d.cosines+e.cosines, d.squares+e.squares, d.base+e.base
}

// Cosine is the mean of the rows' cosines.
func (d *Distance) Cosine() float64 {
	if d.Rows == 0 {
		return 1
	}
	return d.cosines / float64(d.Rows)
}

// RMS is the root mean square of the differences.
func (d *Distance) RMS() float64 {
	if d.Values == 0 {
		return 0
	}
	return math.Sqrt(d.squares / float64(d.Values))
}

// Relative is the root mean square of the differences over that of the first values; 0 where there is no
// difference, +Inf where the first values are zero and the others not.
func (d *Distance) Relative() float64 {
	if d.squares == 0 {
		return 0
	}
	return math.Sqrt(d.squares / d.base)
}

// MarshalJSON writes the figures, of no rows only their number.
func (d Distance) MarshalJSON() ([]byte, error) {
	if d.Rows == 0 {
		return []byte(`{"rows":0}`), nil
	}
	return json.Marshal(d.figures())
}

// distanceFigures are a distance as files show it.
type distanceFigures struct {
	Rows      int64    `json:"rows"`
	Values    int64    `json:"values"`
	NonFinite int64    `json:"non_finite"`
	Cosine    float64  `json:"cosine"` // mean of the rows'
	CosineMin float64  `json:"cosine_min"`
	Max       float64  `json:"max_abs_diff"`
	RMS       float64  `json:"rms_diff"`
	Relative  *float64 `json:"relative_rms_diff"` // null: the first values are zero, and the others not
}

func (d *Distance) figures() distanceFigures {
	f := distanceFigures{Rows: d.Rows, Values: d.Values, NonFinite: d.NonFinite, Cosine: d.Cosine(),
		CosineMin: d.CosineMin, Max: d.Max, RMS: d.RMS()}
	if rel := d.Relative(); !math.IsInf(rel, 0) {
		f.Relative = &rel
	}
	return f
}

// MarshalJSON writes where the row stands, and its figures.
func (r RowDiff) MarshalJSON() ([]byte, error) {
	type where struct {
		Tensor  string `json:"tensor"`
		Layer   int    `json:"layer"`
		Ctx     uint32 `json:"ctx"`
		Token   int64  `json:"token_index"`
		Other   int64  `json:"other_token_index"`
		ID      int32  `json:"token_id"`
		Seq     int32  `json:"seq_id"`
		Request int32  `json:"request"`
		Pos     int32  `json:"pos"`
		distanceFigures
		KL *float64 `json:"kl_divergence,omitempty"`
	}
	return json.Marshal(where{r.Tensor, r.Layer, r.Ctx, r.Token, r.Other, r.ID, r.Seq, r.Request, r.Pos, r.figures(),
		r.KL})
}
