// tap_turn.h: recording in alternation with not recording, for benchmarks.
#ifndef LLAMATAP_TAP_TURN_H
#define LLAMATAP_TAP_TURN_H

#include "tap_state.h"

// The program that has llamatap bench has it. The library that other programs preload has not.
#ifdef LLAMATAP_PRELOADED
static inline bool tap_turn_asked(void) { return false; }
static inline void tap_turn(int32_t n_tokens) { (void) n_tokens; }
#else
static inline bool tap_turn_asked(void) { return tap.header->config.turns != 0; }

// tap_turn is called before a decode of so many tokens, where recording may end or begin.
void tap_turn_call(int32_t n_tokens);
static inline void tap_turn(int32_t n_tokens) {
    if (__builtin_expect(tap_get(&tap.turning), 0)) {
        tap_turn_call(n_tokens);
    }
}
#endif

#endif
