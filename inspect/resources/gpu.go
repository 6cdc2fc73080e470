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
	// Means over the samples of what NVML calls utilization: the share of its sample period in which some kernel
	// ran, and in which memory was read or written.
	Utilization       float64  `json:"gpu_utilization_percent"`
	MemoryUtilization float64  `json:"memory_utilization_percent"`
	MemoryPeak        int64    `json:"gpu_memory_peak_bytes"`
	EnergyJ           *float64 `json:"gpu_energy_j,omitempty"` // over all windows

	Last *resource.GPUSample `json:"-"` // the newest
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
	g.Name, g.Last = e.Name, e
	g.Utilization += (e.Utilization - g.Utilization) / float64(g.Samples)
	g.MemoryUtilization += (e.MemoryUtilization - g.MemoryUtilization) / float64(g.Samples)
	g.MemoryPeak = max(g.MemoryPeak, e.MemoryUsed)
	if e.EnergyJ != nil {
		if g.EnergyJ == nil {
			g.EnergyJ = new(float64)
		}
		*g.EnergyJ += *e.EnergyJ
	}
}

// list lists them by number.
func (m gpus) list() []*GPUUse {
	return slices.SortedFunc(maps.Values(m), func(a, b *GPUUse) int { return cmp.Compare(a.Index, b.Index) })
}
