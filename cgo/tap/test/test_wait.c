// test_wait.c: sleep and wake: the two handshakes of tap_wait.h, and several threads that wait for different room.
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { QUEUE = 65536 };

// put writes one record of so many bytes after its head.
static bool put(uint32_t payload) {
    static const uint8_t bytes[QUEUE / 4];
    struct tap_record record = {.type = TAP_REC_CALL};
    return tap_queue_put(&record, sizeof(record), &(struct tap_part) {bytes, payload}, 1);
}

// read_one reads the oldest record. It returns its type, or 0 where the queue is empty.
static uint32_t read_one(struct shm * s) {
    struct tap_record * r = shm_next(s);
    const uint32_t type = r == NULL ? 0 : r->type;
    if (r != NULL) {
        shm_read(s, r);
    }
    return type;
}

static void no_losses(const struct tap_header * h) {
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(h->stats.loss[i].packets == 0 && h->stats.loss[i].bytes == 0, "loss of cause %d", i);
    }
}

// ---- the two handshakes ---------------------------------------------------------------------------------------------

// Rounds in which the tap and a collector meet, so that their steps are as close together as they can be.
struct rounds {
    struct shm *     s;
    int              n;
    _Atomic int      at[2];  // the round that each side is ready for
    _Atomic bool     awake;  // the collector saw a model that waits for what it has not read, or what lies there
    uint32_t         how;    // it sleeps
};

// meet returns when both sides are in a round.
static void meet(struct rounds * z, int side, int round) {
    atomic_store(&z->at[side], round);
    for (int spins = 0; atomic_load(&z->at[1 - side]) < round; spins++) {
        if (spins % 1000 == 999) {
            sched_yield(); // the other one may need this processor
        }
    }
}

// sleeper_main is the collector in the first handshake, which would sleep next.
static void * sleeper_main(void * arg) {
    struct rounds * z = arg;
    struct tap_header * h = z->s->h;
    for (int round = 1; round <= z->n; round++) {
        const uint64_t read = atomic_load(&h->queue_head);
        meet(z, 1, 2 * round);
        atomic_store(&h->collector_sleeps, z->how);
        const bool wanted = z->how == TAP_SLEEP_DEEP || atomic_load(&h->waiting) > 0;
        atomic_store(&z->awake, wanted && atomic_load(&h->queue_head) != read);
        meet(z, 1, 2 * round + 1);
    }
    return NULL;
}

// A wake is lost where the collector goes to sleep and the tap changes work no more: each one's load overtook its
// store.
static void test_wake_collector(uint32_t how, int rounds) {
    const bool deep = how == TAP_SLEEP_DEEP;
    test_case("threads: a model %s while the collector goes to %s, %d rounds", deep ? "publishes" : "waits",
              deep ? "deep sleep" : "sleep", rounds);
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = 8, .slot_bytes = 512, .queue_bytes = QUEUE});
    tap_join(&s);
    struct rounds z = {.s = &s, .n = rounds, .how = how};
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, sleeper_main, &z) == 0);
    const uint64_t first = atomic_load(&s.h->queue_head);
    int lost = 0;
    for (int round = 1; round <= rounds; round++) {
        atomic_store(&s.h->collector_sleeps, 0);
        const uint32_t work = atomic_load(&s.h->work);
        meet(&z, 0, 2 * round);
        if (deep) {
            tap_lock();
            tap_poke(&tap.opened, first + 8 * (uint64_t) (round - 1));
            tap_queue_shut(8);
        } else {
            tap_set(&s.h->queue_head, first + 8 * (uint64_t) round); // as tap_queue_shut does
            tap_wait_begin(0);
            tap_wake_collector();
        }
        meet(&z, 0, 2 * round + 1);
        lost += atomic_load(&s.h->work) == work && !atomic_load(&z.awake);
        if (!deep) {
            tap_wait_end();
        }
    }
    pthread_join(thread, NULL);
    CHECK(lost == 0, "%d wakes were lost", lost);
    atomic_store(&s.h->queue_head, first);
    tap_leave();
    shm_free(&s);
    test_end();
}

// While endless is set, futex waits have no timeout: a wake that is lost hangs the test instead of delaying it, and
// HANG_SECONDS end it.
static _Atomic bool endless;
enum { HANG_SECONDS = 600 };

long syscall(long number, ...) {
    typedef long (*function)(long, ...);
    static _Atomic(function) real;
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    if (atomic_load(&real) == NULL) {
        atomic_store(&real, (function) dlsym(RTLD_NEXT, "syscall"));
    }
    if (number == SYS_futex && a[1] == FUTEX_WAIT && atomic_load(&endless)) {
        a[3] = 0;
    }
    return atomic_load(&real)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

enum { ROOM_SLOTS = 8 }; // a model that waits wants a quarter of them

// returner_main is the collector in the second handshake: it returns two slots, the second in a call of its own, and
// reads the record that fills the queue.
static void * returner_main(void * arg) {
    struct rounds * z = arg;
    for (int round = 1; round <= z->n; round++) {
        meet(z, 1, round);
        shm_give_back(z->s, 0, 1);
        shm_give_back(z->s, 1, 1);
        while (read_one(z->s) != TAP_REC_CALL) {
        }
    }
    return NULL;
}

static void test_wake_model(int rounds) {
    test_case("threads: the collector makes room while a model goes to sleep, %d rounds without timeouts", rounds);
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = ROOM_SLOTS, .slot_bytes = 512, .queue_bytes = QUEUE,
                                        .overflow = TAP_OVERFLOW_BLOCK});
    tap_join(&s);
    tap_pool_limit(ROOM_SLOTS);
    uint64_t waited = 0;
    enum tap_loss cause;
    MUST(tap_pool_reserve(ROOM_SLOTS, &waited, &cause) == 0);
    struct rounds z = {.s = &s, .n = rounds};
    pthread_t thread;
    atomic_store(&endless, true);
    alarm(HANG_SECONDS);
    MUST(pthread_create(&thread, NULL, returner_main, &z) == 0);
    for (int round = 1; round <= rounds; round++) {
        meet(&z, 0, round);
        CHECK(tap_pool_reserve(2, &waited, &cause) == 0, "the two slots are not those that came back");
        CHECK(put(64), "a record was lost");
        tap_queue_settle();
    }
    pthread_join(thread, NULL);
    alarm(0);
    atomic_store(&endless, false);
    CHECK(s.h->stats.waits > 0, "no model ever waited: the test tests nothing");
    no_losses(s.h);
    tap_leave();
    shm_free(&s);
    test_end();
}

// ---- several threads ------------------------------------------------------------------------------------------------

// pool_waiter wants two slots, and queue_waiter room for a record.
static void * pool_waiter(void * ok) {
    uint64_t waited = 0;
    enum tap_loss cause;
    *(bool *) ok = tap_pool_reserve(2, &waited, &cause) >= 0;
    return NULL;
}

static void * queue_waiter(void * ok) {
    *(bool *) ok = put(QUEUE / 8);
    return NULL;
}

static void await_waiting(const struct shm * s, uint32_t n) {
    while (atomic_load(&s->h->waiting) != n) {
        usleep(100);
    }
}

// A thread that waits for any room is woken by any, also while another one waits for many slots, whichever began.
static void test_several(bool queue_first) {
    test_case("threads: one waits for the queue and one for slots, the one for %s first",
              queue_first ? "the queue" : "slots");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = ROOM_SLOTS, .slot_bytes = 512, .queue_bytes = QUEUE,
                                        .overflow = TAP_OVERFLOW_BLOCK});
    tap_join(&s);
    tap_pool_limit(ROOM_SLOTS);
    uint64_t waited = 0;
    enum tap_loss cause;
    MUST(tap_pool_reserve(ROOM_SLOTS, &waited, &cause) == 0);
    while (QUEUE - (atomic_load(&s.h->queue_head) - atomic_load(&s.h->queue_tail)) >= QUEUE / 16) {
        MUST(put(1000));
    }
    atomic_store(&endless, true);
    alarm(HANG_SECONDS);
    pthread_t first, second;
    bool ok[2] = {false, false};
    MUST(pthread_create(&first, NULL, queue_first ? queue_waiter : pool_waiter, &ok[0]) == 0);
    await_waiting(&s, 1);
    MUST(pthread_create(&second, NULL, queue_first ? pool_waiter : queue_waiter, &ok[1]) == 0);
    await_waiting(&s, 2);
    const uint64_t returned = atomic_load(&s.h->returned), wake = atomic_load(&s.h->wake_returned);
    CHECK(wake <= returned, "%lu slots must come back before any room wakes", (unsigned long) (wake - returned));
    while (read_one(&s) != 0) {
    }
    pthread_join(queue_first ? first : second, NULL); // it would sleep on without a timeout
    shm_give_back(&s, 0, ROOM_SLOTS);
    pthread_join(queue_first ? second : first, NULL);
    alarm(0);
    atomic_store(&endless, false);
    CHECK(ok[0] && ok[1], "what was waited for was not had");
    CHECK(s.h->waiting == 0, "%u threads are said to wait", s.h->waiting);
    no_losses(s.h);
    tap_leave();
    shm_free(&s);
    test_end();
}

int main(int argc, char ** argv) {
    const bool plain = argc > 1 && strcmp(argv[1], "wakes") == 0; // without sanitizers
    test_wake_collector(TAP_SLEEP_LIGHT, plain ? 500000 : 1000);
    test_wake_collector(TAP_SLEEP_DEEP, plain ? 500000 : 1000);
    test_wake_model(plain ? 20000 : 1000);
    test_several(true);
    test_several(false);
    return test_done();
}
