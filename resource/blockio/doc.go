// Package blockio watches block devices: how long they take for each request, how many requests they have at once,
// and which process and control group asked for them.
//
// BPF programs follow each request by its address from its start to its completion (blockio.bpf.c, requests.h),
// count it for its row (device, operation, process, group), and never wait. The reader maps their memory and takes
// snapshots as differences: a snapshot costs no system call per row, and loses nothing that happens while it is
// taken. Without BTF the programs of plain tracepoints stand in, without BPF the figures of /proc/diskstats; each
// line says which it is made of.
package blockio
