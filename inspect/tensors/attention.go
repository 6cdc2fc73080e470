package tensors

import (
	"fmt"
	"math"
)

// attention recomputes attention maps: for a head and a token the weight of every KV cell, softmax(Q·K·scale +
// mask), as ggml's flash attention computes it inside. Arrays are in ggml order, first dimension fastest.
type attention struct {
	HeadDim int // elements of one row of Q or K
	Heads   int // heads of Q
	KVHeads int // heads of K; Heads is a multiple (grouped queries: head h reads K head h / (Heads/KVHeads))
	Tokens  int // tokens of the micro-batch
	Cells   int // KV cells that the graph looked at

	Q    []float32 // [HeadDim, Heads, Tokens], after RoPE and after any scaling of Q itself
	K    []float32 // [HeadDim, KVHeads, Cells], after RoPE; a cell that was never written must be masked
	Mask []float32 // [Cells, at least Tokens]: 0, or -Inf where a token does not see a cell; nil: all is seen

	Scale   float64   // of Q·K
	SoftCap float64   // caps the scaled Q·K at ±SoftCap by tanh; 0: no cap
	Sinks   []float32 // one logit per head that takes part in the sum only; nil: none
}

// Check reports whether the arrays have the sizes that the dimensions demand.
func (a *attention) Check() error {
	switch {
	case a.HeadDim < 1 || a.Heads < 1 || a.KVHeads < 1 || a.Tokens < 1 || a.Cells < 1:
		return fmt.Errorf("attention of %d×%d heads (%d of K), %d tokens and %d cells has an empty dimension",
			a.HeadDim, a.Heads, a.KVHeads, a.Tokens, a.Cells)
	case a.Heads%a.KVHeads != 0:
		return fmt.Errorf("%d heads of Q cannot share %d heads of K evenly", a.Heads, a.KVHeads)
	case len(a.Q) != a.HeadDim*a.Heads*a.Tokens:
		return fmt.Errorf("array Q has %d elements, and %d×%d×%d are needed", len(a.Q), a.HeadDim, a.Heads, a.Tokens)
	case len(a.K) != a.HeadDim*a.KVHeads*a.Cells:
		return fmt.Errorf("array K has %d elements, and %d×%d×%d are needed", len(a.K), a.HeadDim, a.KVHeads, a.Cells)
	case a.Mask != nil && (len(a.Mask)%a.Cells != 0 || len(a.Mask) < a.Cells*a.Tokens):
		return fmt.Errorf("the mask has %d elements, and rows of %d for %d tokens are needed", len(a.Mask), a.Cells,
			a.Tokens)
	case a.Sinks != nil && len(a.Sinks) != a.Heads:
		return fmt.Errorf("there are %d sinks for %d heads", len(a.Sinks), a.Heads)
	}
	return nil
}

// appendRow appends the weights of all cells for one head and token to dst; with sinks they sum to less than one. A
// token that sees no cell at all, as a padding row does, has only zeros. Sums are taken in float64.
func (a *attention) appendRow(dst []float32, head, token int) ([]float32, error) {
	if err := a.Check(); err != nil {
		return dst, err
	}
	if head < 0 || head >= a.Heads || token < 0 || token >= a.Tokens {
		return dst, fmt.Errorf("head %d, token %d: there are heads 0 to %d and tokens 0 to %d", head, token, a.Heads-1,
			a.Tokens-1)
	}
	logits := make([]float64, a.Cells)
	top := math.Inf(-1)
	if a.Sinks != nil {
		top = float64(a.Sinks[head])
	}
	for cell := range logits {
		logits[cell] = a.logit(head, token, cell)
		top = max(top, logits[cell])
	}
	return appendSoftMax(dst, logits, top, a.Sinks, head), nil
}

// logit is the value that enters the soft-max.
func (a *attention) logit(head, token, cell int) float64 {
	var mask float64
	if a.Mask != nil {
		if mask = float64(a.Mask[token*a.Cells+cell]); math.IsInf(mask, -1) {
			return mask
		}
	}
	kvHead := head / (a.Heads / a.KVHeads)
	q := a.Q[(token*a.Heads+head)*a.HeadDim:][:a.HeadDim]
	k := a.K[(cell*a.KVHeads+kvHead)*a.HeadDim:][:a.HeadDim]
	var dot float64
	for i, x := range q {
		dot += float64(x) * float64(k[i])
	}
	dot *= a.Scale
	if a.SoftCap != 0 {
		dot = a.SoftCap * math.Tanh(dot/a.SoftCap)
	}
	return dot + mask
}

func appendSoftMax(dst []float32, logits []float64, top float64, sinks []float32, head int) []float32 {
	if math.IsInf(top, -1) {
		return append(dst, make([]float32, len(logits))...)
	}
	var sum float64
	if sinks != nil {
		sum = math.Exp(float64(sinks[head]) - top)
	}
	for i, x := range logits {
		logits[i] = math.Exp(x - top)
		sum += logits[i]
	}
	for _, x := range logits {
		dst = append(dst, float32(x/sum))
	}
	return dst
}
