// test_killed.c: the pool between two processes of which one is killed, closes, or goes on without the other.
#define _GNU_SOURCE
#include "traffic.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void model_process(struct shm * s, uint64_t seed, uint64_t threads) {
    tap_join(s);
    struct producer p[4];
    for (uint64_t i = 0; i < threads; i++) {
        p[i] = (struct producer) {.s = s, .name = i, .seed = seed + i};
        MUST(pthread_create(&p[i].thread, NULL, producer_main, &p[i]) == 0);
    }
    for (;;) {
        pause();
    }
}

static void test_killed_model(int rounds) {
    test_case("two processes: the model killed at a random moment, %d rounds", rounds);
    uint64_t seed = 42, taken = 0, died_waiting = 0;
    for (int round = 0; round < rounds; round++) {
        struct shm s;
        shm_make(&s, &(struct shm_options) {.slots = 16 + rng_below(&seed, 100), .slot_bytes = 128,
            .queue_bytes = 65536});
        s.h->config.collector_pid = getpid();
        const pid_t pid = fork();
        if (pid == 0) {
            model_process(&s, rng_next(&seed), 1 + (uint64_t) round % 3);
        }
        struct consumer c = {.s = &s, .seed = seed, .keep = 1};
        while (s.h->attached == 0) {
            MUST(waitpid(pid, NULL, WNOHANG) == 0);
            usleep(50);
        }
        const int64_t end = tap_now() + (int64_t) rng_below(&seed, 2000000);
        const bool lazy = round % 4 == 0; // the model is killed while it waits
        while (tap_now() < end) {
            if (lazy || consumer_drain(&c) == 0) {
                usleep(20);
            }
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        died_waiting += s.h->waiting > 0;
        consumer_drain(&c); // everything that was published is whole
        consumer_idle(&c);
        CHECK(shm_next(&s) == NULL, "the queue does not end");
        taken += c.taken;
        shm_free(&s);
    }
    CHECK(taken > (uint64_t) rounds * 10, "only %lu captures in all: the test does not test", (unsigned long) taken);
    CHECK(died_waiting > 0, "no model died waiting: the test does not test");
    test_end();
}

// What a model that lost its collector reports to the test.
struct orphan {
    _Atomic int64_t ready_ns, waits_ns, done_ns;
    _Atomic int32_t recording, model_pid;
};

static void on_alarm(int n) { (void) n; }

static void orphan_process(struct shm * s, struct orphan * o, bool alarms) {
    tap_join(s);
    if (alarms) { // a profiler's timer cuts every wait short
        sigaction(SIGALRM, &(struct sigaction) {.sa_handler = on_alarm}, NULL);
        setitimer(ITIMER_REAL, &(struct itimerval) {{0, 20000}, {0, 20000}}, NULL);
    }
    o->ready_ns = tap_now();
    struct producer p = {.s = s, .seed = 3};
    for (uint64_t i = 0; i < 200; i++) {
        produce(&p, i); // the collector never returns a slot: this waits
    }
    o->recording = tap_recording();
    o->done_ns = tap_now();
    _exit(0);
}

static void test_killed_collector(bool alarms) {
    test_case("two processes: the collector killed while the model waits%s", alarms ? ", the model's waits cut short "
              "by signals" : "");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = 16, .slot_bytes = 128, .queue_bytes = 65536});
    struct orphan * o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(o != MAP_FAILED);
    prctl(PR_SET_CHILD_SUBREAPER, 1); // the orphan becomes ours
    const pid_t collector = fork();
    if (collector == 0) {
        s.h->config.collector_pid = getpid();
        const pid_t model = fork();
        if (model == 0) {
            orphan_process(&s, o, alarms);
        }
        o->model_pid = model;
        for (;;) {
            pause();
        }
    }
    while (o->model_pid == 0 || s.h->waiting == 0) {
        usleep(100);
    }
    usleep(250000); // while the collector lives, the model waits as long as it takes
    CHECK(o->done_ns == 0, "the model did not wait for a collector that lives");
    kill(collector, SIGKILL);
    waitpid(collector, NULL, 0);
    const int64_t died = tap_now();
    while (o->done_ns == 0 && tap_now() - died < 5000000000) {
        usleep(1000);
    }
    CHECK(o->done_ns != 0 && o->done_ns - died < 1000000000, "the model went on after %ld ms",
          o->done_ns == 0 ? -1 : (long) ((o->done_ns - died) / 1000000));
    CHECK(!o->recording, "the model still records");
    if (o->done_ns == 0) {
        kill(o->model_pid, SIGKILL);
    }
    waitpid(o->model_pid, NULL, 0);
    munmap(o, sizeof(*o));
    shm_free(&s);
    test_end();
}

// A program that collects in its own process has no collector as parent.
static void * give_back_late(void * arg) {
    struct shm * s = arg;
    usleep(350000);
    shm_give_back(s, 0, 4);
    return NULL;
}

static void test_own_collector(void) {
    test_case("one process: a wait longer than the look for the collector");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = 8, .slot_bytes = 512, .queue_bytes = 65536});
    s.h->config.collector_pid = getpid();
    tap_join(&s);
    uint64_t waited = 0;
    enum tap_loss cause;
    MUST(tap_pool_reserve(4, &waited, &cause) == 0 && tap_pool_reserve(4, &waited, &cause) == 4);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, give_back_late, &s) == 0);
    CHECK(tap_pool_reserve(4, &waited, &cause) == 0, "not waited for, cause %d", cause);
    CHECK(waited >= 200000000, "waited for %lu ms", (unsigned long) waited / 1000000);
    CHECK(tap_recording(), "recording has ended");
    pthread_join(thread, NULL);
    tap_leave();
    shm_free(&s);
    test_end();
}

// Slots that one thread gives back unused are room for another that waits.
static void * reserve_late(void * first) {
    uint64_t waited = 0;
    enum tap_loss cause;
    *(int64_t *) first = tap_pool_reserve(4, &waited, &cause);
    return NULL;
}

static void test_cancel_wakes(void) {
    test_case("threads: one waits for what another cancels");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = 8, .slot_bytes = 512, .queue_bytes = 65536});
    tap_join(&s);
    uint64_t waited = 0;
    enum tap_loss cause;
    MUST(tap_pool_reserve(8, &waited, &cause) == 0);
    int64_t first = -2;
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, reserve_late, &first) == 0);
    while (s.h->waiting == 0) {
        usleep(100);
    }
    const uint32_t room = s.h->room;
    tap_pool_cancel(4, 4);
    CHECK(s.h->room != room, "who waits was not woken");
    pthread_join(thread, NULL);
    CHECK(first == 4, "it got slot %ld", (long) first);
    tap_leave();
    shm_free(&s);
    test_end();
}

// A collector that lives and records no more: it says so, and the model goes on.
static void * close_late(void * arg) {
    struct shm * s = arg;
    while (s->h->waiting == 0) {
        usleep(1000);
    }
    atomic_store(&s->h->closed, 1);
    atomic_fetch_add(&s->h->room, 1);
    syscall(SYS_futex, &s->h->room, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    return NULL;
}

static void test_closed_by_collector(void) {
    test_case("one process: the collector records no more while the model waits");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = 8, .slot_bytes = 512, .queue_bytes = 65536});
    tap_join(&s);
    uint64_t waited = 0;
    enum tap_loss cause = TAP_LOSS_STRIDES;
    MUST(tap_pool_reserve(8, &waited, &cause) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, close_late, &s) == 0);
    CHECK(tap_pool_reserve(1, &waited, &cause) == -1 && cause == TAP_LOSS_COLLECTOR_GONE, "cause %d", cause);
    CHECK(!tap_recording(), "still recording");
    pthread_join(thread, NULL);
    tap_leave();
    shm_free(&s);
    test_end();
}

int main(void) {
    test_killed_model(200);
    test_killed_collector(false);
    test_killed_collector(true);
    test_own_collector();
    test_cancel_wakes();
    test_closed_by_collector();
    return test_done();
}
