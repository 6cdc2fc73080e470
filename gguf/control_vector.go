package gguf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ErrNotControlVector occurs when a GGUF file is not a control vector.
var ErrNotControlVector = errors.New("not a control vector: take a file of 'llamatap vector' or " +
	"llama-cvector-generator")

// ControlVector adds a direction to the residual stream after each layer that it has one for, in llama.cpp's format:
// the architecture controlvector, and a row direction.N of F32 for each layer.
type ControlVector struct {
	Model      string            // controlvector.model_hint: the model's architecture; "" where it is not known
	Layers     int               // controlvector.layer_count; 0 where it is not known
	Directions map[int][]float32 // by layer, from 1 on; all of one width
}

// controlArchitecture is the architecture of such a file, and the beginning of its keys.
const controlArchitecture = "controlvector"

// The bounds of a control vector; no model has as many layers or channels.
const (
	maxControlLayer = 10_000
	maxControlWidth = 1 << 20
	maxControlBytes = 1 << 28
)

// Width is the number of values of a direction; 0 where there is none.
func (v *ControlVector) Width() int {
	for _, row := range v.Directions {
		return len(row)
	}
	return 0
}

// OpenControlVector reads a control vector. Errors begin with the path.
func OpenControlVector(path string) (*ControlVector, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	v := &ControlVector{Directions: map[int][]float32{}}
	v.Model, _ = file.Metadata.Text(controlArchitecture + ".model_hint")
	layers, _ := file.Metadata.Int(controlArchitecture + ".layer_count")
	v.Layers = int(layers)
	switch {
	case len(file.Tensors) == 0:
		return nil, fmt.Errorf("%s: it holds no tensors: %w", path, ErrNotControlVector)
	case file.TensorBytes() > maxControlBytes:
		return nil, fmt.Errorf("%s: it holds more than %d MiB: %w", path, maxControlBytes>>20, ErrNotControlVector)
	}
	for i := range file.Tensors {
		t := &file.Tensors[i]
		layer, err := controlLayer(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if width := v.Width(); width > 0 && int64(width) != t.Shape[0] {
			return nil, fmt.Errorf("%s: %v, and others have %d values: %w", path, t, width, ErrNotControlVector)
		}
		raw := make([]byte, t.Bytes)
		if _, err := in.ReadAt(raw, t.Offset); err != nil {
			return nil, fmt.Errorf("%s: read %s: %w", path, t.Name, err)
		}
		row := make([]float32, t.Shape[0])
		if err := DecodeRow(row, t.Type, raw); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, t.Name, err)
		}
		if !finite(row) {
			return nil, fmt.Errorf("%s: %s has values that are not finite numbers: %w", path, t.Name,
				ErrNotControlVector)
		}
		v.Directions[layer] = row
	}
	return v, nil
}

func finite(row []float32) bool {
	return !slices.ContainsFunc(row, func(x float32) bool {
		return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)
	})
}

// controlLayer is the layer that a tensor of a control vector is for.
func controlLayer(t *Tensor) (int, error) {
	number, ok := strings.CutPrefix(t.Name, "direction.")
	layer, err := strconv.Atoi(number)
	switch {
	case !ok || err != nil || layer < 1 || layer > maxControlLayer:
		return 0, fmt.Errorf("tensor %q is not a direction.LAYER with a layer from 1 on: %w", t.Name,
			ErrNotControlVector)
	case t.Type != F32 || len(t.Shape) != 1 || t.Shape[0] < 1 || t.Shape[0] > maxControlWidth:
		return 0, fmt.Errorf("%v is not a row of F32: %w", t, ErrNotControlVector)
	}
	return layer, nil
}

// Write writes the file, its layers in order.
func (v *ControlVector) Write(to io.Writer) error {
	for layer, row := range v.Directions {
		if !finite(row) {
			return fmt.Errorf("direction %d has values that are not finite numbers: %w", layer, ErrNotControlVector)
		}
	}
	var meta Metadata
	meta.Set("general.architecture", controlArchitecture)
	meta.Set(controlArchitecture+".model_hint", v.Model)
	meta.Set(controlArchitecture+".layer_count", uint32(v.Layers))
	layers := slices.Sorted(maps.Keys(v.Directions))
	tensors := make([]Tensor, len(layers))
	for i, layer := range layers {
		tensors[i] = Tensor{Name: "direction." + strconv.Itoa(layer), Type: F32,
			Shape: []int64{int64(len(v.Directions[layer]))}}
	}
	w, err := NewWriter(to, &meta, tensors)
	if err != nil {
		return err
	}
	for _, layer := range layers {
		raw, err := AppendRow(nil, F32, v.Directions[layer])
		if err != nil {
			return err
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return w.Close()
}

// Norm is the length of a layer's direction; 0 where it has none.
func (v *ControlVector) Norm(layer int) float64 {
	sum := 0.0
	for _, x := range v.Directions[layer] {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}
