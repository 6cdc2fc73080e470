// tap_turn.h: recording in alternation with not recording, for benchmarks.
#ifndef LLAMATAP_TAP_TURN_H
#define LLAMATAP_TAP_TURN_H

#include "tap_state.h"

// tap_turn stands before a decode of so many tokens, where recording may end or begin.
void tap_turn_call(int32_t n_tokens);
static inline void tap_turn(int32_t n_tokens) {
    if (__builtin_expect(tap_get(&tap.turning), 0)) {
        tap_turn_call(n_tokens);
    }
}

#endif
