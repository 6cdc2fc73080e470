// Makes a program hang in its handler of SIGINT, as llama.cpp's do where they log while the interrupted code logs.
// Preloaded by tests of what ends such a program.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);

static void hang(int signal) {
    (void) signal;
    for (;;) {
        pause();
    }
}

// sigaction takes the place of the C library's and puts hang where a handler of SIGINT is to be. The collector,
// which inherits the preload too, keeps its own.
int sigaction(int number, const struct sigaction * action, struct sigaction * before) {
    sigaction_fn real;
    void * address = dlsym(RTLD_NEXT, "sigaction");
    memcpy(&real, &address, sizeof real);
    struct sigaction other;
    if (number == SIGINT && action != NULL && strcmp(program_invocation_short_name, "llamatap") != 0) {
        other = *action;
        other.sa_handler = hang;
        other.sa_flags &= ~SA_SIGINFO;
        action = &other;
    }
    return real(number, action, before);
}
