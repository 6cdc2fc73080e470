package autoencoder

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// Engine multiplies rows of float32. Its methods are called by several goroutines. Results must not depend on that.
type Engine interface {
	// Name distinguishes engines whose results differ in the last bits.
	Name() string
	// Products sets out, [rows][features], to the products of each row of x with each row of w, of width values.
	Products(out, x, w []float32, rows, features, width int)
	// AddRows adds scales[i] times row index[i] of rows to out, whose length is the rows' width, for each i in order.
	AddRows(out, scales []float32, index []int32, rows []float32)
	// Dots sets out[i] to the product of row and of row index[i] of rows.
	Dots(out []float32, index []int32, rows, row []float32)
	// Adam is a step of Adam (Kingma and Ba 2015) with the constants [Beta1], [Beta2] and 1e-8. rate and correct
	// contain its corrections of the bias of both moments.
	Adam(values, gradients, moment1, moment2 []float32, rate, correct float32)
}

// How much of Adam's moments a step keeps.
const (
	Beta1 = 0.9
	Beta2 = 0.999
)

// Plain is the engine of builds without C.
type Plain struct{}

// Name is the name of the engine.
func (Plain) Name() string { return "Go" }

// Products sets out to the products of rows.
func (Plain) Products(out, x, w []float32, rows, features, width int) {
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, blas32.General{Rows: rows, Cols: width, Stride: width, Data: x},
		blas32.General{Rows: features, Cols: width, Stride: width, Data: w}, 0,
		blas32.General{Rows: rows, Cols: features, Stride: features, Data: out})
}

// AddRows adds multiples of chosen rows to out.
func (Plain) AddRows(out, scales []float32, index []int32, rows []float32) {
	sum := strided(out)
	for i, at := range index {
		blas32.Axpy(scales[i], strided(rows[int(at)*len(out):][:len(out)]), sum)
	}
}

// Dots sets out to the products of a row with chosen rows.
func (Plain) Dots(out []float32, index []int32, rows, row []float32) {
	for i, at := range index {
		out[i] = blas32.Dot(strided(row), strided(rows[int(at)*len(row):][:len(row)]))
	}
}

// Adam is a step of Adam.
func (Plain) Adam(values, gradients, moment1, moment2 []float32, rate, correct float32) {
	for i, g := range gradients {
		moment1[i] += (1 - Beta1) * (g - moment1[i])
		moment2[i] += (1 - Beta2) * (g*g - moment2[i])
		values[i] -= rate * moment1[i] / (float32(math.Sqrt(float64(moment2[i]*correct))) + 1e-8)
	}
}

func strided(s []float32) blas32.Vector { return blas32.Vector{N: len(s), Data: s, Inc: 1} }
