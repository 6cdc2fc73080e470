// tap_queue.h: the record queue of the shared memory.
#ifndef LLAMATAP_TAP_QUEUE_H
#define LLAMATAP_TAP_QUEUE_H

#include "tap_lock.h"
#include "tap_wait.h"


// tap_queue_open finds a place for bytes of records, a multiple of eight, and holds the lock until tap_queue_shut
// hands so many of them to the collector. What is droppable waits for room under the policy block alone, other
// records under every policy where config.exact says so. NULL: there is no room, and why; the lock is not held.
void * tap_queue_open(size_t bytes, bool droppable, enum tap_loss * cause);

static inline void tap_queue_shut(size_t bytes) {
    tap_set(&tap.header->queue_head, tap_peek(&tap.opened) + bytes);
    tap_unlock();
    if (tap_agree_get(&tap.header->collector_sleeps) == TAP_SLEEP_DEEP) {
        tap_wake_deep();
    }
}

// tap_words copies a multiple of eight bytes without a call.
static inline void tap_words(void * to, const void * from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        __builtin_memcpy(&word, (const uint8_t *) from + i, sizeof(word));
        __builtin_memcpy((uint8_t *) to + i, &word, sizeof(word));
        __asm__ volatile("" ::: "memory"); // else the compiler makes a call of it
    }
}

// tap_queue_put writes one record: head (its tap_record filled with the type alone), then up to three parts. It
// waits for room under policy block and returns false where the record was lost. The caller does not hold the lock.
struct tap_part {
    const void * data;
    size_t       bytes;
};
bool tap_queue_put(struct tap_record * head, size_t head_bytes, const struct tap_part * parts, int n_parts);

// Records on their way to the queue, which they enter together: what a graph's entry reports is put at once.
struct tap_out {
    size_t  n;
    bool    lost; // records did not enter the queue
    _Alignas(8) uint8_t bytes[8 * 1024];
};

// tap_out_room returns a place for n more bytes, a multiple of eight, and flushes what is there if it must. n is at
// most sizeof(bytes).
void * tap_out_room(struct tap_out * o, size_t n);

// tap_out_flush puts what was gathered. It returns false once something was lost.
bool tap_out_flush(struct tap_out * o);

// tap_queue_settle waits until the collector has read, and dealt with, everything that was put until now; without
// one it returns at once.
void tap_queue_settle(void);

// tap_queue_largest is the largest record that the queue takes.
size_t tap_queue_largest(void);

#endif
