// test_chain.c: a callback of the program's own that the tap stands before, and graphs that change or are strange.
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

// ---- a callback of the program's own --------------------------------------------------------------------------------

// What a program's callback saw: 'a' for an ask, 'd' for a data phase, and the node.
struct witness {
    const struct graph * g;
    int      every, cancel_at; // wants every nth node; returns false in the data phase of one
    int      n;
    struct { char phase; int node; uint8_t byte; } saw[4 * GRAPH_MAX_TENSORS];
};

static bool witness_callback(struct ggml_tensor * t, bool ask, void * data) {
    struct witness * w = data;
    const int i = graph_number(w->g, t);
    MUST(w->n < 4 * GRAPH_MAX_TENSORS);
    w->saw[w->n].phase = ask ? 'a' : 'd';
    w->saw[w->n].byte = ask || is_view(t) || t->view_src != NULL ? 0 : *(uint8_t *) t->data;
    w->saw[w->n++].node = i;
    return ask ? i % w->every == 0 : i != w->cancel_at;
}

static void witness_compare(const struct witness * got, const struct witness * want) {
    CHECK(got->n == want->n, "the callback was called %d times, not %d", got->n, want->n);
    for (int i = 0; i < got->n && i < want->n; i++) {
        CHECK(got->saw[i].phase == want->saw[i].phase && got->saw[i].node == want->saw[i].node,
              "call %d: %c of node %d, not %c of node %d", i,
              got->saw[i].phase, got->saw[i].node, want->saw[i].phase, want->saw[i].node);
        CHECK(got->saw[i].byte == want->saw[i].byte, "call %d: node %d holds something else", i, got->saw[i].node);
    }
}

// Asks may come earlier or later between data phases than without the tap, because ranges are cut more often. So
// asks and data phases are compared each in their own order.
static void witness_sort(struct witness * w) {
    struct witness * o = calloc(1, sizeof(*o));
    MUST(o != NULL);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < w->n; i++) {
            if ((w->saw[i].phase == 'd') == pass) {
                o->saw[o->n++] = w->saw[i];
            }
        }
    }
    memcpy(w->saw, o->saw, sizeof(o->saw));
    free(o);
}

static void test_chain(int every, int cancel_at, const char * glob, bool split) {
    test_case("chain: a program's callback wants every %dth node, cancels at %d, the tap wants %s, %d splits", every,
              cancel_at, glob, split ? 3 : 1);
    static const int32_t outs[1] = {3};
    struct witness * w = calloc(2, sizeof(*w));
    MUST(w != NULL);
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 4, .n_outputs = 1, .n_kv = 32,
        .flash = true}, tokens, positions, outs);
    if (split) {
        b.sched->n_splits = 2;
        b.sched->splits[0] = b.graph.cgraph.n_nodes / 3;
        b.sched->splits[1] = b.graph.cgraph.n_nodes / 3 * 2;
    }
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "%s", glob);
    b.shm.h->config.start.n_globs = 1;
    uint64_t computed_nodes[2], ranges[2];
    for (int tapped = 0; tapped < 2; tapped++) {
        fake_real();
        if (tapped) {
            bed_join(&b);
        }
        w[tapped] = (struct witness) {.g = &b.graph, .every = every, .cancel_at = cancel_at};
        ggml_backend_sched_set_eval_callback(b.sched, witness_callback, &w[tapped]);
        b.sched->run = 0;
        bed_run(&b, true);
        b.sched->run = 0;
        bed_run(&b, false);
        computed_nodes[tapped] = b.sched->computed;
        ranges[tapped] = b.sched->ranges;
        witness_sort(&w[tapped]);
    }
    witness_compare(&w[1], &w[0]);
    CHECK(computed_nodes[1] == computed_nodes[0], "%lu nodes were computed, not %lu", (unsigned long) computed_nodes[1],
          (unsigned long) computed_nodes[0]);
    log_drain(&b.log);
    CHECK(glob[0] != 'n' || (ranges[1] == ranges[0] && b.sched->callback == witness_callback),
          "the tap came between without need");
    CHECK(cancel_at >= 0 || log_count(&b.log, TAP_REC_CAPTURE) == (glob[0] == 'n' ? 0 : 4u), "%zu captures",
          log_count(&b.log, TAP_REC_CAPTURE));
    no_losses(&b);
    bed_end(&b);
    free(w);
}

// A callback that is set before anything is recorded, or taken away later, is the one that counts.
static void test_chain_changes(void) {
    test_case("chain: a callback set, taken away and set again between executions");
    static const int32_t outs[1] = {3};
    struct witness * w = calloc(1, sizeof(*w));
    MUST(w != NULL);
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32,
        .flash = true}, tokens, positions, outs);
    bed_join(&b);
    w->g = &b.graph;
    w->every = 1;
    w->cancel_at = -1;
    bed_run(&b, true);
    ggml_backend_sched_set_eval_callback(b.sched, witness_callback, w);
    bed_run(&b, false);
    CHECK(w->n == 2 * b.graph.cgraph.n_nodes, "%d calls", w->n);
    ggml_backend_sched_set_eval_callback(b.sched, NULL, NULL);
    bed_run(&b, false);
    CHECK(w->n == 2 * b.graph.cgraph.n_nodes, "%d calls after it was taken away", w->n);
    log_drain(&b.log);
    for (size_t i = 0; i < 3; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        CHECK(expect_exec(&e) > 0, "nothing captured in execution %zu", i);
    }
    bed_end(&b);
    free(w);
}

// ---- graphs that change ---------------------------------------------------------------------------------------------

static void test_rebuilt(void) {
    test_case("graph: rebuilt for more keys, then for another batch, then one whose allocation fails");
    static const int32_t outs[1] = {0}, outs2[2] = {1, 4};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 1, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    size_t exec = 0;
    for (int step = 0; step < 3; step++) {
        log_drain(&b.log);
        for (size_t end = log_count(&b.log, TAP_REC_EXEC); exec < end; exec++) {
            const struct expected e = bed_expect(&b, exec, want_computed, NULL);
            CHECK(expect_exec(&e) > 0, "nothing captured in execution %zu", exec);
        }
        graph_free(&b.graph);
        model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = step == 1 ? 5 : 1,
            .n_outputs = step == 1 ? 2 : 1, .n_kv = 64},
                    tokens, positions, step == 1 ? outs2 : outs);
        b.sched->fail_alloc = step == 2;
        if (step == 2) {
            CHECK(!ggml_backend_sched_alloc_graph(b.sched, &b.graph.cgraph), "the failure was hidden");
            b.sched->fail_alloc = false;
            b.sched->is_alloc = true;
        } else {
            bed_run(&b, true);
            bed_run(&b, false);
        }
    }
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_GRAPH) == 3, "%zu descriptions of three graphs", log_count(&b.log, TAP_REC_GRAPH));
    CHECK(log_count(&b.log, TAP_REC_EXEC) == 6 && log_count(&b.log, TAP_REC_EXEC_END) == 6, "executions not framed");
    no_losses(&b);
    bed_end(&b);
}

// The numbers of the tokens of an execution that failed are given out again: nobody has them.
static void test_failed(void) {
    test_case("graph: an execution that fails between two that do not");
    static const int32_t outs[2] = {1, 4};
    static const int64_t want[3] = {0, 5, 5};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 5, .n_outputs = 2, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    for (int i = 0; i < 3; i++) {
        b.sched->status = i == 1 ? GGML_STATUS_ABORTED : GGML_STATUS_SUCCESS;
        bed_run(&b, i == 0);
    }
    log_drain(&b.log);
    int64_t first = -1;
    for (size_t i = 0; i < 3; i++) {
        const struct tap_rec_exec * x = (const void *) log_find(&b.log, TAP_REC_EXEC, i)->record;
        const struct tap_rec_exec_end * end = (const void *) log_find(&b.log, TAP_REC_EXEC_END, i)->record;
        first = i == 0 ? x->token_first : first;
        CHECK(x->token_first - first == want[i], "tokens of execution %zu are numbered from %ld on, not %ld", i,
              (long) (x->token_first - first), (long) want[i]);
        CHECK((end->status == GGML_STATUS_SUCCESS) == (i != 1), "execution %zu ended with %d", i, end->status);
    }
    bed_end(&b);
}

// A scheduler with devices puts copies in the place of what a node reads. The description reports what llama.cpp built.
static void test_device_copies(void) {
    test_case("graph: inputs whose place copies on a device take");
    static const int32_t outs[2] = {1, 4};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 5, .n_outputs = 2, .n_kv = 32,
        .flash = true, .device = true}, tokens, positions, outs);
    b.shm.h->config.start.attention = TAP_ATTENTION_KEEP;
    b.sched->copy_inputs = true;
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    CHECK(b.sched->n_copies > 5, "%d copies: the test does not test", b.sched->n_copies);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "not described");
    expect_places(&b.graph, &s);
    for (int i = 0; i < s.n_nodes; i++) {
        for (int k = 0; k < s.nodes[i].head.n_src; k++) {
            CHECK(s.nodes[i].src[k] < s.n_nodes && s.nodes[i].src[k] >= -s.n_leafs, "%s reads tensor %d",
                  s.nodes[i].name, s.nodes[i].src[k]);
        }
    }
    seen_free(&s);
    for (size_t i = 0; i < 2; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        CHECK(expect_exec(&e) > 0, "nothing captured");
    }
    no_losses(&b);
    bed_end(&b);
}

// A program that leaves allocation to the scheduler: compute allocates by itself, through the tap.
static void test_implicit_alloc(void) {
    test_case("graph: allocated inside of compute");
    static const int32_t outs[1] = {3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    bed_run(&b, false);
    ggml_backend_sched_reset(b.sched);
    bed_run(&b, false);
    bed_run(&b, false);
    log_drain(&b.log);
    for (size_t i = 0; i < 3; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        CHECK(expect_exec(&e) > 0, "nothing captured in execution %zu", i);
        const struct tap_rec_exec * x = (const struct tap_rec_exec *) log_find(&b.log, TAP_REC_EXEC, i)->record;
        bool described = false;
        for (size_t k = 0; k < log_count(&b.log, TAP_REC_GRAPH); k++) {
            described |= ((const struct tap_rec_graph *) log_find(&b.log, TAP_REC_GRAPH, k)->record)->graph == x->graph;
        }
        CHECK(described, "execution %zu is of graph %lu, which was not described", i, (unsigned long) x->graph);
        CHECK(x->reused == (i == 2), "execution %zu is %sreused", i, x->reused ? "" : "not ");
    }
    no_losses(&b);
    bed_end(&b);
}

// Every node reads leafs of its own: more leafs than any model has.
static void test_many_leafs(void) {
    test_case("graph: three hundred leafs for sixty nodes");
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    struct graph * g = &b.graph;
    shape_graph(g, (int64_t[]) {4, 1, 1}, 2, (int[]) {0, 1, 2, 3}, GGML_TYPE_F32, false);
    for (int i = 0; i < 60; i++) {
        struct ggml_tensor * t = graph_node(g, GGML_OP_ADD, GGML_TYPE_F32, NE(4, 2, 1, 1), NULL, NULL, NULL, NULL);
        for (int k = 0; k < 5; k++) {
            t->src[k] = graph_leaf(g, GGML_TYPE_F32, NE(4, 1, 1, 1), 0, "blk.0.ffn_gate.weight");
        }
        graph_know(g, t, 0, TAP_MLP, TAP_ROWS_NONE, 0);
    }
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "not described");
    CHECK(s.n_leafs == 302, "%d leafs", s.n_leafs);
    seen_free(&s);
    const struct expected e = bed_expect(&b, 0, want_computed, NULL);
    CHECK(expect_exec(&e) > 60, "not captured");
    no_losses(&b);
    bed_end(&b);
}

// More nodes than the graph announced, as a scheduler could show that rebuilds graphs: counted, not followed.
static void strange_node(struct ggml_backend_sched * s, struct ggml_cgraph * g) {
    (void) g;
    static struct ggml_tensor strange;
    if (s->callback != NULL) {
        CHECK(!s->callback(&strange, true, s->callback_data), "a node that was never announced was wanted");
    }
}

static void test_strange_node(void) {
    test_case("graph: a node that was not announced is counted");
    static const int32_t outs[1] = {3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    b.sched->before_compute = strange_node;
    bed_run(&b, true);
    log_drain(&b.log);
    const struct expected e = bed_expect(&b, 0, want_computed, NULL);
    CHECK(expect_exec(&e) > 0, "the others were not captured");
    CHECK(b.shm.h->stats.loss[TAP_LOSS_GRAPH_MISMATCH].packets == 1, "%lu counted",
          (unsigned long) b.shm.h->stats.loss[TAP_LOSS_GRAPH_MISMATCH].packets);
    bed_end(&b);
}

int main(void) {
    static const char * const globs[] = {"l_out", "nothing"};
    for (int i = 0; i < 12; i++) {
        test_chain(1 + i % 4 * 3, i % 3 == 0 ? 9 : -1, globs[i % 2], i % 2 == 0 || i % 3 == 1);
    }
    test_chain_changes();
    test_rebuilt();
    test_failed();
    test_device_copies();
    test_implicit_alloc();
    test_many_leafs();
    test_strange_node();
    return test_done();
}
