package oplog

import (
	"math"
	"strconv"
	"time"

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

// ZoneReading is what a zone of RAPL used in a window that ended at a time.
type ZoneReading struct {
	MonoNS, WindowNS int64
	Zone             string
	WindowJ          float64
}

// Readings are samples of devices, those of a device in the order of time.
type Readings struct {
	GPUs  []GPUReading
	Zones []ZoneReading
}

// devices records samples of devices.
type devices struct {
	*writer
	take     func(*Readings) // nil: there are none
	readings Readings        // used again
	energy   energy
	taken    int64 // end of the newest window when they were taken last
	running  *running
}

// settleLag is how old a window is when it is divided, beyond the one that is open: a thread that has begun an
// execution may be stopped before it reports that.
const settleLag = int64(time.Second)

// settle divides the windows that no execution can come for any more, and writes what that says of executions. What
// the tap reported until now has been read. It reports whether there were some.
func (d *devices) settle() bool {
	until, before := d.taken-settleLag, d.energy.divided
	for _, b := range d.running.open {
		until = min(until, b.mono)
	}
	d.energy.settle(until)
	d.graphs(0)
	for _, of := range d.energy.domains {
		d.taken = max(d.taken, of.end)
	}
	return d.energy.divided > before
}

// record writes the samples that have been taken since the call before.
func (d *devices) record() {
	if d.take == nil {
		return
	}
	all := &d.readings
	all.GPUs, all.Zones = all.GPUs[:0], all.Zones[:0]
	d.take(all)
	for i := range all.GPUs {
		of := &all.GPUs[i]
		d.energy.window("gpu-"+strconv.Itoa(of.Index), energyWindow{of.MonoNS - of.WindowNS, of.MonoNS, of.WindowJ,
			of.EnergySource})
	}
	for i := range all.Zones {
		of := &all.Zones[i]
		d.energy.window(of.Zone, energyWindow{of.MonoNS - of.WindowNS, of.MonoNS, of.WindowJ, resource.EnergyCounter})
	}
	if d.level() == resource.Off {
		return
	}
	for i := range all.GPUs {
		d.gpu(&all.GPUs[i])
	}
	for i := range all.Zones {
		d.zone(&all.Zones[i])
	}
}

// execution counts an execution that has ended.
func (d *devices) execution(x *execution) {
	if d.take != nil {
		d.energy.execution(x)
	}
}

// close writes what was used in each phase, and returns it.
func (d *devices) close(mono int64) []resource.EnergyUse {
	d.energy.divide(math.MaxInt64)
	d.graphs(mono)
	rows := d.energy.rows()
	for i := range rows {
		text := appendJSON(nil, &rows[i])
		d.begin(resource.KindEnergy, max(mono, d.newest.Load()), noCtx)
		d.Fields(text[1 : len(text)-1])
		d.put(resource.Computed)
	}
	for _, of := range d.energy.requests() {
		d.begin(resource.KindRequestEnergy, max(mono, d.newest.Load()), int64(*of.Ctx))
		if of.Request != nil {
			d.Int("seq_id", int64(*of.SeqID))
			d.Int("request", int64(*of.Request))
		}
		d.String("domain", of.Domain)
		d.String("phase", of.Phase)
		d.Key("apportioned_j") // all digits: sums are compared
		d.Append(func(dst []byte) []byte { return strconv.AppendFloat(dst, of.ApportionedJ, 'g', -1, 64) })
		d.String("energy_source", of.EnergySource)
		d.Int("tokens", of.Tokens)
		if of.UncoveredNS > 0 {
			d.Int("uncovered_ns", of.UncoveredNS)
		}
		d.put(resource.Computed)
	}
	return rows
}

func (d *devices) zone(of *ZoneReading) {
	d.noteTime(of.MonoNS)
	d.begin(resource.KindRAPL, of.MonoNS, noCtx)
	d.String("domain", of.Zone)
	d.Int("window_ns", of.WindowNS)
	d.Float("energy_j", of.WindowJ)
	d.put(resource.Measured)
}

func (d *devices) gpu(of *GPUReading) {
	known := func(key string, v int64) {
		if v >= 0 {
			d.measured(key, v)
		}
	}
	share := func(key string, v float64) {
		if v >= 0 {
			d.Float(key, v)
			d.mark(resource.Measured, key)
		}
	}
	d.noteTime(of.MonoNS)
	d.begin(resource.KindGPU, of.MonoNS, noCtx)
	d.Int("gpu_index", int64(of.Index))
	d.String("gpu_name", of.Name)
	if of.WindowNS > 0 {
		d.measured("window_ns", of.WindowNS)
	}
	share("gpu_utilization_percent", of.GPUPercent)
	share("memory_utilization_percent", of.MemoryPercent)
	switch {
	case of.GPUPercent < 0:
	case of.UtilizationNS > 0:
		d.measured("utilization_window_ns", of.UtilizationNS)
		d.String("utilization_source", "samples")
	default:
		d.String("utilization_source", "last_period")
	}
	known("gpu_memory_used_bytes", of.UsedBytes)
	known("gpu_memory_total_bytes", of.TotalBytes)
	known("sm_clock_mhz", of.SMMHz)
	known("memory_clock_mhz", of.MemoryMHz)
	known("pcie_tx_kb_per_s", of.PCIeTxKBPerS)
	known("pcie_rx_kb_per_s", of.PCIeRxKBPerS)
	if of.PCIeTxKBPerS >= 0 || of.PCIeRxKBPerS >= 0 {
		d.measured("pcie_window_ns", nvml.PCIeWindow.Nanoseconds())
	}
	share("gpu_power_w", float64(of.PowerMW)/1e3)
	weakest := resource.Measured
	if of.EnergySource != "" {
		if of.EnergySource == resource.PowerSamples {
			weakest = resource.Computed
		}
		d.Float("gpu_energy_j", of.WindowJ)
		d.mark(weakest, "gpu_energy_j")
		d.String("energy_source", of.EnergySource)
	}
	d.put(weakest)
}
