//go:build llama

// tap_turn.c: recording by turns, so that llamatap bench can compare a model that is recorded with the same model that is not, in one process: two
// processes differ by where their memory lies and by when they run, which is more than the tap costs.
#define _GNU_SOURCE
#include "tap.h"

#include <string.h>

// tap_turn_over ends a turn, which took so long, and begins the next one.
static void tap_turn_over(int64_t took) {
    struct tap_header * h = tap.header;
    const uint32_t n = atomic_load_explicit(&h->n_turns, memory_order_relaxed);
    if (n < TAP_MAX_TURNS) {
        h->turn_us[n] = (uint32_t) (took / 1000);
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
    static int64_t began;
    static uint32_t calls;
    struct tap_header * h = tap.header;
    const uint32_t turns = h->config.turns;
    if (n_tokens != 1 || atomic_load_explicit(&h->closed, memory_order_acquire)) {
        calls = 0; // a prompt is no token
        return;
    }
    const int64_t now = tap_now();
    if (calls == turns) {
        tap_turn_over(now - began);
        calls = 0;
    }
    if (calls == turns / 4) {
        began = now;
    }
    calls++;
}
