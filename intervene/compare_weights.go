package intervene

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/gguf"
)

// WeightError is what the error of one weight does by itself: model a with this weight of model b.
type WeightError struct {
	Name     string  `json:"name"`
	Type     string  `json:"type"`     // in b
	Relative float64 `json:"relative"` // of the weight itself, as in PointError
	KL       float64 `json:"kl_mean"`  // from a
}

// weight is a weight that differs between both models.
type weight struct {
	WeightError
	a, b *gguf.Tensor
	sum  float64 // of divergences
	rows int
}

// weightFile is a model file whose weights are read.
type weightFile struct {
	*gguf.File
	data *os.File
}

func openWeights(path string) (*weightFile, error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	if n := gguf.Identify(file, path).Splits; n > 1 {
		return nil, fmt.Errorf("%s is split over %d files: join them with llama-gguf-split --merge, or leave "+
			"--weights out", path, n)
	}
	data, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &weightFile{file, data}, nil
}

// read reads a weight as another type.
func (f *weightFile) read(t *gguf.Tensor, as gguf.Type) ([]byte, error) {
	data := make([]byte, t.Bytes)
	if _, err := f.data.ReadAt(data, t.Offset); err != nil {
		return nil, fmt.Errorf("read weight %s: %w", t.Name, err)
	}
	if t.Type == as {
		return data, nil
	}
	data, err := llama.Requantise(data, t.Type, as, t.Values()/t.RowValues(), t.RowValues())
	if err != nil {
		return nil, fmt.Errorf("weight %s: %w", t.Name, err)
	}
	return data, nil
}

// openBoth opens the files of both models and lists the weights that differ.
func (c *comparer) openBoth() (err error) {
	if !c.Weights {
		return nil
	}
	if c.fileA, err = openWeights(c.A); err != nil {
		return err
	}
	if c.fileB, err = openWeights(c.B); err != nil {
		return err
	}
	for i := range c.fileA.Tensors {
		a := &c.fileA.Tensors[i]
		b, ok := c.fileB.Tensor(a.Name)
		if !ok || !slices.Equal(a.Shape, b.Shape) {
			return fmt.Errorf("%s has no weight %s of the same shape: compare models of one architecture", c.B, a.Name)
		}
		w := &weight{WeightError: WeightError{Name: a.Name, Type: b.Type.String()}, a: a, b: b}
		if w.Relative, err = c.relative(a, b); err != nil {
			return err
		}
		if w.Relative > 0 {
			c.weights = append(c.weights, w)
		}
	}
	return nil
}

func (c *comparer) closeBoth() {
	for _, f := range []*weightFile{c.fileA, c.fileB} {
		if f != nil {
			f.data.Close() // it was only read
		}
	}
}

// relative is how far the values of a weight lie apart.
func (c *comparer) relative(a, b *gguf.Tensor) (float64, error) {
	x, err := c.fileA.read(a, gguf.F32)
	if err != nil {
		return 0, err
	}
	y, err := c.fileB.read(b, gguf.F32)
	if err != nil {
		return 0, err
	}
	var difference, squares float64
	for i := 0; i < len(x); i += valueBytes {
		p, q := float64(float32At(x[i:])), float64(float32At(y[i:]))
		difference, squares = difference+(q-p)*(q-p), squares+p*p
	}
	if squares == 0 {
		return 0, nil
	}
	return math.Sqrt(difference / squares), nil
}

func float32At(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// try runs a chunk through model a with one weight of model b, in the type that a has for it, and puts a's own back.
func (c *comparer) try(ctx context.Context, w *weight, tokens []llama.Token, logits [][]float32) error {
	own, err := c.fileA.read(w.a, w.a.Type)
	if err != nil {
		return err
	}
	other, err := c.fileB.read(w.b, w.a.Type)
	if err != nil {
		return err
	}
	if err := c.a.x.SetWeight(w.Name, other); err != nil {
		return err
	}
	changed, err := c.a.read(ctx, tokens, nil)
	if back := c.a.x.SetWeight(w.Name, own); err == nil {
		err = back
	}
	if err != nil {
		return err
	}
	for at := len(tokens) / 2; at < len(tokens)-1; at++ {
		w.sum, w.rows = w.sum+divergence(logits[at], changed.logits[at]), w.rows+1
	}
	return nil
}
