// instrument: a program with a small model of its own that says what it does through llama-resource-instrumentation.h.
//
//   instrument FILE [BACKENDS]   computes two layers and appends its events to FILE; BACKENDS is the folder of ggml's backends
//
// Attention and feed-forward network are computed as graphs of their own, so that each lies between the beginning and the end of its
// component and the time between them is its time. It uses every macro of both families once at least.
#include "llama-resource-instrumentation.h"

#include "ggml-cpp.h"

#include <cstdio>
#include <vector>

static const int n_layers = 2, n_embd = 64, n_ff = 128, n_tokens = 7;

// A Layer is its weights, and the two graphs that it computes from its input.
struct Layer {
    ggml_tensor * wq, * wk, * wv, * wo, * gate, * up, * down;      // weights
    ggml_tensor * input, * q, * k, * v, * kq, * soft, * kqv, * att; // attention
    ggml_tensor * norm, * g, * u, * act, * out, * sum;              // feed-forward network
};

static ggml_tensor * named(ggml_tensor * t, const char * format, int layer) {
    ggml_format_name(t, format, layer);
    return t;
}

static ggml_tensor * weight(ggml_context * ctx, const char * format, int layer, int rows, int columns) {
    return named(ggml_new_tensor_2d(ctx, GGML_TYPE_F16, rows, columns), format, layer);
}

static void make_weights(ggml_context * ctx, Layer & l, int n) {
    l.wq = weight(ctx, "blk.%d.attn_q.weight", n, n_embd, n_embd);
    l.wk = weight(ctx, "blk.%d.attn_k.weight", n, n_embd, n_embd);
    l.wv = weight(ctx, "blk.%d.attn_v.weight", n, n_embd, n_embd);
    l.wo = weight(ctx, "blk.%d.attn_output.weight", n, n_embd, n_embd);
    l.gate = weight(ctx, "blk.%d.ffn_gate.weight", n, n_embd, n_ff);
    l.up = weight(ctx, "blk.%d.ffn_up.weight", n, n_embd, n_ff);
    l.down = weight(ctx, "blk.%d.ffn_down.weight", n, n_ff, n_embd);
}

static void make_graphs(ggml_context * ctx, Layer & l, int n) {
    l.q = named(ggml_mul_mat(ctx, l.wq, l.input), "Qcur-%d", n);
    l.k = named(ggml_mul_mat(ctx, l.wk, l.input), "Kcur-%d", n);
    l.v = named(ggml_mul_mat(ctx, l.wv, l.input), "Vcur-%d", n);
    l.kq = named(ggml_mul_mat(ctx, l.k, l.q), "kq-%d", n);
    l.soft = named(ggml_soft_max(ctx, l.kq), "kq_soft_max-%d", n);
    l.kqv = named(ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, l.v)), l.soft), "kqv-%d", n);
    l.att = named(ggml_mul_mat(ctx, l.wo, l.kqv), "attn_out-%d", n);
    l.norm = named(ggml_rms_norm(ctx, l.att, 1e-6f), "ffn_norm-%d", n);
    l.g = named(ggml_mul_mat(ctx, l.gate, l.norm), "ffn_gate-%d", n);
    l.u = named(ggml_mul_mat(ctx, l.up, l.norm), "ffn_up-%d", n);
    l.act = named(ggml_swiglu_split(ctx, l.g, l.u), "ffn_swiglu-%d", n);
    l.out = named(ggml_mul_mat(ctx, l.down, l.act), "ffn_out-%d", n);
    l.sum = named(ggml_add(ctx, l.out, l.input), "l_out-%d", n);
}

static void fill(ggml_tensor * t) {
    std::vector<uint8_t> bytes(ggml_nbytes(t));
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
        bytes[i] = static_cast<uint8_t>(i * 37);
        bytes[i + 1] = t->type == GGML_TYPE_F16 ? 0x20 : 0x3c; // small numbers
    }
    ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
}

// compute computes one tensor and all that it needs.
static void compute(ggml_backend_t backend, ggml_tensor * wanted) {
    ggml_context_ptr ctx(ggml_init({ggml_graph_overhead(), nullptr, true}));
    ggml_cgraph *    graph = ggml_new_graph(ctx.get());
    ggml_build_forward_expand(graph, wanted);
    ggml_backend_graph_compute(backend, graph);
}

static void attention(ggml_backend_t backend, Layer & l, int n) {
    LLAMA_RESOURCE_BEGIN_COMPONENT("attention");
    compute(backend, l.att);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "attention_Qkv", {l.wq, l.input}, l.q);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "attention_Kkv", {l.wk, l.input}, l.k);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "attention_Vkv", {l.wv, l.input}, l.v);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "attention", {l.k, l.q}, l.kq);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("softmax", "attention", {l.kq}, l.soft);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "attention_output", {l.wo, l.kqv}, l.att);
    RESOURCE_TRACK_KV_CACHE(n, "update", ggml_nbytes(l.k) + ggml_nbytes(l.v));
    LLAMA_RESOURCE_END_COMPONENT("attention");
    LLAMA_RESOURCE_LOG_COMPONENT_HANDOFF("attention", "mlp");
}

static void feed_forward(ggml_backend_t backend, Layer & l) {
    const std::vector<const ggml_tensor *> sum = {l.out, l.input};
    RESOURCE_TRACK_COMPONENT_BEGIN("mlp");
    compute(backend, l.sum);
    RESOURCE_TRACK_COMPUTE_OP("rms_norm", "mlp", {l.att}, l.norm);
    RESOURCE_TRACK_MLP_OP("gate_proj", l.gate, l.g);
    LLAMA_RESOURCE_LOG_MLP_OPERATION("up_proj", l.up, l.u);
    LLAMA_RESOURCE_LOG_MLP_OPERATION("activation", l.gate, l.act);
    RESOURCE_TRACK_MLP_OP("down_proj", l.down, l.out);
    RESOURCE_TRACK_COMPUTE_OP("swiglu", "mlp", {l.g, l.u}, l.act);
    RESOURCE_TRACK_COMPUTE_OP("add", "output", sum, l.sum);
    RESOURCE_TRACK_COMPONENT_END("mlp");
    RESOURCE_TRACK_HANDOFF("mlp", "output");
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: instrument FILE [BACKENDS]\n");
        return 2;
    }
    argc > 2 ? ggml_backend_load_all_from_path(argv[2]) : ggml_backend_load_all();
    ggml_backend_ptr backend(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    if (!backend) {
        std::fprintf(stderr, "instrument: ggml has no CPU backend; name the folder of its backends\n");
        return 1;
    }
    ggml_context_ptr   ctx(ggml_init({256 * ggml_tensor_overhead(), nullptr, true}));
    std::vector<Layer> layers(n_layers);
    ggml_tensor *      input = named(ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, n_embd, n_tokens), "inp_embd", 0);
    for (int n = 0; n < n_layers; n++) {
        make_weights(ctx.get(), layers[n], n);
        layers[n].input = n == 0 ? input : layers[n - 1].sum;
        make_graphs(ctx.get(), layers[n], n);
    }
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx.get(), backend.get()));

    llama_resource_instrumentation_init(llama_resource_level::VERBOSE, argv[1]);
    LLAMA_RESOURCE_BEGIN_SESSION("instrument \"example\"");
    fill(input);
    std::vector<std::string> ids;
    for (Layer & l : layers) {
        for (ggml_tensor * w : {l.wq, l.wk, l.wv, l.wo, l.gate, l.up, l.down}) {
            fill(w);
            LLAMA_RESOURCE_LOG_MEMORY_ALLOCATION(w, w == l.gate || w == l.up || w == l.down ? "mlp_weights" : "qkv_weights");
        }
        ids.push_back(g_resource_instr->log_memory_allocation(l.sum, "activation"));
    }
    RESOURCE_TRACK_MEMORY_ALLOC(input, "input");
    for (int n = 0; n < n_layers; n++) {
        if (n == 0) {
            LLAMA_RESOURCE_BEGIN_LAYER(n);
        } else {
            RESOURCE_TRACK_LAYER_BEGIN(n);
        }
        attention(backend.get(), layers[n], n);
        feed_forward(backend.get(), layers[n]);
        if (n == 0) {
            LLAMA_RESOURCE_END_LAYER(n);
        } else {
            RESOURCE_TRACK_LAYER_END(n);
        }
    }
    buffer.reset();
    for (const std::string & id : ids) {
        LLAMA_RESOURCE_LOG_MEMORY_DEALLOCATION(id);
    }
    LLAMA_RESOURCE_END_SESSION();
    llama_resource_instrumentation_free();
    return 0;
}
