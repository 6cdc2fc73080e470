// llama-resource-instrumentation.h: a program that runs llama.cpp or ggml says what it does, and it is written down
// as resource events, one line of JSON each. For C (C99 with GNU's compiler or Clang's) and C++ (C++11); link with
// -lllama-resource-instrumentation.
//
// It stands in for the header of the LLaMA Resource Instrumentation System: functions, class, levels, variables of
// the environment and both families of macros have the names and parameters that they have there, so that its users
// compile unchanged. What is written is different: times are measured, sizes and FLOPs computed from shapes, and
// what is not known is left out. docs/INSTRUMENT.md says what stands in which line.
//
// Every function may be called from any thread. With instrumentation off a macro is one branch and evaluates none
// of its arguments.
#ifndef LLAMA_RESOURCE_INSTRUMENTATION_H
#define LLAMA_RESOURCE_INSTRUMENTATION_H

#include "ggml.h"
#include "ggml-backend.h"
#if defined(__has_include)
#if __has_include("llama.h")
#include "llama.h" // programs expect this header to bring it
#endif
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
// Programs expect this header to bring these too.
#include <chrono>
#include <fstream>
#include <iomanip>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>
extern "C" {
#endif

// What the library says on stderr begins with this.
#define RESOURCE_LOG_PREFIX "[RESOURCE] "

#ifdef __cplusplus
#define LLAMA_RESOURCE_LEVEL int // the values of llama_resource_level
#else
// How much is written.
enum llama_resource_level {
    LLAMA_RESOURCE_MINIMAL,  // sessions, matrix products, allocations of 1 MiB and more
    // also layers, components, what passes between them, caches, other allocations, norms and activations
    LLAMA_RESOURCE_DETAILED,
    LLAMA_RESOURCE_VERBOSE,  // also element-wise operations and copies
};
#define LLAMA_RESOURCE_LEVEL enum llama_resource_level
#endif

// One file of events, with what is known of the program that writes it.
struct llama_resource_instr;

// ---- the library's functions ----------------------------------------------------------------------------------------
//
// Of a null instr, and of one that is off, nothing is written. Texts are UTF-8; what is longer than 200 bytes is
// cut off, NULL is "".

// init opens the program's own file, which the macros write to; lines are appended. LLAMA_RESOURCE_DISABLED,
// LLAMA_RESOURCE_LOG_LEVEL and LLAMA_RESOURCE_LOG_PATH in the environment overrule the program. A second call does
// nothing. Where the file cannot be opened that is said on stderr, and instrumentation stays off. free writes what
// is left and closes it; so does the end of the program.
void llama_resource_instrumentation_init(LLAMA_RESOURCE_LEVEL level, const char * path);
void llama_resource_instrumentation_free(void);

// open opens a further file, NULL where that fails; close ends it, and nobody may use it from then on.
struct llama_resource_instr * llama_resource_instr_open(LLAMA_RESOURCE_LEVEL level, const char * path);
void                          llama_resource_instr_close(struct llama_resource_instr * instr);

// global is the program's own file, open or not, never NULL; is_open reports whether it is.
struct llama_resource_instr * llama_resource_instr_global(void);
bool                          llama_resource_instr_is_open(const struct llama_resource_instr * instr);

void llama_resource_instr_enable(struct llama_resource_instr * instr);
void llama_resource_instr_disable(struct llama_resource_instr * instr); // open layers and components are forgotten
void llama_resource_instr_flush(struct llama_resource_instr * instr);
void llama_resource_instr_set_level(struct llama_resource_instr * instr, LLAMA_RESOURCE_LEVEL level);

void llama_resource_instr_begin_session(struct llama_resource_instr * instr, const char * session_id);
void llama_resource_instr_end_session(struct llama_resource_instr * instr);

// Layers and components are those of the calling thread. The end of what is not open is counted, not written.
void llama_resource_instr_begin_layer(struct llama_resource_instr * instr, int layer_id);
void llama_resource_instr_end_layer(struct llama_resource_instr * instr, int layer_id);
void llama_resource_instr_begin_component(struct llama_resource_instr * instr, const char * component_type);
void llama_resource_instr_end_component(struct llama_resource_instr * instr, const char * component_type);

// log_memory_deallocation takes the resource_id of the allocation.
void llama_resource_instr_log_memory_deallocation(struct llama_resource_instr * instr, const char * resource_id);
void llama_resource_instr_log_component_handoff(struct llama_resource_instr * instr, const char * from_component,
                                                const char * to_component);
void llama_resource_instr_log_kv_cache_operation(struct llama_resource_instr * instr, int layer_id,
                                                 const char * operation,
                                                 size_t cache_size_bytes);

enum {
    LLAMA_RESOURCE_MAX_INPUTS = 16, // of an operation; what is more is counted in its line
    LLAMA_RESOURCE_MAX_SOURCES = 5,
    LLAMA_RESOURCE_ID_SIZE = 512, // bytes that hold any resource_id
};

// What the library needs to know of a tensor. The functions below fill it in, with the ggml that the program is
// compiled and linked with: the library itself knows no ggml.
struct llama_resource_tensor {
    uint32_t     size;   // of this structure
    int32_t      n_dims; // of ne that say something
    int64_t      ne[4];
    uint64_t     bytes, value_bytes; // that it spans, and that its own values take
    const char * name, * type, * op; // as ggml calls them
    int32_t      op_params[8];
    // root is the tensor that this one views, or itself; 0: not allocated
    uint64_t     address, root_address, root_bytes;
    const char * device, * buffer_type;             // NULL: in no buffer
    int32_t      host;                              // the processor can read it
    uint32_t     sources;                           // bit s: it has source s
    int64_t      source_ne[LLAMA_RESOURCE_MAX_SOURCES][4];
    uint64_t     source_bytes[LLAMA_RESOURCE_MAX_SOURCES]; // that their values take
};

// The same three as below, of what is known of tensors. id may be NULL, or gets the resource_id, "" where nothing
// was written.
void llama_resource_instr_memory_allocation(struct llama_resource_instr * instr,
                                            const struct llama_resource_tensor * tensor,
                                            const char * component_type, char * id, size_t id_size);
void llama_resource_instr_compute_operation(struct llama_resource_instr * instr, const char * operation,
                                            const char * component_type,
                                            const struct llama_resource_tensor * inputs, size_t n_inputs,
                                            const struct llama_resource_tensor * output);
void llama_resource_instr_mlp_operation(struct llama_resource_instr * instr, const char * mlp_op,
                                        const struct llama_resource_tensor * weights,
                                        const struct llama_resource_tensor * activations);

// Not 0 while the program's own file is open and enabled.
extern int llama_resource_instr_on;

#ifdef __cplusplus
}
#endif

// ---- tensors --------------------------------------------------------------------------------------------------------

static inline void llama_resource_describe_buffer(struct llama_resource_tensor * d, ggml_backend_buffer_t buffer) {
    if (buffer == NULL) {
        d->host = d->address != 0;
        return;
    }
    ggml_backend_dev_t device = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(buffer));
    d->buffer_type = ggml_backend_buffer_name(buffer);
    d->device = device != NULL ? ggml_backend_dev_name(device) : NULL;
    d->host = ggml_backend_buffer_is_host(buffer);
}

// The bytes of a tensor's values, of a view only its own.
static inline uint64_t llama_resource_value_bytes(const struct ggml_tensor * t) {
    return (uint64_t) ggml_row_size(t->type, t->ne[0]) * (uint64_t) ggml_nrows(t);
}

static inline void llama_resource_describe(struct llama_resource_tensor * d, const struct ggml_tensor * t) {
    const struct ggml_tensor * root = t;
    memset(d, 0, sizeof(*d));
    d->size = (uint32_t) sizeof(*d);
    d->n_dims = ggml_n_dims(t);
    memcpy(d->ne, t->ne, sizeof(d->ne));
    d->bytes = ggml_nbytes(t);
    d->value_bytes = llama_resource_value_bytes(t);
    memcpy(d->op_params, t->op_params, sizeof(d->op_params));
    d->name = t->name;
    d->type = ggml_type_name(t->type);
    d->op = ggml_op_desc(t);
    d->address = (uint64_t) (uintptr_t) t->data;
    while (root->view_src != NULL) {
        root = root->view_src;
    }
    d->root_address = (uint64_t) (uintptr_t) root->data;
    d->root_bytes = ggml_nbytes(root);
    llama_resource_describe_buffer(d, root->buffer != NULL ? root->buffer : t->buffer);
    for (int s = 0; s < LLAMA_RESOURCE_MAX_SOURCES; s++) {
        if (t->src[s] != NULL) {
            memcpy(d->source_ne[s], t->src[s]->ne, sizeof(d->source_ne[s]));
            d->source_bytes[s] = llama_resource_value_bytes(t->src[s]);
            d->sources |= UINT32_C(1) << s;
        }
    }
}

// The tensors that an operation reads.
struct llama_resource_inputs {
    const struct ggml_tensor * const * tensors;
    size_t                             n;
};

static inline void llama_resource_instr_log_memory_allocation_id(struct llama_resource_instr * instr,
    const struct ggml_tensor * tensor,
    const char * component_type, char * id, size_t id_size) {
    struct llama_resource_tensor d;
    if (id != NULL && id_size > 0) {
        id[0] = 0;
    }
    if (tensor != NULL) {
        llama_resource_describe(&d, tensor);
        llama_resource_instr_memory_allocation(instr, &d, component_type, id, id_size);
    }
}

static inline void llama_resource_instr_log_memory_allocation(struct llama_resource_instr * instr,
                                                              const struct ggml_tensor * tensor,
                                                              const char * component_type) {
    llama_resource_instr_log_memory_allocation_id(instr, tensor, component_type, NULL, 0);
}

static inline void llama_resource_instr_log_compute_operation(struct llama_resource_instr * instr,
                                                              const char * operation,
                                                              const char * component_type,
                                                              struct llama_resource_inputs inputs,
                                                              const struct ggml_tensor * output) {
    struct llama_resource_tensor in[LLAMA_RESOURCE_MAX_INPUTS], out;
    for (size_t i = 0; i < inputs.n && i < LLAMA_RESOURCE_MAX_INPUTS; i++) {
        if (inputs.tensors[i] != NULL) {
            llama_resource_describe(&in[i], inputs.tensors[i]);
        } else {
            memset(&in[i], 0, sizeof(in[i]));
            in[i].size = (uint32_t) sizeof(in[i]);
        }
    }
    if (output != NULL) {
        llama_resource_describe(&out, output);
    }
    if (inputs.n > 0) {
        llama_resource_instr_compute_operation(instr, operation, component_type, in, inputs.n,
                                               output != NULL ? &out : NULL);
    }
}

static inline void llama_resource_instr_log_mlp_operation(struct llama_resource_instr * instr, const char * mlp_op,
                                                          const struct ggml_tensor * weights,
                                                          const struct ggml_tensor * activations) {
    struct llama_resource_tensor w, a;
    if (weights == NULL) {
        return;
    }
    llama_resource_describe(&w, weights);
    if (activations != NULL) {
        llama_resource_describe(&a, activations);
    }
    llama_resource_instr_mlp_operation(instr, mlp_op, &w, activations != NULL ? &a : NULL);
}

// ---- C --------------------------------------------------------------------------------------------------------------

#ifndef __cplusplus

// The program's own file; NULL while it is not open.
extern struct llama_resource_instr * g_resource_instr;

// The inputs of an operation, in C: LLAMA_RESOURCE_INPUTS(a, b).
#define LLAMA_RESOURCE_INPUTS(...) \
    ((struct llama_resource_inputs) {(const struct ggml_tensor * const[]) {__VA_ARGS__}, \
                                     sizeof((const struct ggml_tensor * const[]) {__VA_ARGS__}) / sizeof(void *)})

#define LLAMA_RESOURCE_DO(method, ...) llama_resource_instr_##method(llama_resource_instr_global(), __VA_ARGS__)
#define LLAMA_RESOURCE_END_SESSION_() llama_resource_instr_end_session(llama_resource_instr_global())

#else

// ---- C++ ------------------------------------------------------------------------------------------------------------

// How much is written; the values are those of the C enumeration, which says what each brings.
enum class llama_resource_level { MINIMAL, DETAILED, VERBOSE };

// A file of events. One that a program makes itself closes with the object.
class llama_resource_instrumentation {
public:
    llama_resource_instrumentation(llama_resource_level level, const std::string & log_path)
        : instr_(llama_resource_instr_open(static_cast<int>(level), log_path.c_str())), owned_(true) {}
    ~llama_resource_instrumentation() {
        if (owned_) {
            llama_resource_instr_close(instr_);
        }
    }
    llama_resource_instrumentation(const llama_resource_instrumentation &) = delete;
    llama_resource_instrumentation & operator=(const llama_resource_instrumentation &) = delete;

    // global is the program's own file, open or not.
    static llama_resource_instrumentation & global() {
        static llama_resource_instrumentation own(llama_resource_instr_global());
        return own;
    }

    void enable() { llama_resource_instr_enable(instr_); }
    void disable() { llama_resource_instr_disable(instr_); }
    void flush() { llama_resource_instr_flush(instr_); }
    void set_level(llama_resource_level level) { llama_resource_instr_set_level(instr_, static_cast<int>(level)); }

    void begin_session(const std::string & session_id) {
        llama_resource_instr_begin_session(instr_, session_id.c_str());
    }
    void end_session() { llama_resource_instr_end_session(instr_); }
    void begin_layer(int layer_id) { llama_resource_instr_begin_layer(instr_, layer_id); }
    void end_layer(int layer_id) { llama_resource_instr_end_layer(instr_, layer_id); }
    void begin_component(const std::string & component_type) {
        llama_resource_instr_begin_component(instr_, component_type.c_str());
    }
    void end_component(const std::string & component_type) {
        llama_resource_instr_end_component(instr_, component_type.c_str());
    }

    // log_memory_allocation returns the resource_id, which log_memory_deallocation takes; "" while instrumentation is
    // off.
    std::string log_memory_allocation(const ggml_tensor * tensor, const std::string & component_type) {
        char id[LLAMA_RESOURCE_ID_SIZE];
        llama_resource_instr_log_memory_allocation_id(instr_, tensor, component_type.c_str(), id, sizeof(id));
        return id;
    }
    void log_memory_deallocation(const std::string & resource_id) {
        llama_resource_instr_log_memory_deallocation(instr_, resource_id.c_str());
    }
    void log_compute_operation(const std::string & operation, const std::string & component_type,
                               const std::vector<const ggml_tensor *> & inputs, const ggml_tensor * output) {
        llama_resource_inputs all = {inputs.data(), inputs.size()};
        llama_resource_instr_log_compute_operation(instr_, operation.c_str(), component_type.c_str(), all, output);
    }
    void log_component_handoff(const std::string & from_component, const std::string & to_component) {
        llama_resource_instr_log_component_handoff(instr_, from_component.c_str(), to_component.c_str());
    }
    void log_kv_cache_operation(int layer_id, const std::string & operation, size_t cache_size_bytes) {
        llama_resource_instr_log_kv_cache_operation(instr_, layer_id, operation.c_str(), cache_size_bytes);
    }
    void log_mlp_operation(const std::string & mlp_op, const ggml_tensor * weights, const ggml_tensor * activations) {
        llama_resource_instr_log_mlp_operation(instr_, mlp_op.c_str(), weights, activations);
    }

private:
    explicit llama_resource_instrumentation(llama_resource_instr * instr) : instr_(instr), owned_(false) {}

    llama_resource_instr * instr_;
    bool                   owned_;
};

// The program's own file, as a pointer that is null while it is not open. Its methods may be called even then, and
// do nothing.
class llama_resource_global_pointer {
public:
    llama_resource_instrumentation * get() const { return *this ? &llama_resource_instrumentation::global() : nullptr; }
    llama_resource_instrumentation * operator->() const { return &llama_resource_instrumentation::global(); }
    llama_resource_instrumentation & operator*() const { return llama_resource_instrumentation::global(); }
    explicit operator bool() const { return llama_resource_instr_is_open(llama_resource_instr_global()); }
    friend bool operator==(const llama_resource_global_pointer & p, std::nullptr_t) { return !p; }
    friend bool operator!=(const llama_resource_global_pointer & p, std::nullptr_t) { return static_cast<bool>(p); }
    friend bool operator==(std::nullptr_t, const llama_resource_global_pointer & p) { return !p; }
    friend bool operator!=(std::nullptr_t, const llama_resource_global_pointer & p) { return static_cast<bool>(p); }
    void reset() const { llama_resource_instrumentation_free(); }
};

static const llama_resource_global_pointer g_resource_instr = {};

inline void llama_resource_instrumentation_init(llama_resource_level level, const std::string & log_path) {
    llama_resource_instrumentation_init(static_cast<int>(level), log_path.c_str());
}

#define LLAMA_RESOURCE_INPUTS(...) (std::vector<const ggml_tensor *> {__VA_ARGS__})
#define LLAMA_RESOURCE_DO(method, ...) llama_resource_instrumentation::global().method(__VA_ARGS__)
#define LLAMA_RESOURCE_END_SESSION_() llama_resource_instrumentation::global().end_session()

#endif

// ---- macros ---------------------------------------------------------------------------------------------------------

#define LLAMA_RESOURCE_IF_ON(call) \
    do { \
        if (__builtin_expect(__atomic_load_n(&llama_resource_instr_on, __ATOMIC_RELAXED), 0)) { \
            call; \
        } \
    } while (0)

#define LLAMA_RESOURCE_BEGIN_SESSION(session_id) LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(begin_session, session_id))
#define LLAMA_RESOURCE_END_SESSION() LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_END_SESSION_())
#define LLAMA_RESOURCE_BEGIN_LAYER(layer_id) LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(begin_layer, layer_id))
#define LLAMA_RESOURCE_END_LAYER(layer_id) LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(end_layer, layer_id))
#define LLAMA_RESOURCE_BEGIN_COMPONENT(component_type) LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(begin_component, \
    component_type))
#define LLAMA_RESOURCE_END_COMPONENT(component_type) LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(end_component, \
    component_type))
#define LLAMA_RESOURCE_LOG_COMPONENT_HANDOFF(from_component, to_component) \
    LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(log_component_handoff, from_component, to_component))
#define LLAMA_RESOURCE_LOG_MEMORY_ALLOCATION(tensor, component_type) \
    LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(log_memory_allocation, tensor, component_type))
#define LLAMA_RESOURCE_LOG_MEMORY_DEALLOCATION(resource_id) \
    LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(log_memory_deallocation, resource_id))
// The inputs may be written as {a, b} in C++, and what follows them is the output.
#define LLAMA_RESOURCE_LOG_COMPUTE_OPERATION(operation, component_type, ...) \
    LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(log_compute_operation, operation, component_type, __VA_ARGS__))
#define LLAMA_RESOURCE_LOG_MLP_OPERATION(operation, weights, activations) \
    LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(log_mlp_operation, operation, weights, activations))

#define RESOURCE_TRACK_MEMORY_ALLOC(tensor, component) LLAMA_RESOURCE_LOG_MEMORY_ALLOCATION(tensor, component)
#define RESOURCE_TRACK_COMPUTE_OP(operation, component, ...) \
    LLAMA_RESOURCE_LOG_COMPUTE_OPERATION(operation, component, __VA_ARGS__)
#define RESOURCE_TRACK_COMPONENT_BEGIN(component) LLAMA_RESOURCE_BEGIN_COMPONENT(component)
#define RESOURCE_TRACK_COMPONENT_END(component) LLAMA_RESOURCE_END_COMPONENT(component)
#define RESOURCE_TRACK_LAYER_BEGIN(layer_id) LLAMA_RESOURCE_BEGIN_LAYER(layer_id)
#define RESOURCE_TRACK_LAYER_END(layer_id) LLAMA_RESOURCE_END_LAYER(layer_id)
#define RESOURCE_TRACK_MLP_OP(operation, weights, activations) LLAMA_RESOURCE_LOG_MLP_OPERATION(operation, weights, \
    activations)
#define RESOURCE_TRACK_KV_CACHE(layer_id, operation, size_bytes) \
    LLAMA_RESOURCE_IF_ON(LLAMA_RESOURCE_DO(log_kv_cache_operation, layer_id, operation, size_bytes))
#define RESOURCE_TRACK_HANDOFF(from_component, to_component) LLAMA_RESOURCE_LOG_COMPONENT_HANDOFF(from_component, \
    to_component)

#endif
