package runner

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/models"
)

// adapters are the LoRA adapters of a model.
type adapters []llama.ScaledAdapter

// loadAdapters loads those that a run asks for, which must be there before the context is made. The caller closes them,
// after an error, too.
func loadAdapters(c *config.Run, model *llama.Model) (all adapters, err error) {
	if len(c.Loras) == 0 {
		return nil, nil
	}
	base, err := modelFile(c.Model)
	if err != nil {
		return nil, err
	}
	for _, file := range c.Loras {
		if err := checkAdapter(file.Path, base); err != nil {
			return all, fmt.Errorf("--lora %w", err)
		}
		adapter, err := model.LoadAdapter(file.Path)
		if err != nil {
			return all, fmt.Errorf("--lora %s: %w: %s", file.Path, err, otherAdapter)
		}
		all = append(all, llama.ScaledAdapter{Adapter: adapter, Scale: file.Scale})
	}
	return all, nil
}

const otherAdapter = "take a LoRA adapter that was made for this model"

// modelFile describes the file of a model; "" is the embedded one.
func modelFile(path string) (*gguf.File, error) {
	if path == "" {
		return gguf.ReadBytes(models.Default)
	}
	return gguf.Open(path)
}

// checkAdapter finds out whether a file can be an adapter of a model.
func checkAdapter(path string, base *gguf.File) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: give the GGUF file in it", path)
	}
	file, err := gguf.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %s", err, ggufRemedy(err)) // err begins with the path
	}
	if err := file.CheckAdapter(base); err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, otherAdapter)
	}
	return nil
}

// set sets control vectors and adapters in the context, as llama-completion does before its warm-up.
func (all adapters) set(c *config.Run, model *llama.Model, x *llama.Context) error {
	if len(c.ControlVectors) > 0 {
		data, err := readControlVectors(c.ControlVectors, model.Width())
		if err != nil {
			return err
		}
		first, last := c.ControlFirst, c.ControlLast
		if last == 0 {
			last = model.Layers()
		}
		if err := x.SetControlVector(data, max(first, 1), last); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	return x.SetAdapters(all)
}

// readControlVectors adds the vectors of all files up: data holds those of layers 1, 2 …, each of width values.
func readControlVectors(files []config.ScaledFile, width int) (data []float32, err error) {
	for _, file := range files {
		if data, err = addControlVector(data, file, width); err != nil {
			return nil, fmt.Errorf("--control-vector %w", err)
		}
	}
	return data, nil
}

func addControlVector(data []float32, from config.ScaledFile, width int) ([]float32, error) {
	file, err := gguf.Open(from.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, ggufRemedy(err))
	}
	in, err := os.Open(from.Path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if len(file.Tensors) == 0 {
		return nil, fmt.Errorf("%s: it holds no tensors: take a file of llama-cvector-generator", from.Path)
	}
	row := make([]float32, width)
	for i := range file.Tensors {
		t := &file.Tensors[i]
		layer, err := controlLayer(t, width)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from.Path, err)
		}
		raw := make([]byte, t.Bytes)
		if _, err := in.ReadAt(raw, t.Offset); err != nil {
			return nil, fmt.Errorf("%s: read %s: %w", from.Path, t.Name, cause(err))
		}
		if err := gguf.DecodeRow(row, t.Type, raw); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", from.Path, t.Name, err)
		}
		if missing := layer*width - len(data); missing > 0 {
			data = append(data, make([]float32, missing)...)
		}
		for j, value := range row {
			data[(layer-1)*width+j] += value * from.Scale
		}
	}
	return data, nil
}

// maxControlLayer bounds the layer number of a control vector; no model has as many.
const maxControlLayer = 10000

// controlLayer is the layer that a tensor of a control vector is for, from 1 on.
func controlLayer(t *gguf.Tensor, width int) (int, error) {
	number, ok := strings.CutPrefix(t.Name, "direction.")
	layer, err := strconv.Atoi(number)
	switch {
	case !ok || err != nil || layer < 1 || layer > maxControlLayer:
		return 0, fmt.Errorf("tensor %q is no direction.LAYER with a layer from 1 on: take a file of "+
			"llama-cvector-generator", t.Name)
	case t.Type != gguf.F32 || len(t.Shape) != 1:
		return 0, fmt.Errorf("%v is no row of F32: take a file of llama-cvector-generator", t)
	case t.Shape[0] != int64(width):
		return 0, fmt.Errorf("%v, and this model is %d wide: take a control vector that was made for this model", t,
			width)
	}
	return layer, nil
}

// close frees the adapters, after the context.
func (all adapters) close() {
	for _, a := range all {
		a.Adapter.Close() // its only error is an open context
	}
}
