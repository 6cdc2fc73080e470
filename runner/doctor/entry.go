package doctor

import "strings"

// An evidence is a group of llama.cpp's functions that the tap calls or stands before, and what is not recorded
// without one of them.
type evidence struct {
	name      string
	costs     string
	functions []string
}

// entries are the functions of TAP_REAL_FUNCTIONS in cgo/tap/tap_real.h; a test compares the two.
var entries = []evidence{
	{"graphs", "no recording: graphs cannot be followed", strings.Fields(`
		ggml_graph_n_nodes ggml_graph_node ggml_op_desc ggml_type_size ggml_blck_size ggml_backend_buffer_is_host
		ggml_backend_tensor_get ggml_backend_sched_alloc_graph ggml_backend_sched_graph_compute_async
		ggml_backend_sched_set_eval_callback ggml_backend_sched_reset ggml_backend_sched_free`)},
	{"tensors", "no recording: the tap cannot prove how tensors are laid out", strings.Fields(`
		ggml_init ggml_free ggml_tensor_overhead ggml_new_tensor_4d ggml_view_1d ggml_permute ggml_mul_mat ggml_set_name
		ggml_set_input ggml_get_data ggml_op_name ggml_type_name`)},
	{"cuts of the graph", "what they cost the model: overheads leave it out", strings.Fields(`
		ggml_add ggml_new_graph_custom ggml_build_forward_expand ggml_backend_graph_compute ggml_backend_get_device
		ggml_backend_sched_get_n_backends ggml_backend_sched_get_backend`)},
	{"whole graphs", "no evidence, but time: graphs are cut for the tensors that are captured", strings.Fields(`
		ggml_graph_nodes ggml_graph_size ggml_backend_sched_reserve_size ggml_backend_sched_get_tensor_backend
		ggml_backend_tensor_get_async ggml_backend_synchronize ggml_backend_dev_memory`)},
	{"batches", "sequences and positions of what a program decodes", strings.Fields(`
		llama_batch_get_one llama_batch_init llama_batch_free llama_decode llama_encode llama_process
		llama_batch_ext_init llama_batch_ext_free llama_batch_ext_clear llama_batch_ext_add llama_batch_ext_add_token
		llama_batch_ext_add_embd llama_batch_ext_add_seq llama_batch_ext_set_pos llama_batch_ext_set_output_logits
		llama_batch_ext_set_output_embd`)},
	{"requests", "which request a token belongs to, and what was a warm-up", strings.Fields(`
		llama_memory_clear llama_memory_seq_rm llama_memory_seq_cp llama_memory_seq_keep llama_memory_seq_add
		llama_memory_seq_div llama_set_sampler llama_state_seq_set_data_ext llama_state_seq_load_file
		llama_state_set_data llama_state_load_file
		llama_sampler_sample llama_sampler_accept llama_synchronize llama_get_logits llama_get_logits_ith
		llama_get_embeddings llama_get_embeddings_ith llama_get_embeddings_seq llama_get_sampled_token_ith`)},
	{"contexts", "settings of contexts and models in metadata.json", strings.Fields(`
		llama_context_default_params llama_init_from_model llama_free llama_model_load_from_file
		llama_model_load_from_file_ptr llama_model_load_from_splits llama_get_memory llama_get_model
		llama_model_get_vocab llama_vocab_n_tokens llama_n_ctx llama_n_batch llama_n_ubatch llama_n_seq_max
		llama_model_n_layer llama_model_n_embd llama_model_n_head llama_model_n_head_kv llama_model_n_ctx_train
		llama_model_size llama_model_n_params llama_model_ftype llama_model_is_recurrent llama_model_is_hybrid
		llama_model_desc llama_model_meta_val_str`)},
	{"steering", "control vectors (--tap-steer)", strings.Fields(`
		llama_set_adapter_cvec ggml_backend_tensor_set llama_model_n_swa llama_memory_seq_pos_min
		llama_state_seq_get_data_ext llama_state_seq_save_file`)},
	{"sequences", "a control vector of one sequence (ctl steer … sequence N)", strings.Fields(`
		ggml_graph_get_tensor ggml_backend_alloc_ctx_tensors_from_buft ggml_backend_sched_set_tensor_backend
		ggml_backend_supports_buft`)},
	{"versions", "which llama.cpp and ggml a program ran", strings.Fields("ggml_version llama_version")},
	{"buffers", "where tensors lie in memory, allocations and frees", strings.Fields(`
		ggml_backend_buft_alloc_buffer ggml_backend_dev_buffer_from_host_ptr ggml_backend_buffer_free
		ggml_backend_buffer_set_usage ggml_backend_buffer_get_base ggml_backend_buffer_get_size
		ggml_backend_buffer_get_usage ggml_backend_buffer_get_type ggml_backend_buft_name
		ggml_backend_buft_get_device ggml_backend_dev_name ggml_backend_dev_type`)},
	{"devices", "when a device has computed a graph", strings.Fields("ggml_backend_sched_synchronize")},
	{"moves", "bytes that go to devices at once (--tap-hosts)", strings.Fields("ggml_backend_tensor_set_async")},
	{"reserve", "no evidence, but time: the first graph is read when it is computed, and not before",
		strings.Fields("ggml_backend_sched_reserve")},
	{"samplers", "what samplers chose from", strings.Fields("llama_sampler_apply")},
	{"served requests", "arrivals, ends and causes in requests.parquet (--tap-requests)", strings.Fields(`
		llama_tokenize llama_set_adapters_lora llama_vocab_is_eog`)},
	{"copies", "no evidence, but time: one thread copies large tensors, and not all that compute", strings.Fields(`
		ggml_backend_reg_by_name ggml_backend_reg_get_proc_address llama_n_threads llama_n_threads_batch`)},
	{"loading", "programs under the tap may find no CPU backend", strings.Fields(`
		ggml_backend_load_all ggml_backend_load_all_from_path ggml_backend_reg_count`)},
}
