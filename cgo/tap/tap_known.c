//go:build llama

// tap_known.c: graphs that are built anew and are made as the one before. llama.cpp builds one for every other
// number of tokens, and for every few hundred cells more; what differs are shapes and places, hardly ever what
// reads what.
//
// Runs once per new graph, on the model's thread. Each tensor has two marks: one of its form, from which layer,
// component and occurrence follow, and one of its shape. Where all forms are as they were, what was inferred stays,
// and only what has changed is reported.
#define _GNU_SOURCE
#include "tap_graph.h"
#include "tap_real.h"

#include <string.h>

// ---- marks ----------------------------------------------------------------------------------------------------------

// Odd numbers without a pattern (SplitMix64), one for each word that is hashed.
static const uint64_t tap_salts[] = {
    0xe220a8397b1dcdafull, 0x6e789e6aa1b965f5ull, 0x06c45d188009454full, 0xf88bb8a8724c81edull, 0x1b39896a51a8749bull,
    0x53cb9f0c747ea2ebull,
    0x2c829abe1f4532e1ull, 0xc584133ac916ab3dull, 0x3ee5789041c98ac3ull, 0xf3b8488c368cb0a7ull, 0x657eecdd3cb13d09ull,
    0xc2d326e0055bdef7ull,
};

// tap_fold multiplies two words into one of which every bit depends on all of theirs.
static inline uint64_t tap_fold(uint64_t a, uint64_t b, unsigned salt) {
    const unsigned __int128 product = (unsigned __int128) (a ^ tap_salts[salt]) * (b ^ tap_salts[salt + 1]);
    return (uint64_t) product ^ (uint64_t) (product >> 64);
}

static inline uint64_t tap_word(const void * at) {
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

// tap_name_mark hashes the first n bytes of a name and the zero behind them: a longer name has something else there.
static inline uint64_t tap_name_mark(const char * name, unsigned n) {
    uint64_t h = n;
    unsigned at = 0;
    for (; at + 8 <= n; at += 8) {
        h = tap_fold(h, tap_word(name + at), at / 8);
    }
    if (at < TAP_NAME_SIZE) {
        h = tap_fold(h, tap_word(name + at) & (~0ull >> (8 * (7 - (n - at)))), 8);
    }
    return h;
}

// tap_relative identifies a source by its place from the graph's first node, where it lies near: the memory that graphs
// are built in may move.
static inline uint64_t tap_relative(const struct ggml_tensor * s, uintptr_t low, uintptr_t reach) {
    const uintptr_t from = (uintptr_t) s - low + reach;
    return s == NULL ? 0 : from <= 2 * reach ? from << 1 | 1 : (uint64_t) (uintptr_t) s;
}

static inline uint64_t tap_form(const struct ggml_tensor * t, unsigned name_bytes) {
    const uint64_t kind = (uint64_t) (uint32_t) t->op << 32 | (uint32_t) t->type;
    const bool family = t->op == GGML_OP_UNARY || t->op == GGML_OP_GLU; // which function it is stands in its parameters
    return tap_fold(kind, (uint64_t) (family ? (uint32_t) t->op_params[0] : 0) << 32 | (uint32_t) t->flags,
                    2) ^ tap_name_mark(t->name, name_bytes);
}

static inline uint64_t tap_node_form(const struct ggml_tensor * t, unsigned name_bytes, uintptr_t low,
                                     uintptr_t reach) {
    uint64_t h = tap_form(t, name_bytes) ^ tap_fold((uintptr_t) t - low, 0, 4);
    for (unsigned k = 0; k < GGML_MAX_SRC; k += 2) {
        const struct ggml_tensor * a = t->src[k], * b = t->src[k + 1];
        if (a != NULL || b != NULL) {
            h += tap_fold(tap_relative(a, low, reach), tap_relative(b, low, reach), k);
        }
    }
    return h;
}
_Static_assert(GGML_MAX_SRC % 2 == 0 && GGML_MAX_SRC < sizeof(tap_salts) / sizeof(tap_salts[0]),
               "sources are hashed two at a time");

static inline uint64_t tap_shape(const struct ggml_tensor * t) {
    return (tap_fold((uint64_t) t->ne[0], (uint64_t) t->ne[1], 0) ^ tap_fold((uint64_t) t->ne[2], (uint64_t) t->ne[3],
        2)) +
           (tap_fold(t->nb[0], t->nb[1], 4) ^ tap_fold(t->nb[2], t->nb[3], 6)) +
           (tap_fold(tap_word(t->op_params), tap_word(t->op_params + 2), 8) ^ tap_fold(tap_word(t->op_params + 4),
               tap_word(t->op_params + 6), 10));
}

// The graph's memory holds its inputs too, which lie before its first node.
static inline uintptr_t tap_reach(const struct tap_graph * g) { return g->span + 64 * 1024; }

bool tap_graph_mark(struct tap_graph * g) {
    const size_t n = (size_t) g->n_nodes + (size_t) g->n_leafs;
    g->formed = false;
    if (g->index == NULL || !tap_array_grow(&g->marks, &g->cap_marks, n, sizeof(g->marks[0])) ||
        !tap_array_grow(&g->changed, &g->cap_changed, n, sizeof(g->changed[0]))) {
        return false;
    }
    const uintptr_t reach = tap_reach(g);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ggml_tensor * t = g->nodes[i].tensor;
        g->marks[i] = (struct tap_mark) {.form = tap_node_form(t, g->nodes[i].name_bytes, g->low, reach),
            .shape = tap_shape(t)};
    }
    for (int i = 0; i < g->n_leafs; i++) {
        const struct ggml_tensor * t = g->leafs[i].tensor;
        g->marks[g->n_nodes + i] = (struct tap_mark) {.form = tap_form(t, g->leafs[i].name_bytes),
            .shape = tap_shape(t)};
    }
    memset(g->changed, 0, n);
    g->formed = true;
    return true;
}

// ---- the next graph -------------------------------------------------------------------------------------------------

// tap_shape_note compares a tensor's shape with its mark. It returns whether it has changed.
static inline bool tap_shape_note(struct tap_graph * g, size_t at, const struct ggml_tensor * t) {
    const uint64_t shape = tap_shape(t);
    const bool other = shape != g->marks[at].shape;
    g->marks[at].shape = shape;
    g->changed[at] |= other ? TAP_CHANGED_SHAPE : 0;
    return other;
}

// tap_nodes_alike compares nodes with their marks, and takes their tensors. shapes is set where one has another shape.
static bool tap_nodes_alike(struct tap_graph * g, struct ggml_cgraph * cgraph, uintptr_t low, bool * shapes) {
    const uintptr_t reach = tap_reach(g);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ggml_tensor * t = tap_real.ggml_graph_node(cgraph, i);
        struct tap_graph_node * n = &g->nodes[i];
        if (tap_node_form(t, n->name_bytes, low, reach) != g->marks[i].form) {
            return false;
        }
        n->tensor = t;
        *shapes |= tap_shape_note(g, (size_t) i, t);
    }
    return true;
}

// tap_leafs_alike does that for leafs. Those in the memory that the graph was built in have moved with it.
static bool tap_leafs_alike(struct tap_graph * g, uintptr_t low, bool * shapes) {
    const uintptr_t reach = tap_reach(g), moved = low - g->low;
    for (int i = 0; i < g->n_leafs; i++) {
        struct tap_graph_leaf * l = &g->leafs[i];
        if ((uintptr_t) l->tensor - g->low + reach <= 2 * reach) {
            l->tensor = (const struct ggml_tensor *) ((uintptr_t) l->tensor + moved);
        }
        if (tap_form(l->tensor, l->name_bytes) != g->marks[g->n_nodes + i].form) {
            return false;
        }
        *shapes |= tap_shape_note(g, (size_t) (g->n_nodes + i), l->tensor);
    }
    return true;
}

bool tap_graph_alike(struct tap_graph * g, struct ggml_cgraph * cgraph) {
    if (!g->formed || g->n_tokens == 0 || g->n_nodes == 0 || tap_real.ggml_graph_n_nodes(cgraph) != g->n_nodes) {
        return false;
    }
    g->formed = false; // until it is known to be
    const uintptr_t low = (uintptr_t) tap_real.ggml_graph_node(cgraph, 0) - ((uintptr_t) g->nodes[0].tensor - g->low);
    bool shapes = false;
    if (!tap_nodes_alike(g, cgraph, low, &shapes) || !tap_leafs_alike(g, low, &shapes)) {
        return false;
    }
    g->low = low;
    g->cgraph = cgraph;
    for (int i = 0; i < g->n_told; i++) {
        g->reported[i].tensor = g->leafs[g->reported[i].leaf].tensor;
    }
    const int32_t n_tokens = g->n_tokens, n_outputs = g->n_outputs;
    tap_graph_inputs(g);
    const bool rows = n_tokens != g->n_tokens || n_outputs != g->n_outputs;
    if (g->n_tokens == 0 || ((shapes || rows) && !tap_infer_again(g, rows))) {
        return false;
    }
    g->formed = g->described = true;
    return true;
}

// ---- places ---------------------------------------------------------------------------------------------------------

// tap_places is a walk over the tensors of a graph that was allocated.
struct tap_places {
    bool                  marks; // there are any
    uint8_t               all;   // TAP_CHANGED_PLACE: another buffer may be where one was
    ggml_backend_buffer_t last;  // most neighbours lie in one buffer
    bool                  last_host;
};

static inline void tap_place_note(struct tap_graph * g, const struct tap_places * p, size_t at,
                                  const struct ggml_tensor * t, ggml_backend_buffer_t buffer) {
    if (p->marks) {
        struct tap_mark * m = &g->marks[at];
        g->changed[at] |= m->data != t->data || m->buffer != buffer ? TAP_CHANGED_PLACE : p->all;
        m->data = t->data;
        m->buffer = buffer;
    }
}

static inline bool tap_place_host(struct tap_places * p, ggml_backend_buffer_t buffer) {
    if (buffer != p->last) {
        p->last = buffer;
        p->last_host = buffer == NULL || tap_real.ggml_backend_buffer_is_host(buffer);
    }
    return p->last_host;
}

void tap_graph_finish(struct tap_graph * g) {
    g->host_inputs = (g->tokens == NULL || tap_is_here(g->tokens)) && (g->pos == NULL || tap_is_here(g->pos)) &&
                     (g->out_ids == NULL || tap_is_here(g->out_ids));
    for (int i = 0; i < g->n_told; i++) {
        g->reported[i].host = tap_is_here(g->reported[i].tensor);
    }
    const uint64_t age = tap_get(&tap_buffers_age);
    struct tap_places p = {.marks = g->formed, .all = age != g->buffers ? TAP_CHANGED_PLACE : 0, .last_host = true};
    g->buffers = age;
    g->device = false;
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        ggml_backend_buffer_t buffer = tap_buffer_of(n->tensor);
        tap_place_note(g, &p, (size_t) i, n->tensor, buffer);
        if (n->wanted || n->routing || n->computed) {
            n->host = tap_place_host(&p, n->written_rows ? tap_buffer_of(n->tensor->src[0]) : buffer);
            g->device |= !n->host;
        }
    }
    for (int i = 0; i < g->n_leafs; i++) {
        const struct ggml_tensor * t = g->leafs[i].tensor;
        tap_place_note(g, &p, (size_t) (g->n_nodes + i), t, tap_buffer_of(t));
    }
}
