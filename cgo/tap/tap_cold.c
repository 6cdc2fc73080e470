//go:build llama

// tap_cold.c: mapped models whose pages are read when they are first touched.
//
// llama.cpp maps a model with MAP_POPULATE and asks for all of it with MADV_WILLNEED: it is read inside of mmap(2),
// and no graph touches a page that is not there. A cold run takes both away and turns read-ahead off, so that each
// page costs the token that touches it first.
#define _GNU_SOURCE
#include "tap_state.h"

#ifndef __SANITIZE_THREAD__ // it calls mmap before anything of ours may run

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// What was mapped cold. Ends are never taken away: a program that maps something else there asks in vain for it to
// be read ahead.
enum { TAP_COLD_MAX = 64 };

static struct {
    uintptr_t         start;
    _Atomic uintptr_t end; // stored after start; 0: not yet
} tap_cold_ranges[TAP_COLD_MAX];
static _Atomic unsigned tap_cold_n;

static bool tap_cold_asked(void) {
    const struct tap_header * h = tap.header;
    return h != NULL && h->config.cold != 0;
}

static void tap_cold_note(void * at, size_t bytes) {
    const unsigned i = tap_count(&tap_cold_n, 1);
    if (i < TAP_COLD_MAX) {
        tap_cold_ranges[i].start = (uintptr_t) at;
        tap_set(&tap_cold_ranges[i].end, (uintptr_t) at + bytes);
    }
}

static bool tap_is_cold(const void * at) {
    const unsigned n = tap_get(&tap_cold_n);
    for (unsigned i = 0; i < n && i < TAP_COLD_MAX; i++) {
        if ((uintptr_t) at < tap_get(&tap_cold_ranges[i].end) && (uintptr_t) at >= tap_cold_ranges[i].start) {
            return true;
        }
    }
    return false;
}

// mmap is interposed. Go's runtime and the C library's own code call it too, early: so nothing is looked up, and
// the kernel is asked directly.
void * mmap(void * addr, size_t length, int prot, int flags, int fd, off_t offset) {
    const bool cold = fd >= 0 && (flags & MAP_POPULATE) != 0 && tap_cold_asked();
    if (cold) {
        flags &= ~MAP_POPULATE;
    }
    void * at = (void *) syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
    if (cold && at != MAP_FAILED) {
        const int before = errno;
        syscall(SYS_madvise, at, length, MADV_RANDOM);
        errno = before;
        tap_cold_note(at, length);
    }
    return at;
}

// posix_madvise is interposed: a cold mapping is not read ahead. It returns the error, and leaves errno alone.
int posix_madvise(void * addr, size_t length, int advice) {
    if (advice == POSIX_MADV_DONTNEED || (advice == POSIX_MADV_WILLNEED && tap_is_cold(addr))) {
        return 0; // the C library ignores the first too: the kernel's would lose data
    }
    const int before = errno;
    const int failed = syscall(SYS_madvise, addr, length, advice) == 0 ? 0 : errno;
    errno = before;
    return failed;
}

#endif
