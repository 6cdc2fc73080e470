// child.c: writes known pages on command, for tests of who sees them. Commands are lines on standard input, each
// answered by a line.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char * base;
static size_t bytes;
static const size_t page = 4096;

// map makes memory: anonymous (a), of huge pages (h), shared (s); at a multiple of 2 MiB.
static void map(char kind, size_t pages) {
    const size_t huge = 2u << 20;
    bytes = pages * page;
    if (kind == 's') {
        const int fd = memfd_create("child", 0);
        if (fd < 0 || ftruncate(fd, (off_t) bytes) != 0) {
            exit(3);
        }
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return;
    }
    char * all = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = (char *) (((uintptr_t) all + huge - 1) & ~(huge - 1));
    madvise(base, bytes, kind == 'h' ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (kind == 'h') {
        memset(base, 1, bytes);
    }
}

__attribute__((noinline)) void touch_page(size_t n, size_t at) { base[n * page + at]++; }

static void child(size_t from) {
    const pid_t pid = fork();
    if (pid == 0) {
        base[from * page] = 9;
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void zeros(size_t from, size_t n) {
    const int fd = open("/dev/zero", O_RDONLY);
    if (read(fd, base + from * page, n * page) != (ssize_t) (n * page)) {
        exit(4);
    }
    close(fd);
}

int main(void) {
    char line[128], what;
    size_t from, n;
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "%c %zu %zu", &what, &from, &n) != 3) {
            return 2;
        }
        switch (what) {
            case 'a': case 'h': case 's': map(what, n); break;
            case 'w': for (size_t i = 0; i < n; i++) { touch_page(from + i, i % page); } break; // write
            case 'r': for (size_t i = 0; i < n; i++) { *(volatile char *) &base[(from + i) * page]; } break; // read
            case 'k': zeros(from, n); break; // the kernel writes
            case 'd': madvise(base + from * page, n * page, MADV_DONTNEED); break; // give back
            case 'f': child(from); break; // a child of its own writes
            case 'm': mmap(base + from * page, n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); break; // anew
            default: return 2;
        }
        printf("%lx\n", (unsigned long) base);
        fflush(stdout);
    }
    return 0;
}
