// tap.h: the tap's insides. One C object without Go: it is linked into the Go runner and built as a preloadable
// library.
#ifndef LLAMATAP_TAP_H
#define LLAMATAP_TAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama.h"
#include "tap_atomic.h"
#include "tap_real.h"
#include "tap_shm.h"

// ---- shared memory, queue, pool -------------------------------------------------------------------------------------

struct tap_rows_list;
struct tap_sched;

// A llama_context that has been seen. It is used by one thread at a time, as llama.cpp wants it; what other threads
// may touch (a sampler's accept flags every context) is atomic, or guarded by tap.lock where it says so.
struct tap_context {
    struct llama_context *  ptr;        // guarded; NULL: the entry is free
    _Atomic(llama_memory_t) memory;
    _Atomic uint32_t        number;
    int32_t                 flash_attn;
    bool                    announced;  // guarded
    _Atomic bool            provisional; // nothing yet tells its decodes from a warm-up
    _Atomic bool            pending;     // has provisional executions; changes under the lock
    uint64_t                batch_hash;  // of the first provisional call
    int64_t                 pending_tokens; // guarded
    int64_t                 pending_first;  // guarded
    _Atomic uint32_t        flags;       // enum tap_call_flag, since the last call
    _Atomic uint64_t        last_exec;
    uint64_t                told_graph;  // the newest graph of it that the collector knows, 0: none
    struct tap_rows_list *  rows;        // of the batch of the call that runs; kept for the next one
};

enum { TAP_MAX_SCHEDS = 64, TAP_MAX_CONTEXTS = 64, TAP_FEW_CONTEXTS = 4 };

// The tap of this process. header is NULL while nothing is recorded; every interposed function looks at that first.
struct tap {
    struct tap_header * header;
    uint8_t *           base; // start of the shared memory
    _Atomic uint32_t    lock; // see tap_lock: of queue_head, of the pool's bit map and of the tables of contexts and schedulers
    uint64_t *          used; // bit map of slots in use, one bit per slot
    size_t              used_words;
    size_t              first_free_word; // no free slot stands before this word
    bool                starved;  // policy drop: the pool was full, and too little of it has come back since
    int64_t             woken_ns; // when the collector was woken for want of room
    uint64_t            none_of; // of so many slots or more no run is free …
    size_t              none_in; // … in this many words, until slots come back
    uint64_t            n_used;
    _Atomic uint64_t    n_ready;    // slots whose pages were touched
    _Atomic uint32_t    pool_waiting; // threads of the model that wait for slots
    uint64_t            reserved;   // reservations so far
    uint32_t            window_of;    // newest selection with a window of tokens: guarded by lock, as is …
    int64_t             window_first; // … the token that the window begins with
    uint8_t *           queue;      // queue_bytes of the shared memory
    uint64_t            queue_bytes;
    _Atomic uint64_t    opened;     // where what is being written begins, or was
    uint64_t            queue_tail; // the collector's place in the queue, when last looked at
    _Atomic bool        recording; // set while this process is recorded
    _Atomic bool        given;     // the memory is mapped, and nothing of llama.cpp was called yet
    bool                joined;    // this process is, or was, the one that is recorded
    bool                aside;     // the tap's own threads were started
    bool                touched;   // … and that which touches the pool
    bool                cut_off;   // there is a collector, whose memory this process was not handed
    _Atomic bool        turning;   // recording by turns
    _Atomic bool        judged;    // the collector has dealt with the first graph of tokens
    bool                watched;   // a thread of its own notices that the collector is gone
    int                 life_fd;   // pipe whose other end the collector holds; -1: none
    uint32_t            layouts;   // enum tap_layout
    _Atomic bool        counting;  // the collector writes no more: see TAP_COUNTS
    _Atomic int64_t     told_own_ns, told_wait_ns; // of stats, what the ends of executions have reported
    _Atomic uint64_t    next_exec;
    int64_t             next_token; // number of the next token in the run: guarded by lock, as are …
    struct tap_sched *  scheds[TAP_MAX_SCHEDS]; // … these
    struct tap_context  few_contexts[TAP_FEW_CONTEXTS]; // the first ones
};

// What an execution looks at of this lies in one page, whose address is translated anew once the weights have
// passed. What that saves was less than could be measured.
extern struct tap tap;
_Static_assert(sizeof(struct tap) <= 2048, "it is aligned so as to lie in one page");
extern const uint32_t tap_build[2];

// TAP_HOT is what runs for every graph, and lies together; TAP_RARE what does not, and is kept out of its way.
// While a model computes, its weights drive everything else out of the caches: what is run once a token costs as
// much as the lines that its code and data lie in.
#define TAP_HOT __attribute__((section("tap_hot"), noinline))
#define TAP_RARE __attribute__((cold, noinline))

// tap_say writes one line about the recording to stderr. Never in the course of a graph.
void tap_say(const char * text, const char * name, const char * rest);
void tap_say_cut_off(void);

// tap_attach maps the shared memory behind fd and checks it. life_fd is a pipe that ends with the collector, or -1.
// Both stay open, for processes that this one starts. Returns 0, or an errno value.
int tap_attach(int fd, int life_fd);

// tap_join_now makes this process the one that is recorded, unless another one is.
void tap_join_now(void);

// tap_enter stands where a process begins to use llama.cpp: there it joins.
static inline void tap_enter(void) {
    if (__builtin_expect(tap_get(&tap.given), 0)) {
        tap_join_now();
    } else if (__builtin_expect(tap.cut_off, 0)) {
        tap_say_cut_off();
    }
}

// tap_aside_start starts the tap's own threads, once, in a process whose collector gave it a pipe.
// tap_collector_lives is for waits of processes that have none.
void tap_aside_start(void);
// tap_touch_start starts touching the pool's pages, once: not before tensors are wanted, for it takes the model's
// time. ahead: nothing of the pool is in use yet, and what was not touched shall not be.
void tap_touch_start(bool ahead);
// tap_touch_await waits until the pages are touched, a second at most: before the first graph of a model that may
// not wait later.
void tap_touch_await(void);
bool tap_collector_lives(void);

// tap_log_start has llama.cpp's log written out when the program ends.
void tap_log_start(void);

// tap_detach says goodbye to the collector. Safe to call twice. The memory stays mapped: other threads may still be
// inside.
void tap_detach(void);

// tap_leave_memory says goodbye and unmaps the memory, so that another can be attached. No other thread may use
// llama.cpp meanwhile.
void tap_leave_memory(void);

bool tap_recording(void); // whether this process is recorded, or will be when it uses llama.cpp

int64_t tap_now(void); // CLOCK_MONOTONIC in nanoseconds

static inline bool tap_on(void) {
    return __builtin_expect(tap.header != NULL && tap_peek(&tap.recording), 0);
}

// TAP_OWN is what each thread has one of, at a place that is known when the program starts: to find it takes no call.
#define TAP_OWN _Thread_local __attribute__((tls_model("initial-exec")))

// What this thread spent inside of the tap that is not the work of the function that measures itself: waiting for
// room, reading new graphs. Both are counted for themselves.
struct tap_thread {
    uint64_t waited_ns, described_ns;
};
extern TAP_OWN struct tap_thread tap_thread;

// tap_own_until returns the time from began to ended without what the thread has waited and described since before;
// tap_own_since that until now.
static inline uint64_t tap_own_until(int64_t began, int64_t ended, const struct tap_thread * before) {
    const uint64_t other = tap_thread.waited_ns - before->waited_ns + tap_thread.described_ns - before->described_ns;
    const uint64_t all = (uint64_t) (ended - began);
    return all > other ? all - other : 0;
}

static inline uint64_t tap_own_since(int64_t began, const struct tap_thread * before) { return tap_own_until(began, tap_now(), before); }

// tap_turn stands before a decode of so many tokens, where recording may end or begin.
void tap_turn_call(int32_t n_tokens);
static inline void tap_turn(int32_t n_tokens) {
    if (__builtin_expect(tap_get(&tap.turning), 0)) {
        tap_turn_call(n_tokens);
    }
}

static inline void tap_add(_Atomic uint64_t * counter, uint64_t n) { tap_count(counter, n); }

#include "tap_queue.h"

// tap_pool_passes says that an execution need not be stopped for tensors that would be dropped: policy drop found
// the pool full, and less than a quarter of it is free again. So what is recorded on a slow disk is whole
// executions, and those between run as if nothing was recorded.
bool tap_pool_passes(void);

// Slots are taken back from the collector once in so many reservations, and whenever none is free.
enum { TAP_TAKE_BACK_EVERY = 16 };

// tap_pool_reserve takes n neighbouring slots and returns the first one's number, or -1 where policy drop or a dead
// collector forbids waiting. wait_ns grows by the time spent waiting.
int64_t tap_pool_reserve(uint64_t n, uint64_t * wait_ns, enum tap_loss * cause);

// tap_pool_ready reports that the pages of the first n_slots slots were touched. Under the policy block no others are
// handed out, except to a model that has waited for some milliseconds. tap_pool_limit sets their number, before the
// first reservation; other threads may call tap_pool_ready only after it.
void tap_pool_ready(uint64_t n_slots);
void tap_pool_limit(uint64_t n_slots);

// tap_pool_cancel gives slots back that were reserved and not published.
void tap_pool_cancel(uint64_t first, uint64_t n);

static inline uint8_t * tap_slot(uint64_t number) {
    return tap.base + tap.header->slots_offset + number * tap.header->slot_bytes;
}

void tap_loss_add(enum tap_loss cause, uint64_t packets, uint64_t bytes);
struct tap_sched;
// tap_sched_lost counts what is lost of an execution, and was not counted as selected.
void tap_sched_lost(struct tap_sched * s, enum tap_loss cause, uint64_t packets, uint64_t bytes);

#include "tap_graph.h"

// ---- contexts, schedulers, executions -------------------------------------------------------------------------------

// A run of neighbouring rows that are captured together.
struct tap_run {
    int32_t row;   // first row in the tensor
    int32_t token; // first token row of the micro-batch
    int32_t count;
};

// Which tokens a selection wants, see struct tap_selection.
struct tap_token_rule {
    uint32_t kind;
    int64_t  first, end, step;
    int64_t  window;
};

enum { TAP_FEW_ROWS = 24 };

// A ggml scheduler, the place where a context's graphs are computed.
// What is computed to learn what a cut of the graph costs, see tap_cut.c.
struct tap_cut {
    bool                  tried;
    ggml_backend_t        backend;
    struct ggml_context * ctx;
    struct ggml_cgraph *  one;
    struct ggml_cgraph *  two; // NULL: it cannot be learnt
};

struct tap_sched {
    ggml_backend_sched_t             ptr;
    ggml_backend_sched_eval_callback user_callback; // the program's own
    void *                           user_data;
    bool                             installed; // our callback is set
    bool                             computing; // inside of graph_compute_async
    struct tap_context *             context;
    struct tap_graph                 graph;
    uint64_t                         exec;
    int                              cursor;    // next node that ggml should ask for
    int                              at;        // node whose data phase comes next
    bool                             user_wants;
    bool                             capturing; // wanted tensors of this execution are copied
    uint64_t                         asks_ns; // what asking for every node of the graph took, measured once per graph
    bool                             untold; // the collector was not told of this execution: its packets are lost …
    enum tap_loss                    untold_cause; // … for this cause
    uint64_t                         waited_ns; // for slots, over all executions
    int32_t *                        rows; // tokens, positions, output ids of the execution: few_rows, or …
    int32_t *                        scratch; // … where there are more
    size_t                           scratch_size;
    int32_t                          few_rows[TAP_FEW_ROWS];
    struct tap_run *                 runs; // runs of token rows, then of output rows
    size_t                           cap_runs;
    int                              n_token_runs, n_output_runs;
    struct tap_token_rule            tokens; // of the selection that the graph is marked by
    int64_t                          window_first, window_end; // tokens of this execution that lie between may be captured
    int64_t                          begin_ns; // when ggml was given the graph
    uint8_t *                        fetched;  // an input of a device
    size_t                           cap_fetched;
    uint32_t                         running;  // graphs that a device may go on computing
    uint64_t                         running_exec; // the newest of them
    struct tap_time *                times;    // of this execution
    size_t                           cap_times;
    uint32_t                         n_times;
    bool                             lossy;    // of this execution something is lost
    uint64_t                         selected_packets, selected_bytes; // of this execution
    uint32_t                         n_cuts;   // ranges of this execution that ggml computed and waited for because of us, but the last
    struct tap_out                   out; // what its entry tells
    struct tap_rec_losses            losses; // of this execution, where it is lossy
    struct tap_cut                   cut;
};

// tap_cut_probe measures, behind some executions, what one cut of a graph costs, in nanoseconds; 0: not this time.
uint64_t tap_cut_probe(struct tap_sched * s);
void tap_cut_release(struct tap_sched * s);

// ---- batches --------------------------------------------------------------------------------------------------------

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
    struct tap_rows_list * next;
};

// tap_batch_of returns the list of a llama_batch_ext, made where make says so; NULL without memory.
struct tap_rows_list * tap_batch_of(const void * batch, bool make);

// tap_rows_of_batch reads a llama_batch into the list of its context. Returns NULL without memory, and where
// llama_batch is laid out otherwise than it is known here.
struct tap_rows_list * tap_rows_of_batch(struct llama_context * ctx, const struct tap_by_value * batch);

// tap_rows_hash tells batches apart; never 0.
uint64_t tap_rows_hash(const struct tap_rows_list * l);

// The call that this thread is inside of.
struct tap_call {
    struct tap_context * context;
    uint64_t             number;
};
extern TAP_OWN struct tap_call tap_current_call;

struct tap_context * tap_context_of(struct llama_context * ptr);
void tap_context_forget(struct llama_context * ptr);
void tap_contexts_each(void (*fn)(struct tap_context *, void *), void * user_data);

// tap_context_number gives a context its number, once, and tells the collector of it.
void tap_context_number(struct tap_context * c);
void tap_context_announce(struct tap_context * c);
struct tap_sched *   tap_sched_of(ggml_backend_sched_t ptr, bool make);

// tap_select marks s's graph by the collector's newest selection. tap_select_init forgets what was read from memory
// joined before.
void tap_select(struct tap_sched * s);

// tap_select_ahead counts what selection 0 marks of a graph that is measured and not computed.
void tap_select_ahead(struct tap_graph * g);
void tap_select_init(void);

// tap_context_resolve decides what a provisional context's executions were: the run, or (discarded) set-up.
void tap_context_resolve(struct tap_context * c, bool discarded);

// tap_seq_cleared tells the collector that a memory was emptied.
void tap_seq_cleared(llama_memory_t memory);

// tap_resolve_all settles what is still open when the process ends: nothing was thrown away, so it was the run.
void tap_resolve_all(void);

// tap_described accounts for time that went into the description of a graph; rebuilt: one that is told of as a
// change of the one before.
void tap_described(uint64_t took, bool rebuilt);

// tap_exec_begin and tap_exec_end frame one execution of s's graph, which was entered, or left, at a time.
void tap_exec_begin(struct tap_sched * s, int64_t entered);
void tap_exec_end(struct tap_sched * s, enum ggml_status status, int64_t left);

// tap_sync_end tells that the scheduler was synchronised, which began at a time: what was computed for it is done.
void tap_sync_end(struct tap_sched * s, int64_t began);

// tap_capture_wanted copies node i, which is wanted, into slots and publishes it, or counts it as lost where s is
// untold; tap_capture_node does that in the node's data phase, for whatever purpose it is wanted.
void tap_capture_wanted(struct tap_sched * s, int i);
void tap_capture_node(struct tap_sched * s, int i);

// tap_time_asks measures what the asks of one execution cost.
void tap_time_asks(struct tap_sched * s);

// tap_capture_inputs copies the wanted inputs at graph entry: their memory is used again during the graph.
void tap_capture_inputs(struct tap_sched * s);

// ---- what else is told of an execution ------------------------------------------------------------------------------

// tap_look marks the nodes that are timed, and those that tell of routing; tap_mark_inputs the inputs whose
// contents are told.
void tap_look(struct tap_graph * g, const struct tap_selection * wish);
void tap_mark_inputs(struct tap_graph * g, const struct tap_selection * wish);

// tap_times_room makes room for the times of an execution. tap_time_note notes the end of node i, whose data phase
// began at done.
bool tap_times_room(struct tap_sched * s);
void tap_time_note(struct tap_sched * s, int i, int64_t done, int64_t left);
void tap_times_send(struct tap_sched * s);

// tap_inputs_send tells of the contents of inputs at graph entry.
void tap_inputs_send(struct tap_sched * s, struct tap_out * out);

// tap_buffer_of is the buffer that a tensor's bytes lie in, or NULL.
static inline ggml_backend_buffer_t tap_buffer_of(const struct ggml_tensor * t) { return t->view_src != NULL ? t->view_src->buffer : t->buffer; }

// tap_is_here says whether a tensor's bytes lie in this process.
bool tap_is_here(const struct ggml_tensor * t);

// tap_samples_wanted says whether what samplers chose from is told of.
extern _Atomic bool tap_samples_wanted;

// tap_sample_accepted tells of the choice that this thread's outermost sampler made, once its token is accepted.
void tap_sample_accepted(llama_token token);

// tap_last_context is the number of the context of this thread's last call, UINT32_MAX before there was one.
uint32_t tap_last_context(void);

// ---- buffers --------------------------------------------------------------------------------------------------------

// tap_buffers_announce tells of every buffer that this process has, when it is first recorded.
void tap_buffers_announce(void);

// tap_buffers_age counts the buffers that came and went: while it stays the same, what lies at an address lies in
// the same buffer.
extern _Atomic uint64_t tap_buffers_age;

// tap_mapped_file returns the path of the file that an address is mapped from, which the caller frees, and where in
// it that is. NULL: of none.
char * tap_mapped_file(const void * at, uint64_t * offset);

// Buffers that were asked for last: most neighbours lie in one of a few.
struct tap_nearby {
    struct {
        ggml_backend_buffer_t ptr;
        uint64_t              number, base;
    } of[4];
    unsigned next;
};

// tap_where says in which buffer a tensor's bytes lie. buffer is 0 where that is not known. near begins empty, and
// no buffer may end meanwhile.
void tap_where(struct tap_nearby * near, const struct ggml_tensor * t, uint64_t * buffer, uint64_t * offset);

// tap_copy_bytes copies n bytes of t, from offset on, to dst; host: they lie in this process.
void tap_copy_bytes(uint8_t * dst, const struct ggml_tensor * t, bool host, size_t offset, size_t n);

// tap_copy copies count[0..3] elements from start[0..3] of t, in logical order, to dst.
bool tap_copy(uint8_t * dst, const struct ggml_tensor * t, bool host, const int64_t * start, const int64_t * count);

#endif
