// Package nvml asks NVIDIA's management library how busy GPUs are, where a machine has it. The library is opened at
// run time and never linked: on a machine without it, Open is errors.ErrUnsupported.
//
// Utilisation is the mean of the device's own samples since the previous reading. A device that keeps none reports its
// last sample period, which NVML says is between 1/6 s and 1 s. Either is of all processes, and of no single operation.
package nvml
