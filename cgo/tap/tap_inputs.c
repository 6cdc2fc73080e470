//go:build llama

// tap_inputs.c: what the inputs of a graph say of its memory: the cells that are written, and those that each token
// may read. It is read at graph entry, for the inputs' memory is used again while the graph is computed.
//
// Hot path: per execution one pass over the masks and the row indices, eight bytes at a time where neighbours are
// alike. What is reported enters the queue together with the execution itself, where it is little.
#define _GNU_SOURCE
#include "tap_pool.h"
#include "tap_real.h"
#include "tap_sched.h"

#include <stdlib.h>
#include <string.h>

// ---- which inputs ---------------------------------------------------------------------------------------------------

// tap_origin follows views and conversions to the leaf that they show, or returns what is not a leaf.
static int32_t tap_origin(const struct tap_graph * g, int32_t i) {
    while (i >= 0 && g->nodes[i].src[0] != INT32_MIN) {
        const enum ggml_op op = g->nodes[i].tensor->op;
        if (!g->nodes[i].view && op != GGML_OP_CPY && op != GGML_OP_CONT && op != GGML_OP_DUP) {
            break;
        }
        i = g->nodes[i].src[0];
    }
    return i;
}

// tap_told_room makes room for one more input that is reported.
static bool tap_told_room(struct tap_graph * g) {
    if (g->reported == NULL) {
        g->reported = g->few_reported;
        g->cap_told = TAP_FEW_TOLD;
    }
    if (g->n_told < g->cap_told) {
        return true;
    }
    const int cap = g->cap_told * 2;
    struct tap_told * reported = malloc((size_t) cap * sizeof(reported[0]));
    if (reported == NULL) {
        tap_loss_add(TAP_LOSS_NO_MEMORY, 0, 0);
        return false;
    }
    memcpy(reported, g->reported, (size_t) g->n_told * sizeof(reported[0]));
    if (g->reported != g->few_reported) {
        free(g->reported);
    }
    g->reported = reported;
    g->cap_told = cap;
    return true;
}

static void tap_mark_told(struct tap_graph * g, int32_t i, enum tap_input_kind kind) {
    const int32_t at = i == INT32_MIN ? i : tap_origin(g, i);
    if (at >= 0 || at == INT32_MIN || !g->leafs[-1 - at].input || g->leafs[-1 - at].reported) {
        return;
    }
    struct tap_graph_leaf * l = &g->leafs[-1 - at];
    const enum ggml_type type = l->tensor->type;
    const bool fits = kind == TAP_INPUT_CELLS ? type == GGML_TYPE_I64 || type == GGML_TYPE_I32
                      : kind == TAP_INPUT_MASK ? type == GGML_TYPE_F16 || type == GGML_TYPE_F32
                                               : type == GGML_TYPE_I32;
    if (fits && tap_told_room(g)) {
        l->reported = true;
        g->reported[g->n_told++] = (struct tap_told) {.tensor = l->tensor, .leaf = -1 - at, .kind = (uint8_t) kind};
    }
}

static bool tap_is_memory(const struct tap_graph * g, int32_t i, const char * prefix) {
    const int32_t at = i == INT32_MIN ? i : tap_origin(g, i);
    return at < 0 && at != INT32_MIN && strncmp(g->leafs[-1 - at].tensor->name, prefix, strlen(prefix)) == 0;
}

void tap_mark_inputs(struct tap_graph * g, const struct tap_selection * wish) {
    for (int i = 0; i < g->n_leafs; i++) {
        g->leafs[i].reported = false;
    }
    g->n_told = 0;
    if (!(wish->record & TAP_RECORD_CELLS) || g->n_tokens == 0) {
        return;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tap_graph_node * n = &g->nodes[i];
        if (!n->computed) {
            continue; // built and never run: its inputs are garbage
        }
        switch (n->tensor->op) {
            case GGML_OP_SET_ROWS:       tap_mark_told(g, n->src[1], TAP_INPUT_CELLS); break;
            case GGML_OP_FLASH_ATTN_EXT: tap_mark_told(g, n->src[3], TAP_INPUT_MASK); break;
            case GGML_OP_SOFT_MAX:
                if (n->component == TAP_ATTENTION) {
                    tap_mark_told(g, n->src[1], TAP_INPUT_MASK);
                }
                break;
            case GGML_OP_GET_ROWS:
                if (tap_is_memory(g, n->src[0], "cache_r_l") || tap_is_memory(g, n->src[0], "cache_s_l")) {
                    tap_mark_told(g, n->src[1], TAP_INPUT_STATES);
                }
                break;
            default: break;
        }
    }
}

// ---- telling --------------------------------------------------------------------------------------------------------

// tap_telling is an input that is being reported: its record grows at the end of what goes to the queue.
struct tap_telling {
    struct tap_out *     out;
    struct tap_rec_input rec;
    size_t               at; // where the record begins
};

static void tap_telling_begin(struct tap_telling * t) {
    tap_out_room(t->out, sizeof(t->rec));
    t->at = t->out->n - sizeof(t->rec);
    t->rec.count = 0;
}

// tap_telling_end completes a record. more: the next one continues the same input.
static void tap_telling_end(struct tap_telling * t, bool more) {
    tap_out_room(t->out, t->out->n % 8 == 0 ? 0 : 8 - t->out->n % 8);
    t->rec.more = more;
    t->rec.h.bytes = (uint32_t) (t->out->n - t->at);
    memcpy(t->out->bytes + t->at, &t->rec, sizeof(t->rec));
}

// tap_telling_room is a place for a value or range of n bytes: the buffer's, whose size is a multiple of eight, or
// the next record's.
static void * tap_telling_room(struct tap_telling * t, size_t n) {
    if (t->out->n + n > sizeof(t->out->bytes)) {
        tap_telling_end(t, true);
        tap_out_flush(t->out);
        tap_telling_begin(t);
    }
    t->rec.count++;
    return tap_out_room(t->out, n);
}

static void tap_tell_value(struct tap_telling * t, int64_t value) {
    memcpy(tap_telling_room(t, sizeof(value)), &value, sizeof(value));
}

static void tap_tell_range(struct tap_telling * t, int32_t row, int32_t first, int32_t end) {
    const struct tap_range range = {row, first, end};
    memcpy(tap_telling_room(t, sizeof(range)), &range, sizeof(range));
}

// tap_index reads element i of a row index of n bytes per element.
static int64_t tap_index(const uint8_t * at, int64_t i, size_t n) {
    int64_t wide;
    int32_t narrow;
    if (n == sizeof(wide)) {
        memcpy(&wide, at + (size_t) i * n, n);
        return wide;
    }
    memcpy(&narrow, at + (size_t) i * n, n);
    return narrow;
}

// tap_tell_cells reports the cell of each token. With flash attention off V lies transposed, and the index has one
// entry per element: that of element j of a token is (stream · width + j) · cells + cell, cells being those of a
// stream.
static void tap_tell_cells(struct tap_telling * t, const struct ggml_tensor * leaf, const uint8_t * at,
                           int32_t n_tokens) {
    const size_t size = leaf->type == GGML_TYPE_I64 ? 8 : 4;
    const int64_t n = leaf->ne[0] * leaf->ne[1] * leaf->ne[2] * leaf->ne[3], width = n / n_tokens;
    if (width < 1 || n % n_tokens != 0) {
        return;
    }
    for (int64_t token = 0; token < n_tokens; token++) {
        const int64_t first = tap_index(at, token * width, size);
        if (width == 1) {
            tap_tell_value(t, first);
            continue;
        }
        const int64_t cells = tap_index(at, token * width + 1, size) - first;
        bool regular = cells > 0;
        for (int64_t j = 2; j < width && regular; j++) {
            regular = tap_index(at, token * width + j, size) == first + j * cells;
        }
        tap_tell_value(t, regular ? first / (cells * width) * cells + first % (cells * width) : -1);
    }
}

// tap_row_ranges finds the cells of one row of a mask that are not minus infinity. Eight bytes that are like those
// before them are passed over at once.
#define TAP_ROW_RANGES(name, word, infinite) \
    static void name(struct tap_telling * t, const uint8_t * at, int32_t row, int32_t n) { \
        enum { PER = 8 / sizeof(word) }; \
        int32_t first = -1; \
        for (int32_t i = 0; i < n;) { \
            word w; \
            memcpy(&w, at + (size_t) i * sizeof(w), sizeof(w)); \
            const bool may = w != (infinite); \
            if (may != (first >= 0)) { \
                if (!may) { \
                    tap_tell_range(t, row, first, i); \
                } \
                first = may ? i : -1; \
            } \
            i++; \
            uint64_t like = 0, next; \
            for (int k = 0; k < PER; k++) { \
                memcpy((uint8_t *) &like + (size_t) k * sizeof(w), &w, sizeof(w)); \
            } \
            while (i + PER <= n && (memcpy(&next, at + (size_t) i * sizeof(w), sizeof(next)), next == like)) { \
                i += PER; \
            } \
        } \
        if (first >= 0) { \
            tap_tell_range(t, row, first, n); \
        } \
    }

TAP_ROW_RANGES(tap_row_ranges_f16, uint16_t, 0xfc00u)
TAP_ROW_RANGES(tap_row_ranges_f32, uint32_t, 0xff800000u)

// tap_tell_mask reports the ranges of each token. The mask may have more rows than there are tokens, and a plane per
// stream.
static void tap_tell_mask(struct tap_telling * t, const struct ggml_tensor * leaf, const uint8_t * at,
                          int32_t n_tokens) {
    const int64_t streams = leaf->ne[3] > 0 ? leaf->ne[3] : 1;
    const int32_t per = (int32_t) (n_tokens / streams);
    if (n_tokens % streams != 0 || per > leaf->ne[1]) {
        return;
    }
    for (int64_t s = 0; s < streams; s++) {
        for (int32_t r = 0; r < per; r++) {
            const uint8_t * row = at + (size_t) s * leaf->nb[3] + (size_t) r * leaf->nb[1];
            const int32_t number = (int32_t) s * per + r;
            if (leaf->type == GGML_TYPE_F16) {
                tap_row_ranges_f16(t, row, number, (int32_t) leaf->ne[0]);
            } else {
                tap_row_ranges_f32(t, row, number, (int32_t) leaf->ne[0]);
            }
        }
    }
}

// tap_told_bytes returns where the bytes of an input lie; those of a device are fetched into memory that the
// scheduler keeps, until the next.
static const uint8_t * tap_told_bytes(struct tap_sched * s, const struct tap_told * reported) {
    const struct ggml_tensor * t = reported->tensor;
    if (reported->host) {
        return t->data;
    }
    size_t bytes = tap_real.ggml_type_size(t->type);
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        bytes += (size_t) (t->ne[d] - 1) * t->nb[d];
    }
    if (bytes > s->cap_fetched) {
        void * fetched = realloc(s->fetched, bytes);
        if (fetched == NULL) {
            tap_loss_add(TAP_LOSS_NO_MEMORY, 0, bytes);
            return NULL;
        }
        s->fetched = fetched;
        s->cap_fetched = bytes;
    }
    tap_copy_bytes(s->fetched, t, false, 0, bytes);
    return s->fetched;
}

TAP_HOT void tap_inputs_send(struct tap_sched * s, struct tap_out * out) {
    const struct tap_graph * g = &s->graph;
    for (int i = 0; i < g->n_told; i++) {
        const struct tap_told * reported = &g->reported[i];
        const uint8_t * at = tap_told_bytes(s, reported);
        if (at == NULL) {
            continue;
        }
        struct tap_telling t = {
            .out = out,
            .rec = {.h.type = TAP_REC_INPUT, .exec = s->exec, .graph = g->id, .leaf = (uint32_t) reported->leaf,
                .kind = reported->kind},
        };
        tap_telling_begin(&t);
        if (reported->kind == TAP_INPUT_CELLS) {
            tap_tell_cells(&t, reported->tensor, at, g->n_tokens);
        } else if (reported->kind == TAP_INPUT_MASK) {
            tap_tell_mask(&t, reported->tensor, at, g->n_tokens);
        } else {
            for (int64_t k = 0; k < reported->tensor->ne[0]; k++) {
                tap_tell_value(&t, tap_index(at, k, sizeof(int32_t)));
            }
        }
        tap_telling_end(&t, false);
    }
}
