//go:build llama

// tap_api.c: the functions of llama.h that the tap stands before: who asked for a graph, with which tokens of which
// sequences, and what distinguishes a run from the warm-up before it.
#define _GNU_SOURCE
#include "tap_aside.h"
#include "tap_buffer.h"
#include "tap_init.h"
#include "tap_pool.h"
#include "tap_queue.h"
#include "tap_real.h"
#include "tap_sched.h"
#include "tap_served.h"
#include "tap_steer.h"
#include "tap_turn.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t tap_next_call = 1;

// tap_soon gets ready while a model is loaded: what touches the pool's pages then need not do it while the model
// computes.
static void tap_soon(void) {
    if (tap_get(&tap.given)) {
        tap_aside_start();
    }
}

// TAP_BEFORE defines the function of llama.h that bears that name, with structures that are passed by value as bytes.
#define TAP_BEFORE(ret, name, params) \
    ret tap_before_##name params __asm__(#name); \
    ret tap_before_##name params

// ---- models and contexts --------------------------------------------------------------------------------------------

TAP_BEFORE(struct llama_model *, llama_model_load_from_file, (const char * path, struct tap_by_value params)) {
    tap_soon();
    struct llama_model * model = TAP_REAL(llama_model_load_from_file)(path, params);
    tap_model_note(model, path);
    return model;
}

TAP_BEFORE(struct llama_model *, llama_model_load_from_file_ptr, (FILE * file, struct tap_by_value params)) {
    tap_soon();
    struct llama_model * model = TAP_REAL(llama_model_load_from_file_ptr)(file, params);
    tap_model_note(model, "");
    return model;
}

TAP_BEFORE(struct llama_model *, llama_model_load_from_splits, (const char ** paths, size_t n_paths,
                                                                struct tap_by_value params)) {
    tap_soon();
    struct llama_model * model = TAP_REAL(llama_model_load_from_splits)(paths, n_paths, params);
    tap_model_note(model, n_paths > 0 ? paths[0] : "");
    return model;
}

enum { TAP_FLASH_UNKNOWN = -2 };

// tap_flash_asked reports how flash attention was asked for, and turns it off for exact attention maps.
static int32_t tap_flash_asked(struct tap_by_value * params) {
    const bool exact = tap.header->config.start.attention == TAP_ATTENTION_EXACT;
    if (tap.layouts & TAP_LAYOUT_PARAMS) {
        if (exact) {
            tap_say("--tap-attention exact cannot turn flash attention off: this llama.cpp's llama_context_params are "
                    "not those of the headers "
                    "that llamatap was built with; turn it off in the program, or make LLAMA_PREFIX=… for this "
                    "llama.cpp", "", "");
        }
        return TAP_FLASH_UNKNOWN;
    }
    struct llama_context_params p;
    memcpy(&p, params->bytes, sizeof(p));
    if (exact) {
        p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        memcpy(params->bytes, &p, sizeof(p));
    }
    return (int32_t) p.flash_attn_type;
}

TAP_BEFORE(struct llama_context *, llama_init_from_model, (struct llama_model * model, struct tap_by_value params)) {
    tap_enter();
    const int32_t asked = tap_on() ? tap_flash_asked(&params) : TAP_FLASH_UNKNOWN;
    struct llama_context * ctx = TAP_REAL(llama_init_from_model)(model, params);
    if (ctx != NULL && tap_on()) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            c->flash_attn = asked;
        }
    }
    return ctx;
}

void llama_free(struct llama_context * ctx) {
    if (tap_on() && ctx != NULL) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            tap_context_resolve(c, false);
        }
    }
    if (tap.header != NULL) {
        tap_steer_forget(ctx);
        tap_context_forget(ctx);
    }
    TAP_REAL(llama_free)(ctx);
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static void tap_call_send(struct tap_context * c, const struct tap_rows_list * l, uint64_t call, uint32_t kind) {
    enum { CHUNK = 4096, EXTRA = 2048 };
    int32_t x = 0;
    // on the stack, for what is thread-local is taken from the stack of every thread of the program
    int32_t extra[EXTRA];
    int32_t first = 0;
    do {
        struct tap_rec_call rec = {
            .h.type = TAP_REC_CALL, .call = call, .mono_ns = (uint64_t) tap_now(), .ctx = tap_get(&c->number),
            .kind = kind, .flags = tap_get(&c->flags),
            .n_total = (uint32_t) l->n, .first = (uint32_t) first,
        };
        while (first + (int32_t) rec.n_rows < l->n && rec.n_rows < CHUNK) {
            const int32_t row = first + (int32_t) rec.n_rows;
            const uint32_t more = l->rows[row].n_seq - 1u;
            if (rec.n_extra + more > EXTRA) {
                break;
            }
            for (uint32_t k = 0; k < more && x < l->n_extra; k++) {
                extra[rec.n_extra++] = l->extra[x++].seq;
            }
            rec.n_rows++;
        }
        const struct tap_part parts[2] = {
            {l->rows + first, rec.n_rows * sizeof(l->rows[0])}, {extra, rec.n_extra * sizeof(extra[0])},
        };
        tap_queue_put(&rec.h, sizeof(rec), parts, 2);
        first += (int32_t) rec.n_rows;
        if (rec.n_rows == 0) {
            break;
        }
    } while (first < l->n);
}

// tap_call_begin frames a call: everything that this thread computes until tap_call_end belongs to it.
static struct tap_call tap_call_begin(struct llama_context * ctx, struct tap_rows_list * l, uint32_t kind) {
    const struct tap_call before = tap_current_call;
    const struct tap_thread thread = tap_thread;
    const int64_t began = tap_now();
    struct tap_context * c = tap_context_of(ctx);
    tap_current_call = (struct tap_call) {0};
    tap_served_call();
    if (c == NULL) {
        return before; // more contexts than the table holds: the call goes unseen
    }
    if (tap_get(&c->memory) == NULL && tap_real.llama_get_memory != NULL) {
        tap_set(&c->memory, tap_real.llama_get_memory(ctx));
    }
    if (tap_get(&c->provisional) && l != NULL) {
        const uint64_t hash = tap_rows_hash(l);
        if (tap_get(&c->pending) && c->batch_hash != hash) {
            tap_context_resolve(c, false); // a second, different batch: this is the run
        }
        c->batch_hash = hash;
    }
    const uint64_t call = tap_count(&tap_next_call, 1);
    tap_current_call = (struct tap_call) {c, call, tap_get(&c->flags)};
    tap_context_number(c);
    if (l != NULL) {
        tap_call_send(c, l, call, kind);
    }
    tap_set(&c->flags, 0);
    tap_steer_call(c, l);
    tap_add(&tap.header->stats.calls, 1);
    tap_add(&tap.header->stats.api_ns, tap_own_since(began, &thread));
    return before;
}

// tap_call_steered frames a call of a program that is not recorded any more, and still steered.
static struct tap_call tap_call_steered(struct llama_context * ctx, struct tap_rows_list * l) {
    const struct tap_call before = tap_current_call;
    struct tap_context * c = tap_steer_on() ? tap_context_of(ctx) : NULL;
    tap_current_call = (struct tap_call) {.context = c};
    if (c != NULL) {
        tap_steer_call(c, l);
    }
    return before;
}

static void tap_call_end(struct tap_call before, int32_t status) {
    const struct tap_call call = tap_current_call;
    tap_current_call = before;
    if (call.context == NULL || tap.header == NULL) {
        return;
    }
    tap_last_context = tap_get(&call.context->number);
    const struct tap_thread thread = tap_thread;
    const int64_t ended = tap_now();
    struct tap_rec_call_end rec = {
        .h.type = TAP_REC_CALL_END, .call = call.number, .mono_ns = (uint64_t) ended, .status = status,
        .ctx = tap_get(&call.context->number),
    };
    if (status != 0) {
        tap_flag(&call.context->flags, call.flags); // the program gives its tokens again, such as in smaller batches
    }
    tap_queue_put(&rec.h, sizeof(rec), NULL, 0);
    tap_add(&tap.header->stats.api_ns, tap_own_since(ended, &thread));
}

TAP_BEFORE(int32_t, llama_decode, (struct llama_context * ctx, struct tap_by_value batch)) {
    int32_t n_tokens; // a llama_batch begins with it
    memcpy(&n_tokens, batch.bytes, sizeof(n_tokens));
    tap_turn(n_tokens);
    if (!tap_on()) {
        const struct tap_call outer = tap_call_steered(ctx, tap_steer_on() ? tap_rows_of_batch(ctx, &batch) : NULL);
        const int32_t done = TAP_REAL(llama_decode)(ctx, batch);
        tap_current_call = outer;
        return done;
    }
    const struct tap_call before = tap_call_begin(ctx, tap_rows_of_batch(ctx, &batch), TAP_CALL_DECODE);
    const int32_t status = TAP_REAL(llama_decode)(ctx, batch);
    tap_call_end(before, status);
    return status;
}

TAP_BEFORE(int32_t, llama_encode, (struct llama_context * ctx, struct tap_by_value batch)) {
    if (!tap_on()) {
        const struct tap_call outer = tap_call_steered(ctx, tap_steer_on() ? tap_rows_of_batch(ctx, &batch) : NULL);
        const int32_t done = TAP_REAL(llama_encode)(ctx, batch);
        tap_current_call = outer;
        return done;
    }
    const struct tap_call before = tap_call_begin(ctx, tap_rows_of_batch(ctx, &batch), TAP_CALL_ENCODE);
    const int32_t status = TAP_REAL(llama_encode)(ctx, batch);
    tap_call_end(before, status);
    return status;
}

int32_t llama_process(struct llama_context * ctx, enum llama_process_type type, struct llama_batch_ext * batch) {
    if (!tap_on()) {
        const struct tap_call outer = tap_call_steered(ctx, tap_steer_on() ? tap_batch_of(batch, false) : NULL);
        const int32_t done = TAP_REAL(llama_process)(ctx, type, batch);
        tap_current_call = outer;
        return done;
    }
    const uint32_t kind = type == LLAMA_PROCESS_TYPE_ENCODE ? TAP_CALL_ENCODE : TAP_CALL_PROCESS;
    const struct tap_call before = tap_call_begin(ctx, tap_batch_of(batch, false), kind);
    const int32_t status = TAP_REAL(llama_process)(ctx, type, batch);
    tap_call_end(before, status);
    return status;
}

// ---- what distinguishes a run from a warm-up -----------------------------------------------------------------

// tap_read notes that the program looked at what ctx computed.
static void tap_read(struct llama_context * ctx) {
    struct tap_context * c = tap_context_of(ctx);
    if (c != NULL) {
        tap_flag(&c->flags, TAP_CALL_READ_SINCE);
        if (tap_get(&c->provisional)) {
            tap_context_resolve(c, false);
        }
    }
}

float * llama_get_logits(struct llama_context * ctx) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return TAP_REAL(llama_get_logits)(ctx);
}

float * llama_get_logits_ith(struct llama_context * ctx, int32_t i) {
    tap_nested = (struct tap_nested) {0};
    if (tap_on()) {
        tap_read(ctx);
        tap_served_row(ctx, i);
    }
    return TAP_REAL(llama_get_logits_ith)(ctx, i);
}

float * llama_get_embeddings(struct llama_context * ctx) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return TAP_REAL(llama_get_embeddings)(ctx);
}

float * llama_get_embeddings_ith(struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
        tap_served_embedded(ctx, i, -1);
    }
    return TAP_REAL(llama_get_embeddings_ith)(ctx, i);
}

float * llama_get_embeddings_seq(struct llama_context * ctx, llama_seq_id seq) {
    if (tap_on()) {
        tap_read(ctx);
        tap_served_embedded(ctx, -1, seq);
    }
    return TAP_REAL(llama_get_embeddings_seq)(ctx, seq);
}

llama_token llama_get_sampled_token_ith(struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
    }
    const llama_token token = TAP_REAL(llama_get_sampled_token_ith)(ctx, i);
    if (tap_served_on()) {
        tap_served_device(token);
    }
    return token;
}

void llama_synchronize(struct llama_context * ctx) {
    if (tap_on()) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            tap_flag(&c->flags, TAP_CALL_READ_SINCE);
        }
    }
    TAP_REAL(llama_synchronize)(ctx);
}

// A sampler reads the logits of one context, and what it then accepts says nothing about the others.
llama_token llama_sampler_sample(struct llama_sampler * sampler, struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return TAP_REAL(llama_sampler_sample)(sampler, ctx, i);
}

static void tap_accepted(struct tap_context * c, void * unused) {
    (void) unused;
    tap_flag(&c->flags, TAP_CALL_ACCEPTED_SINCE);
}

// A chain passes each token on to its members: only the outermost call is the program's.
void llama_sampler_accept(struct llama_sampler * sampler, llama_token token) {
    const bool outermost = tap_nested.accept == 0;
    if (outermost && tap_on()) {
        tap_sample_accepted(token);
        tap_contexts_each(tap_accepted, NULL);
    }
    const bool serves = outermost && tap_served_on();
    const int64_t began = serves ? tap_now() : 0;
    tap_nested.accept++;
    TAP_REAL(llama_sampler_accept)(sampler, token);
    tap_nested.accept--;
    if (serves) {
        tap_served_accepted(sampler, token, began);
    }
}

// tap_no_warmup reports whether the program was asked not to warm up, with the flag that llama.cpp's programs have for
// it.
static bool tap_no_warmup(void) {
    static const char flag[] = "--no-warmup";
    char args[4096];
    FILE * file = fopen("/proc/self/cmdline", "r");
    const size_t n = file != NULL ? fread(args, 1, sizeof(args), file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return memmem(args, n, flag, sizeof(flag)) != NULL;
}

struct tap_clear {
    llama_memory_t memory;
    bool           data;
};

// What was computed and is thrown away unread was set-up. llama-bench does not wipe its cache (data is false),
// neither after the warm-up nor between its timed runs, which nobody reads either: of those clears only a context's
// first ends set-up.
static void tap_cleared(struct tap_context * c, void * user_data) {
    const struct tap_clear * clear = user_data;
    if (tap_get(&c->memory) == clear->memory && tap_get(&c->provisional) && tap_get(&c->pending)) {
        tap_context_resolve(c, clear->data || !tap_no_warmup());
        tap_set(&c->provisional, clear->data);
    }
}

// A model without a cache, such as BERT, has no memory: its contexts are those that have none.
void llama_memory_clear(llama_memory_t memory, bool data) {
    if (tap_on()) {
        struct tap_clear clear = {memory, data};
        tap_contexts_each(tap_cleared, &clear);
    }
    TAP_REAL(llama_memory_clear)(memory, data);
    tap_steer_removed(memory, -1, -1, -1);
    if (tap_on()) {
        tap_seq_cleared(memory);
    }
}
