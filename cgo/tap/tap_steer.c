//go:build llama

// tap_steer.c: steering. A run that is armed has llama.cpp add a control vector to the residual stream behind each
// layer from 1 on, through the public llama_set_adapter_cvec, before a context's first graph is built. Its tensors
// stay where they are; other vectors are written into them between two graphs, and no graph is built again.
//
// Cells that were computed by other vectors must not serve a later prompt. For each sequence the tap knows by which
// vectors its cells were computed. llama-server asks for the first position of a sequence before it reuses it; the
// answer of a sequence of other vectors is a position that no prompt reaches, as it is of a sliding window that has
// passed on, and llama-server computes the prompt in full. Saved states of other vectors are not restored.
#define _GNU_SOURCE
#include "tap_steer.h"

#include "tap_lock.h"
#include "tap_real.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// By which vectors the cells of a sequence were computed: a state of tap_vectors, or one of these.
enum { CELLS_NONE = 0, CELLS_MIXED = 1 };

// The vectors of a context.
struct tap_steered {
    struct llama_context * ctx;
    bool     armed;
    bool     whole; // parts of a sequence are restored from checkpoints, which are not followed: nothing is reused
    int32_t  n_embd, n_layer;
    int      n_found, n_looks;
    struct ggml_tensor ** tensors; // by layer; NULL: not found
    float *  rows;  // that are in force, of the layers 1, 2, 3 …
    float *  own;   // rows that the program itself has set; NULL: none
    float *  sum;   // of both, for one layer
    uint64_t own_state, state;
    uint32_t n_seq;
    uint64_t * cells; // by sequence
};

static bool tap_steer_on(void) { return tap.header != NULL && tap.joined && tap.header->steer_bytes != 0; }

// tap_steer_hash distinguishes contents; never CELLS_NONE, CELLS_MIXED or TAP_STEER_ZERO.
static uint64_t tap_steer_hash(const void * data, size_t n) {
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

static float * tap_steer_row(const struct tap_steered * s, float * rows, int32_t layer) {
    return rows + (size_t) (layer - 1) * (size_t) s->n_embd;
}

static size_t tap_steer_values(const struct tap_steered * s) { return (size_t) s->n_embd * (size_t) s->n_layer; }

// tap_steer_write writes the vector of a layer into its tensor. Nothing computes with it meanwhile.
static void tap_steer_write(struct tap_steered * s, int32_t layer) {
    float * row = tap_steer_row(s, s->rows, layer);
    if (s->own != NULL) {
        const float * own = tap_steer_row(s, s->own, layer);
        for (int32_t i = 0; i < s->n_embd; i++) {
            s->sum[i] = row[i] + own[i];
        }
        row = s->sum;
    }
    TAP_REAL(ggml_backend_tensor_set)(s->tensors[layer], row, 0, (size_t) s->n_embd * sizeof(float));
}

static void tap_steer_write_all(struct tap_steered * s, uint64_t state) {
    s->state = state ^ s->own_state;
    TAP_REAL(llama_synchronize)(s->ctx); // a device may still compute
    for (int32_t layer = 1; layer < s->n_layer; layer++) {
        if (s->tensors[layer] != NULL) {
            tap_steer_write(s, layer);
        }
    }
}

// ---- arming ---------------------------------------------------------------------------------------------------------

static void tap_steer_free(struct tap_steered * s) {
    if (s != NULL) {
        free(s->tensors);
        free(s->rows);
        free(s->own);
        free(s->sum);
        free(s->cells);
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
    s->whole = TAP_REAL(llama_model_n_swa)(model) > 0 || TAP_REAL(llama_model_is_recurrent)(model) ||
        TAP_REAL(llama_model_is_hybrid)(model);
    s->state = TAP_STEER_ZERO;
    s->tensors = calloc((size_t) s->n_layer, sizeof(s->tensors[0]));
    s->rows = calloc(tap_steer_values(s), sizeof(float));
    s->sum = calloc((size_t) s->n_embd, sizeof(float));
    s->cells = calloc(s->n_seq, sizeof(s->cells[0]));
    if (s->tensors == NULL || s->rows == NULL || s->sum == NULL || s->cells == NULL) {
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
    tap_set(&h->steer_embd, (uint32_t) s->n_embd);
}

void tap_steer_find(struct ggml_cgraph * graph) {
    enum { MOST_LOOKS = 16 };
    struct tap_steered * s = tap_current_call.context != NULL ? tap_current_call.context->steered : NULL;
    if (s == NULL || !s->armed || s->n_found == s->n_layer - 1 || s->n_looks == MOST_LOOKS) {
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
        const uint64_t state = s->state ^ s->own_state;
        s->own_state = s->own != NULL ? tap_steer_hash(s->own, tap_steer_values(s) * sizeof(float)) : 0;
        tap_steer_write_all(s, state);
    }
    return !other && s->armed ? 0 : TAP_REAL(llama_set_adapter_cvec)(ctx, data, len, n_embd, il_start, il_end);
}

// ---- exchange -------------------------------------------------------------------------------------------------------

// tap_steer_read copies the rows of the newest vectors, and returns their number and state. A collector that overtakes
// writes number + 2 to the same place, but only after it has counted number + 1.
static uint32_t tap_steer_read(struct tap_steered * s, uint64_t * state) {
    const struct tap_header * h = tap.header;
    uint32_t number;
    do {
        number = tap_get(&h->steer);
        const uint8_t * place = tap.base + h->steer_offset + number % 2 * h->steer_bytes;
        struct tap_vectors v;
        memcpy(&v, place, sizeof(v));
        const size_t most = v.n_rows < (uint32_t) s->n_layer ? v.n_rows : (size_t) s->n_layer;
        const size_t bytes = most * (size_t) s->n_embd * sizeof(float);
        const bool fits = (int32_t) v.n_embd == s->n_embd && bytes <= h->steer_bytes - sizeof(v);
        memset(s->rows, 0, tap_steer_values(s) * sizeof(float));
        if (fits) { // else the collector ends the program, or has nothing to add
            memcpy(s->rows, place + sizeof(v), bytes);
        }
        *state = fits ? v.state : TAP_STEER_ZERO;
    } while (tap_get(&h->steer) != number);
    return number;
}

// tap_steer_exchange makes the newest vectors those of a steered context.
static void tap_steer_exchange(struct tap_context * c) {
    struct tap_header * h = tap.header;
    if (__builtin_expect(tap_get(&h->steer) == c->steer, 1) || !tap_on() || !c->steered->armed) {
        return;
    }
    const int64_t began = tap_now();
    uint64_t state;
    c->steer = tap_steer_read(c->steered, &state);
    tap_steer_write_all(c->steered, state);
    tap_set(&h->steer_ns, (uint64_t) (tap_now() - began));
    tap_count(&h->steer_exec, 1);
}

static void tap_steer_note(struct tap_steered * s, llama_seq_id seq, bool new) {
    if (seq >= 0 && (uint32_t) seq < s->n_seq) {
        uint64_t * cells = &s->cells[seq];
        if (*cells != s->state && (new || *cells != CELLS_NONE)) {
            *cells = *cells == CELLS_NONE ? s->state : CELLS_MIXED;
        }
    }
}

void tap_steer_call(struct tap_context * c, const struct tap_rows_list * rows) {
    if (tap.header->steer_bytes == 0 || c->unsteered) {
        return;
    }
    if (c->steered == NULL || !c->steered->armed) {
        tap_steer_arm(c);
        if (c->steered == NULL) {
            return;
        }
    }
    tap_steer_exchange(c);
    struct tap_steered * s = c->steered;
    for (int32_t i = 0; rows != NULL && i < rows->n; i++) {
        tap_steer_note(s, rows->rows[i].seq, true);
    }
    for (int32_t i = 0; rows != NULL && i < rows->n_extra; i++) {
        tap_steer_note(s, rows->extra[i].seq, true);
    }
    for (uint32_t i = 0; rows == NULL && i < s->n_seq; i++) {
        tap_steer_note(s, (llama_seq_id) i, false);
    }
}

// ---- cells ----------------------------------------------------------------------------------------------------------

struct tap_steer_search {
    llama_memory_t       memory;
    struct tap_context * found;
};

static void tap_steer_same(struct tap_context * c, void * user_data) {
    struct tap_steer_search * search = user_data;
    if (tap_get(&c->memory) == search->memory && c->steered != NULL) {
        search->found = c;
    }
}

// tap_steer_of finds the steered context that has a memory; NULL: none.
static struct tap_context * tap_steer_of(llama_memory_t memory) {
    struct tap_steer_search search = {memory, NULL};
    if (memory != NULL && tap_steer_on()) {
        tap_contexts_each(tap_steer_same, &search);
    }
    return search.found;
}

// tap_steer_clear forgets the cells of a sequence, or (others) of all others.
static void tap_steer_clear(llama_memory_t memory, llama_seq_id seq, bool others) {
    const struct tap_context * c = tap_steer_of(memory);
    for (uint32_t i = 0; c != NULL && i < c->steered->n_seq; i++) {
        if ((i == (uint32_t) seq) != others) {
            c->steered->cells[i] = CELLS_NONE;
        }
    }
}

void tap_steer_removed(llama_memory_t memory, llama_seq_id seq, llama_pos first, llama_pos end) {
    if (first <= 0 && end < 0) {
        tap_steer_clear(memory, seq, seq < 0);
    }
}

void tap_steer_kept(llama_memory_t memory, llama_seq_id seq) { tap_steer_clear(memory, seq, true); }

void tap_steer_copied(llama_memory_t memory, llama_seq_id from, llama_seq_id to) {
    struct tap_context * c = tap_steer_of(memory);
    if (c != NULL && from >= 0 && to >= 0 && (uint32_t) from < c->steered->n_seq &&
        (uint32_t) to < c->steered->n_seq) {
        uint64_t * cells = c->steered->cells;
        cells[to] = cells[to] == CELLS_NONE || cells[to] == cells[from] ? cells[from] : CELLS_MIXED;
    }
}

llama_pos llama_memory_seq_pos_min(llama_memory_t memory, llama_seq_id seq) {
    const llama_pos first = TAP_REAL(llama_memory_seq_pos_min)(memory, seq);
    struct tap_context * c = tap_steer_of(memory);
    if (c == NULL || first < 0 || seq < 0 || (uint32_t) seq >= c->steered->n_seq) {
        return first;
    }
    tap_steer_exchange(c); // a request that comes after the command is computed by its vectors alone
    const struct tap_steered * s = c->steered;
    const bool stale = s->cells[seq] != CELLS_NONE && s->cells[seq] != s->state;
    return stale || s->whole ? INT32_MAX : first;
}

// ---- saved states ---------------------------------------------------------------------------------------------------

enum { TAP_MAX_SAVED = 4096 };

// States of sequences that were saved, by their contents: equal ones were computed by equal vectors, or by vectors
// that changed nothing.
static struct {
    uint64_t contents, state;
} tap_saved[TAP_MAX_SAVED]; // guarded by tap.lock
static uint32_t tap_n_saved;

// tap_steered_of finds the vectors of a context, which are the newest then; NULL: none.
static struct tap_steered * tap_steered_of(struct llama_context * ctx) {
    struct tap_context * c = ctx != NULL && tap_steer_on() ? tap_context_of(ctx) : NULL;
    if (c != NULL && c->steered != NULL) {
        tap_steer_exchange(c);
    }
    return c != NULL ? c->steered : NULL;
}

void tap_steer_restored(struct llama_context * ctx, llama_seq_id seq) {
    struct tap_steered * s = tap_steered_of(ctx);
    if (s != NULL && seq >= 0 && (uint32_t) seq < s->n_seq) {
        s->cells[seq] = s->state;
    }
}

void tap_steer_saved(struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size) {
    const struct tap_steered * s = tap_steered_of(ctx);
    if (s == NULL || seq < 0 || (uint32_t) seq >= s->n_seq || s->cells[seq] == CELLS_MIXED) {
        return;
    }
    const uint64_t contents = tap_steer_hash(data, size);
    tap_lock();
    const uint32_t at = tap_n_saved++ % TAP_MAX_SAVED;
    tap_saved[at].contents = contents;
    tap_saved[at].state = s->cells[seq] != CELLS_NONE ? s->cells[seq] : s->state;
    tap_unlock();
}

bool tap_steer_admits(struct llama_context * ctx, const void * data, size_t size) {
    const struct tap_steered * s = tap_steered_of(ctx);
    if (s == NULL) {
        return true;
    }
    const uint64_t contents = tap_steer_hash(data, size);
    bool admits = false;
    tap_lock();
    for (uint32_t i = 0; i < TAP_MAX_SAVED && i < tap_n_saved && !admits; i++) {
        admits = tap_saved[i].contents == contents && tap_saved[i].state == s->state;
    }
    tap_unlock();
    return admits;
}

// What a file is known by.
struct tap_steer_file {
    uint64_t device, inode, bytes, seconds, nanoseconds;
};

static bool tap_steer_stat(const char * path, struct tap_steer_file * f) {
    struct stat st;
    const bool ok = stat(path, &st) == 0;
    if (ok) {
        *f = (struct tap_steer_file) {st.st_dev, st.st_ino, (uint64_t) st.st_size, (uint64_t) st.st_mtim.tv_sec,
            (uint64_t) st.st_mtim.tv_nsec};
    }
    return ok;
}

void tap_steer_saved_file(struct llama_context * ctx, llama_seq_id seq, const char * path) {
    struct tap_steer_file f;
    if (tap_steered_of(ctx) != NULL && tap_steer_stat(path, &f)) {
        tap_steer_saved(ctx, seq, &f, sizeof(f));
    }
}

bool tap_steer_admits_file(struct llama_context * ctx, const char * path) {
    struct tap_steer_file f;
    if (tap_steered_of(ctx) == NULL || !tap_steer_stat(path, &f) || tap_steer_admits(ctx, &f, sizeof(f))) {
        return true;
    }
    tap_say("", path, " is not restored: it was not saved by this process under the vectors that are in force; "
            "let the prompt be computed again");
    return false;
}

bool tap_steer_admits_all(struct llama_context * ctx) {
    // a program that loads a state before it computes has no vectors yet
    const struct tap_context * c = ctx != NULL && tap_steer_on() ? tap_context_of(ctx) : NULL;
    if (c == NULL || c->unsteered) {
        return true;
    }
    tap_say("a saved state is not restored in a run that is armed for steering: nothing shows by which vectors it "
            "was computed; leave --prompt-cache out", "", "");
    return false;
}
