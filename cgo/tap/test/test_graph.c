// test_graph.c: graphs of fake tensors: places and rows inferred, nodes selected, bytes copied.
#define _GNU_SOURCE
#include "expect.h"

#include <stdlib.h>
#include <string.h>

static const int32_t tokens[64] = {1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
static const int32_t positions[64] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// ---- one case -------------------------------------------------------------------------------------------------------

// A case: a region, a scheduler, a log and a graph.
struct bed {
    struct shm                  shm;
    struct log                  log;
    struct graph                graph;
    struct ggml_backend_sched * sched;
};

static void bed_make(struct bed * b, const struct shm_options * o) {
    shm_make(&b->shm, o);
    log_init(&b->log, &b->shm);
    b->sched = sched_new();
}

static void bed_join(struct bed * b) {
    tap_join(&b->shm);
    b->sched->run = 0;
}

static void bed_end(struct bed * b) {
    ggml_backend_sched_free(b->sched);
    tap_leave();
    log_drain(&b->log);
    CHECK(b->log.damage == NULL, "%s", b->log.damage);
    log_clear(&b->log);
    graph_free(&b->graph);
    shm_free(&b->shm);
    test_end();
}

static enum ggml_status bed_run(struct bed * b, bool alloc) {
    graph_inputs(&b->graph);
    if (alloc) {
        MUST(ggml_backend_sched_alloc_graph(b->sched, &b->graph.cgraph));
    }
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(b->sched, &b->graph.cgraph);
    return status;
}

static struct expected bed_expect(struct bed * b, size_t exec, wanted_fn wanted, void * arg) {
    return (struct expected) {.log = &b->log, .graph = &b->graph, .config = &b->shm.h->config, .run = exec + 1, .exec = exec, .wanted = wanted, .arg = arg};
}

static void no_losses(const struct bed * b) {
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(b->shm.h->stats.loss[i].packets == 0 && b->shm.h->stats.loss[i].bytes == 0, "loss of cause %d", i);
    }
}

static bool is_view(const struct ggml_tensor * t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

static bool computed(const struct graph * g, int i) { return (g->nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) && !is_view(g->nodes[i]); }

static bool want_computed(const struct graph * g, int i, void * arg) { (void) arg; return computed(g, i); }

// ---- places ---------------------------------------------------------------------------------------------------------

static void test_model(int n_tokens, int n_outputs, int experts, bool flash, bool device) {
    test_case("graph: %s, %d tokens, %d outputs, flash attention %s, %s", experts ? "experts" : "dense", n_tokens, n_outputs,
              flash ? "on" : "off", device ? "device" : "host");
    const int32_t outs[4] = {n_tokens - 1 < 2 ? 0 : 2, n_tokens - 1, 0, 0};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 3, .n_tokens = n_tokens, .n_outputs = n_outputs, .n_kv = 32, .n_experts = experts, .flash = flash, .device = device};
    model_graph(&b.graph, &o, tokens, positions, outs);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "the description is not whole");
    expect_places(&b.graph, &s);
    CHECK(log_count(&b.log, TAP_REC_GRAPH) == 1, "%zu descriptions of one graph", log_count(&b.log, TAP_REC_GRAPH));
    seen_free(&s);
    for (size_t i = 0; i < 2; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        expect_exec(&e);
        const struct event * x = log_find(&b.log, TAP_REC_EXEC, i);
        const struct tap_rec_exec * r = (const struct tap_rec_exec *) x->record;
        const int32_t * at = (const int32_t *) (r + 1);
        CHECK((int) r->n_tokens == n_tokens && memcmp(at, tokens, (size_t) n_tokens * 4) == 0, "tokens of execution %zu", i);
        CHECK((int) r->n_pos == n_tokens && memcmp(at + n_tokens, positions, (size_t) n_tokens * 4) == 0, "positions of execution %zu", i);
        const int n_out = n_outputs > 0 ? n_outputs : 0;
        CHECK((int) r->n_outputs == n_out && memcmp(at + 2 * n_tokens, outs, (size_t) n_out * 4) == 0, "output rows of execution %zu", i);
        CHECK(r->reused == i, "execution %zu is %sreused", i, r->reused ? "" : "not ");
    }
    no_losses(&b);
    CHECK(!device || b.graph.compute.gets > 0, "nothing was read through the device");
    CHECK(device || b.graph.compute.gets == 0, "host memory was read through ggml");
    bed_end(&b);
}

int main(void) {
    for (int k = 0; k < 8; k++) {
        test_model(7, 2, k & 1 ? 4 : 0, k & 2, k & 4);
        test_model(1, 1, k & 1 ? 4 : 0, k & 2, k & 4);
    }
    test_model(5, -1, 0, true, false);
    return test_done();
}
