// Package process tells what processes take: memory, CPU time, threads, I/O; and how fast and how warm the
// processors are meanwhile. It reads /proc and /sys, by gopsutil where that has it, and needs no rights for
// processes of the same user.
package process
