//go:build llama

// tap_log.c: llama.cpp's log is written out before the program ends.
//
// Most of llama.cpp's programs write their text, results included, through a queue that a thread of libllama-common
// empties. Nobody waits for that thread when main returns or exit is called, so the end of the text, or all of it,
// is lost whenever the thread gets no processor in time; a tapped program has more threads and loses it more often.
// The library exports what waits for it.
#define _GNU_SOURCE
#include "tap_real.h"
#include "tap_state.h"

#include <pthread.h>
#include <dirent.h>
#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef LLAMATAP_PRELOADED

static struct {
    void * (*log)(void);     // common_log_main: the program's log
    void (*flush)(void *);   // common_log_flush: returns when everything is written
    _Atomic uint32_t written; // futex: 1 when it has returned
    pid_t            of;
} tap_log;

// tap_log_sleeps reports whether every other thread sleeps, and none of them in a write: then the logger has
// written everything.
static bool tap_log_sleeps(void) {
    DIR * tasks = opendir("/proc/self/task");
    bool sleeps = true;
    for (struct dirent * task; tasks != NULL && sleeps && (task = readdir(tasks)) != NULL;) {
        char path[64], call[16] = "";
        const long tid = atol(task->d_name);
        snprintf(path, sizeof(path), "/proc/self/task/%ld/syscall", tid);
        FILE * file = tid == 0 || tid == syscall(SYS_gettid) ? NULL : fopen(path, "re");
        if (file != NULL) {
            sleeps = fgets(call, sizeof(call), file) == NULL ||
            (strncmp(call, "running", 7) != 0 && atol(call) != SYS_write);
            fclose(file);
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return sleeps;
}

// tap_log_write flushes the log. common_log_flush adds an entry to the logger's queue, a ring, and does not enlarge
// it: where that fills the ring, it looks empty, and the flush never returns. So the logger gets a moment to empty
// it first; a program that still computes is not waited for.
static void * tap_log_write(void * unused) {
    (void) unused;
    enum { STEP_US = 1000, MOST_STEPS = 300 };
    for (int step = 0; step < MOST_STEPS && !tap_log_sleeps(); step++) {
        usleep(STEP_US);
    }
    tap_log.flush(tap_log.log());
    tap_set(&tap_log.written, 1);
    syscall(SYS_futex, &tap_log.written, FUTEX_WAKE, 1, NULL, NULL, 0);
    return NULL;
}

// tap_log_held reports whether whoever reads the program's output has not taken what was written so far: a write
// would wait.
static bool tap_log_held(void) {
    struct pollfd out[2] = {{.fd = STDOUT_FILENO, .events = POLLOUT}, {.fd = STDERR_FILENO, .events = POLLOUT}};
    poll(out, 2, 0);
    return out[0].revents == 0 || out[1].revents == 0;
}

// tap_log_drain waits until the log is written, as long as its reader takes. A program that calls exit in a signal
// handler, as llama-server does at the second interrupt, may hold the log's lock: another thread does the writing,
// and if nothing holds it up for ten seconds but such a lock, the text is lost as it is without the tap.
static void tap_log_drain(void) {
    enum { STEP_MS = 100, MOST_STEPS = 100 };
    if (tap_log.of != getpid()) {
        return; // a forked child has no thread that writes
    }
    void * log = tap_dlsym(RTLD_DEFAULT, "_Z15common_log_mainv"), * flush = tap_dlsym(RTLD_DEFAULT,
        "_Z16common_log_flushP10common_log");
    if (log == NULL || flush == NULL) {
        return; // no program of llama.cpp's, or its library is linked statically
    }
    memcpy(&tap_log.log, &log, sizeof(log));
    memcpy(&tap_log.flush, &flush, sizeof(flush));
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_t thread;
    const bool started = pthread_create(&thread, NULL, tap_log_write, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!started) {
        return;
    }
    pthread_detach(thread);
    const struct timespec step = {.tv_nsec = STEP_MS * 1000 * 1000};
    for (int steps = 0; steps < MOST_STEPS && tap_get(&tap_log.written) == 0;) {
        const long rc = syscall(SYS_futex, &tap_log.written, FUTEX_WAIT, 0, &step, NULL, 0);
        steps += rc != 0 && !tap_log_held();
    }
}

// Handlers run in the opposite order of their registration: this one before what libraries that were loaded earlier
// leave behind.
void tap_log_start(void) {
    tap_log.of = getpid();
    atexit(tap_log_drain);
}

#else

void tap_log_start(void) {}

#endif
