// test_calls.c: the functions of llama.h that the tap stands before: batches shadowed, sequences and contexts reported.
#define _GNU_SOURCE
#include "calls.h"

#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- batches --------------------------------------------------------------------------------------------------------

static void check_row(const struct tap_rec_call * c, uint32_t i, int32_t token, int32_t pos, int32_t seq, int n_seq,
                      int output) {
    const struct tap_call_row * r = (const struct tap_call_row *) (c + 1) + i;
    CHECK(i < c->n_rows, "%u rows", c->n_rows);
    CHECK(r->token == token && r->pos == pos && r->seq == seq && r->n_seq == n_seq && r->output == output,
          "row %u: token %d, position %d, sequence %d of %d, output %d",
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
    const struct llama_batch full = {.n_tokens = 4, .token = (int32_t *) (uintptr_t) tokens,
        .pos = (int32_t *) (uintptr_t) positions + 2, .n_seq_id = n_seq, .seq_id = seqs, .logits = logits};
    CHECK(llama_decode(b.ctx, full) == -3, "the status was changed");
    b.ctx->status = 0;
    llama_decode(b.ctx, (struct llama_batch) {.n_tokens = 2, .token = (int32_t *) (uintptr_t) tokens});
    llama_encode(b.ctx, (struct llama_batch) {.n_tokens = 1, .embd = embd});
    log_drain(&b.log);
    const struct tap_rec_call * r = call_at(&b, 0);
    CHECK(r->kind == TAP_CALL_DECODE && r->n_rows == 4 && r->n_total == 4 && r->n_extra == 3 && r->first == 0,
          "%u rows of %u, %u extra", r->n_rows, r->n_total, r->n_extra);
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
    const struct tap_rec_call_end * end = (const struct tap_rec_call_end *) log_find(&b.log, TAP_REC_CALL_END,
        0)->record;
    CHECK(end->call == r->call && end->status == -3 && end->ctx == r->ctx, "the end of call %lu",
          (unsigned long) end->call);
    CHECK(log_count(&b.log, TAP_REC_CONTEXT) == 1, "%zu contexts", log_count(&b.log, TAP_REC_CONTEXT));
    bed_end(&b);
}

// A call that fails is made again, with fewer rows where the cache is full: what the program did before it counts then.
static void test_again(void) {
    test_case("calls: a call that fails and comes again");
    struct bed b;
    bed_make(&b);
    const struct llama_batch one = {.n_tokens = 1, .token = (int32_t *) (uintptr_t) tokens};
    b.ctx->graph = NULL;
    llama_decode(b.ctx, one);
    llama_get_logits(b.ctx);
    b.ctx->status = 1;
    llama_decode(b.ctx, one);
    b.ctx->status = 0;
    llama_decode(b.ctx, one);
    llama_decode(b.ctx, one);
    log_drain(&b.log);
    static const uint32_t want[4] = {0, TAP_CALL_READ_SINCE, TAP_CALL_READ_SINCE, 0};
    for (size_t i = 0; i < 4; i++) {
        CHECK(call_at(&b, i)->flags == want[i], "call %zu has the flags %u", i, call_at(&b, i)->flags);
    }
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
        CHECK(r->first == next && r->n_total == ROWS && r->call == call_at(&b, 0)->call, "rows from %u on, %u were due",
              r->first, next);
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
    CHECK(further[0] == 8 && further[1] == 7 && further[2] == 9, "further sequences %d, %d, %d", further[0], further[1],
          further[2]);
    CHECK(call_at(&b, 1)->kind == TAP_CALL_ENCODE && call_at(&b, 1)->n_rows == 1, "%u rows after clear",
          call_at(&b, 1)->n_rows);
    check_row(call_at(&b, 1), 0, 55, INT32_MIN, 0, 1, 0);
    for (int i = 0; i < 20; i++) {
        CHECK(call_at(&b, 2 + (size_t) i)->n_rows == 1, "%u rows in a new batch", call_at(&b, 2 + (size_t) i)->n_rows);
        check_row(call_at(&b, 2 + (size_t) i), 0, i, INT32_MIN, i, 1, 0);
    }
    bed_end(&b);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

static void check_change(const struct bed * b, size_t nth, const struct tap_rec_seq * want) {
    const struct event * e = log_find(&b->log, TAP_REC_SEQ, nth);
    CHECK(e != NULL, "change %zu is missing", nth);
    if (e != NULL) {
        const struct tap_rec_seq * r = (const struct tap_rec_seq *) e->record;
        CHECK(r->kind == want->kind && r->seq == want->seq && r->to == want->to && r->first == want->first &&
              r->end == want->end && r->value == want->value,
              "change %zu: kind %u of sequence %d to %d, %d to %d, %d", nth, r->kind, r->seq, r->to, r->first, r->end,
              r->value);
        CHECK(r->ctx == call_at(b, 0)->ctx && r->mono_ns > 0, "change %zu is of context %u", nth, r->ctx);
    }
}

static void test_sequences(void) {
    test_case("sequences: every change is reported, of contexts that have computed");
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
    CHECK(llama_set_sampler(b.ctx, 2, &(struct llama_sampler) {0}) && !llama_set_sampler(b.ctx, 2, NULL),
          "an answer was changed");
    llama_set_sampler(other, 2, NULL);
    CHECK(llama_state_seq_set_data_ext(b.ctx, NULL, 7, 5, 1) == 7 && llama_state_set_data(b.ctx, NULL, 8) == 8,
          "an answer was changed");
    CHECK(llama_state_seq_load_file(b.ctx, "file", 6, NULL, 0, NULL) == 4, "an answer was changed");
    CHECK(llama_state_load_file(b.ctx, "file", NULL, 0, NULL) && !llama_state_load_file(b.ctx, "", NULL, 0, NULL),
          "an answer was changed");
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
    CHECK(log_count(&b.log, TAP_REC_SEQ) == 13 && log_count(&b.log, TAP_REC_CONTEXT) == contexts + 1,
          "a state that was loaded first is not reported");
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
    const struct llama_context_params params = {.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED};
    struct llama_context * ctx = llama_init_from_model(m, params);
    CHECK(ctx->flash_attn == LLAMA_FLASH_ATTN_TYPE_DISABLED, "flash attention is %d", ctx->flash_attn);
    llama_decode(ctx, (struct llama_batch) {.n_tokens = 1, .token = (int32_t *) (uintptr_t) tokens});
    log_drain(&b.log);
    const struct event * e = log_find(&b.log, TAP_REC_CONTEXT, 0);
    MUST(e != NULL);
    const struct tap_rec_context * c = (const struct tap_rec_context *) e->record;
    static const char want[] = "a fake of 7 B/some/model.ggufffake";
    CHECK(c->desc_bytes == 13 && c->path_bytes == 16 && c->arch_bytes == 4 && c->name_bytes == 0,
          "strings of %u %u %u %u bytes", c->desc_bytes, c->path_bytes,
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
    CHECK(fake_loads == 1 && strcmp(fake_loads_from, "/some/backends") == 0, "backends were not taken from the folder "
          "asked for");
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
    CHECK(log_count(&b.log, TAP_REC_CONTEXT) == 500 && log_count(&b.log, TAP_REC_EXEC) == 500,
          "%zu contexts, %zu executions", log_count(&b.log, TAP_REC_CONTEXT),
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

// Without a collector every function is a branch and a call.
static void test_off(void) {
    test_case("off: everything works, nothing is touched");
    struct graph g;
    fake_real();
    model_graph(&g, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, outs);
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

// Recording that alternates every four tokens: which decodes are reported, and that the end of the process always is.
static void test_turns(int decodes) {
    test_case("calls: %d tokens, recording alternates every four", decodes);
    struct bed b;
    bed_make(&b);
    b.shm.h->config.turns = 4;
    tap.turning = true; // as where it joined
    decode(b.ctx, 0, 4); // the prompt
    for (int i = 0; i < decodes; i++) {
        decode(b.ctx, 100 + i, 1);
    }
    tap_detach();
    log_drain(&b.log);
    int want = 0;
    for (int i = 0; i < decodes; i++) {
        if (i / 4 % 2 == 0) {
            const struct tap_rec_call * c = call_at(&b, (size_t) ++want);
            CHECK(((const struct tap_call_row *) (c + 1))->token == 100 + i, "call %d is not of token %d", want, i);
        }
    }
    const size_t n = (size_t) want + 1;
    CHECK(log_count(&b.log, TAP_REC_CALL) == n && log_count(&b.log, TAP_REC_CALL_END) == n && log_count(&b.log,
        TAP_REC_EXEC) == n, "%zu calls, %zu ends, %zu executions of %zu",
          log_count(&b.log, TAP_REC_CALL), log_count(&b.log, TAP_REC_CALL_END), log_count(&b.log, TAP_REC_EXEC), n);
    CHECK(log_count(&b.log, TAP_REC_GOODBYE) == 1, "no last word");
    CHECK(b.shm.h->n_turns == (uint32_t) (decodes - 1) / 4, "%u turns were reported", b.shm.h->n_turns);
    bed_end(&b);
}

int main(void) {
    test_off();
    test_turns(12);
    test_turns(17);
    test_turns(8);
    test_batch();
    test_again();
    test_long_batch();
    test_batch_ext();
    test_sequences();
    test_context();
    test_many_contexts();
    return test_done();
}
