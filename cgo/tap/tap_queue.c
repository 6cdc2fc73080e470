//go:build llama

// tap_queue.c: the record queue.
//
// Hot path: one lock and a copy of some 100 bytes per record; no allocation, no system call except the futex wait
// on a full queue. Once a token the weights of a model have driven out of the caches what the tap runs and touches:
// fetched all at once it costs half of what it does one after the other.
#define _GNU_SOURCE
#include "tap_queue.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// ---- records --------------------------------------------------------------------------------------------------------

size_t tap_queue_largest(void) { return tap.queue_bytes / 4; }

// tap_queue_wait waits until bytes fit at head; what may be dropped waits under the policy block alone. The caller
// holds the lock.
static TAP_RARE bool tap_queue_wait(uint64_t bytes, bool droppable, enum tap_loss * cause) {
    struct tap_header * h = tap.header;
    int64_t since = 0;
    bool fits = false;
    while (!fits) {
        const uint32_t seen = tap_get(&h->room);
        const uint64_t head = tap_peek(&h->queue_head);
        const uint64_t tail = tap.queue_tail = tap_get(&h->queue_tail);
        fits = tap_get(&tap.recording) && tap.queue_bytes - (head - tail) >= bytes;
        const bool must = tap_get(&tap.recording) && h->config.exact && !droppable;
        if (fits || (!must && !tap_must_wait(TAP_LOSS_QUEUE_FULL, cause))) {
            break;
        }
        if (since == 0) {
            since = tap_now();
        }
        tap_wait_begin(0);
        if (tap_agree_get(&h->queue_tail) == tail) {
            tap_wait_room(seen, TAP_LOOK_MS);
        }
        tap_wait_end();
    }
    if (since != 0) {
        const uint64_t waited = (uint64_t) (tap_now() - since);
        tap_thread.waited_ns += waited;
        tap_add(&h->stats.wait_ns, waited);
        tap_add(&h->stats.waits, 1);
    }
    return fits;
}

// tap_queue_pad skips to the start of the ring, where a record does not fit before its end. It returns where it
// goes on.
static TAP_RARE uint64_t tap_queue_pad(uint64_t head, uint64_t bytes) {
    const struct tap_record skip = {.bytes = (uint32_t) bytes, .type = TAP_REC_PAD};
    memcpy(tap.queue + (head & (tap.queue_bytes - 1)), &skip, sizeof(skip));
    return head + bytes;
}

TAP_HOT void * tap_queue_open(size_t bytes, bool droppable, enum tap_loss * cause) {
    struct tap_header * h = tap.header;
    tap_lock();
    const uint64_t mask = tap.queue_bytes - 1;
    // What may be dropped leaves a quarter to what frames it, which then need not wait.
    const uint64_t keep = droppable && h->config.exact && h->config.overflow == TAP_OVERFLOW_DROP ? tap.queue_bytes / 4
        : 0;
    for (bool ok = bytes <= tap_queue_largest(); ok;) {
        const uint64_t head = tap_peek(&h->queue_head), left = tap.queue_bytes - (head & mask);
        const uint64_t pad = left < bytes ? left : 0;
        // as of the last look
        const bool fits = tap_get(&tap.recording) && tap.queue_bytes - (head - tap.queue_tail) >= bytes + pad + keep;
        ok = fits || tap_queue_wait(bytes + pad + keep, droppable, cause);
        // A wait gives the lock up: another thread may have written meanwhile, and then the place is found anew.
        if (ok && tap_peek(&h->queue_head) == head) {
            const uint64_t at = pad == 0 ? head : tap_queue_pad(head, pad);
            tap_poke(&tap.opened, at);
            return tap.queue + (at & mask);
        }
    }
    tap_unlock();
    return NULL;
}

TAP_RARE void tap_queue_settle(void) {
    struct tap_header * h = tap.header;
    int64_t since = 0;
    tap_lock();
    const uint64_t head = tap_peek(&h->queue_head);
    while (tap_get(&tap.recording)) {
        const uint32_t seen = tap_get(&h->room);
        if ((int64_t) (tap_get(&h->queue_tail) - head) >= 0) {
            break;
        }
        if (since == 0) {
            since = tap_now();
        }
        tap_wait_begin(0);
        if ((int64_t) (tap_agree_get(&h->queue_tail) - head) < 0) {
            tap_wait_room(seen, TAP_LOOK_MS);
        }
        tap_wait_end();
    }
    tap_unlock();
    if (since != 0) {
        const uint64_t waited = (uint64_t) (tap_now() - since);
        tap_thread.waited_ns += waited;
        tap_add(&h->stats.wait_ns, waited);
        tap_add(&h->stats.waits, 1);
    }
}

bool tap_queue_put(struct tap_record * record, size_t record_bytes, const struct tap_part * parts, int n_parts) {
    size_t bytes = record_bytes;
    for (int i = 0; i < n_parts; i++) {
        bytes += parts[i].bytes;
    }
    bytes = (bytes + 7) & ~(size_t) 7;
    record->bytes = (uint32_t) bytes;
    enum tap_loss cause = TAP_LOSS_QUEUE_FULL;
    const bool droppable = record->type == TAP_REC_CAPTURE &&
        ((const struct tap_rec_capture *) record)->purpose == TAP_FOR_STREAM;
    uint8_t * at = tap_queue_open(bytes, droppable, &cause);
    if (at == NULL) {
        if (record->type != TAP_REC_CAPTURE) { // a tensor is counted, with its own size, by who lost it
            tap_loss_add(cause, 0, bytes);
        }
        return false;
    }
    memcpy(at, record, record_bytes);
    at += record_bytes;
    for (int i = 0; i < n_parts; i++) {
        if (parts[i].bytes != 0) { // a maintenance graph has no tokens, and no memory for them
            memcpy(at, parts[i].data, parts[i].bytes);
        }
        at += parts[i].bytes;
    }
    tap_queue_shut(bytes);
    return true;
}

TAP_HOT bool tap_out_flush(struct tap_out * o) {
    if (o->n == 0) {
        return !o->lost;
    }
    enum tap_loss cause = TAP_LOSS_QUEUE_FULL;
    uint64_t * at = tap_queue_open(o->n, false, &cause);
    if (at != NULL) {
        tap_words(at, o->bytes, o->n);
        tap_queue_shut(o->n);
    } else {
        tap_loss_add(cause, 0, o->n);
        o->lost = true;
    }
    o->n = 0;
    return !o->lost;
}

TAP_HOT void * tap_out_room(struct tap_out * o, size_t n) {
    if (o->n + n > sizeof(o->bytes)) {
        tap_out_flush(o);
    }
    void * at = o->bytes + o->n;
    o->n += n;
    return at;
}
