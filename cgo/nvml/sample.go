package nvml

import "time"

// Name is what the library is called on Linux.
const Name = "libnvidia-ml.so.1"

// Sample is how a GPU is. A figure that it does not report is -1.
type Sample struct {
	Name          string
	GPUPercent    float64 // share of UtilizationNS in which some kernel ran: NVML's utilization.gpu
	MemoryPercent float64 // … in which its memory was read or written
	UtilizationNS int64   // window of the device's own samples since the sample before; 0: NVML's last sample period
	TotalBytes    int64   // of memory
	UsedBytes     int64   // by all processes
	SMMHz         int64   // clock of the multiprocessors
	MemoryMHz     int64   // clock of the memory
	PCIeTxKBPerS  int64   // sent over PCIe in the last [PCIeWindow]
	PCIeRxKBPerS  int64   // received
	PowerMW       int64   // drawn; since Ampere, NVML's mean of the last second
	EnergyMJ      int64   // since the driver was loaded

	untilUS uint64 // end of UtilizationNS on NVML's clock
}

// PCIeWindow is how long NVML counts what goes over PCIe.
const PCIeWindow = 20 * time.Millisecond
