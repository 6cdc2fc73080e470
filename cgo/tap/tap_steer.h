// tap_steer.h: vectors that are added to the residual stream and exchanged while the model runs.
#ifndef LLAMATAP_TAP_STEER_H
#define LLAMATAP_TAP_STEER_H

#include "tap_context.h"

// tap_steer_call makes the newest vectors those of a context that is about to compute, and notes for the sequences of
// the batch by which vectors their cells are computed. rows: NULL where they are not known.
void tap_steer_call(struct tap_context * c, const struct tap_rows_list * rows);

// tap_steer_find finds the tensors of a context's vectors in a graph that is about to be allocated.
void tap_steer_find(struct ggml_cgraph * graph);

void tap_steer_forget(struct llama_context * ctx);

// What became of the cells of sequences.
void tap_steer_removed(llama_memory_t memory, llama_seq_id seq, llama_pos first, llama_pos end);
void tap_steer_copied(llama_memory_t memory, llama_seq_id from, llama_seq_id to);
void tap_steer_kept(llama_memory_t memory, llama_seq_id seq);
void tap_steer_restored(struct llama_context * ctx, llama_seq_id seq);

// tap_steer_saved notes the state of a sequence that was saved; tap_steer_admits reports whether a saved state was
// computed by the vectors that are in force. The same for files; whole states are never admitted.
void tap_steer_saved(struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size);
void tap_steer_saved_file(struct llama_context * ctx, llama_seq_id seq, const char * path);
bool tap_steer_admits(struct llama_context * ctx, const void * data, size_t size);
bool tap_steer_admits_file(struct llama_context * ctx, const char * path);
bool tap_steer_admits_all(struct llama_context * ctx);

#endif
