//go:build llama

// tap_keep.c: capture without cutting the graph.
//
// ggml computes up to each node that an eval callback wants, and waits. That costs the CPU a launch of all threads,
// and a device its fusion and its overlap. So a wanted tensor is flagged as an output before the graph is allocated:
// the allocator then uses its memory for nothing else, and it is copied when the whole graph is computed. The callback
// remains for what cannot stay: a tensor that a later node writes into, and what would take more memory than the
// limit.
//
// The allocator plans the places of a graph's tensors once and uses the plan again for every graph that has as many
// nodes and none larger. A plan that was made without the flags, as that for a prompt of a whole batch may be, does not
// honour them. A graph that needs another plan is given one node more or less: a view of a weight, which nothing
// reads and which computes nothing. Whether the plan keeps what it should is then read from the addresses.
//
// Runs once per graph that is allocated, with one visit per node.
#define _GNU_SOURCE
#include "tap_real.h"
#include "tap_sched.h"

#include <stdlib.h>
#include <string.h>

// tap_kept_source returns the number of the node whose bytes are captured for node i, before views are followed, or a
// negative number.
static int32_t tap_kept_source(const struct tap_graph * g, int32_t i) {
    const struct tap_graph_node * n = &g->nodes[i];
    return n->written_rows ? n->src[0] : n->alias >= 0 ? n->alias : i;
}

// tap_owner returns the number of the node or leaf that owns the bytes of node i, or INT32_MIN.
static int32_t tap_owner(const struct tap_graph * g, int32_t i) {
    const struct ggml_tensor * t = g->nodes[i].tensor;
    return t->view_src == NULL ? i : tap_graph_find(g, t->view_src);
}

static size_t tap_bytes(const struct ggml_tensor * t) {
    return (size_t) (t->ne[3] * (int64_t) t->nb[3]);
}

static bool tap_captured(const struct tap_graph_node * n) { return n->wanted || n->routing; }

void tap_graph_cut(struct tap_graph * g) {
    if (g->n_flagged != 0) {
        for (int i = 0; i < g->n_nodes; i++) {
            g->nodes[i].kept = false;
        }
        g->n_flagged = 0;
    }
    tap_graph_count(g);
}

void tap_graph_count(struct tap_graph * g) {
    g->n_kept = 0;
    if (g->n_flagged != 0) {
        for (int i = 0; i < g->n_nodes; i++) {
            g->n_kept += tap_captured(&g->nodes[i]) && g->nodes[i].kept;
        }
    }
    int both = 0;
    if (g->n_wanted > 0 && g->n_routing > 0) {
        for (int i = 0; i < g->n_nodes; i++) {
            both += g->nodes[i].wanted && g->nodes[i].routing;
        }
    }
    g->n_cut = g->n_wanted + g->n_routing - both - g->n_kept;
}

// tap_writer is the last node that writes into the bytes of a node or leaf through a view.
static int32_t * tap_writer(struct tap_graph * g, int32_t owner) {
    return owner >= 0 ? &g->nodes[owner].writer : &g->leafs[-1 - owner].writer;
}

static void tap_note_writers(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        g->nodes[i].writer = -1;
    }
    for (int i = 0; i < g->n_leafs; i++) {
        g->leafs[i].writer = -1;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].computed && g->nodes[i].tensor->view_src != NULL) {
            const int32_t owner = tap_owner(g, i);
            if (owner != INT32_MIN) {
                *tap_writer(g, owner) = i;
            }
        }
    }
}

// tap_span returns how many bytes a tensor reaches over, at most.
static size_t tap_span(const struct ggml_tensor * t) {
    size_t span = t->nb[0];
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        span += t->ne[d] > 0 ? (size_t) (t->ne[d] - 1) * t->nb[d] : 0;
    }
    return span;
}

// tap_rewritten says whether a node behind i writes, through a view, into what is captured for node i.
static bool tap_rewritten(struct tap_graph * g, int32_t i, int32_t source, int32_t owner) {
    const struct ggml_tensor * t = g->nodes[source].tensor;
    const size_t at = t->view_src != NULL ? t->view_offs : 0, end = at + tap_span(t);
    for (int32_t j = i + 1, last = *tap_writer(g, owner); j <= last; j++) {
        const struct ggml_tensor * u = g->nodes[j].tensor;
        if (g->nodes[j].computed && u->view_src != NULL && tap_owner(g, j) == owner && u->view_offs < end &&
            u->view_offs + tap_span(u) > at) {
            return true;
        }
    }
    return false;
}

// tap_keeps returns the owner of the bytes that are captured for node i if they can stay in place, or INT32_MIN: a
// later node writes into them, or they lie in an input, whose memory is used again. Those of a cache stay as they are;
// those of a node do if it is flagged.
static int32_t tap_keeps(struct tap_graph * g, int32_t i) {
    const int32_t source = tap_kept_source(g, i);
    const int32_t owner = source >= 0 ? tap_owner(g, source) : INT32_MIN;
    if (owner == INT32_MIN || tap_rewritten(g, i, source, owner)) {
        return INT32_MIN;
    }
    return owner >= 0 || g->leafs[-1 - owner].tensor->data != NULL ? owner : INT32_MIN;
}

static bool tap_flagged(const struct ggml_tensor * t) { return (t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0; }

// tap_keep_cost returns the bytes that the captured nodes from first to end, of one layer, add to what the graph holds.
static uint64_t tap_keep_cost(struct tap_graph * g, int first, int end) {
    uint64_t bytes = 0;
    for (int i = first; i < end; i++) {
        const int32_t owner = tap_captured(&g->nodes[i]) ? tap_keeps(g, i) : INT32_MIN;
        if (owner >= 0 && !tap_flagged(g->nodes[owner].tensor)) {
            bytes += tap_bytes(g->nodes[owner].tensor);
        }
    }
    return bytes;
}

// tap_keep_flag flags what is captured of a graph, at most that many bytes, and notes for each node whether it is to
// stay in place.
static void tap_keep_flag(struct tap_graph * g, uint64_t most) {
    tap_graph_cut(g);
    if (g->n_cut == 0 || most == 0 || g->n_tokens == 0) {
        return;
    }
    tap_note_writers(g);
    uint64_t held = 0;
    for (int first = 0, end; first < g->n_nodes; first = end) {
        end = first + 1;
        while (end < g->n_nodes && g->nodes[end].layer == g->nodes[first].layer) {
            end++;
        }
        const uint64_t cost = tap_keep_cost(g, first, end);
        if (held + cost > most) {
            continue; // a layer is kept whole, or cut
        }
        held += cost;
        for (int i = first; i < end; i++) {
            const int32_t owner = tap_captured(&g->nodes[i]) ? tap_keeps(g, i) : INT32_MIN;
            if (owner >= 0) {
                ((struct ggml_tensor *) g->nodes[owner].tensor)->flags |= GGML_TENSOR_FLAG_OUTPUT;
            }
            if (owner != INT32_MIN) {
                g->nodes[i].kept = true;
                g->n_flagged++;
            }
        }
    }
}

// ---- the allocator's plan -------------------------------------------------------------------------------------------

static bool tap_plan_has(const struct tap_plan * p, int i) { return p->kept[i / 64] >> (i % 64) & 1; }

// tap_plan_covers says whether the plan keeps what g keeps.
static bool tap_plan_covers(const struct tap_plan * p, const struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].kept && !tap_plan_has(p, i)) {
            return false;
        }
    }
    return true;
}

// tap_plan_note notes that there is a plan for s's graph. What was planned for more, and is used again, may be planned
// anew for a larger graph: what this graph keeps is what it keeps at least.
static void tap_plan_note(struct tap_sched * s, bool padded) {
    struct tap_plan * p = &s->plan;
    const struct tap_graph * g = &s->graph;
    const size_t words = (size_t) g->n_nodes / 64 + 1;
    p->total = g->n_nodes + padded;
    p->n_nodes = 0;
    if (g->n_flagged == 0 || !tap_array_grow(&p->kept, &p->cap, words, sizeof(p->kept[0]))) {
        return; // it keeps nothing
    }
    memset(p->kept, 0, words * sizeof(p->kept[0]));
    p->n_nodes = g->n_nodes;
    for (int i = 0; i < g->n_nodes; i++) {
        p->kept[i / 64] |= (uint64_t) g->nodes[i].kept << (i % 64);
    }
}

// tap_pad puts a view of a weight in front of the nodes of a graph.
static bool tap_pad(struct tap_sched * s, struct ggml_cgraph * cgraph) {
    struct tap_plan * p = &s->plan;
    const struct tap_graph * g = &s->graph;
    if (tap_real.ggml_graph_nodes == NULL || tap_real.ggml_graph_size == NULL || tap_real.ggml_init == NULL ||
        tap_real.ggml_free == NULL || tap_real.ggml_view_1d == NULL || tap_real.ggml_build_forward_expand == NULL ||
        tap_real.ggml_set_name == NULL || tap_real.ggml_tensor_overhead == NULL ||
        tap_real.ggml_tensor_overhead() > sizeof(s->plan.memory) ||
        tap_real.ggml_graph_size(cgraph) < g->n_nodes + g->n_leafs + 2) {
        return false;
    }
    const struct ggml_tensor * weight = NULL;
    for (int i = 0; i < g->n_leafs && weight == NULL; i++) {
        const struct ggml_tensor * t = g->leafs[i].tensor;
        weight = t->data != NULL && t->view_src == NULL && !g->leafs[i].input ? t : NULL;
    }
    if (weight == NULL) {
        return false;
    }
    if (p->ctx != NULL) {
        tap_real.ggml_free(p->ctx);
    }
    p->ctx = tap_real.ggml_init(
        (struct ggml_init_params) {.mem_size = sizeof(p->memory), .mem_buffer = p->memory, .no_alloc = true});
    if (p->ctx == NULL) {
        return false;
    }
    struct ggml_tensor * pad = tap_real.ggml_view_1d(p->ctx, (struct ggml_tensor *) weight, weight->ne[0], 0);
    tap_real.ggml_set_name(pad, "llamatap_pad");
    tap_real.ggml_build_forward_expand(cgraph, pad);
    struct ggml_tensor ** nodes = tap_real.ggml_graph_nodes(cgraph);
    const int n = tap_real.ggml_graph_n_nodes(cgraph);
    memmove(nodes + 1, nodes, (size_t) (n - 1) * sizeof(nodes[0]));
    nodes[0] = pad;
    p->pad = pad;
    return true;
}

// What is kept of a graph unless a limit is given: on the processor's own memory little, since a cut costs a graph of
// many tokens next to nothing there; on devices a twentieth of what is free, at most a gibibyte.
enum { TAP_KEEP_HOST = 64 << 20, TAP_KEEP_DEVICE = 1 << 30, TAP_KEEP_SHARE = 20 };

// tap_keep_auto chooses the limit of a scheduler, once: what is free changes with every allocation.
static TAP_RARE uint64_t tap_keep_auto(const struct tap_sched * s) {
    uint64_t most = TAP_KEEP_HOST;
    if (tap_real.ggml_backend_sched_get_n_backends == NULL || tap_real.ggml_backend_sched_get_backend == NULL ||
        tap_real.ggml_backend_get_device == NULL || tap_real.ggml_backend_dev_type == NULL ||
        tap_real.ggml_backend_dev_memory == NULL) {
        return most;
    }
    const int n = tap_real.ggml_backend_sched_get_n_backends(s->ptr);
    for (int i = 0; i < n; i++) {
        ggml_backend_t backend = tap_real.ggml_backend_sched_get_backend(s->ptr, i);
        ggml_backend_dev_t device = tap_real.ggml_backend_get_device(backend);
        const enum ggml_backend_dev_type type =
            device != NULL ? tap_real.ggml_backend_dev_type(device) : GGML_BACKEND_DEVICE_TYPE_CPU;
        if (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
            size_t left = 0, total = 0;
            tap_real.ggml_backend_dev_memory(device, &left, &total);
            const uint64_t share = left / TAP_KEEP_SHARE < TAP_KEEP_DEVICE ? left / TAP_KEEP_SHARE : TAP_KEEP_DEVICE;
            most = share > most ? share : most;
        }
    }
    return most;
}

// tap_keep_most is the limit of a scheduler's graphs. A program that looks at nodes while they are computed has its
// graphs cut already.
static uint64_t tap_keep_most(struct tap_sched * s) {
    if (s->user_callback != NULL) {
        return 0;
    }
    const uint64_t most = tap.header->config.keep_bytes;
    if (most != TAP_KEEP_AUTO) {
        return most;
    }
    if (s->plan.most == 0) {
        s->plan.most = tap_keep_auto(s);
    }
    return s->plan.most;
}

void tap_keep_reserve(struct tap_sched * s) {
    s->plan.pad = NULL;
    tap_keep_flag(&s->graph, tap_keep_most(s));
    tap_plan_note(s, false);
    tap_graph_count(&s->graph);
}

void tap_keep_begin(struct tap_sched * s, struct ggml_cgraph * cgraph) {
    const int64_t began = tap_now();
    struct tap_graph * g = &s->graph;
    struct tap_plan * p = &s->plan;
    tap_keep_flag(g, tap_keep_most(s));
    const bool known = p->n_nodes == g->n_nodes && tap_plan_covers(p, g);
    p->another = g->n_flagged > 0 && !known;
    // As many nodes as the plan has, where it shall be used again, and not as many where it shall not; nor may it be
    // used for a graph that has as many only because the one before was padded.
    const bool padded = known ? p->total > g->n_nodes : p->total == g->n_nodes && (p->another || p->pad != NULL);
    p->pad = NULL;
    tap_plan_note(s, padded && tap_pad(s, cgraph));
    tap_described((uint64_t) (tap_now() - began), g->like != 0);
}

// tap_written_later says whether a node behind i is written where the bytes of node i lie.
static bool tap_written_later(const struct tap_graph * g, int32_t i) {
    const struct ggml_tensor * t = g->nodes[i].tensor;
    const uintptr_t low = (uintptr_t) t->data, high = low + tap_bytes(t);
    for (int j = i + 1; j < g->n_nodes; j++) {
        const struct ggml_tensor * u = g->nodes[j].tensor;
        const uintptr_t at = (uintptr_t) u->data;
        if (u->view_src == NULL && at < high && at + tap_bytes(u) > low && u->buffer == t->buffer) {
            return true;
        }
    }
    return false;
}

void tap_keep_end(struct tap_sched * s) {
    const int64_t began = tap_now();
    struct tap_graph * g = &s->graph;
    struct tap_plan * p = &s->plan;
    if (g->n_flagged > 0 && (p->another || g->device)) {
        for (int i = 0; i < g->n_nodes; i++) {
            const int32_t owner = g->nodes[i].kept ? tap_owner(g, tap_kept_source(g, i)) : INT32_MIN;
            if (owner >= 0 && tap_written_later(g, owner)) {
                g->nodes[i].kept = false;
                g->n_flagged--;
                if (p->n_nodes != 0) { // there was memory to note the plan
                    p->kept[i / 64] &= ~(1ull << (i % 64));
                }
            }
        }
    }
    tap_graph_count(g);
    tap_described((uint64_t) (tap_now() - began), g->like != 0);
}

void tap_keep_release(struct tap_sched * s) {
    free(s->plan.kept);
    if (s->plan.ctx != NULL) {
        tap_real.ggml_free(s->plan.ctx);
    }
    memset(&s->plan, 0, sizeof(s->plan));
}
