package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
)

// growthSizes are how far each thing grows.
type growthSizes struct {
	contexts, longContexts, batches, sequences, layers, captured []int
	prompt, gen                                                  int
}

// runGrowth measures how what the tap costs grows with context, batch, sequences, layers and captured tensors.
func (b *benchTable) runGrowth(ctx context.Context, share time.Duration) error {
	n := growthSizes{
		contexts: []int{128, 512, 2048, 8192}, longContexts: []int{128, 1024, 8192}, batches: []int{16, 64, 256}, sequences: []int{1, 2, 4, 8, 16},
		layers: []int{2, 4, 8, 16, 32}, captured: []int{1, 3, 6, 12}, prompt: 512, gen: 32,
	}
	if b.smoke {
		n = growthSizes{contexts: []int{8, 32}, batches: []int{4, 16}, sequences: []int{1, 2}, layers: []int{1, 2}, captured: []int{1, 6}, prompt: 16, gen: 2}
	}
	s := b.stage
	residual := bench.TapSetting{Name: "l_out", Flags: []string{"--tap-tensors=l_out*"}}
	everything := bench.TapSetting{Name: "all nodes", Flags: []string{"--tap-granularity=full_tensor"}}
	g := bench.Growth{Stage: s, Time: share}
	for _, name := range b.names {
		m, err := b.model(ctx, name)
		if err != nil {
			return err
		}
		depths := n.contexts
		if name == "1b" {
			depths = n.longContexts // a point more would take the time of the others
		}
		g.Series = append(g.Series, s.Contexts(m, residual, n.gen, depths...))
	}
	small, err := b.model(ctx, "6m")
	if err != nil {
		return err
	}
	g.Series = append(g.Series, s.Batches(small, everything, n.prompt, n.batches...), s.Sequences(small, everything, n.gen, n.sequences...))
	layered, err := layeredModels(ctx, s.Dir, n.layers)
	if err != nil {
		return err
	}
	g.Series = append(g.Series, s.Layers(layered, everything, n.gen, n.layers...))
	deep := small
	if slices.Contains(b.names, "125m") {
		if deep, err = b.model(ctx, "125m"); err != nil {
			return err
		}
	} else {
		n.captured = slices.DeleteFunc(n.captured, func(layers int) bool { return layers > 6 }) // the small one has six
	}
	g.Series = append(g.Series, s.Captured(deep, n.gen, n.captured...))
	return g.Run(ctx)
}

// layeredModels makes models that have some numbers of layers, and are the same otherwise.
func layeredModels(ctx context.Context, dir string, counts []int) (map[int]bench.NamedModel, error) {
	self, err := llama.Self()
	if err != nil {
		return nil, err
	}
	all := map[int]bench.NamedModel{}
	for _, n := range counts {
		path := filepath.Join(dir, fmt.Sprintf("llama-%d-layers.gguf", n))
		if err := bench.Synthesize(ctx, self, path, "--params", "tiny", "--type", "q8_0", "--width", "256", "--layers", fmt.Sprint(n)); err != nil {
			return nil, err
		}
		all[n] = bench.NamedModel{Name: fmt.Sprintf("%d layers", n), Path: path}
	}
	return all, nil
}
