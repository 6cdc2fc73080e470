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

// ZoneUse is what the samples of an energy counter of processors or memory report, of all processes.
type ZoneUse struct {
	Domain     string  `json:"domain"`
	EnergyJ    float64 `json:"energy_j"`     // over all windows
	MeanPowerW float64 `json:"power_mean_w"` // EnergyJ by their length

	ns    int64
	lastW float64 // mean power of the newest window
}

// GraphEnergy is what a device used in executions that have tokens: apportioned by their times, and by the measured
// times of their layers. The sum is LayerJ, NoLayerJ and UntimedJ.
type GraphEnergy struct {
	Domain       string    `json:"domain"`
	ApportionedJ float64   `json:"apportioned_j"`
	LayerJ       []float64 `json:"layer_j"`
	NoLayerJ     float64   `json:"no_layer_j"`          // in nodes of no layer, and between nodes
	UntimedJ     float64   `json:"untimed_j,omitempty"` // of executions whose layers were not timed
}

// maxLayers bounds the layers that are distinguished.
const maxLayers = 1 << 12

// maxDevices bounds the GPUs and the zones that are distinguished, maxEnergy the rows of energy.
const (
	maxDevices = 256
	maxEnergy  = 1 << 12
)

// devices are those of a run: GPUs by number, zones of RAPL by name.
type devices struct {
	gpus  map[int]*GPUUse
	zones map[string]*ZoneUse
	// energy is that of phases, of each session as it was at its end.
	energy []resource.EnergyUse
	graphs []*GraphEnergy
}

func (d *devices) addGraph(e *resource.GraphEnergy) {
	i := slices.IndexFunc(d.graphs, func(g *GraphEnergy) bool { return g.Domain == e.Domain })
	if i < 0 {
		if i = len(d.graphs); i >= maxDevices {
			return
		}
		d.graphs = append(d.graphs, &GraphEnergy{Domain: e.Domain, LayerJ: []float64{}})
	}
	g := d.graphs[i]
	g.ApportionedJ += e.ApportionedJ
	if len(e.LayerJ) == 0 || len(e.LayerJ) > maxLayers {
		g.UntimedJ += e.ApportionedJ
		return
	}
	rest := e.ApportionedJ
	for layer, joules := range e.LayerJ {
		if layer >= len(g.LayerJ) {
			g.LayerJ = append(g.LayerJ, 0)
		}
		g.LayerJ[layer] += joules
		rest -= joules
	}
	g.NoLayerJ += rest
}

// layerJoules is what all devices used for a layer, -1 being none; nil where no graph was timed by layers.
func layerJoules(graphEnergies []*GraphEnergy, layer int) *float64 {
	sum, known := 0.0, false
	for _, g := range graphEnergies {
		switch {
		case len(g.LayerJ) == 0:
			continue
		case layer < 0:
			sum += g.NoLayerJ
		case layer < len(g.LayerJ):
			sum += g.LayerJ[layer]
		}
		known = true
	}
	if !known {
		return nil
	}
	return &sum
}

func (d *devices) addGPU(e *resource.GPUSample) {
	g := d.gpus[e.Index]
	if g == nil {
		g = &GPUUse{Index: e.Index}
		if len(d.gpus) < maxDevices {
			d.gpus[e.Index] = g
		}
	}
	g.add(e)
}

func (d *devices) addZone(e *resource.RAPLSample) {
	z := d.zones[e.Domain]
	if z == nil {
		z = &ZoneUse{Domain: e.Domain}
		if len(d.zones) < maxDevices {
			d.zones[e.Domain] = z
		}
	}
	if e.WindowNS > 0 {
		z.EnergyJ += e.EnergyJ
		z.ns += e.WindowNS
		z.MeanPowerW = z.EnergyJ / (float64(z.ns) / 1e9)
		z.lastW = e.EnergyJ / (float64(e.WindowNS) / 1e9)
	}
}

func (g *GPUUse) add(e *resource.GPUSample) {
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

// GPUs lists the GPUs that were sampled, by number.
func (s *Sum) GPUs() []*GPUUse {
	return slices.SortedFunc(maps.Values(s.devices.gpus), func(a, b *GPUUse) int {
		return cmp.Compare(a.Index, b.Index)
	})
}

// Zones lists the zones of RAPL that were sampled, by name.
func (s *Sum) Zones() []*ZoneUse {
	return slices.SortedFunc(maps.Values(s.devices.zones), func(a, b *ZoneUse) int {
		return cmp.Compare(a.Domain, b.Domain)
	})
}

// EnergyByPhase is what each device used in each phase, in J, of sessions that have ended.
func (s *Sum) EnergyByPhase() map[string]map[string]float64 { return resource.Joules(s.devices.energy) }
