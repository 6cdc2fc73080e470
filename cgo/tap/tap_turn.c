//go:build llama

// tap_turn.c: recording in alternation, so that llamatap bench can compare a model that is recorded with the same model
// that is not, in one process: two processes differ by where their memory lies and by when they run, which is more
// than the tap costs.
#define _GNU_SOURCE
#include "tap_turn.h"
#include "tap_sched.h"

#include <pthread.h>
#include <string.h>

#ifndef LLAMATAP_PRELOADED // see tap_turn.h

enum { TAP_LONGEST_TURN = 256 };

// tap_turn_median is the time of a turn's tokens of which half took longer: something else on the machine that
// holds up a few does not count.
static int64_t tap_turn_median(int64_t * took, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        const int64_t t = took[i];
        uint32_t k = i;
        for (; k > 0 && took[k - 1] > t; k--) {
            took[k] = took[k - 1];
        }
        took[k] = t;
    }
    return n == 0 ? 0 : (took[(n - 1) / 2] + took[n / 2]) / 2;
}

// tap_turn_over ends a turn, whose tokens took so long, and begins the next one.
static void tap_turn_over(int64_t token_ns) {
    struct tap_header * h = tap.header;
    const uint32_t n = tap_peek(&h->n_turns);
    if (n < TAP_MAX_TURNS) {
        h->turn_ns[n] = token_ns < UINT32_MAX ? (uint32_t) token_ns : UINT32_MAX;
        tap_set(&h->n_turns, n + 1);
    }
    const bool on = !tap_peek(&tap.recording);
    if (on) {
        tap_lock();
        for (int i = 0; i < TAP_MAX_SCHEDS; i++) {
            if (tap.scheds[i] != NULL) {
                tap.scheds[i]->graph.described = false; // another one may have been built meanwhile
            }
        }
        tap_unlock();
    }
    tap_poke(&tap.recording, on);
}

// tap_turns is the turn under way. Decodes may come from several threads.
static struct {
    pthread_mutex_t lock;
    int64_t         took[TAP_LONGEST_TURN]; // by its measured tokens; guarded by lock, as are …
    int64_t         last;                   // … when the last one began, …
    uint32_t        calls;                  // … and how many there were
} tap_turns = {.lock = PTHREAD_MUTEX_INITIALIZER};

// tap_turn_count counts a token, which begins now. The caller holds the lock.
static void tap_turn_count(uint32_t turns) {
    const uint32_t skipped = turns / 4; // not measured: the collector is busy with the turn before
    const int64_t now = tap_now();
    if (tap_turns.calls > skipped) {
        tap_turns.took[tap_turns.calls - skipped - 1] = now - tap_turns.last;
    }
    if (tap_turns.calls == turns) {
        tap_turn_over(tap_turn_median(tap_turns.took, turns - skipped));
        tap_turns.calls = 0;
    }
    tap_turns.last = now;
    tap_turns.calls++;
}

TAP_RARE void tap_turn_call(int32_t n_tokens) {
    struct tap_header * h = tap.header;
    const uint32_t asked = h->config.turns;
    pthread_mutex_lock(&tap_turns.lock);
    if (n_tokens != 1 || tap_get(&h->closed)) {
        tap_turns.calls = 0; // a prompt is no token
    } else {
        tap_turn_count(asked < TAP_LONGEST_TURN ? asked : TAP_LONGEST_TURN);
    }
    pthread_mutex_unlock(&tap_turns.lock);
}

#endif
