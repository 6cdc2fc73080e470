// Package process measures the resources of processes: memory, CPU time, threads and I/O, together with the frequency,
// temperature and energy of the processors. It reads /proc and /sys, through gopsutil where possible, and needs no
// privileges for processes of the same user. [Self] measures llamatap's own process, with the time of its BPF programs.
//
// [Calls] watches what a running program of llama.cpp, started without llamatap, gives its library to compute: the rows
// of each batch and how long it took. BPF programs at the entry and return of the library's functions (uprobes) report
// them; nothing is loaded into the process.
package process
