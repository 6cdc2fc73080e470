// Package process measures the resources of processes: memory, CPU time, threads and I/O, together with the frequency,
// temperature and energy of the processors. It reads /proc and /sys, through gopsutil where possible, and needs no
// privileges for processes of the same user. [Self] measures llamatap's own process, with the time of its BPF programs.
//
// [Calls] watches what a running program of llama.cpp, started without llamatap, gives its library to compute: the rows
// of each batch and how long it took. BPF programs at the entry and return of the library's functions (uprobes) report
// them; nothing is loaded into the process.
//
// An [Agent] serves what the collectors of another host of a run measure, next to the program that computes there (an
// rpc-server). The run's collector connects to it ([DialAgent]) and asks once an interval for the time, from which it
// learns how the clocks differ, and for the collectors' lines. Both sides write JSON, one object a line. Nothing is
// encrypted; who does not send the token first learns nothing.
package process
