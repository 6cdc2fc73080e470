//go:build llama

// tap_infer.c: layer, component and row dimension of every node, inferred from the graph.
//
// Names of nodes differ between architectures and are often missing; the GGUF names of weights are stable. So a
// node takes its place from the weight or cache that it reads, else from its op, else from its own name, else from
// the first node that reads it, else from a node that it reads. Runs once per new graph.
#define _GNU_SOURCE
#include "tap_graph.h"
#include "tap_real.h"

#include <stdlib.h>
#include <string.h>

int32_t tap_name_layer(const char * name, size_t n) {
    size_t at = n;
    int32_t number = 0;
    for (int32_t unit = 1; at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9'; unit *= 10) {
        if (n - --at > 5) {
            return -1;
        }
        number += unit * (name[at] - '0');
    }
    if (at == n || at == 0) {
        return -1;
    }
    const bool dash = name[at - 1] == '-';
    const bool cache = name[at - 1] == 'l' && at >= 2 && name[at - 2] == '_';
    return dash || cache ? number : -1;
}

// ---- names that are stable ------------------------------------------------------------------------------------------

struct tap_prefix {
    char    prefix[16];
    uint8_t component;
};

static int tap_prefix_find(const struct tap_prefix * table, size_t n, const char * name) {
    for (size_t i = 0; i < n; i++) {
        if (name[0] == table[i].prefix[0] && strncmp(name, table[i].prefix, strlen(table[i].prefix)) == 0) {
            return table[i].component;
        }
    }
    return -1;
}

#define TAP_PREFIX_FIND(table, name) tap_prefix_find(table, sizeof(table) / sizeof((table)[0]), name)

// Weights of a layer, by what follows "blk.N." in the GGUF name.
static const struct tap_prefix tap_block_weights[] = {
    {"attn_", TAP_ATTENTION}, {"post_attention", TAP_ATTENTION}, {"attention", TAP_ATTENTION},
    {"cross_attn", TAP_ATTENTION},
    {"rope_", TAP_ATTENTION}, {"indexer", TAP_ATTENTION}, {"ffn_", TAP_MLP}, {"post_ffw", TAP_MLP},
    {"post_mlp", TAP_MLP},
    {"exp_probs", TAP_MLP}, {"channel_mix", TAP_MLP}, {"ssm_", TAP_SSM}, {"time_mix", TAP_SSM}, {"shortconv", TAP_SSM},
    {"layer_out", TAP_RESIDUAL}, {"layer_output", TAP_RESIDUAL},
};

// Weights outside of layers.
static const struct tap_prefix tap_global_weights[] = {
    {"token_embd", TAP_INPUT}, {"token_types", TAP_INPUT}, {"position_embd", TAP_INPUT}, {"per_layer_", TAP_INPUT},
    {"output", TAP_OUTPUT}, {"cls", TAP_OUTPUT}, {"dense_", TAP_OUTPUT},
};

// Memories of a layer.
static const struct tap_prefix tap_caches[] = {
    {"cache_k_l", TAP_ATTENTION}, {"cache_v_l", TAP_ATTENTION}, {"cache_r_l", TAP_SSM}, {"cache_s_l", TAP_SSM},
};

// Roles that llama.cpp's callbacks name. They decide only where no weight, cache or op does.
static const struct tap_prefix tap_roles[] = {
    {"l_out", TAP_RESIDUAL}, {"ffn_inp", TAP_RESIDUAL}, {"sa_out", TAP_RESIDUAL}, {"ffn_", TAP_MLP}, {"moe_", TAP_MLP},
    {"Qcur", TAP_ATTENTION}, {"Kcur", TAP_ATTENTION}, {"Vcur", TAP_ATTENTION}, {"qkv", TAP_ATTENTION},
    {"wqkv", TAP_ATTENTION},
    {"kqv", TAP_ATTENTION}, {"kq", TAP_ATTENTION}, {"attn_", TAP_ATTENTION}, {"q_", TAP_ATTENTION},
    {"k_", TAP_ATTENTION},
    {"v_", TAP_ATTENTION}, {"mamba", TAP_SSM}, {"ssm", TAP_SSM}, {"conv", TAP_SSM}, {"result_", TAP_OUTPUT},
    {"embd", TAP_INPUT}, {"inp_", TAP_INPUT},
};

void tap_leaf_named(struct tap_graph_leaf * l) {
    const char * name = l->tensor->name;
    int found;
    if (strncmp(name, "blk.", 4) == 0) {
        char * rest;
        const long n = strtol(name + 4, &rest, 10);
        if (*rest != '.' || (found = TAP_PREFIX_FIND(tap_block_weights, rest + 1)) < 0) {
            return;
        }
        l->layer = (int32_t) n;
    } else if ((found = TAP_PREFIX_FIND(tap_caches, name)) >= 0) {
        l->layer = tap_name_layer(name, l->name_bytes);
    } else if ((found = TAP_PREFIX_FIND(tap_global_weights, name)) >= 0) {
        l->embedding = found == TAP_INPUT; // tied embeddings: the same weight makes the logits
    } else {
        return;
    }
    l->component = (uint8_t) found;
    l->named = true;
}

// ---- layers and components ------------------------------------------------------------------------------------------

static void tap_place(struct tap_graph_node * n, int32_t layer, uint8_t component, enum tap_inferred from) {
    if (n->component == TAP_OTHER && component != TAP_OTHER) {
        n->component = component;
        n->inferred = (uint8_t) from;
    }
    if (!n->layer_known) {
        n->layer = layer;
        n->layer_known = true;
    }
}

static void tap_place_by_weight(struct tap_graph * g, struct tap_graph_node * n) {
    for (int k = 0; k < n->n_src && n->component == TAP_OTHER; k++) {
        const int32_t at = n->src[k];
        const struct tap_graph_leaf * l = at < 0 && at != INT32_MIN ? &g->leafs[-1 - at] : NULL;
        if (l != NULL && l->named) {
            tap_place(n, l->layer, l->embedding && n->tensor->op == GGML_OP_MUL_MAT ? TAP_OUTPUT : l->component,
                      TAP_FROM_WEIGHT);
        }
    }
}

// tap_place_by_view follows a view of a cache: K and V of flash attention, rows that are written.
static void tap_place_by_view(struct tap_graph * g, struct tap_graph_node * n) {
    for (int k = 0; k < n->n_src && n->component == TAP_OTHER; k++) {
        const int32_t at = n->src[k];
        if (at >= 0 && g->nodes[at].view && g->nodes[at].inferred == TAP_FROM_WEIGHT) {
            tap_place(n, g->nodes[at].layer, g->nodes[at].component, TAP_FROM_WEIGHT);
        }
    }
}

static uint8_t tap_op_component(const struct ggml_tensor * t) {
    switch (t->op) {
        case GGML_OP_FLASH_ATTN_EXT: return TAP_ATTENTION;
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ADD_ID:         return TAP_MLP;
        case GGML_OP_SSM_CONV:
        case GGML_OP_SSM_SCAN:
        case GGML_OP_RWKV_WKV6:
        case GGML_OP_RWKV_WKV7:
        case GGML_OP_GATED_LINEAR_ATTN: return TAP_SSM;
        case GGML_OP_SOFT_MAX:          return t->src[1] != NULL ? TAP_ATTENTION : TAP_OTHER; // with a mask
        default:                        return TAP_OTHER;
    }
}

static void tap_place_by_self(struct tap_graph_node * n) {
    const struct ggml_tensor * t = n->tensor;
    const uint8_t by_op = tap_op_component(t);
    if (n->component == TAP_OTHER && by_op != TAP_OTHER) {
        n->component = by_op;
        n->inferred = TAP_FROM_OP;
    }
    const int32_t layer = n->layer_known ? -1 : tap_name_layer(t->name, n->name_bytes);
    if (!n->layer_known && layer >= 0) {
        n->layer = layer;
        n->layer_known = true;
    }
    if (n->component == TAP_OTHER) {
        const int role = TAP_PREFIX_FIND(tap_roles, t->name);
        if (role >= 0) {
            n->component = (uint8_t) role;
            n->inferred = TAP_FROM_NAME;
            if (!n->layer_known && (role == TAP_INPUT || role == TAP_OUTPUT)) {
                n->layer_known = true; // these stand outside of layers
            }
        }
    }
}

static void tap_place_by_neighbour(struct tap_graph_node * n, const struct tap_graph_node * other,
                                   enum tap_inferred from) {
    if (n->component == TAP_OTHER && other->component != TAP_OTHER) {
        n->component = other->component;
        n->inferred = (uint8_t) from;
    }
    if (!n->layer_known && other->layer_known) {
        n->layer = other->layer;
        n->layer_known = true;
    }
}

static void tap_place_by_sources(struct tap_graph * g, struct tap_graph_node * n) {
    for (int k = 0; k < n->n_src && (n->component == TAP_OTHER || !n->layer_known); k++) {
        if (n->src[k] >= 0) {
            tap_place_by_neighbour(n, &g->nodes[n->src[k]], TAP_FROM_SOURCE);
        }
    }
}

// tap_mend_norms gives the norm before a recurrent mixer, whose weight is called attn_norm too, to the mixer.
static void tap_mend_norms(struct tap_graph * g) {
    enum { LAYERS = TAP_LAYER_WORDS * 64 };
    uint8_t has[LAYERS]; // bit 0: attention proper, bit 1: recurrent mixer
    memset(has, 0, sizeof(has));
    bool any = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tap_graph_node * n = &g->nodes[i];
        if (n->layer < 0 || n->layer >= LAYERS) {
            continue;
        }
        has[n->layer] |= n->tensor->op == GGML_OP_FLASH_ATTN_EXT ||
        (n->tensor->op == GGML_OP_SOFT_MAX && n->component == TAP_ATTENTION);
        if (n->component == TAP_SSM) {
            has[n->layer] |= 2;
            any = true;
        }
    }
    for (int i = 0; any && i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        if (n->component == TAP_ATTENTION && n->layer >= 0 && n->layer < LAYERS && has[n->layer] == 2) {
            n->component = TAP_SSM;
        }
    }
}

// tap_stream_source says whether source k of a node is the residual stream at some point: as wide, and token by
// token the same.
static bool tap_stream_source(const struct tap_graph * g, const struct tap_graph_node * n, int k) {
    const int32_t at = n->src[k];
    return at >= 0 && g->nodes[at].stream && g->nodes[at].tensor->ne[0] == n->tensor->ne[0];
}

// tap_stream_at says whether node n is the residual stream at some point. It begins with the embeddings, and every
// sum of it and something that was computed from it continues it; rows of it may be taken out on the way.
static bool tap_stream_at(const struct tap_graph * g, const struct tap_graph_node * n) {
    const struct ggml_tensor * t = n->tensor;
    if (n->component == TAP_INPUT && n->layer < 0) {
        return true;
    }
    if (t->op == GGML_OP_GET_ROWS || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_CONT) {
        return tap_stream_source(g, n, 0);
    }
    if (t->op != GGML_OP_ADD) {
        return false;
    }
    const bool first = tap_stream_source(g, n, 0);
    return first != tap_stream_source(g, n, 1) && n->src[first] >= 0 && memcmp(t->src[0]->ne, t->src[1]->ne,
        sizeof(t->ne)) == 0;
}

// tap_mend_residuals gives the sums of the residual stream to it. Few architectures name them, and where a name
// says nothing their other operand's place would be theirs.
static void tap_mend_residuals(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        n->stream = tap_stream_at(g, n);
        if (n->stream && n->tensor->op == GGML_OP_ADD && n->layer >= 0) {
            n->component = TAP_RESIDUAL;
            n->inferred = TAP_FROM_SOURCE;
        }
    }
}

static void tap_infer_places(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        tap_place_by_weight(g, n);
        tap_place_by_view(g, n);
        tap_place_by_self(n);
    }
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        struct tap_graph_node * n = &g->nodes[i];
        if (n->first_consumer >= 0) {
            tap_place_by_neighbour(n, &g->nodes[n->first_consumer], TAP_FROM_CONSUMER);
        }
    }
    for (int i = 0; i < g->n_nodes; i++) {
        tap_place_by_sources(g, &g->nodes[i]);
    }
    tap_mend_norms(g);
    tap_mend_residuals(g);
    if (g->n_tokens == 0) {
        for (int i = 0; i < g->n_nodes; i++) {
            g->nodes[i].component = TAP_CACHE;
        }
    }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

struct tap_row_place {
    uint8_t rows;
    uint8_t dim;
};

static const struct tap_row_place tap_no_rows = {TAP_ROWS_NONE, 0};

// tap_rows_of are the rows of source k of a node.
static struct tap_row_place tap_rows_of(const struct tap_graph * g, const struct tap_graph_node * n, int k) {
    const int32_t at = n->src[k];
    if (at >= 0) {
        return (struct tap_row_place) {g->nodes[at].rows, g->nodes[at].row_dim};
    }
    if (at != INT32_MIN) {
        return (struct tap_row_place) {g->leafs[-1 - at].rows, g->leafs[-1 - at].row_dim};
    }
    return tap_no_rows;
}

static struct tap_row_place tap_leaf_rows(const struct tap_graph * g, const struct ggml_tensor * t) {
    if (t == g->out_ids) {
        return (struct tap_row_place) {TAP_ROWS_OUTPUTS, 0};
    }
    if (t == g->embd || (strstr(t->name, "mask") != NULL && t->ne[1] >= g->n_tokens)) {
        return (struct tap_row_place) {TAP_ROWS_TOKENS, 1};
    }
    if (t == g->tokens || t == g->pos || (strstr(t->name, "_idxs") != NULL && t->ne[0] == g->n_tokens)) {
        return (struct tap_row_place) {TAP_ROWS_TOKENS, 0};
    }
    return tap_no_rows;
}

static void tap_leafs_rows(struct tap_graph * g) {
    for (int i = 0; i < g->n_leafs; i++) {
        struct tap_graph_leaf * l = &g->leafs[i];
        const struct tap_row_place p = l->input ? tap_leaf_rows(g, l->tensor) : tap_no_rows;
        l->rows = p.rows;
        l->row_dim = p.dim;
    }
}

// tap_rows_reshaped finds the dimension of to before which as many elements lie as before from's row dimension.
static struct tap_row_place tap_rows_reshaped(const struct ggml_tensor * to, const struct ggml_tensor * from,
                                              struct tap_row_place p) {
    int64_t before = 1, at = 1;
    for (int d = 0; d < p.dim; d++) {
        before *= from->ne[d];
    }
    int first = -1;
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        if (at == before) {
            if (to->ne[d] == from->ne[p.dim]) {
                return (struct tap_row_place) {p.rows, (uint8_t) d};
            }
            if (first < 0) {
                first = d;
            }
        }
        at *= to->ne[d];
    }
    return first < 0 ? tap_no_rows : (struct tap_row_place) {p.rows, (uint8_t) first};
}

// tap_rows_viewed finds the dimension of a view that walks in the same strides as its source's row dimension. With
// one token several do: it is the same one only where those below it, but for the first, are the same too.
static struct tap_row_place tap_rows_viewed(const struct ggml_tensor * to, const struct ggml_tensor * from,
                                            struct tap_row_place p) {
    bool same = to->nb[p.dim] == from->nb[p.dim] && to->ne[p.dim] == from->ne[p.dim];
    for (int d = 1; d < p.dim; d++) {
        same &= to->ne[d] == from->ne[d];
    }
    if (same) {
        return p;
    }
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        if (to->nb[d] == from->nb[p.dim] && to->ne[d] == from->ne[p.dim]) {
            return (struct tap_row_place) {p.rows, (uint8_t) d};
        }
    }
    return tap_no_rows;
}

static struct tap_row_place tap_rows_gathered(const struct tap_graph * g, const struct tap_graph_node * n) {
    struct tap_row_place p = tap_rows_of(g, n, 1);
    p.dim++;
    return p.rows != TAP_ROWS_NONE && p.dim < TAP_MAX_DIMS ? p : tap_no_rows;
}

static struct tap_row_place tap_rows_multiplied(const struct tap_graph * g, const struct tap_graph_node * n) {
    const struct tap_row_place b = tap_rows_of(g, n, 1);
    if (b.rows != TAP_ROWS_NONE) {
        return b.dim >= 1 ? b : tap_no_rows;
    }
    struct tap_row_place a = tap_rows_of(g, n, 0);
    if (a.rows == TAP_ROWS_NONE || a.dim == 0) {
        return tap_no_rows;
    }
    a.dim = a.dim == 1 ? 0 : a.dim;
    return a;
}

static struct tap_row_place tap_rows_infer(const struct tap_graph * g, const struct tap_graph_node * n) {
    const struct ggml_tensor * t = n->tensor;
    struct tap_row_place p = tap_rows_of(g, n, 0);
    switch (t->op) {
        case GGML_OP_GET_ROWS: return tap_rows_gathered(g, n);
        case GGML_OP_MUL_MAT:  return tap_rows_multiplied(g, n);
        case GGML_OP_MUL_MAT_ID:
            p = tap_rows_of(g, n, 2);
            p.dim = 2;
            return p;
        case GGML_OP_FLASH_ATTN_EXT:
            p.dim = p.dim == 1 ? 2 : p.dim;
            return p;
        case GGML_OP_PERMUTE:
            p.dim = (uint8_t) (t->op_params[p.dim] & 3);
            return p;
        case GGML_OP_TRANSPOSE:
            p.dim = p.dim < 2 ? 1 - p.dim : p.dim;
            return p;
        case GGML_OP_SET_ROWS: { // one index per row that is written, else one per element
            const struct tap_row_place written = tap_rows_gathered(g, n);
            return written.rows != TAP_ROWS_NONE ? written : p;
        }
        case GGML_OP_SSM_CONV:
            return t->ne[1] * t->ne[2] == g->n_tokens ? (struct tap_row_place) {TAP_ROWS_TOKENS, 1} : tap_no_rows;
        case GGML_OP_VIEW:
            if (p.rows != TAP_ROWS_NONE) {
                return tap_rows_viewed(t, t->src[0], p);
            }
            if (t->src[0] != NULL && t->src[0]->op == GGML_OP_SSM_SCAN && t->ne[2] * t->ne[3] == g->n_tokens) {
                return (struct tap_row_place) {TAP_ROWS_TOKENS, 2}; // the scan's outputs, before its states
            }
            return p;
        default: break;
    }
    if (p.rows == TAP_ROWS_NONE && t->src[1] != NULL) {
        const struct tap_row_place b = tap_rows_of(g, n, 1); // a constant met with rows, by broadcast
        return b.rows != TAP_ROWS_NONE && t->ne[b.dim] == t->src[1]->ne[b.dim] ? b : tap_no_rows;
    }
    if (p.rows != TAP_ROWS_NONE && t->ne[p.dim] != t->src[0]->ne[p.dim]) {
        return tap_rows_reshaped(t, t->src[0], p);
    }
    return t->op == GGML_OP_RESHAPE || t->op == GGML_OP_CONT ? (p.rows != TAP_ROWS_NONE ? tap_rows_reshaped(t,
        t->src[0], p) : p) : p;
}

// tap_rows_fit checks a guess against the number of rows that there must be: in one dimension, or in it and the
// next (tokens of a sequence, sequences).
static bool tap_rows_fit(const struct tap_graph * g, const struct ggml_tensor * t, struct tap_row_place p) {
    const int64_t n = p.rows == TAP_ROWS_OUTPUTS ? g->n_outputs : g->n_tokens;
    return t->ne[p.dim] == n || (p.dim + 1 < TAP_MAX_DIMS && t->ne[p.dim] * t->ne[p.dim + 1] == n);
}

// tap_node_rows are the rows of a node whose sources have theirs.
static struct tap_row_place tap_node_rows(const struct tap_graph * g, const struct tap_graph_node * n) {
    const struct tap_row_place p = tap_rows_infer(g, n);
    const struct ggml_tensor * shown = n->written_rows ? n->tensor->src[0] : n->tensor;
    return p.rows != TAP_ROWS_NONE && tap_rows_fit(g, shown, p) ? p : tap_no_rows;
}

static void tap_infer_rows(struct tap_graph * g) {
    if (g->n_tokens == 0) {
        return;
    }
    tap_leafs_rows(g);
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        const struct tap_row_place p = tap_node_rows(g, n);
        n->rows = p.rows;
        n->row_dim = p.dim;
    }
}

void tap_infer(struct tap_graph * g) {
    tap_infer_places(g);
    tap_infer_rows(g);
}

// ---- again ----------------------------------------------------------------------------------------------------------

// What follows from shapes must be looked at again.
enum { TAP_CHANGED_HERE = TAP_CHANGED_SHAPE | TAP_CHANGED_ROWS };

static void tap_leafs_again(struct tap_graph * g) {
    for (int i = 0; i < g->n_leafs; i++) {
        struct tap_graph_leaf * l = &g->leafs[i];
        if (!l->input) {
            continue;
        }
        const struct tap_row_place p = tap_leaf_rows(g, l->tensor);
        if (p.rows != l->rows || p.dim != l->row_dim) {
            l->rows = p.rows;
            l->row_dim = p.dim;
            g->changed[g->n_nodes + i] |= TAP_CHANGED_ROWS;
        }
    }
}

// tap_touched says whether anything has changed in node i, or in what it reads.
static bool tap_touched(const struct tap_graph * g, int i) {
    const struct tap_graph_node * n = &g->nodes[i];
    uint8_t changed = g->changed[i];
    for (int k = 0; k < n->n_src; k++) {
        const int32_t at = n->src[k];
        changed |= at == INT32_MIN ? 0 : g->changed[at >= 0 ? at : g->n_nodes - 1 - at];
    }
    return changed & TAP_CHANGED_HERE;
}

bool tap_infer_again(struct tap_graph * g, bool all) {
    tap_leafs_again(g);
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        if (!all && !tap_touched(g, i)) {
            continue;
        }
        if (tap_stream_at(g, n) != n->stream) {
            return false; // its component may be another one
        }
        const struct tap_row_place p = tap_node_rows(g, n);
        if (p.rows != n->rows || p.dim != n->row_dim) {
            n->rows = p.rows;
            n->row_dim = p.dim;
            g->changed[i] |= TAP_CHANGED_ROWS;
        }
    }
    return true;
}
