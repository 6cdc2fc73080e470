// Package pagefault observes memory page by page, on every Linux machine, without a PMU.
//
// [Faults] are page faults with their addresses: which pages a process touched for the first time. [Written] finds
// which pages of chosen ranges were written between two scans, exactly: the ranges are write-protected in the kernel's
// page tables (userfaultfd, asynchronous), and what has been written since is asked for and protected again in one step
// (PAGEMAP_SCAN). Both come from outside of the process.
//
// Written pages are those that the process wrote, or the kernel for it (read(2)), whether with new bytes or with the
// same: also through huge pages, which fall into small ones where they are watched. What other processes write to
// shared memory, or a child after fork to its copy, is not seen.
package pagefault
