package resource

// GPUSample is how a GPU was used in an interval, by all processes, as NVML reports it. A figure that the GPU does not
// report is absent.
type GPUSample struct {
	Header
	Index int    `json:"gpu_index"` // NVML's number
	Name  string `json:"gpu_name"`
	// WindowNS is the time since the sample before; absent in the first.
	WindowNS *int64 `json:"window_ns,omitempty"`
	// Utilization and MemoryUtilization are the shares of the time in which some kernel ran, and in which the GPU's
	// memory was read or written. The time is UtilizationNS, or where that is absent NVML's last sample period.
	Utilization       *float64 `json:"gpu_utilization_percent,omitempty"`
	MemoryUtilization *float64 `json:"memory_utilization_percent,omitempty"`
	UtilizationNS     *int64   `json:"utilization_window_ns,omitempty"`
	UtilizationSource string   `json:"utilization_source,omitempty"`
	MemoryUsed        *int64   `json:"gpu_memory_used_bytes,omitempty"`
	MemoryTotal       *int64   `json:"gpu_memory_total_bytes,omitempty"`
	SMClockMHz        *int64   `json:"sm_clock_mhz,omitempty"`
	MemoryClockMHz    *int64   `json:"memory_clock_mhz,omitempty"`
	PCIeTxKBPerS      *int64   `json:"pcie_tx_kb_per_s,omitempty"`
	PCIeRxKBPerS      *int64   `json:"pcie_rx_kb_per_s,omitempty"`
	PCIeWindowNS      *int64   `json:"pcie_window_ns,omitempty"`
	PowerW            *float64 `json:"gpu_power_w,omitempty"`
	EnergyJ           *float64 `json:"gpu_energy_j,omitempty"` // used within the window
	EnergySource      string   `json:"gpu_energy_source,omitempty"`
}

// RAPLSample is what the processors of a package or its memory used in an interval, by all processes, as their energy
// counters say.
type RAPLSample struct {
	Header
	Domain   string  `json:"domain"`
	WindowNS int64   `json:"window_ns"` // since the sample before
	EnergyJ  float64 `json:"energy_j"`
}

// What the energy of a window was read from.
const (
	EnergyCounter = "energy_counter" // the device's counter, before and after the window
	PowerSamples  = "power_samples"  // the mean of the power before and after it, by its length
)
