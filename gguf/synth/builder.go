package synth

import (
	"fmt"
	"math"

	"github.com/llamatap/llamatap/gguf"
)

// fill computes the values first, first+1, … of a tensor into dst.
type fill func(dst []float32, key uint64, first int64)

// part is a tensor to be made.
type part struct {
	tensor gguf.Tensor
	fill   fill
	// wanted is the type that was asked for, where the row length forced another.
	wanted gguf.Type
}

// builder collects the parts of a model. Its methods take names without ".weight" and lengths in llama.cpp's order, row
// length first.
type builder struct {
	*Config
	vocab  int
	prefix string // "blk.3." inside a layer
	parts  []part
}

func (b *builder) add(name string, t gguf.Type, f fill, shape ...int) {
	p := part{tensor: gguf.Tensor{Name: b.prefix + name, Type: t}, fill: f, wanted: t}
	for _, n := range shape {
		p.tensor.Shape = append(p.tensor.Shape, int64(n))
	}
	p.tensor.Type = fallback(t, p.tensor.Shape[0])
	b.parts = append(b.parts, p)
}

// fallback is the type that llama-quantize takes where a row is not a whole number of blocks.
func fallback(t gguf.Type, row int64) gguf.Type {
	if t == gguf.Q4_K && row%t.BlockValues() != 0 {
		t = gguf.Q5_0
	}
	if row%t.BlockValues() != 0 {
		return gguf.F16
	}
	return t
}

// matrix maps in values to out, for each of the further dimensions.
func (b *builder) matrix(name string, in, out int, more ...int) {
	b.add(name+".weight", b.Type, normal(0, 1/math.Sqrt(float64(in))), append([]int{in, out}, more...)...)
}

// table is a matrix whose rows are looked up.
func (b *builder) table(name string, width, rows int, sigma float64) {
	b.add(name+".weight", b.Type, normal(0, sigma), width, rows)
}

// small is a matrix that llama.cpp keeps in F32.
func (b *builder) small(name string, in, out int) {
	b.add(name+".weight", gguf.F32, normal(0, 1/math.Sqrt(float64(in))), in, out)
}

func (b *builder) norm(name string, n int) { b.add(name+".weight", gguf.F32, normal(1, 0.1), n) }

func (b *builder) bias(name string, shape ...int) {
	b.add(name+".bias", gguf.F32, normal(0, 0.05), shape...)
}

// normBias is a layer norm with both of its vectors.
func (b *builder) normBias(name string, n int) {
	b.norm(name, n)
	b.bias(name, n)
}

// matrixBias is a matrix with a bias on what comes out.
func (b *builder) matrixBias(name string, in, out int) {
	b.matrix(name, in, out)
	b.bias(name, out)
}

// layer sets the prefix for layer i.
func (b *builder) layer(i int) { b.prefix = fmt.Sprintf("blk.%d.", i) }

func normal(mu, sigma float64) fill {
	return func(dst []float32, key uint64, first int64) { fillNormal(dst, key, first, float32(mu), float32(sigma)) }
}
