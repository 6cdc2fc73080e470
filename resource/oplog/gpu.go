package oplog

import (
	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/resource"
)

// GPUReading is how a GPU was at a time, and what it used since the reading before.
type GPUReading struct {
	MonoNS   int64
	WindowNS int64 // since the reading before, 0 in the first
	Index    int
	nvml.Sample
	WindowJ      float64 // energy of the window
	EnergySource string  // that WindowJ was read from; "": it is not known
}

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
		g.sample(&g.readings[i])
	}
}

func (g *gpus) sample(of *GPUReading) {
	known := func(key string, v int64) {
		if v >= 0 {
			g.measured(key, v)
		}
	}
	share := func(key string, v float64) {
		if v >= 0 {
			g.Float(key, v)
			g.mark(resource.Measured, key)
		}
	}
	g.see(of.MonoNS)
	g.begin(resource.KindGPU, of.MonoNS, noCtx)
	g.Int("gpu_index", int64(of.Index))
	g.String("gpu_name", of.Name)
	if of.WindowNS > 0 {
		g.measured("window_ns", of.WindowNS)
	}
	share("gpu_utilization_percent", of.GPUPercent)
	share("memory_utilization_percent", of.MemoryPercent)
	switch {
	case of.GPUPercent < 0:
	case of.UtilizationNS > 0:
		g.measured("utilization_window_ns", of.UtilizationNS)
		g.String("utilization_source", "samples")
	default:
		g.String("utilization_source", "last_period")
	}
	known("gpu_memory_used_bytes", of.UsedBytes)
	known("gpu_memory_total_bytes", of.TotalBytes)
	known("sm_clock_mhz", of.SMMHz)
	known("memory_clock_mhz", of.MemoryMHz)
	known("pcie_tx_kb_per_s", of.PCIeTxKBPerS)
	known("pcie_rx_kb_per_s", of.PCIeRxKBPerS)
	if of.PCIeTxKBPerS >= 0 || of.PCIeRxKBPerS >= 0 {
		g.measured("pcie_window_ns", nvml.PCIeWindow.Nanoseconds())
	}
	share("gpu_power_w", float64(of.PowerMW)/1e3)
	weakest := resource.Measured
	if of.EnergySource != "" {
		if of.EnergySource == resource.PowerSamples {
			weakest = resource.Computed
		}
		g.Float("gpu_energy_j", of.WindowJ)
		g.mark(weakest, "gpu_energy_j")
		g.String("gpu_energy_source", of.EnergySource)
	}
	g.put(weakest)
}
