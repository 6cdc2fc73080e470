// Makes a stock llama.cpp program one that others can be compared with. Preloaded by internal/testenv; changes
// nothing else.
//
// It writes all of its text before it ends. Its text goes through the queue of a logger thread that main does not
// wait for: on a busy machine the end of it, or all, is lost though the exit status is 0.
//
// It takes its backends from the folder BACKENDS alone. By itself it looks at those that the machine has installed
// as well, and uses what it likes best.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef BACKENDS // given on the command line where this is built to be used
#define BACKENDS ""
#endif

typedef int (*main_fn)(int, char **, char **);
typedef int (*start_main_fn)(main_fn, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static main_fn real_main;

// others_sleep reports whether no other thread runs or writes, as far as the kernel says.
static bool others_sleep(void) {
    DIR * tasks = opendir("/proc/self/task");
    bool sleep = true;
    for (struct dirent * task; tasks != NULL && sleep && (task = readdir(tasks)) != NULL;) {
        char path[64], call[16] = "";
        const long tid = atol(task->d_name);
        snprintf(path, sizeof path, "/proc/self/task/%ld/syscall", tid);
        FILE * file = tid == 0 || tid == syscall(SYS_gettid) ? NULL : fopen(path, "re");
        if (file != NULL) {
            sleep = fgets(call, sizeof call, file) == NULL ||
                    (strncmp(call, "running", 7) != 0 && atol(call) != SYS_write);
            fclose(file);
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return sleep;
}

// flush_log waits until llama.cpp's logger has written what it was given. A logger that sleeps has: only then may
// common_log_flush be called, which never returns while the queue, a ring, has room for one entry; it takes the
// ring for empty when it has added its own.
static void flush_log(void) {
    void * (*log_main)(void);
    void (*log_flush)(void *);
    void * main_address  = dlsym(RTLD_DEFAULT, "_Z15common_log_mainv");
    void * flush_address = dlsym(RTLD_DEFAULT, "_Z16common_log_flushP10common_log");
    if (main_address == NULL || flush_address == NULL) {
        return;
    }
    memcpy(&log_main, &main_address, sizeof log_main);
    memcpy(&log_flush, &flush_address, sizeof log_flush);
    enum { STEP_US = 1000, MOST_STEPS = 10000 };
    for (int step = 0; step < MOST_STEPS && !others_sleep(); step++) {
        usleep(STEP_US);
    }
    log_flush(log_main());
}

// ggml_backend_load_all takes the place of libggml's.
void ggml_backend_load_all(void);
void ggml_backend_load_all(void) {
    void (*load_from)(const char *);
    void * address = dlsym(RTLD_DEFAULT, "ggml_backend_load_all_from_path");
    if (address != NULL) {
        memcpy(&load_from, &address, sizeof load_from);
        load_from(BACKENDS);
    }
}

static int flushed_main(int argc, char ** argv, char ** env) {
    int status = real_main(argc, argv, env);
    flush_log();
    return status;
}

// __libc_start_main takes the place of the C library's and has the log flushed after main.
int __libc_start_main(main_fn program, int argc, char ** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void * stack_end);
int __libc_start_main(main_fn program, int argc, char ** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void * stack_end) {
    start_main_fn start;
    void * address = dlsym(RTLD_NEXT, "__libc_start_main");
    memcpy(&start, &address, sizeof start);
    real_main = program;
    return start(flushed_main, argc, argv, init, fini, rtld_fini, stack_end);
}
