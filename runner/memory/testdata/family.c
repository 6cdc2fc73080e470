// family.c: forks two workers, each of which touches pages of its own half of one array when a line comes on
// standard input, for tests of who sees which process do what. It prints where the array lies and who the workers
// are. An argument says how often they do it, 5 ms apart.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { page = 4096, workers = 2, pages = 64 };

__attribute__((aligned(4096))) char halves[workers * pages * page];

__attribute__((noinline)) void touch_half(int worker) {
    for (int i = 0; i < pages; i += worker + 1) {
        *(volatile char *) (halves + (worker * pages + i) * page) += 1;
    }
}

int main(int argc, char ** argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 1;
    int to[workers][2];
    pid_t pid[workers];
    for (int w = 0; w < workers; w++) {
        if (pipe(to[w]) != 0 || (pid[w] = fork()) < 0) {
            return 3;
        }
        if (pid[w] == 0) {
            char command;
            if (read(to[w][0], &command, 1) != 1) {
                return 4;
            }
            for (int i = 0; i < rounds; i++) {
                touch_half(w);
                if (rounds > 1) {
                    usleep(5000);
                }
            }
            return 0;
        }
    }
    printf("%lx %d %d\n", (unsigned long) halves, (int) pid[0], (int) pid[1]);
    fflush(stdout);
    getchar();
    for (int w = 0; w < workers; w++) {
        if (write(to[w][1], "g", 1) != 1) {
            return 5;
        }
    }
    while (wait(NULL) > 0) {
    }
    return 7;
}
