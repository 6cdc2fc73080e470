//go:build llama

package vector

// #cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra -Werror
// #cgo LDFLAGS: -lm
// #include "vector.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Kernel computes with vectors of so many bits. Its methods may be called by several goroutines.
type Kernel int

// New returns the kernel of the widest vectors that this processor has. The error is nil in builds with C.
func New() (Kernel, error) { return Kernel(C.vector_bits()), nil }

// Name is the name of the kernel: results of two kernels differ in their last bits.
func (k Kernel) Name() string { return fmt.Sprintf("vectors of %d bits", int(k)) }

// Products sets out, [rows][features], to the products of each row of x with each row of w, which have width values.
func (k Kernel) Products(out, x, w []float32, rows, features, width int) {
	if rows == 0 || features == 0 {
		return
	}
	check(len(out) >= rows*features && len(x) >= rows*width && len(w) >= features*width)
	C.matrix_products(C.int(k), pointer(out), pointer(x), pointer(w), C.int64_t(rows), C.int64_t(features),
		C.int64_t(width))
}

// AddRows adds scales[i] times row index[i] of rows to out, whose length is the rows' width, for each i in order.
func (k Kernel) AddRows(out, scales []float32, index []int32, rows []float32) {
	check(len(scales) >= len(index))
	if len(index) > 0 {
		C.matrix_add_rows(C.int(k), pointer(out), pointer(scales), (*C.int32_t)(unsafe.SliceData(index)),
			C.int64_t(len(index)), pointer(rows), C.int64_t(len(out)))
	}
}

// Dots sets out[i] to the product of row and of row index[i] of rows, whose width is the length of row.
func (k Kernel) Dots(out []float32, index []int32, rows, row []float32) {
	check(len(out) >= len(index))
	if len(index) > 0 {
		C.matrix_dots(C.int(k), pointer(out), (*C.int32_t)(unsafe.SliceData(index)), C.int64_t(len(index)),
			pointer(rows), pointer(row), C.int64_t(len(row)))
	}
}

// Adam is a step of Adam with the constants 0.9, 0.999 and 1e-8: gradients change the moments, and these the values.
func (k Kernel) Adam(values, gradients, moment1, moment2 []float32, rate, correct float32) {
	n := len(values)
	check(len(gradients) >= n && len(moment1) >= n && len(moment2) >= n)
	C.matrix_adam(C.int(k), pointer(values), pointer(gradients), pointer(moment1), pointer(moment2), C.int64_t(n),
		C.float(rate), C.float(correct))
}

func pointer(s []float32) *C.float { return (*C.float)(unsafe.SliceData(s)) }

// check ends the program where C would leave an array.
func check(inside bool) {
	if !inside {
		panic("matrix: an array is shorter than its shape")
	}
}
