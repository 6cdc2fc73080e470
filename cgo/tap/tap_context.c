//go:build llama

// tap_context.c: the tables of contexts and schedulers, and what the collector learns of a context.
#define _GNU_SOURCE
#include "tap_sched.h"

#include "tap_lock.h"
#include "tap_queue.h"
#include "tap_real.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tap_context * tap_contexts[TAP_MAX_CONTEXTS];
static uint32_t             tap_n_contexts;

TAP_OWN struct tap_call tap_current_call;
TAP_OWN uint32_t        tap_last_context = UINT32_MAX;

enum { TAP_MAX_MODELS = 16 };

static struct {
    const struct llama_model * model;
    int64_t                    loaded_ns;
    char                       path[TAP_PATH_SIZE];
} tap_models[TAP_MAX_MODELS]; // guarded by tap.lock
static uint32_t tap_n_models;

void tap_model_note(const struct llama_model * model, const char * path) {
    if (model == NULL || tap.header == NULL) {
        return;
    }
    const int64_t loaded_ns = tap_now();
    tap_lock();
    const uint32_t at = tap_n_models++ % TAP_MAX_MODELS;
    tap_models[at].model = model;
    tap_models[at].loaded_ns = loaded_ns;
    snprintf(tap_models[at].path, sizeof(tap_models[at].path), "%s", path != NULL ? path : "");
    tap_unlock();
}

void tap_model_path(const struct llama_model * model, char path[TAP_PATH_SIZE]) {
    path[0] = 0;
    tap_lock();
    for (uint32_t i = 0; i < TAP_MAX_MODELS; i++) {
        if (tap_models[i].model == model) {
            memcpy(path, tap_models[i].path, TAP_PATH_SIZE);
        }
    }
    tap_unlock();
}

// ---- tables ---------------------------------------------------------------------------------------------------------

// tap_sched_at finds the state of a scheduler. A table that is full makes schedulers go unseen, never the program
// fail. The caller holds the lock.
static struct tap_sched * tap_sched_at(ggml_backend_sched_t ptr, bool make) {
    struct tap_sched * s = NULL;
    int free_at = -1;
    for (int i = 0; i < TAP_MAX_SCHEDS && s == NULL; i++) {
        if (tap.scheds[i] == NULL) {
            free_at = free_at < 0 ? i : free_at;
        } else if (tap.scheds[i]->ptr == ptr) {
            s = tap.scheds[i];
        }
    }
    if (s == NULL && make && free_at >= 0 && (s = calloc(1, sizeof(*s))) != NULL) {
        s->ptr = ptr;
        tap.scheds[free_at] = s;
    }
    return s;
}

struct tap_sched * tap_sched_of(ggml_backend_sched_t ptr, bool make) {
    tap_lock();
    struct tap_sched * s = tap_sched_at(ptr, make);
    tap_unlock();
    return s;
}

void tap_sched_forget(ggml_backend_sched_t ptr) {
    tap_lock();
    for (int i = 0; i < TAP_MAX_SCHEDS; i++) {
        struct tap_sched * s = tap.scheds[i];
        if (s != NULL && s->ptr == ptr) {
            tap_graph_release(&s->graph);
            tap_cut_release(s);
            tap_transfers_release(s);
            tap_keep_release(s);
            free(s->scratch);
            free(s->runs);
            free(s->times);
            free(s->fetched);
            free(s);
            tap.scheds[i] = NULL;
        }
    }
    tap_unlock();
}

// tap_context_at finds a context, or an entry for a new one where make says so. Entries are used again and never
// freed, so that a thread that walks the table meets no freed memory. The caller holds the lock.
static struct tap_context * tap_context_at(struct llama_context * ptr, bool make) {
    struct tap_context * unused = NULL;
    for (int i = 0; i < TAP_MAX_CONTEXTS; i++) {
        if (tap_contexts[i] == NULL && unused == NULL && make) {
            unused = tap_contexts[i] = calloc(1, sizeof(*unused));
        }
        struct tap_context * c = tap_contexts[i];
        if (c != NULL && c->ptr == ptr) {
            return c;
        }
        if (c != NULL && c->ptr == NULL && unused == NULL) {
            unused = c;
        }
    }
    return make ? unused : NULL;
}

// tap_context_init makes an entry new. Its list of rows stays: it is memory to be used again.
static void tap_context_init(struct tap_context * c) {
    tap_set(&c->memory, NULL);
    tap_set(&c->number, UINT32_MAX); // given at the first graph
    c->flash_attn = -2; // unknown
    c->announced = false;
    tap_set(&c->provisional, true);
    tap_set(&c->pending, false);
    c->batch_hash = 0;
    tap_set(&c->flags, 0);
    tap_set(&c->last_exec, 0);
    c->told_graph = 0;
    c->steered = NULL;
    c->unsteered = false;
    c->steer = 0;
}

struct tap_context * tap_context_of(struct llama_context * ptr) {
    tap_lock();
    struct tap_context * c = tap_context_at(ptr, true);
    if (c != NULL && c->ptr == NULL) {
        tap_context_init(c);
        c->ptr = ptr;
    }
    tap_unlock();
    return c;
}

void tap_context_forget(struct llama_context * ptr) {
    tap_lock();
    struct tap_context * c = ptr != NULL ? tap_context_at(ptr, false) : NULL;
    for (int k = 0; c != NULL && k < TAP_MAX_SCHEDS; k++) {
        if (tap.scheds[k] != NULL && tap.scheds[k]->context == c) {
            tap.scheds[k]->context = NULL;
        }
    }
    if (c != NULL) {
        c->ptr = NULL;
    }
    tap_unlock();
}

void tap_contexts_each(void (*fn)(struct tap_context *, void *), void * user_data) {
    struct tap_context * found[TAP_MAX_CONTEXTS];
    int n = 0;
    tap_lock();
    for (int i = 0; i < TAP_MAX_CONTEXTS; i++) {
        if (tap_contexts[i] != NULL && tap_contexts[i]->ptr != NULL) {
            found[n++] = tap_contexts[i];
        }
    }
    tap_unlock();
    for (int i = 0; i < n; i++) {
        fn(found[i], user_data);
    }
}

void tap_context_number(struct tap_context * c) {
    tap_lock();
    const bool first = !c->announced;
    if (first) {
        tap_set(&c->number, tap_n_contexts++);
        c->announced = true;
    }
    tap_unlock();
    if (first) {
        tap_context_announce(c);
    }
}

// tap_sched_context says whose graph is about to run: the context of the call that this thread is in, else the
// scheduler's last one, else one that stands for the scheduler alone (a vision encoder, a program that uses ggml
// directly).
static struct tap_context * tap_sched_context(struct tap_sched * s) {
    if (tap_current_call.context != NULL) {
        s->context = tap_current_call.context;
    } else if (s->context == NULL) {
        s->context = tap_context_of((struct llama_context *) s->ptr);
    }
    if (s->context != NULL) {
        tap_context_number(s->context);
    }
    return s->context;
}

TAP_HOT struct tap_sched * tap_sched_enter(ggml_backend_sched_t ptr) {
    struct tap_context * c = tap_current_call.context;
    tap_lock();
    struct tap_sched * s = tap_sched_at(ptr, true);
    const bool known = s != NULL && (c != NULL ? c : s->context) != NULL && (c != NULL ? c : s->context)->announced;
    if (known && c != NULL) {
        s->context = c;
    }
    tap_unlock();
    return known || (s != NULL && tap_sched_context(s) != NULL) ? s : NULL;
}

void tap_stand_in_forget(ggml_backend_sched_t sched) {
    struct llama_context * ptr = (struct llama_context *) sched;
    tap_lock();
    struct tap_context * c = tap_context_at(ptr, false);
    tap_unlock();
    if (c != NULL) {
        if (tap_on()) {
            tap_context_resolve(c, false);
        }
        tap_context_forget(ptr);
    }
}

// ---- what the collector learns --------------------------------------------------------------------------------------

#define TAP_CALL_IF(name, fallback, ...) (tap_real.name != NULL ? tap_real.name(__VA_ARGS__) : (fallback))

static size_t tap_meta(const struct llama_model * model, const char * key, char * out, size_t size) {
    out[0] = 0;
    const int32_t n = TAP_CALL_IF(llama_model_meta_val_str, -1, model, key, out, size);
    return n < 0 ? 0 : strnlen(out, size);
}

void tap_context_announce(struct tap_context * c) {
    char desc[256] = "", path[TAP_PATH_SIZE] = "", arch[64] = "", name[256] = "";
    struct tap_rec_context rec = {.h.type = TAP_REC_CONTEXT, .ctx = tap_get(&c->number), .model = UINT32_MAX,
        .flash_attn = c->flash_attn, .ftype = -1};
    struct tap_sched * s = tap_sched_of((ggml_backend_sched_t) (void *) c->ptr, false);
    if (s == NULL && tap_real.llama_get_model != NULL) { // not a scheduler's stand-in
        const struct llama_model * m = tap_real.llama_get_model(c->ptr);
        rec.n_ctx = TAP_CALL_IF(llama_n_ctx, 0, c->ptr);
        rec.n_batch = TAP_CALL_IF(llama_n_batch, 0, c->ptr);
        rec.n_ubatch = TAP_CALL_IF(llama_n_ubatch, 0, c->ptr);
        rec.n_seq_max = TAP_CALL_IF(llama_n_seq_max, 0, c->ptr);
        rec.n_layer = TAP_CALL_IF(llama_model_n_layer, 0, m);
        rec.n_embd = TAP_CALL_IF(llama_model_n_embd, 0, m);
        rec.n_head = TAP_CALL_IF(llama_model_n_head, 0, m);
        rec.n_head_kv = TAP_CALL_IF(llama_model_n_head_kv, 0, m);
        rec.n_ctx_train = TAP_CALL_IF(llama_model_n_ctx_train, 0, m);
        rec.n_swa = TAP_CALL_IF(llama_model_n_swa, 0, m);
        rec.model_bytes = TAP_CALL_IF(llama_model_size, 0, m);
        rec.model_params = TAP_CALL_IF(llama_model_n_params, 0, m);
        rec.ftype = tap_real.llama_model_ftype != NULL ? (int32_t) tap_real.llama_model_ftype(m) : -1;
        rec.recurrent = TAP_CALL_IF(llama_model_is_recurrent, false, m) ? 1 : TAP_CALL_IF(llama_model_is_hybrid, false,
            m) ? 2 : 0;
        const struct llama_vocab * vocab = TAP_CALL_IF(llama_model_get_vocab, NULL, m);
        rec.n_vocab = vocab != NULL ? TAP_CALL_IF(llama_vocab_n_tokens, 0, vocab) : 0;
        TAP_CALL_IF(llama_model_desc, 0, m, desc, sizeof(desc));
        rec.arch_bytes = (uint16_t) tap_meta(m, "general.architecture", arch, sizeof(arch));
        rec.name_bytes = (uint16_t) tap_meta(m, "general.name", name, sizeof(name));
        tap_lock();
        for (uint32_t i = 0; i < TAP_MAX_MODELS; i++) {
            if (tap_models[i].model == m) {
                rec.model = i;
                rec.model_loaded_ns = (uint64_t) tap_models[i].loaded_ns;
                memcpy(path, tap_models[i].path, sizeof(path));
            }
        }
        tap_unlock();
    }
    rec.desc_bytes = (uint16_t) strnlen(desc, sizeof(desc));
    rec.path_bytes = (uint16_t) strnlen(path, sizeof(path));
    char strings[sizeof(desc) + sizeof(path) + sizeof(arch) + sizeof(name)];
    char * at = strings;
    at = (char *) memcpy(at, desc, rec.desc_bytes) + rec.desc_bytes;
    at = (char *) memcpy(at, path, rec.path_bytes) + rec.path_bytes;
    at = (char *) memcpy(at, arch, rec.arch_bytes) + rec.arch_bytes;
    at = (char *) memcpy(at, name, rec.name_bytes) + rec.name_bytes;
    const struct tap_part part = {strings, (size_t) (at - strings)};
    tap_queue_put(&rec.h, sizeof(rec), &part, 1);
}

TAP_RARE void tap_context_resolve(struct tap_context * c, bool discarded) {
    tap_lock();
    const bool pending = tap_get(&c->pending);
    if (pending && discarded && c->pending_first + c->pending_tokens == tap.next_token) {
        tap.next_token = c->pending_first; // numbers of tokens that were thrown away are given out again
        tap.window_first = tap.window_first < tap.next_token ? tap.window_first : tap.next_token;
    }
    if (pending && !discarded) {
        tap_set(&c->provisional, false);
    }
    tap_set(&c->pending, false);
    tap_unlock();
    if (pending) {
        struct tap_rec_resolve rec = {.h.type = TAP_REC_RESOLVE, .ctx = tap_get(&c->number), .discarded = discarded,
            .exec = tap_get(&c->last_exec)};
        tap_queue_put(&rec.h, sizeof(rec), NULL, 0);
    }
}

static void tap_resolve_run(struct tap_context * c, void * unused) {
    (void) unused;
    tap_context_resolve(c, false);
}

void tap_resolve_all(void) { tap_contexts_each(tap_resolve_run, NULL); }
