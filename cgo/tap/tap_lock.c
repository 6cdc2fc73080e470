//go:build llama

// tap_lock.c: waits for the tap's lock.
#define _GNU_SOURCE
#include "tap_lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

TAP_RARE void tap_lock_wait(void) {
    const int program_errno = errno;
    while (atomic_exchange_explicit(&tap.lock, 2, memory_order_acquire) != 0) {
        syscall(SYS_futex, &tap.lock, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
    errno = program_errno;
}

TAP_RARE void tap_lock_wake(void) {
    const int program_errno = errno;
    syscall(SYS_futex, &tap.lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = program_errno;
}
