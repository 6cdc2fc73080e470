//go:build llama

// tap_api.c: the functions of llama.h that the tap stands before: who asked for a graph, with which tokens of which sequences,
// and what tells a run from the warm-up before it.
#define _GNU_SOURCE
#include "tap.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t tap_next_call = 1;

// ---- models and contexts --------------------------------------------------------------------------------------------

enum { TAP_MAX_MODELS = 16 };

static struct {
    const struct llama_model * model;
    char                       path[TAP_PATH_SIZE];
} tap_models[TAP_MAX_MODELS]; // guarded by tap.lock
static uint32_t tap_n_models;

static void tap_model_note(const struct llama_model * model, const char * path) {
    if (model == NULL || tap.header == NULL) {
        return;
    }
    pthread_mutex_lock(&tap.lock);
    const uint32_t at = tap_n_models++ % TAP_MAX_MODELS;
    tap_models[at].model = model;
    snprintf(tap_models[at].path, sizeof(tap_models[at].path), "%s", path != NULL ? path : "");
    pthread_mutex_unlock(&tap.lock);
}

struct llama_model * llama_model_load_from_file(const char * path, struct llama_model_params params) {
    struct llama_model * model = tap_real.llama_model_load_from_file(path, params);
    tap_model_note(model, path);
    return model;
}

struct llama_model * llama_model_load_from_file_ptr(FILE * file, struct llama_model_params params) {
    struct llama_model * model = tap_real.llama_model_load_from_file_ptr(file, params);
    tap_model_note(model, "");
    return model;
}

struct llama_model * llama_model_load_from_splits(const char ** paths, size_t n_paths, struct llama_model_params params) {
    struct llama_model * model = tap_real.llama_model_load_from_splits(paths, n_paths, params);
    tap_model_note(model, n_paths > 0 ? paths[0] : "");
    return model;
}

struct llama_context * llama_init_from_model(struct llama_model * model, struct llama_context_params params) {
    if (tap.header != NULL && tap.header->config.attention == TAP_ATTENTION_EXACT) {
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    }
    struct llama_context * ctx = tap_real.llama_init_from_model(model, params);
    if (ctx != NULL && tap_on()) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            c->flash_attn = (int32_t) params.flash_attn_type;
        }
    }
    return ctx;
}

static void tap_resolve_run(struct tap_context * c, void * unused) {
    (void) unused;
    tap_context_resolve(c, false);
}

void llama_free(struct llama_context * ctx) {
    if (tap_on() && ctx != NULL) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            tap_context_resolve(c, false);
        }
    }
    if (tap.header != NULL) {
        tap_context_forget(ctx);
    }
    tap_real.llama_free(ctx);
}

#define TAP_CALL_IF(name, fallback, ...) (tap_real.name != NULL ? tap_real.name(__VA_ARGS__) : (fallback))

static size_t tap_meta(const struct llama_model * model, const char * key, char * out, size_t size) {
    out[0] = 0;
    const int32_t n = TAP_CALL_IF(llama_model_meta_val_str, -1, model, key, out, size);
    return n < 0 ? 0 : strnlen(out, size);
}

void tap_context_announce(struct tap_context * c) {
    char desc[256] = "", path[TAP_PATH_SIZE] = "", arch[64] = "", name[256] = "";
    struct tap_rec_context rec = {.h.type = TAP_REC_CONTEXT, .ctx = c->number, .model = UINT32_MAX, .flash_attn = c->flash_attn};
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
        rec.model_bytes = TAP_CALL_IF(llama_model_size, 0, m);
        rec.model_params = TAP_CALL_IF(llama_model_n_params, 0, m);
        rec.ftype = tap_real.llama_model_ftype != NULL ? (int32_t) tap_real.llama_model_ftype(m) : -1;
        rec.recurrent = TAP_CALL_IF(llama_model_is_recurrent, false, m) ? 1 : TAP_CALL_IF(llama_model_is_hybrid, false, m) ? 2 : 0;
        const struct llama_vocab * vocab = TAP_CALL_IF(llama_model_get_vocab, NULL, m);
        rec.n_vocab = vocab != NULL ? TAP_CALL_IF(llama_vocab_n_tokens, 0, vocab) : 0;
        TAP_CALL_IF(llama_model_desc, 0, m, desc, sizeof(desc));
        rec.arch_bytes = (uint16_t) tap_meta(m, "general.architecture", arch, sizeof(arch));
        rec.name_bytes = (uint16_t) tap_meta(m, "general.name", name, sizeof(name));
        pthread_mutex_lock(&tap.lock);
        for (uint32_t i = 0; i < TAP_MAX_MODELS; i++) {
            if (tap_models[i].model == m) {
                rec.model = i;
                memcpy(path, tap_models[i].path, sizeof(path));
            }
        }
        pthread_mutex_unlock(&tap.lock);
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

// ---- batches --------------------------------------------------------------------------------------------------------

// A sequence of a row beyond its first.
struct tap_extra {
    int32_t row, seq;
};

// The rows of a call. For llama_batch_ext, whose insides are not public, they are noted as the program adds them.
struct tap_rows_list {
    const void *          batch;
    struct llama_context * ctx;
    struct tap_call_row * rows;
    size_t                rows_bytes;
    int32_t               n;
    struct tap_extra *    extra;
    size_t                extra_bytes;
    int32_t               n_extra;
    struct tap_rows_list * next;
};

static struct tap_rows_list * tap_batches; // guarded by tap.lock

static bool tap_ensure(void ** p, size_t * have, size_t want) {
    if (want > *have) {
        void * q = realloc(*p, want * 2);
        if (q == NULL) {
            return false;
        }
        *p = q;
        *have = want * 2;
    }
    return true;
}

static void tap_row_add(struct tap_rows_list * l, int32_t token, int32_t pos, int32_t seq) {
    if (tap_ensure((void **) &l->rows, &l->rows_bytes, (size_t) (l->n + 1) * sizeof(l->rows[0]))) {
        l->rows[l->n++] = (struct tap_call_row) {.token = token, .pos = pos, .seq = seq, .n_seq = 1};
    }
}

static void tap_row_extra(struct tap_rows_list * l, int32_t row, int32_t seq) {
    if (row >= 0 && row < l->n && tap_ensure((void **) &l->extra, &l->extra_bytes, (size_t) (l->n_extra + 1) * sizeof(l->extra[0]))) {
        l->extra[l->n_extra++] = (struct tap_extra) {row, seq};
        l->rows[row].n_seq++;
    }
}

static struct tap_rows_list * tap_batch_of(const void * batch, bool make) {
    pthread_mutex_lock(&tap.lock);
    struct tap_rows_list * l = tap_batches;
    while (l != NULL && l->batch != batch) {
        l = l->next;
    }
    if (l == NULL && make && (l = calloc(1, sizeof(*l))) != NULL) {
        l->batch = batch;
        l->next = tap_batches;
        tap_batches = l;
    }
    pthread_mutex_unlock(&tap.lock);
    return l;
}

struct llama_batch_ext * llama_batch_ext_init(struct llama_context * ctx) {
    struct llama_batch_ext * batch = tap_real.llama_batch_ext_init(ctx);
    if (tap_on() && batch != NULL) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL) {
            l->n = l->n_extra = 0;
        }
    }
    return batch;
}

void llama_batch_ext_free(struct llama_batch_ext * batch) {
    if (tap.header != NULL) {
        pthread_mutex_lock(&tap.lock);
        for (struct tap_rows_list ** p = &tap_batches; *p != NULL; p = &(*p)->next) {
            if ((*p)->batch == batch) {
                struct tap_rows_list * l = *p;
                *p = l->next;
                free(l->rows);
                free(l->extra);
                free(l);
                break;
            }
        }
        pthread_mutex_unlock(&tap.lock);
    }
    tap_real.llama_batch_ext_free(batch);
}

void llama_batch_ext_clear(struct llama_batch_ext * batch) {
    if (tap_on()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL) {
            l->n = l->n_extra = 0;
        }
    }
    tap_real.llama_batch_ext_clear(batch);
}

// tap_batch_added notes row i that the real function has added.
static int32_t tap_batch_added(struct llama_batch_ext * batch, int32_t i, int32_t token, int32_t seq) {
    if (i >= 0 && tap_on()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL && l->n == i) {
            tap_row_add(l, token, INT32_MIN, seq);
        }
    }
    return i;
}

int32_t llama_batch_ext_add(struct llama_batch_ext * batch, llama_seq_id seq) {
    return tap_batch_added(batch, tap_real.llama_batch_ext_add(batch, seq), LLAMA_TOKEN_NULL, seq);
}

int32_t llama_batch_ext_add_token(struct llama_batch_ext * batch, llama_seq_id seq, llama_token id) {
    return tap_batch_added(batch, tap_real.llama_batch_ext_add_token(batch, seq, id), id, seq);
}

int32_t llama_batch_ext_add_embd(struct llama_batch_ext * batch, llama_seq_id seq, struct llama_embd embd) {
    return tap_batch_added(batch, tap_real.llama_batch_ext_add_embd(batch, seq, embd), LLAMA_TOKEN_NULL, seq);
}

bool llama_batch_ext_add_seq(struct llama_batch_ext * batch, int32_t i, llama_seq_id seq) {
    const bool ok = tap_real.llama_batch_ext_add_seq(batch, i, seq);
    if (ok && tap_on()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL) {
            tap_row_extra(l, i, seq);
        }
    }
    return ok;
}

bool llama_batch_ext_set_pos(struct llama_batch_ext * batch, int32_t i, const llama_pos * pos) {
    const bool ok = tap_real.llama_batch_ext_set_pos(batch, i, pos);
    if (ok && tap_on()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL && i >= 0 && i < l->n) {
            l->rows[i].pos = pos[0];
        }
    }
    return ok;
}

static void tap_batch_output(struct llama_batch_ext * batch, int32_t i, bool value) {
    if (tap_on()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL && i >= 0 && i < l->n) {
            l->rows[i].output = value;
        }
    }
}

bool llama_batch_ext_set_output_logits(struct llama_batch_ext * batch, int32_t i, bool value) {
    const bool ok = tap_real.llama_batch_ext_set_output_logits(batch, i, value);
    if (ok) {
        tap_batch_output(batch, i, value);
    }
    return ok;
}

bool llama_batch_ext_set_output_embd(struct llama_batch_ext * batch, int32_t i, bool value) {
    const bool ok = tap_real.llama_batch_ext_set_output_embd(batch, i, value);
    if (ok) {
        tap_batch_output(batch, i, value);
    }
    return ok;
}

// tap_rows_of_batch reads a llama_batch into the list of its context. Returns NULL without memory.
static struct tap_rows_list * tap_rows_of_batch(struct llama_context * ctx, const struct llama_batch * b) {
    struct tap_context * c = tap_context_of(ctx);
    if (c == NULL || (c->rows == NULL && (c->rows = calloc(1, sizeof(*c->rows))) == NULL)) {
        return NULL;
    }
    struct tap_rows_list * list = c->rows;
    list->n = list->n_extra = 0;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        const int32_t n_seq = b->n_seq_id != NULL ? b->n_seq_id[i] : 1;
        tap_row_add(list, b->token != NULL ? b->token[i] : LLAMA_TOKEN_NULL, b->pos != NULL ? b->pos[i] : INT32_MIN,
                    b->seq_id != NULL && n_seq > 0 ? b->seq_id[i][0] : 0);
        if (list->n != i + 1) {
            break; // no memory: the rows that are known stay true
        }
        list->rows[i].output = b->logits != NULL ? b->logits[i] != 0 : i == b->n_tokens - 1;
        for (int32_t k = 1; b->seq_id != NULL && k < n_seq; k++) {
            tap_row_extra(list, i, b->seq_id[i][k]);
        }
    }
    return list;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static uint64_t tap_rows_hash(const struct tap_rows_list * l) {
    uint64_t h = 1469598103934665603ull;
    for (int32_t i = 0; i < l->n; i++) {
        h = (h ^ (uint64_t) (uint32_t) l->rows[i].token) * 1099511628211ull;
        h = (h ^ (uint64_t) (uint32_t) l->rows[i].seq) * 1099511628211ull;
    }
    return h == 0 ? 1 : h;
}

static void tap_call_send(struct tap_context * c, const struct tap_rows_list * l, uint64_t call, uint32_t kind) {
    enum { CHUNK = 4096 };
    int32_t x = 0;
    static _Thread_local int32_t extra[CHUNK];
    int32_t first = 0;
    do {
        struct tap_rec_call rec = {
            .h.type = TAP_REC_CALL, .call = call, .mono_ns = (uint64_t) tap_now(), .ctx = c->number, .kind = kind, .flags = c->flags,
            .n_total = (uint32_t) l->n, .first = (uint32_t) first,
        };
        while (first + (int32_t) rec.n_rows < l->n && rec.n_rows < CHUNK) {
            const int32_t row = first + (int32_t) rec.n_rows;
            const uint32_t more = l->rows[row].n_seq - 1u;
            if (rec.n_extra + more > CHUNK) {
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
static struct tap_call tap_call_begin(struct llama_context * ctx, const struct tap_rows_list * l, uint32_t kind) {
    const struct tap_call before = tap_current_call;
    const struct tap_thread thread = tap_thread;
    const int64_t began = tap_now();
    struct tap_context * c = tap_context_of(ctx);
    tap_current_call = (struct tap_call) {0};
    if (c == NULL) {
        return before; // more contexts than the table holds: the call goes unseen
    }
    if (c->memory == NULL && tap_real.llama_get_memory != NULL) {
        c->memory = tap_real.llama_get_memory(ctx);
    }
    if (c->provisional && l != NULL) {
        const uint64_t hash = tap_rows_hash(l);
        if (c->pending && c->batch_hash != hash) {
            tap_context_resolve(c, false); // a second, different batch: this is the run
        }
        c->batch_hash = hash;
    }
    const uint64_t call = atomic_fetch_add_explicit(&tap_next_call, 1, memory_order_relaxed);
    tap_current_call = (struct tap_call) {c, call};
    tap_context_number(c);
    if (l != NULL) {
        tap_call_send(c, l, call, kind);
    }
    c->flags = 0;
    tap_add(&tap.header->stats.calls, 1);
    tap_add(&tap.header->stats.api_ns, tap_own_since(began, &thread));
    return before;
}

static void tap_call_end(struct tap_call before, int32_t status) {
    const struct tap_call call = tap_current_call;
    tap_current_call = before;
    if (call.context == NULL || tap.header == NULL) {
        return;
    }
    struct tap_rec_call_end rec = {
        .h.type = TAP_REC_CALL_END, .call = call.number, .mono_ns = (uint64_t) tap_now(), .status = status, .ctx = call.context->number,
    };
    tap_queue_put(&rec.h, sizeof(rec), NULL, 0);
}

int32_t llama_decode(struct llama_context * ctx, struct llama_batch batch) {
    if (!tap_on()) {
        return tap_real.llama_decode(ctx, batch);
    }
    const struct tap_call before = tap_call_begin(ctx, tap_rows_of_batch(ctx, &batch), TAP_CALL_DECODE);
    const int32_t status = tap_real.llama_decode(ctx, batch);
    tap_call_end(before, status);
    return status;
}

int32_t llama_encode(struct llama_context * ctx, struct llama_batch batch) {
    if (!tap_on()) {
        return tap_real.llama_encode(ctx, batch);
    }
    const struct tap_call before = tap_call_begin(ctx, tap_rows_of_batch(ctx, &batch), TAP_CALL_ENCODE);
    const int32_t status = tap_real.llama_encode(ctx, batch);
    tap_call_end(before, status);
    return status;
}

int32_t llama_process(struct llama_context * ctx, enum llama_process_type type, struct llama_batch_ext * batch) {
    if (!tap_on()) {
        return tap_real.llama_process(ctx, type, batch);
    }
    const uint32_t kind = type == LLAMA_PROCESS_TYPE_ENCODE ? TAP_CALL_ENCODE : TAP_CALL_PROCESS;
    const struct tap_call before = tap_call_begin(ctx, tap_batch_of(batch, false), kind);
    const int32_t status = tap_real.llama_process(ctx, type, batch);
    tap_call_end(before, status);
    return status;
}

// ---- what tells a run from a warm-up --------------------------------------------------------------------------------

// tap_read notes that the program looked at what ctx computed.
static void tap_read(struct llama_context * ctx) {
    struct tap_context * c = tap_context_of(ctx);
    if (c != NULL) {
        c->flags |= TAP_CALL_READ_SINCE;
        if (c->provisional) {
            tap_context_resolve(c, false);
        }
    }
}

float * llama_get_logits(struct llama_context * ctx) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_get_logits(ctx);
}

float * llama_get_logits_ith(struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_get_logits_ith(ctx, i);
}

float * llama_get_embeddings(struct llama_context * ctx) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_get_embeddings(ctx);
}

float * llama_get_embeddings_ith(struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_get_embeddings_ith(ctx, i);
}

float * llama_get_embeddings_seq(struct llama_context * ctx, llama_seq_id seq) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_get_embeddings_seq(ctx, seq);
}

llama_token llama_get_sampled_token_ith(struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_get_sampled_token_ith(ctx, i);
}

void llama_synchronize(struct llama_context * ctx) {
    if (tap_on()) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            c->flags |= TAP_CALL_READ_SINCE;
        }
    }
    tap_real.llama_synchronize(ctx);
}

// A sampler reads the logits of one context, and what it then accepts says nothing about the others.
llama_token llama_sampler_sample(struct llama_sampler * sampler, struct llama_context * ctx, int32_t i) {
    if (tap_on()) {
        tap_read(ctx);
    }
    return tap_real.llama_sampler_sample(sampler, ctx, i);
}

static void tap_accepted(struct tap_context * c, void * unused) {
    (void) unused;
    c->flags |= TAP_CALL_ACCEPTED_SINCE;
}

// A chain passes each token on to its members: only the outermost call is the program's.
void llama_sampler_accept(struct llama_sampler * sampler, llama_token token) {
    static _Thread_local int depth;
    if (depth == 0 && tap_on()) {
        tap_contexts_each(tap_accepted, NULL);
    }
    depth++;
    tap_real.llama_sampler_accept(sampler, token);
    depth--;
}

// tap_no_warmup says whether the program was told not to warm up, with the flag that llama.cpp's programs have for it.
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

// What was computed and is thrown away unread was set-up. llama-bench does not wipe its cache (data is false), neither after the
// warm-up nor between its timed runs, which nobody reads either: of those clears only a context's first ends set-up.
static void tap_cleared(struct tap_context * c, void * user_data) {
    const struct tap_clear * clear = user_data;
    if (c->memory == clear->memory && c->provisional && c->pending) {
        tap_context_resolve(c, clear->data || !tap_no_warmup());
        c->provisional = clear->data;
    }
}

void llama_memory_clear(llama_memory_t memory, bool data) {
    if (memory != NULL && tap_on()) {
        struct tap_clear clear = {memory, data};
        tap_contexts_each(tap_cleared, &clear);
    }
    tap_real.llama_memory_clear(memory, data);
    if (tap_on()) {
        tap_seq_cleared(memory);
    }
}

void tap_resolve_all(void) { tap_contexts_each(tap_resolve_run, NULL); }
