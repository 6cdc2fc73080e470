// test_budget.c: which executions are timed, and that timing costs no more than its share.
#define _GNU_SOURCE
#include "bed.h"

static const int32_t outs[] = {0};

enum { ROUNDS = 20000, PERCENT = 3 };

// A machine on which an execution takes some time, and longer when it is timed.
struct machine {
    bool    device;
    int64_t plain_ns, cut_ns;
    int     cuts;
    int     cold; // executions that take five times as long
};

// budget_run computes ROUNDS executions and returns how many are timed; *share is the part of the time, in thousandths,
// that timing took of those that are not cold.
static int budget_run(const struct machine * m, uint32_t every, int64_t * share) {
    struct tap_sched s = {.graph = {.device = m->device, .n_tokens = 1, .look_every = every, .n_timed = 1}};
    int timed = 0;
    int64_t now = 1000, spent = 0, all = 0;
    for (int i = 0; i < ROUNDS; i++) {
        s.timing = tap_budget_times(&s, now);
        s.begin_ns = now;
        s.n_cuts = s.timing ? (uint32_t) m->cuts : 0;
        const int64_t noise = i % 7 == 0 ? m->plain_ns / 4 : 0, cost = s.timing ? m->cuts * m->cut_ns : 0;
        const int64_t took = (m->plain_ns + noise + cost) * (i < m->cold ? 5 : 1);
        now += took;
        timed += s.timing;
        if (i >= m->cold) {
            spent += cost;
            all += took;
        }
        tap_budget_done(&s, now, s.timing && !m->device ? (uint64_t) m->cut_ns : 0);
    }
    *share = 1000 * spent / all;
    return timed;
}

static void test_share(const char * name, struct machine m, int least, int most) {
    test_case("share: %s", name);
    int64_t share = 0;
    const int timed = budget_run(&m, 0, &share);
    CHECK(timed >= least && timed <= most, "%d of %d are timed, not %d to %d", timed, ROUNDS, least, most);
    CHECK(share <= 10 * PERCENT + 1, "timing takes %ld per mille", (long) share);
    test_end();
}

static void test_every(void) {
    test_case("one in a number");
    int64_t share = 0;
    const struct machine dear = {.plain_ns = 1000, .cut_ns = 1000, .cuts = 50};
    CHECK(budget_run(&dear, 1, &share) == ROUNDS, "not all");
    CHECK(budget_run(&dear, 8, &share) == ROUNDS / 8, "not one in eight");
    test_end();
}

// The graph of an execution that is not timed is not cut.
static void test_graphs(bool capture) {
    test_case("graphs, %s tensors", capture ? "with" : "without");
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    b.shm.h->config.start = (struct tap_selection) {.record = capture ? TAP_RECORD_ACTIVATIONS : 0, .token_end = -1,
        .looking = TAP_LOOK_RANGES, .look_every = 3};
    bed_join(&b);
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 1, .n_outputs = 1, .n_kv = 32,
        .flash = true}, tokens, positions, outs);
    graph_inputs(&b.graph);
    for (int i = 0; i < 7; i++) {
        bed_run(&b, i == 0);
    }
    log_drain(&b.log);
    for (size_t i = 0; i < 7; i++) {
        const struct tap_rec_exec_end * end = (const struct tap_rec_exec_end *) log_find(&b.log, TAP_REC_EXEC_END,
            i)->record;
        CHECK((end->cuts > 0) == (capture || i % 3 == 0), "execution %zu: %lu cuts", i, (unsigned long) end->cuts);
    }
    CHECK(log_count(&b.log, TAP_REC_TIMES) == 3, "%zu are timed", log_count(&b.log, TAP_REC_TIMES));
    bed_end(&b);
}

int main(void) {
    test_every();
    test_share("cheap", (struct machine) {.plain_ns = 1000000, .cut_ns = 100, .cuts = 50}, ROUNDS, ROUNDS);
    test_share("half of an execution", (struct machine) {.plain_ns = 100000, .cut_ns = 1000, .cuts = 50},
               ROUNDS * 5 / 100, ROUNDS * 7 / 100);
    test_share("a device, six times an execution",
               (struct machine) {.device = true, .plain_ns = 3000000, .cut_ns = 18000, .cuts = 1000, .cold = 2},
               ROUNDS * 3 / 1000, ROUNDS * 6 / 1000);
    test_share("a device, for nothing", (struct machine) {.device = true, .plain_ns = 3000000, .cuts = 10},
               ROUNDS * 8 / 10, ROUNDS);
    test_graphs(false);
    test_graphs(true);
    return test_done();
}
