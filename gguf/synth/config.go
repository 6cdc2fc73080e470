package synth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/gguf"
)

// Config is the shape of a model. New fills it from an architecture and a preset; every field may be changed before
// Plan.
type Config struct {
	// Arch is one of Archs or Encoders. It may differ from the file's general.architecture: mixtral is llama with
	// experts.
	Arch string
	// Preset is the name that the shape began with, such as "1b".
	Preset string

	Layers  int
	Width   int // length of the residual stream
	Heads   int
	KVHeads int
	HeadDim int // 0: Width/Heads
	FF      int // hidden width of the feed-forward network
	Context int // context_length that the file states
	Window  int // sliding window, for architectures that have one

	Experts     int // per mixture layer, 0 where there are none
	ExpertsUsed int
	ExpertFF    int

	// Vocab is the number of tokens: 0 for the tokenizer's own; more adds unused ones.
	Vocab int
	// Infill gives the tokenizer the tokens of infill: see AddInfill.
	Infill bool
	// Type is the storage type of the matrices.
	Type gguf.Type
	// Seed chooses the weights.
	Seed uint64
}

// presets are the shapes before an architecture changes them. The totals that the names promise are those of llama
// with the default model's 2,080 tokens.
var presets = map[string]Config{
	"tiny": {Layers: 4, Width: 256, Heads: 4, KVHeads: 2, FF: 512, Context: 2048, Window: 64},
	"6m":   {Layers: 6, Width: 256, Heads: 4, KVHeads: 2, FF: 768, Context: 2048, Window: 256},
	"125m": {Layers: 12, Width: 768, Heads: 12, KVHeads: 6, FF: 3584, Context: 8192, Window: 512},
	"350m": {Layers: 24, Width: 1024, Heads: 16, KVHeads: 8, FF: 3584, Context: 8192, Window: 512},
	"1b":   {Layers: 16, Width: 2048, Heads: 32, KVHeads: 8, FF: 8192, Context: 131072, Window: 512},
}

// Presets are the names of the presets, smallest first.
func Presets() []string {
	return slices.SortedFunc(maps.Keys(presets), func(x, y string) int {
		a, b := presets[x], presets[y]
		return cmp.Compare(a.Layers*a.Width*a.FF, b.Layers*b.Width*b.FF)
	})
}

// Types are the types that matrices can have.
func Types() []gguf.Type {
	return []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q5_0, gguf.Q4_0, gguf.Q4_K}
}

// New is the shape of an architecture at a preset.
func New(arch, preset string) (Config, error) {
	a, ok := findArch(arch)
	if !ok {
		return Config{}, unknownArch(arch)
	}
	c, ok := presets[preset]
	if !ok {
		return Config{}, fmt.Errorf("unknown size %q: choose one of %s", preset, strings.Join(Presets(), ", "))
	}
	c.Arch, c.Preset, c.Type = arch, preset, gguf.F16
	if a.shape != nil {
		a.shape(&c)
	}
	return c, nil
}

// check refuses shapes that llama.cpp could not run, and fills what follows from the rest.
func (c *Config) check() error {
	if _, ok := findArch(c.Arch); !ok {
		return unknownArch(c.Arch)
	}
	for _, f := range []struct {
		name string
		n    int
	}{
		{"layers", c.Layers}, {"width", c.Width}, {"heads", c.Heads}, {"KV heads", c.KVHeads},
		{"feed-forward width", c.FF}, {"context", c.Context}, {"window", c.Window},
	} {
		if f.n < 1 || f.n > 1<<24 {
			return fmt.Errorf("%s = %d: 1 to %d are possible", f.name, f.n, 1<<24)
		}
	}
	if c.HeadDim == 0 {
		if c.Width%c.Heads != 0 {
			return fmt.Errorf("width %d is not a multiple of %d heads", c.Width, c.Heads)
		}
		c.HeadDim = c.Width / c.Heads
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("heads of %d values cannot be rotated: an even number is needed (width/heads)", c.HeadDim)
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("%d heads cannot share %d KV heads evenly", c.Heads, c.KVHeads)
	}
	if c.Experts != 0 && (c.ExpertsUsed < 1 || c.ExpertsUsed > c.Experts || c.ExpertFF < 1) {
		return fmt.Errorf("%d of %d experts of width %d cannot be used", c.ExpertsUsed, c.Experts, c.ExpertFF)
	}
	if !slices.Contains(Types(), c.Type) {
		return fmt.Errorf("weights cannot be made as %v: choose one of %s", c.Type, typeNames())
	}
	return nil
}

func typeNames() string {
	var names []string
	for _, t := range Types() {
		names = append(names, strings.ToLower(t.String()))
	}
	return strings.Join(names, ", ")
}

// kvWidth is the length of a key or value row.
func (c *Config) kvWidth() int { return c.KVHeads * c.HeadDim }

// qWidth is the length of a query row.
func (c *Config) qWidth() int { return c.Heads * c.HeadDim }

// ggufArch is what the file states as its architecture.
func (c *Config) ggufArch() string {
	if a, _ := findArch(c.Arch); a.file != "" {
		return a.file
	}
	return c.Arch
}

// label is the architecture's part of the model's name.
func (c *Config) label() string {
	if a, _ := findArch(c.Arch); a.label != "" {
		return a.label
	}
	return c.Arch
}
