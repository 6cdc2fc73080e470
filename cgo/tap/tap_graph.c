//go:build llama

// tap_graph.c: what a graph is made of: nodes, leafs, who reads whom; and its description for the collector.
//
// Runs once per new graph, on the model's thread. Tables grow and are kept.
#define _GNU_SOURCE
#include "tap.h"

#include <stdlib.h>
#include <string.h>

// ---- tables ---------------------------------------------------------------------------------------------------------

static size_t tap_hash_pointer(const void * p) {
    uint64_t x = (uint64_t) (uintptr_t) p >> 4;
    x *= 0x9e3779b97f4a7c15ull;
    return (size_t) (x >> 20);
}

static void tap_map_put(struct tap_graph * g, const void * key, int32_t value) {
    size_t i = tap_hash_pointer(key) & (g->map_size - 1);
    while (g->map[i].key != NULL) {
        i = (i + 1) & (g->map_size - 1);
    }
    g->map[i] = (struct tap_map_slot) {key, value};
    g->map_used++;
}

// A tensor takes more bytes than this, so no two begin in the same piece of memory of that size.
enum { TAP_PIECE = 256 };
_Static_assert(sizeof(struct ggml_tensor) > TAP_PIECE, "two tensors may begin in one piece");

int32_t tap_graph_find(const struct tap_graph * g, const struct ggml_tensor * t) {
    const uintptr_t at = (uintptr_t) t - g->low;
    if (g->index != NULL && at <= g->span) {
        const int32_t i = g->index[at / TAP_PIECE] - 1;
        if (i >= 0 && g->nodes[i].tensor == t) {
            return i;
        }
    }
    size_t i = tap_hash_pointer(t) & (g->map_size - 1);
    while (g->map[i].key != NULL) {
        if (g->map[i].key == t) {
            return g->map[i].value;
        }
        i = (i + 1) & (g->map_size - 1);
    }
    return INT32_MIN;
}

// tap_array_grow makes room for n elements of a size.
static bool tap_array_grow(void * array, size_t * have, size_t n, size_t size) {
    if (n <= *have) {
        return true;
    }
    void ** at = array;
    void * grown = realloc(*at, n * size);
    if (grown == NULL) {
        return false;
    }
    *at = grown;
    *have = n;
    return true;
}

// tap_map_grow makes an empty table that is at most half full with n tensors: every search ends at a free place.
static bool tap_map_grow(struct tap_graph * g, size_t n) {
    size_t size = g->map_size != 0 ? g->map_size : 1024;
    while (size < n * 2) {
        size *= 2;
    }
    if (!tap_array_grow(&g->map, &g->map_size, size, sizeof(g->map[0]))) {
        return false;
    }
    memset(g->map, 0, g->map_size * sizeof(g->map[0]));
    g->map_used = 0;
    return true;
}

// tap_graph_index makes nodes known by their tensors. Those of one graph lie together, a few hundred bytes each: then a table by place finds them
// at once.
static bool tap_graph_index(struct tap_graph * g, uintptr_t low, uintptr_t high) {
    const size_t pieces = (high - low) / TAP_PIECE + 1;
    const bool near = g->n_nodes > 0 && pieces <= (size_t) g->n_nodes * 16 + 1024;
    g->low = low;
    g->span = high - low;
    g->index = NULL;
    if (!tap_map_grow(g, near ? (size_t) g->n_leafs : (size_t) g->n_nodes)) {
        return false;
    }
    if (near) {
        if (!tap_array_grow(&g->places, &g->cap_places, pieces, sizeof(g->places[0]))) {
            return false;
        }
        g->index = g->places;
        memset(g->index, 0, pieces * sizeof(g->index[0]));
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (near) {
            g->index[((uintptr_t) g->nodes[i].tensor - low) / TAP_PIECE] = i + 1;
        } else {
            tap_map_put(g, g->nodes[i].tensor, i);
        }
    }
    return true;
}

// tap_map_double makes room for another leaf.
static bool tap_map_double(struct tap_graph * g) {
    if (!tap_map_grow(g, g->map_size)) {
        return false;
    }
    for (int i = 0; g->index == NULL && i < g->n_nodes; i++) {
        tap_map_put(g, g->nodes[i].tensor, i);
    }
    for (int i = 0; i < g->n_leafs; i++) {
        tap_map_put(g, g->leafs[i].tensor, -1 - i);
    }
    return true;
}

static bool tap_leaf_add(struct tap_graph * g, const struct ggml_tensor * t) {
    if (g->n_leafs == g->cap_leafs) {
        const int cap = g->cap_leafs == 0 ? 256 : g->cap_leafs * 2;
        void * leafs = realloc(g->leafs, (size_t) cap * sizeof(g->leafs[0]));
        if (leafs == NULL) {
            return false;
        }
        g->leafs = leafs;
        g->cap_leafs = cap;
    }
    if ((g->map_used + 1) * 2 > g->map_size && !tap_map_double(g)) {
        return false;
    }
    struct tap_graph_leaf * l = &g->leafs[g->n_leafs];
    *l = (struct tap_graph_leaf) {
        .tensor = t, .input = (t->flags & GGML_TENSOR_FLAG_INPUT) != 0, .layer = -1, .name_bytes = (uint8_t) strnlen(t->name, TAP_NAME_SIZE),
    };
    tap_leaf_named(l);
    tap_map_put(g, t, -1 - g->n_leafs);
    g->n_leafs++;
    return true;
}

void tap_graph_release(struct tap_graph * g) {
    free(g->nodes);
    free(g->leafs);
    free(g->map);
    free(g->places);
    free(g->told);
    memset(g, 0, sizeof(*g));
}

// ---- reading --------------------------------------------------------------------------------------------------------

bool tap_is_view(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

static void tap_graph_inputs(struct tap_graph * g) {
    g->tokens = g->embd = g->pos = g->out_ids = NULL;
    for (int i = 0; i < g->n_leafs; i++) {
        const struct ggml_tensor * t = g->leafs[i].tensor;
        if (!g->leafs[i].input) {
            continue;
        }
        if (strcmp(t->name, "inp_tokens") == 0) {
            g->tokens = t;
        } else if (strcmp(t->name, "inp_embd") == 0) {
            g->embd = t;
        } else if (strcmp(t->name, "inp_pos") == 0) {
            g->pos = t;
        } else if (strcmp(t->name, "inp_out_ids") == 0 || strcmp(t->name, "out_ids") == 0) {
            g->out_ids = t;
        }
    }
    g->n_tokens = g->tokens != NULL ? (int32_t) g->tokens->ne[0] : g->embd != NULL ? (int32_t) g->embd->ne[1] : 0;
    g->n_outputs = g->out_ids != NULL ? (int32_t) g->out_ids->ne[0] : -1;
}

// tap_count_occurrences numbers the nodes that share name and op. Names are hashed, and those of equal hashes compared.
static void tap_count_occurrences(struct tap_graph * g) {
    enum { BUCKETS = 1024 };
    int32_t last[BUCKETS] = {0}; // newest node of each bucket, +1
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        n->occurrence = 1;
        uint32_t h = 2166136261u ^ (uint32_t) n->tensor->op;
        const char * c = n->tensor->name;
        for (; *c != 0; c++) {
            h = (h ^ (uint8_t) *c) * 16777619u;
        }
        n->name_bytes = (uint8_t) (c - n->tensor->name);
        h = (h ^ h >> 15) & (BUCKETS - 1);
        for (int32_t j = last[h]; j != 0; j = g->nodes[j - 1].before) {
            const struct tap_graph_node * o = &g->nodes[j - 1];
            if (o->tensor->op == n->tensor->op && o->name_bytes == n->name_bytes && memcmp(o->tensor->name, n->tensor->name, n->name_bytes) == 0) {
                n->occurrence = (uint16_t) (o->occurrence + 1);
                break;
            }
        }
        n->before = last[h];
        last[h] = i + 1;
    }
}

// tap_graph_nodes notes the nodes.
static bool tap_graph_nodes(struct tap_graph * g, struct ggml_cgraph * cgraph, int n) {
    size_t have = (size_t) g->cap_nodes;
    if (!tap_array_grow(&g->nodes, &have, (size_t) n, sizeof(g->nodes[0]))) {
        return false;
    }
    g->cap_nodes = (int) have;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < n; i++) {
        const struct ggml_tensor * t = tap_real.ggml_graph_node(cgraph, i);
        const bool view = tap_is_view(t->op);
        g->nodes[i] = (struct tap_graph_node) {
            .tensor = t, .layer = -1, .alias = -1, .first_consumer = -1, .glob = -1,
            .view = view, .computed = (t->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !view, .written_rows = t->op == GGML_OP_SET_ROWS,
        };
        g->flash |= t->op == GGML_OP_FLASH_ATTN_EXT;
        low = (uintptr_t) t < low ? (uintptr_t) t : low;
        high = (uintptr_t) t > high ? (uintptr_t) t : high;
    }
    return tap_graph_index(g, n > 0 ? low : 0, high);
}

// tap_graph_sources notes what node i reads.
static bool tap_graph_sources(struct tap_graph * g, int i) {
    struct tap_graph_node * n = &g->nodes[i];
    const struct ggml_tensor * t = n->tensor;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        const struct ggml_tensor * s = t->src[k];
        n->src[k] = INT32_MIN;
        if (s == NULL) {
            continue;
        }
        const int32_t at = tap_graph_find(g, s);
        if (at == INT32_MIN && !tap_leaf_add(g, s)) {
            return false;
        }
        n->src[k] = at == INT32_MIN ? -g->n_leafs : at;
        n->n_src = (uint8_t) (k + 1);
        // A node that is never computed consumes nothing, except a view, through which others read.
        if (at >= 0 && g->nodes[at].first_consumer < 0 && (n->computed || n->view)) {
            g->nodes[at].first_consumer = i;
        }
    }
    return true;
}

bool tap_graph_describe(struct tap_graph * g, struct ggml_cgraph * cgraph) {
    const int n = tap_real.ggml_graph_n_nodes(cgraph);
    g->cgraph = cgraph;
    g->sent = g->described = g->flash = false;
    g->n_leafs = 0;
    g->n_wanted = g->n_inputs_wanted = 0;
    g->n_timed = g->n_routing = g->n_told = 0;
    g->n_nodes = n;
    if (!tap_graph_nodes(g, cgraph, n)) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (!tap_graph_sources(g, i)) {
            return false;
        }
    }
    tap_graph_inputs(g);
    tap_count_occurrences(g);
    tap_infer(g);
    g->described = true;
    return true;
}

bool tap_is_here(const struct ggml_tensor * t) {
    ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    return buffer == NULL || tap_real.ggml_backend_buffer_is_host(buffer);
}

void tap_graph_finish(struct tap_graph * g) {
    g->host_inputs = (g->tokens == NULL || tap_is_here(g->tokens)) && (g->pos == NULL || tap_is_here(g->pos)) &&
                     (g->out_ids == NULL || tap_is_here(g->out_ids));
    for (int i = 0; i < g->n_told; i++) {
        g->told[i].host = tap_is_here(g->told[i].tensor);
    }
    ggml_backend_buffer_t last = NULL; // most neighbours lie in one buffer
    bool last_host = true;
    g->device = false;
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        if (!n->wanted && !n->routing && !n->computed) {
            continue;
        }
        const struct ggml_tensor * t = n->written_rows ? n->tensor->src[0] : n->tensor;
        ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
        if (buffer != last) {
            last = buffer;
            last_host = buffer == NULL || tap_real.ggml_backend_buffer_is_host(buffer);
        }
        n->host = last_host;
        g->device |= !last_host;
    }
}

// ---- sending --------------------------------------------------------------------------------------------------------

// tap_chunk gathers nodes or leafs until the record is full.
struct tap_chunk {
    struct tap_rec_nodes head;
    size_t               n;
    _Alignas(8) uint8_t  bytes[8 * 1024]; // it lies on the stack
};

static bool tap_chunk_flush(struct tap_chunk * c, uint32_t next) {
    bool ok = true;
    if (c->head.count != 0) {
        const struct tap_part part = {c->bytes, c->n};
        ok = tap_queue_put(&c->head.h, sizeof(c->head), &part, 1);
    }
    c->head.first = next;
    c->head.count = 0;
    c->n = 0;
    return ok;
}

static uint8_t * tap_put_string(uint8_t * at, const char * s, size_t n) {
    memcpy(at, s, n);
    return at + n;
}

// tap_encoded ends an entry that begins at out, and returns how long it is.
static uint32_t tap_encoded(const uint8_t * out, const uint8_t * end) { return (uint32_t) (((size_t) (end - out) + 7) & ~(size_t) 7); }

static size_t tap_encode_node(const struct tap_graph * g, struct tap_nearby * near, int i, uint8_t * out) {
    const struct tap_graph_node * n = &g->nodes[i];
    const struct ggml_tensor * t = n->tensor;
    const char * op = tap_real.ggml_op_desc(t);
    struct tap_node * e = (struct tap_node *) out;
    *e = (struct tap_node) {
        .layer = n->layer, .component = n->component, .rows = n->rows, .row_dim = n->row_dim, .inferred = n->inferred,
        .flags = (uint8_t) (n->view | n->wanted << 1 | n->computed << 2 | (n->alias >= 0) << 3 | n->routing << 4),
        .occurrence = n->occurrence, .type = (uint16_t) t->type, .name_bytes = n->name_bytes, .op_bytes = (uint8_t) strnlen(op, 32),
    };
    tap_where(near, t, &e->buffer, &e->offset);
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        e->ne[d] = t->ne[d];
        e->nb[d] = t->nb[d];
    }
    memcpy(e->op_params, t->op_params, sizeof(e->op_params));
    uint8_t * at = out + sizeof(*e);
    for (int k = 0; k < n->n_src; k++) {
        if (n->src[k] != INT32_MIN) {
            memcpy(at, &n->src[k], sizeof(n->src[k]));
            at += sizeof(n->src[k]);
            e->n_src++;
            e->slots |= (uint16_t) (1u << k);
        }
    }
    memcpy(at, &n->alias, sizeof(n->alias));
    at = tap_put_string(at + sizeof(n->alias), t->name, e->name_bytes);
    at = tap_put_string(at, op, e->op_bytes);
    return e->bytes = tap_encoded(out, at);
}

static size_t tap_encode_leaf(const struct tap_graph * g, struct tap_nearby * near, int i, uint8_t * out) {
    const struct tap_graph_leaf * l = &g->leafs[i];
    const struct ggml_tensor * t = l->tensor;
    struct tap_leaf * e = (struct tap_leaf *) out;
    *e = (struct tap_leaf) {.type = (uint16_t) t->type, .input = l->input, .name_bytes = l->name_bytes};
    tap_where(near, t, &e->buffer, &e->offset);
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        e->ne[d] = t->ne[d];
        e->nb[d] = t->nb[d];
    }
    return e->bytes = tap_encoded(out, tap_put_string(out + sizeof(*e), t->name, e->name_bytes));
}

bool tap_graph_send(struct tap_graph * g, uint32_t ctx) {
    struct tap_rec_graph head = {
        .h.type = TAP_REC_GRAPH, .graph = g->id, .ctx = ctx, .n_nodes = (uint32_t) g->n_nodes, .n_leafs = (uint32_t) g->n_leafs,
        .n_wanted = (uint32_t) g->n_wanted, .n_tokens = g->n_tokens, .n_outputs = g->n_outputs,
        .selection = g->selection, .attention = g->attention,
    };
    bool ok = tap_queue_put(&head.h, sizeof(head), NULL, 0);
    enum { LARGEST = sizeof(struct tap_node) + 4 * (GGML_MAX_SRC + 1) + TAP_NAME_SIZE + 32 + 8 };
    struct tap_nearby near = {0};
    struct tap_chunk chunk;
    const size_t limit = tap_queue_largest() / 2 < sizeof(chunk.bytes) ? tap_queue_largest() / 2 : sizeof(chunk.bytes);
    for (int pass = 0; pass < 2; pass++) {
        const int n = pass == 0 ? g->n_nodes : g->n_leafs;
        chunk.head = (struct tap_rec_nodes) {.h.type = pass == 0 ? TAP_REC_NODES : TAP_REC_LEAFS, .graph = g->id};
        chunk.n = 0;
        for (int i = 0; ok && i < n; i++) {
            if (chunk.n + LARGEST > limit) {
                ok = tap_chunk_flush(&chunk, (uint32_t) i);
            }
            uint8_t * at = chunk.bytes + chunk.n;
            chunk.n += pass == 0 ? tap_encode_node(g, &near, i, at) : tap_encode_leaf(g, &near, i, at);
            chunk.head.count++;
        }
        ok = ok && tap_chunk_flush(&chunk, (uint32_t) n);
    }
    g->sent = ok;
    return ok;
}
