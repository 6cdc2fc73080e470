//go:build llama

// tap_written.c: lets the collector see which pages this process writes.
//
// The kernel reports that only to a process that holds a userfaultfd of the process, and only the process itself can
// open one. So it is opened here, if asked for, and nothing else is done with it: the collector takes a copy of the
// descriptor (pidfd_getfd), protects the buffers that it wants to watch and scans them (memtrace/sample). Until then
// it costs nothing; after that, the first write to a page after each scan.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY // headers before Linux 5.11
#define UFFD_USER_MODE_ONLY 1
#endif

static int tap_written_fd = -1;

static void tap_written_make(void) {
    tap_written_fd = (int) syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
}

// tap_written_is_own reports whether the descriptor is still what was opened: a program may have closed everything
// that it did not open itself.
static bool tap_written_is_own(void) {
    char path[] = "/proc/self/fd/0000000000", link[32] = "";
    char * end = path + sizeof(path) - 1;
    char * at = end;
    for (int n = tap_written_fd; at > path + 14 && (n > 0 || at == end); n /= 10) {
        *--at = (char) ('0' + n % 10);
    }
    memmove(path + 14, at, (size_t) (end - at) + 1);
    return readlink(path, link, sizeof(link) - 1) > 0 && strcmp(link, "anon_inode:[userfaultfd]") == 0;
}

// tap_written_in_child runs in a child after fork(3), where only what a signal handler may do is allowed: the
// descriptor that came with it is of the parent's memory, so the child opens one of its own.
static void tap_written_in_child(void) {
    if (tap_written_fd >= 0 && tap_written_is_own()) {
        close(tap_written_fd);
    }
    tap_written_make();
}

// tap_written_open runs before main. The collector reports a failure: it finds no descriptor.
__attribute__((constructor)) static void tap_written_open(void) {
    const char * wanted = getenv("LLAMATAP_TAP_WRITTEN");
    if (wanted && wanted[0] == '1') {
        tap_written_make();
        pthread_atfork(NULL, NULL, tap_written_in_child);
    }
}
