// Package process measures the resources of processes: memory, CPU time, threads and I/O, together with the frequency,
// temperature and energy of the processors. It reads /proc and /sys, through gopsutil where possible, and needs no
// privileges for processes of the same user. [Self] measures llamatap's own process, with the time of its BPF programs.
package process
