// instrument_event.c: what the program says of sessions, tensors, operations and caches.
#define _GNU_SOURCE
#include "instrument.h"

#include <stdio.h>

// tensor_of reads a tensor that a program compiled with another version of the header may have described.
static bool tensor_of(struct llama_resource_tensor * to, const struct llama_resource_tensor * from) {
    memset(to, 0, sizeof(*to));
    if (from == NULL || from->size < 2 * sizeof(uint32_t)) {
        return false;
    }
    memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
    return true;
}

// ---- sessions -------------------------------------------------------------------------------------------------------

INSTR_API void llama_resource_instr_begin_session(struct llama_resource_instr * instr, const char * session_id) {
    struct instr_call c;
    if (!instr_enter(&c, instr)) {
        return;
    }
    instr_copy(instr->session, sizeof(instr->session), session_id);
    memset(&instr->total, 0, sizeof(instr->total));
    instr->flows = instr->unmatched_ends = instr->left_open = 0;
    struct instr_memory * m = &instr->memory;
    m->peak_bytes = m->live_bytes;
    m->allocated_bytes = m->freed_bytes = m->untracked = m->unmatched = 0;
    instr_begin(&c, INSTR_TRACKING_BEGIN, "measured");
    instr_end(&c);
    instr_leave(&c);
}

static void nonzero(struct llama_resource_instr * s, const char * key, uint64_t n) {
    if (n > 0) {
        instr_uint(s, key, n);
    }
}

static void lost(struct llama_resource_instr * s) {
    bool any = false;
    for (int cause = 0; cause < INSTR_CAUSES; cause++) {
        uint64_t n = 0;
        char entry[64];
        for (int kind = 0; kind < INSTR_KINDS; kind++) {
            n += s->lost[kind][cause];
        }
        if (n > 0) {
            snprintf(entry, sizeof(entry), "%s\"%s\":%llu", any ? "," : ",\"lost\":{", instr_causes[cause],
                     (unsigned long long) n);
            instr_raw(s, entry);
            any = true;
        }
    }
    if (any) {
        instr_raw(s, "}");
    }
}

INSTR_API void llama_resource_instr_end_session(struct llama_resource_instr * instr) {
    struct instr_call c;
    if (!instr_enter(&c, instr)) {
        return;
    }
    struct instr_memory * m = &instr->memory;
    instr_begin(&c, INSTR_SUMMARY, "computed");
    instr_raw(instr, ",\"sources\":{\"component_flows\":\"measured\",\"events\":\"measured\"}");
    instr_mib(instr, "total_memory_mb", m->peak_bytes);
    instr_ratio(instr, "total_compute_gflops", instr->total.flops, 1000000000);
    instr_uint(instr, "component_flows", instr->flows);
    instr_uint(instr, "peak_live_bytes", m->peak_bytes);
    instr_uint(instr, "allocated_bytes", m->allocated_bytes);
    instr_uint(instr, "freed_bytes", m->freed_bytes);
    instr_uint(instr, "flops", instr->total.flops);
    instr_uint(instr, "memory_operations", instr->total.memory_operations);
    instr_uint(instr, "compute_operations", instr->total.compute_operations);
    nonzero(instr, "ops_without_flops", instr->total.without_flops);
    instr_uint(instr, "events", instr->events);
    lost(instr);
    nonzero(instr, "unmatched_ends", instr->unmatched_ends);
    nonzero(instr, "left_open", instr->left_open);
    nonzero(instr, "untracked_allocations", m->untracked);
    nonzero(instr, "unmatched_deallocations", m->unmatched);
    instr_end(&c);
    instr_flush(instr, c.mono_ns);
    instr_leave(&c);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static void allocation_line(struct instr_call * c, const struct llama_resource_tensor * t, const struct instr_live * a,
                            const char * id) {
    struct llama_resource_instr * s = c->instr;
    instr_begin(c, INSTR_ALLOCATION, "computed");
    instr_raw(s, t->address != 0 ? ",\"sources\":{\"memory_address\":\"measured\",\"memory_type\":\"measured\"}" : "");
    instr_key(s, "resource_id");
    instr_quoted(s, id, LLAMA_RESOURCE_ID_SIZE);
    instr_text(s, "component_type", a->component);
    instr_int(s, "layer_id", a->layer_id);
    instr_text(s, "name", t->name);
    instr_uint(s, "allocation_bytes", t->bytes);
    instr_mib(s, "allocation_size_mb", t->bytes);
    if (t->address != 0) {
        instr_text(s, "memory_type", t->host ? "ram" : "vram");
    }
    if (t->buffer_type != NULL) {
        instr_text(s, "buffer_type", t->buffer_type);
    }
    if (t->device != NULL) {
        instr_text(s, "device", t->device);
    }
    instr_shape(s, "tensor_shape", t);
    instr_text(s, "precision", t->type);
    uint64_t f32;
    if (t->value_bytes > 0 && instr_f32_bytes(t, &f32) && f32 > 0) {
        instr_ratio(s, "compression_ratio", f32, t->value_bytes);
    }
    if (t->address != 0) {
        instr_hex(s, "memory_address", t->address);
    }
    instr_uint(s, "live_bytes", s->memory.live_bytes);
    instr_end(c);
}

INSTR_API void llama_resource_instr_memory_allocation(struct llama_resource_instr * instr,
                                                      const struct llama_resource_tensor * tensor,
                                                      const char * component_type, char * id, size_t id_size) {
    struct instr_call c;
    struct llama_resource_tensor t;
    struct instr_live a = {0};
    char made[LLAMA_RESOURCE_ID_SIZE];
    if (id != NULL && id_size > 0) {
        id[0] = 0;
    }
    if (!tensor_of(&t, tensor) || !instr_enter(&c, instr)) {
        return;
    }
    a.layer_id = instr_layer(instr, t.name);
    a.address = t.root_address;
    a.bytes = t.root_bytes;
    a.mono_ns = c.mono_ns;
    a.host = t.host != 0;
    instr_device(a.device, sizeof(a.device), t.device, a.host);
    instr_copy(a.component, sizeof(a.component), component_type);
    instr_id(&c, made, a.device, "memory", a.layer_id, a.component);
    a.number = instr->last_id_us;
    if (a.address != 0) { // what is not allocated yet takes no memory
        instr_memory_add(&instr->memory, &a);
    }
    instr_work(instr, &(struct instr_work) {.memory_bytes = t.bytes, .memory_operations = 1});
    if (id != NULL) { // also where nothing is written: the sums take the deallocation
        instr_copy(id, id_size, made);
    }
    if (instr->level >= INSTR_LEVEL_DETAILED || t.bytes >= INSTR_MINIMAL_BYTES) {
        allocation_line(&c, &t, &a, made);
    }
    instr_leave(&c);
}

INSTR_API void llama_resource_instr_log_memory_deallocation(struct llama_resource_instr * instr,
                                                            const char * resource_id) {
    struct instr_call c;
    struct instr_live a;
    if (!instr_enter(&c, instr)) {
        return;
    }
    if (instr_memory_take(&instr->memory, resource_id, &a) && instr->level >= INSTR_LEVEL_DETAILED) {
        instr_begin(&c, INSTR_DEALLOCATION, "computed");
        instr_raw(instr, ",\"sources\":{\"memory_address\":\"measured\",\"memory_type\":\"measured\","
                         "\"lifetime_us\":\"measured\"}");
        instr_key(instr, "resource_id");
        instr_quoted(instr, resource_id, LLAMA_RESOURCE_ID_SIZE);
        instr_text(instr, "component_type", a.component);
        instr_int(instr, "layer_id", a.layer_id);
        instr_uint(instr, "allocation_bytes", a.bytes);
        instr_mib(instr, "allocation_size_mb", a.bytes);
        instr_text(instr, "memory_type", a.host ? "ram" : "vram");
        instr_hex(instr, "memory_address", a.address);
        instr_uint(instr, "live_bytes", instr->memory.live_bytes);
        instr_uint(instr, "lifetime_us", (c.mono_ns - a.mono_ns) / 1000);
        instr_end(&c);
    }
    instr_leave(&c);
}

// ---- operations -----------------------------------------------------------------------------------------------------

static void input_names(struct llama_resource_instr * s, const struct llama_resource_tensor * inputs, size_t n,
                        size_t all) {
    instr_key(s, "input_tensors");
    for (size_t i = 0; i < n; i++) {
        bool named = inputs[i].name != NULL && inputs[i].name[0] != 0;
        instr_raw(s, i == 0 ? "[" : ",");
        instr_quoted(s, named ? inputs[i].name : "unnamed_tensor", INSTR_NAME);
    }
    instr_raw(s, n == 0 ? "[]" : "]");
    if (all > n) {
        instr_uint(s, "input_tensors_left_out", all - n);
    }
}

static void resource_id(struct instr_call * c, const struct llama_resource_tensor * t, const char * type, int layer,
                        const char * component) {
    char id[LLAMA_RESOURCE_ID_SIZE], device[32];
    instr_device(device, sizeof(device), t != NULL ? t->device : NULL, t != NULL && t->host);
    instr_id(c, id, device, type, layer, component);
    instr_key(c->instr, "resource_id");
    instr_quoted(c->instr, id, LLAMA_RESOURCE_ID_SIZE);
}

// A compute operation, as it was reported.
struct reported {
    const char * operation, * component;
    struct llama_resource_tensor inputs[LLAMA_RESOURCE_MAX_INPUTS], output;
    size_t n, all;
    bool   has_output, has_flops, has_bytes;
    int    layer;
    uint64_t flops, read, written;
};

static void compute_line(struct instr_call * c, const struct reported * o) {
    struct llama_resource_instr * s = c->instr;
    instr_begin(c, INSTR_COMPUTE, "computed");
    resource_id(c, o->has_output ? &o->output : &o->inputs[0], "compute", o->layer, o->component);
    instr_text(s, "operation", o->operation);
    instr_text(s, "component_type", o->component);
    instr_int(s, "layer_id", o->layer);
    input_names(s, o->inputs, o->n, o->all);
    if (o->has_output) {
        instr_text(s, "name", o->output.name);
        instr_shape(s, "output_shape", &o->output);
        instr_text(s, "precision", o->output.type);
    }
    if (o->has_flops) {
        instr_uint(s, "flops", o->flops);
        instr_ratio(s, "compute_intensity_gflops", o->flops, 1000000000);
    }
    if (o->has_bytes) {
        instr_uint(s, "bytes_read", o->read);
        instr_uint(s, "bytes_written", o->written);
    }
    if (o->has_flops && o->has_bytes && o->read + o->written > 0) {
        instr_ratio(s, "arithmetic_intensity", o->flops, o->read + o->written);
    }
    instr_end(c);
}

INSTR_API void llama_resource_instr_compute_operation(struct llama_resource_instr * instr, const char * operation,
                                                      const char * component_type,
                                                      const struct llama_resource_tensor * inputs,
                                                      size_t n_inputs, const struct llama_resource_tensor * output) {
    static const int from[] = {
        [INSTR_CLASS_UNKNOWN] = INSTR_LEVEL_DETAILED, [INSTR_CLASS_PRODUCT] = INSTR_LEVEL_MINIMAL,
        [INSTR_CLASS_OTHER] = INSTR_LEVEL_DETAILED, [INSTR_CLASS_ELEMENTWISE] = INSTR_LEVEL_VERBOSE,
    };
    struct instr_call c;
    struct reported o = {.operation = operation, .component = component_type, .all = n_inputs};
    if (n_inputs == 0 || !instr_enter(&c, instr)) {
        return;
    }
    o.n = n_inputs < LLAMA_RESOURCE_MAX_INPUTS ? n_inputs : LLAMA_RESOURCE_MAX_INPUTS;
    for (size_t i = 0; i < o.n; i++) { // the size is the same in all of an array
        tensor_of(&o.inputs[i], (const void *) ((const char *) inputs + i * inputs[0].size));
    }
    o.has_output = tensor_of(&o.output, output);
    o.layer = instr_layer(instr, o.has_output ? o.output.name : NULL);
    o.has_flops = instr_flops(operation, o.inputs, o.n, o.has_output ? &o.output : NULL, &o.flops);
    o.has_bytes = instr_bytes(operation, o.has_output ? &o.output : NULL, &o.read, &o.written);
    struct instr_work work = {.compute_operations = 1, .flops = o.has_flops ? o.flops : 0,
        .without_flops = !o.has_flops};
    instr_work(instr, &work);
    if (instr->level >= from[instr_class(operation, o.has_output ? &o.output : NULL)]) {
        compute_line(&c, &o);
    }
    instr_leave(&c);
}

INSTR_API void llama_resource_instr_mlp_operation(struct llama_resource_instr * instr, const char * mlp_op,
                                                  const struct llama_resource_tensor * weights,
                                                  const struct llama_resource_tensor * activations) {
    struct instr_call c;
    struct llama_resource_tensor w, a;
    bool has_activations = tensor_of(&a, activations);
    if (!tensor_of(&w, weights) || !instr_enter(&c, instr)) {
        return;
    }
    if (instr->level >= INSTR_LEVEL_DETAILED) {
        int layer = instr_layer(instr, w.name);
        instr_begin(&c, INSTR_MLP, "computed");
        resource_id(&c, has_activations ? &a : &w, "mlp", layer, mlp_op);
        instr_text(instr, "mlp_operation", mlp_op);
        instr_int(instr, "layer_id", layer);
        instr_shape(instr, "weight_shape", &w);
        if (has_activations) {
            instr_shape(instr, "activation_shape", &a);
            instr_mib(instr, "intermediate_size_mb", a.bytes);
            if (instr_activation(&a) != NULL) {
                instr_text(instr, "activation_function", instr_activation(&a));
            }
        }
        instr_end(&c);
    }
    instr_leave(&c);
}

INSTR_API void llama_resource_instr_log_component_handoff(struct llama_resource_instr * instr,
                                                          const char * from_component,
                                                          const char * to_component) {
    struct instr_call c;
    char pair[2 * INSTR_TEXT + 8];
    if (!instr_enter(&c, instr)) {
        return;
    }
    instr->flows++;
    if (instr->level >= INSTR_LEVEL_DETAILED) {
        int layer = instr_layer(instr, NULL);
        instr_begin(&c, INSTR_HANDOFF, "measured");
        snprintf(pair, sizeof(pair), "%.200s_to_%.200s", from_component != NULL ? from_component : "",
                 to_component != NULL ? to_component : "");
        resource_id(&c, NULL, "flow", layer, pair);
        instr_text(instr, "from_component", from_component);
        instr_text(instr, "to_component", to_component);
        instr_int(instr, "layer_id", layer);
        instr_end(&c);
    }
    instr_leave(&c);
}

INSTR_API void llama_resource_instr_log_kv_cache_operation(struct llama_resource_instr * instr, int layer_id,
                                                           const char * operation,
                                                           size_t cache_size_bytes) {
    struct instr_call c;
    char name[32];
    if (!instr_enter(&c, instr)) {
        return;
    }
    if (instr->level >= INSTR_LEVEL_DETAILED) {
        instr_begin(&c, INSTR_KV, "computed");
        snprintf(name, sizeof(name), "kv_layer_%d", layer_id);
        resource_id(&c, NULL, "cache", layer_id, name);
        instr_text(instr, "cache_type", "key_value");
        instr_int(instr, "layer_id", layer_id);
        instr_uint(instr, "cache_bytes", cache_size_bytes);
        instr_mib(instr, "cache_size_mb", cache_size_bytes);
        instr_text(instr, "cache_operation", operation);
        instr_end(&c);
    }
    instr_leave(&c);
}
