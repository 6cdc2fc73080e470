// touch.c: touches known pages of its own memory on command, for tests of who sees it. It prints where its memory
// lies, then for each line of numbers on standard input writes to those pages, and says so.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static const size_t page = 4096;

__attribute__((noinline)) void touch_page(char * base, size_t n) { *(volatile char *) (base + n * page) = 1; }

int main(int argc, char ** argv) {
    const size_t pages = argc > 1 ? strtoul(argv[1], NULL, 10) : 4096;
    char * base = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || madvise(base, pages * page, MADV_NOHUGEPAGE) != 0) {
        return 3;
    }
    printf("%lx\n", (unsigned long) base);
    fflush(stdout);
    size_t first, step, count;
    while (scanf("%zu %zu %zu", &first, &step, &count) == 3) {
        for (size_t i = 0; i < count; i++) {
            touch_page(base, first + i * step);
        }
        printf("done\n");
        fflush(stdout);
    }
    return 7;
}
