//go:build llama

// tap_state.c: the state of the tap in this process, time, counters of losses, lines to stderr.
#define _GNU_SOURCE
#include "tap_state.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

// tap_build is the shared memory that this object was compiled for, for whoever reads it in the file: version,
// bytes of the header.
const uint32_t tap_build[2] = {TAP_SHM_VERSION, sizeof(struct tap_header)};

struct tap tap = {.life_fd = -1};

TAP_OWN struct tap_thread tap_thread;

TAP_HOT int64_t tap_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void tap_loss_add(enum tap_loss cause, uint64_t packets, uint64_t bytes) {
    tap_add(&tap.header->stats.loss[cause].packets, packets);
    tap_add(&tap.header->stats.loss[cause].bytes, bytes);
}

void tap_say(const char * text, const char * name, const char * rest) {
    char line[512];
    const int n = snprintf(line, sizeof(line), "llamatap: %s%s%s\n", text, name, rest);
    ssize_t unused = write(STDERR_FILENO, line, (size_t) n < sizeof(line) ? (size_t) n : sizeof(line) - 1);
    (void) unused;
}

bool tap_collector_lives(void) {
    if (tap.watched) {
        return true; // else recording would have ended
    }
    if (tap.life_fd >= 0) {
        struct pollfd life = {.fd = tap.life_fd, .events = POLLIN};
        return poll(&life, 1, 0) <= 0 || !(life.revents & POLLHUP);
    }
    const pid_t pid = tap.header->config.collector_pid; // that started this process, or is this process
    return getppid() == pid || getpid() == pid;
}
