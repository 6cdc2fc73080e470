//go:build llama

// tap_batch.c: the rows of the program's batches. What a llama_batch holds is read when it is decoded; a
// llama_batch_ext, whose insides are not public, is followed as the program fills it.
#define _GNU_SOURCE
#include "tap_context.h"
#include "tap_lock.h"
#include "tap_real.h"
#include "tap_steer.h"

#include <stdlib.h>
#include <string.h>

// ---- batches --------------------------------------------------------------------------------------------------------

static struct tap_rows_list * tap_batches; // guarded by tap.lock

// tap_follows reports whether rows are noted: a program that is steered has vectors by row when it is not recorded any
// more.
static inline bool tap_follows(void) { return tap_on() || tap_steer_on(); }

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
    if (row >= 0 && row < l->n && tap_ensure((void **) &l->extra, &l->extra_bytes,
                                             (size_t) (l->n_extra + 1) * sizeof(l->extra[0]))) {
        int32_t at = l->n_extra++;
        for (; at > 0 && l->extra[at - 1].row > row; at--) {
            l->extra[at] = l->extra[at - 1]; // they are reported in the order of rows, whatever the program's is
        }
        l->extra[at] = (struct tap_extra) {row, seq};
        l->rows[row].n_seq++;
    }
}

struct tap_rows_list * tap_batch_of(const void * batch, bool make) {
    tap_lock();
    struct tap_rows_list * l = tap_batches;
    while (l != NULL && l->batch != batch) {
        l = l->next;
    }
    if (l == NULL && make && (l = calloc(1, sizeof(*l))) != NULL) {
        l->batch = batch;
        l->next = tap_batches;
        tap_batches = l;
    }
    tap_unlock();
    return l;
}

struct llama_batch_ext * llama_batch_ext_init(struct llama_context * ctx) {
    struct llama_batch_ext * batch = TAP_REAL(llama_batch_ext_init)(ctx);
    if (tap_follows() && batch != NULL) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL) {
            l->n = l->n_extra = 0;
        }
    }
    return batch;
}

void llama_batch_ext_free(struct llama_batch_ext * batch) {
    if (tap.header != NULL) {
        tap_lock();
        for (struct tap_rows_list ** p = &tap_batches; *p != NULL; p = &(*p)->next) {
            if ((*p)->batch == batch) {
                struct tap_rows_list * l = *p;
                *p = l->next;
                free(l->rows);
                free(l->extra);
                free(l->matched);
                free(l);
                break;
            }
        }
        tap_unlock();
    }
    TAP_REAL(llama_batch_ext_free)(batch);
}

void llama_batch_ext_clear(struct llama_batch_ext * batch) {
    if (tap_follows()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL) {
            l->n = l->n_extra = 0;
        }
    }
    TAP_REAL(llama_batch_ext_clear)(batch);
}

// tap_batch_added notes row i that the real function has added.
static int32_t tap_batch_added(struct llama_batch_ext * batch, int32_t i, int32_t token, int32_t seq) {
    if (i >= 0 && tap_follows()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL && l->n == i) {
            tap_row_add(l, token, INT32_MIN, seq);
        }
    }
    return i;
}

int32_t llama_batch_ext_add(struct llama_batch_ext * batch, llama_seq_id seq) {
    return tap_batch_added(batch, TAP_REAL(llama_batch_ext_add)(batch, seq), LLAMA_TOKEN_NULL, seq);
}

int32_t llama_batch_ext_add_token(struct llama_batch_ext * batch, llama_seq_id seq, llama_token id) {
    return tap_batch_added(batch, TAP_REAL(llama_batch_ext_add_token)(batch, seq, id), id, seq);
}

int32_t llama_batch_ext_add_embd(struct llama_batch_ext * batch, llama_seq_id seq, struct llama_embd embd) {
    return tap_batch_added(batch, TAP_REAL(llama_batch_ext_add_embd)(batch, seq, embd), LLAMA_TOKEN_NULL, seq);
}

bool llama_batch_ext_add_seq(struct llama_batch_ext * batch, int32_t i, llama_seq_id seq) {
    const bool ok = TAP_REAL(llama_batch_ext_add_seq)(batch, i, seq);
    if (ok && tap_follows()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL) {
            tap_row_extra(l, i, seq);
        }
    }
    return ok;
}

bool llama_batch_ext_set_pos(struct llama_batch_ext * batch, int32_t i, const llama_pos * pos) {
    const bool ok = TAP_REAL(llama_batch_ext_set_pos)(batch, i, pos);
    if (ok && tap_follows()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL && i >= 0 && i < l->n) {
            l->rows[i].pos = pos[0];
        }
    }
    return ok;
}

static void tap_batch_output(struct llama_batch_ext * batch, int32_t i, bool value) {
    if (tap_follows()) {
        struct tap_rows_list * l = tap_batch_of(batch, true);
        if (l != NULL && i >= 0 && i < l->n) {
            l->rows[i].output = value;
        }
    }
}

bool llama_batch_ext_set_output_logits(struct llama_batch_ext * batch, int32_t i, bool value) {
    const bool ok = TAP_REAL(llama_batch_ext_set_output_logits)(batch, i, value);
    if (ok) {
        tap_batch_output(batch, i, value);
    }
    return ok;
}

bool llama_batch_ext_set_output_embd(struct llama_batch_ext * batch, int32_t i, bool value) {
    const bool ok = TAP_REAL(llama_batch_ext_set_output_embd)(batch, i, value);
    if (ok) {
        tap_batch_output(batch, i, value);
    }
    return ok;
}

// ---- llama_batch ----------------------------------------------------------------------------------------------------

struct tap_rows_list * tap_rows_of_batch(struct llama_context * ctx, const struct tap_by_value * value) {
    struct tap_context * c = tap_context_of(ctx);
    struct llama_batch batch;
    memcpy(&batch, value->bytes, sizeof(batch));
    const struct llama_batch * b = &batch;
    if (c == NULL || (tap.layouts & TAP_LAYOUT_BATCH) ||
        (c->rows == NULL && (c->rows = calloc(1, sizeof(*c->rows))) == NULL)) {
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

uint64_t tap_rows_hash(const struct tap_rows_list * l) {
    uint64_t h = 1469598103934665603ull;
    for (int32_t i = 0; i < l->n; i++) {
        h = (h ^ (uint64_t) (uint32_t) l->rows[i].token) * 1099511628211ull;
        h = (h ^ (uint64_t) (uint32_t) l->rows[i].seq) * 1099511628211ull;
    }
    return h == 0 ? 1 : h;
}
