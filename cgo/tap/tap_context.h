// tap_context.h: contexts, the rows of their batches, and calls.
#ifndef LLAMATAP_TAP_CONTEXT_H
#define LLAMATAP_TAP_CONTEXT_H

#include "llama.h"
#include "tap_real.h"
#include "tap_state.h"

struct tap_match;
struct tap_rows_list;
struct tap_steered;

enum { TAP_MAX_CONTEXTS = 64 };

// A llama_context that has been seen. It is used by one thread at a time, as llama.cpp wants it; what other threads
// may touch (a sampler's accept flags every context) is atomic, or guarded by tap.lock where it says so.
struct tap_context {
    struct llama_context *  ptr;        // guarded; NULL: the entry is free
    _Atomic(llama_memory_t) memory;
    _Atomic uint32_t        number;
    int32_t                 flash_attn;
    bool                    announced;  // guarded
    _Atomic bool            provisional; // nothing yet distinguishes its decodes from a warm-up
    _Atomic bool            pending;     // has provisional executions; changes under the lock
    uint64_t                batch_hash;  // of the first provisional call
    int64_t                 pending_tokens; // guarded
    int64_t                 pending_first;  // guarded
    _Atomic uint32_t        flags;       // enum tap_call_flag, since the last call
    _Atomic uint64_t        last_exec;
    uint64_t                told_graph;  // the newest graph of it that the collector knows, 0: none
    struct tap_rows_list *  rows;        // of the batch of the call that runs; kept for the next one
    struct tap_steered *    steered;     // NULL: no vectors are added, see tap_steer.c
    bool                    unsteered;   // … nor will be
    uint32_t                steer;       // number of the vectors that its graphs add
};

// A sequence of a row beyond its first.
struct tap_extra {
    int32_t row, seq;
};

// The rows of a call. For llama_batch_ext, whose insides are not public, they are noted as the program adds them.
struct tap_rows_list {
    const void *          batch;
    struct llama_context * ctx;
    struct tap_call_row * rows;
    size_t                rows_bytes;
    int32_t               n;
    struct tap_extra *    extra;
    size_t                extra_bytes;
    int32_t               n_extra;
    struct tap_match *    matched; // rows that micro-batches have taken, and groups of the others
    size_t                matched_bytes;
    int32_t               cursor;  // rows that were taken in the batch's order
    struct tap_rows_list * next;
};

// tap_rows_begin forgets which rows of a batch have been computed. Returns false without memory.
bool tap_rows_begin(struct tap_rows_list * l);

// A micro-batch: n rows with their tokens and positions (NULL: its graph has none), of a context whose micro-batches
// have at most n_ubatch rows; grouped: by sequence always, as recurrent memory wants it.
struct tap_micro {
    const int32_t * tokens;
    const int32_t * pos;
    int32_t         n, n_ubatch;
    bool            grouped;
};

// tap_rows_match finds the rows of a batch that the rows of its next micro-batch are, as llama.cpp splits a batch;
// tokens and positions prove it. Returns false where they do not.
bool tap_rows_match(struct tap_rows_list * l, const struct tap_micro * m, int32_t * rows);

// tap_batch_of returns the list of a llama_batch_ext, made where make says so; NULL without memory.
struct tap_rows_list * tap_batch_of(const void * batch, bool make);

// tap_rows_of_batch reads a llama_batch into the list of its context. Returns NULL without memory, and where
// llama_batch is laid out otherwise than it is known here.
struct tap_rows_list * tap_rows_of_batch(struct llama_context * ctx, const struct tap_by_value * batch);

// tap_rows_hash distinguishes batches; never 0.
uint64_t tap_rows_hash(const struct tap_rows_list * l);

// The call that this thread is inside of.
struct tap_call {
    struct tap_context * context;
    uint64_t             number;
    uint32_t             flags; // enum tap_call_flag: what the program had done since the call before
};
extern TAP_OWN struct tap_call tap_current_call;

struct tap_context * tap_context_of(struct llama_context * ptr);
void tap_context_forget(struct llama_context * ptr);
void tap_contexts_each(void (*fn)(struct tap_context *, void *), void * user_data);

// tap_context_number gives a context its number, once, and reports it.
void tap_context_number(struct tap_context * c);
void tap_context_announce(struct tap_context * c);

// tap_model_note keeps the path of a model that was loaded; tap_model_path copies it, "" where it is not known.
void tap_model_note(const struct llama_model * model, const char * path);
void tap_model_path(const struct llama_model * model, char path[TAP_PATH_SIZE]);

// tap_context_resolve decides what a provisional context's executions were: the run, or (discarded) set-up.
void tap_context_resolve(struct tap_context * c, bool discarded);

// tap_seq_cleared reports to the collector that a memory was emptied.
void tap_seq_cleared(llama_memory_t memory);

// tap_resolve_all settles what is still open when the process ends: nothing was thrown away, so it was the run.
void tap_resolve_all(void);

// tap_last_context is the number of the context of this thread's last call, UINT32_MAX before there was one.
extern TAP_OWN uint32_t tap_last_context;

#endif
