//go:build llama

// tap_wait.c: the tap's half of sleep and wake, as tap_wait.h specifies it.
#define _GNU_SOURCE
#include "tap_wait.h"
#include "tap_lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void tap_wake_collector(void) {
    struct tap_header * h = tap.header;
    if (tap_agree_get(&h->collector_sleeps)) {
        tap_agree_add(&h->work, 1);
        syscall(SYS_futex, &h->work, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

TAP_RARE void tap_wake_deep(void) {
    const int program_errno = errno;
    uint32_t deep = TAP_SLEEP_DEEP;
    if (tap_claim(&tap.header->collector_sleeps, &deep, TAP_SLEEP_LIGHT)) {
        tap_agree_add(&tap.header->work, 1);
        syscall(SYS_futex, &tap.header->work, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    errno = program_errno;
}

bool tap_wait_room(uint32_t seen, long ms) {
    struct tap_header * h = tap.header;
    tap_unlock();
    tap_wake_collector();
    struct timespec timeout = {.tv_sec = 0, .tv_nsec = ms * 1000 * 1000};
    const int program_errno = errno;
    const long rc = syscall(SYS_futex, &h->room, FUTEX_WAIT, seen, &timeout, NULL, 0);
    // A timeout; or a signal, which could interrupt every wait.
    const bool in_vain = rc != 0 && errno != EAGAIN;
    errno = program_errno;
    tap_lock();
    const uint32_t closed = tap_get(&h->closed);
    if (closed == TAP_COUNTS) {
        tap_set(&tap.counting, true);
    }
    if (closed == TAP_CLOSED || (in_vain && !tap_collector_lives())) {
        tap_set(&tap.recording, false);
    }
    return tap_get(&tap.recording);
}

enum tap_loss tap_queue_loss(void) {
    if (!tap_get(&tap.recording)) {
        return TAP_LOSS_COLLECTOR_GONE;
    }
    return tap_get(&tap.counting) ? TAP_LOSS_STOPPED : TAP_LOSS_QUEUE_FULL;
}

bool tap_must_wait(enum tap_loss shortage, enum tap_loss * cause) {
    if (!tap_get(&tap.recording)) {
        *cause = TAP_LOSS_COLLECTOR_GONE;
        return false;
    }
    if (tap_get(&tap.counting)) {
        *cause = TAP_LOSS_STOPPED;
        return false;
    }
    *cause = shortage;
    return tap.header->config.overflow == TAP_OVERFLOW_BLOCK;
}
