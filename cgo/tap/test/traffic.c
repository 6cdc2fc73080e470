// traffic.c: producers that publish captures through pool and queue, and a consumer that checks them.
#include "traffic.h"

static void fill(uint8_t * at, uint64_t bytes, uint64_t key) {
    for (uint64_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t) ((key + i) * 0x9e3779b97f4a7c15ull >> 56);
    }
}

static bool filled(const uint8_t * at, uint64_t bytes, uint64_t key) {
    for (uint64_t i = 0; i < bytes; i++) {
        if (at[i] != (uint8_t) ((key + i) * 0x9e3779b97f4a7c15ull >> 56)) {
            return false;
        }
    }
    return true;
}

static uint64_t capture_key(uint64_t name, uint64_t number) { return name << 32 ^ number * 977; }

bool produce(struct producer * p, uint64_t number) {
    const uint64_t slot_bytes = tap.header->slot_bytes, most = tap.header->n_slots / 4;
    const uint64_t n = 1 + rng_below(&p->seed, rng_below(&p->seed, 5) == 0 ? most : most < 3 ? most : 3);
    const uint64_t bytes = (n - 1) * slot_bytes + 1 + rng_below(&p->seed, slot_bytes);
    uint64_t waited = 0;
    enum tap_loss cause;
    const int64_t slot = tap_pool_reserve(n, &waited, &cause);
    if (slot < 0) {
        p->refused++;
        return false;
    }
    fill(tap_slot((uint64_t) slot), bytes, capture_key(p->name, number));
    struct tap_rec_capture rec = {.h.type = TAP_REC_CAPTURE, .exec = p->name, .graph = number, .slot = (uint32_t) slot,
        .n_slots = (uint32_t) n, .bytes = bytes};
    if (!tap_queue_put(&rec.h, sizeof(rec), NULL, 0)) {
        tap_pool_cancel((uint64_t) slot, n);
        p->refused++;
        return false;
    }
    p->published++;
    return true;
}

void * producer_main(void * arg) {
    struct producer * p = arg;
    for (uint64_t i = 0; p->count == 0 || i < p->count; i++) {
        produce(p, i);
    }
    return NULL;
}

static void consumer_give(struct consumer * c) {
    const int at = (int) rng_below(&c->seed, (uint64_t) c->n_held);
    shm_give_back(c->s, c->held[at].slot, c->held[at].n);
    c->held[at] = c->held[--c->n_held];
}

static void consumer_take(struct consumer * c, const struct tap_rec_capture * r) {
    const struct tap_header * h = c->s->h;
    CHECK(r->exec < 8 && r->slot + (uint64_t) r->n_slots <= h->n_slots && r->bytes <= r->n_slots * h->slot_bytes,
          "a capture outside of the pool");
    if (r->exec >= 8 || r->slot + (uint64_t) r->n_slots > h->n_slots) {
        return;
    }
    CHECK(c->gaps ? r->graph >= c->next[r->exec] : r->graph == c->next[r->exec], "producer %lu: capture %lu where %lu "
          "was due", (unsigned long) r->exec,
          (unsigned long) r->graph, (unsigned long) c->next[r->exec]);
    c->next[r->exec] = r->graph + 1;
    CHECK(filled(c->s->base + h->slots_offset + r->slot * h->slot_bytes, r->bytes, capture_key(r->exec, r->graph)),
          "producer %lu: bytes of capture %lu",
          (unsigned long) r->exec, (unsigned long) r->graph);
    c->taken++;
    c->held[c->n_held].slot = r->slot;
    c->held[c->n_held++].n = r->n_slots;
    while (c->n_held > (int) c->keep) {
        consumer_give(c);
    }
}

uint64_t consumer_drain(struct consumer * c) {
    uint64_t n = 0;
    for (struct tap_record * r; (r = shm_next(c->s)) != NULL; n++) {
        CHECK(r->bytes >= 8 && r->bytes % 8 == 0 && r->type <= TAP_REC_CONTEXT_END, "a record of %u bytes and type %u",
              r->bytes, r->type);
        if (r->bytes < 8) {
            return n;
        }
        if (r->type == TAP_REC_CAPTURE) {
            CHECK(r->bytes == sizeof(struct tap_rec_capture), "a capture record of %u bytes", r->bytes);
            consumer_take(c, (const struct tap_rec_capture *) r);
        }
        shm_read(c->s, r);
    }
    return n;
}

void consumer_idle(struct consumer * c) {
    while (c->n_held > 0) {
        consumer_give(c);
    }
    shm_sleep(c->s, 1000000);
}
