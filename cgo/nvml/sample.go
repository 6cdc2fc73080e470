package nvml

// Name is what the library is called on Linux.
const Name = "libnvidia-ml.so.1"

// Sample is how a GPU is.
type Sample struct {
	Name          string
	SMPercent     int    // share of the last sample period in which some kernel ran
	MemoryPercent int    // … in which its memory was read or written
	TotalBytes    uint64 // of memory
	UsedBytes     uint64 // by all processes
}
