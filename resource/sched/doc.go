// Package sched records where the time of threads goes, and their page faults: what each thread computed, waited for a
// processor, waited for a disk or a lock, and idled, interval by interval, with the processes' memory and the kernel's
// pressure figures.
//
// A thread's time is split at each switch, waking and end, by BPF programs at the scheduler's tracepoints. The
// state that continues at a snapshot counts up to the snapshot and no further, so that the times of a thread that
// lives throughout add up to the interval, exactly.
//
// What a thread that goes to sleep waits for is decided by evidence that the kernel has at that moment, in this order:
//
//   - the kernel counts the sleep as waiting for I/O (in_iowait): blocked by a disk, or by what looks like one, such as
//     a network file system
//   - it is stopped, parked or frozen: idle
//   - its sleep is uninterruptible: blocked by a disk in fsync and its like, where it waits for a journal; else blocked
//     otherwise, such as by a lock within the kernel (mmap_lock, an inode's)
//   - its sleep is interruptible: by the system call it is in, as its registers have it (syscalls.h): flock, fcntl and
//     semaphores are locks; a futex is a lock or a wait for work, by the thread's role (resource.ThreadLine.Judge);
//     poll, epoll_wait, select, nanosleep, accept, wait, receiving and reading are idle, for a file on a disk is never
//     waited for in this way; completions of asynchronous file I/O are a disk; anything else, and a sleep outside of
//     any call, is blocked otherwise
//
// Kernel threads are reported like others where no target excludes them; they sleep interruptibly when they have no
// work.
//
// What cannot be known: a futex may be a lock, or a condition variable or barrier on which a thread waits for work,
// and where the role leaves it open it counts as neither; a thread that waits in recvmsg may wait for a request
// (idle) or for the answer to one (not idle); a lock that is spun on is computing, as are interrupts, and what a
// hypervisor takes of the processor, which the kernel's own run times leave out; io_uring_enter waits for whatever
// was submitted and is blocked otherwise unless the kernel counts it as I/O. 32-bit programs on a 64-bit kernel
// have other numbers of calls: their interruptible sleeps are blocked otherwise.
//
// How long a thread waited for a processor after it was woken is the kernel's own count (sched_info, which
// /proc/TID/schedstat shows), taken when it runs again; at a snapshot it is known to the last tick of the processor.
// Where the kernel cannot be asked, wakings are looked at instead. The times agree with schedstat's but for this: the
// kernel takes a thread that pre-empts another for running from its waking on, here it is from the switch on; and its
// figures leave out what a hypervisor takes.
//
// The page faults of the processes (page_faults) are the exceptions from user mode, counted one by one; minor and major
// ones are the differences of the kernel's own counts per thread (task_struct's min_flt and maj_flt, what getrusage and
// /proc/PID/stat report). The latter include faults of the kernel on behalf of the thread and leave out faults that
// failed, so the sums need not be equal. Pages that are read within a system call, as by mmap with MAP_POPULATE, are in
// neither.
//
// Without BTF the plain tracepoints stand in: then an uninterruptible sleep is taken for a disk's, and the call is
// the last one entered. Without BPF the figures are polled from /proc: a sleep has no reason there, and threads
// that are born and die within an interval are not seen. Each line says which it was.
package sched
