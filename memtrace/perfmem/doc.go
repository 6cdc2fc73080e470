// Package perfmem samples loads and stores of a process with the machine's PMU: Intel PEBS with load latency, AMD
// IBS. Which events that takes is read from /sys/bus/event_source/devices. Where there is no such PMU, as in most
// virtual machines, the same path samples page faults, if it is asked to.
//
// Arm SPE's event is described too, but its samples come in a buffer of their own, which is not read live: record
// it with perf, and import the file (package perfscript).
//
// The hardware's part is not yet run on hardware: no machine of the project has such a PMU. Its attributes are
// tested against trees of sysfs as kernels make them, its records against recorded and constructed rings; software
// events run through the same code for real.
package perfmem
