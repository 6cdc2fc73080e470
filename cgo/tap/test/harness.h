// harness.h: what the tap's C tests share: a collector's end of the shared memory, a fake ggml and a fake llama.cpp.
//
// The tap under test is the product's own object. Only what lies behind it is fake: tap_real, the table of
// functions that it found in llama.cpp, is filled with the functions of fake.c before the tap joins.
#ifndef LLAMATAP_TEST_HARNESS_H
#define LLAMATAP_TEST_HARNESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../tap.h"

// ---- cases ----------------------------------------------------------------------------------------------------------

// test_case starts a case; test_end prints its result; test_done ends the program with its status.
void test_case(const char * format, ...) __attribute__((format(printf, 1, 2)));
void test_end(void);
int  test_done(void);
void test_fail(const char * file, int line, const char * format, ...) __attribute__((format(printf, 3, 4)));

// CHECK reports a failure and goes on; the case fails.
#define CHECK(condition, ...) \
    do { \
        if (!(condition)) { \
            test_fail(__FILE__, __LINE__, "" __VA_ARGS__); \
        } \
    } while (0)

// MUST ends the program where nothing sensible can follow.
#define MUST(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

uint64_t rng_next(uint64_t * state);
uint64_t rng_below(uint64_t * state, uint64_t n); // 0 … n-1

// ---- the collector's end --------------------------------------------------------------------------------------------

struct shm_options {
    uint64_t slots, slot_bytes, queue_bytes; // 0: 1024 slots of 4096 bytes, a queue of 1 MiB
    uint32_t overflow;
    uint64_t steer_bytes; // of each of two places for vectors; 0: the run is not armed
};

// A region in a memfd, laid out as collect.NewRegion does.
struct shm {
    int                 fd;
    int                 life[2]; // pipe that a case makes whose collector dies; -1: none
    size_t              bytes;
    uint8_t *           base;
    struct tap_header * h;
};

void shm_make(struct shm * s, const struct shm_options * o);
void shm_free(struct shm * s);

// shm_give_back returns a run of slots as the collector does. One thread at a time.
void shm_give_back(struct shm * s, uint64_t first, uint64_t n);

// shm_select changes what is captured, as collect.Region.Select does. One thread at a time.
void shm_select(struct shm * s, const struct tap_selection * wish);

// shm_next returns the oldest unread record, or NULL. shm_read marks it as read. PAD records are skipped.
struct tap_record * shm_next(struct shm * s);
void                shm_read(struct shm * s, const struct tap_record * record);

// shm_sleep waits until the tap wants room, or for ns.
void shm_sleep(struct shm * s, int64_t ns);

// tap_join makes this process the model of s; tap_leave undoes all of it, so that the next case begins anew.
void tap_join(struct shm * s);
void tap_leave(void);

// One record that was read: a copy of it and, for a capture, of its slots.
struct event {
    uint32_t            type;
    struct tap_record * record;
    uint8_t *           data;
    struct event *      next;
};

// The events of a case, in order. hold keeps slots: they are given back by log_release.
struct log {
    struct shm *   shm;
    struct event * first, ** last;
    size_t         n;
    bool           hold;
    const char *   damage; // what was wrong with the queue, NULL = nothing
    _Atomic bool   stop;
    pthread_t      thread;
};

void   log_init(struct log * l, struct shm * s);
size_t log_drain(struct log * l);    // reads what is there
void   log_clear(struct log * l);    // forgets what was read
void   log_release(struct log * l);  // gives held slots back
void   log_start(struct log * l);    // drains from a thread of its own …
void   log_finish(struct log * l);   // … until now
size_t log_count(const struct log * l, uint32_t type);
struct event * log_find(const struct log * l, uint32_t type, size_t nth);

// ---- a fake ggml ----------------------------------------------------------------------------------------------------

struct ggml_cgraph {
    struct ggml_tensor ** nodes;
    int                   n_nodes;
};

struct ggml_backend_buffer {
    bool      host;
    uint8_t * bytes;  // what really holds the contents
    uint8_t * base;   // address that tensors show; of a device buffer, nothing can be read there
    size_t    size;
    enum ggml_backend_buffer_usage usage;
    _Atomic uint64_t gets; // reads through ggml_backend_tensor_get
    _Atomic uint64_t later; // reads through ggml_backend_tensor_get_async
};

enum { FAKE_MAX_SPLITS = 8 };

// A scheduler that asks and computes as ggml's does: per split, ask nodes until one is wanted or the split ends,
// compute the range, hand the wanted node over; a callback that returns false ends the split.
struct ggml_backend_sched {
    ggml_backend_sched_eval_callback callback;
    void *   callback_data;
    uint64_t callback_sets; // calls of set_eval_callback
    bool     is_alloc;      // a graph is allocated: compute will not do it by itself
    bool     fail_alloc;
    int64_t  sync_ns, synced_at; // how long the newest synchronisation took, and when it returned
    bool     copy_inputs;   // allocation puts copies on a device in the place of inputs, as ggml does between backends
    struct ggml_tensor * copies; // of which these are
    int      n_copies;
    int      splits[FAKE_MAX_SPLITS]; // first node of splits 1 …
    int      n_splits;                // additional splits
    // allocation places nodes as ggml's does: by a plan that is made for a number of nodes, and keeps outputs
    bool     plans;
    int      planned; // nodes that the plan was made for, with the pad; 0: none
    int      n_plans; // made so far
    int *    areas;   // where node i lies
    struct ggml_tensor * pad; // of the graph that is allocated
    uint64_t run;                     // number of the execution: contents differ from one to the next
    uint64_t computed, ranges;        // nodes and ranges of the last execution
    enum ggml_status status;
    // e.g. spoils what graph entry must have copied
    void (*before_compute)(struct ggml_backend_sched *, struct ggml_cgraph *);
};

struct ggml_backend_sched * sched_new(void);

// fake_real fills tap_real with the fakes of ggml and, by fake_llama, of llama.cpp.
void fake_real(void);
void fake_llama(struct tap_real * r);

// fake_byte is byte offset of what node or leaf id holds in execution run.
uint8_t fake_byte(uint64_t run, uint64_t id, uint64_t offset);

// ---- fake graphs ----------------------------------------------------------------------------------------------------

enum { GRAPH_MAX_TENSORS = 640 };

// What a graph's author knows of a tensor, to compare the tap's inference with.
struct known {
    bool    set;
    int32_t layer;
    uint8_t component, rows, row_dim;
};

// A hand-made graph. Contents of nodes lie in a few areas that are used again and again, as ggml's allocator does it.
struct graph {
    struct ggml_cgraph  cgraph;
    struct ggml_tensor  tensors[GRAPH_MAX_TENSORS];
    struct known        known[GRAPH_MAX_TENSORS];
    struct ggml_tensor * nodes[GRAPH_MAX_TENSORS];
    int                 n_tensors;
    int                 n_tokens, n_outputs;
    const int32_t *     tokens, * pos, * out_ids;
    struct ggml_tensor * leaf_tokens, * leaf_pos, * leaf_out;
    int                 area; // next area
    bool                device;
    size_t              area_bytes;
    struct ggml_backend_buffer compute, persistent;
    size_t              persistent_used;
};

enum { GRAPH_AREAS = 12, GRAPH_MORE_AREAS = 400 }; // the others are for nodes that keep theirs

struct ne { int64_t n[4]; };
#define NE(...) ((struct ne) {{__VA_ARGS__}})

void graph_init(struct graph * g, size_t area_bytes, size_t persistent_bytes, bool device);
void graph_free(struct graph * g);

struct ggml_tensor * graph_leaf(struct graph * g, enum ggml_type type, struct ne ne, int32_t flags, const char * name);
struct ggml_tensor * graph_node(struct graph * g, enum ggml_op op, enum ggml_type type, struct ne ne, const char * name,
                                struct ggml_tensor * a, struct ggml_tensor * b, struct ggml_tensor * c);
struct ggml_tensor * graph_view(struct graph * g, enum ggml_op op, struct ggml_tensor * a, struct ne ne,
                                const size_t * nb,
                                size_t offset, const char * name);
struct ggml_tensor * graph_reshape(struct graph * g, struct ggml_tensor * a, struct ne ne, const char * name);
struct ggml_tensor * graph_permute(struct graph * g, struct ggml_tensor * a, int a0, int a1, int a2, int a3,
                                   const char * name);
struct ggml_tensor * graph_set_rows(struct graph * g, struct ggml_tensor * cache, struct ggml_tensor * rows,
                                    struct ggml_tensor * ids);
void graph_know(struct graph * g, const struct ggml_tensor * t, int32_t layer, uint8_t component, uint8_t rows,
                uint8_t row_dim);
int  graph_number(const struct graph * g, const struct ggml_tensor * t); // as a node, or -1
struct ggml_tensor * graph_named(const struct graph * g, const char * name, int nth); // node, nth from 1
void graph_write(struct graph * g, struct ggml_tensor * t, const void * bytes, size_t n); // contents of a leaf
void graph_inputs(struct graph * g); // writes tokens, positions and output ids, which each execution spoils
size_t type_bytes(enum ggml_type type, int64_t elements);

// A llama-like model's graph.
struct model_options {
    int  n_layer, n_tokens, n_outputs, n_kv;
    int  n_experts; // 0: dense
    int  n_seqs;    // above 1: the cache has a stream for each of so many sequences, of as many tokens each
    bool flash, device;
};
void model_graph(struct graph * g, const struct model_options * o, const int32_t * tokens, const int32_t * pos,
                 const int32_t * out_ids);

// ---- a fake llama.cpp -----------------------------------------------------------------------------------------------

struct llama_context {
    struct ggml_backend_sched * sched;
    struct graph *              graph; // what a decode computes; NULL = nothing
    bool                        fresh; // allocate before computing
    int                         decodes;
    struct llama_model *        model;
    int32_t                     flash_attn; // as it reached llama.cpp
    int32_t                     status;     // what a decode returns
};

struct llama_batch_ext { int n; };
// A sampler that is a chain: it leaves the first n candidates and chooses one of them, or none (-1).
extern size_t  fake_apply_size;
extern int64_t fake_apply_selected;
extern uint32_t     fake_other;      // structures (enum tap_layout) that are of another version
extern _Atomic int  fake_loads;      // calls of ggml_backend_load_all
extern const char * fake_loads_from; // folder of the last ggml_backend_load_all_from_path
// calls of the real llama_sampler_accept; a sampler's ctx is the member that it hands tokens on to
extern _Atomic int fake_accepts;

#endif
