//go:build llama

// tap_layout.c: whether structures are what the headers of this build say.
//
// A version alone is not enough: most versions of llama.cpp share their layouts, and a build of one's own may have
// any version. So the library fills structures through its own functions, and the fields are looked for where the
// compiler put them.
#define _GNU_SOURCE
#include "tap_real.h"
#include "tap_state.h"

#include <string.h>

// ---- ggml -----------------------------------------------------------------------------------------------------------

// tap_op_is says whether the library gives an op the number that it has here.
static bool tap_op_is(enum ggml_op op, const char * name) {
    const char * theirs = tap_real.ggml_op_name(op);
    return theirs != NULL && strcmp(theirs, name) == 0;
}

static bool tap_type_is(enum ggml_type type, const char * name) {
    const char * theirs = tap_real.ggml_type_name(type);
    return theirs != NULL && strcmp(theirs, name) == 0;
}

// The ops and types that the tap knows by number. Ops are numbered anew in most versions, and a number beyond the
// library's last one must not be asked for: they are looked at in rising order, so that a shift shows before the
// end of its table is reached.
static bool tap_numbers_same(void) {
    return tap_op_is(GGML_OP_NONE, "NONE") && tap_op_is(GGML_OP_MUL_MAT, "MUL_MAT") && tap_op_is(GGML_OP_MUL_MAT_ID,
        "MUL_MAT_ID") &&
           tap_op_is(GGML_OP_CONT, "CONT") && tap_op_is(GGML_OP_RESHAPE, "RESHAPE") && tap_op_is(GGML_OP_VIEW,
               "VIEW") &&
           tap_op_is(GGML_OP_PERMUTE, "PERMUTE") && tap_op_is(GGML_OP_TRANSPOSE, "TRANSPOSE") &&
           tap_op_is(GGML_OP_GET_ROWS, "GET_ROWS") &&
           tap_op_is(GGML_OP_SET_ROWS, "SET_ROWS") && tap_op_is(GGML_OP_SOFT_MAX, "SOFT_MAX") &&
           tap_op_is(GGML_OP_FLASH_ATTN_EXT, "FLASH_ATTN_EXT") && tap_op_is(GGML_OP_SSM_CONV, "SSM_CONV") &&
           tap_op_is(GGML_OP_SSM_SCAN, "SSM_SCAN") && tap_type_is(GGML_TYPE_F32, "f32") && tap_type_is(GGML_TYPE_F16,
               "f16") &&
           tap_type_is(GGML_TYPE_Q8_0, "q8_0") && tap_type_is(GGML_TYPE_I32, "i32") && tap_type_is(GGML_TYPE_BF16,
               "bf16");
}

// tap_tensor_same looks at a leaf, a view of it, a permutation and a product, each made by the library.
static bool tap_tensor_same(struct ggml_context * ctx) {
    static const char name[] = "llamatap-7";
    struct ggml_tensor * a = tap_real.ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 8, 5, 3, 2);
    const bool leaf = a->type == GGML_TYPE_F32 && a->ne[0] == 8 && a->ne[1] == 5 && a->ne[2] == 3 && a->ne[3] == 2 &&
        a->nb[0] == 4 &&
                      a->nb[1] == 32 && a->nb[2] == 160 && a->nb[3] == 480 && a->op == GGML_OP_NONE && a->flags == 0 &&
                      a->data != NULL && a->data == tap_real.ggml_get_data(a) && a->view_src == NULL &&
                      a->src[0] == NULL;
    tap_real.ggml_set_name(a, name);
    tap_real.ggml_set_input(a);
    struct ggml_tensor * v = tap_real.ggml_view_1d(ctx, a, 4, 64);
    struct ggml_tensor * p = tap_real.ggml_permute(ctx, a, 0, 2, 1, 3);
    struct ggml_tensor * m = tap_real.ggml_mul_mat(ctx, a, a);
    return leaf && strcmp(a->name, name) == 0 && a->flags == GGML_TENSOR_FLAG_INPUT && v->op == GGML_OP_VIEW &&
        v->view_src == a &&
           v->view_offs == 64 && v->src[0] == a && p->op == GGML_OP_PERMUTE && p->op_params[1] == 2 &&
           p->op_params[2] == 1 &&
           m->op == GGML_OP_MUL_MAT && m->src[0] == a && m->src[1] == a && m->ne[0] == 5 && m->ne[1] == 5;
}

// tap_ggml_same needs no allocation of its own: the library builds its tensors in a buffer that it is given.
static bool tap_ggml_same(void) {
    enum { OBJECT = 32, BUFFER = 16384 }; // ggml keeps 32 bytes of its own before each tensor
    static _Alignas(64) uint8_t buffer[BUFFER];
    const struct tap_real * r = &tap_real;
    if (r->ggml_init == NULL || r->ggml_free == NULL || r->ggml_tensor_overhead == NULL ||
        r->ggml_new_tensor_4d == NULL ||
        r->ggml_view_1d == NULL || r->ggml_permute == NULL || r->ggml_mul_mat == NULL || r->ggml_set_name == NULL ||
        r->ggml_set_input == NULL || r->ggml_get_data == NULL || r->ggml_op_name == NULL || r->ggml_type_name == NULL) {
        return false;
    }
    if (r->ggml_tensor_overhead() != sizeof(struct ggml_tensor) + OBJECT || !tap_numbers_same()) {
        return false;
    }
    struct ggml_context * ctx = r->ggml_init((struct ggml_init_params) {.mem_size = BUFFER, .mem_buffer = buffer});
    const bool same = ctx != NULL && tap_tensor_same(ctx);
    if (ctx != NULL) {
        r->ggml_free(ctx);
    }
    return same;
}

// ---- llama.cpp ------------------------------------------------------------------------------------------------------

// tap_batch_same looks at a batch over the program's tokens and at one that llama.cpp allocates.
static bool tap_batch_same(void) {
    if (tap_real.llama_batch_get_one == NULL || tap_real.llama_batch_init == NULL ||
        tap_real.llama_batch_free == NULL) {
        return false;
    }
    llama_token tokens[3] = {1, 2, 3};
    struct llama_batch b;
    struct tap_by_value v = tap_real.llama_batch_get_one(tokens, 3);
    memcpy(&b, v.bytes, sizeof(b));
    if (b.n_tokens != 3 || b.token != tokens || b.embd != NULL || b.pos != NULL || b.n_seq_id != NULL ||
        b.seq_id != NULL || b.logits != NULL) {
        return false;
    }
    v = tap_real.llama_batch_init(2, 0, 1);
    memcpy(&b, v.bytes, sizeof(b));
    const bool same = b.token != NULL && b.embd == NULL && b.pos != NULL && b.n_seq_id != NULL && b.seq_id != NULL &&
        b.seq_id[0] != NULL &&
                      b.seq_id[1] != NULL && b.seq_id[2] == NULL && b.logits != NULL;
    tap_real.llama_batch_free(v);
    return same;
}

// tap_params_same looks at the defaults around the one field that the tap uses: four that are -1, between fields
// that are not.
static bool tap_params_same(void) {
    if (tap_real.llama_context_default_params == NULL) {
        return false;
    }
    struct llama_context_params p;
    const struct tap_by_value v = tap_real.llama_context_default_params();
    memcpy(&p, v.bytes, sizeof(p));
    return p.n_batch > 0 && p.n_ubatch > 0 && p.n_seq_max == 1 && p.ctx_type == 0 && p.rope_scaling_type == -1 &&
        p.pooling_type == -1 &&
           p.attention_type == -1 && p.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_AUTO && p.rope_freq_base == 0 &&
           p.rope_freq_scale == 0;
}

uint32_t tap_layouts(void) {
    return (tap_ggml_same() ? 0 : TAP_LAYOUT_GGML) | (tap_batch_same() ? 0 : TAP_LAYOUT_BATCH) | (tap_params_same() ? 0
        : TAP_LAYOUT_PARAMS);
}
