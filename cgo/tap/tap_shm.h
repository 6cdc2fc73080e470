// tap_shm.h: the memory that the tap (in the model's process) and the collector share.
//
// One memfd holds, in this order: this header, the record queue, the ring of returned slots, the slot pool. Nothing
// in it is a pointer; places are offsets from its start. The tap is the only writer of the queue and the only taker
// of slots; the collector is the only reader of the queue and the only returner of slots. collect/layout.go mirrors
// these structures, and a test compares the sizes and offsets.
#ifndef LLAMATAP_TAP_SHM_H
#define LLAMATAP_TAP_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#define TAP_SHM_MAGIC   0x314d485350415401ull // bytes 01 'T' 'A' 'P' 'S' 'H' 'M' '1'
#define TAP_SHM_VERSION 23u

#define TAP_MAX_GLOBS    64
#define TAP_GLOB_SIZE    128
#define TAP_PATH_SIZE    1024
#define TAP_LAYER_WORDS  16
#define TAP_MAX_DIMS     4
#define TAP_NAME_SIZE    64
#define TAP_MAX_LOSSES   8
#define TAP_MISSING_SIZE 2048
#define TAP_VERSION_SIZE 64
#define TAP_MAX_TURNS    2047
#define TAP_POINT_WORDS  1024 // room for the points of a graph of 65,536 nodes

// What the collector learns of processes that have the tap, whether one of them is recorded or not.
enum tap_seen {
    TAP_SEEN_TAP = 1u << 0,       // some process has loaded the tap
    TAP_SEEN_LLAMA = 1u << 1,     // some process had llama.cpp in it
    TAP_SEEN_NO_MEMORY = 1u << 2, // a process could not map this memory, but for the header
    TAP_SEEN_GGML = 1u << 3,      // a process was not recorded because its ggml has other structures
};

// Structures that a process's llama.cpp lays out otherwise than the headers that the tap was compiled with.
enum tap_layout {
    TAP_LAYOUT_GGML = 1u << 0,   // ggml_tensor, numbers of ops and types: nothing can be read of a graph
    // llama_batch: sequences stay unknown; tokens and positions, which graphs take in, are known
    TAP_LAYOUT_BATCH = 1u << 1,
    TAP_LAYOUT_PARAMS = 1u << 2, // llama_context_params: flash attention can be neither known nor turned off
};

// What to record.
enum tap_record_flag {
    TAP_RECORD_ACTIVATIONS = 1u << 0,
    TAP_RECORD_GRAPHS      = 1u << 1, // graph descriptions and executions without tensors
    TAP_RECORD_MAPS_ALONE  = 1u << 2, // of the activations, only what attention asks for
    TAP_RECORD_CELLS       = 1u << 3, // which cells of a memory are written and may be read
    TAP_RECORD_ROUTING     = 1u << 4, // which experts were chosen, and their weights
    TAP_RECORD_SAMPLES     = 1u << 5, // what samplers chose from
    TAP_RECORD_EXPERTS     = 1u << 6, // which experts were chosen, without their weights
    TAP_RECORD_REQUESTS    = 1u << 7, // what a server does for its requests
    TAP_RECORD_MOVES       = 1u << 8, // what is moved to devices and back, from the process's start on
    TAP_RECORD_COPIES      = 1u << 9, // what is copied to devices while the program is recorded
};

// Which nodes are timed.
enum tap_looking {
    TAP_LOOK_NEVER  = 0,
    TAP_LOOK_RANGES = 1, // the last node of each run of nodes that have one layer and component
    TAP_LOOK_OPS    = 2, // every node that computes
};

// What a captured tensor is for.
enum tap_purpose { TAP_FOR_STREAM = 1u << 0, TAP_FOR_ROUTING = 1u << 1 };

enum tap_overflow { TAP_OVERFLOW_BLOCK = 0, TAP_OVERFLOW_DROP = 1 };

// What becomes of the program when the collector dies.
enum tap_on_failure { TAP_FAILURE_CONTINUE = 0, TAP_FAILURE_STOP = 1 };

enum tap_granularity { TAP_FULL_TENSOR = 0, TAP_SAMPLED_SLICES = 1, TAP_ATTENTION_ONLY = 2, TAP_MLP_ONLY = 3 };

enum tap_attention { TAP_ATTENTION_NONE = 0, TAP_ATTENTION_KEEP = 1, TAP_ATTENTION_EXACT = 2 };

enum tap_token_kind { TAP_TOKENS_ALL = 0, TAP_TOKENS_LAST = 1, TAP_TOKENS_RANGE = 2, TAP_TOKENS_EVERY = 3 };

enum tap_component {
    TAP_OTHER = 0, TAP_INPUT = 1, TAP_ATTENTION = 2, TAP_MLP = 3, TAP_SSM = 4, TAP_RESIDUAL = 5, TAP_OUTPUT = 6,
    TAP_CACHE = 7,
};

enum tap_inferred {
    TAP_FROM_NOTHING = 0, TAP_FROM_WEIGHT = 1, TAP_FROM_OP = 2, TAP_FROM_NAME = 3, TAP_FROM_CONSUMER = 4,
    TAP_FROM_SOURCE = 5,
};

enum tap_rows { TAP_ROWS_NONE = 0, TAP_ROWS_TOKENS = 1, TAP_ROWS_OUTPUTS = 2 };

// Why something was not recorded. Counted per cause, in packets and bytes, never silent.
enum tap_loss {
    TAP_LOSS_POOL_FULL      = 0, // policy drop: no free slots
    TAP_LOSS_QUEUE_FULL     = 1, // policy drop: no room for the record
    TAP_LOSS_COLLECTOR_GONE = 2, // the collector died; the model goes on
    TAP_LOSS_NO_MEMORY      = 3, // the tap could not allocate its own tables
    TAP_LOSS_GRAPH_MISMATCH = 4, // a node came that the graph did not announce
    TAP_LOSS_STRIDES        = 5, // a layout that cannot be copied element by element
    TAP_LOSS_STOPPED        = 6, // the collector writes no more, and counts what it misses: see TAP_COUNTS
};

// What the collector does.
enum tap_closed {
    TAP_OPEN   = 0,
    TAP_CLOSED = 1, // it records no more: the model goes on without it
    // it writes no more tensors and goes on counting: graphs are reported, their wanted tensors are lost, nothing is
    // copied or timed
    TAP_COUNTS = 2,
};

// Which tensors of which tokens are captured.
struct tap_selection {
    uint32_t record;      // enum tap_record_flag
    uint32_t granularity; // enum tap_granularity
    uint32_t attention;   // enum tap_attention
    uint32_t layers_set;  // 0: every layer
    uint64_t layers[TAP_LAYER_WORDS];
    uint32_t token_kind; // enum tap_token_kind
    uint32_t n_globs;    // 0: every computed node, or the points alone
    int64_t  token_first;
    int64_t  token_end; // -1: no end
    int64_t  token_step;
    // tokens, counted from the first execution that selection window_of or a newer one with the same window_of applies
    // to; behind them nothing is captured. 0: no end
    int64_t  window;
    uint32_t looking;    // enum tap_looking
    uint32_t look_every; // of so many executions of about as many tokens one is timed; 0: by their cost
    uint32_t points;     // 1: the collector names nodes of each graph: see tap_points.c. They are wanted in all layers
    uint32_t window_of;
    char     globs[TAP_MAX_GLOBS][TAP_GLOB_SIZE];
};

#define TAP_SELECTION_WORDS (sizeof(struct tap_selection) / sizeof(uint64_t))

// The limit is chosen by what computes the graph.
#define TAP_KEEP_AUTO UINT64_MAX

// What the collector asks for. Written before the model's process starts.
struct tap_config {
    struct tap_selection start; // selection 0
    uint32_t overflow;          // enum tap_overflow
    int32_t  collector_pid;
    uint32_t on_failure; // enum tap_on_failure
    // 1: records wait for room in the queue under every policy, because a run is accounted for by them
    uint32_t exact;
    uint32_t cold;       // 1: mapped models are read when they are touched: see tap_cold.c
    // 1: each graph begins and ends only when the collector has read everything reported before: see tap_queue_settle
    uint32_t in_step;
    uint32_t turns;   // 0, or after how many tokens recording ends and begins again, in alternation: see tap_turn.c
    uint32_t judge;   // 1: the first graph of tokens waits until the collector has judged what selection 0 marks
    uint32_t no_logits; // 1: graphs of tokens are computed up to result_norm, and the rest of them is not
    uint64_t keep_bytes; // what wanted tensors of one graph may hold that stay until it is computed; TAP_KEEP_AUTO
    char     backends[TAP_PATH_SIZE]; // folder of ggml backends, "" = let ggml search
};

struct tap_count {
    _Atomic uint64_t packets;
    _Atomic uint64_t bytes;
};

// What the tap did, on the model's threads. Times are measured, in nanoseconds.
struct tap_stats {
    _Atomic uint64_t graphs;        // descriptions made
    _Atomic uint64_t executions;    // graphs computed
    _Atomic uint64_t reused;        // of these, graphs seen before
    _Atomic uint64_t calls;         // llama_decode, llama_encode, llama_process
    _Atomic uint64_t asks;          // nodes that ggml asked for
    _Atomic uint64_t ask_ns;        // asks of an execution = all asks of its graph, as timed once per graph
    _Atomic uint64_t copies;        // data phases that copied
    _Atomic uint64_t copied_bytes;
    _Atomic uint64_t describe_ns; // new graphs: reading, inferring, selecting, telling of them, without wait
    _Atomic uint64_t hook_ns;     // graph entry and end, without describe and wait
    _Atomic uint64_t copy_ns;     // data phases, without wait
    _Atomic uint64_t wait_ns;     // waiting for slots or queue room
    _Atomic uint64_t waits;       // how often
    _Atomic uint64_t api_ns;      // interposed llama.h calls
    _Atomic uint64_t rebuilt;     // of graphs: those reported as what differs from the one before
    _Atomic uint64_t rebuilt_ns;  // of describe_ns: what those took
    _Atomic uint64_t unrecorded;  // graphs computed after recording had ended: nothing of them was looked at
    _Atomic uint64_t pinned_bytes; // of the pool, by a GPU's driver
    _Atomic uint64_t pin_error;    // the driver's, where it refused
    struct tap_count loss[TAP_MAX_LOSSES];
};

// How the collector sleeps. From a deep sleep the first record wakes it, from a light one only what wants room.
enum tap_sleep { TAP_SLEEP_NONE = 0, TAP_SLEEP_LIGHT = 1, TAP_SLEEP_DEEP = 2 };

struct tap_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; // sizeof(struct tap_header)
    uint64_t total_bytes;
    uint64_t queue_offset;
    uint64_t queue_bytes; // power of two
    uint64_t ring_offset; // ring of returned slot runs
    uint64_t ring_entries; // power of two, at least the number of slots
    uint64_t slots_offset;
    uint64_t slot_bytes;
    uint64_t n_slots;
    uint64_t steer_offset; // of two places for a struct tap_vectors and its rows …
    uint64_t steer_bytes;  // … of so many bytes each; 0: the run is not armed, no vectors are exchanged
    struct tap_config config;

    _Alignas(64) _Atomic uint64_t queue_head; // bytes written, by the tap
    _Alignas(64) _Atomic uint64_t queue_tail; // bytes read, by the collector
    _Alignas(64) _Atomic uint64_t ring_head;  // runs returned, by the collector
    _Atomic uint64_t returned;                // slots in them
    _Alignas(64) _Atomic uint64_t ring_tail;  // runs taken back, by the tap
    _Atomic uint64_t wake_returned;           // a model that waits is to be woken when returned has come so far
    _Atomic uint64_t taken;                   // slots reserved, without what was cancelled; less returned: those in use
    _Alignas(64) _Atomic uint32_t room;       // futex: changes whenever the collector makes room
    _Atomic uint32_t waiting;                 // threads of the model that wait on room
    _Atomic uint32_t collector_sleeps;        // enum tap_sleep: the collector is in a futex wait on work
    _Atomic uint32_t work;                    // futex: changes when the tap wants the collector awake
    _Atomic uint32_t attached;                // 1 once the tap runs, 2 after it has said goodbye
    _Atomic uint32_t closed;                  // enum tap_closed, set by the collector
    _Atomic uint32_t selection;               // number of the newest selection: from the next graph on, it applies
    _Atomic uint32_t glob_hits[TAP_MAX_GLOBS]; // of selection 0, in graphs that are computed or only measured
    _Atomic uint32_t matched;                  // nodes and inputs that it marks in them
    _Alignas(64) struct tap_stats stats;
    char missing[TAP_MISSING_SIZE]; // entry points that were not found, separated by spaces
    char llama_version[TAP_VERSION_SIZE]; // of the process that is recorded, as its libraries say; "" where they do not
    char ggml_version[TAP_VERSION_SIZE];
    _Atomic uint32_t seen;   // enum tap_seen
    _Atomic uint32_t others; // processes that ran llama.cpp and were not recorded, because another one is
    _Atomic int32_t  pid;    // of the process that is recorded, 0 = none so far
    uint32_t         layouts; // enum tap_layout
    // The words of selection n > 0 lie in place n % 2. The collector writes one place while the other holds the
    // newest selection, and counts selection up when it is done; who has read a place looks at selection again.
    _Alignas(64) _Atomic uint64_t selections[2][TAP_SELECTION_WORDS];
    // The nodes of graph points_of that the collector named when it was asked for points, a bit for each.
    _Alignas(64) _Atomic uint64_t points[TAP_POINT_WORDS];
    _Atomic uint64_t points_of;
    _Atomic uint32_t n_turns;
    // what a token of each took, their median; the first was recorded, the second not …
    uint32_t turn_ns[TAP_MAX_TURNS];
    // Vectors n > 0 lie in place n % 2, written as selections are.
    _Alignas(64) _Atomic uint32_t steer; // number of the newest vectors
    // What the tap reports of the model whose residual stream takes vectors.
    _Atomic uint32_t steer_embd;   // width of its rows; 0: nothing was computed yet
    _Atomic uint32_t steer_layers; // of the model; 0: this llama.cpp has no control vectors
    _Atomic uint32_t steer_exec;   // exchanges so far
    _Atomic uint64_t steer_ns;     // what the newest one took
    _Atomic uint64_t steer_found[TAP_LAYER_WORDS]; // layers of which a graph adds a vector
    _Atomic uint32_t steer_seqs; // sequences that may have vectors of their own; 0: none of this llama.cpp may
};

enum { TAP_STEER_VECTORS = 16, TAP_STEER_SEQS = 256 };

// Vectors that are added to the residual stream. For each of them rows of n_embd floats follow, for the layers
// 1, 2, 3 … The first is of all sequences that have none of their own.
struct tap_vectors {
    uint32_t n_embd, n_rows, n_vectors, unused;
    uint64_t states[TAP_STEER_VECTORS]; // equal for equal rows; TAP_STEER_ZERO where all are zero
    uint8_t  of[TAP_STEER_SEQS];        // the vector of each sequence, below n_vectors
};
#define TAP_STEER_ZERO 2u

#include "tap_records.h"

#endif
