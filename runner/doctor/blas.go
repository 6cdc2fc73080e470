package doctor

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/gguf"
)

// Product is how long two devices take at least for the same product of matrices: productRows rows of float32 by
// square weights of one type.
type Product struct {
	Weights   gguf.Type
	CPU, BLAS time.Duration
}

// The size of a product: as many rows as llama.cpp computes at a time, and weights that do not fit into a
// processor's own caches.
const (
	productRows  = 512
	productWidth = 1536
	productTime  = 100 * time.Millisecond
)

// worthwhile is how many times as fast products must be for prompts to be clearly faster: the rest of a graph gains
// nothing, and the CPU backend's threads are slower between products of the other one.
const worthwhile = 2

// MeasureProducts loads the BLAS backend and compares it with the CPU's. The error wraps errors.ErrUnsupported where
// this llama.cpp has none. llama.Init must have been called.
func MeasureProducts() ([]Product, error) {
	threads := runtime.NumCPU()
	if err := llama.LoadBLAS(threads); err != nil {
		return nil, err
	}
	var products []Product
	for _, weights := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_K} {
		p := Product{Weights: weights}
		for _, side := range []struct {
			device string
			time   *time.Duration
		}{{"CPU", &p.CPU}, {"BLAS", &p.BLAS}} {
			var err error
			*side.time, err = llama.ProductTime(side.device, weights, productWidth, productRows, threads, productTime)
			if err != nil {
				return nil, err
			}
		}
		products = append(products, p)
	}
	return products, nil
}

// blas compares the BLAS backend with the CPU's.
func blas(o Options) []Fact {
	if o.Products == nil {
		return nil
	}
	f := Fact{Topic: "speed", Name: "BLAS"}
	products, err := o.Products()
	if errors.Is(err, ErrUndecided) {
		return []Fact{f.unknown(err)}
	}
	if err != nil {
		return []Fact{f.with(Missing, oneLine(err.Error())).
			lacking("run --blas", "make build, or make LLAMA_PREFIX=… with a build that has -DGGML_BLAS=ON")}
	}
	var ratios, faster []string
	for _, p := range products {
		ratio := float64(p.CPU) / float64(p.BLAS)
		ratios = append(ratios, fmt.Sprintf("%s %.2f", p.Weights, ratio))
		if ratio >= worthwhile {
			faster = append(faster, p.Weights.String())
		}
	}
	text := "products of matrices, times as fast as the CPU backend's: " + strings.Join(ratios, ", ")
	if len(faster) == 0 {
		return []Fact{f.with(OK, text+"; no reason to use run --blas")}
	}
	return []Fact{f.with(OK, text+"; use run --blas for prompts with weights in "+strings.Join(faster, ", "))}
}
