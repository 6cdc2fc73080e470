package oplog

import "github.com/llamatap/llamatap/resource"

// emitGPUs writes the samples of GPUs that have been taken since.
func (r *Recorder) emitGPUs() {
	if r.o.GPU == nil {
		return
	}
	r.gpus = r.o.GPU(r.gpus[:0])
	if !r.Level().Includes(resource.KindGPU) {
		return
	}
	for i := range r.gpus {
		g, l := &r.gpus[i], &r.line
		r.head.see(g.MonoNS)
		r.begin(resource.KindGPU, g.MonoNS, noCtx)
		l.Int("gpu_index", int64(g.Index))
		l.String("gpu_name", g.Name)
		if g.WindowNS > 0 {
			l.Int("window_ns", g.WindowNS)
		}
		l.Int("gpu_utilization_percent", int64(g.Percent))
		l.Int("memory_utilization_percent", int64(g.MemoryPercent))
		l.Uint("gpu_memory_used_bytes", g.Used)
		l.Uint("gpu_memory_total_bytes", g.Total)
		if g.PowerMW >= 0 {
			l.Float("gpu_power_w", float64(g.PowerMW)/1e3)
		}
		if g.WindowNS > 0 && g.EnergyMJ >= 0 {
			l.Float("gpu_energy_j", float64(g.EnergyMJ)/1e3)
		}
		r.put(resource.KindGPU, resource.Measured)
	}
}
