//go:build llama

// tap_tokens.c: the numbers of tokens in the run, and the window of a selection among them.
#define _GNU_SOURCE
#include "tap_sched.h"

// tap_window_place says which tokens of an execution, whose first one is token_first, lie in the window of its
// selection. An execution that comes after one of a newer window has none: its window is over. The caller holds the
// lock.
static void tap_window_place(struct tap_sched * s, int64_t token_first) {
    s->window_first = 0;
    s->window_end = INT64_MAX;
    if (s->tokens.window <= 0) {
        return;
    }
    const int32_t age = (int32_t) (s->tokens.window_of - tap.window_of);
    if (age > 0) {
        tap.window_of = s->tokens.window_of;
        tap.window_first = token_first;
    }
    s->window_first = tap.window_first;
    s->window_end = age >= 0 ? tap.window_first + s->tokens.window : tap.window_first;
}

TAP_HOT int64_t tap_take_tokens(struct tap_sched * s, int32_t n) {
    struct tap_context * c = s->context;
    tap_lock();
    tap_add(&tap.header->stats.executions, 1);
    tap_add(&tap.header->stats.reused, s->graph.sent);
    if (n == 0) {
        tap_unlock();
        return -1;
    }
    const int64_t first = s->token_first = tap.next_token;
    tap.next_token += n;
    tap_window_place(s, first);
    if (tap_get(&c->provisional) && n > 0) {
        if (!tap_get(&c->pending)) {
            c->pending_first = first;
            c->pending_tokens = 0;
        }
        tap_set(&c->pending, true);
        c->pending_tokens += n;
    }
    tap_unlock();
    return first;
}

TAP_RARE void tap_give_back_tokens(struct tap_sched * s) {
    const int32_t n = s->graph.n_tokens;
    struct tap_context * c = s->context;
    tap_lock();
    if (n > 0 && s->token_first + n == tap.next_token) {
        tap.next_token -= n;
        tap.window_first = tap.window_first < tap.next_token ? tap.window_first : tap.next_token;
        if (tap_get(&c->pending)) {
            c->pending_tokens -= n;
        }
    }
    tap_unlock();
}
