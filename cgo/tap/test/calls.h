// calls.h: a context with a scheduler and a graph of four tokens, and calls of llama.h on it.
#ifndef LLAMATAP_TEST_CALLS_H
#define LLAMATAP_TEST_CALLS_H

#include "expect.h"

#include <stdlib.h>

static const int32_t tokens[8] = {1, 5, 9, 2, 6, 5, 3, 5};
static const int32_t positions[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int32_t outs[1] = {3};

// A context with a scheduler and a graph of four tokens, under the tap.
struct bed {
    struct shm             shm;
    struct log             log;
    struct graph           graph;
    struct llama_context * ctx;
};

static inline struct llama_context * context_new(struct graph * g) {
    struct llama_context * ctx = calloc(1, sizeof(*ctx));
    MUST(ctx != NULL);
    ctx->sched = sched_new();
    ctx->graph = g;
    ctx->fresh = true;
    return ctx;
}

static inline void bed_make(struct bed * b) {
    shm_make(&b->shm, &(struct shm_options) {0});
    log_init(&b->log, &b->shm);
    fake_real();
    model_graph(&b->graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    snprintf(b->shm.h->config.start.globs[0], TAP_GLOB_SIZE, "l_out");
    b->shm.h->config.start.n_globs = 1;
    tap_join(&b->shm);
    b->ctx = context_new(&b->graph);
}

static inline void context_end(struct llama_context * ctx) {
    struct ggml_backend_sched * sched = ctx->sched;
    llama_free(ctx);
    ggml_backend_sched_free(sched);
}

static inline void bed_end(struct bed * b) {
    if (b->ctx != NULL) {
        context_end(b->ctx);
    }
    log_drain(&b->log);
    CHECK(b->log.damage == NULL, "%s", b->log.damage);
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(b->shm.h->stats.loss[i].packets == 0 && b->shm.h->stats.loss[i].bytes == 0, "loss of cause %d", i);
    }
    tap_leave();
    log_clear(&b->log);
    graph_free(&b->graph);
    shm_free(&b->shm);
    test_end();
}

// decode runs a batch of n tokens that differ by first; NULL positions and sequences are llama.cpp's to choose.
static inline int32_t decode(struct llama_context * ctx, int32_t first, int32_t n) {
    int32_t ids[64];
    for (int32_t i = 0; i < n; i++) {
        ids[i] = first + i;
    }
    graph_inputs(ctx->graph);
    return llama_decode(ctx, (struct llama_batch) {.n_tokens = n, .token = ids});
}

static inline const struct tap_rec_call * call_at(const struct bed * b, size_t nth) {
    const struct event * e = log_find(&b->log, TAP_REC_CALL, nth);
    MUST(e != NULL);
    return (const struct tap_rec_call *) e->record;
}

static inline const struct tap_rec_exec * exec_at(const struct bed * b, size_t nth) {
    const struct event * e = log_find(&b->log, TAP_REC_EXEC, nth);
    MUST(e != NULL);
    return (const struct tap_rec_exec *) e->record;
}

#endif
