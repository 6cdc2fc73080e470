//go:build llama

// tap_pool.c: the slot pool.
//
// Hot path: one lock and a bit scan per reservation; no allocation, no system call except the futex wait on a full
// pool. Words that the collector writes are read only now and then: each costs a trip to its core's cache.
#define _GNU_SOURCE
#include "tap.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

TAP_OWN struct tap_thread tap_thread;

TAP_HOT int64_t tap_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void tap_loss_add(enum tap_loss cause, uint64_t packets, uint64_t bytes) {
    tap_add(&tap.header->stats.loss[cause].packets, packets);
    tap_add(&tap.header->stats.loss[cause].bytes, bytes);
}

void tap_sched_lost(struct tap_sched * s, enum tap_loss cause, uint64_t packets, uint64_t bytes) {
    if (!s->lossy) {
        memset(&s->losses, 0, sizeof(s->losses));
        s->lossy = true;
    }
    s->losses.loss[cause].packets += packets;
    s->losses.loss[cause].bytes += bytes;
    s->selected_packets += packets;
    s->selected_bytes += bytes;
    tap_loss_add(cause, packets, bytes);
}

// ---- waiting --------------------------------------------------------------------------------------------------------

static void tap_futex_wake(_Atomic uint32_t * word) {
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

// tap_wake_collector wakes the collector, if it sleeps, because room is short.
//
// Each side stores a word and then loads the other's: the tap publishes records (queue_head) and that it waits
// (waiting), then loads collector_sleeps; the collector stores collector_sleeps, then loads waiting and queue_head,
// and sleeps if it finds nothing. A processor may let a load overtake an earlier store to another word. If both
// did, the tap would see a collector that is awake and the collector a queue that is empty, and the wake would be
// lost until a timeout. An acquire load does not prevent that, nor does a sequentially consistent one after a
// release store: only the fence orders the store before the load. The collector's store is sequentially consistent
// (Go's atomics).
void tap_wake_collector(void) {
    struct tap_header * h = tap.header;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&h->collector_sleeps, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&h->work, 1, memory_order_seq_cst);
        tap_futex_wake(&h->work);
    }
}

enum {
    TAP_WAKE_NS = 1000000, // how often at most the collector is woken where nobody waits for it
    TAP_TOUCH_MS = 4,  // how long one is for pages to be touched: the thread that does it runs when nothing else wants to
};

bool tap_wait_room(uint32_t seen, long ms) {
    struct tap_header * h = tap.header;
    tap_unlock();
    tap_wake_collector();
    struct timespec timeout = {.tv_sec = 0, .tv_nsec = ms * 1000 * 1000};
    const int program_errno = errno;
    const long rc = syscall(SYS_futex, &h->room, FUTEX_WAIT, seen, &timeout, NULL, 0);
    const bool in_vain = rc != 0 && errno != EAGAIN; // too long, or cut short by a signal, which could happen every time
    errno = program_errno;
    tap_lock();
    const uint32_t closed = atomic_load_explicit(&h->closed, memory_order_acquire);
    if (closed == TAP_COUNTS) {
        tap_set(&tap.counting, true);
    }
    if (closed == TAP_CLOSED || (in_vain && !tap_collector_lives())) {
        tap_set(&tap.recording, false);
    }
    return tap_get(&tap.recording);
}

bool tap_must_wait(enum tap_loss shortage, enum tap_loss * cause) {
    if (!tap_get(&tap.recording)) {
        *cause = TAP_LOSS_COLLECTOR_GONE;
        return false;
    }
    if (tap_get(&tap.counting)) {
        *cause = TAP_LOSS_STOPPED;
        return false;
    }
    *cause = shortage;
    return tap.header->config.overflow == TAP_OVERFLOW_BLOCK;
}

// ---- pool -----------------------------------------------------------------------------------------------------------

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
    uint64_t tail = atomic_load_explicit(&h->ring_tail, memory_order_relaxed);
    const uint64_t head = atomic_load_explicit(&h->ring_head, memory_order_acquire);
    const uint64_t * ring = (const uint64_t *) (tap.base + h->ring_offset);
    for (; tail != head; tail++) {
        const uint64_t entry = ring[tail & (h->ring_entries - 1)];
        const uint64_t first = entry >> 32, n = entry & 0xffffffffu;
        if (n <= h->n_slots && first <= h->n_slots - n) {
            tap_pool_clear(first, n);
        }
    }
    atomic_store_explicit(&h->ring_tail, tail, memory_order_release);
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

// tap_made_room lets threads of the model that wait for slots look again. Threads that wait for the queue are not
// woken: pages that were touched give them nothing, and hundreds are touched while a model waits for its first
// graph to be judged.
static void tap_made_room(void) {
    struct tap_header * h = tap.header;
    if (atomic_load_explicit(&tap.pool_waiting, memory_order_seq_cst) != 0) {
        atomic_fetch_add_explicit(&h->room, 1, memory_order_seq_cst);
        syscall(SYS_futex, &h->room, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void tap_pool_ready(uint64_t n_slots) {
    uint64_t before = atomic_load_explicit(&tap.n_ready, memory_order_relaxed);
    while ((n_slots == 0 || before < n_slots) &&
           !atomic_compare_exchange_weak_explicit(&tap.n_ready, &before, n_slots, memory_order_seq_cst, memory_order_relaxed)) {
    }
    tap_made_room();
}

// tap_pool_grow gives out slots whose pages were not touched, n of them and some more: the machine is so busy that
// neither the touching nor the collector get on, and a page fault is then the smaller evil.
static void tap_pool_grow(uint64_t size, uint64_t n) {
    const struct tap_header * h = tap.header;
    const uint64_t step = (1u << 20) / h->slot_bytes;
    uint64_t more = size + (n > step ? n : step);
    more += (64 - more % 64) % 64; // whole words of the bit map
    tap_pool_ready(more < h->n_slots ? more : h->n_slots);
}

// tap_pool_size is how many slots may be in use: those whose pages were touched, for a model that waits lets the
// touching go on and the collector work, and a fault in a data phase does neither. What may not wait has all slots.
static uint64_t tap_pool_size(void) {
    return tap.header->config.overflow == TAP_OVERFLOW_BLOCK ? atomic_load_explicit(&tap.n_ready, memory_order_seq_cst)
                                                              : tap.header->n_slots;
}

// tap_wake_due tells whether the collector, should it sleep, has something to read that it was not woken for just
// now. A pool that stays full since the disk is slow would else wake it for every tensor, and it takes the core
// from a thread of the model each time. The caller holds the lock.
static bool tap_wake_due(void) {
    struct tap_header * h = tap.header;
    if (atomic_load_explicit(&h->queue_tail, memory_order_relaxed) == atomic_load_explicit(&h->queue_head, memory_order_relaxed)) {
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
        const uint32_t seen = atomic_load_explicit(&h->room, memory_order_acquire);
        const uint64_t returned = atomic_load_explicit(&h->returned, memory_order_acquire);
        tap_pool_take_back();
        first = tap_get(&tap.recording) && (*since == 0 || grown || tap.n_used <= enough) ? tap_pool_scan(n, size) : -1;
        if (first >= 0 || !tap_must_wait(TAP_LOSS_POOL_FULL, cause)) {
            break;
        }
        const uint64_t more = tap.n_used > enough ? tap.n_used - enough : 1;
        atomic_store_explicit(&h->wake_returned, returned + more, memory_order_seq_cst);
        if (*since == 0) {
            *since = tap_now();
        }
        // Between raising the count and sleeping, a return of slots changes room and makes the futex wait come back
        // at once.
        atomic_fetch_add_explicit(&tap.pool_waiting, 1, memory_order_seq_cst);
        atomic_fetch_add_explicit(&h->waiting, 1, memory_order_seq_cst);
        if (atomic_load_explicit(&h->ring_head, memory_order_seq_cst) == atomic_load_explicit(&h->ring_tail, memory_order_relaxed) &&
            tap_pool_size() == size) {
            tap_wait_room(seen, size < h->n_slots ? TAP_TOUCH_MS : TAP_LOOK_MS);
        }
        atomic_fetch_sub_explicit(&h->waiting, 1, memory_order_seq_cst);
        atomic_fetch_sub_explicit(&tap.pool_waiting, 1, memory_order_seq_cst);
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
    tap_unlock();
    tap_made_room();
}
