// A program as others than llama.cpp load models: it maps a file, reads it, and keeps a copy of some bytes on the
// heap. With a second argument it then sleeps: a second, and three times the seconds that it has run.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

int main(int argc, char **argv) {
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    struct stat s;
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &s) != 0) {
        return 2;
    }
    const volatile unsigned char *model = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (model == MAP_FAILED) {
        return 3;
    }
    unsigned sum = 0;
    for (long i = 0; i < s.st_size; i += 4096) {
        unsigned char *kept = malloc(64 << 10); // below the size from which on memory is mapped: of [heap]
        if (kept == NULL) {
            return 4;
        }
        kept[0] = model[i];
        sum += kept[0];
    }
    printf("%u\n", sum);
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec rest = {1 + 3 * (now.tv_sec - began.tv_sec), 0};
    if (argc > 2) {
        nanosleep(&rest, NULL);
    }
    return 0;
}
