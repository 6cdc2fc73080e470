// tap_lock.h: the lock of the tap's tables, its pool and its queue.
#ifndef LLAMATAP_TAP_LOCK_H
#define LLAMATAP_TAP_LOCK_H

#include "tap_state.h"

// tap.lock is 0: free, 1: held, 2: held, and somebody may wait for it. A mutex of the C library does the same, in
// code that lies elsewhere.
void tap_lock_wait(void);
void tap_lock_wake(void);

static inline void tap_lock(void) {
    uint32_t is_free = 0;
    if (!tap_claim(&tap.lock, &is_free, 1)) {
        tap_lock_wait();
    }
}

static inline void tap_unlock(void) {
    if (atomic_exchange_explicit(&tap.lock, 0, memory_order_release) == 2) {
        tap_lock_wake();
    }
}

#endif
