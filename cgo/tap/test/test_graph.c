// test_graph.c: graphs of fake tensors: places and rows inferred, nodes selected, bytes copied.
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

// ---- places ---------------------------------------------------------------------------------------------------------

static void test_model(int n_tokens, int n_outputs, int experts, bool flash, bool device) {
    test_case("graph: %s, %d tokens, %d outputs, flash attention %s, %s", experts ? "experts" : "dense", n_tokens,
              n_outputs,
              flash ? "on" : "off", device ? "device" : "host");
    const int32_t outs[4] = {n_tokens - 1 < 2 ? 0 : 2, n_tokens - 1, 0, 0};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 3, .n_tokens = n_tokens, .n_outputs = n_outputs, .n_kv = 32,
        .n_experts = experts, .flash = flash, .device = device};
    model_graph(&b.graph, &o, tokens, positions, outs);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "the description is not whole");
    expect_places(&b.graph, &s);
    CHECK(log_count(&b.log, TAP_REC_GRAPH) == 1, "%zu descriptions of one graph", log_count(&b.log, TAP_REC_GRAPH));
    seen_free(&s);
    for (size_t i = 0; i < 2; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        expect_exec(&e);
        const struct event * x = log_find(&b.log, TAP_REC_EXEC, i);
        const struct tap_rec_exec * r = (const struct tap_rec_exec *) x->record;
        const int32_t * at = (const int32_t *) (r + 1);
        CHECK((int) r->n_tokens == n_tokens && memcmp(at, tokens, (size_t) n_tokens * 4) == 0,
              "tokens of execution %zu", i);
        CHECK((int) r->n_pos == n_tokens && memcmp(at + n_tokens, positions, (size_t) n_tokens * 4) == 0,
              "positions of execution %zu", i);
        const int n_out = n_outputs > 0 ? n_outputs : 0;
        CHECK((int) r->n_outputs == n_out && memcmp(at + 2 * n_tokens, outs, (size_t) n_out * 4) == 0,
              "output rows of execution %zu", i);
        CHECK(r->reused == i, "execution %zu is %sreused", i, r->reused ? "" : "not ");
    }
    no_losses(&b);
    CHECK(!device || b.graph.compute.gets > 0, "nothing was read through the device");
    CHECK(device || b.graph.compute.gets == 0, "host memory was read through ggml");
    bed_end(&b);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static const char * shown_name(const struct seen * s, int i) {
    return s->nodes[s->nodes[i].alias >= 0 ? s->nodes[i].alias : i].name;
}

// lends returns the node that takes its name from view i, or i.
static int lends(const struct seen * s, int i) {
    for (int j = 0; j < s->n_nodes; j++) {
        if (s->nodes[j].alias == i) {
            return j;
        }
    }
    return i;
}

// test_numbers counts the nodes of each name without the tap's tables: those that compute first, then views that
// lend no name.
static void test_numbers(const char * glob, bool flash) {
    test_case("names: numbers of a graph of which %s is wanted, flash attention %s", glob, flash ? "on" : "off");
    static const int32_t outs[2] = {3, 5};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 3, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .n_experts = 4,
        .flash = flash};
    model_graph(&b.graph, &o, tokens, positions, outs);
    b.shm.h->config.start.n_globs = 1;
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "%s", glob);
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "the description is not whole");
    int most = 0;
    for (int i = 0; i < s.n_nodes; i++) {
        const int node = lends(&s, i);
        const bool computes = s.nodes[node].head.flags & 4;
        int number = 1;
        for (int j = 0; j < s.n_nodes; j++) {
            const bool also = s.nodes[j].head.flags & 4;
            const bool before = also == computes ? j < node : also;
            number += before && lends(&s, j) == j && strcmp(shown_name(&s, j), shown_name(&s, node)) == 0;
        }
        CHECK(s.nodes[i].head.number == number, "node %d, %s, is number %d of its name, not %d", i, shown_name(&s, i),
              s.nodes[i].head.number, number);
        most = number > most ? number : most;
    }
    CHECK(most == 3, "at most %d nodes share a name", most);
    seen_free(&s);
    bed_end(&b);
}

// test_streams: where the cache has a stream for each sequence, attention computes tokens of a sequence by sequences,
// and what it writes has the rows of all tokens again.
static void test_streams(int n_tokens, int n_seqs, bool flash) {
    test_case("rows: %d tokens of %d sequences, flash attention %s", n_tokens, n_seqs, flash ? "on" : "off");
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 3, .n_tokens = n_tokens, .n_outputs = -1, .n_kv = 32, .n_seqs = n_seqs,
        .flash = flash};
    model_graph(&b.graph, &o, tokens, positions, NULL);
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "the description is not whole");
    expect_places(&b.graph, &s);
    seen_free(&s);
    bed_end(&b);
}

// test_one_token compares the rows of a graph of one token with those of a graph of many: the dimensions are the same.
static void test_one_token(bool flash) {
    static const int32_t outs[1] = {0};
    struct seen seen[2];
    for (int k = 0; k < 2; k++) {
        test_case("rows: a graph of %s, flash attention %s", k == 0 ? "six tokens" : "one token", flash ? "on" : "off");
        struct bed b;
        bed_make(&b, &(struct shm_options) {0});
        const struct model_options o = {.n_layer = 3, .n_tokens = k == 0 ? 6 : 1, .n_outputs = 1, .n_kv = 32,
            .flash = flash};
        model_graph(&b.graph, &o, tokens, positions, outs);
        bed_join(&b);
        bed_run(&b, true);
        log_drain(&b.log);
        CHECK(seen_read(&seen[k], &b.log, 0), "the description is not whole");
        bed_end(&b);
    }
    test_case("rows: dimensions of one token as of many, flash attention %s", flash ? "on" : "off");
    int writes = 0;
    for (int i = 0; i < seen[0].n_nodes; i++) {
        const struct seen_node * n = &seen[0].nodes[i], * m = &seen[1].nodes[i];
        writes += strcmp(n->op, "SET_ROWS") == 0 && n->head.rows == TAP_ROWS_TOKENS;
        CHECK(n->head.rows != m->head.rows || n->head.row_dim == m->head.row_dim, "rows of %s, %s: dimension %d of "
              "many tokens, %d of one",
              n->name, n->op, n->head.row_dim, m->head.row_dim);
    }
    CHECK(writes > 0, "no rows are written: the test does not test");
    seen_free(&seen[0]);
    seen_free(&seen[1]);
    test_end();
}

// ---- selection ------------------------------------------------------------------------------------------------------

// A wish, and the independent rule that says which nodes it means.
struct wish {
    const char *  name;
    const char *  globs[4];
    uint32_t      granularity, attention, record;
    const char *  layers; // one digit per layer
    wanted_fn     wanted;
    const char *  arg;
    bool          nothing;  // nothing is wanted: no callback may be set
};

static bool want_component(const struct graph * g, int i, void * arg) {
    const struct known * k = &g->known[g->nodes[i] - g->tensors];
    return computed(g, i) && k->component == (uintptr_t) arg;
}

static bool want_layers(const struct graph * g, int i, void * arg) {
    const struct known * k = &g->known[g->nodes[i] - g->tensors];
    return computed(g, i) && k->layer >= 0 && strchr(arg, '0' + k->layer) != NULL;
}

static bool want_attention(const struct graph * g, int i, void * arg) {
    const struct ggml_tensor * t = g->nodes[i];
    const bool keys = t->op == GGML_OP_SET_ROWS && strncmp(t->name, "cache_k", 7) == 0;
    const bool query = t->op == GGML_OP_ROPE && strncmp(t->name, "Qcur", 4) == 0;
    return arg != NULL ? keys || query : t->op == GGML_OP_SOFT_MAX && t->src[1] != NULL;
}

static bool want_attention_and_out(const struct graph * g, int i, void * arg) {
    return want_attention(g, i, arg) || strncmp(g->nodes[i]->name, "l_out", 5) == 0;
}

// The nodes of attention's queries of layer 0, by op.
static bool want_query(const struct graph * g, int i, void * arg) {
    return strcmp(g->nodes[i]->name, "Qcur-0") == 0 && g->nodes[i]->op == (enum ggml_op) (uintptr_t) arg;
}

static bool want_all_rope(const struct graph * g, int i, void * arg) {
    (void) arg;
    return strncmp(g->nodes[i]->name, "Qcur-", 5) == 0 && g->nodes[i]->op == GGML_OP_ROPE;
}

static bool want_writes(const struct graph * g, int i, void * arg) {
    return g->nodes[i]->op == GGML_OP_SET_ROWS && strncmp(g->nodes[i]->name, arg, strlen(arg)) == 0;
}

static bool want_nothing(const struct graph * g, int i, void * arg) {
    (void) g; (void) i; (void) arg;
    return false;
}

static void wish_fill(struct tap_selection * c, const struct wish * w) {
    c->granularity = w->granularity;
    c->attention = w->attention;
    c->record |= w->record;
    for (; c->n_globs < 4 && w->globs[c->n_globs] != NULL; c->n_globs++) {
        snprintf(c->globs[c->n_globs], TAP_GLOB_SIZE, "%s", w->globs[c->n_globs]);
    }
    for (const char * l = w->layers; l != NULL && *l != 0; l++) {
        c->layers_set = 1;
        c->layers[0] |= 1ull << (*l - '0');
    }
}

static void test_wish(const struct wish * w, bool flash) {
    test_case("select: %s, flash attention %s", w->name, flash ? "on" : "off");
    static const int32_t outs[2] = {3, 5};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 3, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .n_experts = 4,
        .flash = flash};
    model_graph(&b.graph, &o, tokens, positions, outs);
    wish_fill(&b.shm.h->config.start, w);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    size_t packets = 0;
    for (size_t i = 0; i < 2; i++) {
        const struct expected e = bed_expect(&b, i, w->wanted, (void *) (uintptr_t) w->arg);
        packets += expect_exec(&e);
    }
    CHECK((packets == 0) == w->nothing, "%zu packets", packets);
    CHECK((b.sched->callback_sets == 0) == w->nothing, "the callback was set %lu times",
          (unsigned long) b.sched->callback_sets);
    no_losses(&b);
    bed_end(&b);
}

static void test_wishes(void) {
    static const struct wish wishes[] = {
        {.name = "attention_only", .granularity = TAP_ATTENTION_ONLY, .wanted = want_component,
            .arg = (const char *) TAP_ATTENTION},
        {.name = "mlp_only", .granularity = TAP_MLP_ONLY, .wanted = want_component, .arg = (const char *) TAP_MLP},
        {.name = "layers 0 and 2", .layers = "02", .wanted = want_layers, .arg = "02"},
        {.name = "layer 9, which is not there", .layers = "9", .wanted = want_nothing, .nothing = true},
        {.name = "l_out", .globs = {"l_out"}, .wanted = want_names, .arg = "l_out-0 l_out-1 l_out-2"},
        {.name = "l_out-1", .globs = {"l_out-1"}, .wanted = want_names, .arg = "l_out-1"},
        {.name = "l_out of layer 1", .globs = {"l_out"}, .layers = "1", .wanted = want_names, .arg = "l_out-1"},
        {.name = "two globs", .globs = {"ffn_moe_u?", "*_norm-[1-2]"}, .wanted = want_names,
         .arg = "ffn_moe_up-0 ffn_moe_up-1 ffn_moe_up-2 attn_norm-1 attn_norm-2 ffn_norm-1 ffn_norm-2"},
        {.name = "a strided view by name", .globs = {"ffn_moe_topk"}, .wanted = want_names,
            .arg = "+ffn_moe_topk-0 +ffn_moe_topk-1 +ffn_moe_topk-2"},
        {.name = "a permuted view by name", .globs = {"q-1"}, .wanted = want_names, .arg = "+q-1"},
        {.name = "a cache by name: its written rows alone", .globs = {"cache_v_l1*"}, .wanted = want_writes,
            .arg = "cache_v_l1"},
        {.name = "a name that no node has", .globs = {"nothing*"}, .wanted = want_nothing, .nothing = true},
        {.name = "a node that is never run", .globs = {"never_run"}, .wanted = want_nothing, .nothing = true},
        {.name = "three nodes of one name", .globs = {"Qcur-0"}, .wanted = want_names, .arg = "Qcur-0 +Qcur-0"},
        {.name = "the first of three", .globs = {"Qcur-0#1"}, .wanted = want_query,
            .arg = (const char *) GGML_OP_MUL_MAT},
        {.name = "the second of three", .globs = {"Qcur-0#2"}, .wanted = want_query,
            .arg = (const char *) GGML_OP_ROPE},
        {.name = "the view, which is the third", .globs = {"Qcur-0#3"}, .wanted = want_query,
            .arg = (const char *) GGML_OP_RESHAPE},
        {.name = "a fourth of three", .globs = {"Qcur-0#4"}, .wanted = want_nothing, .nothing = true},
        {.name = "the second of each layer", .globs = {"Qcur#2"}, .wanted = want_all_rope},
    };
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        test_wish(&wishes[i], i % 2 == 0);
    }
    test_wish(&(struct wish) {.name = "an unnamed node behind a named view", .globs = {"kqv_out*"},
        .wanted = want_names,
              .arg = "~kqv_out-0 ~kqv_out-1 ~kqv_out-2"}, true);
    test_wish(&(struct wish) {.name = "the node of that name", .globs = {"kqv_out*"}, .wanted = want_names,
        .arg = "kqv_out-0 kqv_out-1 kqv_out-2"}, false);
    test_wish(&(struct wish) {.name = "attention kept", .attention = TAP_ATTENTION_KEEP,
        .record = TAP_RECORD_MAPS_ALONE, .wanted = want_attention, .arg = "flash"}, true);
    test_wish(&(struct wish) {.name = "attention exact", .attention = TAP_ATTENTION_EXACT,
        .record = TAP_RECORD_MAPS_ALONE,
              .wanted = want_attention}, false);
    test_wish(&(struct wish) {.name = "attention kept beside l_out", .attention = TAP_ATTENTION_KEEP,
        .globs = {"l_out"}, .wanted = want_attention_and_out,
              .arg = "flash"}, true);
}

// What --tap-attention takes of the inputs: mask and row indices, as they were at entry.
static void test_attention_inputs(void) {
    test_case("select: mask and row indices as they were at graph entry");
    static const int32_t outs[1] = {5};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 1, .n_tokens = 6, .n_outputs = 1, .n_kv = 32, .flash = true};
    model_graph(&b.graph, &o, tokens, positions, outs);
    b.shm.h->config.start.attention = TAP_ATTENTION_KEEP;
    bed_join(&b);
    struct ggml_tensor * mask = NULL, * rows = NULL;
    for (int i = 0; i < b.graph.n_tensors; i++) {
        struct ggml_tensor * t = &b.graph.tensors[i];
        mask = strcmp(t->name, "attn_inp_kq_mask") == 0 ? t : mask;
        rows = strcmp(t->name, "attn_inp_k_idxs") == 0 ? t : rows;
    }
    uint16_t mask_bytes[32 * 6];
    int64_t row_numbers[6];
    for (int i = 0; i < 32 * 6; i++) {
        mask_bytes[i] = (uint16_t) (i * 77);
    }
    for (int i = 0; i < 6; i++) {
        row_numbers[i] = 10 + i;
    }
    graph_write(&b.graph, mask, mask_bytes, sizeof(mask_bytes));
    graph_write(&b.graph, rows, row_numbers, sizeof(row_numbers));
    bed_run(&b, true);
    log_drain(&b.log);
    int found = 0;
    for (size_t i = 0; i < log_count(&b.log, TAP_REC_CAPTURE); i++) {
        const struct event * e = log_find(&b.log, TAP_REC_CAPTURE, i);
        const struct tap_rec_capture * c = (const struct tap_rec_capture *) e->record;
        if (c->node >= 0) {
            continue;
        }
        found++;
        CHECK((c->bytes == sizeof(mask_bytes) && memcmp(e->data, mask_bytes, c->bytes) == 0) ||
              (c->bytes == sizeof(row_numbers) && memcmp(e->data, row_numbers, c->bytes) == 0),
              "leaf %d: %lu other bytes", c->node, (unsigned long) c->bytes);
        CHECK(c->row_first == 0 && c->row_count == 6, "rows %d+%d", c->row_first, c->row_count);
    }
    CHECK(found == 2, "%d inputs, not mask and row indices", found);
    no_losses(&b);
    bed_end(&b);
}

// ---- token rules ----------------------------------------------------------------------------------------------------

static void test_rule(uint32_t kind, int64_t first, int64_t end, int64_t step) {
    test_case("tokens: rule %u %ld %ld %ld over four micro-batches", kind, (long) first, (long) end, (long) step);
    static const int32_t outs[3] = {1, 2, 6};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 2, .n_tokens = 7, .n_outputs = 3, .n_kv = 32, .n_experts = 4,
        .flash = true};
    model_graph(&b.graph, &o, tokens, positions, outs);
    struct tap_selection * c = &b.shm.h->config.start;
    c->token_kind = kind;
    c->token_first = first;
    c->token_end = end;
    c->token_step = step;
    bed_join(&b);
    const uint64_t before = b.sched->callback_sets;
    for (int i = 0; i < 4; i++) {
        bed_run(&b, i == 0);
    }
    CHECK(b.sched->callback_sets > before, "nothing was wanted in any micro-batch");
    log_drain(&b.log);
    int64_t number = -1;
    for (size_t i = 0; i < 4; i++) {
        const struct tap_rec_exec * x = (const struct tap_rec_exec *) log_find(&b.log, TAP_REC_EXEC, i)->record;
        CHECK(number < 0 || x->token_first == number + 7, "tokens are numbered from %ld on, not %ld",
              (long) x->token_first, (long) number + 7);
        number = x->token_first;
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        const size_t packets = expect_exec(&e);
        CHECK(packets != 0 || !x->captured, "an execution is said to be captured and has no packet");
    }
    no_losses(&b);
    bed_end(&b);
}

// The number that the next token will get: the rules count tokens of the run.
static int64_t next_token(void) {
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = 1, .n_outputs = 1, .n_kv = 32}, tokens,
                positions, tokens);
    static const int32_t zero[1] = {0};
    b.graph.out_ids = zero;
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    const int64_t n = ((const struct tap_rec_exec *) log_find(&b.log, TAP_REC_EXEC, 0)->record)->token_first + 1;
    test_case("tokens: where the numbers stand");
    bed_end(&b);
    return n;
}

static void test_rules(void) {
    test_rule(TAP_TOKENS_LAST, 0, 0, 0);
    test_rule(TAP_TOKENS_EVERY, 0, 0, 1);
    test_rule(TAP_TOKENS_EVERY, 0, 0, 3);
    test_rule(TAP_TOKENS_EVERY, 0, 0, 10); // some micro-batches have none
    int64_t n = next_token();
    test_rule(TAP_TOKENS_RANGE, n + 5, n + 10, 0); // across a border
    n = next_token();
    test_rule(TAP_TOKENS_RANGE, n + 9, -1, 0);
    n = next_token();
    test_rule(TAP_TOKENS_RANGE, n + 3, n + 4, 0);
}

int main(void) {
    for (int k = 0; k < 8; k++) {
        test_model(7, 2, k & 1 ? 4 : 0, k & 2, k & 4);
        test_model(1, 1, k & 1 ? 4 : 0, k & 2, k & 4);
    }
    test_model(5, -1, 0, true, false);
    test_model(7, 0, 4, true, false);
    test_model(7, 0, 0, false, true);
    for (int flash = 0; flash < 2; flash++) {
        test_one_token(flash);
        test_streams(6, 2, flash);
        test_streams(8, 4, flash); // as many sequences as heads
        test_numbers("Qcur", flash);
        test_numbers("l_out-1", flash);
    }
    test_wishes();
    test_attention_inputs();
    test_rules();
    return test_done();
}
