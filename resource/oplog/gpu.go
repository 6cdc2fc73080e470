package oplog

import "github.com/llamatap/llamatap/resource"

// gpus records samples of GPUs.
type gpus struct {
	*writer
	take     func([]GPUReading) []GPUReading // nil: there are none
	readings []GPUReading                    // used again
}

// record writes the samples that have been taken since the call before.
func (g *gpus) record() {
	if g.take == nil {
		return
	}
	g.readings = g.take(g.readings[:0])
	if !g.level().Includes(resource.KindGPU) {
		return
	}
	for i := range g.readings {
		of := &g.readings[i]
		g.see(of.MonoNS)
		g.begin(resource.KindGPU, of.MonoNS, noCtx)
		g.Int("gpu_index", int64(of.Index))
		g.String("gpu_name", of.Name)
		if of.WindowNS > 0 {
			g.Int("window_ns", of.WindowNS)
		}
		g.Int("gpu_utilization_percent", int64(of.Percent))
		g.Int("memory_utilization_percent", int64(of.MemoryPercent))
		g.Uint("gpu_memory_used_bytes", of.Used)
		g.Uint("gpu_memory_total_bytes", of.Total)
		if of.PowerMW >= 0 {
			g.Float("gpu_power_w", float64(of.PowerMW)/1e3)
		}
		if of.WindowNS > 0 && of.EnergyMJ >= 0 {
			g.Float("gpu_energy_j", float64(of.EnergyMJ)/1e3)
		}
		g.put(resource.Measured)
	}
}
