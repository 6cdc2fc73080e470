// tap_pool.h: the slot pool of the shared memory.
#ifndef LLAMATAP_TAP_POOL_H
#define LLAMATAP_TAP_POOL_H

#include "tap_state.h"

// tap_pool_passes says that an execution need not be stopped for tensors that would be dropped: policy drop found
// the pool full, and less than a quarter of it is free again. So what is recorded on a slow disk is whole
// executions, and those between run as if nothing was recorded.
bool tap_pool_passes(void);

// Slots are taken back from the collector once in so many reservations, and whenever none is free.
enum { TAP_TAKE_BACK_EVERY = 16 };

// tap_pool_reserve takes n neighbouring slots and returns the first one's number, or -1 where policy drop or a dead
// collector forbids waiting. wait_ns grows by the time spent waiting.
int64_t tap_pool_reserve(uint64_t n, uint64_t * wait_ns, enum tap_loss * cause);

// tap_pool_ready reports that the pages of the first n_slots slots were touched. Under the policy block no others are
// handed out, except to a model that has waited for some milliseconds. tap_pool_limit sets their number, before the
// first reservation; other threads may call tap_pool_ready only after it.
void tap_pool_ready(uint64_t n_slots);
void tap_pool_limit(uint64_t n_slots);

// tap_pool_pin lets the driver of a GPU that this thread uses pin the pool, once, before a tensor is copied from it.
void tap_pool_pin(void);

// tap_pool_cancel gives slots back that were reserved and not published.
void tap_pool_cancel(uint64_t first, uint64_t n);

#endif
