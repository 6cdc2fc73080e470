// test_warmup.c: warm-ups distinguished from runs, and a tap whose collector is gone, that was closed, or whose program
// forks.
#define _GNU_SOURCE
#include "calls.h"

#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- warm-up or run -------------------------------------------------------------------------------------------------

static void check_resolve(struct bed * b, size_t nth, uint32_t discarded, uint64_t exec) {
    const struct event * e = log_find(&b->log, TAP_REC_RESOLVE, nth);
    CHECK(e != NULL, "resolve %zu is missing", nth);
    if (e != NULL) {
        const struct tap_rec_resolve * r = (const struct tap_rec_resolve *) e->record;
        CHECK(r->discarded == discarded && r->exec == exec, "resolve %zu: %s up to %lu, not %lu", nth,
              r->discarded ? "set-up" : "run", (unsigned long) r->exec, (unsigned long) exec);
    }
}

static void test_warmup(void) {
    test_case("warm-up: thrown away by a clear, its token numbers are given out again");
    struct bed b;
    bed_make(&b);
    llama_memory_t memory = tap_real.llama_get_memory(b.ctx);
    decode(b.ctx, 1, 4);
    llama_memory_clear((llama_memory_t) &b, true); // somebody else's
    llama_synchronize(b.ctx);                      // a warm-up does that too
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 0, "resolved too early");
    llama_memory_clear(memory, true);
    llama_memory_clear(memory, true); // nothing left to throw away
    decode(b.ctx, 9, 4); // another batch, but the first since the clear
    decode(b.ctx, 9, 4); // the same batch again
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 1, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    check_resolve(&b, 0, 1, exec_at(&b, 0)->exec);
    decode(b.ctx, 20, 4); // a second, different batch: this is the run
    decode(b.ctx, 30, 4);
    llama_memory_clear(memory, true); // a run is a run
    decode(b.ctx, 40, 4);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 2, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    check_resolve(&b, 1, 0, exec_at(&b, 2)->exec);
    static const uint32_t provisional[6] = {1, 1, 1, 0, 0, 0};
    static const int64_t after[6] = {0, 0, 4, 8, 12, 16};
    for (size_t i = 0; i < 6; i++) {
        const struct tap_rec_exec * x = exec_at(&b, i);
        CHECK(x->provisional == provisional[i], "execution %zu is %sprovisional", i, x->provisional ? "" : "not ");
        CHECK(x->token_first == exec_at(&b, 0)->token_first + after[i], "execution %zu begins at token %ld", i,
              (long) x->token_first);
        CHECK(x->call == call_at(&b, i)->call, "execution %zu is of call %lu", i, (unsigned long) x->call);
    }
    CHECK(call_at(&b, 1)->flags == TAP_CALL_READ_SINCE, "the synchronisation is not reported: %u",
          call_at(&b, 1)->flags);
    bed_end(&b);
}

// llama-bench clears without wiping, after its warm-up and between timed runs that nobody reads.
static void test_clear_without_data(void) {
    test_case("warm-up: of the clears that keep the data, a context's first alone ends set-up");
    struct bed b;
    bed_make(&b);
    llama_memory_t memory = tap_real.llama_get_memory(b.ctx);
    for (int i = 0; i < 3; i++) {
        decode(b.ctx, 1, 4);
        llama_memory_clear(memory, false);
    }
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 1, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    check_resolve(&b, 0, 1, exec_at(&b, 0)->exec);
    CHECK(exec_at(&b, 0)->provisional && !exec_at(&b, 1)->provisional && !exec_at(&b, 2)->provisional,
          "provisional: %u %u %u", exec_at(&b, 0)->provisional,
          exec_at(&b, 1)->provisional, exec_at(&b, 2)->provisional);
    bed_end(&b);
}

static llama_memory_t no_memory(const struct llama_context * ctx) {
    (void) ctx;
    return NULL;
}

static void test_clear_without_memory(void) {
    test_case("warm-up: thrown away by a model without a cache, too");
    struct bed b;
    bed_make(&b);
    __typeof__(tap_real.llama_get_memory) get = tap_real.llama_get_memory;
    tap_real.llama_get_memory = no_memory;
    decode(b.ctx, 1, 2);
    llama_memory_clear(NULL, true);
    decode(b.ctx, 9, 4);
    llama_get_embeddings_seq(b.ctx, 0);
    llama_memory_clear(NULL, true); // a run is a run
    tap_real.llama_get_memory = get;
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 2, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    check_resolve(&b, 0, 1, exec_at(&b, 0)->exec);
    check_resolve(&b, 1, 0, exec_at(&b, 1)->exec);
    bed_end(&b);
}

enum { READS = 8 };

static void test_read(int how) {
    static const char * const names[READS + 1] = {"llama_get_logits", "llama_get_logits_ith", "llama_get_embeddings",
        "llama_get_embeddings_ith",
                                                  "llama_get_embeddings_seq", "llama_get_sampled_token_ith",
                                                  "llama_sampler_sample", "llama_free", "the end of the program"};
    test_case("run: known by %s", names[how]);
    struct bed b;
    bed_make(&b);
    decode(b.ctx, 1, 4);
    switch (how) {
        case 0: llama_get_logits(b.ctx); break;
        case 1: llama_get_logits_ith(b.ctx, -1); break;
        case 2: llama_get_embeddings(b.ctx); break;
        case 3: llama_get_embeddings_ith(b.ctx, 0); break;
        case 4: llama_get_embeddings_seq(b.ctx, 0); break;
        case 5: llama_get_sampled_token_ith(b.ctx, 0); break;
        case 6: llama_sampler_sample(&(struct llama_sampler) {0}, b.ctx, 0); break;
        case 7: context_end(b.ctx); b.ctx = NULL; break;
        default: tap_detach(); break;
    }
    if (how < 7) {
        decode(b.ctx, 1, 4);
        decode(b.ctx, 1, 4);
    }
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 1, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    check_resolve(&b, 0, 0, exec_at(&b, 0)->exec);
    if (how < 7) {
        CHECK(!exec_at(&b, 1)->provisional && call_at(&b, 1)->flags == TAP_CALL_READ_SINCE && call_at(&b,
            2)->flags == 0, "flags %u, then %u",
              call_at(&b, 1)->flags, call_at(&b, 2)->flags);
    }
    CHECK(how != 8 || (b.shm.h->attached == 2 && log_count(&b.log, TAP_REC_GOODBYE) == 1), "no goodbye");
    bed_end(&b);
}

// A sampler of one context accepts while another context warms up: that decides nothing about either.
static void test_accept(void) {
    test_case("accept: passed to every context, counted once per chain, and no proof of a run");
    struct bed b;
    bed_make(&b);
    struct llama_context * other = context_new(&b.graph); // never decodes
    struct llama_sampler inner = {0}, middle = {.ctx = &inner}, chain = {.ctx = &middle};
    fake_accepts = 0;
    llama_sampler_accept(&chain, 7); // nothing to report yet
    decode(b.ctx, 1, 4);
    llama_sampler_accept(&chain, 7);
    decode(b.ctx, 1, 4);
    log_drain(&b.log);
    CHECK(fake_accepts == 6, "%d accepts reached llama.cpp", fake_accepts);
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 0, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    CHECK(call_at(&b, 1)->flags == TAP_CALL_ACCEPTED_SINCE, "flags %u", call_at(&b, 1)->flags);
    CHECK(log_count(&b.log, TAP_REC_CONTEXT) == 1, "a context that never decoded was announced");
    llama_memory_clear(tap_real.llama_get_memory(b.ctx), true);
    log_drain(&b.log);
    check_resolve(&b, 0, 1, exec_at(&b, 1)->exec);
    context_end(other);
    bed_end(&b);
}

// ---- a tap that records no more -------------------------------------------------------------------------------------

// The callback stays with the scheduler when recording ends; it must want nothing then, and follow no stale
// description.
static void test_gone(void) {
    test_case("gone: computing goes on in one range after the collector has gone");
    struct bed b;
    bed_make(&b);
    decode(b.ctx, 1, 4);
    CHECK(b.ctx->sched->ranges > 1, "one range while recording");
    tap.recording = false; // what a wait does that finds no collector
    struct graph other;
    model_graph(&other, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 64}, tokens,
                positions, outs);
    for (int i = 0; i < 2; i++) {
        b.ctx->graph = &other;
        b.ctx->fresh = i == 0;
        graph_inputs(&other);
        llama_decode(b.ctx, (struct llama_batch) {.n_tokens = 4, .token = (int32_t *) (uintptr_t) tokens});
        CHECK(b.ctx->sched->ranges == 1, "%lu ranges", (unsigned long) b.ctx->sched->ranges);
    }
    b.ctx->graph = &b.graph; // the described one again
    decode(b.ctx, 1, 4);
    CHECK(b.ctx->sched->ranges == 1, "%lu ranges of the graph that was described",
          (unsigned long) b.ctx->sched->ranges);
    graph_free(&other);
    bed_end(&b);
}

// A collector that records no more says so and goes on living: the next graph is the first that is not looked at,
// also where there is room and nothing would wait.
static void test_closed(uint32_t overflow) {
    test_case("closed: computing goes on in one range from the next graph on, policy %u", overflow);
    struct bed b;
    bed_make(&b);
    b.shm.h->config.overflow = overflow;
    decode(b.ctx, 0, 4);
    CHECK(b.ctx->sched->ranges > 1, "one range while recording");
    log_drain(&b.log);
    const size_t seen = log_count(&b.log, TAP_REC_EXEC);
    atomic_store(&b.shm.h->closed, 1);
    decode(b.ctx, 1, 4);
    decode(b.ctx, 2, 4);
    CHECK(b.ctx->sched->ranges == 1, "%lu ranges", (unsigned long) b.ctx->sched->ranges);
    CHECK(b.shm.h->stats.unrecorded == 2, "%lu graphs unrecorded", (unsigned long) b.shm.h->stats.unrecorded);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_EXEC) == seen, "an execution was reported");
    CHECK(!tap_recording(), "still recording");
    CHECK(b.shm.h->stats.loss[TAP_LOSS_COLLECTOR_GONE].packets == 0, "a tensor was taken and lost");
    b.shm.h->stats.loss[TAP_LOSS_COLLECTOR_GONE].bytes = 0; // the end of the call that was going on
    bed_end(&b);
}

// A collector that writes no more and goes on counting: graphs are computed in one range, and what was wanted of
// them is reported as lost.
static void test_counts(uint32_t overflow) {
    test_case("counts: graphs are framed, nothing is copied, all that was wanted is lost, policy %u", overflow);
    struct bed b;
    bed_make(&b);
    b.shm.h->config.overflow = overflow;
    decode(b.ctx, 0, 4);
    log_drain(&b.log);
    const size_t execs = log_count(&b.log, TAP_REC_EXEC), captures = log_count(&b.log, TAP_REC_CAPTURE);
    atomic_store(&b.shm.h->closed, TAP_COUNTS);
    decode(b.ctx, 1, 4);
    CHECK(b.ctx->sched->ranges == 1, "%lu ranges", (unsigned long) b.ctx->sched->ranges);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_EXEC) == execs + 1 && log_count(&b.log, TAP_REC_EXEC_END) == execs + 1,
          "the execution was not framed");
    CHECK(captures > 0 && log_count(&b.log, TAP_REC_CAPTURE) == captures, "a tensor was copied");
    const struct event * lost = log_find(&b.log, TAP_REC_LOSSES, 0);
    CHECK(lost != NULL && ((const struct tap_rec_losses *) lost->record)->loss[TAP_LOSS_STOPPED].packets == captures,
          "not all that was wanted is lost");
    CHECK(b.shm.h->stats.unrecorded == 0, "%lu graphs unrecorded", (unsigned long) b.shm.h->stats.unrecorded);
    b.shm.h->stats.loss[TAP_LOSS_STOPPED].packets = b.shm.h->stats.loss[TAP_LOSS_STOPPED].bytes = 0;
    bed_end(&b);
}

static struct bed * fork_bed;
static pid_t        fork_pid;

// A program's callback that forks in the middle of a graph.
static bool fork_callback(struct ggml_tensor * t, bool ask, void * data) {
    (void) data;
    if (!ask && strncmp(t->name, "ffn_inp", 7) == 0) {
        fork_pid = fork();
    }
    return ask ? strncmp(t->name, "ffn_inp", 7) == 0 : true;
}

// child_lives lets a forked child use llama.cpp for itself and reports by its exit status whether that went well.
static void child_lives(struct bed * b) {
    for (int i = 0; i < 3; i++) {
        decode(b->ctx, i, 4);
        llama_get_logits(b->ctx);
        llama_sampler_accept(&(struct llama_sampler) {0}, 1);
        llama_memory_seq_rm(tap_real.llama_get_memory(b->ctx), 0, 0, -1);
        llama_set_sampler(b->ctx, 0, NULL);
        llama_memory_clear(tap_real.llama_get_memory(b->ctx), true);
    }
    struct llama_batch_ext * e = llama_batch_ext_init(b->ctx);
    llama_batch_ext_add_token(e, 0, 1);
    llama_batch_ext_free(e);
    context_end(b->ctx);
    tap_detach();
    _exit(0);
}

static void test_fork(bool inside) {
    test_case("fork: a child of the model %s decodes for itself and writes nothing", inside ? "made inside of a graph"
        : "made between graphs");
    struct bed b;
    bed_make(&b);
    fork_bed = &b;
    decode(b.ctx, 1, 4);
    log_drain(&b.log);
    const uint64_t before = b.shm.h->queue_head;
    if (inside) {
        ggml_backend_sched_set_eval_callback(b.ctx->sched, fork_callback, NULL);
        decode(b.ctx, 1, 4);
        ggml_backend_sched_set_eval_callback(b.ctx->sched, NULL, NULL);
    } else {
        fork_pid = fork();
    }
    if (fork_pid == 0) {
        child_lives(&b);
    }
    int status = -1;
    waitpid(fork_pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %x", (unsigned) status);
    CHECK(inside || b.shm.h->queue_head == before, "the child wrote %lu bytes",
          (unsigned long) (b.shm.h->queue_head - before));
    decode(b.ctx, 1, 4);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_EXEC) == (inside ? 3 : 2), "%zu executions", log_count(&b.log, TAP_REC_EXEC));
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == log_count(&b.log, TAP_REC_EXEC), "%zu captures",
          log_count(&b.log, TAP_REC_CAPTURE));
    CHECK(log_count(&b.log, TAP_REC_HELLO) == 1 && log_count(&b.log, TAP_REC_GOODBYE) == 0, "the child said goodbye");
    bed_end(&b);
}

int main(void) {
    test_warmup();
    test_clear_without_data();
    test_clear_without_memory();
    for (int how = 0; how <= READS; how++) {
        test_read(how);
    }
    test_accept();
    test_gone();
    test_closed(TAP_OVERFLOW_BLOCK);
    test_closed(TAP_OVERFLOW_DROP);
    test_counts(TAP_OVERFLOW_BLOCK);
    test_counts(TAP_OVERFLOW_DROP);
    test_fork(false);
    test_fork(true);
    return test_done();
}
