//go:build llama

// tap_seq.c: the functions of llama.h by which a program changes its sequences: cells removed, copied, moved,
// restored, and a sampler set. The collector learns from them where one request of a sequence ends and the next
// begins.
#define _GNU_SOURCE
#include "tap_context.h"
#include "tap_init.h"
#include "tap_queue.h"
#include "tap_real.h"
#include "tap_served.h"
#include "tap_steer.h"

struct tap_seq_change {
    llama_memory_t     memory;
    struct tap_rec_seq rec;
};

// tap_seq_send reports a change of c. A context that has computed nothing has no sequences yet, but those of a state.
static void tap_seq_send(struct tap_context * c, struct tap_rec_seq * rec) {
    if (tap_get(&c->number) != UINT32_MAX) {
        rec->h.type = TAP_REC_SEQ;
        rec->ctx = tap_get(&c->number);
        tap_queue_put(&rec->h, sizeof(*rec), NULL, 0);
    }
}

static void tap_seq_of_memory(struct tap_context * c, void * user_data) {
    struct tap_seq_change * change = user_data;
    if (tap_get(&c->memory) == change->memory) {
        tap_seq_send(c, &change->rec);
    }
}

// tap_seq_moved reports work on a memory, once per context that has it.
static void tap_seq_moved(llama_memory_t memory, struct tap_rec_seq rec) {
    if (memory == NULL || !tap_on()) {
        return;
    }
    const struct tap_thread before = tap_thread;
    struct tap_seq_change change = {memory, rec};
    change.rec.mono_ns = (uint64_t) tap_now();
    tap_contexts_each(tap_seq_of_memory, &change);
    tap_add(&tap.header->stats.api_ns, tap_own_since((int64_t) change.rec.mono_ns, &before));
}

// tap_seq_set reports something that a context was given.
static void tap_seq_set(struct llama_context * ctx, struct tap_rec_seq rec) {
    struct tap_context * c = ctx != NULL && tap_on() ? tap_context_of(ctx) : NULL;
    if (c == NULL) {
        return;
    }
    const struct tap_thread before = tap_thread;
    rec.mono_ns = (uint64_t) tap_now();
    if (rec.kind == TAP_SEQ_RESTORE) {
        tap_context_number(c); // a program may load a state before it computes anything
    }
    tap_seq_send(c, &rec);
    tap_add(&tap.header->stats.api_ns, tap_own_since((int64_t) rec.mono_ns, &before));
}

void tap_seq_cleared(llama_memory_t memory) {
    tap_seq_moved(memory, (struct tap_rec_seq) {.kind = TAP_SEQ_REMOVE, .seq = -1, .first = 0, .end = -1});
}

bool llama_memory_seq_rm(llama_memory_t memory, llama_seq_id seq, llama_pos p0, llama_pos p1) {
    const bool ok = TAP_REAL(llama_memory_seq_rm)(memory, seq, p0, p1);
    if (ok) {
        tap_steer_removed(memory, seq, p0, p1);
        tap_seq_moved(memory, (struct tap_rec_seq) {.kind = TAP_SEQ_REMOVE, .seq = seq, .first = p0, .end = p1});
    }
    return ok;
}

void llama_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos p0, llama_pos p1) {
    TAP_REAL(llama_memory_seq_cp)(memory, from, to, p0, p1);
    tap_steer_copied(memory, from, to);
    tap_seq_moved(memory, (struct tap_rec_seq) {.kind = TAP_SEQ_COPY, .seq = from, .to = to, .first = p0, .end = p1});
}

void llama_memory_seq_keep(llama_memory_t memory, llama_seq_id seq) {
    TAP_REAL(llama_memory_seq_keep)(memory, seq);
    tap_steer_kept(memory, seq);
    tap_seq_moved(memory, (struct tap_rec_seq) {.kind = TAP_SEQ_KEEP, .seq = seq, .end = -1});
}

void llama_memory_seq_add(llama_memory_t memory, llama_seq_id seq, llama_pos p0, llama_pos p1, llama_pos delta) {
    TAP_REAL(llama_memory_seq_add)(memory, seq, p0, p1, delta);
    tap_seq_moved(memory, (struct tap_rec_seq) {.kind = TAP_SEQ_ADD, .seq = seq, .first = p0, .end = p1,
        .value = delta});
}

void llama_memory_seq_div(llama_memory_t memory, llama_seq_id seq, llama_pos p0, llama_pos p1, int d) {
    TAP_REAL(llama_memory_seq_div)(memory, seq, p0, p1, d);
    tap_seq_moved(memory, (struct tap_rec_seq) {.kind = TAP_SEQ_DIVIDE, .seq = seq, .first = p0, .end = p1,
        .value = d});
}

bool llama_set_sampler(struct llama_context * ctx, llama_seq_id seq, struct llama_sampler * sampler) {
    const bool ok = TAP_REAL(llama_set_sampler)(ctx, seq, sampler);
    tap_seq_set(ctx, (struct tap_rec_seq) {.kind = TAP_SEQ_SAMPLER, .seq = seq, .end = -1, .value = sampler != NULL});
    return ok;
}

size_t llama_state_seq_set_data_ext(struct llama_context * ctx, const uint8_t * data, size_t size, llama_seq_id seq,
                                    llama_state_seq_flags flags) {
    if (flags == LLAMA_STATE_SEQ_FLAGS_NONE && !tap_steer_admits(ctx, seq, data, size)) {
        return 0; // the program computes it again
    }
    const size_t n = TAP_REAL(llama_state_seq_set_data_ext)(ctx, data, size, seq, flags);
    if (flags == LLAMA_STATE_SEQ_FLAGS_NONE && n > 0) {
        tap_steer_restored(ctx, seq);
    }
    tap_seq_set(ctx, (struct tap_rec_seq) {.kind = TAP_SEQ_RESTORE, .seq = seq, .end = -1, .value = (int32_t) flags});
    if (flags == LLAMA_STATE_SEQ_FLAGS_NONE && n > 0) {
        tap_served_state(TAP_SERVED_RESTORED, ctx, seq, data, n);
    }
    return n;
}

size_t llama_state_seq_load_file(struct llama_context * ctx, const char * path, llama_seq_id seq, llama_token * tokens,
                                 size_t capacity, size_t * n_tokens) {
    if (tokens != NULL && !tap_steer_admits_file(ctx, seq, path)) { // else nothing is loaded
        return 0;
    }
    const size_t n = TAP_REAL(llama_state_seq_load_file)(ctx, path, seq, tokens, capacity, n_tokens);
    if (tokens != NULL && n > 0) {
        tap_steer_restored(ctx, seq);
    }
    tap_seq_set(ctx, (struct tap_rec_seq) {.kind = TAP_SEQ_RESTORE, .seq = seq, .end = -1});
    return n;
}

size_t llama_state_seq_get_data_ext(struct llama_context * ctx, uint8_t * data, size_t size, llama_seq_id seq,
                                    llama_state_seq_flags flags) {
    const size_t n = TAP_REAL(llama_state_seq_get_data_ext)(ctx, data, size, seq, flags);
    if (flags == LLAMA_STATE_SEQ_FLAGS_NONE && n > 0) {
        tap_steer_saved(ctx, seq, data, n);
        tap_served_state(TAP_SERVED_SAVED, ctx, seq, data, n);
    }
    return n;
}

size_t llama_state_seq_save_file(struct llama_context * ctx, const char * path, llama_seq_id seq,
                                 const llama_token * tokens, size_t n_tokens) {
    const size_t n = TAP_REAL(llama_state_seq_save_file)(ctx, path, seq, tokens, n_tokens);
    if (n > 0) {
        tap_steer_saved_file(ctx, seq, path);
    }
    return n;
}

size_t llama_state_set_data(struct llama_context * ctx, const uint8_t * data, size_t size) {
    if (!tap_steer_admits_all(ctx)) {
        return 0;
    }
    const size_t n = TAP_REAL(llama_state_set_data)(ctx, data, size);
    tap_seq_set(ctx, (struct tap_rec_seq) {.kind = TAP_SEQ_RESTORE, .seq = -1, .end = -1});
    return n;
}

bool llama_state_load_file(struct llama_context * ctx, const char * path, llama_token * tokens, size_t capacity,
                           size_t * n_tokens) {
    if (!tap_steer_admits_all(ctx)) {
        return false;
    }
    const bool ok = TAP_REAL(llama_state_load_file)(ctx, path, tokens, capacity, n_tokens);
    if (ok) {
        tap_seq_set(ctx, (struct tap_rec_seq) {.kind = TAP_SEQ_RESTORE, .seq = -1, .end = -1});
    }
    return ok;
}
