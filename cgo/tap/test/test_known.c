// test_known.c: graphs built anew, many times, now as they were, now otherwise. What the collector makes of the
// changes that it reports is what a description from the beginning says.
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

static const int32_t outs[2] = {0, 4};

// Two places for a graph: llama.cpp builds those that it measures elsewhere than those that it computes.
static struct graph places[2];

static void buffer_stays(ggml_backend_buffer_t b) { (void) b; } // it is the graph's

static enum ggml_status computed_at_once(ggml_backend_sched_t s, struct ggml_cgraph * g) {
    (void) s;
    (void) g;
    return GGML_STATUS_SUCCESS;
}

// A run of the tap whose schedulers compute nothing: descriptions are all that is looked at.
static void bed_known(struct bed * b) {
    bed_make(b, &(struct shm_options) {0});
    b->shm.h->config.start.record = TAP_RECORD_CELLS;
    bed_join(b);
    tap_real.ggml_backend_buffer_free = buffer_stays;
    tap_real.ggml_backend_sched_graph_compute_async = computed_at_once;
}

static void place_end(struct graph * g) {
    if (g->compute.base != NULL) {
        ggml_backend_buffer_free(&g->compute);
        ggml_backend_buffer_free(&g->persistent);
        graph_free(g);
        memset(g, 0, sizeof(*g));
    }
}

static void place_build(struct graph * g, const struct model_options * o) {
    place_end(g);
    model_graph(g, o, tokens, positions, outs);
}

static void bed_known_end(struct bed * b) {
    place_end(&places[0]);
    place_end(&places[1]);
    graph_init(&b->graph, 64, 64, false); // for bed_end to free
    bed_end(b);
}

// ---- what is right --------------------------------------------------------------------------------------------------

static void expect_place(struct tap_nearby * near, const struct ggml_tensor * t, uint64_t buffer, uint64_t offset) {
    uint64_t number, at;
    tap_where(near, t, &number, &at);
    CHECK(buffer == number && offset == at, "%s is reported to lie in buffer %lu at %lu, not %lu at %lu", t->name,
          (unsigned long) buffer,
          (unsigned long) offset, (unsigned long) number, (unsigned long) at);
}

static void expect_shape(const struct ggml_tensor * t, const int64_t * ne, const uint64_t * nb) {
    CHECK(memcmp(ne, t->ne, sizeof(t->ne)) == 0 && memcmp(nb, t->nb, sizeof(t->nb)) == 0, "shape or strides of %s",
          t->name);
}

// expect_node compares a node with that of a description from the beginning.
static void expect_node(const struct seen_node * n, const struct tap_graph_node * k, struct tap_nearby * near) {
    const struct ggml_tensor * t = k->tensor;
    const struct tap_node * h = &n->head;
    CHECK(strcmp(n->name, t->name) == 0 && strcmp(n->op, tap_real.ggml_op_desc(t)) == 0 && h->type == t->type,
          "%s is reported as %s", t->name, n->name);
    CHECK(h->layer == k->layer && h->component == k->component && h->inferred == k->inferred, "place of %s", t->name);
    CHECK(h->rows == k->rows && h->row_dim == k->row_dim, "rows of %s: %d in %d, not %d in %d", t->name, h->rows,
          h->row_dim, k->rows, k->row_dim);
    CHECK(h->flags == (k->view | k->computed << 2 | (k->alias >= 0) << 3), "flags of %s", t->name);
    CHECK(h->occurrence == k->occurrence && h->number == k->number && n->alias == k->alias,
          "%s is reported as occurrence %d, number %d, shown as %d; not %d, %d, %d", t->name, h->occurrence,
          h->number, n->alias,
          k->occurrence, k->number, k->alias);
    CHECK(memcmp(h->op_params, t->op_params, sizeof(h->op_params)) == 0, "parameters of %s", t->name);
    expect_shape(t, h->ne, h->nb);
    expect_place(near, t, h->buffer, h->offset);
    int at = 0;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (k->src[i] != INT32_MIN) {
            CHECK(at < h->n_src && (h->slots >> i & 1) && n->src[at] == k->src[i], "source %d of %s", i, t->name);
            at++;
        }
    }
}

static void expect_told(const struct seen * s, struct ggml_cgraph * cgraph) {
    struct tap_graph fresh = {0};
    struct tap_nearby near = {0};
    MUST(tap_graph_describe(&fresh, cgraph));
    CHECK(s->n_nodes == fresh.n_nodes && s->n_leafs == fresh.n_leafs, "%d nodes and %d leafs, not %d and %d",
          s->n_nodes, s->n_leafs, fresh.n_nodes, fresh.n_leafs);
    CHECK(s->head.n_tokens == fresh.n_tokens && s->head.n_outputs == fresh.n_outputs, "tokens or outputs");
    for (int i = 0; i < s->n_nodes && i < fresh.n_nodes; i++) {
        expect_node(&s->nodes[i], &fresh.nodes[i], &near);
    }
    for (int i = 0; i < s->n_leafs && i < fresh.n_leafs; i++) {
        const struct ggml_tensor * t = fresh.leafs[i].tensor;
        const struct seen_leaf * l = &s->leafs[i];
        CHECK(strcmp(l->name, t->name) == 0 && l->head.type == t->type && l->head.input == fresh.leafs[i].input,
              "leaf %s is reported as %s", t->name, l->name);
        expect_shape(t, l->head.ne, l->head.nb);
        expect_place(&near, t, l->head.buffer, l->head.offset);
    }
    tap_graph_release(&fresh);
}

// ---- what is done to graphs -----------------------------------------------------------------------------------------

// change_form changes a node so that another description follows from it, or one that might.
static void change_form(struct graph * g, uint64_t * rng) {
    struct ggml_tensor * t = g->nodes[rng_below(rng, (uint64_t) g->cgraph.n_nodes)];
    if (t->src[0] != NULL && t->src[0]->op == GGML_OP_NONE && rng_below(rng, 2)) {
        t = t->src[0]; // a leaf
    }
    switch (rng_below(rng, 8)) {
        case 0: snprintf(t->name, sizeof(t->name), "%s", rng_below(rng, 2) ? "ffn_other-1" : "l_out-0"); break;
        case 1: strncat(t->name, "x", sizeof(t->name) - 1 - strlen(t->name)); break; // longer by one
        case 2: t->op = t->op == GGML_OP_ADD ? GGML_OP_MUL : GGML_OP_ADD; break;
        case 3: t->flags ^= GGML_TENSOR_FLAG_COMPUTE; break;
        case 4: t->src[0] = t->src[1] != NULL ? t->src[1] : t->src[0]; break;
        case 5: t->src[1] = t->src[1] != NULL ? g->leaf_pos : NULL; break;
        case 6: t->src[GGML_MAX_SRC - 1] = g->leaf_pos; break;
        default: t->type = t->type == GGML_TYPE_F32 ? GGML_TYPE_F16 : GGML_TYPE_F32; break;
    }
}

// change_shape changes sizes, strides, parameters or the place of a node or of something that it reads.
static void change_shape(struct graph * g, uint64_t * rng) {
    struct ggml_tensor * t = g->nodes[rng_below(rng, (uint64_t) g->cgraph.n_nodes)];
    if (rng_below(rng, 4) == 0 && t->src[1] != NULL) {
        t = t->src[1];
    }
    const uint64_t d = rng_below(rng, 4);
    switch (rng_below(rng, 4)) {
        case 0: t->ne[d] = t->ne[d] > 1 ? t->ne[d] / 2 : 2; break;
        case 1: t->nb[d] += 4; break;
        case 2: t->op_params[rng_below(rng, 8)] = (int32_t) rng_below(rng, 4); break;
        default: t->data = (uint8_t *) t->data + 64; break;
    }
}

// run_next describes, allocates and computes a graph.
static void run_next(struct bed * b, struct graph * g) {
    ggml_backend_sched_reset(b->sched);
    MUST(ggml_backend_sched_alloc_graph(b->sched, &g->cgraph));
    ggml_backend_sched_graph_compute_async(b->sched, &g->cgraph);
}

static struct seen newest(struct bed * b) {
    log_drain(&b->log);
    struct seen s;
    CHECK(seen_read(&s, &b->log, log_count(&b->log, TAP_REC_GRAPH) - 1), "the description is not whole");
    return s;
}

// A step of a case: what becomes of the graph, and whether it must, may or must not be reported as a change.
enum step { STEP_SAME, STEP_SHAPE, STEP_FORM, STEP_BUILD, STEPS };

static void test_random(uint64_t seed) {
    enum { N = 40 };
    test_case("known: %d graphs, one after the other, seed %lu", N, (unsigned long) seed);
    uint64_t rng = seed;
    struct bed b;
    bed_known(&b);
    struct model_options o = {.n_layer = 2, .n_tokens = 1, .n_outputs = 1, .n_kv = 32, .flash = seed % 2,
        .n_experts = seed % 3 == 0 ? 4 : 0};
    struct graph * g = &places[0];
    place_build(g, &o);
    int changed = 0, layers = 0;
    for (int i = 0; i < N; i++) {
        const enum step step = i == 0 ? STEP_BUILD : (enum step) rng_below(&rng, STEPS);
        if (step == STEP_BUILD) {
            layers = rng_below(&rng, 8) == 0 ? 3 : 2;
            o = (struct model_options) {.n_layer = layers, .n_tokens = rng_below(&rng, 2) ? 1 : 7,
                .n_kv = rng_below(&rng, 2) ? 32 : 64, .flash = o.flash, .n_experts = o.n_experts};
            o.n_outputs = o.n_tokens == 1 ? 1 : 2;
            g = &places[rng_below(&rng, 2)];
            place_build(g, &o);
        }
        for (uint64_t k = step == STEP_SHAPE ? 1 + rng_below(&rng, 5) : 0; k > 0; k--) {
            change_shape(g, &rng);
        }
        if (step == STEP_FORM) {
            change_form(g, &rng);
        }
        const bool between = rng_below(&rng, 6) == 0;
        if (between) { // one that is described and never computed
            ggml_backend_sched_reset(b.sched);
            MUST(ggml_backend_sched_alloc_graph(b.sched, &g->cgraph));
            change_shape(g, &rng);
        }
        if (rng_below(&rng, 6) == 0) {
            ggml_backend_sched_reserve(b.sched, &g->cgraph);
        }
        run_next(&b, g);
        struct seen s = newest(&b);
        expect_told(&s, &g->cgraph);
        CHECK(step != STEP_SAME || between || s.head.like != 0 || s.head.n_tokens == 0,
              "step %d: what did not change was reported anew", i);
        changed += s.head.like != 0;
        seen_free(&s);
    }
    CHECK(changed > N / 3 && changed < N, "%d of %d graphs were reported as changes: the test does not test",
          changed, N);
    CHECK(b.shm.h->stats.rebuilt >= (uint64_t) changed, "%lu counted", (unsigned long) b.shm.h->stats.rebuilt);
    no_losses(&b);
    bed_known_end(&b);
}

// The same graph elsewhere, for more tokens, for more cells; and one that was measured before. The buffers of the
// fourth are first seen when it is reported: so places are reported once more.
static void test_rebuilt(void) {
    test_case("known: measured, computed elsewhere, for other tokens and more cells, and again");
    struct bed b;
    bed_known(&b);
    struct model_options o = {.n_layer = 3, .n_tokens = 7, .n_outputs = 2, .n_kv = 32, .flash = true};
    place_build(&places[1], &o);
    MUST(ggml_backend_sched_reserve(b.sched, &places[1].cgraph));
    for (int i = 0; i < 6; i++) {
        o.n_tokens = i == 0 ? 7 : 1;
        o.n_outputs = i == 0 ? 2 : 1;
        o.n_kv = i < 3 ? 32 : 64;
        if (i < 4) {
            place_build(&places[0], &o);
        }
        run_next(&b, &places[0]);
        struct seen s = newest(&b);
        expect_told(&s, &places[0].cgraph);
        CHECK((s.head.like == 0) == (i == 0), "graph %d is reported as %lu changes of another one", i,
              (unsigned long) s.n_changes);
        CHECK(i != 5 || s.n_changes == 0, "%d changes of the same graph", s.n_changes);
        seen_free(&s);
    }
    no_losses(&b);
    bed_known_end(&b);
}

// Another selection, another context, or a description that was lost: then the whole of it is reported.
static void test_whole(void) {
    test_case("known: reported whole after another selection");
    struct bed b;
    bed_known(&b);
    const struct model_options o = {.n_layer = 2, .n_tokens = 1, .n_outputs = 1, .n_kv = 32, .flash = true};
    place_build(&places[0], &o);
    run_next(&b, &places[0]);
    struct tap_selection wish = b.shm.h->config.start;
    wish.looking = TAP_LOOK_OPS;
    shm_select(&b.shm, &wish);
    run_next(&b, &places[0]);
    struct seen s = newest(&b);
    CHECK(s.head.like == 0 && s.head.selection == 1, "reported as a change");
    seen_free(&s);
    run_next(&b, &places[0]);
    s = newest(&b);
    CHECK(s.head.like != 0 && s.head.selection == 1, "not reported as a change");
    seen_free(&s);
    wish.record |= TAP_RECORD_ACTIVATIONS;
    shm_select(&b.shm, &wish);
    for (int i = 0; i < 2; i++) {
        run_next(&b, &places[0]);
        s = newest(&b);
        CHECK(s.head.like == 0 && s.head.n_wanted > 0, "tensors are wanted, and it is reported as a change");
        seen_free(&s);
    }
    bed_known_end(&b);
}

static void test_lost(void) {
    test_case("known: reported whole after one that did not enter the queue");
    struct bed b;
    bed_make(&b, &(struct shm_options) {.queue_bytes = 1 << 16, .overflow = TAP_OVERFLOW_DROP});
    b.shm.h->config.start.record = TAP_RECORD_CELLS;
    bed_join(&b);
    tap_real.ggml_backend_buffer_free = buffer_stays;
    tap_real.ggml_backend_sched_graph_compute_async = computed_at_once;
    struct model_options o = {.n_layer = 2, .n_tokens = 1, .n_outputs = 1, .n_kv = 32, .flash = true};
    uint64_t lost = 0;
    int whole = 0;
    for (int i = 0; i < 240; i++) {
        o.n_kv = i % 2 ? 32 : 64;
        place_build(&places[0], &o);
        run_next(&b, &places[0]);
        const uint64_t now = b.shm.h->stats.loss[TAP_LOSS_QUEUE_FULL].bytes;
        if (i % 40 == 39) { // meanwhile the queue has filled, and graphs were lost
            CHECK(now > lost, "nothing was lost: the test does not test");
            log_drain(&b.log);
            run_next(&b, &places[0]);
            struct seen s = newest(&b);
            expect_told(&s, &places[0].cgraph);
            whole += s.head.like == 0;
            seen_free(&s);
            lost = b.shm.h->stats.loss[TAP_LOSS_QUEUE_FULL].bytes;
        }
    }
    CHECK(whole == 6, "%d of 6", whole);
    bed_known_end(&b);
}

int main(void) {
    test_rebuilt();
    test_whole();
    test_lost();
    for (uint64_t seed = 1; seed <= 60; seed++) {
        test_random(seed);
    }
    return test_done();
}
