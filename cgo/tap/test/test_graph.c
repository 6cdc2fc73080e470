// test_graph.c: graphs of fake tensors: places and rows inferred, nodes selected, bytes copied.
#define _GNU_SOURCE
#include "expect.h"

#include <stdlib.h>
#include <string.h>

static const int32_t tokens[64] = {1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
static const int32_t positions[64] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// ---- one case -------------------------------------------------------------------------------------------------------

// A case: a region, a scheduler, a log and a graph.
struct bed {
    struct shm                  shm;
    struct log                  log;
    struct graph                graph;
    struct ggml_backend_sched * sched;
};

static void bed_make(struct bed * b, const struct shm_options * o) {
    shm_make(&b->shm, o);
    log_init(&b->log, &b->shm);
    b->sched = sched_new();
}

static void bed_join(struct bed * b) {
    tap_join(&b->shm);
    b->sched->run = 0;
}

static void bed_end(struct bed * b) {
    ggml_backend_sched_free(b->sched);
    tap_leave();
    log_drain(&b->log);
    CHECK(b->log.damage == NULL, "%s", b->log.damage);
    log_clear(&b->log);
    graph_free(&b->graph);
    shm_free(&b->shm);
    test_end();
}

static enum ggml_status bed_run(struct bed * b, bool alloc) {
    graph_inputs(&b->graph);
    if (alloc) {
        MUST(ggml_backend_sched_alloc_graph(b->sched, &b->graph.cgraph));
    }
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(b->sched, &b->graph.cgraph);
    return status;
}

static struct expected bed_expect(struct bed * b, size_t exec, wanted_fn wanted, void * arg) {
    return (struct expected) {.log = &b->log, .graph = &b->graph, .config = &b->shm.h->config.start, .run = exec + 1, .exec = exec, .wanted = wanted, .arg = arg};
}

static void no_losses(const struct bed * b) {
    for (int i = 0; i < TAP_MAX_LOSSES; i++) {
        CHECK(b->shm.h->stats.loss[i].packets == 0 && b->shm.h->stats.loss[i].bytes == 0, "loss of cause %d", i);
    }
}

static bool is_view(const struct ggml_tensor * t) {
    return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

static bool computed(const struct graph * g, int i) { return (g->nodes[i]->flags & GGML_TENSOR_FLAG_COMPUTE) && !is_view(g->nodes[i]); }

static bool want_computed(const struct graph * g, int i, void * arg) { (void) arg; return computed(g, i); }

// ---- places ---------------------------------------------------------------------------------------------------------

static void test_model(int n_tokens, int n_outputs, int experts, bool flash, bool device) {
    test_case("graph: %s, %d tokens, %d outputs, flash attention %s, %s", experts ? "experts" : "dense", n_tokens, n_outputs,
              flash ? "on" : "off", device ? "device" : "host");
    const int32_t outs[4] = {n_tokens - 1 < 2 ? 0 : 2, n_tokens - 1, 0, 0};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    const struct model_options o = {.n_layer = 3, .n_tokens = n_tokens, .n_outputs = n_outputs, .n_kv = 32, .n_experts = experts, .flash = flash, .device = device};
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
        CHECK((int) r->n_tokens == n_tokens && memcmp(at, tokens, (size_t) n_tokens * 4) == 0, "tokens of execution %zu", i);
        CHECK((int) r->n_pos == n_tokens && memcmp(at + n_tokens, positions, (size_t) n_tokens * 4) == 0, "positions of execution %zu", i);
        const int n_out = n_outputs > 0 ? n_outputs : 0;
        CHECK((int) r->n_outputs == n_out && memcmp(at + 2 * n_tokens, outs, (size_t) n_out * 4) == 0, "output rows of execution %zu", i);
        CHECK(r->reused == i, "execution %zu is %sreused", i, r->reused ? "" : "not ");
    }
    no_losses(&b);
    CHECK(!device || b.graph.compute.gets > 0, "nothing was read through the device");
    CHECK(device || b.graph.compute.gets == 0, "host memory was read through ggml");
    bed_end(&b);
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

// Names in arg, separated by spaces: of computed nodes, +name of views, ~name of the node right before a view of that name.
static bool want_names(const struct graph * g, int i, void * arg) {
    char text[512];
    snprintf(text, sizeof(text), "%s", (const char *) arg);
    for (char * at = text, * word; (word = strtok_r(at, " ", &at)) != NULL;) {
        if (strcmp(word, g->nodes[i]->name) == 0 && computed(g, i)) {
            return true;
        }
        if (word[0] == '+' && strcmp(word + 1, g->nodes[i]->name) == 0 && is_view(g->nodes[i])) {
            return true; // a view that is stored itself
        }
        if (word[0] == '~' && i + 1 < g->cgraph.n_nodes && strcmp(word + 1, g->nodes[i + 1]->name) == 0) {
            return true; // the node behind a named view
        }
    }
    return false;
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
    const struct model_options o = {.n_layer = 3, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .n_experts = 4, .flash = flash};
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
    CHECK((b.sched->callback_sets == 0) == w->nothing, "the callback was set %lu times", (unsigned long) b.sched->callback_sets);
    no_losses(&b);
    bed_end(&b);
}

static void test_wishes(void) {
    static const struct wish wishes[] = {
        {.name = "attention_only", .granularity = TAP_ATTENTION_ONLY, .wanted = want_component, .arg = (const char *) TAP_ATTENTION},
        {.name = "mlp_only", .granularity = TAP_MLP_ONLY, .wanted = want_component, .arg = (const char *) TAP_MLP},
        {.name = "layers 0 and 2", .layers = "02", .wanted = want_layers, .arg = "02"},
        {.name = "layer 9, which is not there", .layers = "9", .wanted = want_nothing, .nothing = true},
        {.name = "l_out", .globs = {"l_out"}, .wanted = want_names, .arg = "l_out-0 l_out-1 l_out-2"},
        {.name = "l_out-1", .globs = {"l_out-1"}, .wanted = want_names, .arg = "l_out-1"},
        {.name = "l_out of layer 1", .globs = {"l_out"}, .layers = "1", .wanted = want_names, .arg = "l_out-1"},
        {.name = "two globs", .globs = {"ffn_moe_u?", "*_norm-[1-2]"}, .wanted = want_names,
         .arg = "ffn_moe_up-0 ffn_moe_up-1 ffn_moe_up-2 attn_norm-1 attn_norm-2 ffn_norm-1 ffn_norm-2"},
        {.name = "a strided view by name", .globs = {"ffn_moe_topk"}, .wanted = want_names, .arg = "+ffn_moe_topk-0 +ffn_moe_topk-1 +ffn_moe_topk-2"},
        {.name = "a permuted view by name", .globs = {"q-1"}, .wanted = want_names, .arg = "+q-1"},
        {.name = "a cache by name: its written rows alone", .globs = {"cache_v_l1*"}, .wanted = want_writes, .arg = "cache_v_l1"},
        {.name = "a name that no node has", .globs = {"nothing*"}, .wanted = want_nothing, .nothing = true},
        {.name = "a node that is never run", .globs = {"never_run"}, .wanted = want_nothing, .nothing = true},
        {.name = "three nodes of one name", .globs = {"Qcur-0"}, .wanted = want_names, .arg = "Qcur-0 +Qcur-0"},
    };
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        test_wish(&wishes[i], i % 2 == 0);
    }
    test_wish(&(struct wish) {.name = "an unnamed node behind a named view", .globs = {"kqv_out*"}, .wanted = want_names,
              .arg = "~kqv_out-0 ~kqv_out-1 ~kqv_out-2"}, true);
    test_wish(&(struct wish) {.name = "the node of that name", .globs = {"kqv_out*"}, .wanted = want_names, .arg = "kqv_out-0 kqv_out-1 kqv_out-2"}, false);
    test_wish(&(struct wish) {.name = "attention kept", .attention = TAP_ATTENTION_KEEP, .record = TAP_RECORD_MAPS_ALONE, .wanted = want_attention, .arg = "flash"}, true);
    test_wish(&(struct wish) {.name = "attention exact", .attention = TAP_ATTENTION_EXACT, .record = TAP_RECORD_MAPS_ALONE,
              .wanted = want_attention}, false);
    test_wish(&(struct wish) {.name = "attention kept beside l_out", .attention = TAP_ATTENTION_KEEP, .globs = {"l_out"}, .wanted = want_attention_and_out,
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
              (c->bytes == sizeof(row_numbers) && memcmp(e->data, row_numbers, c->bytes) == 0), "leaf %d: %lu other bytes", c->node, (unsigned long) c->bytes);
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
    const struct model_options o = {.n_layer = 2, .n_tokens = 7, .n_outputs = 3, .n_kv = 32, .n_experts = 4, .flash = true};
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
        CHECK(number < 0 || x->token_first == number + 7, "tokens are numbered from %ld on, not %ld", (long) x->token_first, (long) number + 7);
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
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = 1, .n_outputs = 1, .n_kv = 32}, tokens, positions, tokens);
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

// ---- shapes, strides, types, sizes ----------------------------------------------------------------------------------

// shape_graph makes rows of n elements, a view of them in four dimensions with the axes in another order, a window on them, and
// a dense tensor in the view's shape, of any type.
static void shape_graph(struct graph * g, const int64_t * n, int n_tokens, const int * axis, enum ggml_type type, bool device) {
    const int64_t all = n[0] * n[1] * n[2];
    graph_init(g, (size_t) (all * n_tokens) * 4 + 64, (size_t) all * 64 + 65536, device);
    g->n_tokens = n_tokens;
    g->n_outputs = -1;
    g->tokens = tokens;
    g->pos = positions;
    g->leaf_tokens = graph_leaf(g, GGML_TYPE_I32, NE(n_tokens, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "inp_tokens");
    g->leaf_pos = graph_leaf(g, GGML_TYPE_I32, NE(n_tokens, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "inp_pos");
    struct ggml_tensor * table = graph_leaf(g, GGML_TYPE_F32, NE(all, 8, 1, 1), 0, "token_embd.weight");
    struct ggml_tensor * rows = graph_node(g, GGML_OP_GET_ROWS, GGML_TYPE_F32, NE(all, n_tokens, 1, 1), "embd", table, g->leaf_tokens, NULL);
    graph_know(g, rows, -1, TAP_INPUT, TAP_ROWS_TOKENS, 1);
    const size_t nb[4] = {4, 4 * (size_t) all, 4 * (size_t) (all * n_tokens), 4 * (size_t) (all * n_tokens)};
    const int64_t skip = all / 3;
    struct ggml_tensor * window = graph_view(g, GGML_OP_VIEW, rows, NE(all - skip, n_tokens, 1, 1), nb, 4 * (size_t) skip, "window-0");
    graph_know(g, window, 0, TAP_OTHER, TAP_ROWS_TOKENS, 1);
    struct ggml_tensor * cube = graph_reshape(g, rows, NE(n[0], n[1], n[2], n_tokens), "cube");
    struct ggml_tensor * turned = graph_permute(g, cube, axis[0], axis[1], axis[2], axis[3], "turned-0");
    graph_know(g, turned, 0, TAP_OTHER, TAP_ROWS_TOKENS, (uint8_t) axis[3]);
    struct ggml_tensor * dense = graph_node(g, GGML_OP_SCALE, type, NE(turned->ne[0], turned->ne[1], turned->ne[2], turned->ne[3]), "dense-0", turned, NULL, NULL);
    graph_know(g, dense, 0, TAP_OTHER, TAP_ROWS_TOKENS, (uint8_t) axis[3]);
}

static void random_axes(uint64_t * rng, int * axis, bool keep_first) {
    for (int d = 0; d < 4; d++) {
        axis[d] = d;
    }
    for (int d = 3; d > (keep_first ? 1 : 0); d--) {
        const int o = (keep_first ? 1 : 0) + (int) rng_below(rng, (uint64_t) d + (keep_first ? 0 : 1));
        const int t = axis[d];
        axis[d] = axis[o];
        axis[o] = t;
    }
}

static void random_rule(uint64_t * rng, struct tap_selection * c) {
    c->token_kind = (uint32_t) rng_below(rng, 4);
    c->token_step = 1 + (int64_t) rng_below(rng, 4);
    c->token_first = 0;
    c->token_end = c->token_kind == TAP_TOKENS_RANGE ? 1000000 : -1;
}

// One tensor of any shape through a pool of any size: larger than a slot, a quarter of the pool, the whole pool.
static void test_shape(uint64_t seed) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I8, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_I64};
    uint64_t rng = seed;
    const enum ggml_type type = types[rng_below(&rng, 6)];
    const int64_t unit = type == GGML_TYPE_Q8_0 ? 32 : type == GGML_TYPE_Q4_K ? 256 : 1;
    int64_t n[3] = {unit * (1 + (int64_t) rng_below(&rng, unit > 1 ? 4 : 40)), 1 + (int64_t) rng_below(&rng, 6), 1 + (int64_t) rng_below(&rng, 4)};
    const int n_tokens = 1 + (int) rng_below(&rng, 9);
    int axis[4];
    random_axes(&rng, axis, unit > 1);
    struct bed b;
    const struct shm_options o = {.slots = 32 + rng_below(&rng, 100), .slot_bytes = 64ull << rng_below(&rng, 5), .queue_bytes = 65536};
    bed_make(&b, &o);
    shape_graph(&b.graph, n, n_tokens, axis, type == GGML_TYPE_I64 ? GGML_TYPE_F32 : type, rng_below(&rng, 3) == 0);
    const char * name = unit > 1 ? "dense-0" : rng_below(&rng, 2) ? "turned-0" : rng_below(&rng, 2) ? "window-0" : "dense-0";
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "%s", name);
    b.shm.h->config.start.n_globs = 1;
    random_rule(&rng, &b.shm.h->config.start);
    const struct ggml_tensor * t = graph_named(&b.graph, name, 1);
    const uint64_t bytes = type_bytes(t->type, t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
    test_case("shape %lu: %s, type %d, %ldx%ldx%ldx%ld, %lu bytes through %lu", (unsigned long) seed, name, t->type, (long) t->ne[0], (long) t->ne[1],
              (long) t->ne[2], (long) t->ne[3], (unsigned long) bytes, (unsigned long) (b.shm.h->n_slots * b.shm.h->slot_bytes));
    bed_join(&b);
    log_start(&b.log);
    bed_run(&b, true);
    log_finish(&b.log);
    char arg[32];
    snprintf(arg, sizeof(arg), "%s%s", name[0] == 'd' ? "" : "+", name);
    const struct expected e = bed_expect(&b, 0, want_names, arg);
    expect_exec(&e);
    no_losses(&b);
    bed_end(&b);
}

static void test_bad_strides(int64_t n) {
    test_case("shape: a quantised tensor with its blocks cut or apart (%ld in a row) is counted as a loss, its slots are free again", (long) n);
    struct bed b;
    bed_make(&b, &(struct shm_options) {.slots = 64, .slot_bytes = 256});
    struct graph * g = &b.graph;
    shape_graph(g, (int64_t[]) {n, 2, 2}, 3, (int[]) {0, 1, 2, 3}, GGML_TYPE_Q8_0, false);
    struct ggml_tensor * t = graph_permute(g, graph_named(g, "dense-0", 1), 1, 0, 2, 3, "apart-0");
    graph_know(g, t, 0, TAP_OTHER, TAP_ROWS_TOKENS, 3);
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "apart-0");
    b.shm.h->config.start.n_globs = 1;
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    const struct tap_stats * st = &b.shm.h->stats;
    CHECK(st->loss[TAP_LOSS_STRIDES].packets == 1, "%lu losses", (unsigned long) st->loss[TAP_LOSS_STRIDES].packets);
    CHECK(st->loss[TAP_LOSS_STRIDES].bytes == (uint64_t) (34 * n / 32 * 2 * 2 * 3), "%lu bytes", (unsigned long) st->loss[TAP_LOSS_STRIDES].bytes);
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == 0 && tap.n_used == 0, "%lu slots in use", (unsigned long) tap.n_used);
    const struct event * end = log_find(&b.log, TAP_REC_EXEC_END, 0);
    CHECK(end != NULL && ((const struct tap_rec_exec_end *) end->record)->lost == 1, "the execution does not tell of its loss");
    bed_end(&b);
}

// A graph without tokens moves memory about: it is described and framed, and nothing of it is captured.
static void test_maintenance(void) {
    test_case("graph: maintenance");
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    struct graph * g = &b.graph;
    graph_init(g, 4096, 65536, false);
    struct ggml_tensor * cache = graph_leaf(g, GGML_TYPE_F32, NE(16, 32, 1, 1), 0, "cache_k_l0");
    g->leaf_tokens = graph_leaf(g, GGML_TYPE_I32, NE(0, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "unused");
    g->leaf_pos = g->leaf_tokens;
    struct ggml_tensor * shift = graph_leaf(g, GGML_TYPE_I32, NE(32, 1, 1, 1), GGML_TENSOR_FLAG_INPUT, "k_shift");
    graph_node(g, GGML_OP_ROPE, GGML_TYPE_F32, NE(16, 32, 1, 1), NULL, cache, shift, NULL);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_CAPTURE) == 0, "captured");
    CHECK(b.sched->callback_sets == 0, "the callback was set");
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "not described");
    CHECK(s.head.n_tokens == 0 && s.n_nodes == 1 && s.nodes[0].head.component == TAP_CACHE, "described as something else");
    seen_free(&s);
    for (size_t i = 0; i < 2; i++) {
        const struct tap_rec_exec * x = (const struct tap_rec_exec *) log_find(&b.log, TAP_REC_EXEC, i)->record;
        CHECK(x->token_first == -1 && x->n_tokens == 0 && !x->captured && !x->provisional, "execution %zu has tokens", i);
    }
    no_losses(&b);
    bed_end(&b);
}

// ---- a callback of the program's own --------------------------------------------------------------------------------

// What a program's callback saw: 'a' for an ask, 'd' for a data phase, and the node.
struct witness {
    const struct graph * g;
    int      every, cancel_at; // wants every nth node; returns false in the data phase of one
    int      n;
    struct { char phase; int node; uint8_t byte; } saw[4 * GRAPH_MAX_TENSORS];
};

static bool witness_callback(struct ggml_tensor * t, bool ask, void * data) {
    struct witness * w = data;
    const int i = graph_number(w->g, t);
    MUST(w->n < 4 * GRAPH_MAX_TENSORS);
    w->saw[w->n].phase = ask ? 'a' : 'd';
    w->saw[w->n].byte = ask || is_view(t) || t->view_src != NULL ? 0 : *(uint8_t *) t->data;
    w->saw[w->n++].node = i;
    return ask ? i % w->every == 0 : i != w->cancel_at;
}

static void witness_compare(const struct witness * got, const struct witness * want) {
    CHECK(got->n == want->n, "the callback was called %d times, not %d", got->n, want->n);
    for (int i = 0; i < got->n && i < want->n; i++) {
        CHECK(got->saw[i].phase == want->saw[i].phase && got->saw[i].node == want->saw[i].node, "call %d: %c of node %d, not %c of node %d", i,
              got->saw[i].phase, got->saw[i].node, want->saw[i].phase, want->saw[i].node);
        CHECK(got->saw[i].byte == want->saw[i].byte, "call %d: node %d holds something else", i, got->saw[i].node);
    }
}

// Asks may come earlier or later between data phases than without the tap, because ranges are cut more often. So asks and data
// phases are compared each in their own order.
static void witness_sort(struct witness * w) {
    struct witness * o = calloc(1, sizeof(*o));
    MUST(o != NULL);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < w->n; i++) {
            if ((w->saw[i].phase == 'd') == pass) {
                o->saw[o->n++] = w->saw[i];
            }
        }
    }
    memcpy(w->saw, o->saw, sizeof(o->saw));
    free(o);
}

static void test_chain(int every, int cancel_at, const char * glob, bool split) {
    test_case("chain: a program's callback wants every %dth node, cancels at %d, the tap wants %s, %d splits", every, cancel_at, glob, split ? 3 : 1);
    static const int32_t outs[1] = {3};
    struct witness * w = calloc(2, sizeof(*w));
    MUST(w != NULL);
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 4, .n_outputs = 1, .n_kv = 32, .flash = true}, tokens, positions, outs);
    if (split) {
        b.sched->n_splits = 2;
        b.sched->splits[0] = b.graph.cgraph.n_nodes / 3;
        b.sched->splits[1] = b.graph.cgraph.n_nodes / 3 * 2;
    }
    snprintf(b.shm.h->config.start.globs[0], TAP_GLOB_SIZE, "%s", glob);
    b.shm.h->config.start.n_globs = 1;
    uint64_t computed_nodes[2], ranges[2];
    for (int tapped = 0; tapped < 2; tapped++) {
        fake_real();
        if (tapped) {
            bed_join(&b);
        }
        w[tapped] = (struct witness) {.g = &b.graph, .every = every, .cancel_at = cancel_at};
        ggml_backend_sched_set_eval_callback(b.sched, witness_callback, &w[tapped]);
        b.sched->run = 0;
        bed_run(&b, true);
        b.sched->run = 0;
        bed_run(&b, false);
        computed_nodes[tapped] = b.sched->computed;
        ranges[tapped] = b.sched->ranges;
        witness_sort(&w[tapped]);
    }
    witness_compare(&w[1], &w[0]);
    CHECK(computed_nodes[1] == computed_nodes[0], "%lu nodes were computed, not %lu", (unsigned long) computed_nodes[1], (unsigned long) computed_nodes[0]);
    log_drain(&b.log);
    CHECK(glob[0] != 'n' || (ranges[1] == ranges[0] && b.sched->callback == witness_callback), "the tap came between without need");
    CHECK(cancel_at >= 0 || log_count(&b.log, TAP_REC_CAPTURE) == (glob[0] == 'n' ? 0 : 4u), "%zu captures", log_count(&b.log, TAP_REC_CAPTURE));
    no_losses(&b);
    bed_end(&b);
    free(w);
}

// A callback that is set before anything is recorded, or taken away later, is the one that counts.
static void test_chain_changes(void) {
    test_case("chain: a callback set, taken away and set again between executions");
    static const int32_t outs[1] = {3};
    struct witness * w = calloc(1, sizeof(*w));
    MUST(w != NULL);
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32, .flash = true}, tokens, positions, outs);
    bed_join(&b);
    w->g = &b.graph;
    w->every = 1;
    w->cancel_at = -1;
    bed_run(&b, true);
    ggml_backend_sched_set_eval_callback(b.sched, witness_callback, w);
    bed_run(&b, false);
    CHECK(w->n == 2 * b.graph.cgraph.n_nodes, "%d calls", w->n);
    ggml_backend_sched_set_eval_callback(b.sched, NULL, NULL);
    bed_run(&b, false);
    CHECK(w->n == 2 * b.graph.cgraph.n_nodes, "%d calls after it was taken away", w->n);
    log_drain(&b.log);
    for (size_t i = 0; i < 3; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        CHECK(expect_exec(&e) > 0, "nothing captured in execution %zu", i);
    }
    bed_end(&b);
    free(w);
}

// ---- graphs that change ---------------------------------------------------------------------------------------------

static void test_rebuilt(void) {
    test_case("graph: rebuilt for more keys, then for another batch, then one whose allocation fails");
    static const int32_t outs[1] = {0}, outs2[2] = {1, 4};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 1, .n_outputs = 1, .n_kv = 32}, tokens, positions, outs);
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    size_t exec = 0;
    for (int step = 0; step < 3; step++) {
        log_drain(&b.log);
        for (size_t end = log_count(&b.log, TAP_REC_EXEC); exec < end; exec++) {
            const struct expected e = bed_expect(&b, exec, want_computed, NULL);
            CHECK(expect_exec(&e) > 0, "nothing captured in execution %zu", exec);
        }
        graph_free(&b.graph);
        model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = step == 1 ? 5 : 1, .n_outputs = step == 1 ? 2 : 1, .n_kv = 64},
                    tokens, positions, step == 1 ? outs2 : outs);
        b.sched->fail_alloc = step == 2;
        if (step == 2) {
            CHECK(!ggml_backend_sched_alloc_graph(b.sched, &b.graph.cgraph), "the failure was hidden");
            b.sched->fail_alloc = false;
            b.sched->is_alloc = true;
        } else {
            bed_run(&b, true);
            bed_run(&b, false);
        }
    }
    log_drain(&b.log);
    CHECK(log_count(&b.log, TAP_REC_GRAPH) == 3, "%zu descriptions of three graphs", log_count(&b.log, TAP_REC_GRAPH));
    CHECK(log_count(&b.log, TAP_REC_EXEC) == 6 && log_count(&b.log, TAP_REC_EXEC_END) == 6, "executions not framed");
    no_losses(&b);
    bed_end(&b);
}

// A scheduler with devices puts copies in the place of what a node reads. The description tells what llama.cpp built.
static void test_device_copies(void) {
    test_case("graph: inputs whose place copies on a device take");
    static const int32_t outs[2] = {1, 4};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 5, .n_outputs = 2, .n_kv = 32, .flash = true, .device = true}, tokens, positions, outs);
    b.shm.h->config.start.attention = TAP_ATTENTION_KEEP;
    b.sched->copy_inputs = true;
    bed_join(&b);
    bed_run(&b, true);
    bed_run(&b, false);
    log_drain(&b.log);
    CHECK(b.sched->n_copies > 5, "%d copies: the test does not test", b.sched->n_copies);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "not described");
    expect_places(&b.graph, &s);
    for (int i = 0; i < s.n_nodes; i++) {
        for (int k = 0; k < s.nodes[i].head.n_src; k++) {
            CHECK(s.nodes[i].src[k] < s.n_nodes && s.nodes[i].src[k] >= -s.n_leafs, "%s reads tensor %d", s.nodes[i].name, s.nodes[i].src[k]);
        }
    }
    seen_free(&s);
    for (size_t i = 0; i < 2; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        CHECK(expect_exec(&e) > 0, "nothing captured");
    }
    no_losses(&b);
    bed_end(&b);
}

// A program that leaves allocation to the scheduler: compute allocates by itself, through the tap.
static void test_implicit_alloc(void) {
    test_case("graph: allocated inside of compute");
    static const int32_t outs[1] = {3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 2, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens, positions, outs);
    bed_join(&b);
    bed_run(&b, false);
    ggml_backend_sched_reset(b.sched);
    bed_run(&b, false);
    bed_run(&b, false);
    log_drain(&b.log);
    for (size_t i = 0; i < 3; i++) {
        const struct expected e = bed_expect(&b, i, want_computed, NULL);
        CHECK(expect_exec(&e) > 0, "nothing captured in execution %zu", i);
        const struct tap_rec_exec * x = (const struct tap_rec_exec *) log_find(&b.log, TAP_REC_EXEC, i)->record;
        bool described = false;
        for (size_t k = 0; k < log_count(&b.log, TAP_REC_GRAPH); k++) {
            described |= ((const struct tap_rec_graph *) log_find(&b.log, TAP_REC_GRAPH, k)->record)->graph == x->graph;
        }
        CHECK(described, "execution %zu is of graph %lu, which was not described", i, (unsigned long) x->graph);
        CHECK(x->reused == (i == 2), "execution %zu is %sreused", i, x->reused ? "" : "not ");
    }
    no_losses(&b);
    bed_end(&b);
}

// Every node reads leafs of its own: more leafs than any model has.
static void test_many_leafs(void) {
    test_case("graph: three hundred leafs for sixty nodes");
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    struct graph * g = &b.graph;
    shape_graph(g, (int64_t[]) {4, 1, 1}, 2, (int[]) {0, 1, 2, 3}, GGML_TYPE_F32, false);
    for (int i = 0; i < 60; i++) {
        struct ggml_tensor * t = graph_node(g, GGML_OP_ADD, GGML_TYPE_F32, NE(4, 2, 1, 1), NULL, NULL, NULL, NULL);
        for (int k = 0; k < 5; k++) {
            t->src[k] = graph_leaf(g, GGML_TYPE_F32, NE(4, 1, 1, 1), 0, "blk.0.ffn_gate.weight");
        }
        graph_know(g, t, 0, TAP_MLP, TAP_ROWS_NONE, 0);
    }
    bed_join(&b);
    bed_run(&b, true);
    log_drain(&b.log);
    struct seen s;
    CHECK(seen_read(&s, &b.log, 0), "not described");
    CHECK(s.n_leafs == 302, "%d leafs", s.n_leafs);
    seen_free(&s);
    const struct expected e = bed_expect(&b, 0, want_computed, NULL);
    CHECK(expect_exec(&e) > 60, "not captured");
    no_losses(&b);
    bed_end(&b);
}

// More nodes than the graph announced, as a scheduler could show that rebuilds graphs: counted, not followed.
static void strange_node(struct ggml_backend_sched * s, struct ggml_cgraph * g) {
    (void) g;
    static struct ggml_tensor strange;
    if (s->callback != NULL) {
        CHECK(!s->callback(&strange, true, s->callback_data), "a node that was never announced was wanted");
    }
}

static void test_strange_node(void) {
    test_case("graph: a node that was not announced is counted");
    static const int32_t outs[1] = {3};
    struct bed b;
    bed_make(&b, &(struct shm_options) {0});
    model_graph(&b.graph, &(struct model_options) {.n_layer = 1, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens, positions, outs);
    bed_join(&b);
    b.sched->before_compute = strange_node;
    bed_run(&b, true);
    log_drain(&b.log);
    const struct expected e = bed_expect(&b, 0, want_computed, NULL);
    CHECK(expect_exec(&e) > 0, "the others were not captured");
    CHECK(b.shm.h->stats.loss[TAP_LOSS_GRAPH_MISMATCH].packets == 1, "%lu counted", (unsigned long) b.shm.h->stats.loss[TAP_LOSS_GRAPH_MISMATCH].packets);
    bed_end(&b);
}

// ---- a pool that is too small ---------------------------------------------------------------------------------------

static void count_captures(const struct log * l, uint64_t * packets, uint64_t * bytes) {
    for (const struct event * e = l->first; e != NULL; e = e->next) {
        if (e->type == TAP_REC_CAPTURE) {
            *packets += 1;
            *bytes += ((const struct tap_rec_capture *) e->record)->bytes;
        }
    }
}

// Policy drop: what is captured and what is counted as lost are together all that was wanted, in packets and in bytes.
static void test_drop(uint64_t slots, bool drain) {
    test_case("drop: %lu slots, %s, captured and lost are all that was wanted", (unsigned long) slots, drain ? "slots held" : "nothing read");
    static const int32_t outs[2] = {1, 5};
    uint64_t packets[2] = {0}, bytes[2] = {0}, lost[2] = {0};
    for (int small = 0; small < 2; small++) {
        struct bed b;
        bed_make(&b, &(struct shm_options) {.slots = small ? slots : 16384, .slot_bytes = 4096, .queue_bytes = small && !drain ? 65536 : 1 << 20, .overflow = TAP_OVERFLOW_DROP});
        model_graph(&b.graph, &(struct model_options) {.n_layer = 6, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .n_experts = 4}, tokens, positions, outs);
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
        uint64_t told = 0, ends = 0;
        for (const struct event * e = b.log.first; e != NULL; e = e->next) {
            if (e->type == TAP_REC_EXEC_END) {
                told += ((const struct tap_rec_exec_end *) e->record)->lost;
                ends++;
            }
        }
        const struct tap_count * loss = b.shm.h->stats.loss;
        if (small) {
            lost[0] = loss[TAP_LOSS_POOL_FULL].packets + loss[TAP_LOSS_QUEUE_FULL].packets;
            lost[1] = loss[TAP_LOSS_POOL_FULL].bytes; // a lost record's own bytes count as queue_full
            CHECK(lost[0] > 0, "nothing was lost: the test does not test");
            CHECK(ends < 5 || told == lost[0], "the executions tell of %lu losses, not %lu", (unsigned long) told, (unsigned long) lost[0]);
            CHECK(b.shm.h->stats.waits == 0, "the model waited");
        } else {
            CHECK(loss[TAP_LOSS_POOL_FULL].packets + loss[TAP_LOSS_QUEUE_FULL].packets == 0, "the large pool is too small for the test");
        }
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
    CHECK(packets[1] + lost[0] == packets[0], "%lu captured and %lu lost of %lu", (unsigned long) packets[1], (unsigned long) lost[0], (unsigned long) packets[0]);
    CHECK(!drain || bytes[1] + lost[1] == bytes[0], "%lu and %lu of %lu bytes", (unsigned long) bytes[1], (unsigned long) lost[1], (unsigned long) bytes[0]);
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
    model_graph(&b.graph, &(struct model_options) {.n_layer = 8, .n_tokens = 4, .n_outputs = 1, .n_kv = 32}, tokens, positions, outs);
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
    CHECK(st->waits > 0 && st->wait_ns > wall / 4, "%lu of %lu us waited: the test does not test", (unsigned long) st->wait_ns / 1000, (unsigned long) wall / 1000);
    CHECK(sum <= wall, "%lu us counted in %lu us", (unsigned long) sum / 1000, (unsigned long) wall / 1000);
    no_losses(&b);
    bed_end(&b);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static void test_globs(void) {
    static const struct { const char * pattern, * text; bool match; } rows[] = {
        {"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "a", true}, {"a*c", "abbc", true}, {"a*c", "abbd", false},
        {"*b*", "abc", true}, {"**", "x", true}, {"*-1", "a-1-1", true}, {"?", "", false}, {"?", "x", true}, {"[abc]", "b", true},
        {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[^a]", "b", true}, {"[]]", "]", true}, {"[!]]", "]", false}, {"[a-]", "-", true},
        {"[", "[", false}, {"[ab", "a", true}, {"l_out-[0-1]", "l_out-1", true}, {"l_out-[0-1]", "l_out-2", false}, {"a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"*.weight", "blk.0.weight", true}, {"ffn_*-?", "ffn_out-10", false},
    };
    test_case("names: globs");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64]; // of exactly its length, so that a read beyond it is seen
        char * exact = malloc(strlen(rows[i].text) + 1);
        MUST(exact != NULL);
        strcpy(exact, rows[i].text);
        snprintf(text, sizeof(text), "%s", rows[i].pattern);
        CHECK(tap_glob_match(text, exact, strlen(exact)) == rows[i].match, "%s against %s", rows[i].pattern, rows[i].text);
        free(exact);
    }
    test_end();
    static const struct { const char * name; int32_t layer; } names[] = {
        {"l_out-0", 0}, {"l_out-31", 31}, {"cache_k_l7", 7}, {"cache_k_l0 (view)", -1}, {"node_24", -1}, {"", -1}, {"7", -1}, {"-3", 3},
        {"ffn_out-123456", -1}, {"a-1b", -1}, {"cache_l", -1}, {"x_l12", 12},
    };
    test_case("names: layers");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK(tap_name_layer(names[i].name) == names[i].layer, "%s: %d", names[i].name, tap_name_layer(names[i].name));
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
        llama_decode(m->ctx, (struct llama_batch) {.n_tokens = m->graph.n_tokens, .token = (int32_t *) (uintptr_t) tokens});
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
            const struct expected x = {.log = log, .graph = &m->graph, .config = &m->shm->h->config.start, .run = ++run, .exec = nth, .wanted = want_computed};
            CHECK(expect_exec(&x) > 0, "execution %zu has no packets", nth);
        }
        nth++;
    }
    CHECK(run == THREAD_RUNS, "context %u has %lu executions", ctx, (unsigned long) run);
}

// Packets of one execution may stand behind the EXEC of another thread's: the log is put in order of executions.
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
        model_graph(&m[i].graph, &(struct model_options) {.n_layer = 2, .n_tokens = n, .n_outputs = 1, .n_kv = 32, .n_experts = i % 2 * 4, .flash = i & 2},
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
    for (int i = 0; i < THREADS; i++) { // contexts are numbered by first use: batches of different sizes tell them apart
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
    for (int k = 0; k < 8; k++) {
        test_model(7, 2, k & 1 ? 4 : 0, k & 2, k & 4);
        test_model(1, 1, k & 1 ? 4 : 0, k & 2, k & 4);
    }
    test_model(5, -1, 0, true, false);
    test_model(7, 0, 4, true, false);
    test_model(7, 0, 0, false, true);
    test_wishes();
    test_attention_inputs();
    test_rules();
    for (uint64_t seed = 1; seed <= 300; seed++) {
        test_shape(seed);
    }
    test_bad_strides(32);
    test_bad_strides(64);
    test_maintenance();
    static const char * const globs[] = {"l_out", "nothing"};
    for (int i = 0; i < 12; i++) {
        test_chain(1 + i % 4 * 3, i % 3 == 0 ? 9 : -1, globs[i % 2], i % 2 == 0 || i % 3 == 1);
    }
    test_chain_changes();
    test_rebuilt();
    test_device_copies();
    test_implicit_alloc();
    test_many_leafs();
    test_strange_node();
    test_drop(50, true);
    test_drop(300, true);
    test_drop(16384, false);
    test_account(16);    // waits for slots
    test_account(16384); // waits for room in the queue
    test_globs();
    test_threads();
    return test_done();
}
