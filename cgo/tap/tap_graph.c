//go:build llama

// tap_graph.c: what a graph is made of: nodes, leafs, who reads whom, what is wanted; and its description for the collector.
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
}

int32_t tap_graph_find(const struct tap_graph * g, const struct ggml_tensor * t) {
    size_t i = tap_hash_pointer(t) & (g->map_size - 1);
    while (g->map[i].key != NULL) {
        if (g->map[i].key == t) {
            return g->map[i].value;
        }
        i = (i + 1) & (g->map_size - 1);
    }
    return INT32_MIN;
}

// tap_graph_grow makes room for n nodes and as many leafs as they can have.
static bool tap_graph_grow(struct tap_graph * g, int n) {
    if (n > g->cap_nodes) {
        void * nodes = realloc(g->nodes, (size_t) n * sizeof(g->nodes[0]));
        if (nodes == NULL) {
            return false;
        }
        g->nodes = nodes;
        g->cap_nodes = n;
    }
    size_t size = 64;
    while (size < (size_t) n * 4) {
        size *= 2;
    }
    if (size > g->map_size) {
        void * map = malloc(size * sizeof(g->map[0]));
        if (map == NULL) {
            return false;
        }
        free(g->map);
        g->map = map;
        g->map_size = size;
    }
    memset(g->map, 0, g->map_size * sizeof(g->map[0]));
    return true;
}

// tap_map_double keeps the table at most half full: every search ends at a free place.
static bool tap_map_double(struct tap_graph * g) {
    struct tap_map_slot * map = calloc(g->map_size * 2, sizeof(map[0]));
    if (map == NULL) {
        return false;
    }
    free(g->map);
    g->map = map;
    g->map_size *= 2;
    for (int i = 0; i < g->n_nodes; i++) {
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
    if ((size_t) (g->n_nodes + g->n_leafs) * 2 > g->map_size && !tap_map_double(g)) {
        return false;
    }
    const struct tap_graph_leaf leaf = {.tensor = t, .input = (t->flags & GGML_TENSOR_FLAG_INPUT) != 0};
    g->leafs[g->n_leafs] = leaf;
    tap_map_put(g, t, -1 - g->n_leafs);
    g->n_leafs++;
    return true;
}

void tap_graph_release(struct tap_graph * g) {
    free(g->nodes);
    free(g->leafs);
    free(g->map);
    memset(g, 0, sizeof(*g));
}

// ---- reading --------------------------------------------------------------------------------------------------------

static bool tap_is_view(enum ggml_op op) {
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
        for (const char * c = n->tensor->name; *c != 0; c++) {
            h = (h ^ (uint8_t) *c) * 16777619u;
        }
        h = (h ^ h >> 15) & (BUCKETS - 1);
        for (int32_t j = last[h]; j != 0; j = g->nodes[j - 1].before) {
            const struct tap_graph_node * o = &g->nodes[j - 1];
            if (o->tensor->op == n->tensor->op && strcmp(o->tensor->name, n->tensor->name) == 0) {
                n->occurrence = (uint16_t) (o->occurrence + 1);
                break;
            }
        }
        n->before = last[h];
        last[h] = i + 1;
    }
}

bool tap_graph_describe(struct tap_graph * g, struct ggml_cgraph * cgraph) {
    const int n = tap_real.ggml_graph_n_nodes(cgraph);
    g->cgraph = cgraph;
    g->sent = false;
    g->described = false;
    g->flash = false;
    g->n_leafs = 0;
    g->n_wanted = 0;
    g->n_inputs_wanted = 0;
    g->n_nodes = n;
    if (!tap_graph_grow(g, n)) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        const struct ggml_tensor * t = tap_real.ggml_graph_node(cgraph, i);
        const struct tap_graph_node node = {
            .tensor = t, .layer = -1, .alias = -1, .first_consumer = -1, .glob = -1,
            .view = tap_is_view(t->op), .computed = (t->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !tap_is_view(t->op),
            .written_rows = t->op == GGML_OP_SET_ROWS,
        };
        g->nodes[i] = node;
        g->flash |= t->op == GGML_OP_FLASH_ATTN_EXT;
        tap_map_put(g, t, i);
    }
    for (int i = 0; i < n; i++) {
        const struct ggml_tensor * t = g->nodes[i].tensor;
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            const struct ggml_tensor * s = t->src[k];
            g->nodes[i].src[k] = INT32_MIN;
            if (s == NULL) {
                continue;
            }
            const int32_t at = tap_graph_find(g, s);
            if (at == INT32_MIN && !tap_leaf_add(g, s)) {
                return false;
            }
            g->nodes[i].src[k] = at == INT32_MIN ? -g->n_leafs : at;
            // A node that is never computed consumes nothing, except a view, through which others read.
            if (at >= 0 && g->nodes[at].first_consumer < 0 && (g->nodes[i].computed || g->nodes[i].view)) {
                g->nodes[at].first_consumer = i;
            }
        }
    }
    tap_graph_inputs(g);
    tap_count_occurrences(g);
    tap_infer(g);
    g->described = true;
    return true;
}

void tap_graph_finish(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        if (!n->wanted) {
            continue;
        }
        const struct ggml_tensor * t = n->written_rows ? n->tensor->src[0] : n->tensor;
        ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
        n->host = buffer == NULL || tap_real.ggml_backend_buffer_is_host(buffer);
    }
}

// ---- selecting ------------------------------------------------------------------------------------------------------

static bool tap_set_match(const char ** pattern, char c) {
    const char * p = *pattern + 1;
    const bool not = *p == '!' || *p == '^';
    p += not;
    bool hit = false;
    for (bool first = true; *p != 0 && (first || *p != ']'); first = false) {
        if (p[1] == '-' && p[2] != 0 && p[2] != ']') {
            hit |= p[0] <= c && c <= p[2];
            p += 3;
        } else {
            hit |= *p++ == c;
        }
    }
    *pattern = *p == ']' ? p + 1 : p;
    return hit != not;
}

bool tap_glob_match(const char * pattern, const char * text, size_t n) {
    const char * star = NULL;
    size_t at = 0, star_at = 0;
    for (;;) {
        const char * p = pattern;
        bool ok = false;
        if (*p == '*') {
            star = ++pattern;
            star_at = at;
            continue;
        }
        if (at == n) {
            if (*p == 0) {
                return true;
            }
        } else if (*p == '[') {
            ok = tap_set_match(&p, text[at]);
        } else {
            ok = *p != 0 && (*p == '?' || *p == text[at]);
            p += *p != 0;
        }
        if (ok) {
            pattern = p;
            at++;
        } else if (star != NULL && star_at < n) {
            pattern = star;
            at = ++star_at;
        } else {
            return false;
        }
    }
}

// tap_first_glob returns the first glob that the name matches, with its layer suffix or without, or -1.
static int tap_first_glob(const struct tap_config * config, const char * name, _Atomic uint32_t * hits) {
    const size_t n = strlen(name);
    size_t base = n;
    if (tap_name_layer(name) >= 0) {
        const char * dash = strrchr(name, '-');
        base = dash != NULL ? (size_t) (dash - name) : n;
    }
    int first = -1;
    for (uint32_t i = 0; i < config->n_globs; i++) {
        if (tap_glob_match(config->globs[i], name, n) || (base != n && tap_glob_match(config->globs[i], name, base))) {
            if (hits != NULL) {
                atomic_fetch_add_explicit(&hits[i], 1, memory_order_relaxed);
            }
            first = first < 0 ? (int) i : first;
        }
    }
    return first;
}

static bool tap_layer_wanted(const struct tap_config * config, int32_t layer) {
    if (!config->layers_set) {
        return true;
    }
    return layer >= 0 && layer < TAP_LAYER_WORDS * 64 && (config->layers[layer / 64] >> (layer % 64) & 1);
}

static bool tap_component_wanted(const struct tap_config * config, uint8_t component) {
    switch (config->granularity) {
        case TAP_ATTENTION_ONLY: return component == TAP_ATTENTION;
        case TAP_MLP_ONLY:       return component == TAP_MLP;
        default:                 return true;
    }
}

// tap_view_root returns the number of the node or leaf whose bytes a view shows.
static int32_t tap_view_root(const struct tap_graph * g, const struct ggml_tensor * t) {
    while (tap_is_view(t->op) && t->src[0] != NULL) {
        t = t->src[0];
    }
    return tap_graph_find(g, t);
}

static bool tap_unnamed(const struct ggml_tensor * t) {
    return strncmp(t->name, "node_", 5) == 0 && t->name[5] >= '0' && t->name[5] <= '9';
}

static bool tap_dense(const struct ggml_tensor * t) {
    size_t bytes = tap_real.ggml_type_size(t->type);
    if (t->nb[0] != bytes) {
        return false;
    }
    bytes *= (size_t) (t->ne[0] / tap_real.ggml_blck_size(t->type));
    for (int d = 1; d < TAP_MAX_DIMS; d++) {
        if (t->ne[d] != 1 && t->nb[d] != bytes) {
            return false;
        }
        bytes *= (size_t) t->ne[d];
    }
    return true;
}

static int64_t tap_elements(const struct ggml_tensor * t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

// tap_want marks node i. An unnamed node takes name and shape of the named view on it, where both show the same bytes.
static void tap_want(struct tap_graph * g, int i) {
    struct tap_graph_node * n = &g->nodes[i];
    if (!n->wanted) {
        n->wanted = true;
        g->n_wanted++;
    }
}

// tap_alias_views lets a named view lend its name to the unnamed node behind it.
static void tap_alias_views(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tap_graph_node * n = &g->nodes[i];
        if (!n->view || n->tensor->src[0] == NULL || tap_unnamed(n->tensor) || strstr(n->tensor->name, " (") != NULL) {
            continue;
        }
        const int32_t root = tap_view_root(g, n->tensor);
        if (root < 0 || g->nodes[root].alias >= 0 || !g->nodes[root].computed || !tap_unnamed(g->nodes[root].tensor)) {
            continue;
        }
        const struct ggml_tensor * r = g->nodes[root].tensor;
        if (tap_dense(n->tensor) && tap_dense(r) && tap_elements(r) == tap_elements(n->tensor) && r->type == n->tensor->type) {
            g->nodes[root].alias = i;
        }
    }
}

static void tap_select_attention(struct tap_graph * g, const struct tap_config * config, int i) {
    struct tap_graph_node * n = &g->nodes[i];
    if (!tap_layer_wanted(config, n->layer)) {
        return;
    }
    const enum ggml_op op = n->tensor->op;
    if (op == GGML_OP_SOFT_MAX && n->component == TAP_ATTENTION) {
        tap_want(g, i); // no flash attention: the run's own soft-max
        return;
    }
    if (config->attention != TAP_ATTENTION_KEEP) {
        return;
    }
    if (op == GGML_OP_FLASH_ATTN_EXT) {
        const int32_t q = tap_view_root(g, n->tensor->src[0]);
        if (q >= 0) {
            tap_want(g, q);
        }
        const int32_t mask = n->tensor->src[3] != NULL ? tap_view_root(g, n->tensor->src[3]) : INT32_MIN;
        if (mask >= 0) {
            tap_want(g, mask); // a mask that the graph computes (a cast)
        } else if (mask != INT32_MIN) {
            g->leafs[-1 - mask].wanted = true;
        }
        const int32_t sinks = n->tensor->src[4] != NULL ? tap_graph_find(g, n->tensor->src[4]) : INT32_MIN;
        if (sinks < 0 && sinks != INT32_MIN) {
            g->leafs[-1 - sinks].wanted = true;
        }
    } else if (op == GGML_OP_SET_ROWS && g->flash && strncmp(n->tensor->name, "cache_k_l", 9) == 0) {
        tap_want(g, i);
        const int32_t rows = tap_graph_find(g, n->tensor->src[1]);
        if (rows < 0 && rows != INT32_MIN) {
            g->leafs[-1 - rows].wanted = true;
        }
    }
}

void tap_graph_select(struct tap_graph * g, const struct tap_config * config, _Atomic uint32_t * hits) {
    if (!(config->record & TAP_RECORD_ACTIVATIONS) || g->n_tokens == 0) {
        return;
    }
    const bool only_attention = (config->record & TAP_RECORD_MAPS_ALONE) != 0;
    tap_alias_views(g);
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        if (config->attention != TAP_ATTENTION_NONE) {
            tap_select_attention(g, config, i);
        }
        if (only_attention) {
            continue;
        }
        const bool allowed = tap_layer_wanted(config, n->layer) && tap_component_wanted(config, n->component);
        if (config->n_globs == 0) {
            if (n->computed && allowed) {
                tap_want(g, i);
            }
            continue;
        }
        n->glob = (int8_t) tap_first_glob(config, n->tensor->name, hits);
        if (n->glob < 0 || !allowed) {
            continue;
        }
        if (n->computed) {
            tap_want(g, i);
        } else if (n->view && n->tensor->src[0] != NULL) {
            const int32_t root = tap_view_root(g, n->tensor);
            if (root >= 0 && g->nodes[root].computed && !g->nodes[root].written_rows) {
                tap_want(g, g->nodes[root].alias == i ? root : i);
            }
        }
    }
    for (int i = 0; i < g->n_leafs; i++) {
        g->n_inputs_wanted += g->leafs[i].wanted;
    }
}

// ---- sending --------------------------------------------------------------------------------------------------------

// tap_chunk gathers nodes or leafs until the record is full.
struct tap_chunk {
    struct tap_rec_nodes head;
    size_t               n;
    uint8_t              bytes[32 * 1024];
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

static size_t tap_encode_node(const struct tap_graph * g, int i, uint8_t * out) {
    const struct tap_graph_node * n = &g->nodes[i];
    const struct ggml_tensor * t = n->tensor;
    struct tap_node e = {
        .layer = n->layer, .component = n->component, .rows = n->rows, .row_dim = n->row_dim, .inferred = n->inferred,
        .flags = (uint8_t) (n->view | n->wanted << 1 | n->computed << 2 | (n->alias >= 0) << 3),
        .occurrence = n->occurrence, .type = (uint16_t) t->type,
    };
    const char * op = tap_real.ggml_op_desc(t);
    e.name_bytes = (uint8_t) strnlen(t->name, TAP_NAME_SIZE);
    e.op_bytes = (uint8_t) strnlen(op, 32);
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        e.ne[d] = t->ne[d];
        e.nb[d] = t->nb[d];
    }
    memcpy(e.op_params, t->op_params, sizeof(e.op_params));
    uint8_t * at = out + sizeof(e);
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        const int32_t src = n->src[k];
        if (src != INT32_MIN) {
            memcpy(at, &src, sizeof(src));
            at += sizeof(src);
            e.n_src++;
        }
    }
    const int32_t alias = n->alias;
    memcpy(at, &alias, sizeof(alias));
    at += sizeof(alias);
    at = tap_put_string(at, t->name, e.name_bytes);
    at = tap_put_string(at, op, e.op_bytes);
    e.bytes = (uint32_t) (((size_t) (at - out) + 7) & ~(size_t) 7);
    memcpy(out, &e, sizeof(e));
    return e.bytes;
}

static size_t tap_encode_leaf(const struct tap_graph * g, int i, uint8_t * out) {
    const struct ggml_tensor * t = g->leafs[i].tensor;
    struct tap_leaf e = {
        .type = (uint16_t) t->type, .input = g->leafs[i].input, .name_bytes = (uint8_t) strnlen(t->name, TAP_NAME_SIZE),
    };
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        e.ne[d] = t->ne[d];
        e.nb[d] = t->nb[d];
    }
    uint8_t * at = tap_put_string(out + sizeof(e), t->name, e.name_bytes);
    e.bytes = (uint32_t) (((size_t) (at - out) + 7) & ~(size_t) 7);
    memcpy(out, &e, sizeof(e));
    return e.bytes;
}

bool tap_graph_send(struct tap_graph * g, uint32_t ctx) {
    struct tap_rec_graph head = {
        .h.type = TAP_REC_GRAPH, .graph = g->id, .ctx = ctx, .n_nodes = (uint32_t) g->n_nodes, .n_leafs = (uint32_t) g->n_leafs,
        .n_wanted = (uint32_t) g->n_wanted, .n_tokens = g->n_tokens, .n_outputs = g->n_outputs,
    };
    bool ok = tap_queue_put(&head.h, sizeof(head), NULL, 0);
    enum { LARGEST = sizeof(struct tap_node) + 4 * (GGML_MAX_SRC + 1) + TAP_NAME_SIZE + 32 + 8 };
    static _Thread_local struct tap_chunk chunk;
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
            chunk.n += pass == 0 ? tap_encode_node(g, i, at) : tap_encode_leaf(g, i, at);
            chunk.head.count++;
        }
        ok = ok && tap_chunk_flush(&chunk, (uint32_t) n);
    }
    g->sent = ok;
    return ok;
}
