// test_steer.c: vectors that are added to the residual stream: found in a graph, exchanged between two calls, and
// sequences whose cells were computed by others.
#define _GNU_SOURCE
#include "calls.h"

#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EMBD = 4, LAYERS = 4, SEQS = 4, STEER_BYTES = 4096 };

// The fake model's vectors, by layer, and nodes that add them, but for layer 2.
static float                      values[LAYERS][EMBD];
static struct ggml_backend_buffer vector_buffer = {
    .host = true, .bytes = (uint8_t *) values, .base = (uint8_t *) values, .size = sizeof(values)};
static struct ggml_tensor         vectors[LAYERS], adds[LAYERS];
static struct ggml_tensor *       nodes[LAYERS];
static struct ggml_cgraph         cgraph = {.nodes = nodes};
static int                        real_sets;
static int32_t                    swa;

static int32_t fake_set_cvec(struct llama_context * ctx, const float * data, size_t len, int32_t n_embd, int32_t first,
                             int32_t last) {
    (void) ctx;
    real_sets++;
    CHECK(n_embd == EMBD && first == 1 && last == LAYERS && len == (size_t) EMBD * LAYERS, "%d from %d to %d", n_embd,
          first, last);
    memcpy(values[1], data, sizeof(values) - sizeof(values[0]));
    return 0;
}
static void fake_tensor_set(struct ggml_tensor * t, const void * data, size_t offset, size_t n) {
    memcpy((uint8_t *) t->data + offset, data, n);
}
static int32_t   fake_n_embd(const struct llama_model * m) { (void) m; return EMBD; }
static int32_t   fake_n_layer(const struct llama_model * m) { (void) m; return LAYERS; }
static int32_t   fake_n_swa(const struct llama_model * m) { (void) m; return swa; }
static bool      fake_no(const struct llama_model * m) { (void) m; return false; }
static uint32_t  fake_n_seq(const struct llama_context * c) { (void) c; return SEQS; }
static llama_pos fake_pos_min(llama_memory_t m, llama_seq_id s) { (void) m; return s == 3 ? -1 : 0; }
static size_t    fake_get_data(struct llama_context * c, uint8_t * to, size_t n, llama_seq_id s,
                               llama_state_seq_flags f) {
    (void) c;
    (void) f;
    memset(to, 'a' + s, n);
    return n;
}
static size_t fake_save(struct llama_context * c, const char * path, llama_seq_id s, const llama_token * t, size_t n) {
    (void) c;
    (void) s;
    (void) t;
    FILE * file = fopen(path, "w");
    MUST(file != NULL && fclose(file) == 0);
    return n;
}

static void steer_make(struct bed * b) {
    shm_make(&b->shm, &(struct shm_options) {.steer_bytes = STEER_BYTES});
    log_init(&b->log, &b->shm);
    model_graph(&b->graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
    tap_join(&b->shm);
    tap_real.llama_set_adapter_cvec = fake_set_cvec;
    tap_real.ggml_backend_tensor_set = fake_tensor_set;
    tap_real.llama_model_n_embd = fake_n_embd;
    tap_real.llama_model_n_layer = fake_n_layer;
    tap_real.llama_model_n_swa = fake_n_swa;
    tap_real.llama_model_is_recurrent = tap_real.llama_model_is_hybrid = fake_no;
    tap_real.llama_n_seq_max = fake_n_seq;
    tap_real.llama_memory_seq_pos_min = fake_pos_min;
    tap_real.llama_state_seq_get_data_ext = fake_get_data;
    tap_real.llama_state_seq_save_file = fake_save;
    b->ctx = context_new(&b->graph);
    b->ctx->graph = NULL;
    real_sets = swa = 0;
    cgraph.n_nodes = 0;
    for (int i = 1; i < LAYERS; i++) {
        vectors[i] = (struct ggml_tensor) {.type = GGML_TYPE_F32, .ne = {EMBD, 1, 1, 1}, .data = values[i],
            .buffer = &vector_buffer};
        adds[i] = (struct ggml_tensor) {.op = GGML_OP_ADD, .src = {NULL, &vectors[i]}};
        if (i != 2) {
            nodes[cgraph.n_nodes++] = &adds[i];
        }
    }
}

// on computes a token of a sequence.
static void on(struct bed * b, llama_seq_id seq) {
    llama_token token = 1;
    llama_pos pos = 0;
    int32_t n_seq = 1;
    llama_seq_id * seqs = &seq;
    const struct llama_batch batch = {.n_tokens = 1, .token = &token, .pos = &pos, .n_seq_id = &n_seq, .seq_id = &seqs};
    llama_decode(b->ctx, batch);
}

// offer puts vectors whose values are x where the tap reads them.
static void offer(struct bed * b, uint32_t n_embd, float x) {
    const uint32_t number = atomic_load(&b->shm.h->steer) + 1;
    uint8_t * place = b->shm.base + b->shm.h->steer_offset + number % 2 * STEER_BYTES;
    const struct tap_vectors v = {.n_embd = n_embd, .n_rows = 3, .n_vectors = 1,
        .states = {x == 0 ? TAP_STEER_ZERO : 100 + (uint64_t) x}};
    memcpy(place, &v, sizeof(v));
    for (int i = 0; i < 3 * EMBD; i++) {
        memcpy(place + sizeof(v) + (size_t) i * sizeof(x), &x, sizeof(x));
    }
    atomic_store(&b->shm.h->steer, number);
}

// offer_one puts vectors where the tap reads them: 0 for all sequences, and x for one of them.
static void offer_one(struct bed * b, llama_seq_id seq, float x) {
    const uint32_t number = atomic_load(&b->shm.h->steer) + 1;
    uint8_t * place = b->shm.base + b->shm.h->steer_offset + number % 2 * STEER_BYTES;
    struct tap_vectors v = {.n_embd = EMBD, .n_rows = 3, .n_vectors = 2,
                                .states = {TAP_STEER_ZERO, 100 + (uint64_t) x}};
    v.of[seq] = 1;
    memcpy(place, &v, sizeof(v));
    for (int i = 0; i < 6 * EMBD; i++) {
        const float value = i < 3 * EMBD ? 0 : x;
        memcpy(place + sizeof(v) + (size_t) i * sizeof(x), &value, sizeof(x));
    }
    atomic_store(&b->shm.h->steer, number);
}

static void arm(struct bed * b) {
    on(b, 0);
    MUST(values[1][0] == FLT_MIN && values[3][0] == 3 * FLT_MIN);
    tap_current_call.context = tap_context_of(b->ctx);
    tap_steer_find(&cgraph);
    tap_current_call.context = NULL;
}

static void test_exchange(void) {
    test_case("exchange: vectors are found by their marks, and rewritten without llama.cpp");
    struct bed b;
    steer_make(&b);
    arm(&b);
    CHECK(b.shm.h->steer_embd == EMBD && b.shm.h->steer_layers == LAYERS && b.shm.h->steer_found[0] == 0xa,
          "%u channels, %u layers, found %lx", b.shm.h->steer_embd, b.shm.h->steer_layers,
          (unsigned long) b.shm.h->steer_found[0]);
    CHECK(values[1][0] == 0 && values[3][0] == 0 && values[2][0] == 2 * FLT_MIN, "marks: %g %g %g",
          (double) values[1][0], (double) values[2][0], (double) values[3][0]);
    offer(&b, EMBD, 5);
    on(&b, 0);
    CHECK(values[1][3] == 5 && values[3][3] == 5 && b.shm.h->steer_exec == 1, "%g %g", (double) values[1][3],
          (double) values[3][3]);
    float own[LAYERS * EMBD];
    for (int i = 0; i < LAYERS * EMBD; i++) {
        own[i] = 0.5f;
    }
    CHECK(llama_set_adapter_cvec(b.ctx, own, LAYERS * EMBD, EMBD, 3, 3) == 0, "the program's own vector");
    CHECK(values[1][3] == 5 && values[3][3] == 5.5f, "with the program's: %g %g", (double) values[1][3],
          (double) values[3][3]);
    offer(&b, EMBD, 0);
    on(&b, 0);
    CHECK(values[1][3] == 0 && values[3][3] == 0.5f && real_sets == 1, "off: %g %g", (double) values[1][3],
          (double) values[3][3]);
    CHECK(llama_set_adapter_cvec(b.ctx, NULL, 0, 0, 0, 0) == 0 && values[3][3] == 0, "the program's is taken away");
    offer(&b, EMBD + 1, 7);
    on(&b, 0);
    CHECK(values[1][3] == 0, "a vector of another width was added");
    bed_end(&b);
}

// stale reports whether a sequence's cells were computed by other vectors.
static bool stale(struct bed * b, llama_seq_id seq) {
    return llama_memory_seq_pos_min(tap_real.llama_get_memory(b->ctx), seq) == INT32_MAX;
}

static void test_cells(void) {
    test_case("cells: of other vectors, or of several, none is reused");
    struct bed b;
    steer_make(&b);
    llama_memory_t memory = tap_real.llama_get_memory(b.ctx);
    arm(&b);
    on(&b, 1);
    CHECK(!stale(&b, 0) && !stale(&b, 1) && !stale(&b, 2), "before any exchange");
    offer(&b, EMBD, 5);
    CHECK(stale(&b, 0) && stale(&b, 1) && !stale(&b, 2), "an exchange, seen before anything is computed");
    CHECK(llama_memory_seq_pos_min(memory, 3) == -1 && llama_memory_seq_pos_min(NULL, 0) == 0, "an empty sequence");
    on(&b, 0); // of both
    on(&b, 2);
    CHECK(stale(&b, 0) && !stale(&b, 2), "0 is of both, 2 of the new one");
    offer(&b, EMBD, 0);
    CHECK(stale(&b, 0) && !stale(&b, 1) && stale(&b, 2), "the first ones again");
    llama_memory_seq_rm(memory, 0, 3, -1);
    CHECK(stale(&b, 0), "a part was removed");
    llama_memory_seq_rm(memory, 0, 0, -1);
    CHECK(!stale(&b, 0), "all was removed");
    llama_memory_seq_cp(memory, 2, 0, -1, -1);
    llama_memory_seq_cp(memory, 2, 1, -1, -1);
    CHECK(stale(&b, 0) && stale(&b, 1), "copies");
    llama_memory_seq_keep(memory, 2);
    CHECK(!stale(&b, 0) && stale(&b, 2), "kept");
    llama_memory_clear(memory, true);
    CHECK(!stale(&b, 2), "cleared");
    bed_end(&b);
    test_case("cells: of a sliding window, whose checkpoints are not followed");
    steer_make(&b);
    swa = 512;
    arm(&b);
    CHECK(stale(&b, 0), "reused");
    bed_end(&b);
}

static void test_own_cells(void) {
    test_case("cells: each sequence by its own vectors, and a copy by those of its source until it is cleared");
    struct bed b;
    steer_make(&b);
    llama_memory_t memory = tap_real.llama_get_memory(b.ctx);
    arm(&b);
    struct tap_steered * s = tap_context_of(b.ctx)->steered;
    on(&b, 1);
    offer_one(&b, 0, 5);
    CHECK(stale(&b, 0) && !stale(&b, 1), "0 was computed without a vector, 1 has none");
    llama_memory_seq_rm(memory, 0, 0, -1);
    on(&b, 0);
    CHECK(!stale(&b, 0) && s->cells[0] == 105 && s->only == 1, "%lx of vector %d", (unsigned long) s->cells[0],
          s->only);
    llama_memory_seq_cp(memory, 0, 2, -1, -1);
    CHECK(stale(&b, 2), "a copy of cells of another vector, for the next request");
    CHECK(tap_steer_vector(s, 2) == 1, "what continues a copy");
    on(&b, 2);
    CHECK(s->cells[2] == 105, "the copy is of one vector: %lx", (unsigned long) s->cells[2]);
    llama_memory_seq_rm(memory, 2, 0, -1);
    CHECK(tap_steer_vector(s, 2) == 0, "cleared");
    uint8_t saved[90];
    llama_state_seq_get_data_ext(b.ctx, saved, sizeof(saved), 0, 0);
    CHECK(llama_state_seq_set_data_ext(b.ctx, saved, sizeof(saved), 2, 0) == 0, "restored where there is no vector");
    CHECK(llama_state_seq_set_data_ext(b.ctx, saved, sizeof(saved), 0, 0) == sizeof(saved), "restored where it was");
    offer_one(&b, 2, 5);
    CHECK(llama_state_seq_set_data_ext(b.ctx, saved, sizeof(saved), 2, 0) == sizeof(saved),
          "the same vector elsewhere");
    CHECK(stale(&b, 0) && !stale(&b, 2) && !stale(&b, 1), "the vector went from 0 to 2");
    offer(&b, EMBD, 0);
    CHECK(stale(&b, 2) && !stale(&b, 1), "off");
    bed_end(&b);
}

static void test_refused(void) {
    test_case("a graph that adds one vector to all rows is not computed for sequences of several");
    struct bed b;
    steer_make(&b);
    arm(&b);
    CHECK(b.shm.h->steer_seqs == 0, "%u sequences may have vectors of their own, without ADD_ID", b.shm.h->steer_seqs);
    struct tap_steered * s = tap_context_of(b.ctx)->steered;
    tap_current_call.context = tap_context_of(b.ctx);
    tap_steer_by_row(b.ctx->sched, &cgraph);
    CHECK(s->graph.n_adds == 2 && s->graph.n_by_row == 0, "%d additions", s->graph.n_adds);
    CHECK(tap_steer_rows(b.ctx->sched, &cgraph), "one vector for all");
    offer_one(&b, 1, 5);
    on(&b, 0);
    CHECK(real_sets == 2, "llama.cpp is to build its next graph anew");
    tap_current_call.context = tap_context_of(b.ctx);
    CHECK(s->only == 0 && tap_steer_rows(b.ctx->sched, &cgraph), "rows of the vector of all");
    on(&b, 1);
    tap_current_call.context = tap_context_of(b.ctx);
    CHECK(s->only == 1 && !tap_steer_rows(b.ctx->sched, &cgraph), "rows of another vector");
    s->only = -1;
    CHECK(!tap_steer_rows(b.ctx->sched, &cgraph), "rows of several vectors");
    tap_current_call.context = NULL;
    bed_end(&b);
}

// split is a batch of rows, a digit for the sequence of each, and how llama.cpp takes them: rows of micro-batches.
struct split {
    const char * batch;
    const char * micro[4]; // letters for rows
    int32_t      n_ubatch;
    bool         grouped, alike; // all tokens and positions are alike: order alone decides
};

static void test_split(void) {
    test_case("rows of micro-batches, as llama.cpp splits batches");
    const struct split splits[] = {
        {"000111", {"abcd", "ef"}, 4, false, false},          // in order
        {"0122", {"abc", "d"}, 512, false, false},            // as many of each sequence
        {"0122", {"abc", "d"}, 512, false, true},
        {"0001", {"ad", "bc"}, 512, false, true},
        {"0202", {"ac", "bd"}, 512, false, false},            // one stream after the other: 2 does not follow 0
        {"0101", {"acbd"}, 512, true, true},                  // recurrent: by sequence, though it fits the order
        {"0101", {"abcd"}, 512, false, true},
    };
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++) {
        const struct split * s = &splits[i];
        struct tap_call_row rows[8];
        struct tap_rows_list list = {.rows = rows, .n = (int32_t) strlen(s->batch)};
        for (int32_t r = 0; r < list.n; r++) {
            rows[r] = (struct tap_call_row) {.token = s->alike ? 7 : r, .pos = 0, .seq = s->batch[r] - '0', .n_seq = 1};
        }
        MUST(tap_rows_begin(&list));
        for (int m = 0; m < 4 && s->micro[m] != NULL; m++) {
            int32_t ids[8], pos[8] = {0}, got[8];
            const int32_t n = (int32_t) strlen(s->micro[m]);
            for (int32_t k = 0; k < n; k++) {
                ids[k] = rows[s->micro[m][k] - 'a'].token;
            }
            const struct tap_micro micro = {ids, pos, n, s->n_ubatch, s->grouped};
            CHECK(tap_rows_match(&list, &micro, got), "%s: %s is not found", s->batch, s->micro[m]);
            for (int32_t k = 0; k < n; k++) {
                CHECK(got[k] == s->micro[m][k] - 'a', "%s: row %d of %s is %d", s->batch, k, s->micro[m], got[k]);
            }
        }
        const int32_t none = 99;
        const struct tap_micro micro = {&none, NULL, 1, s->n_ubatch, s->grouped};
        int32_t got;
        CHECK(!tap_rows_match(&list, &micro, &got), "%s: a row that is not there", s->batch);
        free(list.matched);
    }
    test_end();
}

static void test_saved(void) {
    test_case("saved states: restored under the vectors that they were computed by");
    struct bed b;
    steer_make(&b);
    arm(&b);
    uint8_t first[100], second[100];
    char path[] = "/tmp/llamatap-steer-XXXXXX";
    MUST(close(mkstemp(path)) == 0);
    llama_state_seq_get_data_ext(b.ctx, first, sizeof(first), 0, 0);
    llama_state_seq_save_file(b.ctx, path, 0, NULL, 1);
    llama_token ids[1];
    size_t n = 0;
    CHECK(llama_state_seq_set_data_ext(b.ctx, first, sizeof(first), 1, 0) == sizeof(first), "of the same");
    CHECK(llama_state_seq_load_file(b.ctx, path, 1, ids, 1, &n) > 0, "a file of the same");
    offer(&b, EMBD, 5);
    CHECK(llama_state_seq_set_data_ext(b.ctx, first, sizeof(first), 1, 0) == 0, "of another one");
    CHECK(llama_state_seq_set_data_ext(b.ctx, first, sizeof(first), 1, 1) == sizeof(first), "a part");
    CHECK(llama_state_seq_load_file(b.ctx, path, 1, NULL, 0, &n) > 0, "the size of a file");
    CHECK(llama_state_seq_load_file(b.ctx, path, 1, ids, 1, &n) == 0, "a file of another one");
    llama_state_seq_get_data_ext(b.ctx, second, sizeof(second), 2, 0);
    CHECK(llama_state_seq_set_data_ext(b.ctx, second, sizeof(second), 0, 0) == sizeof(second) && !stale(&b, 0),
          "of the new one");
    second[99] ^= 1;
    CHECK(llama_state_seq_set_data_ext(b.ctx, second, sizeof(second), 0, 0) == 0, "unknown");
    CHECK(llama_state_set_data(b.ctx, first, sizeof(first)) == 0 && !llama_state_load_file(b.ctx, path, NULL, 0, &n),
          "a whole state");
    unlink(path);
    bed_end(&b);
}

int main(void) {
    test_exchange();
    test_cells();
    test_own_cells();
    test_refused();
    test_split();
    test_saved();
    return test_done();
}
