// graph.c: hand-made graphs, and what their author knows of each node.
#define _GNU_SOURCE
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// ---- building -------------------------------------------------------------------------------------------------------

static void buffer_make(struct ggml_backend_buffer * b, size_t size, bool device) {
    b->host = !device;
    b->size = size;
    b->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    b->base = device ? mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : b->bytes;
    MUST(b->bytes != MAP_FAILED && b->base != MAP_FAILED);
}

static void buffer_free(struct ggml_backend_buffer * b) {
    munmap(b->bytes, b->size);
    if (b->base != b->bytes) {
        munmap(b->base, b->size);
    }
}

void graph_init(struct graph * g, size_t area_bytes, size_t persistent_bytes, bool device) {
    memset(g, 0, sizeof(*g));
    g->area_bytes = (area_bytes + 63) & ~(size_t) 63;
    g->device = device;
    buffer_make(&g->compute, g->area_bytes * (GRAPH_AREAS + GRAPH_MORE_AREAS), device);
    buffer_make(&g->persistent, persistent_bytes, device);
    g->cgraph.nodes = g->nodes;
}

void graph_free(struct graph * g) {
    buffer_free(&g->compute);
    buffer_free(&g->persistent);
}

static struct ggml_tensor * tensor_new(struct graph * g, enum ggml_type type, struct ne ne, const char * name) {
    MUST(g->n_tensors < GRAPH_MAX_TENSORS);
    struct ggml_tensor * t = &g->tensors[g->n_tensors++];
    memset(t, 0, sizeof(*t));
    t->type = type;
    for (int d = 0; d < 4; d++) {
        t->ne[d] = ne.n[d];
        t->nb[d] = d == 0 ? type_bytes(type, type == GGML_TYPE_Q4_K ? 256 : type == GGML_TYPE_Q8_0 ||
                                       type == GGML_TYPE_Q4_0 ? 32 : 1)
                 : d == 1 ? type_bytes(type, ne.n[0]) : t->nb[d - 1] * (size_t) ne.n[d - 1];
    }
    t->extra = (void *) (uintptr_t) g->n_tensors;
    snprintf(t->name, sizeof(t->name), "%s", name);
    return t;
}

static size_t dense_bytes(const struct ggml_tensor * t) { return t->nb[3] * (size_t) t->ne[3]; }

struct ggml_tensor * graph_leaf(struct graph * g, enum ggml_type type, struct ne ne, int32_t flags, const char * name) {
    struct ggml_tensor * t = tensor_new(g, type, ne, name);
    t->flags = flags;
    t->buffer = &g->persistent;
    t->data = g->persistent.base + g->persistent_used;
    g->persistent_used += (dense_bytes(t) + 63) & ~(size_t) 63;
    MUST(g->persistent_used <= g->persistent.size);
    return t;
}

static struct ggml_tensor * node_add(struct graph * g, struct ggml_tensor * t, enum ggml_op op, const char * name) {
    t->op = op;
    t->flags |= GGML_TENSOR_FLAG_COMPUTE;
    const int at = g->cgraph.n_nodes++;
    g->nodes[at] = t;
    if (name == NULL) {
        snprintf(t->name, sizeof(t->name), "node_%d", at); // as ggml names what llama.cpp does not
    }
    return t;
}

struct ggml_tensor * graph_node(struct graph * g, enum ggml_op op, enum ggml_type type, struct ne ne, const char * name,
                                struct ggml_tensor * a, struct ggml_tensor * b, struct ggml_tensor * c) {
    struct ggml_tensor * t = tensor_new(g, type, ne, name != NULL ? name : "");
    t->src[0] = a;
    t->src[1] = b;
    t->src[2] = c;
    t->buffer = &g->compute;
    t->data = g->compute.base + (size_t) (g->area++ % GRAPH_AREAS) * g->area_bytes;
    MUST(dense_bytes(t) <= g->area_bytes);
    return node_add(g, t, op, name);
}

struct ggml_tensor * graph_view(struct graph * g, enum ggml_op op, struct ggml_tensor * a, struct ne ne,
                                const size_t * nb,
                                size_t offset, const char * name) {
    struct ggml_tensor * t = tensor_new(g, a->type, ne, name != NULL ? name : "");
    for (int d = 0; nb != NULL && d < 4; d++) {
        t->nb[d] = nb[d];
    }
    t->src[0] = a;
    t->view_src = a->view_src != NULL ? a->view_src : a;
    t->view_offs = (a->view_src != NULL ? a->view_offs : 0) + offset;
    t->buffer = t->view_src->buffer;
    t->data = (uint8_t *) t->view_src->data + t->view_offs;
    return node_add(g, t, op, name);
}

struct ggml_tensor * graph_reshape(struct graph * g, struct ggml_tensor * a, struct ne ne, const char * name) {
    return graph_view(g, GGML_OP_RESHAPE, a, ne, NULL, 0, name);
}

struct ggml_tensor * graph_permute(struct graph * g, struct ggml_tensor * a, int a0, int a1, int a2, int a3,
                                   const char * name) {
    const int axis[4] = {a0, a1, a2, a3};
    struct ne ne;
    size_t nb[4];
    for (int d = 0; d < 4; d++) {
        ne.n[axis[d]] = a->ne[d];
        nb[axis[d]] = a->nb[d];
    }
    struct ggml_tensor * t = graph_view(g, GGML_OP_PERMUTE, a, ne, nb, 0, name);
    memcpy(t->op_params, axis, sizeof(axis));
    return t;
}

struct ggml_tensor * graph_set_rows(struct graph * g, struct ggml_tensor * cache, struct ggml_tensor * rows,
                                    struct ggml_tensor * ids) {
    char name[GGML_MAX_NAME + 8];
    snprintf(name, sizeof(name), "%s (view)", cache->name);
    struct ggml_tensor * t = graph_view(g, GGML_OP_SET_ROWS, cache, NE(cache->ne[0], cache->ne[1], cache->ne[2],
        cache->ne[3]), NULL, 0, name);
    t->src[0] = rows;
    t->src[1] = ids;
    t->src[2] = cache;
    return t;
}

void graph_know(struct graph * g, const struct ggml_tensor * t, int32_t layer, uint8_t component, uint8_t rows,
                uint8_t row_dim) {
    g->known[t - g->tensors] = (struct known) {true, layer, component, rows, row_dim};
}

int graph_number(const struct graph * g, const struct ggml_tensor * t) {
    for (int i = 0; i < g->cgraph.n_nodes; i++) {
        if (g->nodes[i] == t) {
            return i;
        }
    }
    return -1;
}

struct ggml_tensor * graph_named(const struct graph * g, const char * name, int nth) {
    for (int i = 0; i < g->cgraph.n_nodes; i++) {
        if (strcmp(g->nodes[i]->name, name) == 0 && --nth == 0) {
            return g->nodes[i];
        }
    }
    return NULL;
}

// ---- a llama-like model ---------------------------------------------------------------------------------------------

enum { EMBD = 32, HEADS = 4, HEADS_KV = 2, HEAD_DIM = EMBD / HEADS, KV_DIM = HEADS_KV * HEAD_DIM, FFN = 48, VOCAB = 96,
    USED = 2 };

// The state of building: the graph, and the layer that is being built.
struct build {
    struct graph *               g;
    const struct model_options * o;
    struct ggml_tensor *         pos, * mask, * k_idxs, * v_idxs;
    int                          layer, rows, row_count; // rows of what is computed now, and how many
};

static const char * layered(const char * name, int layer) {
    static char text[4][GGML_MAX_NAME];
    static int at;
    char * out = text[at++ % 4];
    snprintf(out, GGML_MAX_NAME, "%s-%d", name, layer);
    return out;
}

static struct ggml_tensor * weight(struct build * b, const char * what, struct ne ne) {
    char name[GGML_MAX_NAME];
    snprintf(name, sizeof(name), "blk.%d.%s.weight", b->layer, what);
    return graph_leaf(b->g, GGML_TYPE_F32, ne, 0, name);
}

static struct ggml_tensor * know(struct build * b, struct ggml_tensor * t, uint8_t component, uint8_t row_dim) {
    graph_know(b->g, t, b->layer, component, (uint8_t) b->rows, row_dim);
    return t;
}

static struct ggml_tensor * norm(struct build * b, struct ggml_tensor * x, const char * w, const char * name,
                                 uint8_t component) {
    struct ggml_tensor * n = graph_node(b->g, GGML_OP_RMS_NORM, GGML_TYPE_F32, NE(EMBD, b->row_count, 1, 1),
                                        layered("norm", b->layer), x, NULL, NULL);
    know(b, n, component, 1);
    n = graph_node(b->g, GGML_OP_MUL, GGML_TYPE_F32, NE(EMBD, b->row_count, 1, 1), layered(name, b->layer), n,
                   weight(b, w, NE(EMBD, 1, 1, 1)), NULL);
    return know(b, n, component, 1);
}

static struct ggml_tensor * linear(struct build * b, struct ggml_tensor * x, const char * w, int64_t out,
                                   const char * name, uint8_t component) {
    struct ggml_tensor * t = graph_node(b->g, GGML_OP_MUL_MAT, GGML_TYPE_F32, NE(out, b->row_count, 1, 1), name,
                                        weight(b, w, NE(x->ne[0], out, 1, 1)), x, NULL);
    return know(b, t, component, 1);
}

// heads is a projection, cut into heads and turned by position: three nodes of one name.
static struct ggml_tensor * heads(struct build * b, struct ggml_tensor * x, const char * w, int n_heads,
                                  const char * name) {
    struct ggml_tensor * t = linear(b, x, w, n_heads * HEAD_DIM, layered(name, b->layer), TAP_ATTENTION);
    t = know(b, graph_reshape(b->g, t, NE(HEAD_DIM, n_heads, b->row_count, 1), layered(name, b->layer)),
             TAP_ATTENTION, 2);
    if (name[0] == 'V') {
        return t;
    }
    t = graph_node(b->g, GGML_OP_ROPE, GGML_TYPE_F32, NE(HEAD_DIM, n_heads, b->row_count, 1), layered(name, b->layer),
                   t, b->pos, NULL);
    return know(b, t, TAP_ATTENTION, 2);
}

static struct ggml_tensor * cache_write(struct build * b, const char * prefix, struct ggml_tensor * x, bool elements) {
    char name[GGML_MAX_NAME];
    snprintf(name, sizeof(name), "%s%d", prefix, b->layer);
    const int64_t n = b->o->n_tokens;
    struct ggml_tensor * cache = graph_leaf(b->g, GGML_TYPE_F16, NE(KV_DIM, b->o->n_kv, 1, 1), 0, name);
    if (elements) { // V without flash attention: one row index per element, into the cache seen as single elements
        snprintf(name, sizeof(name), "%s%d (reshaped)", prefix, b->layer);
        struct ggml_tensor * flat = graph_reshape(b->g, cache, NE(1, KV_DIM * b->o->n_kv, 1, 1), name);
        struct ggml_tensor * rows = graph_reshape(b->g, x, NE(1, KV_DIM * n, 1, 1), NULL);
        know(b, graph_set_rows(b->g, flat, rows, b->v_idxs), TAP_ATTENTION, 0);
        b->g->known[b->g->n_tensors - 1].rows = TAP_ROWS_NONE;
    } else {
        const size_t nb[4] = {x->nb[0], x->nb[2], x->nb[2] * (size_t) n, x->nb[2] * (size_t) n};
        struct ggml_tensor * rows = graph_view(b->g, GGML_OP_VIEW, x, NE(KV_DIM, n, 1, 1), nb, 0, NULL);
        know(b, graph_set_rows(b->g, cache, rows, b->k_idxs), TAP_ATTENTION, 1);
    }
    return cache;
}

static int64_t streams_of(const struct build * b) { return b->o->n_seqs > 1 ? b->o->n_seqs : 1; }

// know_split notes a node of attention whose tokens lie in dimension dim and whose sequences in dimension 3: it has
// rows where there is one sequence, or where the two follow each other.
static struct ggml_tensor * know_split(struct build * b, struct ggml_tensor * t, uint8_t dim) {
    know(b, t, TAP_ATTENTION, dim);
    if (streams_of(b) > 1 && dim != 2) {
        b->g->known[t - b->g->tensors].rows = TAP_ROWS_NONE;
    }
    return t;
}

static struct ggml_tensor * cache_read(struct build * b, struct ggml_tensor * cache) {
    const int64_t streams = streams_of(b);
    const int64_t cells = b->o->n_kv / streams;
    const size_t nb[4] = {2, 2 * HEAD_DIM, 2 * KV_DIM, 2 * KV_DIM * (size_t) cells};
    char name[GGML_MAX_NAME + 8];
    snprintf(name, sizeof(name), "%s (view)", cache->name);
    struct ggml_tensor * v = graph_view(b->g, GGML_OP_VIEW, cache, NE(HEAD_DIM, HEADS_KV, cells, streams), nb, 0, name);
    return graph_permute(b->g, v, 0, 2, 1, 3, NULL);
}

static struct ggml_tensor * attention(struct build * b, struct ggml_tensor * x) {
    const int64_t n = b->row_count;
    struct ggml_tensor * q = heads(b, x, "attn_q", HEADS, "Qcur");
    struct ggml_tensor * k = heads(b, x, "attn_k", HEADS_KV, "Kcur");
    struct ggml_tensor * v = heads(b, x, "attn_v", HEADS_KV, "Vcur");
    struct ggml_tensor * ck = cache_write(b, "cache_k_l", k, false);
    struct ggml_tensor * cv = cache_write(b, "cache_v_l", v, !b->o->flash);
    struct ggml_tensor * out;
    const int64_t streams = streams_of(b), each = n / streams, cells = b->o->n_kv / streams;
    if (streams > 1) {
        const size_t nb[4] = {q->nb[0], q->nb[1], q->nb[2], q->nb[2] * (size_t) each};
        q = know_split(b, graph_view(b->g, GGML_OP_VIEW, q, NE(HEAD_DIM, HEADS, each, streams), nb, 0, NULL), 2);
    }
    q = know_split(b, graph_permute(b->g, q, 0, 2, 1, 3, layered("q", b->layer)), 1);
    k = cache_read(b, ck);
    v = cache_read(b, cv);
    if (b->o->flash) {
        out = graph_node(b->g, GGML_OP_FLASH_ATTN_EXT, GGML_TYPE_F32, NE(HEAD_DIM, HEADS, each, streams), NULL, q, k,
                         v);
        out->src[3] = b->mask;
        know_split(b, out, 2);
        out = know(b, graph_reshape(b->g, out, NE(EMBD, n, 1, 1), layered("kqv_out", b->layer)), TAP_ATTENTION, 1);
    } else {
        struct ggml_tensor * kq = graph_node(b->g, GGML_OP_MUL_MAT, GGML_TYPE_F32, NE(cells, each, HEADS, streams),
                                             layered("kq", b->layer), k, q, NULL);
        know_split(b, kq, 1);
        kq = graph_node(b->g, GGML_OP_SOFT_MAX, GGML_TYPE_F32, NE(cells, each, HEADS, streams),
                        layered("kq_soft_max", b->layer), kq, b->mask, NULL);
        know_split(b, kq, 1);
        out = graph_node(b->g, GGML_OP_MUL_MAT, GGML_TYPE_F32, NE(HEAD_DIM, each, HEADS, streams),
                         layered("kqv", b->layer), v, kq, NULL);
        know_split(b, out, 1);
        out = know_split(b, graph_permute(b->g, out, 0, 2, 1, 3, NULL), 2);
        out = graph_node(b->g, GGML_OP_CONT, GGML_TYPE_F32, NE(EMBD, n, 1, 1), layered("kqv_out", b->layer), out,
                         NULL, NULL);
        know(b, out, TAP_ATTENTION, 1);
    }
    return linear(b, out, "attn_output", EMBD, b->layer == 0 ? NULL : layered("attn_out", b->layer), TAP_ATTENTION);
}

static struct ggml_tensor * dense_mlp(struct build * b, struct ggml_tensor * x) {
    struct ggml_tensor * gate = linear(b, x, "ffn_gate", FFN, layered("ffn_gate", b->layer), TAP_MLP);
    struct ggml_tensor * up = linear(b, x, "ffn_up", FFN, layered("ffn_up", b->layer), TAP_MLP);
    struct ggml_tensor * act = graph_node(b->g, GGML_OP_GLU, GGML_TYPE_F32, NE(FFN, b->row_count, 1, 1),
                                          layered("ffn_swiglu", b->layer), gate, up, NULL);
    know(b, act, TAP_MLP, 1);
    return linear(b, act, "ffn_down", EMBD, layered("ffn_out", b->layer), TAP_MLP);
}

static struct ggml_tensor * experts(struct build * b, struct ggml_tensor * x, const char * w, struct ggml_tensor * ids,
                                    int64_t out, const char * name) {
    struct ggml_tensor * t = graph_node(b->g, GGML_OP_MUL_MAT_ID, GGML_TYPE_F32, NE(out, USED, b->row_count, 1),
                                        layered(name, b->layer),
                                        weight(b, w, NE(x->ne[0], out, b->o->n_experts, 1)), x, ids);
    return know(b, t, TAP_MLP, 2);
}

static struct ggml_tensor * expert_mlp(struct build * b, struct ggml_tensor * x) {
    const int64_t n = b->row_count, e = b->o->n_experts;
    struct ggml_tensor * p = linear(b, x, "ffn_gate_inp", e, layered("ffn_moe_logits", b->layer), TAP_MLP);
    p = know(b, graph_node(b->g, GGML_OP_SOFT_MAX, GGML_TYPE_F32, NE(e, n, 1, 1), layered("ffn_moe_probs", b->layer), p,
                           NULL, NULL), TAP_MLP, 1);
    struct ggml_tensor * sorted = graph_node(b->g, GGML_OP_ARGSORT, GGML_TYPE_I32, NE(e, n, 1, 1),
                                             layered("ffn_moe_argsort", b->layer), p, NULL, NULL);
    know(b, sorted, TAP_MLP, 1);
    const size_t nb[4] = {4, 4 * (size_t) e, 4 * (size_t) (e * n), 4 * (size_t) (e * n)};
    struct ggml_tensor * top = graph_view(b->g, GGML_OP_VIEW, sorted, NE(USED, n, 1, 1), nb, 0,
                                          layered("ffn_moe_topk", b->layer));
    know(b, top, TAP_MLP, 1);
    struct ggml_tensor * one = graph_reshape(b->g, p, NE(1, e, n, 1), NULL);
    struct ggml_tensor * share = graph_node(b->g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(1, USED, n, 1),
                                            layered("ffn_moe_weights", b->layer), one, top, NULL);
    know(b, share, TAP_MLP, 2);
    struct ggml_tensor * x3 = graph_reshape(b->g, x, NE(EMBD, 1, n, 1), NULL);
    struct ggml_tensor * up = experts(b, x3, "ffn_up_exps", top, FFN, "ffn_moe_up");
    struct ggml_tensor * out = experts(b, up, "ffn_down_exps", top, EMBD, "ffn_moe_down");
    out = graph_node(b->g, GGML_OP_MUL, GGML_TYPE_F32, NE(EMBD, USED, n, 1), layered("ffn_moe_weighted", b->layer), out,
                     share, NULL);
    know(b, out, TAP_MLP, 2);
    struct ggml_tensor * part[USED];
    for (int i = 0; i < USED; i++) {
        const size_t wide[4] = {4, 4 * EMBD * USED, 4 * EMBD * USED * (size_t) n, 4 * EMBD * USED * (size_t) n};
        part[i] = graph_view(b->g, GGML_OP_VIEW, out, NE(EMBD, n, 1, 1), wide, 4 * EMBD * (size_t) i, NULL);
    }
    out = graph_node(b->g, GGML_OP_ADD, GGML_TYPE_F32, NE(EMBD, n, 1, 1), layered("ffn_moe_out", b->layer), part[0],
                     part[1], NULL);
    return know(b, out, TAP_MLP, 1);
}

static struct ggml_tensor * gather(struct build * b, struct ggml_tensor * x, struct ggml_tensor * ids,
                                   uint8_t component) {
    struct ggml_tensor * t = graph_node(b->g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(EMBD, b->row_count, 1, 1), NULL, x,
                                        ids, NULL);
    return know(b, t, component, 1);
}

static struct ggml_tensor * layer(struct build * b, struct ggml_tensor * x, struct ggml_tensor * out_ids) {
    const int il = b->layer;
    struct ggml_tensor * skip = x;
    x = attention(b, norm(b, x, "attn_norm", "attn_norm", TAP_ATTENTION));
    if (il == b->o->n_layer - 1 && out_ids != NULL) {
        b->rows = TAP_ROWS_OUTPUTS;
        b->row_count = b->o->n_outputs;
        x = gather(b, x, out_ids, TAP_RESIDUAL); // no weight of its own: it belongs to the sum that reads it
        skip = gather(b, skip, out_ids, TAP_RESIDUAL);
    }
    x = graph_node(b->g, GGML_OP_ADD, GGML_TYPE_F32, NE(EMBD, b->row_count, 1, 1), layered("ffn_inp", il), x,
                   skip, NULL);
    skip = know(b, x, TAP_RESIDUAL, 1);
    x = norm(b, x, "ffn_norm", "ffn_norm", TAP_MLP);
    x = b->o->n_experts > 0 ? expert_mlp(b, x) : dense_mlp(b, x);
    x = graph_node(b->g, GGML_OP_ADD, GGML_TYPE_F32, NE(EMBD, b->row_count, 1, 1), layered("l_out", il), x, skip, NULL);
    return know(b, x, TAP_RESIDUAL, 1);
}

static struct ggml_tensor * input(struct graph * g, enum ggml_type type, struct ne ne, const char * name) {
    return graph_leaf(g, type, ne, GGML_TENSOR_FLAG_INPUT, name);
}

void model_graph(struct graph * g, const struct model_options * o, const int32_t * tokens, const int32_t * pos,
                 const int32_t * out_ids) {
    const int64_t n = o->n_tokens;
    int64_t widest = o->n_kv * HEADS > VOCAB ? o->n_kv * HEADS : VOCAB;
    widest = widest > FFN * USED ? widest : FFN * USED;
    graph_init(g, (size_t) (widest * n) * 4 + 64, 8u << 20, o->device);
    g->n_tokens = o->n_tokens;
    g->n_outputs = o->n_outputs;
    g->tokens = tokens;
    g->pos = pos;
    g->out_ids = out_ids;
    struct build b = {.g = g, .o = o, .layer = -1, .rows = TAP_ROWS_TOKENS, .row_count = o->n_tokens};
    struct ggml_tensor * ids = input(g, GGML_TYPE_I32, NE(n, 1, 1, 1), "inp_tokens");
    b.pos = input(g, GGML_TYPE_I32, NE(n, 1, 1, 1), "inp_pos");
    b.mask = input(g, o->flash ? GGML_TYPE_F16 : GGML_TYPE_F32, NE(o->n_kv / streams_of(&b), n / streams_of(&b), 1, streams_of(&b)), "attn_inp_kq_mask");
    b.k_idxs = input(g, GGML_TYPE_I64, NE(n, 1, 1, 1), "attn_inp_k_idxs");
    b.v_idxs = o->flash ? b.k_idxs : input(g, GGML_TYPE_I64, NE(n * KV_DIM, 1, 1, 1), "attn_inp_v_idxs");
    struct ggml_tensor * outs = o->n_outputs >= 0 ? input(g, GGML_TYPE_I32, NE(o->n_outputs, 1, 1, 1), "inp_out_ids")
        : NULL;
    struct ggml_tensor * table = graph_leaf(g, GGML_TYPE_F32, NE(EMBD, VOCAB, 1, 1), 0, "token_embd.weight");
    struct ggml_tensor * x = graph_node(g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(EMBD, n, 1, 1), "embd", table,
                                        ids, NULL);
    know(&b, x, TAP_INPUT, 1);
    for (b.layer = 0; b.layer < o->n_layer; b.layer++) {
        x = layer(&b, x, outs);
    }
    b.layer = -1;
    x = graph_node(g, GGML_OP_RMS_NORM, GGML_TYPE_F32, NE(EMBD, b.row_count, 1, 1), "norm", x, NULL, NULL);
    know(&b, x, TAP_OUTPUT, 1);
    x = graph_node(g, GGML_OP_MUL, GGML_TYPE_F32, NE(EMBD, b.row_count, 1, 1), "result_norm", x,
                   graph_leaf(g, GGML_TYPE_F32, NE(EMBD, 1, 1, 1), 0, "output_norm.weight"), NULL);
    know(&b, x, TAP_OUTPUT, 1);
    // tied
    x = graph_node(g, GGML_OP_MUL_MAT, GGML_TYPE_F32, NE(VOCAB, b.row_count, 1, 1), "result_output", table, x, NULL);
    know(&b, x, TAP_OUTPUT, 1);
    // A node that llama.cpp built and marked as not to be computed.
    x = graph_node(g, GGML_OP_SCALE, GGML_TYPE_F32, NE(VOCAB, b.row_count, 1, 1), "never_run", x, NULL, NULL);
    x->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
    g->leaf_tokens = ids;
    g->leaf_pos = b.pos;
    g->leaf_out = outs;
    graph_inputs(g);
}

void graph_inputs(struct graph * g) {
    graph_write(g, g->leaf_tokens, g->tokens, (size_t) g->n_tokens * 4);
    graph_write(g, g->leaf_pos, g->pos, (size_t) g->n_tokens * 4);
    if (g->leaf_out != NULL) {
        graph_write(g, g->leaf_out, g->out_ids, (size_t) g->n_outputs * 4);
    }
}
