//go:build llama

// tap_budget.c: which executions are timed.
//
// To time a node ggml computes the graph up to it and waits: on a GPU that can take several times what the graph
// takes as a whole. So where the collector gave no number, an execution is timed when all that were timed before have
// cost the model no more than TAP_TIMING_PERCENT of its computing. A prompt's graph and a token's cost different
// amounts: executions of about as many tokens have an account of their own, and the first one of each is timed.
//
// On the CPU the cost is that of the cuts, as tap_cut.c measures it. On a device it is what an execution takes longer
// with times than without, from its begin to the next one's.
#define _GNU_SOURCE
#include "tap_sched.h"

enum { TAP_TIMING_PERCENT = 3 };

static struct tap_budget * tap_budget_of(struct tap_sched * s, int32_t n_tokens) {
    int class = 0;
    while (class + 1 < TAP_BUDGETS && n_tokens >> (class + 1) != 0) {
        class++;
    }
    return &s->budgets[class];
}

// tap_least lowers a least value at once and raises it slowly: noise only adds to a duration.
static void tap_least(int64_t * least, int64_t ns) {
    const int64_t most = *least + *least / 8 + 1;
    *least = *least == 0 || ns < *least ? ns : ns < most ? ns : most;
}

// tap_budget_spend accounts for an execution that computed for busy nanoseconds, of which timing cost some.
static void tap_budget_spend(struct tap_budget * b, int64_t busy, int64_t cost) {
    b->debt_ns += (cost > 0 ? cost : 0) - busy * TAP_TIMING_PERCENT / 100;
    if (b->debt_ns < -busy) {
        b->debt_ns = -busy; // what was saved long ago pays for no burst
    }
}

// tap_budget_period accounts for the device execution before this one, whose end nobody waited for.
static void tap_budget_period(struct tap_sched * s, int64_t now) {
    struct tap_budget * b = s->metered;
    s->metered = NULL;
    if (b == NULL) {
        return;
    }
    const int64_t took = now - s->begin_ns;
    tap_least(s->timing ? &b->timed_ns : &b->plain_ns, took);
    const int64_t plain = b->plain_ns != 0 ? b->plain_ns : took; // the first one's cost is not known
    tap_budget_spend(b, took < plain ? took : plain, s->timing ? b->timed_ns - plain : 0);
}

bool tap_budget_times(struct tap_sched * s, int64_t now) {
    tap_budget_period(s, now);
    struct tap_budget * b = tap_budget_of(s, s->graph.n_tokens);
    const uint64_t before = b->executions++;
    if (s->graph.look_every != 0) {
        return before % s->graph.look_every == 0;
    }
    if (s->graph.device && before == 1) {
        return false; // what it takes without times must be known
    }
    return before == 0 || b->debt_ns <= 0;
}

void tap_budget_done(struct tap_sched * s, int64_t left, uint64_t cut_ns) {
    struct tap_budget * b = tap_budget_of(s, s->graph.n_tokens);
    if (s->graph.device) {
        s->metered = b;
        return;
    }
    if (cut_ns != 0) {
        tap_least(&s->cut_ns, (int64_t) cut_ns);
    }
    const int64_t took = left - s->begin_ns, cost = s->timing ? s->cut_ns * (int64_t) s->n_cuts : 0;
    tap_budget_spend(b, took, cost < took ? cost : took);
}
