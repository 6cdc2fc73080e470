// Package filemap records what threads of a model's process wait for on files: every page fault from its entry to
// its return, every wait for the disk in a system call, the pages that are read into the page cache and the block
// requests that read them. Each is resolved to file and offset and, in a GGUF, to the tensor, and joined to the
// token and phase in which it happened.
//
// A [Collector] takes them from BPF programs, one by one. [Files] resolves them. A [Recorder] joins them to the
// executions of graphs and writes one resource.WaitLine for each; a [Follower] follows them for it.
//
// Waiting is measured fault by fault and not counted by kind: under pressure most waits are "minor" faults on pages
// that read-ahead has in flight. A fault begins at the software event page-faults, at the start of its handling,
// and ends at minor-faults or major-faults, which the kernel counts when it has been handled. What user space sees
// is longer by the processor's own entry and exit: 0.8 to 1.4 µs in the median on the machine where it was tried
// (TestAgainstUserSpace), and by whatever a hypervisor does behind the kernel's back. Blocked is the time within it
// that the thread had left the processor to wait, preempted the time that it had to make room. Where several
// threads wait at once their waits add up; Stalled is the time in which at least one of them waited.
//
// Nothing wakes the reader: it looks every [every], at low priority. A reader that is woken at each fault took the
// processor from the thread that had just been served in every second fault of the trial.
package filemap
