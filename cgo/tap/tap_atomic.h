// tap_atomic.h: how threads, and the two processes, share words. Every access to an atomic object is one of these:
// C's operators on atomic objects order everything, and hide where an order matters. scripts/test lint compiles with
// a warning for them.
#ifndef LLAMATAP_TAP_ATOMIC_H
#define LLAMATAP_TAP_ATOMIC_H

#include <stdatomic.h>

// Hand over: what a thread wrote before a set is visible after the get that reads it.
#define tap_get(object) atomic_load_explicit(object, memory_order_acquire)
#define tap_set(object, value) atomic_store_explicit(object, value, memory_order_release)

// One word alone, in no order with others: a flag whose reader needs nothing else, or a word that only this thread,
// or the holder of a lock, writes.
#define tap_peek(object) atomic_load_explicit(object, memory_order_relaxed)
#define tap_poke(object, value) atomic_store_explicit(object, value, memory_order_relaxed)

// Counters and serial numbers, and flags that are collected; the value before is returned.
#define tap_count(object, n) atomic_fetch_add_explicit(object, n, memory_order_relaxed)
#define tap_swap(object, value) atomic_exchange_explicit(object, value, memory_order_relaxed)
#define tap_flag(object, bits) atomic_fetch_or_explicit(object, bits, memory_order_acq_rel)
// tap_claim replaces a word that is *expected, and returns false where it is not.
#define tap_claim(object, expected, value) \
    atomic_compare_exchange_strong_explicit(object, expected, value, memory_order_acq_rel, memory_order_acquire)

// Handshake: each side changes its word, then reads the other's, and at least one must see the other's change. No
// weaker order grants that: a processor may let a load overtake an earlier store to another word. See tap_wait.h.
#define tap_agree_get(object) atomic_load_explicit(object, memory_order_seq_cst)
#define tap_agree_set(object, value) atomic_store_explicit(object, value, memory_order_seq_cst)
#define tap_agree_add(object, n) atomic_fetch_add_explicit(object, n, memory_order_seq_cst)
#define tap_agree_sub(object, n) atomic_fetch_sub_explicit(object, n, memory_order_seq_cst)

#endif
