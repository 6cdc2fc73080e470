// test_machine.c: what is reported besides tensors: times, cells, masks, buffers, what samplers chose from.
#define _GNU_SOURCE
#include "expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const int32_t tokens[8] = {1, 5, 9, 2};
static const int32_t positions[8] = {0, 1, 2, 3};
static const int32_t outs[1] = {3};
enum { N_TOKENS = 4 };

// One graph under the tap.
struct bed {
    struct shm                  shm;
    struct log                  log;
    struct graph                graph;
    struct ggml_backend_sched * sched;
};

static void bed_begin(struct bed * b, const struct tap_selection * wish) {
    shm_make(&b->shm, &(struct shm_options) {0});
    log_init(&b->log, &b->shm);
    b->sched = sched_new();
    b->shm.h->config.start = *wish;
    tap_join(&b->shm);
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

static void bed_run(struct bed * b) {
    MUST(ggml_backend_sched_alloc_graph(b->sched, &b->graph.cgraph));
    MUST(ggml_backend_sched_graph_compute_async(b->sched, &b->graph.cgraph) == GGML_STATUS_SUCCESS);
    log_drain(&b->log);
}

// ---- times ----------------------------------------------------------------------------------------------------------

static bool is_view(const struct ggml_tensor * t) {
    return t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

// check_ranges checks that between two timed nodes all that compute are of one layer and component.
static void check_ranges(const struct graph * g, const struct tap_time * times, uint32_t n) {
    int at = 0;
    for (uint32_t k = 0; k < n; k++) {
        const struct known * of = NULL;
        for (; at <= (int) times[k].node; at++) {
            const struct known * now = &g->known[g->nodes[at] - g->tensors];
            if (is_view(g->nodes[at]) || !now->set) {
                continue;
            }
            CHECK(of == NULL || (of->layer == now->layer && of->component == now->component),
                  "nodes up to %u are of several components", times[k].node);
            of = now;
        }
    }
    CHECK(at >= g->cgraph.n_nodes - 1, "nodes from %d on are not timed", at);
}

static void test_times(uint32_t looking, bool capture) {
    test_case("times: looking %u, %s tensors", looking, capture ? "with" : "without");
    struct bed b;
    bed_begin(&b, &(struct tap_selection) {.record = capture ? TAP_RECORD_ACTIVATIONS : 0, .token_end = -1,
        .looking = looking});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 3, .n_tokens = N_TOKENS, .n_outputs = 1, .n_kv = 32,
        .flash = true}, tokens, positions, outs);
    graph_inputs(&b.graph);
    bed_run(&b);
    const struct tap_rec_exec_end * end = (const struct tap_rec_exec_end *) log_find(&b.log, TAP_REC_EXEC_END,
        0)->record;
    const struct event * e = log_find(&b.log, TAP_REC_TIMES, 0);
    CHECK((e != NULL) == (looking != TAP_LOOK_NEVER), "times are %stold", e != NULL ? "" : "not ");
    CHECK((log_count(&b.log, TAP_REC_CAPTURE) > 0) == capture, "%zu captures", log_count(&b.log, TAP_REC_CAPTURE));
    const int last = tap.scheds[0]->graph.n_nodes - 1;
    uint64_t stops = 0;
    for (int i = 0; i < last; i++) {
        const struct tap_graph_node * n = &tap.scheds[0]->graph.nodes[i];
        stops += n->wanted || n->timed;
    }
    CHECK(end->cuts == stops && (stops > 0) == (capture || looking != TAP_LOOK_NEVER), "%lu cuts of %lu",
          (unsigned long) end->cuts, (unsigned long) stops);
    CHECK((b.sched->callback != NULL) == (looking != TAP_LOOK_NEVER || capture), "the callback");
    if (e != NULL) {
        const struct tap_rec_times * r = (const struct tap_rec_times *) e->record;
        const struct tap_time * t = (const struct tap_time *) (r + 1);
        int computed = 0, all = 0, idle = 0;
        for (int i = 0; i < b.graph.cgraph.n_nodes; i++) {
            all += !is_view(b.graph.nodes[i]) && (b.graph.nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
        }
        uint64_t last = 0;
        for (uint32_t k = 0; k < r->count; k++) {
            CHECK(t[k].done_ns >= last && (k == 0 || t[k].node > t[k - 1].node), "time %u: node %u at %lu", k,
                  t[k].node, t[k].done_ns);
            last = t[k].done_ns + t[k].left_ns;
            const bool view = is_view(b.graph.nodes[t[k].node]);
            computed += !view;
            idle += view && k > 0 && t[k - 1].node + 1 == t[k].node;
        }
        CHECK(r->begin_ns + last <= end->mono_ns && r->begin_ns == end->begin_ns && r->count == r->total,
              "the last time is %lu after the beginning", last);
        CHECK(looking == TAP_LOOK_OPS ? computed == all : computed < all, "%d of %d nodes are timed", computed, all);
        CHECK(idle > 0 && idle <= 16, "%d views are timed behind others", idle);
        check_ranges(&b.graph, t, r->count);
    }
    bed_end(&b);
}

// ---- cells ----------------------------------------------------------------------------------------------------------

static const struct event * input_of(const struct bed * b, uint32_t kind) {
    for (size_t i = 0; i < log_count(&b->log, TAP_REC_INPUT); i++) {
        const struct event * e = log_find(&b->log, TAP_REC_INPUT, i);
        if (((const struct tap_rec_input *) e->record)->kind == kind) {
            return e;
        }
    }
    return NULL;
}

static void check_values(const struct bed * b, uint32_t kind, const int64_t * want, uint32_t n) {
    const struct event * e = input_of(b, kind);
    CHECK(e != NULL, "nothing of kind %u is reported", kind);
    if (e == NULL) {
        return;
    }
    const struct tap_rec_input * r = (const struct tap_rec_input *) e->record;
    const int64_t * v = (const int64_t *) (r + 1);
    CHECK(r->count == n && r->more == 0, "%u values, not %u", r->count, n);
    for (uint32_t i = 0; i < n && i < r->count; i++) {
        CHECK(v[i] == want[i], "value %u is %ld, not %ld", i, v[i], want[i]);
    }
}

// cells_graph makes a graph that writes rows of a cache by an index, reads it under a mask, and reads recurrent states.
static void cells_graph(struct graph * g, enum ggml_type mask_type, struct ne index, const int64_t * ids,
                        struct ne mask, const void * allowed, size_t mask_bytes) {
    graph_init(g, 4096, 65536, false);
    g->n_tokens = N_TOKENS;
    struct ggml_tensor * inp = graph_leaf(g, GGML_TYPE_I32, NE(N_TOKENS, 1, 1, 1), GGML_TENSOR_FLAG_INPUT,
                                          "inp_tokens");
    graph_write(g, inp, tokens, N_TOKENS * 4);
    struct ggml_tensor * cache = graph_leaf(g, GGML_TYPE_F16, NE(8, 32, 1, 1), 0, "cache_v_l0");
    struct ggml_tensor * rows = graph_node(g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(8, N_TOKENS, 1, 1), "Vcur-0", cache,
                                           inp, NULL);
    struct ggml_tensor * idx = graph_leaf(g, GGML_TYPE_I64, index, GGML_TENSOR_FLAG_INPUT, "inp_v_idxs");
    graph_write(g, idx, ids, (size_t) index.n[0] * 8);
    graph_set_rows(g, cache, rows, idx);
    struct ggml_tensor * kq_mask = graph_leaf(g, mask_type, mask, GGML_TENSOR_FLAG_INPUT, "inp_kq_mask");
    graph_write(g, kq_mask, allowed, mask_bytes);
    struct ggml_tensor * cast = graph_node(g, GGML_OP_CPY, mask_type, mask, "mask_copy", kq_mask, NULL, NULL);
    struct ggml_tensor * attention = graph_node(g, GGML_OP_FLASH_ATTN_EXT, GGML_TYPE_F32, NE(8, N_TOKENS, 1, 1), NULL,
                                                rows, cache, cache);
    attention->src[3] = cast;
    struct ggml_tensor * states = graph_leaf(g, GGML_TYPE_F32, NE(8, 4, 1, 1), 0, "cache_s_l0");
    struct ggml_tensor * copy = graph_leaf(g, GGML_TYPE_I32, NE(4, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "inp_s_copy");
    const int32_t from[4] = {2, 0, 1, 3};
    graph_write(g, copy, from, sizeof(from));
    struct ggml_tensor * part = graph_view(g, GGML_OP_VIEW, copy, NE(2, 1, 1, 1), NULL, 0, "s_copy_main");
    graph_node(g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(8, 2, 1, 1), "states", states, part, NULL);
}

static void check_mask(const struct bed * b, const struct tap_range * want, uint32_t n) {
    const struct event * e = input_of(b, TAP_INPUT_MASK);
    CHECK(e != NULL, "no mask is reported");
    if (e == NULL) {
        return;
    }
    const struct tap_rec_input * r = (const struct tap_rec_input *) e->record;
    const struct tap_range * got = (const struct tap_range *) (r + 1);
    CHECK(r->count == n, "%u ranges, not %u", r->count, n);
    for (uint32_t i = 0; i < n && i < r->count; i++) {
        CHECK(memcmp(&got[i], &want[i], sizeof(want[i])) == 0, "range %u is %d: %d to %d", i, got[i].row, got[i].first,
              got[i].end);
    }
}

static void test_cells(enum ggml_type type) {
    test_case("cells: one index per token, a mask of %s with more rows than tokens",
              type == GGML_TYPE_F16 ? "F16" : "F32");
    struct bed b;
    bed_begin(&b, &(struct tap_selection) {.record = TAP_RECORD_CELLS, .token_end = -1});
    enum { KV = 19, ROWS = 6 };
    uint16_t half[ROWS][KV];
    float single[ROWS][KV];
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < KV; c++) {
            // row 0: 0 to 19; row 1: nothing; row 2: 3 to 4 and 17 to 19; row 3: 0 to 8, biases; behind the tokens: all
            const bool may = r == 0 || r > 3 || (r == 2 && (c == 3 || c > 16)) || (r == 3 && c < 8);
            half[r][c] = (uint16_t) (may ? (r == 3 ? 0x3c00 + c : 0) : 0xfc00);
            single[r][c] = may ? (r == 3 ? (float) c : 0) : -INFINITY;
        }
    }
    const int64_t ids[N_TOKENS] = {7, 3, 31, 0};
    cells_graph(&b.graph, type, NE(N_TOKENS, 1, 1, 1), ids, NE(KV, ROWS, 1, 1), type == GGML_TYPE_F16 ? (void *) half
        : (void *) single,
                type == GGML_TYPE_F16 ? sizeof(half) : sizeof(single));
    bed_run(&b);
    check_values(&b, TAP_INPUT_CELLS, ids, N_TOKENS);
    check_values(&b, TAP_INPUT_STATES, (const int64_t[]) {2, 0, 1, 3}, 4);
    check_mask(&b, (const struct tap_range[]) {{0, 0, KV}, {2, 3, 4}, {2, 17, KV}, {3, 0, 8}}, 4);
    CHECK(b.sched->callback == NULL, "inputs are read without a callback");
    bed_end(&b);
}

// With flash attention off V lies transposed: element j of the token in cell c of stream s is s·width·cells +
// j·cells + c.
static void test_transposed(bool broken) {
    test_case("cells: transposed, two streams%s", broken ? ", an invalid index" : "");
    struct bed b;
    bed_begin(&b, &(struct tap_selection) {.record = TAP_RECORD_CELLS, .token_end = -1});
    enum { WIDTH = 8, CELLS = 16 };
    const int64_t cell[N_TOKENS] = {5, 15, 0, 9}, stream[N_TOKENS] = {0, 0, 1, 1};
    int64_t ids[N_TOKENS * WIDTH], want[N_TOKENS];
    for (int t = 0; t < N_TOKENS; t++) {
        want[t] = stream[t] * CELLS + cell[t];
        for (int j = 0; j < WIDTH; j++) {
            ids[t * WIDTH + j] = stream[t] * WIDTH * CELLS + j * CELLS + cell[t];
        }
    }
    if (broken) {
        ids[1 * WIDTH + 5]++;
        want[1] = -1;
    }
    uint16_t mask[2][2][8] = {{{0}}}; // two streams of two tokens
    for (int c = 0; c < 8; c++) {
        mask[0][0][c] = c < 2 ? 0 : 0xfc00;
        mask[1][1][c] = c < 5 ? 0xfc00 : 0;
    }
    cells_graph(&b.graph, GGML_TYPE_F16, NE(N_TOKENS * WIDTH, 1, 1, 1), ids, NE(8, 2, 1, 2), mask, sizeof(mask));
    bed_run(&b);
    check_values(&b, TAP_INPUT_CELLS, want, N_TOKENS);
    check_mask(&b, (const struct tap_range[]) {{0, 0, 2}, {1, 0, 8}, {2, 0, 8}, {3, 5, 8}}, 4);
    bed_end(&b);
}

// ---- devices --------------------------------------------------------------------------------------------------------

static const struct tap_rec_sync * sync_told(const struct bed * b, size_t nth) {
    const struct event * e = log_find(&b->log, TAP_REC_SYNC, nth);
    return e != NULL ? (const struct tap_rec_sync *) e->record : NULL;
}

// test_sync: the first synchronisation behind graphs that a device has part in is reported, and no other; no callback
// is set for it.
static void test_sync(bool device) {
    test_case("a graph on the %s is computed when it was synchronised", device ? "device" : "host");
    struct bed b;
    bed_begin(&b, &(struct tap_selection) {.token_end = -1});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = N_TOKENS, .n_outputs = 1, .n_kv = 32,
        .flash = true, .device = device}, tokens, positions, outs);
    graph_inputs(&b.graph);
    ggml_backend_sched_synchronize(b.sched); // before anything was computed
    bed_run(&b);
    const struct tap_rec_exec_end * end = (const struct tap_rec_exec_end *) log_find(&b.log, TAP_REC_EXEC_END,
        0)->record;
    CHECK(end->async == device && log_count(&b.log, TAP_REC_SYNC) == 0, "reported before it was synchronised");
    const uint64_t exec = end->exec, left = end->mono_ns;
    ggml_backend_sched_synchronize(b.sched);
    const int64_t took = b.sched->sync_ns, at = b.sched->synced_at, now = tap_now();
    ggml_backend_sched_synchronize(b.sched);
    bed_run(&b);
    bed_run(&b);
    ggml_backend_sched_synchronize(b.sched);
    log_drain(&b.log);
    const struct tap_rec_sync * first = sync_told(&b, 0), * second = sync_told(&b, 1);
    CHECK(log_count(&b.log, TAP_REC_SYNC) == (device ? 2u : 0u), "%zu synchronisations",
          log_count(&b.log, TAP_REC_SYNC));
    if (second != NULL) {
        CHECK(first->exec == exec && first->graphs == 1 && first->mono_ns >= (uint64_t) at &&
              first->mono_ns <= (uint64_t) now && first->mono_ns > left, "the first: of %lu, at %lu",
              (unsigned long) first->exec, (unsigned long) first->mono_ns);
        CHECK(first->wait_ns >= (uint64_t) took && first->wait_ns <= (uint64_t) (now - (int64_t) left), "it took %lu",
              (unsigned long) first->wait_ns);
        CHECK(second->exec == exec + 2 && second->graphs == 2, "the second: of %lu, %u graphs",
              (unsigned long) second->exec, second->graphs);
    }
    CHECK(b.sched->callback_sets == 0, "a callback was set");
    bed_end(&b);
}

// ---- buffers --------------------------------------------------------------------------------------------------------

static const struct tap_rec_buffer * buffer_told(const struct bed * b, size_t nth) {
    const struct event * e = log_find(&b->log, TAP_REC_BUFFER, nth);
    return e != NULL ? (const struct tap_rec_buffer *) e->record : NULL;
}

// test_mapped_file: of a buffer in a mapped file, the file and the place in it are reported.
static void test_mapped_file(void) {
    test_case("buffers: the file that one is mapped from");
    char name[] = "/tmp/tap a file XXXXXX";
    const int fd = mkstemp(name);
    MUST(fd >= 0 && ftruncate(fd, 3 * 4096) == 0);
    uint8_t * at = mmap(NULL, 2 * 4096, PROT_READ, MAP_PRIVATE, fd, 4096);
    MUST(at != MAP_FAILED);
    struct bed b;
    shm_make(&b.shm, &(struct shm_options) {0});
    log_init(&b.log, &b.shm);
    fake_real();
    MUST(tap_attach(b.shm.fd, -1) == 0);
    tap_join_now();
    ggml_backend_buffer_t mapped = ggml_backend_dev_buffer_from_host_ptr(NULL, at + 4196, 512, 0),
    other = ggml_backend_dev_buffer_from_host_ptr(NULL, &b, 64, 0);
    log_drain(&b.log);
    const struct tap_rec_buffer * first = buffer_told(&b, 0), * second = buffer_told(&b, 1);
    CHECK(second != NULL, "%zu buffers are reported", log_count(&b.log, TAP_REC_BUFFER));
    if (second != NULL) {
        const char * path = (const char *) (first + 1) + first->type_bytes + first->device_bytes;
        CHECK(first->file_offset == 4096 + 4196 && first->file_bytes == strlen(name) && memcmp(path, name,
            strlen(name)) == 0, "%d bytes of path, %lu",
              first->file_bytes, (unsigned long) first->file_offset);
        CHECK(second->file_offset == 0 && second->file_bytes == 0, "the stack is no file");
    }
    ggml_backend_buffer_free(mapped);
    ggml_backend_buffer_free(other);
    log_drain(&b.log);
    tap_leave();
    log_clear(&b.log);
    shm_free(&b.shm);
    munmap(at, 2 * 4096);
    close(fd);
    unlink(name);
    test_end();
}

static void test_buffers(void) {
    test_case("buffers: those from before the first use are reported then, later ones at once, empty ones never");
    struct bed b;
    shm_make(&b.shm, &(struct shm_options) {0});
    log_init(&b.log, &b.shm);
    fake_real();
    tap.given = false;
    MUST(tap_attach(b.shm.fd, -1) == 0);
    b.shm.h->pid = 0;
    ggml_backend_buffer_t weights = ggml_backend_dev_buffer_from_host_ptr(NULL, &b, 4096, 0),
    gone = ggml_backend_buft_alloc_buffer(NULL, 64);
    ggml_backend_buffer_set_usage(weights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_free(gone);
    log_drain(&b.log);
    CHECK(b.log.n == 0, "%zu records before the first use", b.log.n);
    tap_join_now();
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(NULL, 0),
    cache = ggml_backend_buft_alloc_buffer(NULL, 512);
    ggml_backend_buffer_set_usage(cache, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    ggml_backend_buffer_set_usage(cache, GGML_BACKEND_BUFFER_USAGE_COMPUTE); // no news
    ggml_backend_buffer_free(cache);
    ggml_backend_buffer_free(empty);
    ggml_backend_buffer_free(NULL);
    log_drain(&b.log);
    const struct tap_rec_buffer * first = buffer_told(&b, 0), * second = buffer_told(&b, 1), * third = buffer_told(&b,
        2);
    CHECK(log_count(&b.log, TAP_REC_BUFFER) == 3 && log_count(&b.log, TAP_REC_BUFFER_END) == 1, "%zu buffers, %zu ends",
          log_count(&b.log, TAP_REC_BUFFER),
          log_count(&b.log, TAP_REC_BUFFER_END));
    if (third != NULL) {
        CHECK(first->base == (uint64_t) (uintptr_t) &b && first->size == 4096 && first->usage == 1 &&
              first->flags == (TAP_BUFFER_HOST | TAP_BUFFER_MAPPED), "the weights");
        CHECK(second->size == 512 && second->usage == 0 && second->flags == TAP_BUFFER_HOST &&
              second->buffer != first->buffer, "a new one");
        CHECK(third->buffer == second->buffer && third->usage == 2 && (third->flags & TAP_BUFFER_KNOWN), "its usage");
        CHECK(first->mono_ns <= second->mono_ns && first->mono_ns != 0, "times of allocation");
        CHECK(((const struct tap_rec_buffer_end *) log_find(&b.log, TAP_REC_BUFFER_END,
                                                            0)->record)->buffer == second->buffer, "its end");
    }
    ggml_backend_buffer_free(weights);
    log_drain(&b.log);
    tap_leave();
    log_clear(&b.log);
    shm_free(&b.shm);
    test_end();
}

// ---- samples --------------------------------------------------------------------------------------------------------

static void test_samples(bool wanted) {
    test_case("samples: %s", wanted ? "the outermost choice, once it is accepted" : "nobody wants them");
    struct bed b;
    bed_begin(&b, &(struct tap_selection) {.record = wanted ? TAP_RECORD_SAMPLES : 0, .token_end = -1});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = N_TOKENS, .n_outputs = 1, .n_kv = 32,
        .flash = true}, tokens, positions, outs);
    graph_inputs(&b.graph);
    bed_run(&b);
    llama_token_data data[20];
    for (int i = 0; i < 20; i++) {
        data[i] = (llama_token_data) {.id = 100 + i, .logit = (float) ((i * 7) % 20), .p = 0.01f * (float) i};
    }
    struct llama_sampler member = {0}, chain = {.ctx = &member};
    llama_token_data_array all = {.data = data, .size = 20, .selected = -1};
    fake_apply_size = 14;
    fake_apply_selected = 5;
    llama_sampler_apply(&chain, &all);
    llama_sampler_accept(&chain, 999); // another one was chosen: a grammar refused it
    all.size = 20;
    llama_sampler_apply(&chain, &all);
    llama_sampler_accept(&chain, 105);
    llama_sampler_accept(&chain, 105); // of the prompt
    fake_apply_selected = -1;          // a grammar alone
    llama_sampler_apply(&chain, &all);
    llama_sampler_accept(&chain, 105);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_SAMPLE) == wanted, "%zu samples", log_count(&b.log, TAP_REC_SAMPLE));
    if (wanted) {
        const struct tap_rec_sample * r = (const struct tap_rec_sample *) log_find(&b.log, TAP_REC_SAMPLE, 0)->record;
        const struct tap_candidate * top = (const struct tap_candidate *) (r + 1);
        CHECK(r->token == 105 && r->n_before == 20 && r->n_after == 14 && r->count == 10, "token %d of %lu, of %lu",
              r->token, r->n_after, r->n_before);
        for (uint32_t i = 0; i + 1 < r->count; i++) {
            CHECK(top[i].logit > top[i + 1].logit, "candidate %u", i);
        }
        CHECK(top[0].token == 111 && top[0].logit == 17, "the best is %d (%f)", top[0].token, (double) top[0].logit);
    }
    bed_end(&b);
}

int main(void) {
    for (uint32_t looking = TAP_LOOK_NEVER; looking <= TAP_LOOK_OPS; looking++) {
        test_times(looking, false);
        test_times(looking, true);
    }
    test_cells(GGML_TYPE_F16);
    test_cells(GGML_TYPE_F32);
    test_transposed(false);
    test_transposed(true);
    test_sync(true);
    test_sync(false);
    test_buffers();
    test_mapped_file();
    test_samples(true);
    test_samples(false);
    return test_done();
}
