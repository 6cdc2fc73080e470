//go:build llama

// tap_tell.c: a graph's description on its way to the collector: whole, or as what has changed since the one before.
//
// Runs once per new graph, on the model's thread.
#define _GNU_SOURCE
#include "tap_buffer.h"
#include "tap_graph.h"
#include "tap_queue.h"
#include "tap_real.h"

#include <string.h>

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
static uint32_t tap_encoded(const uint8_t * out, const uint8_t * end) {
    return (uint32_t) (((size_t) (end - out) + 7) & ~(size_t) 7);
}

static size_t tap_encode_node(const struct tap_graph * g, struct tap_nearby * near, int i, uint8_t * out) {
    const struct tap_graph_node * n = &g->nodes[i];
    const struct ggml_tensor * t = n->tensor;
    const char * op = tap_real.ggml_op_desc(t);
    struct tap_node * e = (struct tap_node *) out;
    *e = (struct tap_node) {
        .layer = n->layer, .component = n->component, .rows = tap_whole_rows(n), .row_dim = n->row_dim, .inferred = n->inferred,
        .flags = (uint8_t) (n->view | n->wanted << 1 | n->computed << 2 | (n->alias >= 0) << 3 | n->routing << 4),
        .occurrence = n->occurrence, .number = n->number, .type = (uint16_t) t->type, .name_bytes = n->name_bytes,
        .op_bytes = (uint8_t) strnlen(op, 32),
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

// The longest entry of a chunk.
enum { TAP_LARGEST_ENTRY = sizeof(struct tap_node) + 4 * (GGML_MAX_SRC + 1) + TAP_NAME_SIZE + 32 + 8 };

// tap_chunk_room returns a place for the next entry, number i.
static uint8_t * tap_chunk_room(struct tap_chunk * c, uint32_t i, bool * ok) {
    const size_t limit = tap_queue_largest() / 2 < sizeof(c->bytes) ? tap_queue_largest() / 2 : sizeof(c->bytes);
    if (c->n + TAP_LARGEST_ENTRY > limit) {
        *ok = tap_chunk_flush(c, i);
    }
    c->head.count++;
    return c->bytes + c->n;
}

static void tap_chunk_begin(struct tap_chunk * c, enum tap_record_type type, uint64_t graph) {
    c->head = (struct tap_rec_nodes) {.h.type = type, .graph = graph};
    c->n = 0;
}

// tap_tell_all reports every node and leaf.
static bool tap_tell_all(const struct tap_graph * g) {
    struct tap_nearby near = {0};
    struct tap_chunk chunk;
    bool ok = true;
    for (int pass = 0; pass < 2; pass++) {
        const int n = pass == 0 ? g->n_nodes : g->n_leafs;
        tap_chunk_begin(&chunk, pass == 0 ? TAP_REC_NODES : TAP_REC_LEAFS, g->id);
        for (int i = 0; ok && i < n; i++) {
            uint8_t * at = tap_chunk_room(&chunk, (uint32_t) i, &ok);
            chunk.n += pass == 0 ? tap_encode_node(g, &near, i, at) : tap_encode_leaf(g, &near, i, at);
        }
        ok = ok && tap_chunk_flush(&chunk, (uint32_t) n);
    }
    return ok;
}

static size_t tap_encode_change(const struct tap_graph * g, struct tap_nearby * near, int i, uint8_t * out) {
    const bool leaf = i >= g->n_nodes;
    const struct tap_graph_node * n = leaf ? NULL : &g->nodes[i];
    const struct ggml_tensor * t = leaf ? g->leafs[i - g->n_nodes].tensor : n->tensor;
    const uint8_t changed = g->changed[i];
    struct tap_change * e = (struct tap_change *) out;
    *e = (struct tap_change) {.which = leaf ? g->n_nodes - 1 - i : i, .rows = leaf ? 0 : tap_whole_rows(n),
        .row_dim = leaf ? 0 : n->row_dim};
    uint8_t * at = out + sizeof(*e);
    if (changed & TAP_CHANGED_PLACE) {
        struct tap_change_place * place = (struct tap_change_place *) at;
        tap_where(near, t, &place->buffer, &place->offset);
        e->of |= TAP_CHANGE_PLACE;
        at += sizeof(*place);
    }
    if (changed & TAP_CHANGED_SHAPE) {
        struct tap_change_shape * shape = (struct tap_change_shape *) at;
        memcpy(shape->ne, t->ne, sizeof(shape->ne));
        for (int d = 0; d < TAP_MAX_DIMS; d++) {
            shape->nb[d] = t->nb[d];
        }
        memcpy(shape->op_params, t->op_params, sizeof(shape->op_params));
        e->of |= TAP_CHANGE_SHAPE;
        at += leaf ? offsetof(struct tap_change_shape, op_params) : sizeof(*shape);
    }
    return e->bytes = tap_encoded(out, at);
}

static int tap_count_changes(const struct tap_graph * g) {
    int n = 0;
    for (int i = 0; i < g->n_nodes + g->n_leafs; i++) {
        n += g->changed[i] != 0;
    }
    return n;
}

// tap_tell_changes reports those nodes and leafs that are changed.
static bool tap_tell_changes(const struct tap_graph * g) {
    struct tap_nearby near = {0};
    struct tap_chunk chunk;
    bool ok = true;
    tap_chunk_begin(&chunk, TAP_REC_CHANGES, g->id);
    for (int i = 0; ok && i < g->n_nodes + g->n_leafs; i++) {
        if (g->changed[i] != 0) {
            chunk.n += tap_encode_change(g, &near, i, tap_chunk_room(&chunk, 0, &ok));
        }
    }
    return ok && tap_chunk_flush(&chunk, 0);
}

bool tap_graph_ask(const struct tap_graph * g) {
    struct tap_rec_graph head = {
        .h.type = TAP_REC_GRAPH, .graph = g->id, .ctx = TAP_ASKS, .n_nodes = (uint32_t) g->n_nodes,
        .n_leafs = (uint32_t) g->n_leafs, .n_tokens = g->n_tokens, .n_outputs = g->n_outputs,
    };
    return tap_queue_put(&head.h, sizeof(head), NULL, 0) && tap_tell_all(g);
}

bool tap_graph_send(struct tap_graph * g, struct tap_context * c) {
    const bool changes = g->like != 0 && g->like == c->told_graph;
    struct tap_rec_graph head = {
        .h.type = TAP_REC_GRAPH, .graph = g->id, .ctx = tap_get(&c->number), .n_nodes = (uint32_t) g->n_nodes,
        .n_leafs = (uint32_t) g->n_leafs,
        .n_wanted = (uint32_t) g->n_wanted, .n_tokens = g->n_tokens, .n_outputs = g->n_outputs,
        .selection = g->selection, .attention = g->attention, .like = changes ? g->like : 0,
        .n_changes = changes ? (uint32_t) tap_count_changes(g) : 0,
    };
    c->told_graph = 0;
    g->like = 0;
    g->sent = tap_queue_put(&head.h, sizeof(head), NULL, 0) && (changes ? tap_tell_changes(g) : tap_tell_all(g));
    if (g->sent) {
        c->told_graph = g->id;
        if (g->formed) {
            memset(g->changed, 0, (size_t) g->n_nodes + (size_t) g->n_leafs);
        }
    }
    return g->sent;
}
