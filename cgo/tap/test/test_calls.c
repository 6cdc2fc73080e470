// test_calls.c: the functions of llama.h that the tap stands before: batches shadowed, warm-ups told from runs, forks survived.
#define _GNU_SOURCE
#include "expect.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const int32_t tokens[8] = {1, 5, 9, 2, 6, 5, 3, 5};
static const int32_t positions[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int32_t outs[1] = {3};

// A context with a scheduler and a graph of four tokens, under the tap.
struct bed {
    struct shm             shm;
    struct log             log;
    struct graph           graph;
    struct llama_context * ctx;
};

static struct llama_context * context_new(struct graph * g) {
    struct llama_context * ctx = calloc(1, sizeof(*ctx));
    MUST(ctx != NULL);
    ctx->sched = sched_new();
    ctx->graph = g;
    ctx->fresh = true;
    return ctx;
}

static void bed_make(struct bed * b) {
    shm_make(&b->shm, &(struct shm_options) {0});
    log_init(&b->log, &b->shm);
    fake_real();
    model_graph(&b->graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens, positions, outs);
    snprintf(b->shm.h->config.start.globs[0], TAP_GLOB_SIZE, "l_out");
    b->shm.h->config.start.n_globs = 1;
    tap_join(&b->shm);
    b->ctx = context_new(&b->graph);
}

static void context_end(struct llama_context * ctx) {
    struct ggml_backend_sched * sched = ctx->sched;
    llama_free(ctx);
    ggml_backend_sched_free(sched);
}

static void bed_end(struct bed * b) {
    if (b->ctx != NULL) {
        context_end(b->ctx);
    }
    log_drain(&b->log);
    CHECK(b->log.damage == NULL, "%s", b->log.damage);
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(b->shm.h->stats.loss[i].packets == 0 && b->shm.h->stats.loss[i].bytes == 0, "loss of cause %d", i);
    }
    tap_leave();
    log_clear(&b->log);
    graph_free(&b->graph);
    shm_free(&b->shm);
    test_end();
}

// decode runs a batch of n tokens that differ by first; NULL positions and sequences are llama.cpp's to choose.
static int32_t decode(struct llama_context * ctx, int32_t first, int32_t n) {
    int32_t ids[64];
    for (int32_t i = 0; i < n; i++) {
        ids[i] = first + i;
    }
    graph_inputs(ctx->graph);
    return llama_decode(ctx, (struct llama_batch) {.n_tokens = n, .token = ids});
}

static const struct tap_rec_call * call_at(const struct bed * b, size_t nth) {
    const struct event * e = log_find(&b->log, TAP_REC_CALL, nth);
    MUST(e != NULL);
    return (const struct tap_rec_call *) e->record;
}

static const struct tap_rec_exec * exec_at(const struct bed * b, size_t nth) {
    const struct event * e = log_find(&b->log, TAP_REC_EXEC, nth);
    MUST(e != NULL);
    return (const struct tap_rec_exec *) e->record;
}

// ---- batches --------------------------------------------------------------------------------------------------------

static void check_row(const struct tap_rec_call * c, uint32_t i, int32_t token, int32_t pos, int32_t seq, int n_seq, int output) {
    const struct tap_call_row * r = (const struct tap_call_row *) (c + 1) + i;
    CHECK(i < c->n_rows, "%u rows", c->n_rows);
    CHECK(r->token == token && r->pos == pos && r->seq == seq && r->n_seq == n_seq && r->output == output, "row %u: token %d, position %d, sequence %d of %d, output %d",
          i, r->token, r->pos, r->seq, r->n_seq, r->output);
}

static void test_batch(void) {
    test_case("calls: the rows of a llama_batch");
    struct bed b;
    bed_make(&b);
    int32_t n_seq[4] = {1, 3, 1, 2}, a[3] = {7, 8, 9}, c[2] = {4, 5}, d[1] = {2};
    int32_t * seqs[4] = {d, a, d, c};
    int8_t logits[4] = {0, 1, 0, 1};
    float embd[4] = {0};
    b.ctx->graph = NULL;
    b.ctx->status = -3;
    const struct llama_batch full = {.n_tokens = 4, .token = (int32_t *) (uintptr_t) tokens, .pos = (int32_t *) (uintptr_t) positions + 2, .n_seq_id = n_seq, .seq_id = seqs, .logits = logits};
    CHECK(llama_decode(b.ctx, full) == -3, "the status was changed");
    b.ctx->status = 0;
    llama_decode(b.ctx, (struct llama_batch) {.n_tokens = 2, .token = (int32_t *) (uintptr_t) tokens});
    llama_encode(b.ctx, (struct llama_batch) {.n_tokens = 1, .embd = embd});
    log_drain(&b.log);
    const struct tap_rec_call * r = call_at(&b, 0);
    CHECK(r->kind == TAP_CALL_DECODE && r->n_rows == 4 && r->n_total == 4 && r->n_extra == 3 && r->first == 0, "%u rows of %u, %u extra", r->n_rows, r->n_total, r->n_extra);
    check_row(r, 0, 1, 2, 2, 1, 0);
    check_row(r, 1, 5, 3, 7, 3, 1);
    check_row(r, 2, 9, 4, 2, 1, 0);
    check_row(r, 3, 2, 5, 4, 2, 1);
    const int32_t * extra = (const int32_t *) ((const struct tap_call_row *) (r + 1) + 4);
    CHECK(extra[0] == 8 && extra[1] == 9 && extra[2] == 5, "further sequences %d %d %d", extra[0], extra[1], extra[2]);
    check_row(call_at(&b, 1), 0, 1, INT32_MIN, 0, 1, 0);
    check_row(call_at(&b, 1), 1, 5, INT32_MIN, 0, 1, 1); // without a mask the last row is an output
    CHECK(call_at(&b, 2)->kind == TAP_CALL_ENCODE, "kind %u", call_at(&b, 2)->kind);
    check_row(call_at(&b, 2), 0, -1, INT32_MIN, 0, 1, 1);
    const struct tap_rec_call_end * end = (const struct tap_rec_call_end *) log_find(&b.log, TAP_REC_CALL_END, 0)->record;
    CHECK(end->call == r->call && end->status == -3 && end->ctx == r->ctx, "the end of call %lu", (unsigned long) end->call);
    CHECK(log_count(&b.log, TAP_REC_CONTEXT) == 1, "%zu contexts", log_count(&b.log, TAP_REC_CONTEXT));
    bed_end(&b);
}

static void test_long_batch(void) {
    enum { ROWS = 10000 };
    test_case("calls: a batch of %d rows, some in a thousand sequences", ROWS);
    struct bed b;
    bed_make(&b);
    b.ctx->graph = NULL;
    static int32_t ids[ROWS], n_seq[ROWS], many[1000];
    static int32_t * seqs[ROWS];
    for (int i = 0; i < 1000; i++) {
        many[i] = i;
    }
    for (int i = 0; i < ROWS; i++) {
        ids[i] = i * 3;
        n_seq[i] = i % 500 == 3 ? 1000 : 1;
        seqs[i] = many;
    }
    llama_decode(b.ctx, (struct llama_batch) {.n_tokens = ROWS, .token = ids, .n_seq_id = n_seq, .seq_id = seqs});
    log_drain(&b.log);
    uint32_t next = 0;
    for (size_t k = 0; k < log_count(&b.log, TAP_REC_CALL); k++) {
        const struct tap_rec_call * r = call_at(&b, k);
        const struct tap_call_row * rows = (const struct tap_call_row *) (r + 1);
        const int32_t * extra = (const int32_t *) (rows + r->n_rows);
        CHECK(r->first == next && r->n_total == ROWS && r->call == call_at(&b, 0)->call, "rows from %u on, %u were due", r->first, next);
        uint32_t x = 0;
        for (uint32_t i = 0; i < r->n_rows; i++, next++) {
            CHECK(rows[i].token == (int32_t) next * 3 && rows[i].n_seq == n_seq[next], "row %u", next);
            for (int s = 1; s < rows[i].n_seq; s++) {
                CHECK(x < r->n_extra && extra[x] == s, "row %u: sequence %d", next, s);
                x++;
            }
        }
        CHECK(x == r->n_extra, "%u further sequences, not %u", r->n_extra, x);
    }
    CHECK(next == ROWS, "%u rows", next);
    bed_end(&b);
}

static void test_batch_ext(void) {
    test_case("calls: a llama_batch_ext, noted as it is filled");
    struct bed b;
    bed_make(&b);
    b.ctx->graph = NULL;
    struct llama_batch_ext * e = llama_batch_ext_init(b.ctx);
    const int32_t pos[4] = {11, 12, 13, 14};
    llama_batch_ext_add_token(e, 3, 100);
    CHECK(llama_batch_ext_add_token(e, -1, 101) < 0, "a refusal was hidden");
    llama_batch_ext_add_token(e, 4, 102);
    llama_batch_ext_add(e, 5);
    llama_batch_ext_add_embd(e, 6, (struct llama_embd) {0});
    CHECK(!llama_batch_ext_add_seq(e, 9, 1), "a refusal was hidden");
    llama_batch_ext_add_seq(e, 1, 7);
    llama_batch_ext_add_seq(e, 0, 8); // rows need not come in order
    llama_batch_ext_add_seq(e, 1, 9);
    llama_batch_ext_set_pos(e, 0, &pos[1]);
    llama_batch_ext_set_pos(e, 9, &pos[1]);
    llama_batch_ext_set_output_logits(e, 1, true);
    llama_batch_ext_set_output_embd(e, 3, true);
    llama_process(b.ctx, LLAMA_PROCESS_TYPE_DECODE, e);
    llama_batch_ext_clear(e);
    llama_batch_ext_add_token(e, 0, 55);
    llama_process(b.ctx, LLAMA_PROCESS_TYPE_ENCODE, e);
    llama_batch_ext_free(e);
    for (int i = 0; i < 20; i++) { // the allocator gives the address out again
        e = llama_batch_ext_init(b.ctx);
        llama_batch_ext_add_token(e, i, i);
        llama_process(b.ctx, LLAMA_PROCESS_TYPE_DECODE, e);
        llama_batch_ext_free(e);
    }
    log_drain(&b.log);
    const struct tap_rec_call * r = call_at(&b, 0);
    CHECK(r->kind == TAP_CALL_PROCESS && r->n_rows == 4 && r->n_extra == 3, "%u rows, %u extra", r->n_rows, r->n_extra);
    check_row(r, 0, 100, 12, 3, 2, 0);
    check_row(r, 1, 102, INT32_MIN, 4, 3, 1);
    check_row(r, 2, -1, INT32_MIN, 5, 1, 0);
    check_row(r, 3, -1, INT32_MIN, 6, 1, 1);
    const int32_t * further = (const int32_t *) ((const struct tap_call_row *) (r + 1) + 4);
    CHECK(further[0] == 8 && further[1] == 7 && further[2] == 9, "further sequences %d, %d, %d", further[0], further[1], further[2]);
    CHECK(call_at(&b, 1)->kind == TAP_CALL_ENCODE && call_at(&b, 1)->n_rows == 1, "%u rows after clear", call_at(&b, 1)->n_rows);
    check_row(call_at(&b, 1), 0, 55, INT32_MIN, 0, 1, 0);
    for (int i = 0; i < 20; i++) {
        CHECK(call_at(&b, 2 + (size_t) i)->n_rows == 1, "%u rows in a new batch", call_at(&b, 2 + (size_t) i)->n_rows);
        check_row(call_at(&b, 2 + (size_t) i), 0, i, INT32_MIN, i, 1, 0);
    }
    bed_end(&b);
}

// ---- warm-up or run -------------------------------------------------------------------------------------------------

static void check_resolve(struct bed * b, size_t nth, uint32_t discarded, uint64_t exec) {
    const struct event * e = log_find(&b->log, TAP_REC_RESOLVE, nth);
    CHECK(e != NULL, "resolve %zu is missing", nth);
    if (e != NULL) {
        const struct tap_rec_resolve * r = (const struct tap_rec_resolve *) e->record;
        CHECK(r->discarded == discarded && r->exec == exec, "resolve %zu: %s up to %lu, not %lu", nth, r->discarded ? "set-up" : "run", (unsigned long) r->exec, (unsigned long) exec);
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
        CHECK(x->token_first == exec_at(&b, 0)->token_first + after[i], "execution %zu begins at token %ld", i, (long) x->token_first);
        CHECK(x->call == call_at(&b, i)->call, "execution %zu is of call %lu", i, (unsigned long) x->call);
    }
    CHECK(call_at(&b, 1)->flags == TAP_CALL_READ_SINCE, "the synchronisation is not told: %u", call_at(&b, 1)->flags);
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
    CHECK(exec_at(&b, 0)->provisional && !exec_at(&b, 1)->provisional && !exec_at(&b, 2)->provisional, "provisional: %u %u %u", exec_at(&b, 0)->provisional,
          exec_at(&b, 1)->provisional, exec_at(&b, 2)->provisional);
    bed_end(&b);
}

enum { READS = 8 };

static void test_read(int how) {
    static const char * const names[READS + 1] = {"llama_get_logits", "llama_get_logits_ith", "llama_get_embeddings", "llama_get_embeddings_ith",
                                                  "llama_get_embeddings_seq", "llama_get_sampled_token_ith", "llama_sampler_sample", "llama_free", "the end of the program"};
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
        CHECK(!exec_at(&b, 1)->provisional && call_at(&b, 1)->flags == TAP_CALL_READ_SINCE && call_at(&b, 2)->flags == 0, "flags %u, then %u",
              call_at(&b, 1)->flags, call_at(&b, 2)->flags);
    }
    CHECK(how != 8 || (b.shm.h->attached == 2 && log_count(&b.log, TAP_REC_GOODBYE) == 1), "no goodbye");
    bed_end(&b);
}

// A sampler of one context accepts while another context warms up: that decides nothing about either.
static void test_accept(void) {
    test_case("accept: told to every context, counted once per chain, and no proof of a run");
    struct bed b;
    bed_make(&b);
    struct llama_context * other = context_new(&b.graph); // never decodes
    struct llama_sampler inner = {0}, middle = {.ctx = &inner}, chain = {.ctx = &middle};
    fake_accepts = 0;
    llama_sampler_accept(&chain, 7); // nothing to tell yet
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

// ---- sequences ------------------------------------------------------------------------------------------------------

static void check_change(const struct bed * b, size_t nth, const struct tap_rec_seq * want) {
    const struct event * e = log_find(&b->log, TAP_REC_SEQ, nth);
    CHECK(e != NULL, "change %zu is missing", nth);
    if (e != NULL) {
        const struct tap_rec_seq * r = (const struct tap_rec_seq *) e->record;
        CHECK(r->kind == want->kind && r->seq == want->seq && r->to == want->to && r->first == want->first && r->end == want->end && r->value == want->value,
              "change %zu: kind %u of sequence %d to %d, %d to %d, %d", nth, r->kind, r->seq, r->to, r->first, r->end, r->value);
        CHECK(r->ctx == call_at(b, 0)->ctx && r->mono_ns > 0, "change %zu is of context %u", nth, r->ctx);
    }
}

static void test_sequences(void) {
    test_case("sequences: every change is told, of contexts that have computed");
    struct bed b;
    bed_make(&b);
    llama_memory_t memory = tap_real.llama_get_memory(b.ctx);
    struct llama_context * other = context_new(&b.graph); // never decodes
    llama_memory_seq_rm(memory, 1, 2, 3);                 // before the first call
    llama_set_sampler(b.ctx, 1, NULL);
    decode(b.ctx, 1, 4);
    CHECK(!llama_memory_seq_rm(memory, 66, 0, -1), "a refusal was hidden");
    CHECK(llama_memory_seq_rm(memory, 3, 5, -1), "a success was hidden");
    llama_memory_seq_rm((llama_memory_t) &b, 3, 5, -1); // somebody else's
    llama_memory_seq_cp(memory, 3, 4, 1, 9);
    llama_memory_seq_keep(memory, 4);
    llama_memory_seq_add(memory, 4, 3, 8, -2);
    llama_memory_seq_div(memory, 4, 3, 8, 2);
    CHECK(llama_set_sampler(b.ctx, 2, &(struct llama_sampler) {0}) && !llama_set_sampler(b.ctx, 2, NULL), "an answer was changed");
    llama_set_sampler(other, 2, NULL);
    CHECK(llama_state_seq_set_data_ext(b.ctx, NULL, 7, 5, 1) == 7 && llama_state_set_data(b.ctx, NULL, 8) == 8, "an answer was changed");
    CHECK(llama_state_seq_load_file(b.ctx, "file", 6, NULL, 0, NULL) == 4, "an answer was changed");
    CHECK(llama_state_load_file(b.ctx, "file", NULL, 0, NULL) && !llama_state_load_file(b.ctx, "", NULL, 0, NULL), "an answer was changed");
    llama_memory_clear(memory, true);
    log_drain(&b.log);
    static const struct tap_rec_seq want[12] = {
        {.kind = TAP_SEQ_REMOVE, .seq = 3, .first = 5, .end = -1},
        {.kind = TAP_SEQ_COPY, .seq = 3, .to = 4, .first = 1, .end = 9},
        {.kind = TAP_SEQ_KEEP, .seq = 4, .end = -1},
        {.kind = TAP_SEQ_ADD, .seq = 4, .first = 3, .end = 8, .value = -2},
        {.kind = TAP_SEQ_DIVIDE, .seq = 4, .first = 3, .end = 8, .value = 2},
        {.kind = TAP_SEQ_SAMPLER, .seq = 2, .end = -1, .value = 1},
        {.kind = TAP_SEQ_SAMPLER, .seq = 2, .end = -1},
        {.kind = TAP_SEQ_RESTORE, .seq = 5, .end = -1, .value = 1},
        {.kind = TAP_SEQ_RESTORE, .seq = -1, .end = -1},
        {.kind = TAP_SEQ_RESTORE, .seq = 6, .end = -1},
        {.kind = TAP_SEQ_RESTORE, .seq = -1, .end = -1},
        {.kind = TAP_SEQ_REMOVE, .seq = -1, .end = -1},
    };
    CHECK(log_count(&b.log, TAP_REC_SEQ) == 12, "%zu changes", log_count(&b.log, TAP_REC_SEQ));
    for (size_t i = 0; i < 12; i++) {
        check_change(&b, i, &want[i]);
    }
    const size_t contexts = log_count(&b.log, TAP_REC_CONTEXT);
    llama_state_load_file(other, "file", NULL, 0, NULL); // a state is loaded before anything is computed
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_SEQ) == 13 && log_count(&b.log, TAP_REC_CONTEXT) == contexts + 1, "a state that was loaded first is not told");
    context_end(other);
    bed_end(&b);
}

// ---- models, contexts, backends -------------------------------------------------------------------------------------

static void test_context(void) {
    test_case("contexts: description, path of the model, flash attention as asked");
    struct bed b;
    bed_make(&b);
    b.shm.h->config.start.attention = TAP_ATTENTION_EXACT;
    struct llama_model * m = llama_model_load_from_file("/some/model.gguf", (struct llama_model_params) {0});
    struct llama_context * ctx = llama_init_from_model(m, (struct llama_context_params) {.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED});
    CHECK(ctx->flash_attn == LLAMA_FLASH_ATTN_TYPE_DISABLED, "flash attention is %d", ctx->flash_attn);
    llama_decode(ctx, (struct llama_batch) {.n_tokens = 1, .token = (int32_t *) (uintptr_t) tokens});
    log_drain(&b.log);
    const struct event * e = log_find(&b.log, TAP_REC_CONTEXT, 0);
    MUST(e != NULL);
    const struct tap_rec_context * c = (const struct tap_rec_context *) e->record;
    static const char want[] = "a fake of 7 B/some/model.ggufffake";
    CHECK(c->desc_bytes == 13 && c->path_bytes == 16 && c->arch_bytes == 4 && c->name_bytes == 0, "strings of %u %u %u %u bytes", c->desc_bytes, c->path_bytes,
          c->arch_bytes, c->name_bytes);
    CHECK(memcmp(c + 1, want, 13 + 16) == 0 && memcmp((const char *) (c + 1) + 29, "fake", 4) == 0, "strings");
    CHECK(c->flash_attn == LLAMA_FLASH_ATTN_TYPE_DISABLED, "flash attention %d", c->flash_attn);
    CHECK(llama_model_load_from_file("", (struct llama_model_params) {0}) == NULL, "a model from nowhere");
    llama_free(ctx);
    free(m);
    fake_loads = 0;
    ggml_backend_load_all();
    CHECK(fake_loads == 1, "ggml did not look for its backends");
    snprintf(b.shm.h->config.backends, TAP_PATH_SIZE, "/some/backends");
    ggml_backend_load_all();
    CHECK(fake_loads == 1 && strcmp(fake_loads_from, "/some/backends") == 0, "backends were not taken from the folder asked for");
    bed_end(&b);
}

static void test_many_contexts(void) {
    test_case("contexts: 500 one after another, then 80 schedulers without one");
    struct bed b;
    bed_make(&b);
    for (int i = 0; i < 500; i++) {
        struct llama_context * ctx = context_new(&b.graph);
        decode(ctx, i, 4);
        context_end(ctx);
        log_drain(&b.log);
    }
    CHECK(log_count(&b.log, TAP_REC_CONTEXT) == 500 && log_count(&b.log, TAP_REC_EXEC) == 500, "%zu contexts, %zu executions", log_count(&b.log, TAP_REC_CONTEXT),
          log_count(&b.log, TAP_REC_EXEC));
    for (int i = 0; i < 80; i++) {
        struct ggml_backend_sched * s = sched_new();
        graph_inputs(&b.graph);
        ggml_backend_sched_alloc_graph(s, &b.graph.cgraph);
        ggml_backend_sched_graph_compute_async(s, &b.graph.cgraph);
        ggml_backend_sched_free(s);
    }
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_EXEC) == 580, "%zu executions", log_count(&b.log, TAP_REC_EXEC));
    CHECK(log_count(&b.log, TAP_REC_RESOLVE) == 580, "%zu decisions", log_count(&b.log, TAP_REC_RESOLVE));
    bed_end(&b);
}

// ---- a tap that records no more -------------------------------------------------------------------------------------

// The callback stays with the scheduler when recording ends; it must want nothing then, and follow no stale description.
static void test_gone(void) {
    test_case("gone: computing goes on in one range after the collector has gone");
    struct bed b;
    bed_make(&b);
    decode(b.ctx, 1, 4);
    CHECK(b.ctx->sched->ranges > 1, "one range while recording");
    tap.recording = false; // what a wait does that finds no collector
    struct graph other;
    model_graph(&other, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 64}, tokens, positions, outs);
    for (int i = 0; i < 2; i++) {
        b.ctx->graph = &other;
        b.ctx->fresh = i == 0;
        graph_inputs(&other);
        llama_decode(b.ctx, (struct llama_batch) {.n_tokens = 4, .token = (int32_t *) (uintptr_t) tokens});
        CHECK(b.ctx->sched->ranges == 1, "%lu ranges", (unsigned long) b.ctx->sched->ranges);
    }
    b.ctx->graph = &b.graph; // the described one again
    decode(b.ctx, 1, 4);
    CHECK(b.ctx->sched->ranges == 1, "%lu ranges of the graph that was described", (unsigned long) b.ctx->sched->ranges);
    graph_free(&other);
    bed_end(&b);
}

// A collector that records no more says so and goes on living: the next graph is the first that is not looked at, also where there
// is room and nothing would wait.
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

// child_lives lets a forked child use llama.cpp for itself and tells by its exit status whether that went well.
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
    test_case("fork: a child of the model %s decodes for itself and writes nothing", inside ? "made inside of a graph" : "made between graphs");
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
    CHECK(inside || b.shm.h->queue_head == before, "the child wrote %lu bytes", (unsigned long) (b.shm.h->queue_head - before));
    decode(b.ctx, 1, 4);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_EXEC) == (inside ? 3 : 2), "%zu executions", log_count(&b.log, TAP_REC_EXEC));
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == log_count(&b.log, TAP_REC_EXEC), "%zu captures", log_count(&b.log, TAP_REC_CAPTURE));
    CHECK(log_count(&b.log, TAP_REC_HELLO) == 1 && log_count(&b.log, TAP_REC_GOODBYE) == 0, "the child said goodbye");
    bed_end(&b);
}

// Without a collector every function is a branch and a call.
static void test_off(void) {
    test_case("off: everything works, nothing is touched");
    struct graph g;
    fake_real();
    model_graph(&g, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens, positions, outs);
    struct llama_context * ctx = context_new(&g);
    CHECK(decode(ctx, 1, 4) == 0 && ctx->decodes == 1, "decode");
    llama_get_logits(ctx);
    llama_sampler_accept(&(struct llama_sampler) {0}, 1);
    llama_memory_clear(tap_real.llama_get_memory(ctx), true);
    struct llama_batch_ext * e = llama_batch_ext_init(ctx);
    CHECK(llama_batch_ext_add_token(e, 0, 1) == 0, "add");
    llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, e);
    llama_batch_ext_free(e);
    CHECK(ctx->sched->callback_sets == 0 && ctx->sched->ranges == 1, "the callback was set");
    CHECK(!tap_recording(), "recording");
    ggml_backend_sched_reset(ctx->sched);
    context_end(ctx);
    tap_detach();
    graph_free(&g);
    test_end();
}

int main(void) {
    test_off();
    test_batch();
    test_long_batch();
    test_batch_ext();
    test_warmup();
    test_clear_without_data();
    for (int how = 0; how <= READS; how++) {
        test_read(how);
    }
    test_accept();
    test_sequences();
    test_context();
    test_many_contexts();
    test_gone();
    test_closed(TAP_OVERFLOW_BLOCK);
    test_closed(TAP_OVERFLOW_DROP);
    test_fork(false);
    test_fork(true);
    return test_done();
}
