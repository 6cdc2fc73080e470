package config

import (
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// Preset is a named set of settings. Names, granularities, rates and ceilings are those of STRAP-LLM.
// So are the codecs, but for balanced and max_compression: lz4 and zstd stay below 2.1× on activations, and these
// two promise 3×, which q keeps within its bound.
type Preset struct {
	Name        string
	Granularity ggmlhooks.Granularity
	Codec       string
	// Throughput in GB/s (decimal) is the rate of captured bytes below which a run's summary says what held it back.
	Throughput float64
	// MemoryCeiling is the most that --tap-memory may ask for.
	MemoryCeiling Bytes
}

// defaultPreset is what is suggested where nothing speaks for another one.
const defaultPreset = "balanced"

var presets = []Preset{
	{"fast_capture", ggmlhooks.FullTensor, "none", 4, 32 * GB},
	{defaultPreset, ggmlhooks.FullTensor, "q", 2, 24 * GB},
	{"max_compression", ggmlhooks.FullTensor, "q-fse", 1, 16 * GB},
	{"max", ggmlhooks.FullTensor, "zstd", 6, 64 * GB},
	{"attention_analysis", ggmlhooks.AttentionOnly, "lz4", 2, 16 * GB},
	{"mlp_analysis", ggmlhooks.MLPOnly, "lz4", 2, 16 * GB},
}

// parsePreset finds a preset by name.
func parsePreset(name string) (Preset, error) {
	for _, p := range presets {
		if p.Name == name {
			return p, nil
		}
	}
	return Preset{}, fmt.Errorf("unknown preset %q: use one of %s", name, strings.Join(presetNames(), ", "))
}

func presetNames() []string {
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	return names
}
