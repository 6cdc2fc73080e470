// fake.c: a ggml and a llama.cpp that do no arithmetic. A node's contents are a function of the execution, the node
// and the offset, so that a test can say what must have been captured without keeping a copy.
#define _GNU_SOURCE
#include "fake_plan.h"

#include <stdlib.h>
#include <string.h>

// ---- types ----------------------------------------------------------------------------------------------------------

static size_t fake_type_size(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_I32:  return 4;
        case GGML_TYPE_F16:  return 2;
        case GGML_TYPE_I64:  return 8;
        case GGML_TYPE_I8:   return 1;
        case GGML_TYPE_Q8_0: return 34;
        case GGML_TYPE_Q4_0: return 18;
        case GGML_TYPE_Q4_K: return 144;
        default: MUST(!"a type that the fakes do not know"); return 0;
    }
}

static int64_t fake_blck_size(enum ggml_type type) {
    return type == GGML_TYPE_Q8_0 || type == GGML_TYPE_Q4_0 ? 32 : type == GGML_TYPE_Q4_K ? 256 : 1;
}

size_t type_bytes(enum ggml_type type, int64_t elements) {
    return (size_t) (elements / fake_blck_size(type)) * fake_type_size(type);
}

static const char * fake_op_desc(const struct ggml_tensor * t) {
    static const char * const names[GGML_OP_COUNT] = {
        [GGML_OP_NONE] = "NONE", [GGML_OP_VIEW] = "VIEW", [GGML_OP_RESHAPE] = "RESHAPE", [GGML_OP_PERMUTE] = "PERMUTE",
        [GGML_OP_MUL_MAT] = "MUL_MAT", [GGML_OP_ADD] = "ADD", [GGML_OP_SET_ROWS] = "SET_ROWS", [GGML_OP_ROPE] = "ROPE",
    };
    return names[t->op] != NULL ? names[t->op] : "OP";
}

// ---- buffers --------------------------------------------------------------------------------------------------------

static bool fake_is_host(ggml_backend_buffer_t buffer) { return buffer->host; }

static uint8_t * fake_place(const struct ggml_tensor * t, size_t offset, size_t n) {
    struct ggml_backend_buffer * b = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    const size_t at = (size_t) ((uint8_t *) t->data - b->base) + offset;
    MUST(at <= b->size && n <= b->size - at);
    return b->bytes + at;
}

static void fake_tensor_get(const struct ggml_tensor * t, void * data, size_t offset, size_t n) {
    struct ggml_backend_buffer * b = t->view_src != NULL ? t->view_src->buffer : t->buffer;
    b->gets++;
    memcpy(data, fake_place(t, offset, n), n);
}

static void * fake_get_base(ggml_backend_buffer_t b) { return b->base; }
static size_t fake_get_size(ggml_backend_buffer_t b) { return b->size; }
static enum ggml_backend_buffer_usage fake_get_usage(ggml_backend_buffer_t b) { return b->usage; }
static void   fake_set_usage(ggml_backend_buffer_t b, enum ggml_backend_buffer_usage usage) { b->usage = usage; }
static void   fake_buffer_free(ggml_backend_buffer_t b) { free(b); }

static ggml_backend_buffer_t fake_alloc(ggml_backend_buffer_type_t type, size_t size) {
    (void) type;
    ggml_backend_buffer_t b = calloc(1, sizeof(*b));
    MUST(b != NULL);
    b->host = true;
    b->base = (uint8_t *) (uintptr_t) 0x10000;
    b->size = size;
    return b;
}

static ggml_backend_buffer_t fake_from_host(ggml_backend_dev_t device, void * ptr, size_t size, size_t largest) {
    (void) device;
    (void) largest;
    ggml_backend_buffer_t b = fake_alloc(NULL, size);
    b->base = ptr;
    return b;
}

void graph_write(struct graph * g, struct ggml_tensor * t, const void * bytes, size_t n) {
    (void) g;
    if (n > 0) {
        memcpy(fake_place(t, 0, n), bytes, n);
    }
}

uint8_t fake_byte(uint64_t run, uint64_t id, uint64_t offset) {
    uint64_t x = (run << 40 ^ id << 24 ^ offset) * 0x9e3779b97f4a7c15ull;
    return (uint8_t) (x >> 56 ^ x >> 24);
}

// ---- the scheduler --------------------------------------------------------------------------------------------------

static int     fake_n_nodes(struct ggml_cgraph * g) { return g->n_nodes; }
static struct ggml_tensor * fake_node(struct ggml_cgraph * g, int i) { return g->nodes[i]; }

struct ggml_backend_sched * sched_new(void) {
    struct ggml_backend_sched * s = calloc(1, sizeof(*s));
    MUST(s != NULL);
    return s;
}

static size_t extent(const struct ggml_tensor * t) {
    size_t n = type_bytes(t->type, t->ne[0]);
    for (int d = 0; d < 4; d++) {
        if (t->ne[d] == 0) {
            return 0;
        }
        n += d > 0 ? (size_t) (t->ne[d] - 1) * t->nb[d] : 0;
    }
    return n;
}

static void fake_compute(struct ggml_backend_sched * s, struct ggml_tensor * t) {
    s->computed++;
    const bool view = t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
        t->op == GGML_OP_TRANSPOSE;
    if (view || (t->view_src != NULL && t->op != GGML_OP_ADD) || !(t->flags & GGML_TENSOR_FLAG_COMPUTE)) {
        return;
    }
    const size_t n = extent(t);
    uint8_t * at = fake_place(t, 0, n);
    for (size_t k = 0; k < n; k++) {
        at[k] = fake_byte(s->run, (uintptr_t) t->extra, k);
    }
}

// Inputs share memory with nodes in a real graph: once it runs, their contents are gone.
static void fake_spoil_inputs(struct ggml_cgraph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor * t = g->nodes[i]->src[k];
            if (t != NULL && t->op == GGML_OP_NONE && (t->flags & GGML_TENSOR_FLAG_INPUT)) {
                memset(fake_place(t, 0, extent(t)), 0xee, extent(t));
            }
        }
    }
}

static void fake_split(struct ggml_backend_sched * s, struct ggml_cgraph * g, int first, int end) {
    if (s->callback == NULL) {
        for (int i = first; i < end; i++) {
            fake_compute(s, g->nodes[i]);
        }
        s->ranges++;
        return;
    }
    for (int i = first; i < end; i++) {
        int to = i;
        bool need = s->callback(g->nodes[to], true, s->callback_data);
        while (!need && to < end - 1) {
            need = s->callback(g->nodes[++to], true, s->callback_data);
        }
        for (int k = i; k <= to; k++) {
            fake_compute(s, g->nodes[k]);
        }
        s->ranges++;
        if (need && !s->callback(g->nodes[to], false, s->callback_data)) {
            return;
        }
        i = to;
    }
}

// The copies bear a name of the scheduler's making and none of the flags.
static void fake_copy_inputs(struct ggml_backend_sched * s, struct ggml_cgraph * g) {
    enum { MOST = 256 };
    s->copies = s->copies != NULL ? s->copies : calloc(MOST, sizeof(s->copies[0]));
    MUST(s->copies != NULL);
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor * t = g->nodes[i]->src[k];
            if (t == NULL || t->op != GGML_OP_NONE || !(t->flags & GGML_TENSOR_FLAG_INPUT)) {
                continue;
            }
            MUST(s->n_copies < MOST);
            struct ggml_tensor * c = &s->copies[s->n_copies++];
            *c = *t;
            c->flags = 0;
            c->data = NULL;
            snprintf(c->name, sizeof(c->name), "FAKE0#%.40s#0", t->name);
            g->nodes[i]->src[k] = c;
        }
    }
}

static bool fake_alloc_graph(ggml_backend_sched_t s, struct ggml_cgraph * g) {
    if (s->copy_inputs) {
        fake_copy_inputs(s, g);
    }
    plan_alloc(s, g);
    s->is_alloc = !s->fail_alloc;
    return s->is_alloc;
}

static enum ggml_status fake_compute_async(ggml_backend_sched_t s, struct ggml_cgraph * g) {
    if (!s->is_alloc && !ggml_backend_sched_alloc_graph(s, g)) { // the libraries call themselves through the PLT
        return GGML_STATUS_ALLOC_FAILED;
    }
    s->run++;
    s->computed = s->ranges = 0;
    if (s->before_compute != NULL) {
        s->before_compute(s, g);
    }
    fake_spoil_inputs(g);
    if (s->callback != NULL && s->pad != NULL) {
        MUST(!s->callback(s->pad, true, s->callback_data));
    }
    for (int k = 0, first = 0; k <= s->n_splits; k++) {
        const int end = k < s->n_splits ? s->splits[k] : g->n_nodes;
        fake_split(s, g, first, end);
        first = end;
    }
    return s->status;
}

static void fake_set_eval_callback(ggml_backend_sched_t s, ggml_backend_sched_eval_callback callback, void * data) {
    s->callback = callback;
    s->callback_data = data;
    s->callback_sets++;
}

static bool fake_reserve(ggml_backend_sched_t s, struct ggml_cgraph * g) { plan_reserve(s, g); return true; }
static void fake_sched_reset(ggml_backend_sched_t s) { s->is_alloc = false; }

// The device takes some time for what it was given.
static void fake_sched_synchronize(ggml_backend_sched_t s) {
    const int64_t began = tap_now();
    while (tap_now() - began < 20000) {
    }
    s->sync_ns = tap_now() - began;
    s->synced_at = tap_now();
}

static void fake_sched_free(ggml_backend_sched_t s) {
    free(s->copies);
    free(s->areas);
    free(s);
}

// ---- structures -----------------------------------------------------------------------------------------------------

// What tap_layouts looks at. fake_other says which of them are of another version.
uint32_t fake_other;

static const void * fake_small; // the newest context for one tensor without data

static struct ggml_context * fake_ctx_init(struct ggml_init_params p) {
    fake_small = p.no_alloc ? p.mem_buffer : NULL;
    return p.mem_buffer; // used from its start
}
static void   fake_ctx_free(struct ggml_context * ctx) { (void) ctx; }
static size_t fake_overhead(void) { return sizeof(struct ggml_tensor) + 32; }

static struct ggml_tensor * fake_new(struct ggml_context * ctx, enum ggml_op op, int64_t a, int64_t b, int64_t c,
                                     int64_t d) {
    static size_t used;
    enum { STEP = 2048 };
    uint8_t * at = (uint8_t *) ctx + used;
    used = (used + STEP) % (4 * STEP);
    struct ggml_tensor * t = (struct ggml_tensor *) at;
    memset(t, 0, sizeof(*t));
    *t = (struct ggml_tensor) {.op = op, .ne = {a, b, c, d}, .nb = {4, 4 * (size_t) a, 4 * (size_t) (a * b),
        4 * (size_t) (a * b * c)}};
    t->data = at + sizeof(*t);
    if (fake_other & TAP_LAYOUT_GGML) { // a field more before the shape
        memmove(t->ne + 1, t->ne, 3 * sizeof(t->ne[0]));
    }
    return t;
}
static struct ggml_tensor * fake_new_4d(struct ggml_context * ctx, enum ggml_type type, int64_t a, int64_t b, int64_t c,
                                        int64_t d) {
    MUST(type == GGML_TYPE_F32);
    return fake_new(ctx, GGML_OP_NONE, a, b, c, d);
}
static struct ggml_tensor * fake_view_1d(struct ggml_context * ctx, struct ggml_tensor * a, int64_t n, size_t offset) {
    struct ggml_tensor * t = ctx == fake_small ? memset(ctx, 0, sizeof(*t)) : fake_new(ctx, GGML_OP_VIEW, n, 1, 1, 1);
    t->op = GGML_OP_VIEW;
    t->src[0] = t->view_src = a;
    t->view_offs = offset;
    return t;
}
static struct ggml_tensor * fake_permute(struct ggml_context * ctx, struct ggml_tensor * a, int x, int y,
                                         int z, int w) {
    struct ggml_tensor * t = fake_new(ctx, GGML_OP_PERMUTE, 1, 1, 1, 1);
    const int32_t axes[] = {x, y, z, w};
    memcpy(t->op_params, axes, sizeof(axes));
    t->src[0] = a;
    return t;
}
static struct ggml_tensor * fake_mul_mat(struct ggml_context * ctx, struct ggml_tensor * a, struct ggml_tensor * b) {
    struct ggml_tensor * t = fake_new(ctx, GGML_OP_MUL_MAT, a->ne[1], b->ne[1], b->ne[2], b->ne[3]);
    t->src[0] = a;
    t->src[1] = b;
    return t;
}
static struct ggml_tensor * fake_set_name(struct ggml_tensor * t, const char * name) {
    snprintf(t->name, sizeof(t->name), "%s", name);
    return t;
}
static void   fake_set_input(struct ggml_tensor * t) { t->flags |= GGML_TENSOR_FLAG_INPUT; }
static void * fake_get_data(const struct ggml_tensor * t) { return t->data; }

static const char * fake_op_name(enum ggml_op op) {
#define OP(name) [GGML_OP_##name] = #name
    static const char * const names[GGML_OP_COUNT] = {
        OP(NONE), OP(MUL_MAT), OP(MUL_MAT_ID), OP(CONT), OP(RESHAPE), OP(VIEW), OP(PERMUTE), OP(TRANSPOSE),
        OP(GET_ROWS), OP(SET_ROWS),
        OP(SOFT_MAX), OP(FLASH_ATTN_EXT), OP(SSM_CONV), OP(SSM_SCAN),
    };
#undef OP
    return names[op];
}
static const char * fake_type_name(enum ggml_type type) {
    static const char * const names[GGML_TYPE_COUNT] = {
        [GGML_TYPE_F32] = "f32", [GGML_TYPE_F16] = "f16", [GGML_TYPE_Q8_0] = "q8_0", [GGML_TYPE_I32] = "i32",
        [GGML_TYPE_BF16] = "bf16",
    };
    return names[type];
}

static const char * fake_ggml_version(void) { return "0.1-fake"; }

static void fake_structures(struct tap_real * r) {
    r->ggml_init = fake_ctx_init;
    r->ggml_free = fake_ctx_free;
    r->ggml_tensor_overhead = fake_overhead;
    r->ggml_new_tensor_4d = fake_new_4d;
    r->ggml_view_1d = fake_view_1d;
    r->ggml_permute = fake_permute;
    r->ggml_mul_mat = fake_mul_mat;
    r->ggml_set_name = fake_set_name;
    r->ggml_set_input = fake_set_input;
    r->ggml_get_data = fake_get_data;
    r->ggml_op_name = fake_op_name;
    r->ggml_type_name = fake_type_name;
    r->ggml_version = fake_ggml_version;
}

void fake_real(void) {
    struct tap_real * r = &tap_real;
    fake_structures(r);
    fake_llama(r);
    r->ggml_graph_n_nodes = fake_n_nodes;
    r->ggml_graph_node = fake_node;
    r->ggml_graph_nodes = plan_nodes;
    r->ggml_graph_size = plan_size;
    r->ggml_build_forward_expand = plan_expand;
    r->ggml_backend_sched_get_tensor_backend = later_backend;
    r->ggml_backend_tensor_get_async = later_get;
    r->ggml_backend_synchronize = later_synchronize;
    r->ggml_op_desc = fake_op_desc;
    r->ggml_type_size = fake_type_size;
    r->ggml_blck_size = fake_blck_size;
    r->ggml_backend_buffer_is_host = fake_is_host;
    r->ggml_backend_tensor_get = fake_tensor_get;
    r->ggml_backend_buffer_get_base = fake_get_base;
    r->ggml_backend_buffer_get_size = fake_get_size;
    r->ggml_backend_buffer_get_usage = fake_get_usage;
    r->ggml_backend_buffer_set_usage = fake_set_usage;
    r->ggml_backend_buffer_free = fake_buffer_free;
    r->ggml_backend_buft_alloc_buffer = fake_alloc;
    r->ggml_backend_dev_buffer_from_host_ptr = fake_from_host;
    r->ggml_backend_sched_alloc_graph = fake_alloc_graph;
    r->ggml_backend_sched_reserve = fake_reserve;
    r->ggml_backend_sched_graph_compute_async = fake_compute_async;
    r->ggml_backend_sched_set_eval_callback = fake_set_eval_callback;
    r->ggml_backend_sched_synchronize = fake_sched_synchronize;
    r->ggml_backend_sched_reset = fake_sched_reset;
    r->ggml_backend_sched_free = fake_sched_free;
}
