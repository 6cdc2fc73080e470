// Package sample observes the memory accesses of a process from outside: loads and stores that the processor samples,
// page faults, and pages that were written.
//
// A [Set] runs collectors beside a process. Each is read by a goroutine of its own into one [Queue], out of which
// accesses are taken in the order of time. [Spaces] follow what processes have mapped, and say what an access touched,
// and which function did it. What is unavailable is reported, and losses are counted by cause.
//
// [Written] finds which pages of chosen ranges were written between two scans, exactly, on every Linux machine: the
// ranges are write-protected in the kernel's page tables (userfaultfd, asynchronous), and what has been written since
// is asked for and protected again in one step (PAGEMAP_SCAN). Written pages are those that the process wrote, or the
// kernel for it (read(2)), whether with new bytes or with the same: also through huge pages, which fall into small ones
// where they are watched. What other processes write to shared memory, or a child after fork to its copy, is not seen.
package sample
