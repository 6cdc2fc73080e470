//go:build llama

// tap_infer.c: layer and component of every node, inferred from the graph.
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

// tap_control_vector says whether source k of a node is a row that is no weight: a control vector.
static bool tap_control_vector(const struct tap_graph * g, const struct tap_graph_node * n, int k) {
    const int32_t at = n->src[k];
    const struct tap_graph_leaf * l = at < 0 && at != INT32_MIN ? &g->leafs[-1 - at] : NULL;
    return l != NULL && !l->named && l->tensor->ne[0] == n->tensor->ne[0] && l->tensor->ne[1] == 1 &&
           l->tensor->ne[2] == 1 && l->tensor->ne[3] == 1;
}

// The residual stream begins with the embeddings, and every sum of it and something that was computed from it, or a
// control vector, continues it; rows of it may be taken out on the way.
bool tap_stream_at(const struct tap_graph * g, const struct tap_graph_node * n) {
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
    if (first && tap_control_vector(g, n, 1)) {
        return true;
    }
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

void tap_infer(struct tap_graph * g) {
    tap_infer_places(g);
    tap_infer_rows(g);
}
