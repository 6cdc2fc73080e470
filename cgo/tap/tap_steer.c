//go:build llama

// tap_steer.c: steering. A run that is armed has llama.cpp add a control vector to the residual stream behind each
// layer from 1 on, through the public llama_set_adapter_cvec, before a context's first graph is built. Its tensors
// stay where they are; other vectors are written into them between two graphs, and no graph is built again.
// Sequences may have vectors of their own: see tap_steer_rows.c. What becomes of cells that were computed by other
// vectors: tap_steer_cells.c.
#define _GNU_SOURCE
#include "tap_steer.h"

#include "tap_lock.h"
#include "tap_real.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

uint64_t tap_steer_hash(const void * data, size_t n) {
    const uint64_t prime = 0x9e3779b97f4a7c15ull;
    uint64_t lanes[4] = {n, 1, 2, 3};
    const uint8_t * at = data;
    for (; n >= sizeof(lanes); n -= sizeof(lanes), at += sizeof(lanes)) {
        uint64_t words[4];
        memcpy(words, at, sizeof(words));
        for (int i = 0; i < 4; i++) {
            lanes[i] = (lanes[i] ^ words[i]) * prime;
            lanes[i] ^= lanes[i] >> 29;
        }
    }
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ lanes[i]) * prime;
        hash ^= hash >> 29;
    }
    for (; n > 0; n--) {
        hash = (hash ^ *at++) * prime;
    }
    return hash > TAP_STEER_ZERO ? hash : hash + TAP_STEER_ZERO + 1;
}

static size_t tap_steer_values(const struct tap_steered * s) { return (size_t) s->n_embd * (size_t) s->n_layer; }

static float * tap_steer_row(const struct tap_steered * s, float * rows, int32_t layer) {
    return rows + (size_t) (layer - 1) * (size_t) s->n_embd;
}

// tap_steer_sum is a vector of a layer and the program's own.
static const float * tap_steer_sum(const struct tap_steered * s, uint32_t vector, int32_t layer) {
    const float * row = tap_steer_row(s, s->rows + vector * tap_steer_values(s), layer);
    if (s->own == NULL) {
        return row;
    }
    const float * own = tap_steer_row(s, s->own, layer);
    for (int32_t i = 0; i < s->n_embd; i++) {
        s->sum[i] = row[i] + own[i];
    }
    return s->sum;
}

void tap_steer_write(struct tap_steered * s, int32_t layer) {
    const size_t bytes = (size_t) s->n_embd * sizeof(float);
    TAP_REAL(ggml_backend_tensor_set)(s->tensors[layer], tap_steer_sum(s, 0, layer), 0, bytes);
    for (uint32_t i = 0; s->tables != NULL && i < s->n_vectors; i++) {
        TAP_REAL(ggml_backend_tensor_set)(s->tables[layer], tap_steer_sum(s, i, layer), i * bytes, bytes);
    }
}

static void tap_steer_write_all(struct tap_steered * s) {
    TAP_REAL(llama_synchronize)(s->ctx); // a device may still compute
    for (int32_t layer = 1; layer < s->n_layer; layer++) {
        if (s->tensors[layer] != NULL) {
            tap_steer_write(s, layer);
        }
    }
}

uint64_t tap_steer_state(const struct tap_steered * s, llama_seq_id seq) {
    return s->states[seq >= 0 && seq < TAP_STEER_SEQS ? s->of[seq] : 0] ^ s->own_state;
}

uint32_t tap_steer_vector(const struct tap_steered * s, llama_seq_id seq) {
    if (seq < 0 || (uint32_t) seq >= s->n_seq || seq >= TAP_STEER_SEQS) {
        return 0;
    }
    for (uint32_t i = 0; s->lent[seq] != TAP_CELLS_NONE && i < s->n_vectors; i++) {
        if ((s->states[i] ^ s->own_state) == s->lent[seq]) {
            return i;
        }
    }
    return s->of[seq];
}

// ---- arming ---------------------------------------------------------------------------------------------------------

static void tap_steer_free(struct tap_steered * s) {
    if (s != NULL) {
        tap_steer_release(s);
        free(s->tensors);
        free(s->rows);
        free(s->own);
        free(s->sum);
        free(s->cells);
        free(s->lent);
        free(s);
    }
}

static struct tap_steered * tap_steer_new(struct llama_context * ctx) {
    const struct llama_model * model = TAP_REAL(llama_get_model)(ctx);
    struct tap_steered * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return NULL;
    }
    s->ctx = ctx;
    s->n_embd = TAP_REAL(llama_model_n_embd)(model);
    s->n_layer = TAP_REAL(llama_model_n_layer)(model);
    s->n_seq = TAP_REAL(llama_n_seq_max)(ctx);
    s->grouped = TAP_REAL(llama_model_is_recurrent)(model) || TAP_REAL(llama_model_is_hybrid)(model);
    s->whole = s->grouped || TAP_REAL(llama_model_n_swa)(model) > 0;
    s->states[0] = TAP_STEER_ZERO;
    s->n_vectors = 1;
    s->tensors = calloc((size_t) s->n_layer, sizeof(s->tensors[0]));
    s->rows = calloc(TAP_STEER_VECTORS * tap_steer_values(s), sizeof(float)); // pages that nothing is written to
    s->sum = calloc((size_t) s->n_embd, sizeof(float));
    s->cells = calloc(s->n_seq, sizeof(s->cells[0]));
    s->lent = calloc(s->n_seq, sizeof(s->lent[0]));
    if (s->tensors == NULL || s->rows == NULL || s->sum == NULL || s->cells == NULL || s->lent == NULL) {
        tap_steer_free(s);
        return NULL;
    }
    return s;
}

// tap_steer_mark is what marks the tensor of a layer until it is found: nothing that could change a sum.
static float tap_steer_mark(int32_t layer) { return (float) layer * FLT_MIN; }

// tap_steer_leads reports whether a context is of the model that is steered: that which computes first. A draft is not.
static bool tap_steer_leads(const struct llama_context * ctx) {
    static char first[TAP_PATH_SIZE];
    static bool known;
    char path[TAP_PATH_SIZE];
    tap_model_path(TAP_REAL(llama_get_model)(ctx), path);
    tap_lock();
    if (!known) {
        memcpy(first, path, sizeof(first));
        known = true;
    }
    const bool same = strcmp(first, path) == 0;
    tap_unlock();
    return same;
}

// tap_steer_arm has llama.cpp add vectors in the graphs of a context, which has built none yet.
static TAP_RARE void tap_steer_arm(struct tap_context * c) {
    struct tap_header * h = tap.header;
    if (tap_real.llama_set_adapter_cvec == NULL || !tap_steer_leads(c->ptr)) {
        c->unsteered = true;
        return;
    }
    struct tap_steered * s = c->steered != NULL ? c->steered : tap_steer_new(c->ptr);
    float * marks = s != NULL ? calloc(tap_steer_values(s), sizeof(float)) : NULL;
    if (marks != NULL) {
        for (int32_t layer = 1; layer < s->n_layer; layer++) {
            *tap_steer_row(s, marks, layer) = tap_steer_mark(layer);
        }
        s->armed =
            tap_real.llama_set_adapter_cvec(c->ptr, marks, tap_steer_values(s), s->n_embd, 1, s->n_layer) == 0;
        free(marks);
    }
    if (s == NULL || !s->armed) {
        tap_steer_free(s);
        c->steered = NULL;
        c->unsteered = true;
        return;
    }
    c->steered = s;
    tap_set(&h->steer_layers, (uint32_t) s->n_layer);
    if (tap_steer_able() && s->n_seq > tap_get(&h->steer_seqs)) {
        tap_set(&h->steer_seqs, s->n_seq < TAP_STEER_SEQS ? s->n_seq : TAP_STEER_SEQS);
    }
    tap_set(&h->steer_embd, (uint32_t) s->n_embd);
}

struct tap_steered * tap_steer_current(void) {
    const struct tap_context * c = tap_steer_on() ? tap_current_call.context : NULL;
    return c != NULL && c->steered != NULL && c->steered->armed ? c->steered : NULL;
}

void tap_steer_find(struct ggml_cgraph * graph) {
    enum { MOST_LOOKS = 16 };
    struct tap_steered * s = tap_steer_current();
    if (s == NULL || s->n_found == s->n_layer - 1 || s->n_looks == MOST_LOOKS) {
        return;
    }
    s->n_looks++;
    const int n = TAP_REAL(ggml_graph_n_nodes)(graph);
    for (int i = 0; i < n; i++) {
        const struct ggml_tensor * node = TAP_REAL(ggml_graph_node)(graph, i);
        struct ggml_tensor * t = node->op == GGML_OP_ADD ? node->src[1] : NULL;
        if (t == NULL || t->op != GGML_OP_NONE || t->type != GGML_TYPE_F32 || t->ne[0] != s->n_embd || t->ne[1] != 1 ||
            t->ne[2] != 1 || t->ne[3] != 1 || t->buffer == NULL ||
            TAP_REAL(ggml_backend_buffer_get_usage)(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
            continue;
        }
        float mark;
        TAP_REAL(ggml_backend_tensor_get)(t, &mark, 0, sizeof(mark));
        const float layer = mark / FLT_MIN;
        const int32_t at = layer >= 1 && layer < (float) s->n_layer ? (int32_t) layer : 0;
        if (at > 0 && tap_steer_mark(at) == mark && s->tensors[at] == NULL) {
            s->tensors[at] = t;
            s->n_found++;
            tap_steer_write(s, at);
            if (at < 64 * TAP_LAYER_WORDS) {
                atomic_fetch_or_explicit(&tap.header->steer_found[at / 64], 1ull << (at % 64), memory_order_release);
            }
        }
    }
}

void tap_steer_forget(struct llama_context * ctx) {
    if (tap_steer_on() && ctx != NULL) {
        struct tap_context * c = tap_context_of(ctx);
        if (c != NULL) {
            tap_steer_free(c->steered);
            c->steered = NULL;
        }
    }
}

// A program's own control vector is added to those of the run.
int32_t llama_set_adapter_cvec(struct llama_context * ctx, const float * data, size_t len, int32_t n_embd,
                               int32_t il_start, int32_t il_end) {
    struct tap_context * c = tap_steer_on() ? tap_context_of(ctx) : NULL;
    if (c != NULL && c->steered == NULL && !c->unsteered) {
        c->steered = tap_steer_new(ctx);
    }
    struct tap_steered * s = c != NULL ? c->steered : NULL;
    const bool other = s == NULL || (data != NULL && n_embd != s->n_embd);
    if (s != NULL && !other) {
        free(s->own);
        s->own = data != NULL ? calloc(tap_steer_values(s), sizeof(float)) : NULL;
        for (int32_t layer = 1; s->own != NULL && layer < s->n_layer; layer++) {
            const size_t at = (size_t) (layer - 1) * (size_t) n_embd;
            if (layer >= il_start && layer <= il_end && at + (size_t) n_embd <= len) {
                memcpy(tap_steer_row(s, s->own, layer), data + at, (size_t) n_embd * sizeof(float));
            }
        }
        s->own_state = s->own != NULL ? tap_steer_hash(s->own, tap_steer_values(s) * sizeof(float)) : 0;
        tap_steer_write_all(s);
    }
    return !other && s->armed ? 0 : TAP_REAL(llama_set_adapter_cvec)(ctx, data, len, n_embd, il_start, il_end);
}

// ---- exchange -------------------------------------------------------------------------------------------------------

// tap_steer_read copies the newest vectors, and returns their number. A collector that overtakes writes number + 2 to
// the same place, but only after it has counted number + 1.
static uint32_t tap_steer_read(struct tap_steered * s) {
    const struct tap_header * h = tap.header;
    const size_t stride = tap_steer_values(s), one = (size_t) s->n_embd * sizeof(float);
    uint32_t number;
    do {
        number = tap_get(&h->steer);
        const uint8_t * place = tap.base + h->steer_offset + number % 2 * h->steer_bytes;
        struct tap_vectors v;
        memcpy(&v, place, sizeof(v));
        const bool fits = (int32_t) v.n_embd == s->n_embd && v.n_vectors <= TAP_STEER_VECTORS &&
            v.n_vectors * (uint64_t) v.n_rows * one <= h->steer_bytes - sizeof(v);
        const size_t most = v.n_rows < (uint32_t) s->n_layer ? v.n_rows : (size_t) s->n_layer;
        s->n_vectors = fits && v.n_vectors > 0 ? v.n_vectors : 1;
        memset(s->rows, 0, s->n_vectors * stride * sizeof(float));
        memset(s->of, 0, sizeof(s->of));
        s->states[0] = TAP_STEER_ZERO;
        for (uint32_t i = 0; fits && i < v.n_vectors; i++) { // else the collector ends the program, or adds nothing
            memcpy(s->rows + i * stride, place + sizeof(v) + i * v.n_rows * one, most * one);
            s->states[i] = v.states[i];
        }
        for (int i = 0; fits && i < TAP_STEER_SEQS; i++) {
            s->of[i] = v.of[i] < s->n_vectors ? v.of[i] : 0;
        }
    } while (tap_get(&h->steer) != number);
    return number;
}

// tap_steer_rebuild has llama.cpp build its next graph anew: one that adds the same to all rows cannot be changed once
// it is allocated. llama.cpp does so whenever it is given a vector; it is given what it has.
static void tap_steer_rebuild(struct tap_steered * s) {
    float * rows = calloc(tap_steer_values(s), sizeof(float));
    if (rows == NULL) {
        return; // what cannot be computed is refused: see tap_steer_rows
    }
    for (int32_t layer = 1; layer < s->n_layer; layer++) {
        memcpy(tap_steer_row(s, rows, layer), tap_steer_sum(s, 0, layer), (size_t) s->n_embd * sizeof(float));
    }
    tap_real.llama_set_adapter_cvec(s->ctx, rows, tap_steer_values(s), s->n_embd, 1, s->n_layer);
    free(rows);
}

void tap_steer_exchange(struct tap_context * c) {
    struct tap_header * h = tap.header;
    struct tap_steered * s = c->steered;
    if (__builtin_expect(tap_get(&h->steer) == c->steer, 1) || !tap_on() || !s->armed) {
        return;
    }
    const int64_t began = tap_now();
    c->steer = tap_steer_read(s);
    tap_steer_write_all(s);
    if (s->n_vectors > 1 && s->graph.n_adds > s->graph.n_by_row) {
        tap_steer_rebuild(s);
    }
    tap_set(&h->steer_ns, (uint64_t) (tap_now() - began));
    tap_count(&h->steer_exec, 1);
}

// tap_steer_note notes that cells of a sequence are computed by the vectors of a state.
static void tap_steer_note(struct tap_steered * s, llama_seq_id seq, uint64_t state, bool new) {
    if (seq >= 0 && (uint32_t) seq < s->n_seq) {
        uint64_t * cells = &s->cells[seq];
        if (*cells != state && (new || *cells != TAP_CELLS_NONE)) {
            *cells = *cells == TAP_CELLS_NONE ? state : TAP_CELLS_MIXED;
        }
    }
}

// tap_steer_batch notes by which vectors the rows of a batch are computed.
static void tap_steer_batch(struct tap_steered * s, struct tap_rows_list * rows) {
    const uint32_t n = rows != NULL ? (uint32_t) rows->n : s->n_seq;
    s->list = rows;
    s->only = -1;
    for (uint32_t i = 0; i < n; i++) {
        const llama_seq_id seq = rows != NULL ? rows->rows[i].seq : (llama_seq_id) i;
        const uint32_t vector = tap_steer_vector(s, seq);
        s->only = i == 0 || s->only == (int32_t) vector ? (int32_t) vector : INT32_MIN;
        tap_steer_note(s, seq, s->states[vector] ^ s->own_state, rows != NULL);
    }
    for (int32_t i = 0; rows != NULL && i < rows->n_extra; i++) { // a row has the vector of its first sequence
        const uint32_t vector = tap_steer_vector(s, rows->rows[rows->extra[i].row].seq);
        tap_steer_note(s, rows->extra[i].seq, s->states[vector] ^ s->own_state, true);
    }
    if (s->only < 0 && rows != NULL && !tap_rows_begin(rows)) {
        s->list = NULL;
    }
}

void tap_steer_call(struct tap_context * c, struct tap_rows_list * rows) {
    if (!tap_steer_on() || c->unsteered) {
        return;
    }
    if (c->steered == NULL || !c->steered->armed) {
        if (tap_on()) {
            tap_steer_arm(c);
        }
        if (c->steered == NULL || !c->steered->armed) {
            return;
        }
    }
    tap_steer_exchange(c);
    tap_steer_batch(c->steered, rows);
}
