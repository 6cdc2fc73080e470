//go:build llama

// tap_steer_rows.c: sequences with vectors of their own, computed in one graph with others.
//
// llama.cpp adds one vector to all rows of a layer. Where sequences have vectors of their own, that addition becomes
// ggml's ADD_ID before the graph is allocated: it adds to each row the row of a table that a list of numbers names.
// The tables hold the vectors; the list is written before a graph is computed, where it is another than before. So
// the graph is not cut, and each row gets the sum that the addition of its vector alone would give it, bit by bit.
// Graphs of a context in which no sequence has a vector of its own stay as llama.cpp built them.
#define _GNU_SOURCE
#include "tap_graph.h"
#include "tap_real.h"
#include "tap_steer.h"

#include <stdlib.h>
#include <string.h>

// The parts of a context's room: the list for rows, and for those that are output, as they lie on devices; the same
// as they are to lie there; rows of the batch, tokens and positions of the micro-batch.
enum { STEER_LAST, STEER_NEXT = 2, STEER_BATCH = 4, STEER_TOKENS, STEER_POS, STEER_PARTS };

static int32_t * tap_steer_part(const struct tap_steered * s, int part) {
    return s->room + (size_t) part * (size_t) s->n_ubatch;
}

bool tap_steer_able(void) {
    const char * name = tap_real.ggml_op_name != NULL ? tap_real.ggml_op_name(GGML_OP_ADD_ID) : NULL;
    return name != NULL && strcmp(name, "ADD_ID") == 0 && tap_real.ggml_graph_get_tensor != NULL &&
        tap_real.ggml_init != NULL && tap_real.ggml_free != NULL && tap_real.ggml_new_tensor_4d != NULL &&
        tap_real.ggml_tensor_overhead != NULL && tap_real.ggml_backend_buffer_get_type != NULL &&
        tap_real.ggml_backend_alloc_ctx_tensors_from_buft != NULL &&
        tap_real.ggml_backend_sched_set_tensor_backend != NULL && tap_real.ggml_backend_supports_buft != NULL &&
        tap_real.ggml_backend_sched_get_n_backends != NULL && tap_real.ggml_backend_sched_get_backend != NULL &&
        tap_real.llama_n_ubatch != NULL;
}

// ---- memory on devices ----------------------------------------------------------------------------------------------

void tap_steer_release(struct tap_steered * s) {
    for (int i = 0; i < s->n_places; i++) {
        if (s->places[i].buffer != NULL) {
            ggml_backend_buffer_free(s->places[i].buffer);
        }
        tap_real.ggml_free(s->places[i].ctx);
    }
    s->n_places = 0;
    free(s->tables);
    free(s->room);
    s->tables = NULL;
    s->room = NULL;
}

// tap_steer_place_of finds or begins the place for vectors in memory of a type; NULL: there are too many.
static struct tap_steer_place * tap_steer_place_of(struct tap_steered * s, ggml_backend_buffer_type_t type) {
    for (int i = 0; i < s->n_places; i++) {
        if (s->places[i].type == type) {
            return &s->places[i];
        }
    }
    const size_t bytes = tap_real.ggml_tensor_overhead() * (size_t) (s->n_layer + 2);
    struct ggml_context * ctx = s->n_places < TAP_STEER_PLACES
        ? tap_real.ggml_init((struct ggml_init_params) {.mem_size = bytes, .no_alloc = true}) : NULL;
    if (ctx == NULL) {
        return NULL;
    }
    struct tap_steer_place * p = &s->places[s->n_places++];
    *p = (struct tap_steer_place) {.type = type, .ctx = ctx};
    for (int i = 0; i < 2; i++) {
        p->of[i] = tap_real.ggml_new_tensor_4d(ctx, GGML_TYPE_I32, s->n_ubatch, 1, 1, 1);
    }
    return p;
}

// tap_steer_tables makes the tables, once, next to llama.cpp's own vectors. Returns false without memory.
static bool tap_steer_tables(struct tap_steered * s) {
    if (s->tables != NULL) {
        return true;
    }
    s->n_ubatch = (int32_t) tap_real.llama_n_ubatch(s->ctx);
    s->tables = calloc((size_t) s->n_layer, sizeof(s->tables[0]));
    s->room = calloc((size_t) s->n_ubatch * STEER_PARTS, sizeof(s->room[0]));
    bool ok = s->tables != NULL && s->room != NULL;
    for (int32_t layer = 1; ok && layer < s->n_layer; layer++) {
        if (s->tensors[layer] != NULL) {
            struct tap_steer_place * p =
                tap_steer_place_of(s, tap_real.ggml_backend_buffer_get_type(s->tensors[layer]->buffer));
            ok = p != NULL;
            s->tables[layer] =
                ok ? tap_real.ggml_new_tensor_4d(p->ctx, GGML_TYPE_F32, s->n_embd, TAP_STEER_VECTORS, 1, 1) : NULL;
        }
    }
    for (int i = 0; ok && i < s->n_places; i++) {
        s->places[i].buffer =
            tap_real.ggml_backend_alloc_ctx_tensors_from_buft(s->places[i].ctx, s->places[i].type);
        ok = s->places[i].buffer != NULL;
    }
    if (!ok) {
        tap_steer_release(s);
        return false;
    }
    s->n_of[0] = s->n_of[1] = 0;
    for (int32_t layer = 1; layer < s->n_layer; layer++) {
        if (s->tensors[layer] != NULL) {
            tap_steer_write(s, layer);
        }
    }
    return true;
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

// tap_steer_adds returns the layer whose vector a node adds, or one of its table, 0: none.
static int32_t tap_steer_adds(const struct tap_steered * s, const struct ggml_tensor * node) {
    const struct ggml_tensor * vector = node->op == GGML_OP_ADD || node->op == GGML_OP_ADD_ID ? node->src[1] : NULL;
    if (vector == NULL || vector->op != GGML_OP_NONE || vector->ne[0] != s->n_embd) {
        return 0;
    }
    for (int32_t layer = 1; layer < s->n_layer; layer++) {
        if (s->tensors[layer] == vector || (s->tables != NULL && s->tables[layer] == vector)) {
            return layer;
        }
    }
    return 0;
}

// tap_steer_count is how many rows a graph has, or (1) outputs.
static int64_t tap_steer_count(const struct tap_steer_graph * g, int which) {
    const struct ggml_tensor * t = which == 0 ? g->tokens : g->out_ids;
    return t != NULL ? t->ne[0] : 0;
}

// tap_steer_change has a node add each row its own vector. Returns false where its rows are neither all nor those that
// are output.
static bool tap_steer_change(struct tap_steered * s, struct ggml_tensor * node, int32_t layer) {
    const struct tap_steer_graph * g = &s->graph;
    const int64_t n = node->ne[1];
    const int which = n == tap_steer_count(g, 0) ? 0 : n == tap_steer_count(g, 1) ? 1 : -1;
    if (n == 0) {
        return true; // no row is output
    }
    if (which < 0 || node->ne[2] != 1 || node->ne[3] != 1) {
        return false;
    }
    ggml_backend_buffer_type_t type = tap_real.ggml_backend_buffer_get_type(s->tables[layer]->buffer);
    node->op = GGML_OP_ADD_ID;
    node->src[1] = s->tables[layer];
    node->src[2] = tap_steer_place_of(s, type)->of[which];
    return true;
}

// tap_steer_size makes the lists as long as a graph has rows and outputs. Returns false where they are too many.
static bool tap_steer_size(struct tap_steered * s) {
    for (int which = 0; which < 2; which++) {
        const int64_t n = tap_steer_count(&s->graph, which);
        if (n > s->n_ubatch) {
            return false;
        }
        for (int i = 0; i < s->n_places; i++) {
            struct ggml_tensor * of = s->places[i].of[which];
            of->ne[0] = n;
            of->nb[1] = of->nb[2] = of->nb[3] = (size_t) n * sizeof(int32_t);
        }
    }
    return true;
}

// tap_steer_assign shows the scheduler whose memory the places are: what it finds in a graph's list of leafs it sees
// for itself, and they are not in it.
static void tap_steer_assign(const struct tap_steered * s, ggml_backend_sched_t sched) {
    const int n = tap_real.ggml_backend_sched_get_n_backends(sched);
    for (int i = 0; i < s->n_places; i++) {
        const struct tap_steer_place * p = &s->places[i];
        for (int k = 0; k < n; k++) {
            ggml_backend_t backend = tap_real.ggml_backend_sched_get_backend(sched, k);
            if (!tap_real.ggml_backend_supports_buft(backend, p->type)) {
                continue;
            }
            tap_real.ggml_backend_sched_set_tensor_backend(sched, p->of[0], backend);
            tap_real.ggml_backend_sched_set_tensor_backend(sched, p->of[1], backend);
            for (int32_t layer = 1; layer < s->n_layer; layer++) {
                if (s->tables[layer] != NULL && s->tables[layer]->buffer == p->buffer) {
                    tap_real.ggml_backend_sched_set_tensor_backend(sched, s->tables[layer], backend);
                }
            }
            break;
        }
    }
}

// tap_steer_look counts a graph's additions of vectors. One that adds by row already was allocated before another one.
static void tap_steer_look(struct tap_steered * s, struct ggml_cgraph * graph) {
    const int n = TAP_REAL(ggml_graph_n_nodes)(graph);
    s->graph = (struct tap_steer_graph) {.graph = graph};
    for (int i = 0; i < n; i++) {
        const struct ggml_tensor * node = TAP_REAL(ggml_graph_node)(graph, i);
        if (tap_steer_adds(s, node) != 0) {
            s->graph.n_adds++;
            s->graph.n_by_row = node->op == GGML_OP_ADD_ID ? -1 : s->graph.n_by_row;
        }
    }
}

void tap_steer_by_row(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    struct tap_steered * s = tap_steer_current();
    if (s == NULL) {
        return;
    }
    struct tap_steer_graph * g = &s->graph;
    const struct tap_steer_graph before = *g;
    tap_steer_look(s, graph);
    if (g->n_by_row < 0 && before.graph == graph && before.n_by_row == g->n_adds) { // it is allocated a second time
        *g = before;
        tap_steer_assign(s, sched);
    }
    if (s->n_vectors == 1 || g->n_adds == 0 || g->n_by_row != 0 || !tap_steer_able() || !tap_steer_tables(s)) {
        return;
    }
    g->tokens = tap_real.ggml_graph_get_tensor(graph, "inp_tokens");
    g->pos = tap_real.ggml_graph_get_tensor(graph, "inp_pos");
    g->out_ids = tap_real.ggml_graph_get_tensor(graph, "inp_out_ids");
    if (g->out_ids == NULL) {
        g->out_ids = tap_real.ggml_graph_get_tensor(graph, "out_ids");
    }
    const int n = g->tokens != NULL && tap_steer_size(s) ? TAP_REAL(ggml_graph_n_nodes)(graph) : 0;
    for (int i = 0; i < n; i++) {
        struct ggml_tensor * node = TAP_REAL(ggml_graph_node)(graph, i);
        const int32_t layer = tap_steer_adds(s, node);
        g->n_by_row += layer != 0 && tap_steer_change(s, node, layer);
    }
    tap_steer_assign(s, sched);
}

// ---- executions -----------------------------------------------------------------------------------------------------

// tap_steer_input returns n numbers of an input, which may lie on a device; NULL: it has not as many.
static const int32_t * tap_steer_input(const struct tap_steered * s, const struct ggml_tensor * t, int64_t n,
                                       int part) {
    if (t == NULL || t->type != GGML_TYPE_I32 || t->ne[0] < n) {
        return NULL;
    }
    if (tap_is_here(t)) {
        return t->data;
    }
    TAP_REAL(ggml_backend_tensor_get)(t, tap_steer_part(s, part), 0, (size_t) n * sizeof(int32_t));
    return tap_steer_part(s, part);
}

// tap_steer_list makes the list of the vectors of a micro-batch's rows. Returns false where they are not known.
static bool tap_steer_list(struct tap_steered * s) {
    const struct tap_steer_graph * g = &s->graph;
    const int32_t n = (int32_t) g->tokens->ne[0];
    int32_t * next = tap_steer_part(s, STEER_NEXT), * batch = tap_steer_part(s, STEER_BATCH);
    if (s->only < 0) {
        const struct tap_micro micro = {
            .tokens = tap_steer_input(s, g->tokens, n, STEER_TOKENS), .pos = tap_steer_input(s, g->pos, n, STEER_POS),
            .n = n, .n_ubatch = s->n_ubatch, .grouped = s->grouped,
        };
        if (s->list == NULL || micro.tokens == NULL || !tap_rows_match(s->list, &micro, batch)) {
            return false;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        next[i] = s->only >= 0 ? s->only : (int32_t) tap_steer_vector(s, s->list->rows[batch[i]].seq);
    }
    const int32_t n_out = (int32_t) tap_steer_count(g, 1);
    const int32_t * out = tap_steer_input(s, g->out_ids, n_out, STEER_TOKENS);
    for (int32_t i = 0; i < n_out; i++) {
        if (out == NULL || out[i] < 0 || out[i] >= n) {
            return false;
        }
        next[s->n_ubatch + i] = next[out[i]];
    }
    return true;
}

// tap_steer_place_list writes the lists to devices where they are others than before.
static void tap_steer_place_list(struct tap_steered * s, ggml_backend_sched_t sched) {
    const struct tap_steer_graph * g = &s->graph;
    bool waited = false;
    for (int i = 0; i < 2; i++) {
        const int32_t count = (int32_t) tap_steer_count(g, i);
        const size_t bytes = (size_t) count * sizeof(int32_t);
        int32_t * last = tap_steer_part(s, STEER_LAST + i), * next = tap_steer_part(s, STEER_NEXT + i);
        if (bytes == 0 || (s->n_of[i] >= count && memcmp(last, next, bytes) == 0)) {
            continue;
        }
        if (!waited) {
            TAP_REAL(ggml_backend_sched_synchronize)(sched); // the graph before may still be computed
            waited = true;
        }
        for (int k = 0; k < s->n_places; k++) {
            TAP_REAL(ggml_backend_tensor_set)(s->places[k].of[i], next, 0, bytes);
        }
        memcpy(last, next, bytes);
        s->n_of[i] = count;
    }
}

bool tap_steer_rows(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    struct tap_steered * s = tap_steer_current();
    if (s == NULL) {
        return true;
    }
    if (s->graph.graph != graph) {
        tap_steer_look(s, graph);
    }
    const struct tap_steer_graph * g = &s->graph;
    if (g->n_adds == 0 || (g->n_by_row == 0 && s->only == 0)) {
        return true;
    }
    const bool ok = g->n_by_row >= 0 && (g->n_by_row == g->n_adds || s->only == 0) && tap_steer_list(s);
    if (ok) {
        tap_steer_place_list(s, sched);
    } else if (!s->refused) {
        s->refused = true;
        tap_say("a batch is not computed: its sequences have different vectors, and ",
                g->n_by_row == g->n_adds ? "llama.cpp has put its rows in an unknown order"
                                         : "the graph of this model takes one vector for all rows",
                "; steer the whole run instead of a sequence");
    }
    return ok;
}
