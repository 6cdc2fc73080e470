// tap_steer.h: vectors that are added to the residual stream and exchanged while the model runs.
#ifndef LLAMATAP_TAP_STEER_H
#define LLAMATAP_TAP_STEER_H

#include "tap_context.h"

enum { TAP_STEER_PLACES = 16 };

// Memory of a device that some layers' vectors lie in: a table of vectors for each of them, and for the rows of a
// graph, and those that are output, the vector of each.
struct tap_steer_place {
    ggml_backend_buffer_type_t type;
    struct ggml_context *      ctx;
    ggml_backend_buffer_t      buffer;
    struct ggml_tensor *       of[2];
};

// The graph of a context that was allocated last, as far as it adds vectors.
struct tap_steer_graph {
    const struct ggml_cgraph * graph;
    int                        n_adds;   // additions of vectors …
    int                        n_by_row; // … and those that add each row its own; -1: it was not seen allocated
    const struct ggml_tensor * tokens, * pos, * out_ids;
};

// The vectors of a context.
struct tap_steered {
    struct llama_context * ctx;
    bool     armed;
    bool     whole; // parts of a sequence are restored from checkpoints, which are not followed: nothing is reused
    bool     grouped; // micro-batches always are, see struct tap_micro
    bool     refused; // it was said that sequences cannot have vectors of their own
    int32_t  n_embd, n_layer, n_ubatch;
    int      n_found, n_looks;
    struct ggml_tensor ** tensors; // by layer; NULL: not found
    float *  rows;  // that are in force, of the layers 1, 2, 3 …, of each vector
    float *  own;   // rows that the program itself has set; NULL: none
    float *  sum;   // of both, for one layer
    uint64_t own_state;
    uint32_t n_vectors;
    uint64_t states[TAP_STEER_VECTORS];
    uint8_t  of[TAP_STEER_SEQS]; // the vector of each sequence
    uint32_t n_seq;
    uint64_t * cells; // by sequence: the state that they were computed by
    uint64_t * lent;  // by sequence: the state of the sequence that its cells were copied from; 0: its own acts

    // rows that have vectors of their own: see tap_steer_rows.c
    struct ggml_tensor **  tables; // by layer; NULL: none were needed yet
    struct tap_steer_place places[TAP_STEER_PLACES];
    int                    n_places;
    struct tap_steer_graph graph;
    struct tap_rows_list * list; // of the call
    int32_t                only; // vector of all rows of the call, -1: they have several
    int32_t *              room; // of so many parts of n_ubatch numbers as tap_steer_rows.c has
    int32_t                n_of[2]; // numbers that lie in a place's of
};

// tap_steer_on reports whether this process was armed: also when it is not recorded any more.
static inline bool tap_steer_on(void) { return tap.header != NULL && tap.joined && tap.header->steer_bytes != 0; }

// tap_steer_vector is the number of the vector that acts on a sequence.
uint32_t tap_steer_vector(const struct tap_steered * s, llama_seq_id seq);

// tap_steer_current is the state of the context whose graph this thread builds or computes; NULL: it is not armed.
struct tap_steered * tap_steer_current(void);

// By which vectors the cells of a sequence were computed: a state of tap_vectors, or one of these.
enum { TAP_CELLS_NONE = 0, TAP_CELLS_MIXED = 1 };

// tap_steer_state is the state of the vectors that act on a sequence by what was asked for; tap_steer_vector follows
// the sequence that its cells were copied from.
uint64_t tap_steer_state(const struct tap_steered * s, llama_seq_id seq);

// tap_steer_hash distinguishes contents; never TAP_CELLS_NONE, TAP_CELLS_MIXED or TAP_STEER_ZERO.
uint64_t tap_steer_hash(const void * data, size_t n);

// tap_steer_exchange makes the newest vectors those of a steered context.
void tap_steer_exchange(struct tap_context * c);

// tap_steer_write writes the vectors of a layer into its tensors. Nothing computes with them meanwhile.
void tap_steer_write(struct tap_steered * s, int32_t layer);

// tap_steer_call makes the newest vectors those of a context that is about to compute, and notes for the sequences of
// the batch by which vectors their cells are computed. rows: NULL where they are not known.
void tap_steer_call(struct tap_context * c, struct tap_rows_list * rows);

// tap_steer_find finds the tensors of a context's vectors in a graph that is about to be allocated.
void tap_steer_find(struct ggml_cgraph * graph);

void tap_steer_forget(struct llama_context * ctx);

// tap_steer_able reports whether this llama.cpp can add each row a vector of its own.
bool tap_steer_able(void);

// tap_steer_by_row has a graph that is about to be allocated add each row the vector of its sequence, where sequences
// have vectors of their own.
void tap_steer_by_row(ggml_backend_sched_t sched, struct ggml_cgraph * graph);

// tap_steer_rows gives a graph that is about to be computed the vector of each row. Returns false where that cannot be:
// then nothing may be computed.
bool tap_steer_rows(ggml_backend_sched_t sched, struct ggml_cgraph * graph);

// tap_steer_release ends the memory on devices.
void tap_steer_release(struct tap_steered * s);

// What became of the cells of sequences.
void tap_steer_removed(llama_memory_t memory, llama_seq_id seq, llama_pos first, llama_pos end);
void tap_steer_copied(llama_memory_t memory, llama_seq_id from, llama_seq_id to);
void tap_steer_kept(llama_memory_t memory, llama_seq_id seq);
void tap_steer_restored(struct llama_context * ctx, llama_seq_id seq);

// tap_steer_saved notes the state of a sequence that was saved; tap_steer_admits reports whether a saved state was
// computed by the vectors that are in force for a sequence. The same for files; whole states are never admitted.
void tap_steer_saved(struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size);
void tap_steer_saved_file(struct llama_context * ctx, llama_seq_id seq, const char * path);
bool tap_steer_admits(struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size);
bool tap_steer_admits_file(struct llama_context * ctx, llama_seq_id seq, const char * path);
bool tap_steer_admits_all(struct llama_context * ctx);

#endif
