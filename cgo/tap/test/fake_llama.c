// fake_llama.c: a fake llama.cpp: decodes compute a context's graph, everything else answers and does nothing.
#define _GNU_SOURCE
#include "harness.h"

#include <stdlib.h>
#include <string.h>

_Atomic int  fake_accepts, fake_loads;
const char * fake_loads_from;

static int32_t fake_run(struct llama_context * ctx) {
    ctx->decodes++;
    if (ctx->graph == NULL) {
        return ctx->status;
    }
    if (ctx->fresh) {
        ggml_backend_sched_alloc_graph(ctx->sched, &ctx->graph->cgraph);
        ctx->fresh = false;
    }
    return (int32_t) ggml_backend_sched_graph_compute_async(ctx->sched, &ctx->graph->cgraph);
}

static int32_t fake_decode(struct llama_context * ctx, struct llama_batch b) { (void) b; return fake_run(ctx); }

static int32_t fake_process(struct llama_context * ctx, enum llama_process_type type, struct llama_batch_ext * b) {
    (void) type;
    (void) b;
    return fake_run(ctx);
}

static struct llama_batch_ext * fake_ext_init(struct llama_context * ctx) {
    (void) ctx;
    return calloc(1, sizeof(struct llama_batch_ext));
}
static void    fake_ext_free(struct llama_batch_ext * b) { free(b); }
static void    fake_ext_clear(struct llama_batch_ext * b) { b->n = 0; }
static int32_t fake_ext_add(struct llama_batch_ext * b, llama_seq_id seq) { return seq < 0 ? -2 : b->n++; }
static int32_t fake_ext_add_token(struct llama_batch_ext * b, llama_seq_id seq, llama_token id) {
    (void) id;
    return fake_ext_add(b, seq);
}
static int32_t fake_ext_add_embd(struct llama_batch_ext * b, llama_seq_id seq, struct llama_embd e) {
    (void) e;
    return fake_ext_add(b, seq);
}
static bool    fake_ext_add_seq(struct llama_batch_ext * b, int32_t i, llama_seq_id seq) {
    return i < b->n && seq >= 0;
}
static bool    fake_ext_set_pos(struct llama_batch_ext * b, int32_t i, const llama_pos * pos) {
    return i < b->n && pos != NULL;
}
static bool    fake_ext_set_output(struct llama_batch_ext * b, int32_t i, bool v) { (void) v; return i < b->n; }

static void    fake_memory_clear(llama_memory_t m, bool data) { (void) m; (void) data; }
static bool    fake_seq_rm(llama_memory_t m, llama_seq_id seq, llama_pos a, llama_pos b) {
    (void) m;
    (void) a;
    (void) b;
    return seq != 66;
}
static void    fake_seq_cp(llama_memory_t m, llama_seq_id from, llama_seq_id to, llama_pos a, llama_pos b) {
    (void) m;
    (void) from;
    (void) to;
    (void) a;
    (void) b;
}
static void    fake_seq_keep(llama_memory_t m, llama_seq_id seq) { (void) m; (void) seq; }
static void    fake_seq_add(llama_memory_t m, llama_seq_id seq, llama_pos a, llama_pos b, llama_pos d) {
    (void) m;
    (void) seq;
    (void) a;
    (void) b;
    (void) d;
}
static void    fake_seq_div(llama_memory_t m, llama_seq_id seq, llama_pos a, llama_pos b, int d) {
    (void) m;
    (void) seq;
    (void) a;
    (void) b;
    (void) d;
}
static bool    fake_set_sampler(struct llama_context * ctx, llama_seq_id seq, struct llama_sampler * s) {
    (void) ctx;
    (void) seq;
    return s != NULL;
}
static size_t  fake_set_data(struct llama_context * ctx, const uint8_t * p, size_t n) {
    (void) ctx;
    (void) p;
    return n;
}
static size_t  fake_seq_set_data(struct llama_context * ctx, const uint8_t * p, size_t n, llama_seq_id seq,
                                 llama_state_seq_flags flags) {
    (void) seq;
    (void) flags;
    return fake_set_data(ctx, p, n);
}
static size_t  fake_seq_load(struct llama_context * ctx, const char * path, llama_seq_id seq, llama_token * ids,
                             size_t room, size_t * n) {
    (void) ctx;
    (void) seq;
    (void) ids;
    (void) room;
    (void) n;
    return strlen(path);
}
static bool fake_load_file(struct llama_context * ctx, const char * path, llama_token * ids, size_t room, size_t * n) {
    (void) ctx;
    (void) ids;
    (void) room;
    (void) n;
    return path[0] != 0;
}
static llama_token fake_sample(struct llama_sampler * s, struct llama_context * ctx, int32_t i) {
    (void) s;
    (void) ctx;
    return i;
}
static void    fake_synchronize(struct llama_context * ctx) { (void) ctx; }
static float * fake_logits(struct llama_context * ctx) { (void) ctx; return NULL; }
static float * fake_logits_ith(struct llama_context * ctx, int32_t i) { (void) ctx; (void) i; return NULL; }
static float * fake_embd_seq(struct llama_context * ctx, llama_seq_id i) { (void) ctx; (void) i; return NULL; }
static llama_token fake_sampled(struct llama_context * ctx, int32_t i) { (void) ctx; return i; }
static llama_memory_t fake_get_memory(const struct llama_context * ctx) {
    return (llama_memory_t) (uintptr_t) (ctx == NULL ? NULL : (const char *) ctx + 8);
}
static void    fake_free(struct llama_context * ctx) { free(ctx); }

// A chain hands the token on to its member through the public function, as llama.cpp does.
static void fake_accept(struct llama_sampler * s, llama_token token) {
    fake_accepts++;
    if (s->ctx != NULL) {
        llama_sampler_accept(s->ctx, token);
    }
}

// A chain applies its member through the public function, as llama.cpp does.
size_t  fake_apply_size;
int64_t fake_apply_selected;
static void fake_apply(struct llama_sampler * s, llama_token_data_array * candidates) {
    if (s->ctx != NULL) {
        llama_sampler_apply(s->ctx, candidates);
        return;
    }
    candidates->size = fake_apply_size;
    candidates->selected = fake_apply_selected;
}

static struct llama_model * fake_load(const char * path, struct llama_model_params p) {
    (void) p;
    return path[0] == 0 ? NULL : (struct llama_model *) malloc(1);
}
static struct llama_context * fake_init(struct llama_model * m, struct llama_context_params p) {
    struct llama_context * ctx = calloc(1, sizeof(*ctx));
    MUST(ctx != NULL);
    ctx->model = m;
    ctx->flash_attn = (int32_t) p.flash_attn_type;
    return ctx;
}
static const struct llama_model * fake_get_model(const struct llama_context * ctx) { return ctx->model; }
static int32_t fake_meta(const struct llama_model * m, const char * key, char * out, size_t size) {
    (void) m;
    return strcmp(key, "general.architecture") == 0 ? snprintf(out, size, "fake") : -1;
}
static int32_t fake_desc(const struct llama_model * m, char * out, size_t size) {
    (void) m;
    return snprintf(out, size, "a fake of %d B", 7);
}
static void    fake_load_all(void) { fake_loads++; }
static void    fake_load_all_from(const char * folder) { fake_loads_from = folder; }

// ---- structures -----------------------------------------------------------------------------------------------------

static struct tap_by_value fake_get_one(llama_token * tokens, int32_t n) {
    struct tap_by_value v = {{0}};
    struct llama_batch b = {.n_tokens = n, .token = tokens};
    if (fake_other & TAP_LAYOUT_BATCH) { // a field less
        b.token = NULL;
        b.embd = (float *) (void *) tokens;
    }
    memcpy(v.bytes, &b, sizeof(b));
    return v;
}
static struct tap_by_value fake_batch_init(int32_t n, int32_t embd, int32_t n_seq) {
    static int32_t ids[8];
    static int32_t * seqs[4] = {ids, ids, NULL};
    static int8_t outputs[8];
    MUST(n == 2 && embd == 0 && n_seq == 1);
    struct tap_by_value v = {{0}};
    const struct llama_batch b = {.token = ids, .pos = ids, .n_seq_id = ids, .seq_id = seqs, .logits = outputs};
    memcpy(v.bytes, &b, sizeof(b));
    return v;
}
static void fake_batch_free(struct tap_by_value v) { (void) v; }

static struct tap_by_value fake_default_params(void) {
    struct tap_by_value v = {{0}};
    const struct llama_context_params p = {
        .n_ctx = 512, .n_batch = 2048, .n_ubatch = 512, .n_seq_max = 1, .rope_scaling_type = -1, .pooling_type = -1,
        .attention_type = -1,
        .flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO, .yarn_ext_factor = -1,
    };
    memcpy(v.bytes + (fake_other & TAP_LAYOUT_PARAMS ? 4 : 0), &p, sizeof(p)); // a field more at its start
    return v;
}

static const char * fake_llama_version(void) { return "0.0-fake"; }

// ---- the table ------------------------------------------------------------------------------------------------------

// BY_VALUE gives a fake with a structure of llama.h the type that the tap knows it by.
#define BY_VALUE(field, fake) r->field = (__typeof__(r->field)) (void *) fake

void fake_llama(struct tap_real * r) {
    r->llama_batch_get_one = fake_get_one;
    r->llama_batch_init = fake_batch_init;
    r->llama_batch_free = fake_batch_free;
    r->llama_context_default_params = fake_default_params;
    r->llama_version = fake_llama_version;
    r->llama_sampler_apply = fake_apply;
    BY_VALUE(llama_decode, fake_decode);
    BY_VALUE(llama_encode, fake_decode);
    r->llama_process = fake_process;
    r->llama_batch_ext_init = fake_ext_init;
    r->llama_batch_ext_free = fake_ext_free;
    r->llama_batch_ext_clear = fake_ext_clear;
    r->llama_batch_ext_add = fake_ext_add;
    r->llama_batch_ext_add_token = fake_ext_add_token;
    r->llama_batch_ext_add_embd = fake_ext_add_embd;
    r->llama_batch_ext_add_seq = fake_ext_add_seq;
    r->llama_batch_ext_set_pos = fake_ext_set_pos;
    r->llama_batch_ext_set_output_logits = fake_ext_set_output;
    r->llama_batch_ext_set_output_embd = fake_ext_set_output;
    r->llama_memory_clear = fake_memory_clear;
    r->llama_memory_seq_rm = fake_seq_rm;
    r->llama_memory_seq_cp = fake_seq_cp;
    r->llama_memory_seq_keep = fake_seq_keep;
    r->llama_memory_seq_add = fake_seq_add;
    r->llama_memory_seq_div = fake_seq_div;
    r->llama_set_sampler = fake_set_sampler;
    r->llama_state_set_data = fake_set_data;
    r->llama_state_seq_set_data_ext = fake_seq_set_data;
    r->llama_state_seq_load_file = fake_seq_load;
    r->llama_state_load_file = fake_load_file;
    r->llama_sampler_sample = fake_sample;
    r->llama_sampler_accept = fake_accept;
    r->llama_synchronize = fake_synchronize;
    r->llama_get_logits = fake_logits;
    r->llama_get_logits_ith = fake_logits_ith;
    r->llama_get_embeddings = fake_logits;
    r->llama_get_embeddings_ith = fake_logits_ith;
    r->llama_get_embeddings_seq = fake_embd_seq;
    r->llama_get_sampled_token_ith = fake_sampled;
    r->llama_get_memory = fake_get_memory;
    r->llama_free = fake_free;
    BY_VALUE(llama_model_load_from_file, fake_load);
    BY_VALUE(llama_init_from_model, fake_init);
    r->llama_get_model = fake_get_model;
    r->llama_model_meta_val_str = fake_meta;
    r->llama_model_desc = fake_desc;
    r->ggml_backend_load_all = fake_load_all;
    r->ggml_backend_load_all_from_path = fake_load_all_from;
}
