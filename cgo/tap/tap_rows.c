//go:build llama

// tap_rows.c: which dimension of every node counts tokens or outputs, inferred from the graph.
//
// Rows come in with the inputs: token ids, positions, masks, the list of outputs. From there each op says what becomes
// of the dimension that counts them. A guess that does not fit the number of rows is none.
#define _GNU_SOURCE
#include "tap_graph.h"
#include "tap_real.h"

#include <string.h>

// seqs is 0 where dim counts all rows. Otherwise dim counts the tokens of one sequence, and seqs, above it, the sequences:
// attention over a cache with a stream for each.
struct tap_row_place {
    uint8_t rows;
    uint8_t dim;
    uint8_t seqs;
};

static const struct tap_row_place tap_no_rows = {TAP_ROWS_NONE, 0, 0};

// tap_rows_of are the rows of source k of a node.
static struct tap_row_place tap_rows_of(const struct tap_graph * g, const struct tap_graph_node * n, int k) {
    const int32_t at = n->src[k];
    if (at >= 0) {
        return (struct tap_row_place) {g->nodes[at].rows, g->nodes[at].row_dim, g->nodes[at].row_seqs};
    }
    if (at != INT32_MIN) {
        return (struct tap_row_place) {g->leafs[-1 - at].rows, g->leafs[-1 - at].row_dim, 0};
    }
    return tap_no_rows;
}

static struct tap_row_place tap_leaf_rows(const struct tap_graph * g, const struct ggml_tensor * t) {
    if (t == g->out_ids) {
        return (struct tap_row_place) {TAP_ROWS_OUTPUTS, 0, 0};
    }
    if (t == g->embd || (strstr(t->name, "mask") != NULL && t->ne[1] >= g->n_tokens)) {
        return (struct tap_row_place) {TAP_ROWS_TOKENS, 1, 0};
    }
    if (t == g->tokens || t == g->pos || (strstr(t->name, "_idxs") != NULL && t->ne[0] == g->n_tokens)) {
        return (struct tap_row_place) {TAP_ROWS_TOKENS, 0, 0};
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

// tap_rows_reshaped finds the dimension of to before which as many elements lie as before from's row dimension. Tokens
// and sequences become the rows of all where they follow each other.
static struct tap_row_place tap_rows_reshaped(const struct ggml_tensor * to, const struct ggml_tensor * from,
                                              struct tap_row_place p) {
    if (p.seqs != 0 && memcmp(to->ne, from->ne, sizeof(to->ne)) == 0) {
        return p;
    }
    if (p.seqs > p.dim + 1) {
        return tap_no_rows;
    }
    const int64_t all = from->ne[p.dim] * (p.seqs != 0 ? from->ne[p.seqs] : 1);
    int64_t before = 1, at = 1;
    for (int d = 0; d < p.dim; d++) {
        before *= from->ne[d];
    }
    int first = -1;
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        if (at == before) {
            if (to->ne[d] == all) {
                return (struct tap_row_place) {p.rows, (uint8_t) d, 0};
            }
            if (first < 0) {
                first = d;
            }
        }
        at *= to->ne[d];
    }
    return first < 0 ? tap_no_rows : (struct tap_row_place) {p.rows, (uint8_t) first, 0};
}

// tap_rows_viewed finds the dimension of a view that walks in the same strides as its source's row dimension. With
// one token several do: it is the same one only where those below it, but for the first, are the same too. Two
// dimensions that walk so are the tokens of a sequence and the sequences.
static struct tap_row_place tap_rows_viewed(const struct ggml_tensor * to, const struct ggml_tensor * from,
                                            struct tap_row_place p) {
    bool same = to->nb[p.dim] == from->nb[p.dim] && to->ne[p.dim] == from->ne[p.dim];
    for (int d = 1; d < p.dim; d++) {
        same &= to->ne[d] == from->ne[d];
    }
    if (p.seqs != 0) {
        same &= to->nb[p.seqs] == from->nb[p.seqs] && to->ne[p.seqs] == from->ne[p.seqs];
        return same ? p : tap_no_rows;
    }
    if (same) {
        return p;
    }
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        if (to->nb[d] == from->nb[p.dim] && to->ne[d] == from->ne[p.dim]) {
            return (struct tap_row_place) {p.rows, (uint8_t) d, 0};
        }
    }
    for (int d = 0; d + 1 < TAP_MAX_DIMS; d++) {
        if (to->nb[d] == from->nb[p.dim] && to->ne[d] * to->ne[d + 1] == from->ne[p.dim] &&
            to->nb[d + 1] == to->nb[d] * (size_t) to->ne[d]) {
            return (struct tap_row_place) {p.rows, (uint8_t) d, (uint8_t) (d + 1)};
        }
    }
    return tap_no_rows;
}

static struct tap_row_place tap_rows_gathered(const struct tap_graph * g, const struct tap_graph_node * n) {
    struct tap_row_place p = tap_rows_of(g, n, 1);
    p.dim++;
    return p.rows != TAP_ROWS_NONE && p.dim < TAP_MAX_DIMS && p.seqs == 0 ? p : tap_no_rows;
}

static struct tap_row_place tap_rows_multiplied(const struct tap_graph * g, const struct tap_graph_node * n) {
    const struct tap_row_place b = tap_rows_of(g, n, 1);
    if (b.rows != TAP_ROWS_NONE) {
        return b.dim >= 1 ? b : tap_no_rows;
    }
    struct tap_row_place a = tap_rows_of(g, n, 0);
    if (a.rows == TAP_ROWS_NONE || a.dim == 0 || a.seqs != 0) {
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
            return (struct tap_row_place) {p.rows, 2, 0};
        case GGML_OP_FLASH_ATTN_EXT:
            p.dim = p.dim == 1 ? 2 : p.dim;
            return p;
        case GGML_OP_PERMUTE:
            p.dim = (uint8_t) (t->op_params[p.dim] & 3);
            p.seqs = p.seqs == 0 ? 0 : (uint8_t) (t->op_params[p.seqs] & 3);
            return p.seqs == 0 || p.seqs > p.dim ? p : tap_no_rows;
        case GGML_OP_TRANSPOSE:
            if (p.seqs == 1) {
                return tap_no_rows;
            }
            p.dim = p.dim < 2 ? 1 - p.dim : p.dim;
            return p;
        case GGML_OP_SET_ROWS: { // one index per row that is written, else one per element
            const struct tap_row_place written = tap_rows_gathered(g, n);
            return written.rows != TAP_ROWS_NONE ? written : p;
        }
        case GGML_OP_SSM_CONV:
            return t->ne[1] * t->ne[2] == g->n_tokens ? (struct tap_row_place) {TAP_ROWS_TOKENS, 1, 0} : tap_no_rows;
        case GGML_OP_VIEW:
            if (p.rows != TAP_ROWS_NONE) {
                return tap_rows_viewed(t, t->src[0], p);
            }
            if (t->src[0] != NULL && t->src[0]->op == GGML_OP_SSM_SCAN && t->ne[2] * t->ne[3] == g->n_tokens) {
                return (struct tap_row_place) {TAP_ROWS_TOKENS, 2, 0}; // the scan's outputs, before its states
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
// one of the sequences, which is the next where it is not noted.
static bool tap_rows_fit(const struct tap_graph * g, const struct ggml_tensor * t, struct tap_row_place p) {
    const int64_t n = p.rows == TAP_ROWS_OUTPUTS ? g->n_outputs : g->n_tokens;
    if (p.seqs != 0) {
        return t->ne[p.dim] * t->ne[p.seqs] == n;
    }
    return t->ne[p.dim] == n || (p.dim + 1 < TAP_MAX_DIMS && t->ne[p.dim] * t->ne[p.dim + 1] == n);
}

// tap_node_rows are the rows of a node whose sources have theirs.
static struct tap_row_place tap_node_rows(const struct tap_graph * g, const struct tap_graph_node * n) {
    const struct tap_row_place p = tap_rows_infer(g, n);
    const struct ggml_tensor * shown = n->written_rows ? n->tensor->src[0] : n->tensor;
    return p.rows != TAP_ROWS_NONE && tap_rows_fit(g, shown, p) ? p : tap_no_rows;
}

void tap_infer_rows(struct tap_graph * g) {
    if (g->n_tokens == 0) {
        return;
    }
    tap_leafs_rows(g);
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        const struct tap_row_place p = tap_node_rows(g, n);
        n->rows = p.rows;
        n->row_dim = p.dim;
        n->row_seqs = p.seqs;
    }
}

uint8_t tap_whole_rows(const struct tap_graph_node * n) {
    return n->row_seqs == 0 || n->row_seqs == n->row_dim + 1 ? n->rows : TAP_ROWS_NONE;
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
        if (p.rows != n->rows || p.dim != n->row_dim || p.seqs != n->row_seqs) {
            n->rows = p.rows;
            n->row_dim = p.dim;
            n->row_seqs = p.seqs;
            g->changed[i] |= TAP_CHANGED_ROWS;
        }
    }
    return true;
}
