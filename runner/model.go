package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// CheckModel finds out, without llama.cpp, whether a file can be a model: it is there, it is a GGUF file, and it is
// complete. An empty path is the embedded model, which is. The error wraps ErrModel, with cause and remedy on one line.
func CheckModel(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w %s: no such file: check the path", ErrModel, path)
	case err != nil:
		return fmt.Errorf("%w %s: %w", ErrModel, path, cli.Bare(err))
	case info.IsDir():
		return fmt.Errorf("%w %s is a folder: give the GGUF file in it", ErrModel, path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w %s is not a regular file: save the model as a file first", ErrModel, path)
	}
	file, err := gguf.Open(path)
	if err != nil {
		return fmt.Errorf("%w %w: %s", ErrModel, err, ggufRemedy(err)) // err begins with the path
	}
	if err := file.Check(); err != nil {
		return fmt.Errorf("%w %s: %w: %s", ErrModel, path, err, ggufRemedy(err))
	}
	return nil
}

func ggufRemedy(err error) string {
	switch {
	case errors.Is(err, gguf.ErrNotGGUF):
		return "convert the model with llama.cpp's convert_hf_to_gguf.py, or give another file"
	case errors.Is(err, gguf.ErrVersion):
		return "convert the model again with a current llama.cpp"
	case errors.Is(err, gguf.ErrTruncated):
		return "download or copy it again"
	case errors.Is(err, gguf.ErrMalformed):
		return "the file is damaged, download or convert it again"
	case errors.Is(err, fs.ErrNotExist):
		return "check the path"
	case errors.Is(err, fs.ErrPermission):
		return "make it readable for this user"
	}
	return "check the file and the disk"
}

// loadModel loads the model that cfg names, after CheckModel has passed.
func loadModel(ctx context.Context, cfg *config.Run, progress func(float64)) (*llama.Model, error) {
	if err := llama.Init(); err != nil {
		return nil, err
	}
	for _, server := range cfg.RPC {
		if err := llama.AddRPC(server); err != nil {
			return nil, fmt.Errorf("--rpc: %w", err)
		}
	}
	if cfg.BLAS {
		if err := llama.LoadBLAS(cfg.BatchThreads); err != nil {
			return nil, fmt.Errorf("--blas: %w", err)
		}
	}
	params := llama.DefaultModelParams()
	params.GPULayers, params.Devices, params.Plain, params.Progress = cfg.GPULayers, cfg.Devices, !cfg.Repack, progress
	var err error
	if params.Load, err = llama.ParseLoadMode(cfg.LoadMode); err != nil {
		return nil, err
	}
	var model *llama.Model
	if cfg.Model == "" {
		model, err = llama.LoadModelBytes(ctx, llamatap.DefaultModelName, llamatap.DefaultModel, params)
	} else {
		model, err = llama.LoadModel(ctx, cfg.Model, params)
	}
	if err != nil {
		return nil, loadError(cfg, err)
	}
	if model.HasEncoder() || !model.HasDecoder() {
		model.Close()
		return nil, fmt.Errorf("%w %s has an encoder, which run does not drive: use 'llamatap exec -- "+
			"llama-completion'", ErrModel, cfg.Model)
	}
	return model, nil
}

func loadError(cfg *config.Run, err error) error {
	switch {
	case errors.Is(err, llama.ErrInterrupted):
		return fmt.Errorf("%w while loading the model: %w", ErrInterrupted, err)
	case errors.Is(err, llama.ErrDevice):
		return fmt.Errorf("--device: %w", err)
	case errors.Is(err, llama.ErrLoad) && cfg.Model != "":
		return fmt.Errorf("%w %s: %w: take a newer llama.cpp if it does not know this kind of model, or another file",
			ErrModel, cfg.Model, err)
	}
	return err
}

// describe names a model for people: what it calls itself, and its size.
func describe(m *llama.Model) string {
	name, ok := m.Meta("general.name")
	if !ok {
		name = m.Description()
	}
	return fmt.Sprintf("%s (%.1f million parameters, %s)", name, float64(m.Parameters())/1e6, present.Bytes(m.Size()))
}

// contextParams translates the settings of a context.
func contextParams(cfg *config.Run) (p llama.ContextParams, err error) {
	p = llama.DefaultContextParams()
	p.Size, p.Batch, p.MicroBatch, p.NoPerf = cfg.Context, cfg.Batch, cfg.MicroBatch, true
	p.Sequences = max(cfg.Parallel, 1)
	p.Threads = cfg.Threads
	if p.Threads == 0 {
		p.Threads = Cores()
	}
	p.BatchThreads = cmp.Or(cfg.BatchThreads, p.Threads)
	if p.Rope, err = rope(&cfg.Rope); err != nil {
		return p, err
	}
	if p.FlashAttention, err = llama.ParseFlashAttention(cfg.FlashAttention); err != nil {
		return p, err
	}
	if p.TypeK, err = llama.ParseCacheType(cfg.CacheTypeK); err != nil {
		return p, err
	}
	p.TypeV, err = llama.ParseCacheType(cfg.CacheTypeV)
	return p, err
}

func rope(c *config.Rope) (llama.Rope, error) {
	scaling, err := llama.ParseRopeScaling(c.RopeScaling)
	return llama.Rope{
		Scaling: scaling, FreqBase: c.RopeFreqBase, FreqScale: c.RopeFreqScale, YarnOrigContext: c.YarnOrigContext,
		YarnExtFactor:  c.YarnExtFactor,
		YarnAttnFactor: c.YarnAttnFactor, YarnBetaFast: c.YarnBetaFast, YarnBetaSlow: c.YarnBetaSlow,
	}, err
}
