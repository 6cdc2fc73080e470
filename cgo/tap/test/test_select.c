// test_select.c: what is captured changes while the model computes.
#define _GNU_SOURCE
#include "expect.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int32_t tokens[16] = {1, 5, 9, 2, 6, 5, 3, 5};
static const int32_t positions[16] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int32_t outs[1] = {3};
enum { N_TOKENS = 4, N_LAYERS = 2 };

// A model of two layers with four tokens in a micro-batch, under the tap.
struct bed {
    struct shm                  shm;
    struct log                  log;
    struct graph                graph;
    struct ggml_backend_sched * sched;
    size_t                      execs; // read so far
};

static void bed_make(struct bed * b, bool device) {
    shm_make(&b->shm, &(struct shm_options) {0});
    log_init(&b->log, &b->shm);
    b->sched = sched_new();
    b->sched->copy_inputs = device;
    b->execs = 0;
    model_graph(&b->graph, &(struct model_options) {.n_layer = N_LAYERS, .n_tokens = N_TOKENS, .n_outputs = 1,
        .n_kv = 32, .flash = true, .device = device},
                tokens, positions, outs);
}

static void bed_end(struct bed * b) {
    ggml_backend_sched_free(b->sched);
    log_drain(&b->log);
    CHECK(b->log.damage == NULL, "%s", b->log.damage);
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(b->shm.h->stats.loss[i].packets == 0, "loss of cause %d", i);
    }
    tap_leave();
    log_clear(&b->log);
    graph_free(&b->graph);
    shm_free(&b->shm);
    test_end();
}

static void bed_run(struct bed * b, bool alloc) {
    graph_inputs(&b->graph);
    if (alloc) {
        MUST(ggml_backend_sched_alloc_graph(b->sched, &b->graph.cgraph));
    }
    MUST(ggml_backend_sched_graph_compute_async(b->sched, &b->graph.cgraph) == GGML_STATUS_SUCCESS);
    log_drain(&b->log);
    b->execs++;
}

// named is the selection of every token of the nodes of one name; NULL is none.
static struct tap_selection named(const char * glob) {
    struct tap_selection s = {.token_end = -1};
    if (glob != NULL) {
        s.record = TAP_RECORD_ACTIVATIONS;
        s.n_globs = 1;
        snprintf(s.globs[0], TAP_GLOB_SIZE, "%s", glob);
    }
    return s;
}

static const struct tap_rec_exec * exec_last(const struct bed * b) {
    return (const struct tap_rec_exec *) log_find(&b->log, TAP_REC_EXEC, b->execs - 1)->record;
}

// graph_of finds the description that an execution goes by.
static const struct tap_rec_graph * graph_of(const struct bed * b, const struct tap_rec_exec * x) {
    for (size_t i = 0; i < log_count(&b->log, TAP_REC_GRAPH); i++) {
        const struct tap_rec_graph * g = (const struct tap_rec_graph *) log_find(&b->log, TAP_REC_GRAPH, i)->record;
        if (g->graph == x->graph) {
            return g;
        }
    }
    return NULL;
}

static bool want_name(const struct graph * g, int i, void * arg) {
    return arg != NULL && strncmp(g->nodes[i]->name, arg, strlen(arg)) == 0 &&
        (g->nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
}

// check_last checks that the last execution captured the nodes of a name and no others, by the description of that
// selection.
static void check_last(struct bed * b, const struct tap_selection * wish, uint32_t number, const char * name,
                       size_t packets) {
    const struct expected e = {.log = &b->log, .graph = &b->graph, .config = wish, .run = b->sched->run,
        .exec = b->execs - 1,
                               .wanted = want_name, .arg = (void *) (uintptr_t) name};
    const size_t n = expect_exec(&e);
    CHECK(n == packets, "%zu packets of execution %zu, not %zu", n, b->execs, packets);
    const struct tap_rec_graph * g = graph_of(b, exec_last(b));
    CHECK(g != NULL, "execution %zu is of a graph that was not described", b->execs);
    CHECK(g == NULL || g->selection == number, "execution %zu goes by selection %u, not %u", b->execs,
          g->selection, number);
    CHECK((b->sched->callback != NULL) == (packets > 0), "the callback is %sset with %zu packets",
          b->sched->callback ? "" : "not ", packets);
}

// ---- a graph that is known ------------------------------------------------------------------------------------------

static void test_changes(bool alloc) {
    test_case("select: on, off, others and back, of a graph that is %s", alloc ? "built anew each time" : "used again");
    struct bed b;
    bed_make(&b, false);
    const struct tap_selection out = named("l_out"), off = named(NULL), norm = named("norm");
    b.shm.h->config.start = out;
    tap_join(&b.shm);
    b.sched->run = 0;
    bed_run(&b, true);
    check_last(&b, &out, 0, "l_out", N_LAYERS);
    const uint64_t graph = exec_last(&b)->graph;
    bed_run(&b, false);
    CHECK(exec_last(&b)->graph == graph && exec_last(&b)->reused, "a graph that did not change was described again");
    uint32_t number = 0;
    for (int round = 0; round < 3; round++) {
        shm_select(&b.shm, &off);
        bed_run(&b, alloc);
        check_last(&b, &off, ++number, NULL, 0);
        const uint64_t asks = b.shm.h->stats.asks;
        bed_run(&b, alloc);
        CHECK(b.shm.h->stats.asks == asks, "nodes were asked for with the tap off");
        shm_select(&b.shm, &norm);
        bed_run(&b, alloc);
        ++number;
        size_t norms = 0;
        for (int i = 0; i < b.graph.cgraph.n_nodes; i++) {
            norms += want_name(&b.graph, i, (void *) (uintptr_t) "norm");
        }
        check_last(&b, &norm, number, "norm", norms);
        shm_select(&b.shm, &off); // never comes into effect
        shm_select(&b.shm, &out);
        number += 2;
        bed_run(&b, alloc);
        check_last(&b, &out, number, "l_out", N_LAYERS);
        bed_run(&b, alloc);
        check_last(&b, &out, number, "l_out", N_LAYERS);
    }
    CHECK(b.shm.h->glob_hits[0] == N_LAYERS, "%u hits of the first glob, counted by later selections too",
          b.shm.h->glob_hits[0]);
    bed_end(&b);
}

// attention_marked returns how many nodes and packets an execution of a device's graph has when attention is asked
// for before (late: after) the scheduler has put copies in the place of inputs.
static void attention_marked(bool late, uint32_t * nodes, size_t * packets) {
    struct bed b;
    bed_make(&b, true);
    struct tap_selection maps = named(NULL);
    maps.record = TAP_RECORD_ACTIVATIONS | TAP_RECORD_MAPS_ALONE;
    maps.attention = TAP_ATTENTION_KEEP;
    b.shm.h->config.start = late ? named(NULL) : maps;
    tap_join(&b.shm);
    bed_run(&b, true);
    CHECK(b.sched->n_copies > 5, "%d copies: the test does not test", b.sched->n_copies);
    if (late) {
        CHECK(log_count(&b.log, TAP_REC_CAPTURE) == 0, "something was captured");
        shm_select(&b.shm, &maps);
        bed_run(&b, false);
    }
    const struct tap_rec_graph * g = graph_of(&b, exec_last(&b));
    MUST(g != NULL);
    CHECK(g->attention == TAP_ATTENTION_KEEP, "attention %u", g->attention);
    *nodes = g->n_wanted;
    *packets = log_count(&b.log, TAP_REC_CAPTURE);
    bed_end(&b);
}

static void test_late_attention(void) {
    uint32_t early_nodes, late_nodes;
    size_t early, late;
    test_case("select: attention asked for at the start, on a device");
    attention_marked(false, &early_nodes, &early);
    test_case("select: attention asked for after copies have taken the place of inputs");
    attention_marked(true, &late_nodes, &late);
    test_case("select: the same is marked late and early");
    CHECK(early_nodes == 2 * N_LAYERS && early > early_nodes, "%u nodes, %zu packets", early_nodes, early);
    CHECK(late_nodes == early_nodes && late == early, "%u nodes and %zu packets late, %u and %zu early", late_nodes,
          late, early_nodes, early);
    test_end();
}

// ---- windows --------------------------------------------------------------------------------------------------------

// rows_of counts the token rows of packets of one node in the last execution.
static int rows_of(const struct bed * b, const char * name) {
    const int node = graph_number(&b->graph, graph_named(&b->graph, name, 1));
    int rows = 0;
    for (size_t i = 0; i < log_count(&b->log, TAP_REC_CAPTURE); i++) {
        const struct tap_rec_capture * c = (const struct tap_rec_capture *) log_find(&b->log, TAP_REC_CAPTURE,
            i)->record;
        rows += c->exec == exec_last(b)->exec && c->node == node ? c->row_count : 0;
    }
    return rows;
}

static void test_window(void) {
    test_case("select: a window of ten tokens over micro-batches of four, twice, and once through two selections");
    struct bed b;
    bed_make(&b, false);
    b.shm.h->config.start = named("l_out");
    tap_join(&b.shm);
    bed_run(&b, true);
    CHECK(rows_of(&b, "l_out-0") == 4 && exec_last(&b)->left == UINT32_MAX, "the start: %d rows, %u left",
          rows_of(&b, "l_out-0"), exec_last(&b)->left);
    struct tap_selection window = named("l_out");
    window.window = 10;
    for (int round = 0; round < 3; round++) {
        window.window_of = 0;
        shm_select(&b.shm, &window);
        static const int rows[] = {4, 4, 2, 0, 0};
        static const uint32_t left[] = {6, 2, 0, 0, 0};
        for (int i = 0; i < 5; i++) {
            if (round == 2 && (i == 1 || i == 3)) { // such as at another level of events
                window.window_of = 3;
                shm_select(&b.shm, &window);
            }
            bed_run(&b, round > 0 && i % 2 == 1);
            CHECK(rows_of(&b, "l_out-0") == rows[i] && exec_last(&b)->left == left[i],
                  "round %d, micro-batch %d: %d rows, %u left", round, i,
                  rows_of(&b, "l_out-0"), exec_last(&b)->left);
            CHECK((b.sched->callback != NULL) == (rows[i] > 0), "micro-batch %d: the callback is wrong", i);
        }
    }
    window.window = 0;
    shm_select(&b.shm, &window);
    bed_run(&b, false);
    CHECK(rows_of(&b, "l_out-0") == 4, "%d rows without a window", rows_of(&b, "l_out-0"));
    bed_end(&b);
}

// Tokens of a warm-up do not count: their numbers are given out again.
static void test_window_of_setup(void) {
    test_case("select: a window that begins in a warm-up begins again with the run");
    struct bed b;
    bed_make(&b, false);
    struct tap_selection window = named("l_out");
    window.window = 6;
    b.shm.h->config.start = named(NULL);
    tap_join(&b.shm);
    struct llama_context ctx = {.sched = b.sched, .graph = &b.graph, .fresh = true};
    shm_select(&b.shm, &window);
    const struct llama_batch batch = {.n_tokens = N_TOKENS, .token = (int32_t *) (uintptr_t) tokens};
    static const int rows[] = {4, 4, 2, 0};
    for (int i = 0; i < 4; i++) {
        graph_inputs(&b.graph);
        llama_decode(&ctx, batch);
        log_drain(&b.log);
        b.execs++;
        CHECK(rows_of(&b, "l_out-0") == rows[i], "decode %d: %d rows", i, rows_of(&b, "l_out-0"));
        if (i == 0) {
            llama_memory_clear(tap_real.llama_get_memory(&ctx), true);
        } else {
            llama_sampler_accept(&(struct llama_sampler) {0}, i);
        }
    }
    bed_end(&b);
}

// ---- races ----------------------------------------------------------------------------------------------------------

static void * compute_main(void * arg) {
    struct bed * b = arg;
    graph_inputs(&b->graph);
    MUST(ggml_backend_sched_alloc_graph(b->sched, &b->graph.cgraph));
    MUST(ggml_backend_sched_graph_compute_async(b->sched, &b->graph.cgraph) == GGML_STATUS_SUCCESS);
    return NULL;
}

// The first graph of tokens is computed when the collector has read it, and what was measured before counts.
static void test_judged(void) {
    test_case("select: the first graph waits for the collector's judgement");
    struct bed b;
    bed_make(&b, false);
    const struct tap_selection out = named("l_out");
    b.shm.h->config.start = out;
    b.shm.h->config.judge = 1;
    tap_join(&b.shm);
    MUST(ggml_backend_sched_reserve(b.sched, &b.graph.cgraph));
    CHECK(b.shm.h->glob_hits[0] == N_LAYERS && b.shm.h->matched == N_LAYERS, "%u hits and %u nodes of a graph that is "
          "measured",
          b.shm.h->glob_hits[0], b.shm.h->matched);
    pthread_t thread;
    b.sched->run = 0;
    MUST(pthread_create(&thread, NULL, compute_main, &b) == 0);
    while (atomic_load(&b.shm.h->waiting) == 0) {
        usleep(50);
    }
    CHECK(b.sched->computed == 0, "%lu nodes were computed before the collector had read of the graph",
          (unsigned long) b.sched->computed);
    while (b.execs == 0) {
        log_drain(&b.log);
        b.execs = log_count(&b.log, TAP_REC_EXEC_END);
    }
    pthread_join(thread, NULL);
    CHECK(b.sched->computed > 0, "nothing was computed");
    check_last(&b, &out, 0, "l_out", N_LAYERS);
    bed_run(&b, true); // waits for nobody
    check_last(&b, &out, 0, "l_out", N_LAYERS);
    bed_end(&b);
}

// What follows result_norm is neither computed nor captured, whatever is wanted, and what stays in place until the
// graph is computed is what it always was.
static void test_no_logits(const char * glob, size_t packets) {
    test_case("select: %s of a graph whose logits nobody wants", glob);
    struct bed b;
    bed_make(&b, false);
    const struct tap_selection wish = named(glob);
    b.shm.h->config.start = wish;
    b.shm.h->config.no_logits = 1;
    tap_join(&b.shm);
    b.sched->run = 0;
    uint64_t norm = 0;
    while (strcmp(b.graph.cgraph.nodes[norm]->name, "result_norm") != 0) {
        norm++;
    }
    for (int i = 0; i < 3; i++) {
        bed_run(&b, i == 1);
        CHECK(b.sched->computed == norm + 1, "%lu nodes were computed, not %lu", (unsigned long) b.sched->computed,
              (unsigned long) norm + 1);
        const struct expected e = {.log = &b.log, .graph = &b.graph, .config = &wish, .run = b.sched->run,
            .exec = b.execs - 1, .wanted = want_name, .arg = (void *) (uintptr_t) glob};
        const size_t n = expect_exec(&e);
        CHECK(n == packets, "%zu packets, not %zu", n, packets);
    }
    bed_end(&b);
}

// A selection that was torn would have globs of two numbers, or a window of another.
static struct tap_selection numbered(uint32_t n) {
    struct tap_selection s = named("l_out-0");
    s.n_globs = 2 + n % (TAP_MAX_GLOBS - 2);
    for (uint32_t i = 1; i < s.n_globs; i++) {
        snprintf(s.globs[i], TAP_GLOB_SIZE, "%u", n);
    }
    s.window = 1000000 + n;
    return s;
}

static void * change_main(void * arg) {
    struct shm * shm = arg;
    for (uint32_t n = 1; n <= 3000; n++) {
        const struct tap_selection s = n % 3 == 0 ? named(NULL) : numbered(n);
        shm_select(shm, &s);
    }
    return NULL;
}

struct reader {
    struct graph                graph;
    struct ggml_backend_sched * sched;
    pthread_t                   thread;
    uint32_t                    last; // selection that its graph was marked by at the end
    uint32_t                    seen; // changes of it
};

static void * reader_main(void * arg) {
    struct reader * r = arg;
    struct tap_sched * s = NULL;
    for (int i = 0; i < 400; i++) {
        graph_inputs(&r->graph);
        if (i == 0) {
            MUST(ggml_backend_sched_alloc_graph(r->sched, &r->graph.cgraph));
        }
        ggml_backend_sched_graph_compute_async(r->sched, &r->graph.cgraph);
        s = s == NULL ? tap_sched_of(r->sched, false) : s;
        const uint32_t n = s->graph.selection;
        r->seen += n != r->last;
        r->last = n;
        CHECK(n == 0 || s->graph.n_wanted == (n % 3 != 0), "%d nodes wanted by selection %u", s->graph.n_wanted, n);
        CHECK(n == 0 || s->tokens.window == (n % 3 != 0 ? 1000000 + n : 0), "a window of %ld in selection %u",
              (long) s->tokens.window, n);
    }
    return NULL;
}

static void test_race(void) {
    test_case("select: three contexts compute while the selection changes 3000 times");
    enum { READERS = 3 };
    static struct reader readers[READERS];
    struct shm shm;
    struct log log;
    shm_make(&shm, &(struct shm_options) {.slots = 256, .slot_bytes = 256});
    log_init(&log, &shm);
    shm.h->config.start = named("l_out");
    tap_join(&shm);
    log_start(&log);
    pthread_t writer;
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader) {.sched = sched_new()};
        model_graph(&readers[i].graph, &(struct model_options) {.n_layer = 1, .n_tokens = N_TOKENS, .n_outputs = 1,
            .n_kv = 32}, tokens, positions, outs);
        MUST(pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]) == 0);
    }
    MUST(pthread_create(&writer, NULL, change_main, &shm) == 0);
    pthread_join(writer, NULL);
    uint32_t seen = 0;
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        seen += readers[i].seen;
    }
    CHECK(seen > 0, "no change was seen: the test does not test");
    // From the next graph on, each goes by the last one.
    for (int i = 0; i < READERS; i++) {
        ggml_backend_sched_graph_compute_async(readers[i].sched, &readers[i].graph.cgraph);
        CHECK(tap_sched_of(readers[i].sched, false)->graph.selection == 3000, "selection %u at the end",
              tap_sched_of(readers[i].sched, false)->graph.selection);
    }
    log_finish(&log);
    CHECK(log.damage == NULL, "%s", log.damage);
    for (int i = 0; i < READERS; i++) {
        ggml_backend_sched_free(readers[i].sched);
        graph_free(&readers[i].graph);
    }
    tap_leave();
    log_clear(&log);
    shm_free(&shm);
    test_end();
}

int main(int argc, char ** argv) {
    (void) argv;
    if (argc > 1) { // the part for the thread sanitizer
        test_race();
        return test_done();
    }
    test_changes(false);
    test_changes(true);
    test_late_attention();
    test_window();
    test_window_of_setup();
    test_judged();
    test_no_logits("l_out", N_LAYERS);
    test_no_logits("result_norm", 1);
    test_race();
    return test_done();
}
