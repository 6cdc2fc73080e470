// test_turns.c: recording in alternation, with decodes that come from several threads.
#define _GNU_SOURCE
#include "harness.h"

enum { THREADS = 2, CALLS = 4001, TURN = 8 };

static void * decode_main(void * begin) {
    pthread_barrier_wait(begin);
    for (int i = 0; i < CALLS; i++) {
        tap_turn_call(1);
    }
    return NULL;
}

// Whatever thread a token comes from, it counts once, and every turn is as long as any other and ends what the one
// before began.
static void test_threads(void) {
    test_case("turns of %d tokens from %d threads", TURN, THREADS);
    struct shm shm;
    shm_make(&shm, &(struct shm_options) {0});
    shm.h->config.turns = TURN;
    tap_join(&shm);
    tap_turn_call(2); // a prompt: counting begins anew
    pthread_barrier_t begin;
    pthread_t thread[THREADS];
    MUST(pthread_barrier_init(&begin, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_create(&thread[i], NULL, decode_main, &begin) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
    pthread_barrier_destroy(&begin);
    const uint32_t n = atomic_load(&shm.h->n_turns);
    CHECK(n == (THREADS * CALLS - 1) / TURN, "%u turns", n); // a turn ends as the next one's first token begins
    CHECK(atomic_load(&tap.recording) == (n % 2 == 0), "after %u turns it is %s", n,
          atomic_load(&tap.recording) ? "recorded" : "not recorded");
    tap_leave();
    shm_free(&shm);
    test_end();
}

int main(void) {
    test_threads();
    return test_done();
}
