package nvml

// Name is what the library is called on Linux.
const Name = "libnvidia-ml.so.1"

// Sample is how a GPU is.
type Sample struct {
	Name          string
	GPUPercent    int    // share of the last sample period in which some kernel ran: NVML's utilization.gpu
	MemoryPercent int    // … in which its memory was read or written
	TotalBytes    uint64 // of memory
	UsedBytes     uint64 // by all processes
	PowerMW       int64  // drawn now, in milliwatts; -1: the GPU does not say
	EnergyMJ      int64  // since the driver was loaded, in millijoules; -1: the GPU does not say
}
