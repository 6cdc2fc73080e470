// header.c: every macro in the language that C and C++ have in common. It is compiled, not run.
#include "../llama-resource-instrumentation.h"

void every_macro(const struct ggml_tensor * a, const struct ggml_tensor * b, const struct ggml_tensor * out);

void every_macro(const struct ggml_tensor * a, const struct ggml_tensor * b, const struct ggml_tensor * out) {
    LLAMA_RESOURCE_BEGIN_SESSION("session");
    if (a != NULL)
        LLAMA_RESOURCE_BEGIN_LAYER(1); // a macro is one statement
    else
        LLAMA_RESOURCE_END_LAYER(1);
    LLAMA_RESOURCE_BEGIN_COMPONENT("attention");
    LLAMA_RESOURCE_LOG_MEMORY_ALLOCATION(a, "weights");
    LLAMA_RESOURCE_LOG_MEMORY_DEALLOCATION("id");
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "attention", LLAMA_RESOURCE_INPUTS(a, b), out);
    LLAMA_RESOURCE_LOG_MLP_OPERATION("gate_proj", a, b);
    LLAMA_RESOURCE_LOG_COMPONENT_HANDOFF("attention", "mlp");
    LLAMA_RESOURCE_END_COMPONENT("attention");
    LLAMA_RESOURCE_END_SESSION();
    RESOURCE_TRACK_MEMORY_ALLOC(a, "weights");
    RESOURCE_TRACK_COMPUTE_OP("mul_mat", "attention", LLAMA_RESOURCE_INPUTS(a), out);
    RESOURCE_TRACK_COMPONENT_BEGIN("attention");
    RESOURCE_TRACK_COMPONENT_END("attention");
    RESOURCE_TRACK_LAYER_BEGIN(1);
    RESOURCE_TRACK_LAYER_END(1);
    RESOURCE_TRACK_MLP_OP("up_proj", a, b);
    RESOURCE_TRACK_KV_CACHE(1, "update", (size_t) 4096);
    RESOURCE_TRACK_HANDOFF("attention", "mlp");
    if (g_resource_instr != NULL) {
        llama_resource_instrumentation_free();
    }
}
