// tap_sched.h: schedulers, and the executions of their graphs.
#ifndef LLAMATAP_TAP_SCHED_H
#define LLAMATAP_TAP_SCHED_H

#include "tap_context.h"
#include "tap_graph.h"
#include "tap_queue.h"

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
    uint32_t window_of;
};

enum { TAP_FEW_ROWS = 24, TAP_MAX_BACKENDS = 16 };

// What is computed to learn what a cut of the graph costs, see tap_cut.c.
struct tap_cut {
    bool                  tried;
    ggml_backend_t        backend;
    struct ggml_context * ctx;
    struct ggml_cgraph *  one;
    struct ggml_cgraph *  two; // NULL: it cannot be learnt
};

// Tensors on their way from devices into slots, which are published when they have arrived.
struct tap_transfers {
    struct tap_rec_capture * records;
    size_t                   cap;
    uint32_t                 n;
    uint64_t                 n_slots;
    ggml_backend_t           backends[TAP_MAX_BACKENDS]; // that have some of them under way
    int                      n_backends;
};

// The allocator's plan of where the tensors of a graph lie, as far as it is known: see tap_keep.c.
struct tap_plan {
    int                   total;   // nodes that it has, with a pad
    int                   n_nodes; // of the graph that it keeps something of, without a pad; 0: none
    uint64_t              most;    // bytes that one graph may keep, where none were given; 0: not chosen yet
    bool                  another; // the graph that is being allocated needs another one
    uint64_t *            kept;    // bit i: what is captured of node i stays in place
    size_t                cap;
    struct ggml_tensor *  pad; // of the graph that was allocated last; it lies in …
    struct ggml_context * ctx; // … which lies in memory
    _Alignas(16) uint8_t  memory[1024];
};

// The account of what timing executions of about as many tokens costs the model, see tap_budget.c.
struct tap_budget {
    uint64_t executions;
    int64_t  debt_ns;  // what timing has cost beyond its share; below 0: what it may cost
    int64_t  timed_ns; // about the least that one took on a device with times …
    int64_t  plain_ns; // … and without; 0: there was none
};

// Executions of 1, 2 to 3, 4 to 7 … tokens have an account each, the last one all larger ones.
enum { TAP_BUDGETS = 16 };

// A ggml scheduler, the place where a context's graphs are computed.
struct tap_sched {
    ggml_backend_sched_t             ptr;
    ggml_backend_sched_eval_callback user_callback; // the program's own
    void *                           user_data;
    bool                             installed; // our callback is set
    bool                             computing; // inside of graph_compute_async
    struct tap_context *             context;
    struct tap_graph                 graph;
    uint64_t                         exec;
    int64_t                          token_first; // the number of its first token, where it has any
    int                              cursor;    // next node that ggml should ask for
    int                              at;        // node whose data phase comes next
    bool                             user_wants;
    bool                             capturing; // wanted tensors of this execution are copied
    bool                             routed;    // tensors of this execution that show routing are copied
    bool                             timing;    // this execution is timed
    bool                             stops;     // this execution ends before its graph does
    bool                             keeps;     // kept tensors are copied when the graph is computed
    uint64_t                         asks_of; // a graph, and …
    uint64_t                         asks_ns; // … what asking for every node of it took, measured once
    bool                             untold; // this execution was not reported: its packets are lost …
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
    // tokens of this execution that lie between may be captured
    int64_t                          window_first, window_end;
    int64_t                          begin_ns; // when ggml was given the graph
    int64_t                          wait_before_ns; // waited for the recording since the last execution's end
    uint8_t *                        fetched;  // an input of a device
    size_t                           cap_fetched;
    uint32_t                         running;  // graphs that a device may go on computing
    uint64_t                         running_exec; // the newest of them
    struct tap_time *                times;    // of this execution
    size_t                           cap_times;
    uint32_t                         n_times;
    bool                             lossy;    // of this execution something is lost
    uint64_t                         selected_packets, selected_bytes; // of this execution
    // ranges of this execution that ggml computed and waited for because of us, but the last
    uint32_t                         n_cuts;
    struct tap_out                   out; // what its entry reports
    struct tap_rec_losses            losses; // of this execution, where it is lossy
    struct tap_cut                   cut;
    int64_t                          cut_ns;  // about the least that one cut cost; 0: not measured yet
    struct tap_budget                budgets[TAP_BUDGETS];
    struct tap_budget *              metered; // of the device execution whose time is not accounted for yet
    struct tap_transfers             transfers;
    struct tap_plan                  plan;
};

// tap_budget_times says whether the execution that begins is timed; tap_budget_done accounts for it when it was
// computed: what one cut of it cost is 0 where that was not measured.
bool tap_budget_times(struct tap_sched * s, int64_t now);
void tap_budget_done(struct tap_sched * s, int64_t left, uint64_t cut_ns);

// tap_take_tokens counts the execution and gives its n tokens their numbers in the run. It returns the first one,
// -1: there are none. tap_give_back_tokens gives those of an execution that failed out again, unless others have come
// since.
int64_t tap_take_tokens(struct tap_sched * s, int32_t n);
void tap_give_back_tokens(struct tap_sched * s);

// tap_cut_probe measures, behind some executions, what one cut of a graph costs, in nanoseconds; 0: not this time.
uint64_t tap_cut_probe(struct tap_sched * s);
void tap_cut_release(struct tap_sched * s);

struct tap_sched *   tap_sched_of(ggml_backend_sched_t ptr, bool make);

// tap_sched_forget ends the state of a scheduler.
void tap_sched_forget(ggml_backend_sched_t ptr);

// tap_sched_enter finds the state of a scheduler and the context whose graph is about to run. NULL: there is no place
// in the tables.
struct tap_sched * tap_sched_enter(ggml_backend_sched_t ptr);

// tap_stand_in_forget ends the context that stood for a scheduler alone: the next scheduler may lie at the same
// address.
void tap_stand_in_forget(ggml_backend_sched_t sched);

// tap_sched_lost counts what is lost of an execution, and was not counted as selected.
void tap_sched_lost(struct tap_sched * s, enum tap_loss cause, uint64_t packets, uint64_t bytes);

// tap_select marks s's graph by the collector's newest selection. tap_select_init forgets what was read from memory
// joined before.
void tap_select(struct tap_sched * s);

// tap_select_ahead counts what selection 0 marks of a graph that is measured and not computed.
void tap_select_ahead(struct tap_graph * g);
void tap_select_init(void);

// tap_described accounts for time that went into the description of a graph; rebuilt: one that is reported as a
// change of the one before.
void tap_described(uint64_t took, bool rebuilt);

// tap_exec_begin and tap_exec_end frame one execution of s's graph, which was entered, or left, at a time.
void tap_exec_begin(struct tap_sched * s, int64_t entered);
void tap_exec_end(struct tap_sched * s, enum ggml_status status, int64_t left);

// tap_sync_end reports that the scheduler was synchronised, which began at a time: what was computed for it is done.
void tap_sync_end(struct tap_sched * s, int64_t began);

// tap_capture_wanted copies node i, which is wanted, into slots and publishes it, or counts it as lost where s is
// untold; tap_capture_node does that in the node's data phase, for whatever purpose it is wanted.
void tap_capture_wanted(struct tap_sched * s, int i);
void tap_capture_node(struct tap_sched * s, int i);

// tap_keep_begin flags, before s's graph is allocated, what shall stay in place until it is computed; tap_keep_end
// finds out, when it was allocated, whether it will. tap_keep_reserve does that for a graph that is only measured.
void tap_keep_begin(struct tap_sched * s, struct ggml_cgraph * cgraph);
void tap_keep_end(struct tap_sched * s);
void tap_keep_reserve(struct tap_sched * s);
void tap_keep_release(struct tap_sched * s);

// tap_capture_kept copies the kept tensors of a graph that was computed.
void tap_capture_kept(struct tap_sched * s);

// tap_transfers_end waits for the tensors that are under way from devices, and publishes them.
void tap_transfers_end(struct tap_sched * s);
void tap_transfers_release(struct tap_sched * s);

// tap_time_asks measures what the asks of one execution cost.
void tap_time_asks(struct tap_sched * s);

// tap_capture_inputs copies the wanted inputs at graph entry: their memory is used again during the graph.
void tap_capture_inputs(struct tap_sched * s);

// tap_look marks the nodes that are timed, and those that show routing; tap_mark_inputs the inputs whose
// contents are reported.
void tap_look(struct tap_graph * g, const struct tap_selection * wish);
void tap_mark_inputs(struct tap_graph * g, const struct tap_selection * wish);

// tap_look_devices marks, where layers and components are timed, also the last node before another device computes:
// ggml stops there by itself. It comes after allocation, which decides that.
void tap_look_devices(struct tap_graph * g);

// tap_times_room makes room for the times of an execution. tap_time_note notes the end of node i, whose data phase
// began at done.
bool tap_times_room(struct tap_sched * s);
void tap_time_note(struct tap_sched * s, int i, int64_t done, int64_t left);
void tap_times_send(struct tap_sched * s);

// tap_inputs_send reports the contents of inputs at graph entry.
void tap_inputs_send(struct tap_sched * s, struct tap_out * out);

// tap_copy_bytes copies n bytes of t, from offset on, to dst; host: they lie in this process.
void tap_copy_bytes(uint8_t * dst, const struct ggml_tensor * t, bool host, size_t offset, size_t n);

// tap_samples_wanted reports whether what samplers chose from is recorded.
extern _Atomic bool tap_samples_wanted;

// tap_sample_accepted reports the choice that this thread's outermost sampler made, once its token is accepted.
void tap_sample_accepted(llama_token token);

#endif
