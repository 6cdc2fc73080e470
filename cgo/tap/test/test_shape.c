// test_shape.c: graphs of fake tensors in all shapes, strides, types and sizes: bytes copied.
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

static void random_axes(uint64_t * rng, int * axis, bool keep_first) {
    for (int d = 0; d < 4; d++) {
        axis[d] = d;
    }
    for (int d = 3; d > (keep_first ? 1 : 0); d--) {
        const int o = (keep_first ? 1 : 0) + (int) rng_below(rng, (uint64_t) d + (keep_first ? 0 : 1));
        const int t = axis[d];
        axis[d] = axis[o];
        axis[o] = t;
    }
}

static void random_rule(uint64_t * rng, struct tap_selection * c) {
    c->token_kind = (uint32_t) rng_below(rng, 4);
    c->token_step = 1 + (int64_t) rng_below(rng, 4);
    c->token_first = 0;
    c->token_end = c->token_kind == TAP_TOKENS_RANGE ? 1000000 : -1;
}

// One tensor of any shape through a pool of any size: larger than a slot, a quarter of the pool, the whole pool.
static void test_shape(uint64_t seed) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I8, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
        GGML_TYPE_I64};
    uint64_t rng = seed;
    const enum ggml_type type = types[rng_below(&rng, 6)];
    const int64_t unit = type == GGML_TYPE_Q8_0 ? 32 : type == GGML_TYPE_Q4_K ? 256 : 1;
    int64_t n[3] = {unit * (1 + (int64_t) rng_below(&rng, unit > 1 ? 4 : 40)), 1 + (int64_t) rng_below(&rng, 6),
        1 + (int64_t) rng_below(&rng, 4)};
    const int n_tokens = 1 + (int) rng_below(&rng, 9);
    int axis[4];
    random_axes(&rng, axis, unit > 1);
    struct bed b;
    const struct shm_options o = {.slots = 32 + rng_below(&rng, 100), .slot_bytes = 64ull << rng_below(&rng, 5),
        .queue_bytes = 65536};
    bed_make(&b, &o);
    shape_graph(&b.graph, n, n_tokens, axis, type == GGML_TYPE_I64 ? GGML_TYPE_F32 : type, rng_below(&rng, 3) == 0);
    const char * name = unit > 1 ? "dense-0" : rng_below(&rng, 2) ? "turned-0" : rng_below(&rng, 2) ? "window-0"
        : "dense-0";
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "%s", name);
    b.shm.h->config.start.n_globs = 1;
    random_rule(&rng, &b.shm.h->config.start);
    const struct ggml_tensor * t = graph_named(&b.graph, name, 1);
    const uint64_t bytes = type_bytes(t->type, t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    test_case("shape %lu: %s, type %d, %ldx%ldx%ldx%ld, %lu bytes through %lu", (unsigned long) seed, name, t->type,
              (long) t->ne[0], (long) t->ne[1],
              (long) t->ne[2], (long) t->ne[3], (unsigned long) bytes,
              (unsigned long) (b.shm.h->n_slots * b.shm.h->slot_bytes));
    bed_join(&b);
    log_start(&b.log);
    bed_run(&b, true);
    log_finish(&b.log);
    char arg[32];
    snprintf(arg, sizeof(arg), "%s%s", name[0] == 'd' ? "" : "+", name);
    const struct expected e = bed_expect(&b, 0, want_names, arg);
    expect_exec(&e);
    no_losses(&b);
    bed_end(&b);
}

// A tensor of 66.8 MiB through a pool whose quarter is larger: no packet may exceed the 64 MiB that readers take
// for one.
static void test_largest_packet(void) {
    static const size_t most = (size_t) 64 << 20;
    test_case("a tensor larger than a packet may be");
    const int64_t n[3] = {3500000, 1, 1};
    const int n_tokens = 5, axis[4] = {0, 1, 2, 3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {.slots = 73728, .slot_bytes = 4096});
    MUST(b.shm.h->n_slots * b.shm.h->slot_bytes / 4 > (size_t) n[0] * n_tokens * sizeof(float));
    shape_graph(&b.graph, n, n_tokens, axis, GGML_TYPE_F32, false);
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "dense-0");
    b.shm.h->config.start.n_globs = 1;
    b.shm.h->config.start.record = TAP_RECORD_ACTIVATIONS;
    b.shm.h->config.start.token_end = -1;
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    const size_t packets = log_count(&b.log, TAP_REC_CAPTURE);
    size_t all = 0;
    for (size_t i = 0; i < packets; i++) {
        const struct tap_rec_capture * c = (const struct tap_rec_capture *) log_find(&b.log, TAP_REC_CAPTURE,
            i)->record;
        CHECK(c->bytes <= most, "a packet of %lu bytes", (unsigned long) c->bytes);
        all += c->bytes;
    }
    CHECK(packets == 2 && all == (size_t) n[0] * n_tokens * sizeof(float), "%zu packets of %zu bytes", packets, all);
    no_losses(&b);
    bed_end(&b);
}

static void test_bad_strides(int64_t n) {
    test_case("shape: a quantised tensor with its blocks cut or apart (%ld in a row) is counted as a loss, its slots "
              "are free again", (long) n);
    struct bed b;
    bed_make(&b, &(struct shm_options) {.slots = 64, .slot_bytes = 256});
    struct graph * g = &b.graph;
    shape_graph(g, (int64_t[]) {n, 2, 2}, 3, (int[]) {0, 1, 2, 3}, GGML_TYPE_Q8_0, false);
    struct ggml_tensor * t = graph_permute(g, graph_named(g, "dense-0", 1), 1, 0, 2, 3, "apart-0");
    graph_know(g, t, 0, TAP_OTHER, TAP_ROWS_TOKENS, 3);
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "apart-0");
    b.shm.h->config.start.n_globs = 1;
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    const struct tap_stats * st = &b.shm.h->stats;
    CHECK(st->loss[TAP_LOSS_STRIDES].packets == 1, "%lu losses", (unsigned long) st->loss[TAP_LOSS_STRIDES].packets);
    CHECK(st->loss[TAP_LOSS_STRIDES].bytes == (uint64_t) (34 * n / 32 * 2 * 2 * 3), "%lu bytes",
          (unsigned long) st->loss[TAP_LOSS_STRIDES].bytes);
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == 0 && tap.n_used == 0, "%lu slots in use", (unsigned long) tap.n_used);
    const struct event * lost = log_find(&b.log, TAP_REC_LOSSES, 0), * end = log_find(&b.log, TAP_REC_EXEC_END, 0);
    CHECK(lost != NULL && ((const struct tap_rec_losses *) lost->record)->loss[TAP_LOSS_STRIDES].packets == 1,
          "the execution does not report its loss");
    CHECK(end != NULL && ((const struct tap_rec_exec_end *) end->record)->selected_packets == 1,
          "the execution does not report what was selected");
    bed_end(&b);
}

// A graph without tokens moves memory about: it is described and framed, and nothing of it is captured.
static void test_maintenance(void) {
    test_case("graph: maintenance");
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    struct graph * g = &b.graph;
    graph_init(g, 4096, 65536, false);
    struct ggml_tensor * cache = graph_leaf(g, GGML_TYPE_F32, NE(16, 32, 1, 1), 0, "cache_k_l0");
    g->leaf_tokens = graph_leaf(g, GGML_TYPE_I32, NE(0, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "unused");
    g->leaf_pos = g->leaf_tokens;
    struct ggml_tensor * shift = graph_leaf(g, GGML_TYPE_I32, NE(32, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "k_shift");
    graph_node(g, GGML_OP_ROPE, GGML_TYPE_F32, NE(16, 32, 1, 1), NULL, cache, shift, NULL);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == 0, "captured");
    CHECK(b.sched->callback_sets == 0, "the callback was set");
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "not described");
    CHECK(s.head.n_tokens == 0 && s.n_nodes == 1 && s.nodes[0].head.component == TAP_CACHE,
          "described as something else");
    seen_free(&s);
    for (size_t i = 0; i < 2; i++) {
        const struct tap_rec_exec * x = (const struct tap_rec_exec *) log_find(&b.log, TAP_REC_EXEC, i)->record;
        CHECK(x->token_first == -1 && x->n_tokens == 0 && !x->captured && !x->provisional, "execution %zu has tokens",
              i);
    }
    no_losses(&b);
    bed_end(&b);
}

// test_apart finds the tensors of a graph whose nodes lie so far from each other, which has more leafs than its
// table begins with.
static void test_apart(size_t bytes) {
    enum { NODES = 80, LEAFS = 9 }; // of each node
    test_case("graph: %d nodes %zu bytes apart, and %d leafs, are found", NODES, bytes, NODES * LEAFS);
    uint8_t * memory = calloc(NODES, bytes);
    struct ggml_tensor * leafs = calloc(NODES * LEAFS + 1, sizeof(leafs[0])), * nodes[NODES];
    MUST(memory != NULL && leafs != NULL);
    for (int i = 0; i < NODES; i++) {
        nodes[i] = (struct ggml_tensor *) (memory + (size_t) i * bytes);
        *nodes[i] = (struct ggml_tensor) {.op = GGML_OP_ADD, .flags = GGML_TENSOR_FLAG_COMPUTE, .ne = {1, 1, 1, 1}};
        nodes[i]->src[0] = i > 0 ? nodes[i - 1] : NULL;
        for (int k = 0; k < LEAFS; k++) {
            nodes[i]->src[1 + k] = &leafs[i * LEAFS + k];
        }
    }
    fake_real();
    struct ggml_cgraph cgraph = {.nodes = nodes, .n_nodes = NODES};
    struct tap_graph g = {0};
    for (int again = 0; again < 2; again++) {
        MUST(tap_graph_describe(&g, &cgraph));
        CHECK(g.n_leafs == NODES * LEAFS, "%d leafs", g.n_leafs);
        for (int i = 0; i < NODES; i++) {
            CHECK(tap_graph_find(&g, nodes[i]) == i && g.nodes[i].src[0] == (i > 0 ? i - 1 : INT32_MIN), "node %d", i);
            for (int k = 0; k < LEAFS; k++) {
                const int32_t leaf = -1 - (i * LEAFS + k);
                CHECK(tap_graph_find(&g, &leafs[-1 - leaf]) == leaf && g.nodes[i].src[1 + k] == leaf,
                      "leaf %d of node %d", k, i);
            }
        }
        CHECK(tap_graph_find(&g, &leafs[NODES * LEAFS]) == INT32_MIN, "what is not there was found");
    }
    tap_graph_release(&g);
    free(leafs);
    free(memory);
    test_end();
}

int main(void) {
    test_apart(sizeof(struct ggml_tensor));
    test_apart(1 << 16);
    for (uint64_t seed = 1; seed <= 300; seed++) {
        test_shape(seed);
    }
    test_largest_packet();
    test_bad_strides(32);
    test_bad_strides(64);
    test_maintenance();
    return test_done();
}
