// fake_plan.c: where ggml's allocator puts the nodes of a graph, and transfers from a device that arrive later.
//
// As ggml does, the allocator makes a plan for a number of nodes and uses it for every graph that has as many: only
// when it makes one does it look at which nodes are outputs, and gives those memory that no other node has.
#define _GNU_SOURCE
#include "fake_plan.h"

#include <stdlib.h>
#include <string.h>

static bool is_pad(const struct ggml_tensor * t) { return strcmp(t->name, "llamatap_pad") == 0; }

static bool placed(const struct ggml_tensor * t) { return t->view_src == NULL && !is_pad(t); }

static void plan_make(struct ggml_backend_sched * s, const struct ggml_cgraph * g) {
    s->areas = realloc(s->areas, (size_t) g->n_nodes * sizeof(s->areas[0]));
    MUST(s->areas != NULL);
    int shared = 0, own = GRAPH_AREAS;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ggml_tensor * t = g->nodes[i];
        const bool output = (t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
        s->areas[i] = !placed(t) ? 0 : output ? own++ : shared++ % GRAPH_AREAS;
        MUST(own <= GRAPH_AREAS + GRAPH_MORE_AREAS);
    }
    s->planned = g->n_nodes;
    s->n_plans++;
}

void plan_reserve(struct ggml_backend_sched * s, struct ggml_cgraph * g) {
    if (s->plans) {
        plan_make(s, g);
    }
}

void plan_alloc(struct ggml_backend_sched * s, struct ggml_cgraph * g) {
    s->pad = NULL;
    if (!s->plans) {
        return;
    }
    if (s->planned != g->n_nodes) {
        plan_make(s, g);
    }
    struct graph * whole = (struct graph *) g; // its first member
    for (int i = 0; i < g->n_nodes; i++) {
        struct ggml_tensor * t = g->nodes[i];
        if (placed(t)) {
            t->data = whole->compute.base + (size_t) s->areas[i] * whole->area_bytes;
        } else if (t->view_src != NULL && !is_pad(t)) {
            t->data = (uint8_t *) t->view_src->data + t->view_offs;
        }
    }
    // ggml computes a list of its own; the program's is put back, for a test to compare with.
    if (g->n_nodes > 0 && is_pad(g->nodes[0])) {
        s->pad = g->nodes[0];
        memmove(g->nodes, g->nodes + 1, (size_t) --g->n_nodes * sizeof(g->nodes[0]));
    }
}

struct ggml_tensor ** plan_nodes(struct ggml_cgraph * g) { return g->nodes; }
int plan_size(struct ggml_cgraph * g) { (void) g; return GRAPH_MAX_TENSORS; }

void plan_expand(struct ggml_cgraph * g, struct ggml_tensor * t) {
    MUST(g->n_nodes < GRAPH_MAX_TENSORS);
    g->nodes[g->n_nodes++] = t;
}

// ---- transfers ------------------------------------------------------------------------------------------------------

static struct transfer {
    const struct ggml_tensor * t;
    uint8_t *                  to;
    size_t                     offset, n;
} under_way[4096];
static int n_under_way;
static int device;

ggml_backend_t later_backend(ggml_backend_sched_t s, struct ggml_tensor * t) {
    (void) s;
    (void) t;
    return (ggml_backend_t) (void *) &device;
}

void later_get(ggml_backend_t backend, const struct ggml_tensor * t, void * to, size_t offset, size_t n) {
    MUST((void *) backend == &device && n_under_way < (int) (sizeof(under_way) / sizeof(under_way[0])));
    struct ggml_backend_buffer * b = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    MUST(!b->host);
    b->later++;
    memset(to, 0xcd, n); // until it has arrived
    under_way[n_under_way++] = (struct transfer) {t, to, offset, n};
}

void later_synchronize(ggml_backend_t backend) {
    MUST((void *) backend == &device);
    for (int i = 0; i < n_under_way; i++) {
        const struct transfer * x = &under_way[i];
        struct ggml_backend_buffer * b = x->t->view_src != NULL ? x->t->view_src->buffer : x->t->buffer;
        memcpy(x->to, b->bytes + ((uint8_t *) x->t->data - b->base) + x->offset, x->n);
    }
    n_under_way = 0;
}
