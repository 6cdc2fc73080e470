// tap_real.h: the entry points of llama.cpp that the tap calls or stands before, as tap_real.c finds them.
#ifndef LLAMATAP_TAP_REAL_H
#define LLAMATAP_TAP_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama.h"

// What a function of llama.h takes or returns by value: a structure whose size another llama.cpp may have changed.
// Its bytes are handed on as they are, with what follows them in memory, so that a program is served right whatever
// the structure is; its fields are looked at only where tap_layouts has found them to be those of the llama.h that
// this is compiled with.
struct tap_by_value {
    _Alignas(8) uint8_t bytes[512];
};

// Every function of ggml and llama.cpp that the tap calls or stands before, looked up at start. A missing one is a null
// pointer and costs only the evidence that needs it.
#define TAP_REAL_FUNCTIONS(X) \
    X(int, ggml_graph_n_nodes, (struct ggml_cgraph *)) \
    X(struct ggml_tensor *, ggml_graph_node, (struct ggml_cgraph *, int)) \
    X(struct ggml_tensor **, ggml_graph_nodes, (struct ggml_cgraph *)) \
    X(int, ggml_graph_size, (struct ggml_cgraph *)) \
    X(struct ggml_tensor *, ggml_graph_get_tensor, (const struct ggml_cgraph *, const char *)) \
    X(const char *, ggml_op_desc, (const struct ggml_tensor *)) \
    X(size_t, ggml_type_size, (enum ggml_type)) \
    X(int64_t, ggml_blck_size, (enum ggml_type)) \
    X(bool, ggml_backend_buffer_is_host, (ggml_backend_buffer_t)) \
    X(void, ggml_backend_tensor_get, (const struct ggml_tensor *, void *, size_t, size_t)) \
    X(void, ggml_backend_tensor_set, (struct ggml_tensor *, const void *, size_t, size_t)) \
    X(void *, ggml_backend_buffer_get_base, (ggml_backend_buffer_t)) \
    X(size_t, ggml_backend_buffer_get_size, (ggml_backend_buffer_t)) \
    X(enum ggml_backend_buffer_usage, ggml_backend_buffer_get_usage, (ggml_backend_buffer_t)) \
    X(ggml_backend_buffer_type_t, ggml_backend_buffer_get_type, (ggml_backend_buffer_t)) \
    X(const char *, ggml_backend_buft_name, (ggml_backend_buffer_type_t)) \
    X(ggml_backend_dev_t, ggml_backend_buft_get_device, (ggml_backend_buffer_type_t)) \
    X(const char *, ggml_backend_dev_name, (ggml_backend_dev_t)) \
    X(enum ggml_backend_dev_type, ggml_backend_dev_type, (ggml_backend_dev_t)) \
    X(void, ggml_backend_dev_memory, (ggml_backend_dev_t, size_t *, size_t *)) \
    X(ggml_backend_buffer_t, ggml_backend_buft_alloc_buffer, (ggml_backend_buffer_type_t, size_t)) \
    X(ggml_backend_buffer_t, ggml_backend_dev_buffer_from_host_ptr, (ggml_backend_dev_t, void *, size_t, size_t)) \
    X(void, ggml_backend_buffer_free, (ggml_backend_buffer_t)) \
    X(void, ggml_backend_buffer_set_usage, (ggml_backend_buffer_t, enum ggml_backend_buffer_usage)) \
    X(void, ggml_backend_load_all, (void)) \
    X(void, ggml_backend_load_all_from_path, (const char *)) \
    X(size_t, ggml_backend_reg_count, (void)) \
    X(ggml_backend_reg_t, ggml_backend_reg_by_name, (const char *)) \
    X(void *, ggml_backend_reg_get_proc_address, (ggml_backend_reg_t, const char *)) \
    X(bool, ggml_backend_sched_alloc_graph, (ggml_backend_sched_t, struct ggml_cgraph *)) \
    X(bool, ggml_backend_sched_reserve, (ggml_backend_sched_t, struct ggml_cgraph *)) \
    X(void, ggml_backend_sched_reserve_size, (ggml_backend_sched_t, struct ggml_cgraph *, size_t *)) \
    X(ggml_backend_t, ggml_backend_sched_get_tensor_backend, (ggml_backend_sched_t, struct ggml_tensor *)) \
    X(void, ggml_backend_tensor_set_async, (ggml_backend_t, struct ggml_tensor *, const void *, size_t, size_t)) \
    X(void, ggml_backend_tensor_get_async, (ggml_backend_t, const struct ggml_tensor *, void *, size_t, size_t)) \
    X(void, ggml_backend_synchronize, (ggml_backend_t)) \
    X(enum ggml_status, ggml_backend_sched_graph_compute_async, (ggml_backend_sched_t, struct ggml_cgraph *)) \
    X(void, ggml_backend_sched_set_eval_callback, (ggml_backend_sched_t, ggml_backend_sched_eval_callback, void *)) \
    X(void, ggml_backend_sched_synchronize, (ggml_backend_sched_t)) \
    X(void, ggml_backend_sched_reset, (ggml_backend_sched_t)) \
    X(void, ggml_backend_sched_free, (ggml_backend_sched_t)) \
    X(struct ggml_context *, ggml_init, (struct ggml_init_params)) \
    X(void, ggml_free, (struct ggml_context *)) \
    X(size_t, ggml_tensor_overhead, (void)) \
    X(struct ggml_tensor *, ggml_new_tensor_4d, (struct ggml_context *, enum ggml_type, int64_t, int64_t, \
                                                 int64_t, int64_t)) \
    X(struct ggml_tensor *, ggml_view_1d, (struct ggml_context *, struct ggml_tensor *, int64_t, size_t)) \
    X(struct ggml_tensor *, ggml_permute, (struct ggml_context *, struct ggml_tensor *, int, int, int, int)) \
    X(struct ggml_tensor *, ggml_add, (struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *)) \
    X(ggml_backend_buffer_t, ggml_backend_alloc_ctx_tensors_from_buft, (struct ggml_context *, \
                                                                        ggml_backend_buffer_type_t)) \
    X(void, ggml_backend_sched_set_tensor_backend, (ggml_backend_sched_t, struct ggml_tensor *, ggml_backend_t)) \
    X(bool, ggml_backend_supports_buft, (ggml_backend_t, ggml_backend_buffer_type_t)) \
    X(struct ggml_cgraph *, ggml_new_graph_custom, (struct ggml_context *, size_t, bool)) \
    X(void, ggml_build_forward_expand, (struct ggml_cgraph *, struct ggml_tensor *)) \
    X(enum ggml_status, ggml_backend_graph_compute, (ggml_backend_t, struct ggml_cgraph *)) \
    X(ggml_backend_dev_t, ggml_backend_get_device, (ggml_backend_t)) \
    X(int, ggml_backend_sched_get_n_backends, (ggml_backend_sched_t)) \
    X(ggml_backend_t, ggml_backend_sched_get_backend, (ggml_backend_sched_t, int)) \
    X(struct ggml_tensor *, ggml_mul_mat, (struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *)) \
    X(struct ggml_tensor *, ggml_set_name, (struct ggml_tensor *, const char *)) \
    X(void, ggml_set_input, (struct ggml_tensor *)) \
    X(void *, ggml_get_data, (const struct ggml_tensor *)) \
    X(const char *, ggml_op_name, (enum ggml_op)) \
    X(const char *, ggml_type_name, (enum ggml_type)) \
    X(const char *, ggml_version, (void)) \
    X(const char *, llama_version, (void)) \
    X(struct tap_by_value, llama_batch_get_one, (llama_token *, int32_t)) \
    X(struct tap_by_value, llama_batch_init, (int32_t, int32_t, int32_t)) \
    X(void, llama_batch_free, (struct tap_by_value)) \
    X(struct tap_by_value, llama_context_default_params, (void)) \
    X(int32_t, llama_decode, (struct llama_context *, struct tap_by_value)) \
    X(int32_t, llama_encode, (struct llama_context *, struct tap_by_value)) \
    X(int32_t, llama_process, (struct llama_context *, enum llama_process_type, struct llama_batch_ext *)) \
    X(struct llama_batch_ext *, llama_batch_ext_init, (struct llama_context *)) \
    X(void, llama_batch_ext_free, (struct llama_batch_ext *)) \
    X(void, llama_batch_ext_clear, (struct llama_batch_ext *)) \
    X(int32_t, llama_batch_ext_add, (struct llama_batch_ext *, llama_seq_id)) \
    X(int32_t, llama_batch_ext_add_token, (struct llama_batch_ext *, llama_seq_id, llama_token)) \
    X(int32_t, llama_batch_ext_add_embd, (struct llama_batch_ext *, llama_seq_id, struct llama_embd)) \
    X(bool, llama_batch_ext_add_seq, (struct llama_batch_ext *, int32_t, llama_seq_id)) \
    X(bool, llama_batch_ext_set_pos, (struct llama_batch_ext *, int32_t, const llama_pos *)) \
    X(bool, llama_batch_ext_set_output_logits, (struct llama_batch_ext *, int32_t, bool)) \
    X(bool, llama_batch_ext_set_output_embd, (struct llama_batch_ext *, int32_t, bool)) \
    X(struct llama_context *, llama_init_from_model, (struct llama_model *, struct tap_by_value)) \
    X(void, llama_free, (struct llama_context *)) \
    X(struct llama_model *, llama_model_load_from_file, (const char *, struct tap_by_value)) \
    X(struct llama_model *, llama_model_load_from_file_ptr, (FILE *, struct tap_by_value)) \
    X(struct llama_model *, llama_model_load_from_splits, (const char **, size_t, struct tap_by_value)) \
    X(void, llama_memory_clear, (llama_memory_t, bool)) \
    X(llama_pos, llama_memory_seq_pos_min, (llama_memory_t, llama_seq_id)) \
    X(bool, llama_memory_seq_rm, (llama_memory_t, llama_seq_id, llama_pos, llama_pos)) \
    X(void, llama_memory_seq_cp, (llama_memory_t, llama_seq_id, llama_seq_id, llama_pos, llama_pos)) \
    X(void, llama_memory_seq_keep, (llama_memory_t, llama_seq_id)) \
    X(void, llama_memory_seq_add, (llama_memory_t, llama_seq_id, llama_pos, llama_pos, llama_pos)) \
    X(void, llama_memory_seq_div, (llama_memory_t, llama_seq_id, llama_pos, llama_pos, int)) \
    X(int32_t, llama_set_adapter_cvec, (struct llama_context *, const float *, size_t, int32_t, int32_t, int32_t)) \
    X(bool, llama_set_sampler, (struct llama_context *, llama_seq_id, struct llama_sampler *)) \
    X(size_t, llama_state_seq_get_data_ext, (struct llama_context *, uint8_t *, size_t, llama_seq_id, \
                                             llama_state_seq_flags)) \
    X(size_t, llama_state_seq_save_file, (struct llama_context *, const char *, llama_seq_id, const llama_token *, \
                                          size_t)) \
    X(size_t, llama_state_seq_set_data_ext, (struct llama_context *, const uint8_t *, size_t, llama_seq_id, \
                                             llama_state_seq_flags)) \
    X(size_t, llama_state_seq_load_file, (struct llama_context *, const char *, llama_seq_id, llama_token *, size_t, \
                                          size_t *)) \
    X(size_t, llama_state_set_data, (struct llama_context *, const uint8_t *, size_t)) \
    X(bool, llama_state_load_file, (struct llama_context *, const char *, llama_token *, size_t, size_t *)) \
    X(llama_token, llama_sampler_sample, (struct llama_sampler *, struct llama_context *, int32_t)) \
    X(void, llama_sampler_apply, (struct llama_sampler *, llama_token_data_array *)) \
    X(void, llama_sampler_accept, (struct llama_sampler *, llama_token)) \
    X(void, llama_synchronize, (struct llama_context *)) \
    X(float *, llama_get_logits, (struct llama_context *)) \
    X(float *, llama_get_logits_ith, (struct llama_context *, int32_t)) \
    X(float *, llama_get_embeddings, (struct llama_context *)) \
    X(float *, llama_get_embeddings_ith, (struct llama_context *, int32_t)) \
    X(float *, llama_get_embeddings_seq, (struct llama_context *, llama_seq_id)) \
    X(llama_token, llama_get_sampled_token_ith, (struct llama_context *, int32_t)) \
    X(llama_memory_t, llama_get_memory, (const struct llama_context *)) \
    X(const struct llama_model *, llama_get_model, (const struct llama_context *)) \
    X(const struct llama_vocab *, llama_model_get_vocab, (const struct llama_model *)) \
    X(int32_t, llama_vocab_n_tokens, (const struct llama_vocab *)) \
    X(uint32_t, llama_n_ctx, (const struct llama_context *)) \
    X(uint32_t, llama_n_batch, (const struct llama_context *)) \
    X(uint32_t, llama_n_ubatch, (const struct llama_context *)) \
    X(int32_t, llama_n_threads, (struct llama_context *)) \
    X(int32_t, llama_n_threads_batch, (struct llama_context *)) \
    X(uint32_t, llama_n_seq_max, (const struct llama_context *)) \
    X(int32_t, llama_model_n_layer, (const struct llama_model *)) \
    X(int32_t, llama_model_n_embd, (const struct llama_model *)) \
    X(int32_t, llama_model_n_swa, (const struct llama_model *)) \
    X(int32_t, llama_model_n_head, (const struct llama_model *)) \
    X(int32_t, llama_model_n_head_kv, (const struct llama_model *)) \
    X(int32_t, llama_model_n_ctx_train, (const struct llama_model *)) \
    X(uint64_t, llama_model_size, (const struct llama_model *)) \
    X(uint64_t, llama_model_n_params, (const struct llama_model *)) \
    X(enum llama_ftype, llama_model_ftype, (const struct llama_model *)) \
    X(bool, llama_model_is_recurrent, (const struct llama_model *)) \
    X(bool, llama_model_is_hybrid, (const struct llama_model *)) \
    X(int32_t, llama_model_desc, (const struct llama_model *, char *, size_t)) \
    X(int32_t, llama_model_meta_val_str, (const struct llama_model *, const char *, char *, size_t)) \
    X(int32_t, llama_tokenize, (const struct llama_vocab *, const char *, int32_t, llama_token *, int32_t, bool, \
                                bool)) \
    X(int32_t, llama_set_adapters_lora, (struct llama_context *, struct llama_adapter_lora **, size_t, float *)) \
    X(bool, llama_vocab_is_eog, (const struct llama_vocab *, llama_token))

struct tap_real {
#define TAP_REAL_FIELD(ret, name, params) ret (*name) params;
    TAP_REAL_FUNCTIONS(TAP_REAL_FIELD)
#undef TAP_REAL_FIELD
};

// The real functions, as far as tap_real_init has found them.
extern struct tap_real tap_real;

// tap_real_init looks up every entry point that is not known yet: before main, and again when a program opens its
// libraries later.
void tap_real_init(void);

// tap_real_find looks for a function of another library that the tap stands before, NULL where none defines it.
void * tap_real_find(const char * name);

// TAP_BEHIND is such a function behind one that the tap stands before, looked for once.
void * tap_behind(_Atomic(void *) * known, const char * name);
#define TAP_BEHIND(name, symbol) ((__typeof__(&name)) tap_behind(&tap_behind_##name, symbol))

// tap_real_missing writes the names of the entry points that were not found, separated by spaces.
void tap_real_missing(char * missing, size_t missing_size);

// tap_dlsym is the C library's dlsym. For RTLD_NEXT it looks behind this object.
void * tap_dlsym(void * handle, const char * name);

// tap_real_need looks for a function that the program calls and that was not there so far. Without it the program
// cannot go on.
void tap_real_need(void * const volatile * function, const char * name);

// TAP_REAL is the real function behind one that the tap stands before.
#define TAP_REAL(name) \
    (__builtin_expect(tap_real.name == NULL, 0) ? tap_real_need((void * const volatile *) (void *) &tap_real.name, \
                                                                #name) : (void) 0, tap_real.name)

// tap_real_loaded says whether some llama.cpp or ggml is in this process.
bool tap_real_loaded(void);

// tap_layouts looks at structures that llama.cpp and ggml fill themselves, and returns those (enum tap_layout) that
// are not what the headers of this build say, or could not be looked at.
uint32_t tap_layouts(void);

// tap_log_start has llama.cpp's log written out when the program ends.
void tap_log_start(void);

#endif
