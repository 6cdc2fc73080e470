package resource

// GPUSample is how a GPU was used in an interval, by all processes, as NVML says. A figure that the GPU does not
// have is absent.
type GPUSample struct {
	Header
	Index int    `json:"gpu_index"` // NVML's number
	Name  string `json:"gpu_name"`
	// WindowNS is the time since the sample before; absent in the first.
	WindowNS *int64 `json:"window_ns,omitempty"`
	// Utilization and MemoryUtilization are the shares of NVML's own last sample period in which some kernel ran,
	// and in which the GPU's memory was read or written.
	Utilization       float64  `json:"gpu_utilization_percent"`
	MemoryUtilization float64  `json:"memory_utilization_percent"`
	MemoryUsed        int64    `json:"gpu_memory_used_bytes"`
	MemoryTotal       int64    `json:"gpu_memory_total_bytes"`
	PowerW            *float64 `json:"gpu_power_w,omitempty"`
	EnergyJ           *float64 `json:"gpu_energy_j,omitempty"` // used within the window
}
