// header.cpp: how programs in C++ use the header. It is compiled, not run.
#include "../llama-resource-instrumentation.h"

void every_use(const ggml_tensor * a, const ggml_tensor * b, const ggml_tensor * out);

void every_use(const ggml_tensor * a, const ggml_tensor * b, const ggml_tensor * out) {
    const std::string                session = "session", component = "mlp";
    std::vector<const ggml_tensor *> inputs = {a, b};
    llama_resource_instrumentation_init(llama_resource_level::DETAILED, "resource.jsonl");
    llama_resource_instrumentation_init(llama_resource_level::VERBOSE, session + ".jsonl");
    LLAMA_RESOURCE_BEGIN_SESSION(session);
    LLAMA_RESOURCE_BEGIN_COMPONENT(component + "_gate");
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", "qkv_proj", {a}, out);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("mul_mat", component, {a, b, nullptr}, out);
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION("softmax", "attention", inputs, out);
    RESOURCE_TRACK_COMPUTE_OP("softmax", "attention", inputs, nullptr);
    RESOURCE_TRACK_KV_CACHE(3, "update", ggml_nbytes(a));
    if (g_resource_instr) {
        g_resource_instr->set_level(llama_resource_level::VERBOSE);
        g_resource_instr->disable();
        g_resource_instr->enable();
        g_resource_instr->flush();
        const std::string id = g_resource_instr->log_memory_allocation(a, component);
        g_resource_instr->log_memory_deallocation(id);
        g_resource_instr->log_compute_operation("add", "mlp", inputs, out);
        (*g_resource_instr).end_session();
    }
    if (g_resource_instr != nullptr && nullptr != g_resource_instr && g_resource_instr.get() != nullptr && !(g_resource_instr == nullptr)) {
        g_resource_instr.reset();
    }
    llama_resource_instrumentation local(llama_resource_level::MINIMAL, "other.jsonl");
    local.begin_layer(1);
    llama_resource_instrumentation_free();
}
