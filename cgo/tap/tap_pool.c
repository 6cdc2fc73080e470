//go:build llama

// tap_pool.c: the slot pool.
//
// Hot path: one lock and a bit scan per reservation; no allocation, no system call except the futex wait on a full
// pool. Words that the collector writes are read only now and then: each costs a trip to its core's cache.
#define _GNU_SOURCE
#include "tap_pool.h"
#include "tap_queue.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TAP_WAKE_NS = 1000000, // at most this often is the collector woken where nobody waits for it
    TAP_TOUCH_MS = 4,      // one wait for pages to be touched: the toucher runs when nothing else wants to
};

// tap_pool_mark sets or clears the bits of a run of slots, word by word.
static void tap_pool_mark(uint64_t first, uint64_t n, bool used) {
    for (uint64_t i = first, end = first + n; i < end;) {
        const uint64_t in_word = 64 - i % 64 < end - i ? 64 - i % 64 : end - i;
        const uint64_t mask = (in_word == 64 ? UINT64_MAX : (1ull << in_word) - 1) << (i % 64);
        tap.used[i / 64] = used ? tap.used[i / 64] | mask : tap.used[i / 64] & ~mask;
        i += in_word;
    }
    tap.n_used = used ? tap.n_used + n : tap.n_used - n;
}

static void tap_pool_clear(uint64_t first, uint64_t n) {
    tap_pool_mark(first, n, false);
    tap.none_of = UINT64_MAX;
    if (first / 64 < tap.first_free_word) {
        tap.first_free_word = first / 64;
    }
}

// tap_pool_take_back clears the slots that the collector has returned. An entry of the ring is (first << 32 | count).
static void tap_pool_take_back(void) {
    struct tap_header * h = tap.header;
    uint64_t tail = tap_peek(&h->ring_tail);
    const uint64_t head = tap_get(&h->ring_head);
    const uint64_t * ring = (const uint64_t *) (tap.base + h->ring_offset);
    for (; tail != head; tail++) {
        const uint64_t entry = ring[tail & (h->ring_entries - 1)];
        const uint64_t first = entry >> 32, n = entry & 0xffffffffu;
        if (n <= h->n_slots && first <= h->n_slots - n) {
            tap_pool_clear(first, n);
        }
    }
    tap_set(&h->ring_tail, tail);
}

// tap_pool_scan finds the lowest run of n free slots among the first size, or returns -1. Low numbers first keep
// the memory in use small and warm. It goes from run to run, not from slot to slot; and what was looked for in vain
// is not looked for again before slots have come back, for a pool that stays full, as it does on a slow disk, is
// asked for every tensor.
static int64_t tap_pool_scan(uint64_t n, uint64_t size) {
    const size_t words = size == tap.header->n_slots ? tap.used_words : size / 64;
    if (n >= tap.none_of && words <= tap.none_in) {
        return -1;
    }
    while (tap.first_free_word < words && tap.used[tap.first_free_word] == UINT64_MAX) {
        tap.first_free_word++;
    }
    uint64_t run = 0; // free slots before bit b of word w
    for (size_t w = tap.first_free_word; w < words; w++) {
        for (unsigned b = 0; b < 64;) {
            const uint64_t rest = tap.used[w] >> b;
            const unsigned n_free = rest == 0 ? 64 - b : (unsigned) __builtin_ctzll(rest);
            if (run + n_free >= n) {
                return (int64_t) (w * 64 + b + (n - run)) - (int64_t) n;
            }
            run += n_free;
            if ((b += n_free) < 64) {
                const uint64_t taken = ~(tap.used[w] >> b); // what is shifted in counts as free
                b += taken == 0 ? 64 : (unsigned) __builtin_ctzll(taken);
                run = 0;
            }
        }
    }
    tap.none_of = n;
    tap.none_in = words;
    return -1;
}

// tap_made_room wakes threads of the model that wait for slots. Threads that wait for the queue sleep on: pages that
// were touched give them nothing, and hundreds are touched while a model waits for its first graph to be judged.
static void tap_made_room(void) {
    struct tap_header * h = tap.header;
    if (tap_agree_get(&tap.pool_waiting) != 0) {
        tap_agree_add(&h->room, 1);
        syscall(SYS_futex, &h->room, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void tap_pool_ready(uint64_t n_slots) {
    uint64_t before = tap_peek(&tap.n_ready);
    while (before < n_slots && !atomic_compare_exchange_weak_explicit(&tap.n_ready, &before, n_slots,
                                                                      memory_order_seq_cst, memory_order_relaxed)) {
    }
    tap_made_room();
}

void tap_pool_limit(uint64_t n_slots) { tap_agree_set(&tap.n_ready, n_slots); }

// tap_pool_grow hands out slots whose pages were not touched, n of them and some more: the machine is so busy that
// neither the toucher nor the collector makes progress, and a page fault is then the smaller cost.
static void tap_pool_grow(uint64_t size, uint64_t n) {
    const struct tap_header * h = tap.header;
    const uint64_t step = (1u << 20) / h->slot_bytes;
    uint64_t more = size + (n > step ? n : step);
    more += (64 - more % 64) % 64; // whole words of the bit map
    tap_pool_ready(more < h->n_slots ? more : h->n_slots);
}

// tap_pool_size is how many slots may be in use. Under the policy block, those whose pages were touched: a model that
// waits lets the toucher and the collector work, and a fault in a data phase does neither. Under drop, all slots.
static uint64_t tap_pool_size(void) {
    return tap.header->config.overflow == TAP_OVERFLOW_BLOCK ? tap_agree_get(&tap.n_ready)
                                                              : tap.header->n_slots;
}

// tap_wake_due reports whether the collector, if it sleeps, has something to read and was not woken just now. A pool
// that stays full because the disk is slow would otherwise wake it for every tensor, and each time it takes the core
// from a thread of the model. The caller holds the lock.
static bool tap_wake_due(void) {
    struct tap_header * h = tap.header;
    if (tap_peek(&h->queue_tail) == tap_peek(&h->queue_head)) {
        return false;
    }
    const int64_t now = tap_now();
    if (now - tap.woken_ns < TAP_WAKE_NS) {
        return false;
    }
    tap.woken_ns = now;
    return true;
}

// tap_pool_try takes n neighbouring slots for a model that does not wait, or returns -1. A pool that was found full
// takes nothing until a sixteenth of it is free: what is recorded on a slow disk is then whole tokens, and the
// collector works in bursts instead of being handed a tensor for each that it has written. The caller holds the
// lock.
static int64_t tap_pool_try(uint64_t n) {
    const uint64_t size = tap_pool_size();
    if (tap.starved && tap.n_used > size - size / 16) {
        return -1;
    }
    int64_t first = tap_pool_scan(n, size);
    if (first < 0) {
        tap_pool_take_back();
        first = tap_pool_scan(n, size);
    }
    tap.starved = first < 0;
    return first;
}

// tap_pool_wait takes n neighbouring slots, and waits for them where there is no room. It returns -1 when recording
// has ended. since is when it began to wait, 0: it did not. The caller holds the lock.
static int64_t tap_pool_wait(uint64_t n, int64_t * since, enum tap_loss * cause) {
    struct tap_header * h = tap.header;
    bool grown = false;
    uint64_t size = tap_pool_size();
    int64_t first = tap_pool_scan(n, size);
    // A model that went on with the first slot that comes back would wait again for the next tensor, its threads
    // spinning between, in the way of the workers. So once it waits, it waits for a quarter of the pool.
    while (first < 0) {
        size = tap_pool_size();
        const uint64_t enough = size - size / 4;
        const uint32_t seen = tap_get(&h->room);
        const uint64_t returned = tap_get(&h->returned);
        tap_pool_take_back();
        first = tap_get(&tap.recording) && (*since == 0 || grown || tap.n_used <= enough) ? tap_pool_scan(n, size) : -1;
        if (first >= 0 || !tap_must_wait(TAP_LOSS_POOL_FULL, cause)) {
            break;
        }
        const uint64_t more = tap.n_used > enough ? tap.n_used - enough : 1;
        if (*since == 0) {
            *since = tap_now();
        }
        // The model's half of the second handshake of tap_wait.h, and of the same one with the toucher.
        tap_agree_add(&tap.pool_waiting, 1);
        tap_wait_begin(returned + more);
        if (tap_agree_get(&h->ring_head) == tap_peek(&h->ring_tail) &&
            tap_pool_size() == size) {
            tap_wait_room(seen, size < h->n_slots ? TAP_TOUCH_MS : TAP_LOOK_MS);
        }
        tap_wait_end();
        tap_agree_sub(&tap.pool_waiting, 1);
        grown = size < h->n_slots && tap_now() - *since >= TAP_TOUCH_MS * 1000000ll;
        if (grown) {
            tap_pool_grow(size, n);
        }
    }
    return first;
}

bool tap_pool_passes(void) {
    if (tap.header->config.overflow == TAP_OVERFLOW_BLOCK) {
        return false;
    }
    tap_lock();
    if (tap.starved) {
        tap_pool_take_back();
        const uint64_t size = tap_pool_size();
        tap.starved = tap.n_used > size - size / 4;
    }
    const bool passes = tap.starved;
    tap_unlock();
    return passes;
}

int64_t tap_pool_reserve(uint64_t n, uint64_t * wait_ns, enum tap_loss * cause) {
    struct tap_header * h = tap.header;
    int64_t first = -1, since = 0;
    tap_lock();
    if (++tap.reserved % TAP_TAKE_BACK_EVERY == 0) {
        tap_pool_take_back();
    }
    if (!tap_must_wait(TAP_LOSS_POOL_FULL, cause)) {
        first = tap_get(&tap.recording) && !tap_get(&tap.counting) ? tap_pool_try(n) : -1;
    } else {
        first = tap_pool_wait(n, &since, cause);
    }
    if (first >= 0) {
        tap_pool_mark((uint64_t) first, n, true);
        tap_set(&h->taken, tap_peek(&h->taken) + n);
    }
    const bool wake = tap.n_used * 4 > tap_pool_size() * 3 && tap_wake_due();
    tap_unlock();
    if (wake) {
        tap_wake_collector();
    }
    if (since != 0) {
        const uint64_t waited = (uint64_t) (tap_now() - since);
        *wait_ns += waited;
        tap_thread.waited_ns += waited;
        tap_add(&h->stats.wait_ns, waited);
        tap_add(&h->stats.waits, 1);
    }
    return first;
}

void tap_pool_cancel(uint64_t first, uint64_t n) {
    tap_lock();
    tap_pool_clear(first, n);
    tap_set(&tap.header->taken, tap_peek(&tap.header->taken) - n);
    tap_unlock();
    tap_made_room();
}
