// tap_shm.h: the memory that the tap (in the model's process) and the collector share.
//
// One memfd holds, in this order: this header, the record queue, the ring of returned slots, the slot pool. Nothing in it is a
// pointer; places are offsets from its start. The tap is the only writer of the queue and the only taker of slots; the
// collector is the only reader of the queue and the only returner of slots. collect/layout.go mirrors these structures, and a
// test compares the sizes and offsets.
#ifndef LLAMATAP_TAP_SHM_H
#define LLAMATAP_TAP_SHM_H

#include <stdatomic.h>
#include <stdint.h>

#define TAP_SHM_MAGIC   0x314d485350415401ull // bytes 01 'T' 'A' 'P' 'S' 'H' 'M' '1'
#define TAP_SHM_VERSION 12u

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
    TAP_LAYOUT_BATCH = 1u << 1,  // llama_batch: sequences stay unknown; tokens and positions, which graphs take in, are known
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
    TAP_OTHER = 0, TAP_INPUT = 1, TAP_ATTENTION = 2, TAP_MLP = 3, TAP_SSM = 4, TAP_RESIDUAL = 5, TAP_OUTPUT = 6, TAP_CACHE = 7,
};

enum tap_inferred {
    TAP_FROM_NOTHING = 0, TAP_FROM_WEIGHT = 1, TAP_FROM_OP = 2, TAP_FROM_NAME = 3, TAP_FROM_CONSUMER = 4, TAP_FROM_SOURCE = 5,
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
};

// Which tensors of which tokens are captured.
struct tap_selection {
    uint32_t record;      // enum tap_record_flag
    uint32_t granularity; // enum tap_granularity
    uint32_t attention;   // enum tap_attention
    uint32_t layers_set;  // 0: every layer
    uint64_t layers[TAP_LAYER_WORDS];
    uint32_t token_kind; // enum tap_token_kind
    uint32_t n_globs;    // 0: every computed node
    int64_t  token_first;
    int64_t  token_end; // -1: no end
    int64_t  token_step;
    int64_t  window; // tokens, counted from the first execution that the selection applies to; behind them nothing is captured. 0: no end
    uint32_t looking; // enum tap_looking
    uint32_t reserved;
    char     globs[TAP_MAX_GLOBS][TAP_GLOB_SIZE];
};

#define TAP_SELECTION_WORDS (sizeof(struct tap_selection) / sizeof(uint64_t))

// What the collector asks for. Written before the model's process starts.
struct tap_config {
    struct tap_selection start; // selection 0
    uint32_t overflow;          // enum tap_overflow
    int32_t  collector_pid;
    uint32_t on_failure; // enum tap_on_failure
    uint32_t exact;      // 1: records wait for room in the queue under every policy, because what is told by them is to be exact
    uint32_t cold;       // 1: mapped models are read when they are touched: see tap_cold.c
    uint32_t in_step; // 1: each graph begins and ends only when the collector has read everything that was told before: see tap_queue_settle
    uint32_t turns;   // 0, or after how many tokens recording ends and begins again, by turns: see tap_turn.c
    uint32_t reserved;
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
    _Atomic uint64_t rebuilt;     // of graphs: those told of as what differs from the one before
    _Atomic uint64_t rebuilt_ns;  // of describe_ns: what those took
    _Atomic uint64_t unrecorded;  // graphs computed after recording had ended: nothing of them was looked at
    struct tap_count loss[TAP_MAX_LOSSES];
};

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
    struct tap_config config;

    _Alignas(64) _Atomic uint64_t queue_head; // bytes written, by the tap
    _Alignas(64) _Atomic uint64_t queue_tail; // bytes read, by the collector
    _Alignas(64) _Atomic uint64_t ring_head;  // runs returned, by the collector
    _Atomic uint64_t returned;                // slots in them
    _Alignas(64) _Atomic uint64_t ring_tail;  // runs taken back, by the tap
    _Atomic uint64_t wake_returned;           // a model that waits is to be woken when returned has come so far
    _Alignas(64) _Atomic uint32_t room;       // futex: changes whenever the collector makes room
    _Atomic uint32_t waiting;                 // threads of the model that wait on room
    _Atomic uint32_t collector_sleeps;        // the collector is in a futex wait on work
    _Atomic uint32_t work;                    // futex: changes when the tap wants the collector awake
    _Atomic uint32_t attached;                // 1 once the tap runs, 2 after it has said goodbye
    _Atomic uint32_t closed;                  // set by the collector when it records no more: the model goes on without it
    _Atomic uint32_t selection;               // number of the newest selection: from the next graph on, it applies
    _Atomic uint32_t glob_hits[TAP_MAX_GLOBS]; // of selection 0
    _Alignas(64) struct tap_stats stats;
    char missing[TAP_MISSING_SIZE]; // entry points that were not found, separated by spaces
    char llama_version[TAP_VERSION_SIZE]; // of the process that is recorded, as its libraries say; "" where they do not
    char ggml_version[TAP_VERSION_SIZE];
    _Atomic uint32_t seen;   // enum tap_seen
    _Atomic uint32_t others; // processes that ran llama.cpp and were not recorded, because another one is
    _Atomic int32_t  pid;    // of the process that is recorded, 0 = none so far
    uint32_t         layouts; // enum tap_layout
    // The words of selection n > 0 lie in place n % 2. The collector writes one place while the other holds the newest selection, and
    // counts selection up when it is done; who has read a place looks at selection again.
    _Alignas(64) _Atomic uint64_t selections[2][TAP_SELECTION_WORDS];
    _Atomic uint32_t n_turns;
    uint32_t turn_ns[TAP_MAX_TURNS]; // what a token of each took, their median; the first was recorded, the second not …
};

// Records of the queue. Each begins with tap_record and is a multiple of eight bytes long.
enum tap_record_type {
    TAP_REC_PAD = 0,         // skip to the start of the ring
    TAP_REC_HELLO = 1,       // tap_rec_hello
    TAP_REC_CONTEXT = 2,     // tap_rec_context, then the model's description and path (two strings)
    TAP_REC_CALL = 3,        // tap_rec_call, then tap_call_row[n_rows], then int32 extra sequences
    TAP_REC_CALL_END = 4,    // tap_rec_call_end
    TAP_REC_GRAPH = 5,       // tap_rec_graph
    TAP_REC_NODES = 6,       // tap_rec_nodes, then nodes
    TAP_REC_LEAFS = 7,       // tap_rec_nodes, then leafs
    TAP_REC_EXEC = 8,        // tap_rec_exec, then tokens, positions, output ids
    TAP_REC_EXEC_END = 9,    // tap_rec_exec_end
    TAP_REC_CAPTURE = 10,    // tap_rec_capture
    TAP_REC_RESOLVE = 11,    // tap_rec_resolve
    TAP_REC_GOODBYE = 12,    // tap_rec_hello
    TAP_REC_CONTEXT_END = 13, // tap_rec_resolve
    TAP_REC_SEQ = 14,         // tap_rec_seq
    TAP_REC_BUFFER = 15,      // tap_rec_buffer, then its type's name, its device's, and its file's path
    TAP_REC_BUFFER_END = 16,  // tap_rec_buffer_end
    TAP_REC_TIMES = 17,       // tap_rec_times, then tap_time[count]
    TAP_REC_INPUT = 18,       // tap_rec_input, then int64 values, or tap_range[count]
    TAP_REC_SAMPLE = 19,      // tap_rec_sample, then tap_candidate[count]
    TAP_REC_SYNC = 20,        // tap_rec_sync
    TAP_REC_CHANGES = 21      // tap_rec_nodes, then tap_change[count], of different lengths
};

struct tap_record {
    uint32_t bytes; // with this header
    uint32_t type;  // enum tap_record_type
};

struct tap_rec_hello {
    struct tap_record h;
    int32_t  pid;
    uint32_t reserved;
    uint64_t mono_ns;
    uint64_t unix_ns;
};

struct tap_rec_context {
    struct tap_record h;
    uint32_t ctx; // number, by first use
    uint32_t model;
    uint64_t model_bytes;  // of all tensors
    uint64_t model_params;
    uint64_t model_loaded_ns; // when its loading had ended; 0: not seen
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max;
    int32_t  n_layer, n_embd, n_head, n_head_kv, n_vocab;
    int32_t  ftype;
    int32_t  recurrent; // 1 recurrent, 2 hybrid, 0 neither
    int32_t  flash_attn; // as asked: -1 auto, 0 off, 1 on; -2 unknown
    int32_t  n_ctx_train;
    int32_t  reserved;
    uint16_t desc_bytes, path_bytes, arch_bytes, name_bytes; // strings follow in this order, without a zero
};

struct tap_call_row {
    int32_t token; // -1: an embedding
    int32_t pos;   // INT32_MIN: left to llama.cpp
    int32_t seq;   // first sequence
    uint16_t n_seq;
    uint16_t output; // logits or embeddings were asked for
};

enum tap_call_flag {
    TAP_CALL_READ_SINCE = 1u << 0, // logits or embeddings were read, or the context was synchronised, since the call before
    TAP_CALL_ACCEPTED_SINCE = 1u << 1,
    TAP_CALL_NO_POSITIONS = 1u << 2,
};

enum tap_call_kind { TAP_CALL_DECODE = 0, TAP_CALL_ENCODE = 1, TAP_CALL_PROCESS = 2 };

struct tap_rec_call {
    struct tap_record h;
    uint64_t call; // counts up per process
    uint64_t mono_ns;
    uint32_t ctx;
    uint32_t kind;
    uint32_t flags;
    uint32_t n_total; // rows of the whole call
    uint32_t first;   // number of the first row here
    uint32_t n_rows;  // rows here
    uint32_t n_extra; // int32 values after the rows: for each row with n_seq > 1 its further sequences
    uint32_t reserved;
};

struct tap_rec_call_end {
    struct tap_record h;
    uint64_t call;
    uint64_t mono_ns;
    int32_t  status;
    uint32_t ctx;
};

struct tap_rec_graph {
    struct tap_record h;
    uint64_t graph;
    uint32_t ctx;
    uint32_t n_nodes;
    uint32_t n_leafs;
    uint32_t n_wanted;
    int32_t  n_tokens;  // 0: a maintenance graph
    int32_t  n_outputs; // -1: no output ids
    uint32_t selection; // number of the selection that its nodes are marked by
    uint32_t attention; // enum tap_attention of that selection
    uint64_t like;      // the newest graph of the same context, from which this one differs in its changes alone; 0: all of it follows
    uint32_t n_changes;
    uint32_t reserved;
};

struct tap_rec_nodes {
    struct tap_record h;
    uint64_t graph;
    uint32_t first;
    uint32_t count;
};

// One node, followed by n_src int32 (node number, or -1-i for leaf i), its name and its op's name, padded to eight bytes.
struct tap_node {
    uint32_t bytes; // with everything
    int32_t  layer;
    uint8_t  component, rows, row_dim, inferred;
    uint8_t  flags; // bit 0 view, bit 1 wanted, bit 2 computed, bit 3 alias name, bit 4 tells of routing
    uint8_t  n_src, name_bytes, op_bytes;
    uint16_t occurrence;
    uint16_t type;
    uint16_t slots; // bit k: src[k] is not NULL
    uint16_t reserved;
    uint64_t buffer; // number of the buffer that its tensor lies in, 0 = none that is known
    uint64_t offset; // in it
    int64_t  ne[TAP_MAX_DIMS];
    uint64_t nb[TAP_MAX_DIMS];
    int32_t  op_params[8];
};

struct tap_leaf {
    uint32_t bytes;
    uint16_t type;
    uint8_t  input, name_bytes;
    uint64_t buffer, offset; // as in tap_node
    int64_t  ne[TAP_MAX_DIMS];
    uint64_t nb[TAP_MAX_DIMS];
};

// What has changed of a node, or of leaf -1-which, followed by its new place (tap_change_place) and shape (tap_change_shape, a leaf's without op_params).
enum tap_change_of { TAP_CHANGE_PLACE = 1u << 0, TAP_CHANGE_SHAPE = 1u << 1 };

struct tap_change {
    uint32_t bytes; // with everything
    int32_t  which;
    uint8_t  of; // enum tap_change_of
    uint8_t  rows, row_dim; // of a node
    uint8_t  reserved[5];
};

struct tap_change_place {
    uint64_t buffer, offset; // as in tap_node
};

struct tap_change_shape {
    int64_t  ne[TAP_MAX_DIMS];
    uint64_t nb[TAP_MAX_DIMS];
    int32_t  op_params[8];
};

struct tap_rec_exec {
    struct tap_record h;
    uint64_t exec; // counts up per process
    uint64_t graph;
    uint64_t call; // the call that it belongs to, 0 = none
    uint64_t mono_ns;
    int64_t  token_first; // number of the first token in the run; -1 = no tokens
    uint32_t ctx;
    uint32_t reused;
    uint32_t provisional; // the context has not yet done anything that tells a run from a warm-up
    uint32_t captured;    // 1: tensors of it may follow
    uint32_t n_tokens;    // int32 ids follow (-1 for embeddings)
    uint32_t n_pos;       // then int32 positions
    uint32_t n_outputs;   // then int32 output rows
    uint32_t left;        // tokens that the selection's window has left after this execution; UINT32_MAX = it has no end
};

struct tap_rec_exec_end {
    struct tap_record h;
    uint64_t exec;
    uint64_t mono_ns;
    int32_t  status;
    uint32_t lost; // packets of this execution that were dropped
    uint64_t begin_ns; // when ggml was given the graph
    uint32_t async;    // 1: a device may still compute
    uint32_t reserved;
};

struct tap_rec_capture {
    struct tap_record h;
    uint64_t exec;
    uint64_t graph;
    uint64_t mono_ns; // when the copy ended
    int32_t  node;    // node number, or -1-i for leaf i
    uint32_t slot;    // first slot
    uint32_t n_slots;
    uint32_t type;    // ggml type of the bytes
    uint64_t bytes;
    int64_t  ne[TAP_MAX_DIMS]; // shape of this piece
    int32_t  row_first;        // first token row of the micro-batch, -1 = no rows
    int32_t  row_count;
    uint32_t block, blocks;    // piece number and number of pieces; 0 of 1 = whole
    int64_t  block_start;      // first element of this piece in the run of rows, in logical order
    uint32_t purpose;          // enum tap_purpose
    uint32_t reserved;
};

struct tap_rec_resolve {
    struct tap_record h;
    uint32_t ctx;
    uint32_t discarded; // 1: what the context did so far was set-up; 0: it was the run
    uint64_t exec;      // every execution of the context up to this number is meant
};

// A buffer of a backend. It is told of when it is allocated, or when this process is first recorded; again when its usage is set, or its
// memory is taken over by another kind of buffer. TAP_BUFFER_HOST: its base is an address of this process.
enum tap_buffer_flag { TAP_BUFFER_HOST = 1u << 0, TAP_BUFFER_MAPPED = 1u << 1, TAP_BUFFER_KNOWN = 1u << 2 };

struct tap_rec_buffer {
    struct tap_record h;
    uint64_t buffer; // counts up per process, from 1
    uint64_t mono_ns;
    uint64_t base, size;
    uint32_t usage; // enum ggml_backend_buffer_usage
    uint32_t flags; // enum tap_buffer_flag
    uint64_t file_offset; // where in its file a mapped buffer begins
    uint16_t type_bytes, device_bytes, file_bytes; // names follow in this order, without a zero; no file: not mapped, or not known of which
    uint16_t reserved;
};

struct tap_rec_buffer_end {
    struct tap_record h;
    uint64_t buffer;
    uint64_t mono_ns;
};

// The end of a timed node, in nanoseconds after begin_ns of its execution.
struct tap_time {
    uint32_t node;
    uint32_t left_ns; // from done_ns until ggml went on: its data phase
    uint64_t done_ns;
};

struct tap_rec_times {
    struct tap_record h;
    uint64_t exec, graph;
    uint64_t begin_ns; // when ggml was given the graph
    uint32_t first;    // number of the first time here
    uint32_t count;
    uint32_t total;
    uint32_t reserved;
};

enum tap_input_kind { TAP_INPUT_CELLS = 0, TAP_INPUT_MASK = 1, TAP_INPUT_STATES = 2 };

// Cells that a token may read: first ≤ cell < end.
struct tap_range {
    int32_t row, first, end;
};

struct tap_rec_input {
    struct tap_record h;
    uint64_t exec, graph;
    uint32_t leaf;
    uint32_t kind;  // enum tap_input_kind
    uint32_t count; // values or ranges here
    uint32_t more;  // 1: more of the same input follow
};

struct tap_candidate {
    int32_t token;
    float   logit, p;
};

struct tap_rec_sample {
    struct tap_record h;
    uint64_t mono_ns;
    uint32_t ctx; // of the thread's last call; UINT32_MAX: none
    int32_t  token;
    uint64_t n_before, n_after;
    uint32_t count;
    uint32_t reserved;
};

// The first synchronisation behind graphs that a device has part in: when it returned, they were computed.
struct tap_rec_sync {
    struct tap_record h;
    uint64_t exec;    // the newest of them
    uint64_t mono_ns; // when it returned
    uint64_t wait_ns; // how long it took
    uint32_t graphs;  // how many there are
    uint32_t reserved;
};

// What a program did to a sequence of a context.
enum tap_seq_kind {
    TAP_SEQ_REMOVE = 0,  // cells of positions first ≤ p < end
    TAP_SEQ_COPY = 1,    // the same into sequence to
    TAP_SEQ_KEEP = 2,    // every other sequence was removed
    TAP_SEQ_ADD = 3,     // value was added to positions
    TAP_SEQ_DIVIDE = 4,  // positions were divided by value
    TAP_SEQ_RESTORE = 5, // its state was set; value: llama_state_seq_flags
    TAP_SEQ_SAMPLER = 6, // a sampler was set for it (value 1), or none
};

struct tap_rec_seq {
    struct tap_record h;
    uint64_t mono_ns;
    uint32_t ctx;
    uint32_t kind; // enum tap_seq_kind
    int32_t  seq;  // -1: every one
    int32_t  to;
    int32_t  first, end; // positions; below 0: from the start, to the end
    int32_t  value;
    uint32_t reserved;
};

#endif
