// bed.c: what a case of graphs needs.
#include "bed.h"

#include <string.h>

const int32_t tokens[64] = {1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
const int32_t positions[64] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

void bed_make(struct bed * b, const struct shm_options * o) {
    shm_make(&b->shm, o);
    log_init(&b->log, &b->shm);
    b->sched = sched_new();
}

void bed_join(struct bed * b) {
    tap_join(&b->shm);
    b->sched->run = 0;
}

void bed_end(struct bed * b) {
    ggml_backend_sched_free(b->sched);
    tap_leave();
    log_drain(&b->log);
    CHECK(b->log.damage == NULL, "%s", b->log.damage);
    const struct tap_header * h = b->shm.h;
    CHECK(b->log.hold || h->taken == h->returned, "%lu slots taken, %lu given back", (unsigned long) h->taken,
          (unsigned long) h->returned);
    log_clear(&b->log);
    graph_free(&b->graph);
    shm_free(&b->shm);
    test_end();
}

enum ggml_status bed_run(struct bed * b, bool alloc) {
    graph_inputs(&b->graph);
    if (alloc) {
        MUST(ggml_backend_sched_alloc_graph(b->sched, &b->graph.cgraph));
    }
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(b->sched, &b->graph.cgraph);
    return status;
}

struct expected bed_expect(struct bed * b, size_t exec, wanted_fn wanted, void * arg) {
    return (struct expected) {.log = &b->log, .graph = &b->graph, .config = &b->shm.h->config.start, .run = exec + 1,
        .exec = exec, .wanted = wanted, .arg = arg};
}

void no_losses(const struct bed * b) {
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(b->shm.h->stats.loss[i].packets == 0 && b->shm.h->stats.loss[i].bytes == 0, "loss of cause %d", i);
    }
}

bool is_view(const struct ggml_tensor * t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
        t->op == GGML_OP_TRANSPOSE;
}

bool computed(const struct graph * g, int i) {
    return (g->nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) && !is_view(g->nodes[i]);
}

bool want_computed(const struct graph * g, int i, void * arg) { (void) arg; return computed(g, i); }

// a dense tensor in the view's shape, of any type.
void shape_graph(struct graph * g, const int64_t * n, int n_tokens, const int * axis, enum ggml_type type,
                 bool device) {
    const int64_t all = n[0] * n[1] * n[2];
    graph_init(g, (size_t) (all * n_tokens) * 4 + 64, (size_t) all * 64 + 65536, device);
    g->n_tokens = n_tokens;
    g->n_outputs = -1;
    g->tokens = tokens;
    g->pos = positions;
    g->leaf_tokens = graph_leaf(g, GGML_TYPE_I32, NE(n_tokens, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "inp_tokens");
    g->leaf_pos = graph_leaf(g, GGML_TYPE_I32, NE(n_tokens, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "inp_pos");
    struct ggml_tensor * table = graph_leaf(g, GGML_TYPE_F32, NE(all, 8, 1, 1), 0, "token_embd.weight");
    struct ggml_tensor * rows = graph_node(g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(all, n_tokens, 1, 1), "embd", table,
                                           g->leaf_tokens, NULL);
    graph_know(g, rows, -1, TAP_INPUT, TAP_ROWS_TOKENS, 1);
    const size_t nb[4] = {4, 4 * (size_t) all, 4 * (size_t) (all * n_tokens), 4 * (size_t) (all * n_tokens)};
    const int64_t skip = all / 3;
    struct ggml_tensor * window = graph_view(g, GGML_OP_VIEW, rows, NE(all - skip, n_tokens, 1, 1), nb,
                                             4 * (size_t) skip, "window-0");
    graph_know(g, window, 0, TAP_OTHER, TAP_ROWS_TOKENS, 1);
    struct ggml_tensor * cube = graph_reshape(g, rows, NE(n[0], n[1], n[2], n_tokens), "cube");
    struct ggml_tensor * turned = graph_permute(g, cube, axis[0], axis[1], axis[2], axis[3], "turned-0");
    graph_know(g, turned, 0, TAP_OTHER, TAP_ROWS_TOKENS, (uint8_t) axis[3]);
    struct ggml_tensor * dense = graph_node(g, GGML_OP_SCALE, type, NE(turned->ne[0], turned->ne[1], turned->ne[2],
        turned->ne[3]), "dense-0", turned, NULL, NULL);
    graph_know(g, dense, 0, TAP_OTHER, TAP_ROWS_TOKENS, (uint8_t) axis[3]);
}

bool want_names(const struct graph * g, int i, void * arg) {
    char text[512];
    snprintf(text, sizeof(text), "%s", (const char *) arg);
    for (char * at = text, * word; (word = strtok_r(at, " ", &at)) != NULL;) {
        if (strcmp(word, g->nodes[i]->name) == 0 && computed(g, i)) {
            return true;
        }
        if (word[0] == '+' && strcmp(word + 1, g->nodes[i]->name) == 0 && is_view(g->nodes[i])) {
            return true; // a view that is stored itself
        }
        if (word[0] == '~' && i + 1 < g->cgraph.n_nodes && strcmp(word + 1, g->nodes[i + 1]->name) == 0) {
            return true; // the node behind a named view
        }
    }
    return false;
}
