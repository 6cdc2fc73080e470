// test_join.c: which process is recorded, what of an unknown llama.cpp is used, and what a process does whose
// collector dies.
#define _GNU_SOURCE
#include "expect.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const int32_t tokens[4] = {1, 5, 9, 2};
static const int32_t positions[4] = {0, 1, 2, 3};
static const int32_t outs[1] = {3};

// A process that has met its collector and has not used llama.cpp yet.
struct process {
    struct shm             shm;
    struct log             log;
    struct graph           graph;
    struct llama_context * ctx;
};

static void process_meet(struct process * p, uint32_t overflow) {
    memset(p, 0, sizeof(*p));
    shm_make(&p->shm, &(struct shm_options) {.overflow = overflow});
    log_init(&p->log, &p->shm);
    fake_real();
    model_graph(&p->graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    snprintf(p->shm.h->config.start.globs[0], TAP_GLOB_SIZE, "l_out");
    p->shm.h->config.start.n_globs = 1;
    MUST(pipe(p->shm.life) == 0);
}

// process_compute makes a context of the fake llama.cpp and decodes n times.
static void process_compute(struct process * p, int n) {
    if (p->ctx == NULL) {
        const struct llama_context_params params = {.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO};
        p->ctx = llama_init_from_model(NULL, params);
        p->ctx->sched = sched_new();
        p->ctx->graph = &p->graph;
        p->ctx->fresh = true;
    }
    for (int i = 0; i < n; i++) {
        int32_t ids[4] = {i, 5, 6, 7};
        graph_inputs(&p->graph);
        MUST(llama_decode(p->ctx, (struct llama_batch) {.n_tokens = 4, .token = ids}) == 0);
    }
    log_drain(&p->log);
}

static void process_end(struct process * p) {
    if (p->ctx != NULL) {
        struct ggml_backend_sched * sched = p->ctx->sched;
        llama_free(p->ctx);
        ggml_backend_sched_free(sched);
    }
    tap_leave();
    log_drain(&p->log);
    CHECK(p->log.damage == NULL, "%s", p->log.damage);
    log_clear(&p->log);
    graph_free(&p->graph);
    close(p->shm.life[0]);
    close(p->shm.life[1]);
    shm_free(&p->shm);
    test_end();
}

static void test_first_use(void) {
    test_case("join: at the first context, not before");
    struct process p;
    process_meet(&p, TAP_OVERFLOW_BLOCK);
    MUST(tap_attach(p.shm.fd, -1) == 0);
    struct tap_header * h = p.shm.h;
    CHECK(tap_recording() && !tap_on(), "recording before anything was done");
    CHECK(h->seen == TAP_SEEN_TAP && h->pid == 0 && h->attached == 0 && h->queue_head == 0, "seen %x, process %d",
          h->seen, h->pid);
    tap_detach(); // a program that uses no llama.cpp ends like this
    CHECK(h->attached == 0 && h->queue_head == 0, "said goodbye without a hello");
    process_compute(&p, 2);
    CHECK(h->pid == getpid() && h->attached == 1 && (h->seen & TAP_SEEN_LLAMA), "seen %x, process %d", h->seen, h->pid);
    CHECK(log_count(&p.log, TAP_REC_HELLO) == 1 && log_count(&p.log, TAP_REC_EXEC) == 2 && log_count(&p.log,
        TAP_REC_CAPTURE) == 2,
          "%zu executions", log_count(&p.log, TAP_REC_EXEC));
    CHECK(strcmp(h->llama_version, "0.0-fake") == 0 && strcmp(h->ggml_version, "0.1-fake") == 0, "versions %s, %s",
          h->llama_version, h->ggml_version);
    CHECK(h->layouts == 0, "structures %x", h->layouts);
    process_end(&p);
}

// Two processes: another one has joined before, or this one by another copy of the tap in it.
static void test_taken(bool own) {
    test_case("join: %s is recorded already", own ? "another copy of the tap in this process" : "another process");
    struct process p;
    process_meet(&p, TAP_OVERFLOW_BLOCK);
    p.shm.h->pid = own ? getpid() : 1;
    MUST(tap_attach(p.shm.fd, -1) == 0);
    process_compute(&p, 3);
    CHECK(p.ctx->decodes == 3 && p.ctx->sched->ranges == 1 && p.ctx->sched->callback_sets == 0, "%d decodes",
          p.ctx->decodes);
    tap_detach();
    CHECK(p.shm.h->queue_head == 0 && p.shm.h->attached == 0 && p.shm.h->stats.unrecorded == 0, "it wrote");
    CHECK(p.shm.h->others == !own, "%u others", p.shm.h->others);
    CHECK(!tap_recording(), "recording");
    process_end(&p);
}

static void test_forked_before(void) {
    test_case("join: a child that was forked before the first use is recorded, its parent is not");
    struct process p;
    process_meet(&p, TAP_OVERFLOW_BLOCK);
    MUST(tap_attach(p.shm.fd, -1) == 0);
    const pid_t child = fork();
    if (child == 0) {
        process_compute(&p, 2);
        tap_detach();
        _exit(p.log.damage != NULL || log_count(&p.log, TAP_REC_EXEC) != 2);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0, "the child ended with %x", (unsigned) status);
    CHECK(p.shm.h->pid == child && p.shm.h->attached == 2, "process %d", p.shm.h->pid);
    const uint64_t written = p.shm.h->queue_head;
    process_compute(&p, 2);
    CHECK(p.shm.h->queue_head == written && p.shm.h->others == 1, "%u others", p.shm.h->others);
    p.shm.h->queue_tail = written;
    process_end(&p);
}

static void test_structures(uint32_t other) {
    test_case("structures: %s of another version", other == TAP_LAYOUT_GGML ? "ggml_tensor" : other == TAP_LAYOUT_BATCH
        ? "llama_batch" : "llama_context_params");
    struct process p;
    process_meet(&p, TAP_OVERFLOW_BLOCK);
    fake_other = other;
    p.shm.h->config.start.attention = TAP_ATTENTION_EXACT;
    MUST(tap_attach(p.shm.fd, -1) == 0);
    process_compute(&p, 2);
    fake_other = 0;
    const bool none = other == TAP_LAYOUT_GGML;
    CHECK(tap_recording() == !none && p.ctx->decodes == 2, "recording %d, %d decodes", tap_recording(), p.ctx->decodes);
    CHECK(((p.shm.h->seen & TAP_SEEN_GGML) != 0) == none, "seen %x", p.shm.h->seen);
    CHECK((log_count(&p.log, TAP_REC_CAPTURE) == 0) == none, "%zu captures", log_count(&p.log, TAP_REC_CAPTURE));
    CHECK(log_count(&p.log, TAP_REC_CALL) == (other == TAP_LAYOUT_PARAMS ? 2 : 0), "%zu calls",
          log_count(&p.log, TAP_REC_CALL));
    if (!none) {
        CHECK(p.shm.h->layouts == other, "structures %x", p.shm.h->layouts);
        const struct tap_rec_context * c = (const struct tap_rec_context *) log_find(&p.log, TAP_REC_CONTEXT,
            0)->record;
        CHECK(c->flash_attn == (other == TAP_LAYOUT_PARAMS ? -2 : LLAMA_FLASH_ATTN_TYPE_DISABLED), "flash attention %d",
              c->flash_attn);
        const struct tap_rec_exec * e = (const struct tap_rec_exec *) log_find(&p.log, TAP_REC_EXEC, 0)->record;
        CHECK(e->n_tokens == 4 && memcmp(e + 1, tokens, sizeof(tokens)) == 0, "%u tokens of the graph's own",
              e->n_tokens);
    }
    CHECK(p.ctx->flash_attn == (other == TAP_LAYOUT_BATCH ? LLAMA_FLASH_ATTN_TYPE_DISABLED
        : LLAMA_FLASH_ATTN_TYPE_AUTO),
          "flash attention %d reached llama.cpp", p.ctx->flash_attn);
    process_end(&p);
}

// An entry point that is missing is listed, and costs what needs it alone.
static void test_missing(void) {
    test_case("entry points: some are missing");
    struct process p;
    process_meet(&p, TAP_OVERFLOW_BLOCK);
    tap_real.llama_version = NULL;
    tap_real.llama_get_memory = NULL;
    tap_real.llama_batch_init = NULL; // nothing is known of llama_batch then
    MUST(tap_attach(p.shm.fd, -1) == 0);
    process_compute(&p, 2);
    char list[TAP_MISSING_SIZE + 2];
    snprintf(list, sizeof(list), " %s ", p.shm.h->missing);
    CHECK(strstr(list, " llama_version ") != NULL && strstr(list, " llama_get_memory ") != NULL && strstr(list,
        " llama_batch_init ") != NULL,
          "missing:%s", list);
    CHECK(strstr(list, " llama_decode ") == NULL, "llama_decode is missing");
    CHECK(p.shm.h->llama_version[0] == 0 && p.shm.h->layouts == TAP_LAYOUT_BATCH, "version %s, structures %x",
          p.shm.h->llama_version, p.shm.h->layouts);
    CHECK(log_count(&p.log, TAP_REC_CAPTURE) == 2, "%zu captures", log_count(&p.log, TAP_REC_CAPTURE));
    process_end(&p);
}

// What a process that lost its collector reports to the test.
struct left {
    _Atomic int ready, went_on, terminated;
};
static struct left * left;

static void on_term(int n) { (void) n; left->terminated = 1; }

// A model whose pool is full under block, or that never waits under drop: each notices that the collector is gone.
static void lose_collector(struct process * p, bool full) {
    close(p->shm.life[1]);
    freopen("/dev/null", "w", stderr); // the tap says what happened
    signal(SIGTERM, on_term);
    MUST(tap_attach(p->shm.fd, p->shm.life[0]) == 0);
    process_compute(p, 1);
    uint64_t waited = 0;
    enum tap_loss cause;
    while (full && tap.n_used < tap.header->n_slots) {
        MUST(tap_pool_reserve(1, &waited, &cause) >= 0);
    }
    left->ready = 1;
    if (full) {
        CHECK(tap_pool_reserve(1, &waited, &cause) == -1 && cause == TAP_LOSS_COLLECTOR_GONE, "cause %d", cause);
    }
    while (tap_on()) {
        usleep(100);
    }
    left->went_on = 1;
    while (p->shm.h->config.on_failure == TAP_FAILURE_STOP && !left->terminated) {
        usleep(100);
    }
    _exit(0);
}

static void test_bereaved(uint32_t overflow, uint32_t on_failure, int end) {
    static const char * const ends[] = {"dies", "has finished"};
    test_case("bereaved: the collector %s, policy %s, on failure %s", ends[end], overflow == TAP_OVERFLOW_DROP ? "drop"
        : "block, pool full",
              on_failure == TAP_FAILURE_STOP ? "stop" : "continue");
    struct process p;
    process_meet(&p, overflow);
    p.shm.h->config.on_failure = on_failure;
    *left = (struct left) {0};
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); // a hang is a failure
        lose_collector(&p, overflow == TAP_OVERFLOW_BLOCK);
    }
    while (!left->ready) {
        usleep(100);
    }
    CHECK(!left->went_on, "it stopped recording by itself");
    p.shm.h->closed = end; // a collector that has finished says so
    const bool stops = on_failure == TAP_FAILURE_STOP && !end;
    close(p.shm.life[1]);
    p.shm.life[1] = -1;
    int status = -1;
    while (!left->went_on && waitpid(child, &status, WNOHANG) == 0) {
        usleep(100);
    }
    CHECK(left->went_on, "it ended with %x", (unsigned) status);
    if (!stops && on_failure == TAP_FAILURE_STOP) {
        usleep(50000); // it waits for a signal that must not come
        CHECK(!left->terminated, "it was ended after a recording that had finished");
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    } else {
        waitpid(child, &status, 0);
        CHECK(status == 0 && left->terminated == stops, "it ended with %x, terminated %d", (unsigned) status,
              left->terminated);
    }
    tap.header = NULL; // this process never met it
    process_end(&p);
}

int main(void) {
    left = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(left != MAP_FAILED);
    test_first_use();
    test_taken(false);
    test_taken(true);
    test_forked_before();
    test_structures(TAP_LAYOUT_GGML);
    test_structures(TAP_LAYOUT_BATCH);
    test_structures(TAP_LAYOUT_PARAMS);
    test_missing();
    for (uint32_t overflow = 0; overflow < 2; overflow++) {
        for (uint32_t on_failure = 0; on_failure < 2; on_failure++) {
            test_bereaved(overflow, on_failure, 0);
            test_bereaved(overflow, on_failure, 1);
        }
    }
    return test_done();
}
