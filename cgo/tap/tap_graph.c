//go:build llama

// tap_graph.c: what a graph is made of: nodes, leafs, who reads whom; and its description for the collector.
//
// Runs once per new graph, on the model's thread. Tables grow and are kept.
#define _GNU_SOURCE
#include "tap_graph.h"
#include "tap_real.h"

#include <limits.h>
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

bool tap_array_grow(void * array, size_t * have, size_t n, size_t size) {
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

// tap_graph_index makes nodes known by their tensors. Those of one graph lie together, a few hundred bytes each:
// then a table by place finds them at once.
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
        .tensor = t, .input = (t->flags & GGML_TENSOR_FLAG_INPUT) != 0, .layer = -1,
        .name_bytes = (uint8_t) strnlen(t->name, TAP_NAME_SIZE),
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
    if (g->reported != g->few_reported) {
        free(g->reported);
    }
    free(g->marks);
    free(g->changed);
    memset(g, 0, sizeof(*g));
}

// ---- reading --------------------------------------------------------------------------------------------------------

bool tap_is_view(enum ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE ||
        op == GGML_OP_TRANSPOSE;
}

void tap_graph_inputs(struct tap_graph * g) {
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

static bool tap_unnamed(const struct ggml_tensor * t) {
    return strncmp(t->name, "node_", 5) == 0 && t->name[5] >= '0' && t->name[5] <= '9';
}

int32_t tap_view_root(const struct tap_graph * g, int32_t i) {
    while (i >= 0 && g->nodes[i].view && g->nodes[i].src[0] != INT32_MIN) {
        i = g->nodes[i].src[0];
    }
    return i;
}

// tap_reshaped follows reshapes from node i to the node that they show, or returns -1. A reshape shows all of what
// it reads, in the same order.
static int32_t tap_reshaped(const struct tap_graph * g, int32_t i) {
    while (i >= 0 && g->nodes[i].tensor->op == GGML_OP_RESHAPE) {
        i = g->nodes[i].src[0] == INT32_MIN ? -1 : g->nodes[i].src[0];
    }
    return i;
}

// tap_alias_views lets a named view lend its name to the unnamed node that it reshapes. Which one that is follows
// from the graph's form alone: a graph of one token has the same names as one of many.
static void tap_alias_views(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ggml_tensor * t = g->nodes[i].tensor;
        if (t->op != GGML_OP_RESHAPE || tap_unnamed(t) || strstr(t->name, " (") != NULL) {
            continue;
        }
        const int32_t root = tap_reshaped(g, i);
        if (root >= 0 && g->nodes[root].alias < 0 && g->nodes[root].computed && tap_unnamed(g->nodes[root].tensor)) {
            g->nodes[root].alias = i;
        }
    }
}

enum { TAP_NAME_BUCKETS = 1024 };

static bool tap_same_name(const struct tap_graph_node * a, const struct tap_graph_node * b) {
    return a->name_bytes == b->name_bytes && memcmp(a->tensor->name, b->tensor->name, a->name_bytes) == 0;
}

// tap_count_occurrences numbers the nodes that share name and op. Names are hashed, and those of equal hashes compared.
static void tap_count_occurrences(struct tap_graph * g) {
    int32_t last[TAP_NAME_BUCKETS] = {0}; // newest node of each bucket, +1
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        uint32_t h = 2166136261u;
        const char * c = n->tensor->name;
        for (; *c != 0; c++) {
            h = (h ^ (uint8_t) *c) * 16777619u;
        }
        n->name_bytes = (uint8_t) (c - n->tensor->name);
        n->bucket = (h ^ h >> 15) & (TAP_NAME_BUCKETS - 1);
        n->occurrence = 1;
        for (int32_t j = last[n->bucket]; j != 0; j = g->nodes[j - 1].before) {
            const struct tap_graph_node * o = &g->nodes[j - 1];
            if (o->tensor->op == n->tensor->op && tap_same_name(o, n)) {
                n->occurrence = (uint16_t) (o->occurrence + 1);
                break;
            }
        }
        n->before = last[n->bucket];
        last[n->bucket] = i + 1;
    }
}

const struct tap_graph_node * tap_shown(const struct tap_graph * g, const struct tap_graph_node * n) {
    return n->alias >= 0 ? &g->nodes[n->alias] : n;
}

// tap_count_names numbers the nodes that are shown under one name: first those that compute, then the others. A
// view that lends its name to a node has that node's number.
static void tap_count_names(struct tap_graph * g) {
    int32_t last[TAP_NAME_BUCKETS] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < g->n_nodes; i++) {
            struct tap_graph_node * n = &g->nodes[i];
            if (n->computed != (pass == 0)) {
                continue;
            }
            const int32_t root = n->view ? tap_reshaped(g, i) : -1;
            if (root >= 0 && g->nodes[root].alias == i) {
                n->number = g->nodes[root].number;
                continue;
            }
            const struct tap_graph_node * shown = tap_shown(g, n);
            n->number = 1;
            for (int32_t j = last[shown->bucket]; j != 0; j = g->nodes[j - 1].before) {
                const struct tap_graph_node * o = &g->nodes[j - 1];
                if (tap_same_name(tap_shown(g, o), shown)) {
                    n->number = (uint16_t) (o->number + 1);
                    break;
                }
            }
            n->before = last[shown->bucket];
            last[shown->bucket] = i + 1;
        }
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
            .view = view, .computed = (t->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !view,
            .written_rows = t->op == GGML_OP_SET_ROWS,
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
    g->sent = g->described = g->flash = g->selected = g->captures = g->formed = false;
    g->like = 0;
    g->n_leafs = 0;
    g->n_wanted = g->n_inputs_wanted = 0;
    g->end = INT_MAX;
    g->n_timed = g->n_routing = g->n_told = 0;
    g->n_cut = g->n_kept = g->n_flagged = 0;
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
    tap_alias_views(g);
    tap_count_occurrences(g);
    tap_count_names(g);
    tap_infer(g);
    tap_graph_mark(g); // without marks the next one is described as this one was
    g->described = true;
    return true;
}

bool tap_is_here(const struct ggml_tensor * t) {
    ggml_backend_buffer_t buffer = tap_buffer_of(t);
    return buffer == NULL || tap_real.ggml_backend_buffer_is_host(buffer);
}
