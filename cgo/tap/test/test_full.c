// test_full.c: a pool or queue that is too small, what the tap says of itself, globs, and several models at once.
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- a pool that is too small ---------------------------------------------------------------------------------------

static void count_captures(const struct log * l, uint64_t * packets, uint64_t * bytes) {
    for (const struct event * e = l->first; e != NULL; e = e->next) {
        if (e->type == TAP_REC_CAPTURE) {
            *packets += 1;
            *bytes += ((const struct tap_rec_capture *) e->record)->bytes;
        }
    }
}

// What the ends of executions report, summed up.
struct tap_sums {
    uint64_t ends, selected, selected_bytes, lost;
};

static struct tap_sums sums_of(const struct log * l) {
    struct tap_sums sums = {0};
    for (const struct event * e = l->first; e != NULL; e = e->next) {
        if (e->type == TAP_REC_EXEC_END) {
            const struct tap_rec_exec_end * end = (const struct tap_rec_exec_end *) e->record;
            sums.selected += end->selected_packets;
            sums.selected_bytes += end->selected_bytes;
            sums.ends++;
        }
        if (e->type == TAP_REC_LOSSES) {
            for (int i = 0; i < TAP_MAX_LOSSES; i++) {
                sums.lost += ((const struct tap_rec_losses *) e->record)->loss[i].packets;
            }
        }
    }
    return sums;
}

// Policy drop: what is captured and what is counted as lost are together all that was wanted, in packets and in bytes.
static void test_drop(uint64_t slots, bool drain) {
    test_case("drop: %lu slots, %s, captured and lost are all that was wanted", (unsigned long) slots,
              drain ? "slots held" : "nothing read");
    static const int32_t outs[2] = {1, 5};
    uint64_t packets[2] = {0}, bytes[2] = {0}, lost[2] = {0}, asks[2] = {0};
    for (int small = 0; small < 2; small++) {
        struct bed b;
        bed_make(&b, &(struct shm_options) {.slots = small ? slots : 16384, .slot_bytes = 4096,
            .queue_bytes = small && !drain ? 65536 : 1 << 20, .overflow = TAP_OVERFLOW_DROP});
        model_graph(&b.graph, &(struct model_options) {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32,
            .n_experts = 4}, tokens, positions, outs);
        b.log.hold = true;
        bed_join(&b);
        for (int i = 0; i < 5; i++) {
            bed_run(&b, i == 0);
            if (drain) {
                log_drain(&b.log);
            }
        }
        log_drain(&b.log);
        count_captures(&b.log, &packets[small], &bytes[small]);
        struct tap_sums reported = sums_of(&b.log);
        const struct tap_count * loss = b.shm.h->stats.loss;
        asks[small] = b.shm.h->stats.asks;
        if (small) {
            lost[0] = loss[TAP_LOSS_POOL_FULL].packets + loss[TAP_LOSS_QUEUE_FULL].packets;
            lost[1] = loss[TAP_LOSS_POOL_FULL].bytes; // a lost record's own bytes count as queue_full
            CHECK(lost[0] > 0, "nothing was lost: the test does not test");
            CHECK(reported.ends < 5 || reported.lost == lost[0], "the executions report %lu losses, not %lu",
                  (unsigned long) reported.lost, (unsigned long) lost[0]);
            CHECK(b.shm.h->stats.waits == 0, "the model waited");
        } else {
            CHECK(loss[TAP_LOSS_POOL_FULL].packets + loss[TAP_LOSS_QUEUE_FULL].packets == 0,
                  "the large pool is too small for the test");
        }
        CHECK(reported.ends < 5 || (reported.selected == packets[small] + lost[0] &&
                                    reported.selected_bytes == bytes[small] + lost[1]),
              "the executions report %lu selected, not %lu", (unsigned long) reported.selected,
              (unsigned long) (packets[small] + lost[0]));
        if (small) {
            bed_end(&b);
        } else {
            log_clear(&b.log);
            ggml_backend_sched_free(b.sched);
            tap_leave();
            graph_free(&b.graph);
            shm_free(&b.shm);
        }
    }
    test_case("drop: the sums of the case before");
    // An execution that finds the pool full is not stopped at its nodes.
    CHECK(slots > 50 || asks[1] * 5 == asks[0], "%lu asks, %lu of five executions", (unsigned long) asks[1],
          (unsigned long) asks[0]);
    CHECK(packets[1] + lost[0] == packets[0], "%lu captured and %lu lost of %lu", (unsigned long) packets[1],
          (unsigned long) lost[0], (unsigned long) packets[0]);
    CHECK(!drain || bytes[1] + lost[1] == bytes[0], "%lu and %lu of %lu bytes", (unsigned long) bytes[1],
          (unsigned long) lost[1], (unsigned long) bytes[0]);
    test_end();
}

// ---- the tap's own account ------------------------------------------------------------------------------------------

static void * read_slowly(void * arg) {
    struct log * l = arg;
    while (!l->stop) {
        struct tap_record * r = shm_next(l->shm);
        if (r == NULL || r->type == TAP_REC_CAPTURE) {
            shm_sleep(l->shm, 200000);
        }
        if (r != NULL) {
            if (r->type == TAP_REC_CAPTURE) {
                const struct tap_rec_capture * c = (const struct tap_rec_capture *) r;
                shm_give_back(l->shm, c->slot, c->n_slots);
            }
            shm_read(l->shm, r);
        }
    }
    log_drain(l);
    return NULL;
}

// A model that mostly waits: what the tap counts as its work and as waiting must fit into the time that went by.
static void test_account(uint64_t slots) {
    test_case("account: work and waits fit into the time that went by, %lu slots", (unsigned long) slots);
    static const int32_t outs[1] = {3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {.slots = slots, .slot_bytes = 1024, .queue_bytes = 65536});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 8, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    MUST(pthread_create(&b.log.thread, NULL, read_slowly, &b.log) == 0);
    const int64_t began = tap_now();
    for (int i = 0; i < 5; i++) {
        bed_run(&b, i == 0);
    }
    const uint64_t wall = (uint64_t) (tap_now() - began);
    log_finish(&b.log);
    const struct tap_stats * st = &b.shm.h->stats;
    const uint64_t sum = st->describe_ns + st->hook_ns + st->copy_ns + st->api_ns + st->wait_ns;
    CHECK(st->waits > 0 && st->wait_ns > wall / 4, "%lu of %lu us waited: the test does not test",
          (unsigned long) st->wait_ns / 1000, (unsigned long) wall / 1000);
    CHECK(sum <= wall, "%lu us counted in %lu us", (unsigned long) sum / 1000, (unsigned long) wall / 1000);
    no_losses(&b);
    bed_end(&b);
}

// ---- in step with the collector -------------------------------------------------------------------------------------

// A model in step goes on from the end of a graph when everything reported of it was read; without a
// collector, at once.
static void test_in_step(void) {
    test_case("in step: behind each graph the queue is empty");
    static const int32_t outs[1] = {3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {.slots = 16384, .slot_bytes = 1024, .queue_bytes = 1 << 20});
    b.shm.h->config.in_step = 1;
    model_graph(&b.graph, &(struct model_options) {.n_layer = 3, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    MUST(pthread_create(&b.log.thread, NULL, read_slowly, &b.log) == 0);
    for (int i = 0; i < 5; i++) {
        bed_run(&b, i == 0);
        const uint64_t head = atomic_load(&b.shm.h->queue_head), tail = atomic_load(&b.shm.h->queue_tail);
        CHECK(head == tail, "graph %d: %lu bytes are not read", i, (unsigned long) (head - tail));
    }
    CHECK(b.shm.h->stats.waits >= 5 && b.shm.h->stats.wait_ns > 0, "it waited %lu times: the test does not test",
          (unsigned long) b.shm.h->stats.waits);
    log_finish(&b.log);
    atomic_store(&b.shm.h->closed, 1); // nobody reads any more
    bed_run(&b, false);
    bed_end(&b);
}

static void * stop_waiting(void * arg) {
    struct tap_header * h = arg;
    while (atomic_load(&h->waiting) == 0) {
        usleep(100);
    }
    usleep(1000);
    atomic_store(&h->closed, TAP_COUNTS); // the wait sees it when it looks the next time
    return NULL;
}

// A tensor that waits for the queue when the collector ends writing is lost by that, and not by the queue.
static void test_stopped(void) {
    static const int32_t outs[] = {3};
    test_case("stopped while the model waits for the queue");
    struct bed b;
    bed_make(&b, &(struct shm_options) {.queue_bytes = 1 << 16});
    b.shm.h->config.start = (struct tap_selection) {.record = TAP_RECORD_ACTIVATIONS, .token_end = -1};
    model_graph(&b.graph, &(struct model_options) {.n_layer = 3, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    bed_join(&b);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, stop_waiting, b.shm.h) == 0);
    for (int i = 0; i < 20; i++) {
        bed_run(&b, i == 0);
    }
    pthread_join(thread, NULL);
    const struct tap_count * loss = b.shm.h->stats.loss;
    CHECK(loss[TAP_LOSS_STOPPED].packets > 0 && loss[TAP_LOSS_QUEUE_FULL].packets == 0,
          "%lu tensors are lost by the stop, %lu by the queue", (unsigned long) loss[TAP_LOSS_STOPPED].packets,
          (unsigned long) loss[TAP_LOSS_QUEUE_FULL].packets);
    bed_end(&b);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static void test_globs(void) {
    static const struct { const char * pattern, * text; bool match; } rows[] = {
        {"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"a*c", "abbc", true},
        {"a*c", "abbd", false},
        {"*b*", "abc", true}, {"**", "x", true}, {"*-1", "a-1-1", true}, {"?", "", false}, {"?", "x", true},
        {"[abc]", "b", true},
        {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[^a]", "b", true}, {"[]]", "]", true}, {"[!]]", "]", false},
        {"[a-]", "-", true},
        {"[", "[", false}, {"[ab", "a", true}, {"l_out-[0-1]", "l_out-1", true}, {"l_out-[0-1]", "l_out-2", false},
        {"a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"*.weight", "blk.0.weight", true}, {"ffn_*-?", "ffn_out-10", false},
    };
    test_case("names: globs");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64]; // of exactly its length, so that a read beyond it is seen
        char * exact = malloc(strlen(rows[i].text) + 1);
        MUST(exact != NULL);
        strcpy(exact, rows[i].text);
        snprintf(text, sizeof(text), "%s", rows[i].pattern);
        CHECK(tap_glob_match(text, exact, strlen(exact)) == rows[i].match, "%s against %s", rows[i].pattern,
              rows[i].text);
        free(exact);
    }
    test_end();
    static const struct { const char * name; int32_t layer; } names[] = {
        {"l_out-0", 0}, {"l_out-31", 31}, {"cache_k_l7", 7}, {"cache_k_l0 (view)", -1}, {"node_24", -1}, {"", -1},
        {"7", -1}, {"-3", 3},
        {"ffn_out-123456", -1}, {"a-1b", -1}, {"cache_l", -1}, {"x_l12", 12},
    };
    test_case("names: layers");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const int32_t layer = tap_name_layer(names[i].name, strlen(names[i].name));
        CHECK(layer == names[i].layer, "%s: %d", names[i].name, layer);
    }
    test_end();
}

// ---- threads --------------------------------------------------------------------------------------------------------

enum { THREADS = 4, THREAD_RUNS = 20 };

struct model_thread {
    struct shm *                shm;
    struct graph                graph;
    struct ggml_backend_sched * sched;
    struct llama_context *      ctx;
    int32_t                     out;
    pthread_t                   thread;
};

static void * model_main(void * arg) {
    struct model_thread * m = arg;
    for (int i = 0; i < THREAD_RUNS; i++) {
        graph_inputs(&m->graph);
        if (i % 7 == 0) {
            m->ctx->fresh = true;
        }
        llama_decode(m->ctx, (struct llama_batch) {.n_tokens = m->graph.n_tokens,
            .token = (int32_t *) (uintptr_t) tokens});
        llama_get_logits_ith(m->ctx, -1);
        llama_sampler_accept(&(struct llama_sampler) {0}, i);
    }
    llama_free(m->ctx);
    return NULL;
}

static void check_thread(const struct log * log, struct model_thread * m, uint32_t ctx) {
    uint64_t run = 0;
    size_t nth = 0;
    for (const struct event * e = log->first; e != NULL; e = e->next) {
        if (e->type != TAP_REC_EXEC) {
            continue;
        }
        if (((const struct tap_rec_exec *) e->record)->ctx == ctx) {
            const struct expected x = {.log = log, .graph = &m->graph, .config = &m->shm->h->config.start, .run = ++run,
                .exec = nth, .wanted = want_computed};
            CHECK(expect_exec(&x) > 0, "execution %zu has no packets", nth);
        }
        nth++;
    }
    CHECK(run == THREAD_RUNS, "context %u has %lu executions", ctx, (unsigned long) run);
}

// Packets of one execution may follow the EXEC of another thread's: the log is put in order of executions.
static void log_group(struct log * l) {
    struct log grouped;
    log_init(&grouped, l->shm);
    for (struct event * e = l->first; e != NULL; e = e->next) {
        if (e->type != TAP_REC_EXEC) {
            continue;
        }
        const uint64_t exec = ((const struct tap_rec_exec *) e->record)->exec;
        struct event * copy = malloc(sizeof(*copy));
        MUST(copy != NULL);
        *copy = *e;
        *grouped.last = copy;
        grouped.last = &copy->next;
        for (struct event * c = e->next; c != NULL; c = c->next) {
            if (c->type == TAP_REC_CAPTURE && ((const struct tap_rec_capture *) c->record)->exec == exec) {
                copy = malloc(sizeof(*copy));
                MUST(copy != NULL);
                *copy = *c;
                *grouped.last = copy;
                grouped.last = &copy->next;
            }
        }
    }
    *grouped.last = NULL;
    for (struct event * e = l->first, * next; e != NULL; e = next) {
        next = e->next;
        if (e->type != TAP_REC_EXEC && e->type != TAP_REC_CAPTURE) {
            free(e->record);
            free(e->data);
        }
        free(e);
    }
    l->first = grouped.first;
    l->last = grouped.last;
}

static void test_threads(void) {
    test_case("threads: %d contexts with a scheduler each, through a small pool", THREADS);
    struct shm shm;
    struct log log;
    shm_make(&shm, &(struct shm_options) {.slots = 256, .slot_bytes = 256, .queue_bytes = 65536});
    log_init(&log, &shm);
    static struct model_thread m[THREADS];
    tap_join(&shm);
    log_start(&log);
    for (int i = 0; i < THREADS; i++) {
        const int n = 1 + i * 2;
        m[i].out = n - 1;
        m[i].shm = &shm;
        model_graph(&m[i].graph, &(struct model_options) {.n_layer = 2, .n_tokens = n, .n_outputs = 1, .n_kv = 32,
            .n_experts = i % 2 * 4, .flash = i & 2},
                    tokens, positions, &m[i].out);
        m[i].sched = sched_new();
        m[i].ctx = calloc(1, sizeof(*m[i].ctx));
        MUST(m[i].ctx != NULL);
        *m[i].ctx = (struct llama_context) {.sched = m[i].sched, .graph = &m[i].graph, .fresh = true};
        MUST(pthread_create(&m[i].thread, NULL, model_main, &m[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(m[i].thread, NULL);
    }
    tap_detach();
    log_finish(&log);
    uint32_t ctx_of[THREADS];
    // contexts are numbered by first use: batches of different sizes distinguish them
    for (int i = 0; i < THREADS; i++) {
        ctx_of[i] = UINT32_MAX;
        for (const struct event * e = log.first; e != NULL; e = e->next) {
            const struct tap_rec_exec * x = (const struct tap_rec_exec *) e->record;
            if (e->type == TAP_REC_EXEC && (int) x->n_tokens == m[i].graph.n_tokens) {
                ctx_of[i] = x->ctx;
            }
        }
    }
    log_group(&log);
    for (int i = 0; i < THREADS; i++) {
        check_thread(&log, &m[i], ctx_of[i]);
        ggml_backend_sched_free(m[i].sched);
        graph_free(&m[i].graph);
    }
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(shm.h->stats.loss[i].packets == 0, "loss of cause %d", i);
    }
    tap_leave();
    log_clear(&log);
    shm_free(&shm);
    test_end();
}

int main(int argc, char ** argv) {
    (void) argv;
    if (argc > 1) { // the part for the thread sanitizer
        test_threads();
        return test_done();
    }
    test_drop(50, true);
    test_drop(300, true);
    test_drop(16384, false);
    test_account(16);    // waits for slots
    test_account(16384); // waits for room in the queue
    test_in_step();
    test_stopped();
    test_globs();
    test_threads();
    return test_done();
}
