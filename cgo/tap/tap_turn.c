//go:build llama

// tap_turn.c: recording by turns, so that llamatap bench can compare a model that is recorded with the same model that is not, in one process: two
// processes differ by where their memory lies and by when they run, which is more than the tap costs.
#define _GNU_SOURCE
#include "tap.h"

#include <string.h>

enum { TAP_LONGEST_TURN = 256 };

// tap_turn_median is the time of a turn's tokens of which half took longer: something else on the machine that holds up a few does not count.
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
    const uint32_t n = atomic_load_explicit(&h->n_turns, memory_order_relaxed);
    if (n < TAP_MAX_TURNS) {
        h->turn_ns[n] = token_ns < UINT32_MAX ? (uint32_t) token_ns : UINT32_MAX;
        atomic_store_explicit(&h->n_turns, n + 1, memory_order_release);
    }
    const bool on = !atomic_load_explicit(&tap.recording, memory_order_relaxed);
    if (on) {
        tap_lock();
        for (int i = 0; i < TAP_MAX_SCHEDS; i++) {
            if (tap.scheds[i] != NULL) {
                tap.scheds[i]->graph.described = false; // another one may have been built meanwhile
            }
        }
        tap_unlock();
    }
    atomic_store_explicit(&tap.recording, on, memory_order_relaxed);
}

// Of each turn the first quarter is not measured: the collector is busy with the one before.
TAP_RARE void tap_turn_call(int32_t n_tokens) {
    static int64_t took[TAP_LONGEST_TURN], last;
    static uint32_t calls;
    struct tap_header * h = tap.header;
    const uint32_t asked = h->config.turns, turns = asked < TAP_LONGEST_TURN ? asked : TAP_LONGEST_TURN, skipped = turns / 4;
    if (n_tokens != 1 || atomic_load_explicit(&h->closed, memory_order_acquire)) {
        calls = 0; // a prompt is no token
        return;
    }
    const int64_t now = tap_now();
    if (calls > skipped) {
        took[calls - skipped - 1] = now - last;
    }
    if (calls == turns) {
        tap_turn_over(tap_turn_median(took, turns - skipped));
        calls = 0;
    }
    last = now;
    calls++;
}
