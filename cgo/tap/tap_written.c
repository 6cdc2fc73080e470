//go:build llama

// tap_written.c: lets the collector see which pages this process writes.
//
// The kernel tells that only to whoever holds a userfaultfd of the process, and only the process itself can open one. So it is opened here, if
// asked for, and nothing else is done with it: the collector takes a copy of the descriptor (pidfd_getfd), protects the buffers that it wants
// to watch and scans them (memtrace/pagefault). Until then it costs nothing; after that, the first write to a page after each scan.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY // headers before Linux 5.11
#define UFFD_USER_MODE_ONLY 1
#endif

// tap_written_open runs before main. A failure is the collector's to tell: it finds no descriptor.
__attribute__((constructor)) static void tap_written_open(void) {
    const char * wanted = getenv("LLAMATAP_TAP_WRITTEN");
    if (wanted && wanted[0] == '1') {
        (void) syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    }
}
