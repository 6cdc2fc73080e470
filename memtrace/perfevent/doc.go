// Package perfevent speaks the kernel's perf_event_open(2): attributes, records and samples as bytes, on any system;
// and on Linux a [Session], which opens events for the threads of a process and reads their records from rings that are
// shared with the kernel.
//
// The names and layouts are those of linux/perf_event.h. Everything is little-endian, as on the machines that
// llamatap runs on.
package perfevent
