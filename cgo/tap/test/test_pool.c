// test_pool.c: slot pool and queue against simple models and with several threads, and regions that are none.
#define _GNU_SOURCE
#include "traffic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void no_losses(const struct tap_header * h) {
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(h->stats.loss[i].packets == 0 && h->stats.loss[i].bytes == 0, "loss of cause %d: %lu packets, %lu bytes",
              i,
              (unsigned long) h->stats.loss[i].packets, (unsigned long) h->stats.loss[i].bytes);
    }
}

// ---- the pool against a model ---------------------------------------------------------------------------------------

// The model: one byte per slot, and the runs that are out.
struct pool_model {
    uint64_t n;
    uint8_t * used;
    struct { uint64_t first, n; } out[4096];
    int      n_out;
    struct { uint64_t first, n; } back[4096]; // given back, and not yet taken back by the tap
    int      n_back;
    uint64_t reserved;
    uint64_t n_used;
    bool     starved; // it was full: nothing until a sixteenth is free
};

static int64_t model_scan(const struct pool_model * m, uint64_t n) {
    uint64_t run = 0;
    for (uint64_t i = 0; i < m->n; i++) {
        run = m->used[i] ? 0 : run + 1;
        if (run == n) {
            return (int64_t) (i + 1 - n);
        }
    }
    return -1;
}

static void model_set(struct pool_model * m, uint64_t first, uint64_t n, uint8_t value) {
    memset(m->used + first, value, n);
    m->n_used = value ? m->n_used + n : m->n_used - n;
}

static void model_take_back(struct pool_model * m) {
    while (m->n_back > 0) {
        m->n_back--;
        model_set(m, m->back[m->n_back].first, m->back[m->n_back].n, 0);
    }
}

// model_reserve is what the tap must answer: it takes back now and then, and when nothing fits.
static int64_t model_reserve(struct pool_model * m, uint64_t n) {
    if (++m->reserved % TAP_TAKE_BACK_EVERY == 0) {
        model_take_back(m);
    }
    if (m->starved && m->n_used > m->n - m->n / 16) {
        return -1;
    }
    int64_t first = model_scan(m, n);
    if (first < 0) {
        model_take_back(m);
        first = model_scan(m, n);
    }
    m->starved = first < 0;
    return first;
}

static void pool_step(struct shm * s, struct pool_model * m, uint64_t * rng) {
    const uint64_t dice = rng_below(rng, 100);
    if (m->n_out > 0 && (dice < 48 || m->n_out == 4096)) {
        const int at = (int) rng_below(rng, (uint64_t) m->n_out);
        const uint64_t first = m->out[at].first, n = m->out[at].n;
        m->out[at] = m->out[--m->n_out];
        if (dice < 8 || m->n_back == 4096) {
            model_set(m, first, n, 0);
            tap_pool_cancel(first, n);
        } else {
            m->back[m->n_back].first = first;
            m->back[m->n_back++].n = n;
            shm_give_back(s, first, n);
        }
        return;
    }
    const uint64_t most = m->n / 4 > 0 ? m->n / 4 : 1;
    const uint64_t n = dice < 60 ? 1 + rng_below(rng, most) : 1 + rng_below(rng, most < 4 ? most : 4);
    uint64_t waited = 0;
    enum tap_loss cause = TAP_LOSS_STRIDES;
    const int64_t want = model_reserve(m, n), got = tap_pool_reserve(n, &waited, &cause);
    CHECK(got == want, "reserving %lu of %lu: slot %ld, not %ld", (unsigned long) n, (unsigned long) m->n, (long) got,
          (long) want);
    CHECK(got >= 0 || cause == TAP_LOSS_POOL_FULL, "cause %d", cause);
    CHECK(waited == 0, "waited under policy drop");
    if (got >= 0) {
        model_set(m, (uint64_t) got, n, 1);
        m->out[m->n_out].first = (uint64_t) got;
        m->out[m->n_out++].n = n;
    }
}

static void test_pool_model(uint64_t slots, uint64_t steps, uint64_t seed) {
    test_case("pool: %lu slots, %lu random steps against a model", (unsigned long) slots, (unsigned long) steps);
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = slots, .slot_bytes = 512, .queue_bytes = 65536,
        .overflow = TAP_OVERFLOW_DROP});
    s.h->ring_head = s.h->ring_tail = UINT64_MAX - steps / 7; // the counters overflow on the way
    tap_join(&s);
    struct pool_model * m = calloc(1, sizeof(*m));
    MUST(m != NULL);
    m->n = slots;
    m->used = calloc(slots, 1);
    for (uint64_t i = 0; i < steps; i++) {
        pool_step(&s, m, &seed);
    }
    model_take_back(m);
    tap.reserved = TAP_TAKE_BACK_EVERY - 1; // so that the next reservation takes back
    uint64_t used = 0;
    for (uint64_t i = 0; i < slots; i++) {
        used += m->used[i];
    }
    uint64_t waited = 0;
    enum tap_loss cause;
    const int64_t probe = tap_pool_reserve(1, &waited, &cause); // takes back what was returned
    CHECK(tap.n_used == used + (probe >= 0), "%lu slots in use, not %lu", (unsigned long) tap.n_used,
          (unsigned long) used);
    no_losses(s.h);
    tap_leave();
    free(m->used);
    free(m);
    shm_free(&s);
    test_end();
}

// touch_slowly is a helper thread that is slower than the model.
static void * touch_slowly(void * slots) {
    for (uint64_t n = 64; n <= *(uint64_t *) slots; n += 64) {
        usleep(n <= 64 * 10 ? 500 : 20000); // from there on slower than a model waits
        tap_pool_ready(n);
    }
    return NULL;
}

// Under the policy block, only slots whose pages were touched are handed out, and a model that waits for them is
// woken; under the policy drop all are.
static void test_pool_ready(uint32_t overflow) {
    enum { RUN = 24 };
    uint64_t slots = 64 * 20, out = 0;
    test_case("pool: slots whose pages are touched, policy %s", overflow == TAP_OVERFLOW_BLOCK ? "block" : "drop");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = slots, .slot_bytes = 512, .queue_bytes = 65536, .overflow = overflow});
    tap_join(&s);
    tap_pool_limit(0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, touch_slowly, &slots) == 0);
    uint64_t waited = 0;
    for (; out + RUN <= slots / 4 * 3; out += RUN) { // one that has waited wants a quarter of the pool to be free
        enum tap_loss cause;
        const int64_t first = tap_pool_reserve(RUN, &waited, &cause);
        CHECK(first == (int64_t) out, "slot %ld, not %lu", (long) first, (unsigned long) out);
        CHECK(overflow == TAP_OVERFLOW_DROP || out + RUN <= tap.n_ready, "slot %lu of %lu", (unsigned long) out,
              (unsigned long) tap.n_ready);
    }
    MUST(pthread_join(thread, NULL) == 0);
    CHECK((waited > 0) == (overflow == TAP_OVERFLOW_BLOCK), "waited %lu ns", (unsigned long) waited);
    no_losses(s.h);
    tap_leave();
    shm_free(&s);
    test_end();
}

// ---- the queue against a model --------------------------------------------------------------------------------------

enum { QUEUE = 65536 };

static uint8_t queue_byte(uint64_t number, uint64_t at) { return (uint8_t) (number * 131 + at * 7 + (at >> 8)); }

// put_numbered writes a record of its number, its payload size and so many bytes, in up to three parts.
static bool put_numbered(uint64_t number, uint32_t payload, uint64_t * rng) {
    struct { struct tap_record h; uint64_t number; uint64_t payload; } rec = {
        .h.type = TAP_REC_CALL, .number = number, .payload = payload,
    };
    uint8_t bytes[QUEUE];
    for (uint32_t i = 0; i < payload; i++) {
        bytes[i] = queue_byte(number, i);
    }
    const uint32_t a = (uint32_t) rng_below(rng, payload + 1u), b = a + (uint32_t) rng_below(rng, payload - a + 1u);
    const struct tap_part parts[3] = {{bytes, a}, {bytes + a, b - a}, {bytes + b, payload - b}};
    return tap_queue_put(&rec.h, sizeof(rec), parts, 3);
}

static void check_numbered(const struct tap_record * r, uint64_t number) {
    uint64_t head[2];
    memcpy(head, r + 1, sizeof(head));
    CHECK(head[0] == number, "record %lu where %lu was due", (unsigned long) head[0], (unsigned long) number);
    CHECK(r->bytes == ((24 + head[1] + 7) & ~7ull), "a record of %u bytes for a payload of %lu", r->bytes,
          (unsigned long) head[1]);
    const uint8_t * payload = (const uint8_t *) (r + 1) + 16;
    for (uint64_t i = 0; i < head[1]; i++) {
        if (payload[i] != queue_byte(head[0], i)) {
            CHECK(false, "byte %lu of record %lu", (unsigned long) i, (unsigned long) head[0]);
            return;
        }
    }
}

static void test_queue_model(uint64_t steps, uint64_t seed) {
    test_case("queue: %lu random records against a model, policy drop, exact losses", (unsigned long) steps);
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = 64, .queue_bytes = QUEUE, .overflow = TAP_OVERFLOW_DROP});
    s.h->queue_head = s.h->queue_tail = UINT64_MAX - 1000 * 4096 + 1; // the counters overflow on the way
    tap_join(&s);
    const struct tap_record * hello = shm_next(&s);
    MUST(hello != NULL && hello->type == TAP_REC_HELLO);
    shm_read(&s, hello);
    uint64_t * kept = calloc(steps, sizeof(*kept)); // numbers in the queue
    uint64_t first = 0, last = 0, lost_bytes = 0, lost = 0;
    MUST(kept != NULL);
    for (uint64_t i = 0; i < steps; i++) {
        if (rng_below(&seed, 100) < 55) {
            const uint32_t payload = (uint32_t) rng_below(&seed, rng_below(&seed, 10) == 0 ? QUEUE / 4 + 64 : 600);
            const uint64_t bytes = (24 + payload + 7) & ~7ull, at = s.h->queue_head & (QUEUE - 1);
            const uint64_t pad = QUEUE - at < bytes ? QUEUE - at
                : 0, room = QUEUE - (s.h->queue_head - s.h->queue_tail);
            const bool fits = bytes <= QUEUE / 4 && bytes + pad <= room;
            CHECK(put_numbered(i, payload, &seed) == fits, "record %lu of %lu bytes, room for %lu", (unsigned long) i,
                  (unsigned long) bytes, (unsigned long) room);
            if (fits) {
                kept[last++] = i;
            } else {
                lost_bytes += bytes;
                lost++;
            }
        } else {
            for (uint64_t k = rng_below(&seed, 6); k > 0; k--) {
                const struct tap_record * r = shm_next(&s);
                CHECK((r != NULL) == (first < last), "the queue is %s", r == NULL ? "empty" : "not empty");
                if (r != NULL) {
                    check_numbered(r, kept[first++]);
                    shm_read(&s, r);
                }
            }
        }
    }
    CHECK(lost > 0 && last > 1000, "the test lost %lu of %lu records: it does not test", (unsigned long) lost,
          (unsigned long) last);
    CHECK(s.h->stats.loss[TAP_LOSS_QUEUE_FULL].bytes == lost_bytes, "%lu bytes lost, not %lu",
          (unsigned long) s.h->stats.loss[TAP_LOSS_QUEUE_FULL].bytes, (unsigned long) lost_bytes);
    CHECK(s.h->stats.waits == 0, "waited under policy drop");
    free(kept);
    tap_leave();
    shm_free(&s);
    test_end();
}

// ---- producers and a consumer ---------------------------------------------------------------------------------------

static void test_threads(int producers, uint64_t slots, uint64_t count, uint32_t overflow) {
    test_case("threads: %d producers, %lu slots, policy %s", producers, (unsigned long) slots,
              overflow == TAP_OVERFLOW_BLOCK ? "block" : "drop");
    struct shm s;
    shm_make(&s, &(struct shm_options) {.slots = slots, .slot_bytes = 128, .queue_bytes = 65536, .overflow = overflow});
    tap_join(&s);
    struct producer p[4];
    struct consumer c = {.s = &s, .seed = 5, .keep = slots / 16, .gaps = overflow == TAP_OVERFLOW_DROP};
    for (int i = 0; i < producers; i++) {
        p[i] = (struct producer) {.s = &s, .name = (uint64_t) i, .seed = (uint64_t) i + 1, .count = count};
        MUST(pthread_create(&p[i].thread, NULL, producer_main, &p[i]) == 0);
    }
    uint64_t want = 0, published = 0, refused = 0;
    for (bool done = false; !done;) {
        if (consumer_drain(&c) == 0) {
            consumer_idle(&c);
        }
        if (overflow == TAP_OVERFLOW_BLOCK) {
            done = c.taken == count * (uint64_t) producers;
        } else if (rng_below(&c.seed, 50) == 0) { // under policy drop producers never wait for us
            break;
        }
    }
    for (int i = 0; i < producers; i++) {
        pthread_join(p[i].thread, NULL);
        published += p[i].published;
        refused += p[i].refused;
        want += count;
    }
    consumer_drain(&c);
    CHECK(c.taken == published && published + refused == want, "%lu taken, %lu published, %lu refused of %lu",
          (unsigned long) c.taken,
          (unsigned long) published, (unsigned long) refused, (unsigned long) want);
    if (overflow == TAP_OVERFLOW_BLOCK) {
        no_losses(s.h);
        CHECK(refused == 0, "%lu refused", (unsigned long) refused);
        CHECK(s.h->stats.waits > 0 && s.h->stats.wait_ns > 0, "nobody ever waited: the test does not test");
    }
    CHECK(s.h->waiting == 0, "%u threads are said to wait", s.h->waiting);
    tap_leave();
    shm_free(&s);
    test_end();
}

// ---- regions that are none ------------------------------------------------------------------------------------------

static void spoil(struct tap_header * h, int how) {
    switch (how) {
        case 0:  h->magic++; break;
        case 1:  h->version++; break;
        case 2:  h->header_bytes -= 8; break;
        case 3:  h->total_bytes += 4096; break;
        case 4:  h->queue_bytes -= 8; break;
        case 5:  h->queue_bytes = 0; break;
        case 6:  h->queue_offset = h->total_bytes - 64; break;
        case 7:  h->queue_offset = UINT64_MAX - 64; break; // the sum overflows
        case 8:  h->ring_entries = 1ull << 61; break;      // the product overflows
        case 9:  h->ring_entries = h->n_slots / 2; break;
        case 10: h->ring_offset += 4; break;
        case 11: h->slots_offset = UINT64_MAX - 4095; break;
        case 12: h->n_slots = UINT64_MAX / h->slot_bytes + 2; break;
        case 13: h->slot_bytes = 0; break;
        case 14: h->n_slots = 0; break;
        case 15: h->queue_offset = 0; break; // over the header
        case 16: h->slot_bytes = 64; h->n_slots = 16; break; // no block of a quantised type fits a quarter
        default: break;
    }
}

static void test_regions(void) {
    test_case("join: regions that are none");
    for (int how = 0; how <= 17; how++) {
        struct shm s;
        shm_make(&s, &(struct shm_options) {.slots = 64});
        spoil(s.h, how);
        fake_real();
        const int err = tap_attach(s.fd, -1);
        CHECK(err == (how == 17 ? 0 : EINVAL), "spoilt in way %d: %s", how, strerror(err));
        CHECK(how == 17 || tap.header == NULL, "way %d: joined", how);
        CHECK(how != 17 || tap_attach(s.fd, -1) == EALREADY, "joined twice");
        if (err == 0) {
            tap_leave();
        }
        shm_free(&s);
    }
    int fd = memfd_create("short", 0);
    MUST(fd >= 0 && ftruncate(fd, 100) == 0);
    CHECK(tap_attach(fd, -1) == EINVAL, "a file of 100 bytes was joined");
    close(fd);
    CHECK(tap_attach(-1, -1) == EBADF, "no file was joined");
    test_end();
}

int main(int argc, char ** argv) {
    (void) argv;
    if (argc > 1) { // the part for the thread sanitizer
        test_threads(3, 64, 3000, TAP_OVERFLOW_BLOCK);
        test_pool_ready(TAP_OVERFLOW_BLOCK);
        test_threads(3, 64, 3000, TAP_OVERFLOW_DROP);
        return test_done();
    }
    static const uint64_t sizes[] = {4, 8, 63, 64, 65, 128, 129, 200};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        test_pool_model(sizes[i], 250000, 7 + i);
    }
    test_pool_model(1000, 100000, 99);
    test_pool_ready(TAP_OVERFLOW_BLOCK);
    test_pool_ready(TAP_OVERFLOW_DROP);
    test_queue_model(300000, 1);
    test_threads(1, 16, 20000, TAP_OVERFLOW_BLOCK);
    test_threads(4, 64, 10000, TAP_OVERFLOW_BLOCK);
    test_threads(4, 64, 10000, TAP_OVERFLOW_DROP);
    test_regions();
    return test_done();
}
