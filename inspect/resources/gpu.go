package resources

import (
	"cmp"
	"maps"
	"slices"

	"github.com/llamatap/llamatap/resource"
)

// GPUUse is what samples report of a GPU, of all processes.
type GPUUse struct {
	Index   int    `json:"gpu_index"`
	Name    string `json:"gpu_name"`
	Samples int64  `json:"samples"`
	// Means over the samples of what NVML calls utilization: the share of their time in which some kernel ran, and in
	// which memory was read or written.
	Utilization       *float64 `json:"gpu_utilization_percent,omitempty"`
	MemoryUtilization *float64 `json:"memory_utilization_percent,omitempty"`
	MemoryPeak        *int64   `json:"gpu_memory_peak_bytes,omitempty"`
	EnergyJ           *float64 `json:"gpu_energy_j,omitempty"`     // over all windows
	MeanPowerW        *float64 `json:"gpu_power_mean_w,omitempty"` // EnergyJ by their length

	Last resource.GPUSample `json:"-"` // the newest value of each figure

	busy, moving, ns int64 // samples of the first two, and length of the windows that have energy
}

// maxGPUs bounds the GPUs that are distinguished.
const maxGPUs = 256

// gpus are those of a run, by number.
type gpus map[int]*GPUUse

func (m gpus) add(e *resource.GPUSample) {
	g := m[e.Index]
	if g == nil {
		g = &GPUUse{Index: e.Index}
		if len(m) < maxGPUs {
			m[e.Index] = g
		}
	}
	g.Samples++
	g.Name = e.Name
	g.Utilization = mean(g.Utilization, e.Utilization, &g.busy)
	g.MemoryUtilization = mean(g.MemoryUtilization, e.MemoryUtilization, &g.moving)
	g.Last.Utilization = cmp.Or(e.Utilization, g.Last.Utilization)
	g.Last.MemoryUtilization = cmp.Or(e.MemoryUtilization, g.Last.MemoryUtilization)
	g.Last.MemoryUsed = cmp.Or(e.MemoryUsed, g.Last.MemoryUsed)
	g.Last.PowerW = cmp.Or(e.PowerW, g.Last.PowerW)
	if e.MemoryUsed != nil && (g.MemoryPeak == nil || *g.MemoryPeak < *e.MemoryUsed) {
		g.MemoryPeak = e.MemoryUsed
	}
	if e.EnergyJ != nil && e.WindowNS != nil && *e.WindowNS > 0 {
		if g.EnergyJ == nil {
			g.EnergyJ, g.MeanPowerW = new(float64), new(float64)
		}
		*g.EnergyJ += *e.EnergyJ
		g.ns += *e.WindowNS
		*g.MeanPowerW = *g.EnergyJ / (float64(g.ns) / 1e9)
	}
}

// mean is a mean with another value, nil where there was none yet. n counts the values.
func mean(of, next *float64, n *int64) *float64 {
	if next == nil {
		return of
	}
	if of == nil {
		of = new(float64)
	}
	*n++
	*of += (*next - *of) / float64(*n)
	return of
}

// list lists them by number.
func (m gpus) list() []*GPUUse {
	return slices.SortedFunc(maps.Values(m), func(a, b *GPUUse) int { return cmp.Compare(a.Index, b.Index) })
}
