// pages.c: a program of somebody else's. It touches as many pages of a mapping as its first argument says, each
// once, prints its second one, and leaves a child behind that sleeps. Its third argument is its status.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char ** argv) {
    if (argc != 4) {
        fprintf(stderr, "pages: three arguments, please\n");
        return 2;
    }
    const size_t n = strtoul(argv[1], NULL, 10);
    char *       at = mmap(NULL, n << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("pages");
        return 2;
    }
    madvise(at, n << 12, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < n; i++) {
        at[i << 12] = 1;
    }
    if (fork() == 0) {
        fclose(stdout);
        fclose(stderr);
        sleep(600);
        _exit(0);
    }
    printf("%s\n", argv[2]);
    return atoi(argv[3]);
}
