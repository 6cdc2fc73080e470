// Package perf speaks the kernel's perf_event_open(2): attributes, records and samples as bytes, on any system; and on
// Linux a [Session], which opens events for the threads of a process and reads their records from rings that are shared
// with the kernel. A [Sampler] is a session whose samples are accesses to memory: loads and stores that the processor
// samples, or page faults.
//
// [Data] and [Text] read the accesses of files of the program perf: perf.data, and the text that perf script prints of
// it. Both are read from front to end, in memory that does not grow with them. Times are those of the file: of
// CLOCK_MONOTONIC, as llamatap's are, only if it was recorded with perf record -k CLOCK_MONOTONIC.
//
// The names and layouts are those of linux/perf_event.h. Everything is little-endian, as on the machines that
// llamatap runs on.
package perf
