// test_keep.c: capture without cutting the graph: what is kept, what is not, and that the bytes are right either way.
#define _GNU_SOURCE
#include "bed.h"

#include <string.h>

static const int32_t outs[2] = {1, 5};

enum { PLENTY = 1 << 30 };

static void keep_begin(struct bed * b, const struct model_options * o, uint64_t bytes, uint64_t slots) {
    bed_make(b, &(struct shm_options) {.slots = slots, .slot_bytes = 1024, .queue_bytes = 1 << 22});
    b->shm.h->config.keep_bytes = bytes;
    b->sched->plans = true;
    model_graph(&b->graph, o, tokens, positions, outs);
    bed_join(b);
}

static void keep_graph(struct bed * b, const struct model_options * o) {
    graph_free(&b->graph);
    model_graph(&b->graph, o, tokens, positions, outs);
}

// keep_check compares what was captured since the log was cleared, one execution, with run of the scheduler.
static size_t keep_check(struct bed * b, wanted_fn wanted, void * arg) {
    log_drain(&b->log);
    struct expected e = bed_expect(b, 0, wanted, arg);
    e.run = b->sched->run;
    const size_t n = expect_exec(&e);
    CHECK(n > 0, "nothing was captured: the test does not test");
    log_clear(&b->log);
    return n;
}

static uint64_t cuts_of(struct bed * b) {
    log_drain(&b->log);
    const struct event * e = log_find(&b->log, TAP_REC_EXEC_END, 0);
    return e != NULL ? ((const struct tap_rec_exec_end *) e->record)->cuts : UINT64_MAX;
}

static void test_whole(const char * what, struct model_options o) {
    test_case("uncut: %s", what);
    struct bed b;
    keep_begin(&b, &o, PLENTY, 1 << 15);
    for (int i = 0; i < 4; i++) {
        bed_run(&b, i % 2 == 0);
        CHECK(b.sched->ranges == 1, "the graph was computed in %lu ranges", (unsigned long) b.sched->ranges);
        CHECK(cuts_of(&b) == 0, "it was cut");
        keep_check(&b, want_computed, NULL);
    }
    CHECK(b.sched->callback_sets == 0, "a callback was set");
    CHECK(b.shm.h->stats.asks == 0, "nodes were asked for");
    CHECK(!o.device || (b.graph.compute.later > 0 && b.graph.compute.gets == 0),
          "a device was waited for, tensor by tensor");
    CHECK((b.sched->synced_at != 0) == o.device, "the wait for a device is not the model's, or there was none");
    no_losses(&b);
    bed_end(&b);
}

// What is under way from a device holds no more than a part of the pool, so that the rest comes back.
static void test_small_pool(bool device) {
    test_case("uncut: more than the pool holds, %s", device ? "device" : "host");
    struct bed b;
    const struct model_options o = {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .device = device};
    keep_begin(&b, &o, PLENTY, 64);
    log_start(&b.log);
    for (int i = 0; i < 3; i++) {
        bed_run(&b, i == 0);
    }
    log_finish(&b.log);
    CHECK(b.shm.h->stats.waits > 0, "the pool was never full: the test does not test");
    for (size_t i = 0; i < 3; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        expect_exec(&e);
    }
    no_losses(&b);
    bed_end(&b);
}

// A limit leaves some layers to the callback.
static void test_limit(void) {
    test_case("limit: layers that do not fit are cut");
    struct bed b;
    const struct model_options o = {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    keep_begin(&b, &o, 0, 1 << 15);
    uint64_t all = 0;
    for (int i = 0; i < b.graph.cgraph.n_nodes; i++) {
        const struct ggml_tensor * t = b.graph.nodes[i];
        all += computed(&b.graph, i) ? t->nb[3] * (size_t) t->ne[3] : 0;
    }
    bed_run(&b, true);
    const uint64_t every = cuts_of(&b);
    keep_check(&b, want_computed, NULL);
    b.shm.h->config.keep_bytes = all / 2;
    bed_run(&b, true);
    const uint64_t some = cuts_of(&b);
    CHECK(some > 0 && some < every, "%lu cuts, %lu without the limit", (unsigned long) some, (unsigned long) every);
    keep_check(&b, want_computed, NULL);
    b.shm.h->config.keep_bytes = PLENTY; // more than the plan keeps
    bed_run(&b, true);
    CHECK(cuts_of(&b) == 0, "it was cut");
    keep_check(&b, want_computed, NULL);
    no_losses(&b);
    bed_end(&b);
}

// A plan that was made for a graph that did not fit is made again for one that does, and for that alone.
static void test_plan(bool reserved) {
    test_case("plan: of a graph that does not fit, %s", reserved ? "measured before" : "computed before");
    struct bed b;
    const struct model_options large = {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    const struct model_options small = {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    keep_begin(&b, &large, 1, 1 << 15);
    if (reserved) {
        MUST(ggml_backend_sched_reserve(b.sched, &b.graph.cgraph));
    } else {
        bed_run(&b, true);
        keep_check(&b, want_computed, NULL);
    }
    const int before = b.sched->n_plans;
    b.shm.h->config.keep_bytes = PLENTY;
    keep_graph(&b, &small);
    for (int i = 0; i < 4; i++) {
        if (i == 2) {
            keep_graph(&b, &small);
        }
        bed_run(&b, i == 0 || i == 2);
        CHECK(cuts_of(&b) == 0, "it was cut");
        keep_check(&b, want_computed, NULL);
    }
    CHECK(b.sched->n_plans == before + 1, "%d plans were made", b.sched->n_plans - before);
    b.shm.h->config.keep_bytes = 1;
    keep_graph(&b, &large);
    bed_run(&b, true);
    CHECK(cuts_of(&b) > 0, "it was not cut");
    keep_check(&b, want_computed, NULL);
    no_losses(&b);
    bed_end(&b);
}

// A plan that the tap did not see being made does not keep what it should: the addresses show it.
static void test_unseen_plan(void) {
    test_case("plan: made before the tap came");
    struct bed b;
    const struct model_options o = {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    bed_make(&b, &(struct shm_options) {.slots = 1 << 15, .slot_bytes = 1024, .queue_bytes = 1 << 22});
    b.shm.h->config.keep_bytes = PLENTY;
    b.sched->plans = true;
    model_graph(&b.graph, &o, tokens, positions, outs);
    tap_real.ggml_backend_sched_reserve(b.sched, &b.graph.cgraph);
    bed_join(&b);
    tap_real.ggml_backend_sched_reserve(b.sched, &b.graph.cgraph);
    for (int i = 0; i < 3; i++) {
        if (i > 0) {
            keep_graph(&b, &o);
        }
        bed_run(&b, true);
        const uint64_t cuts = cuts_of(&b);
        CHECK(i == 0 ? cuts > 0 : cuts == 0, "graph %d was cut %lu times", i, (unsigned long) cuts);
        keep_check(&b, want_computed, NULL);
    }
    no_losses(&b);
    bed_end(&b);
}

static bool want_named(const struct graph * g, int i, void * arg) {
    return computed(g, i) && strncmp(g->nodes[i]->name, arg, strlen(arg)) == 0;
}

// What is selected while a graph is used again was not kept when it was allocated: it is cut for, until the next one.
static void test_selection(void) {
    test_case("selection: changed while a graph is used again");
    struct bed b;
    const struct model_options o = {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    bed_make(&b, &(struct shm_options) {.slots = 1 << 15, .slot_bytes = 1024, .queue_bytes = 1 << 22});
    b.shm.h->config.keep_bytes = PLENTY;
    b.sched->plans = true;
    struct tap_selection wish = b.shm.h->config.start;
    strcpy(b.shm.h->config.start.globs[0], "l_out-*");
    b.shm.h->config.start.n_globs = 1;
    model_graph(&b.graph, &o, tokens, positions, outs);
    bed_join(&b);
    bed_run(&b, true);
    CHECK(cuts_of(&b) == 0, "it was cut");
    keep_check(&b, want_named, "l_out-");
    wish.n_globs = 2;
    strcpy(wish.globs[0], "l_out-*");
    strcpy(wish.globs[1], "ffn_out-*");
    shm_select(&b.shm, &wish);
    bed_run(&b, false);
    CHECK(cuts_of(&b) == 4, "it was cut %lu times, not once in each of 4 layers", (unsigned long) cuts_of(&b));
    log_clear(&b.log);
    keep_graph(&b, &o);
    bed_run(&b, true);
    CHECK(cuts_of(&b) == 0, "it was cut after it was built anew");
    no_losses(&b);
    bed_end(&b);
}

// A node whose bytes a later node changes has to be copied before that.
static void test_written_later(void) {
    test_case("written later: what is changed in place is copied before");
    struct bed b;
    const struct model_options o = {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    bed_make(&b, &(struct shm_options) {.slots = 1 << 15, .slot_bytes = 1024, .queue_bytes = 1 << 22});
    b.shm.h->config.keep_bytes = PLENTY;
    b.sched->plans = true;
    strcpy(b.shm.h->config.start.globs[0], "l_out-1");
    b.shm.h->config.start.n_globs = 1;
    model_graph(&b.graph, &o, tokens, positions, outs);
    struct ggml_tensor * out = graph_named(&b.graph, "l_out-1", 1);
    MUST(out != NULL);
    const struct ne ne = NE(out->ne[0], out->ne[1], out->ne[2], out->ne[3]);
    struct ggml_tensor * sum = graph_node(&b.graph, GGML_OP_ADD, out->type, ne, "changed-1", out, out, NULL);
    sum->view_src = out;
    sum->data = out->data;
    bed_join(&b);
    bed_run(&b, true);
    CHECK(cuts_of(&b) == 1, "it was cut %lu times", (unsigned long) cuts_of(&b));
    keep_check(&b, want_named, "l_out-1");
    no_losses(&b);
    bed_end(&b);
}

static bool looks(struct ggml_tensor * t, bool ask, void * arg) {
    (void) t;
    (void) ask;
    (void) arg;
    return true;
}

// A program that looks at nodes while they are computed has the graph cut already.
static void test_callback(void) {
    test_case("callback: of the program");
    struct bed b;
    const struct model_options o = {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    keep_begin(&b, &o, PLENTY, 1 << 15);
    bed_run(&b, true);
    keep_check(&b, want_computed, NULL);
    ggml_backend_sched_set_eval_callback(b.sched, looks, NULL);
    for (int i = 0; i < 2; i++) { // a graph whose tensors are kept, then one of which none is
        bed_run(&b, i == 1);
        CHECK(b.sched->ranges == (uint64_t) b.graph.cgraph.n_nodes, "%lu ranges", (unsigned long) b.sched->ranges);
        keep_check(&b, want_computed, NULL);
    }
    ggml_backend_sched_set_eval_callback(b.sched, NULL, NULL);
    no_losses(&b);
    bed_end(&b);
}

// What was not computed is not captured.
static void test_aborted(void) {
    test_case("aborted: nothing of a graph that failed");
    struct bed b;
    const struct model_options o = {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32};
    keep_begin(&b, &o, PLENTY, 1 << 15);
    b.sched->status = GGML_STATUS_ABORTED;
    bed_run(&b, true);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == 0, "tensors were captured");
    const struct event * e = log_find(&b.log, TAP_REC_EXEC_END, 0);
    CHECK(e != NULL && ((const struct tap_rec_exec_end *) e->record)->selected_packets == 0, "tensors were counted");
    no_losses(&b);
    bed_end(&b);
}

int main(void) {
    test_whole("dense", (struct model_options) {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32});
    test_whole("flash attention",
               (struct model_options) {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .flash = true});
    test_whole("experts",
               (struct model_options) {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .n_experts = 4});
    test_whole("one token", (struct model_options) {.n_layer = 4, .n_tokens = 1, .n_outputs = 0, .n_kv = 32});
    test_whole("device",
               (struct model_options) {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .device = true});
    test_whole("device, experts",
               (struct model_options) {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .n_experts = 4,
                                       .flash = true, .device = true});
    test_small_pool(false);
    test_small_pool(true);
    test_limit();
    test_plan(true);
    test_plan(false);
    test_unseen_plan();
    test_selection();
    test_written_later();
    test_callback();
    test_aborted();
    return test_done();
}
