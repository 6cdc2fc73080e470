//go:build llama

// tap_aside.c: the tap's own threads in the model's process: one touches the pool ahead of its use and ends, one
// sleeps until the collector is gone. They take no signals of the program's and run at the lowest priority once the
// model computes.
#define _GNU_SOURCE
#include "tap_aside.h"
#include "tap_pool.h"

#include <pthread.h>
#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // linux/mman.h, since 5.14
#endif

enum { SMALL_POOL = 16 << 20 };

// tap_lowest gives the calling thread the lowest priority; idle: it runs when nobody else wants to.
static void tap_lowest(bool idle) {
    const struct sched_param none = {.sched_priority = 0};
    setpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid), 19);
    if (idle) {
        sched_setscheduler((pid_t) syscall(SYS_gettid), SCHED_IDLE, &none);
    }
}

// tap_prefault touches the pool's pages: a first touch in a data phase would cost the model a page fault each.
// Kernels before 5.14 refuse, and then that is what happens. While the model is loaded there is time for it; from
// the first graph on the thread runs when nobody else wants to, for what it takes then it takes from the model;
// under policy drop, where the model cannot wait for pages, the first graph waits for all. Until it is done, the
// pool is as large as what it has touched, or as SMALL_POOL, in which a capture that is written as fast as it comes
// finds room: the model does not wait for that.
static void tap_prefault(void) {
    enum { STEP = 1 << 20 };
    uint8_t * pool = tap.base + tap.header->slots_offset;
    const uint64_t slot = tap.header->slot_bytes, all = tap.header->n_slots * slot;
    bool idle = false;
    for (uint64_t done = 0; done < all;) {
        if (!idle && tap_peek(&tap.header->stats.executions) > 0) {
            tap_lowest(idle = true);
        }
        const uint64_t n = all - done < STEP ? all - done : STEP;
        if (madvise(pool + done, n, MADV_POPULATE_WRITE) == 0) {
            done += n;
            tap_pool_ready(done / slot);
        } else if (errno != EINTR && errno != EAGAIN) {
            break;
        }
    }
    tap_pool_ready(all / slot);
}

// tap_stop_program ends the program as its user could: SIGTERM now, and SIGKILL, by tap_kill_program, if it is
// still there after five seconds.
static void tap_stop_program(void) {
    tap_say("the process that records was killed: ending this program, as --tap-on-failure stop says", "", "");
    kill(getpid(), SIGTERM);
}

static void tap_kill_program(void) {
    enum { GRACE_SECONDS = 5 };
    sleep(GRACE_SECONDS);
    kill(getpid(), SIGKILL);
}

// tap_bereaved ends recording because the collector is gone. Threads of the model that wait for room continue, but
// where the program is to stop, only after it was: released before, they could complete its work while this thread,
// of the lowest priority, waits for a processor.
static void tap_bereaved(struct tap_header * h) {
    const bool recorded = tap_peek(&tap.recording) || tap_peek(&tap.turning) ||
                          tap_peek(&tap.given);
    // closed: it had finished, or has recorded another process
    const bool unfinished = recorded && !tap_get(&h->closed);
    const bool stop = h->config.on_failure == TAP_FAILURE_STOP;
    if (unfinished && stop) {
        tap_stop_program();
    }
    tap_poke(&tap.turning, false);
    tap_poke(&tap.recording, false);
    tap_poke(&tap.given, false);
    tap_agree_add(&h->room, 1);
    syscall(SYS_futex, &h->room, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    if (unfinished && stop) {
        tap_kill_program();
    } else if (unfinished) {
        tap_say("the process that records was killed: this program continues unrecorded "
                "(--tap-on-failure stop ends it)", "", "");
    }
}

// tap_toucher is the thread that touches the pool.
static void * tap_toucher(void * unused) {
    (void) unused;
    tap_prefault();
    return NULL;
}

// tap_watcher is the thread that sleeps until the collector is gone. The collector holds the other end of a pipe
// that nobody writes to: the kernel closes it when the collector dies, whatever way. The poll keeps the pipe open
// even where the program closes every descriptor that it does not know. It is not idle, for then a busy machine
// would let it notice late.
static void * tap_watcher(void * header) {
    tap_lowest(false);
    // else each of its pages costs the model a page fault; where it fails, it does
    madvise(tap.queue, tap.queue_bytes, MADV_POPULATE_WRITE);
    struct pollfd life = {.fd = tap.life_fd, .events = POLLIN};
    int n;
    do {
        n = poll(&life, 1, -1);
    } while (n < 0 && errno == EINTR);
    if (n > 0 && (life.revents & POLLHUP)) {
        tap_bereaved(header);
    }
    return NULL;
}

void tap_touch_await(void) {
    enum { MOST_MS = 1000 };
    const int64_t began = tap_now();
    int ms = 0;
    for (; ms < MOST_MS && tap.touched && tap_get(&tap.n_ready) < tap.header->n_slots; ms++) {
        usleep(1000);
    }
    if (ms > 0) {
        const uint64_t waited = (uint64_t) (tap_now() - began);
        tap_thread.waited_ns += waited;
        tap_add(&tap.header->stats.wait_ns, waited);
        tap_add(&tap.header->stats.waits, 1);
    }
}

static bool tap_thread_start(void * (*main)(void *)) {
    pthread_t thread;
    const bool ok = pthread_create(&thread, NULL, main, tap.header) == 0;
    if (ok) {
        pthread_setname_np(thread, "llamatap-tap"); // resource.TapThread
        pthread_detach(thread);
    }
    return ok;
}

void tap_touch_start(bool ahead) {
    if (tap.touched || tap.life_fd < 0) {
        return;
    }
    tap.touched = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (ahead) {
        const uint64_t small = SMALL_POOL / tap.header->slot_bytes / 64 * 64; // whole words of the bit map
        tap_pool_limit(small < tap.header->n_slots ? small : tap.header->n_slots);
    }
    if (!tap_thread_start(tap_toucher)) {
        tap_pool_ready(tap.header->n_slots);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void tap_aside_start(void) {
    if (tap.aside || tap.life_fd < 0) {
        return;
    }
    tap.aside = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    tap.watched = tap_thread_start(tap_watcher);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (tap.header->config.start.record & TAP_RECORD_ACTIVATIONS) {
        tap_touch_start(true);
    }
}

