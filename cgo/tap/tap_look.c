//go:build llama

// tap_look.c: which nodes are timed, and when they were computed.
//
// Hot path: per timed node one clock reading and a store of 16 bytes. ggml stops behind each: that is what looking
// costs, and nodes that compute nothing are timed as well, to learn how much it is.
#define _GNU_SOURCE
#include "tap_pool.h"
#include "tap_real.h"
#include "tap_sched.h"

#include <stdlib.h>
#include <string.h>

// How many nodes that compute nothing are timed in a graph.
enum { TAP_IDLE_RANGES = 2, TAP_IDLE_OPS = 8 };

static void tap_timed(struct tap_graph * g, int i) {
    g->n_timed += !g->nodes[i].timed;
    g->nodes[i].timed = true;
}

// tap_range_ends says whether a run of nodes of one layer and component ends at the computed node i.
static bool tap_range_ends(const struct tap_graph * g, int i) {
    for (int j = i + 1; j < g->n_nodes; j++) {
        if (g->nodes[j].computed) {
            return g->nodes[j].layer != g->nodes[i].layer || g->nodes[j].component != g->nodes[i].component;
        }
    }
    return true;
}

// tap_idle_at says whether the view i can show what looking costs: it follows a node that is timed, or a view,
// which then is timed too.
static bool tap_idle_at(const struct tap_graph * g, int i) {
    return g->nodes[i].view && (g->nodes[i - 1].view || (g->nodes[i - 1].timed && g->nodes[i - 1].computed));
}

// tap_look_idle times some views, each behind another timed node, spread over the graph.
static void tap_look_idle(struct tap_graph * g, int most) {
    int found = 0;
    for (int i = 1; i < g->n_nodes; i++) {
        found += tap_idle_at(g, i);
    }
    const int step = found > most ? found / most : 1;
    for (int i = 1, k = 0, marked = 0; i < g->n_nodes && marked < most; i++) {
        if (tap_idle_at(g, i) && k++ % step == 0) {
            tap_timed(g, i - 1);
            tap_timed(g, i);
            marked++;
        }
    }
}

// tap_routes marks a node that shows which experts, or which slots of a cache of experts, are multiplied.
static void tap_routes(struct tap_graph * g, int32_t i) {
    if (i >= 0 && !g->nodes[i].routing) {
        g->nodes[i].routing = true;
        g->n_routing++;
    }
}

// tap_choice is the node that slots were looked up for in a map from experts to slots; -1 where i shows experts itself.
static int32_t tap_choice(const struct tap_graph * g, int32_t i) {
    for (int inputs = 0; i >= 0; ) {
        const struct tap_graph_node * n = &g->nodes[i];
        if (n->tensor->type != GGML_TYPE_I32) {
            return -1;
        }
        if (n->tensor->op == GGML_OP_GET_ROWS && inputs++ == 0) {
            i = n->src[1];
        } else if (n->tensor->op == GGML_OP_RESHAPE || n->tensor->op == GGML_OP_CONT) {
            i = n->src[0];
        } else {
            return inputs > 0 ? i : -1;
        }
    }
    return -1;
}

// tap_look_routing marks the newest tensors that show which experts a layer chose and, if it is asked for, how it
// weighs them.
static void tap_look_routing(struct tap_graph * g, bool weighs) {
    int32_t layer = -1, weights = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tap_graph_node * n = &g->nodes[i];
        if (n->layer != layer) {
            layer = n->layer;
            weights = -1;
        }
        if (weighs && strncmp(n->tensor->name, "ffn_moe_weights", 15) == 0 && strstr(n->tensor->name, "_sum") == NULL &&
            (n->computed || n->view)) {
            if (weights >= 0) {
                g->nodes[weights].routing = false;
                g->n_routing--;
            }
            weights = i;
            g->nodes[i].routing = true;
            g->n_routing++;
        }
        const int32_t ids = n->tensor->op == GGML_OP_MUL_MAT_ID ? n->src[2] : -1;
        if (ids >= 0) {
            tap_routes(g, ids);
            tap_routes(g, tap_choice(g, ids));
        }
    }
}

void tap_look(struct tap_graph * g, const struct tap_selection * wish) {
    for (int i = 0; i < g->n_nodes; i++) {
        g->nodes[i].timed = g->nodes[i].routing = false;
    }
    g->n_timed = g->n_routing = 0;
    g->look_every = wish->look_every;
    g->looking = g->n_tokens == 0 ? TAP_LOOK_NEVER : wish->looking;
    if (g->n_tokens == 0) {
        return;
    }
    if (wish->record & (TAP_RECORD_ROUTING | TAP_RECORD_EXPERTS)) {
        tap_look_routing(g, (wish->record & TAP_RECORD_ROUTING) != 0);
    }
    if (wish->looking == TAP_LOOK_NEVER) {
        return;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].computed && (wish->looking == TAP_LOOK_OPS || tap_range_ends(g, i))) {
            tap_timed(g, i);
        }
    }
    tap_look_idle(g, wish->looking == TAP_LOOK_OPS ? TAP_IDLE_OPS : TAP_IDLE_RANGES);
}

void tap_look_devices(struct tap_graph * g) {
    if (!g->device || g->looking != TAP_LOOK_RANGES) {
        return;
    }
    int last = -1;
    ggml_backend_buffer_t buffer = NULL;
    const void * device = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!g->nodes[i].computed) {
            continue;
        }
        ggml_backend_buffer_t at = tap_buffer_of(g->nodes[i].tensor);
        const void * on = at == buffer ? device : tap_buffer_on(at);
        if (last >= 0 && on != device) {
            tap_timed(g, last);
        }
        last = i, buffer = at, device = on;
    }
}

bool tap_times_room(struct tap_sched * s) {
    const size_t want = (size_t) s->graph.n_timed * sizeof(s->times[0]);
    if (want <= s->cap_times) {
        return true;
    }
    void * times = realloc(s->times, want);
    if (times == NULL) {
        tap_loss_add(TAP_LOSS_NO_MEMORY, 0, want);
        return false;
    }
    s->times = times;
    s->cap_times = want;
    return true;
}

void tap_time_note(struct tap_sched * s, int i, int64_t done, int64_t left) {
    if ((s->n_times + 1) * sizeof(s->times[0]) <= s->cap_times) {
        const uint64_t held = (uint64_t) (left - done);
        s->times[s->n_times++] = (struct tap_time) {
            .node = (uint32_t) i, .left_ns = held < UINT32_MAX ? (uint32_t) held : UINT32_MAX,
            .done_ns = (uint64_t) (done - s->begin_ns),
        };
    }
}

void tap_times_send(struct tap_sched * s) {
    enum { CHUNK = 1024 };
    struct tap_rec_times rec = {
        .h.type = TAP_REC_TIMES, .exec = s->exec, .graph = s->graph.id, .begin_ns = (uint64_t) s->begin_ns,
        .total = s->n_times,
    };
    for (uint32_t first = 0; first < s->n_times; first += CHUNK) {
        rec.first = first;
        rec.count = s->n_times - first < CHUNK ? s->n_times - first : CHUNK;
        const struct tap_part part = {s->times + first, rec.count * sizeof(s->times[0])};
        tap_queue_put(&rec.h, sizeof(rec), &part, 1);
    }
}
