/* The system calls whose name says what a thread waits for when it sleeps in them, with their numbers on amd64 and
 * arm64; NONE where a processor has no such call. account.h defines which state counts for which. */
#pragma once

#define SYSCALL_NUMBERS 512
#define SYSCALL_NONE (SYSCALL_NUMBERS - 1)

/* A wait for work or for time to pass, made outside of the process. */
#define SYSCALLS_IDLE(X, NONE) \
	X(read, 0, 63) X(readv, 19, 65) X(poll, 7, NONE) X(ppoll, 271, 73) X(select, 23, NONE) X(pselect6, 270, 72) \
	X(epoll_wait, 232, NONE) X(epoll_pwait, 281, 22) X(epoll_pwait2, 441, 441) X(nanosleep, 35, 101) \
	X(clock_nanosleep, 230, 115) X(pause, 34, NONE) X(accept, 43, 202) X(accept4, 288, 242) X(wait4, 61, 260) \
	X(waitid, 247, 95) X(rt_sigtimedwait, 128, 137) X(rt_sigsuspend, 130, 133) X(recvfrom, 45, 207) \
	X(recvmsg, 47, 212) X(recvmmsg, 299, 243) X(msgrcv, 70, 188) X(mq_timedreceive, 243, 183) \
	X(restart_syscall, 219, 128)

/* A wait for what another thread or process holds. */
#define SYSCALLS_LOCK(X, NONE) \
	X(flock, 73, 32) X(fcntl, 72, 25) X(semop, 65, 193) X(semtimedop, 220, 192)

/* A wait for another thread: for a lock that it holds, or for work that it brings. */
#define SYSCALLS_FUTEX(X, NONE) X(futex, 202, 98) X(futex_wait, 455, 455) X(futex_waitv, 449, 449)

/* A wait for a disk that the kernel does not count as one: for a journal, or for completions of asynchronous I/O. */
#define SYSCALLS_DISK(X, NONE) \
	X(fsync, 74, 82) X(fdatasync, 75, 83) X(sync, 162, 81) X(syncfs, 306, 267) X(msync, 26, 227) \
	X(sync_file_range, 277, 84) X(io_getevents, 208, 4) X(io_pgetevents, 333, 292)
