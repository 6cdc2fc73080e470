package autoencoder

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// The architectures, as flags name them.
const (
	TopK     = "topk"     // the K largest pre-activations that are positive
	JumpReLU = "jumprelu" // pre-activations above a learnt threshold of each feature
	ReLU     = "relu"     // positive pre-activations
)

// Archs are all of them.
var Archs = []string{TopK, JumpReLU, ReLU}

// SAE is a sparse autoencoder. Its matrices are [Features][Width], row by row.
type SAE struct {
	Arch            string
	Width, Features int
	K               int // of TopK
	Encoder         []float32
	Decoder         []float32
	EncoderBias     []float32 // [Features]
	DecoderBias     []float32 // [Width]
	Threshold       []float32 // [Features], of JumpReLU
	About           About
}

// newSAE returns an autoencoder whose parameters lie one after the other in all.
func newSAE(arch string, width, features, k int) (s *SAE, all []float32) {
	s = &SAE{Arch: arch, Width: width, Features: features}
	if arch == TopK {
		s.K = k
	}
	all = make([]float32, s.size())
	rest := all
	for _, p := range s.parts() {
		*p.values, rest = rest[:p.size:p.size], rest[p.size:]
	}
	return s, all
}

// part is a parameter by its name in SAELens' files.
type part struct {
	name   string
	size   int
	values *[]float32
}

func (s *SAE) parts() []part {
	n := s.Features * s.Width
	parts := []part{{"W_enc", n, &s.Encoder}, {"W_dec", n, &s.Decoder}, {"b_enc", s.Features, &s.EncoderBias},
		{"b_dec", s.Width, &s.DecoderBias}}
	if s.Arch == JumpReLU {
		parts = append(parts, part{"threshold", s.Features, &s.Threshold})
	}
	return parts
}

// size is the number of all parameters.
func (s *SAE) size() (n int) {
	for _, p := range s.parts() {
		n += p.size
	}
	return n
}

// activity is what a row activates: features in ascending order and their activations, which are positive but for what
// near names.
type activity struct {
	index []int32
	value []float32
	near  []bool // training JumpReLU: the pre-activation is within the bandwidth; value is 0 where it is not above
}

func (a *activity) reset() { a.index, a.value, a.near = a.index[:0], a.value[:0], a.near[:0] }

// blockRows is how many rows are encoded at a time. Their pre-activations fit the caches.
const blockRows = 60

// encoder is the scratch memory of one goroutine that encodes.
type encoder struct {
	*SAE
	engine Engine
	pre    []float32 // [blockRows][Features]
	ranks  [ranks]int32
	ties   []int32
	guess  float32 // of the values that TopK chooses
}

func (s *SAE) encoder(e Engine) *encoder {
	return &encoder{SAE: s, engine: e, pre: make([]float32, blockRows*s.Features)}
}

// preactivate computes the pre-activations of at most blockRows rows, from which the decoder's bias is subtracted.
func (c *encoder) preactivate(centred []float32) {
	rows := len(centred) / c.Width
	c.engine.Products(c.pre, centred, c.Encoder, rows, c.Features, c.Width)
	for r := range rows {
		c.engine.AddRows(c.row(r), []float32{1}, []int32{0}, c.EncoderBias)
	}
}

// row are the pre-activations of a row of the block.
func (c *encoder) row(r int) []float32 { return c.pre[r*c.Features:][:c.Features] }

// activate sets a to what pre-activations activate. bandwidth is 0, but for training JumpReLU.
func (c *encoder) activate(a *activity, pre []float32, bandwidth float32) {
	a.reset()
	switch c.Arch {
	case TopK:
		a.index, c.guess = c.largest(a.index, pre, c.K, 0, c.guess)
		for _, f := range a.index {
			a.value = append(a.value, pre[f])
		}
	case ReLU:
		for f, v := range pre {
			if v > 0 {
				a.index, a.value = append(a.index, int32(f)), append(a.value, v)
			}
		}
	case JumpReLU:
		for f, v := range pre {
			over := v - c.Threshold[f]
			near := over < bandwidth/2 && over > -bandwidth/2
			if !near && (over <= 0 || v <= 0) {
				continue
			}
			if over <= 0 || v <= 0 {
				v = 0
			}
			a.index, a.value, a.near = append(a.index, int32(f)), append(a.value, v), append(a.near, near)
		}
	}
}

// ranks is how many ranks the leading bits of a float32 distinguish.
const ranks = 1 << 11

// rank is that of a value among all: larger for larger values.
func rank(v float32) uint32 {
	bits := math.Float32bits(v)
	if bits>>31 == 1 {
		return ^bits >> 21
	}
	return (bits | 1<<31) >> 21
}

// largest appends the indexes of the k largest values above floor, in ascending order. Of equal values the first ones
// are taken. guess is what all of them are expected to be above; the next one is returned. It changes the time alone.
func (c *encoder) largest(to []int32, values []float32, k int, floor, guess float32) (largest []int32, next float32) {
	for guess = max(guess, floor); ; guess = floor {
		c.ties = c.ties[:0]
		for i, v := range values {
			if v > guess {
				c.ties = append(c.ties, int32(i))
			}
		}
		if len(c.ties) >= k || guess == floor {
			break
		}
	}
	clear(c.ranks[:])
	for _, i := range c.ties {
		c.ranks[rank(values[i])]++
	}
	least, above := ranks-1, 0 // the rank of the k-th value, and how many values have higher ones
	for ; least > 0 && above+int(c.ranks[least]) < k; least-- {
		above += int(c.ranks[least])
	}
	ties := c.ties[:0]
	for _, i := range c.ties {
		switch r := int(rank(values[i])); {
		case r > least:
			to = append(to, i)
		case r == least:
			ties = append(ties, i)
		}
	}
	if len(ties) > k-above {
		slices.SortFunc(ties, func(a, b int32) int {
			return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(a, b))
		})
		ties = ties[:k-above]
	}
	to = append(to, ties...)
	slices.Sort(to)
	return to, math.Float32frombits(uint32(max(least-1, 0)) << 21 &^ (1 << 31))
}

// decode sets out to the row that features give.
func (c *encoder) decode(out []float32, a *activity) {
	copy(out, c.DecoderBias)
	c.engine.AddRows(out, a.value, a.index, c.Decoder)
}

// workers is how many goroutines compute.
func workers() int { return runtime.GOMAXPROCS(0) }

// parallel calls do for each number below n, on so many goroutines, each of which has a number of its own.
func parallel(workers, n int, do func(worker, i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for w := range min(workers, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(w, i)
			}
		})
	}
	all.Wait()
}
