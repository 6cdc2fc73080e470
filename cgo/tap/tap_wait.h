// tap_wait.h: how the model's threads and the collector wait for each other.
//
// # Sleep and wake
//
// The words are in the shared memory (tap_shm.h). Loads and stores below are sequentially consistent, except where
// the text says otherwise; the collector uses Go's atomics, which are (collect/reader.go, collect/lease.go).
//
// First handshake: the collector sleeps, and a model that waits for room wakes it.
//
//   model, tap_wait_begin, tap_wait_room       collector, Sleep
//   1. has stored queue_head (release)         1. loads work
//   2. adds 1 to waiting                       2. stores 1 to collector_sleeps
//   3. loads collector_sleeps                  3. if waiting > 0 and queue_head is beyond what it has read: awake
//   4. if 1: adds 1 to work, wakes             4. sleeps while work is what it was in 1, for some milliseconds
//
// Promise: a collector that has records to read does not sleep while a model waits for them. Of the two loads in
// step 3, at least one sees the other side's step 2, because all four accesses are in the one order of sequentially
// consistent operations, which agrees with the order of each side. If the collector sees waiting, it sees the
// queue_head stored before it, and stays awake. If the model sees collector_sleeps, it changes work after the
// collector's step 1, so that the sleep ends or does not begin.
//
// Where no model waits, no record wakes the collector from a light sleep: it looks again after its timeout, some
// milliseconds. tap_pool_reserve wakes it early when the pool is three quarters full, at most every TAP_WAKE_NS.
//
// A collector that found nothing for long sleeps deeply, and the first record wakes it: one system call of the model
// for all that it does until it pauses for long again.
//
//   model, tap_queue_shut                      collector, Sleep
//   1. stores queue_head (release)             1. loads work
//   2. exchanges the lock (release)            2. stores TAP_SLEEP_DEEP to collector_sleeps
//   3. loads collector_sleeps                  3. if queue_head is beyond what it has read: awake
//   4. if deep: claims it, adds 1 to work,     4. sleeps while work is what it was in 1, for longer
//      wakes
//
// The model's step 3 does not overtake its steps 1 and 2: an exchange on x86 is a full barrier, and on arm64 a load of
// this kind stays behind an earlier release. So of the two loads in step 3 at least one sees the other side's store.
//
// Second handshake: a model sleeps, and a collector that made room wakes it.
//
//   model                                      collector, madeRoom
//   1. loads room (acquire), then what it      1. stores queue_tail, or ring_head and then returned
//      lacks: queue_tail, or ring_head         2. adds 1 to room
//   2. tap_wait_begin: lowers wake_returned    3. if waiting > 0 and returned >= wake_returned: wakes all
//      to how far returned must come; 0: any
//      room will do
//   3. … and adds 1 to waiting
//   4. loads queue_tail or ring_head again: if changed, does not sleep
//   5. sleeps while room is what it was in 1,
//      for TAP_LOOK_MS at most
//   6. tap_wait_end: subtracts 1 from waiting
//
// Promise: a model does not sleep on while the room that it asked for is there. If the collector's step 2 comes
// before the model's sleep, room differs and the sleep does not begin. If it comes after, step 3 sees waiting and
// wake_returned, which were stored before the sleep. With several waiting threads wake_returned is the least that one
// of them needs, so that all are woken, and those that need more sleep again.
// A thread that waits for slots adds 1 to tap.pool_waiting too, and the toucher (tap_pool_ready) plays the
// collector's part with n_ready, room and pool_waiting.
//
// TAP_LOOK_MS bounds a sleep so that a model notices that its collector was killed; no promise depends on it.
// test/test_wait.c runs both handshakes many times with the steps as close together as two processors can bring
// them, the second one without that bound.
#ifndef LLAMATAP_TAP_WAIT_H
#define LLAMATAP_TAP_WAIT_H

#include "tap_state.h"

// tap_wait_begin announces a wait for room, and tap_wait_end ends it. The caller holds the lock.
static inline void tap_wait_begin(uint64_t wake_returned) {
    struct tap_header * h = tap.header;
    if (tap_peek(&h->waiting) == 0 || wake_returned < tap_peek(&h->wake_returned)) {
        tap_agree_set(&h->wake_returned, wake_returned);
    }
    tap_agree_add(&h->waiting, 1);
}

static inline void tap_wait_end(void) { tap_agree_sub(&tap.header->waiting, 1); }

// tap_wait_room waits until the collector has made room since seen was read, or so many milliseconds. Returns
// false, and ends recording, when the collector is gone. The caller has announced the wait, and holds the lock, which
// is released meanwhile.
enum { TAP_LOOK_MS = 100 }; // a wait for room is this long before it checks whether the collector lives
bool tap_wait_room(uint32_t seen, long ms);

// tap_wake_collector wakes the collector, if it sleeps, for what was published before.
void tap_wake_collector(void);

// tap_wake_deep wakes a collector that sleeps deeply. One of several threads does.
void tap_wake_deep(void);

// tap_queue_loss is why a tensor is lost that the queue did not take.
enum tap_loss tap_queue_loss(void);

// tap_must_wait reports whether a shortage holds the model up (policy block) and, if not, why not.
bool tap_must_wait(enum tap_loss shortage, enum tap_loss * cause);

#endif
