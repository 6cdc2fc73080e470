package runner

import (
	"errors"
	"fmt"
	"os"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
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
		return gguf.ReadBytes(llamatap.DefaultModel)
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
	v, err := gguf.OpenControlVector(from.Path)
	switch {
	case errors.Is(err, gguf.ErrNotControlVector):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, ggufRemedy(err))
	case v.Width() != width:
		return nil, fmt.Errorf("%s: its directions have %d values, and this model is %d wide: take a control vector "+
			"that was made for this model", from.Path, v.Width(), width)
	}
	for layer, row := range v.Directions {
		if missing := layer*width - len(data); missing > 0 {
			data = append(data, make([]float32, missing)...)
		}
		for j, value := range row {
			data[(layer-1)*width+j] += value * from.Scale
		}
	}
	return data, nil
}

// close frees the adapters, after the context.
func (all adapters) close() {
	for _, a := range all {
		a.Adapter.Close() // its only error is an open context
	}
}
