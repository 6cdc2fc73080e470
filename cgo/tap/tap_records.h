// tap_records.h: what the queue of the shared memory holds. Included by tap_shm.h.
#ifndef LLAMATAP_TAP_RECORDS_H
#define LLAMATAP_TAP_RECORDS_H

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
    TAP_REC_CHANGES = 21,     // tap_rec_nodes, then tap_change[count], of different lengths
    TAP_REC_LOSSES = 22,      // tap_rec_losses
    TAP_REC_SERVED = 23,      // tap_rec_served, then text
    TAP_REC_MOVED = 24        // tap_rec_moved, then the tensor's name
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
    int32_t  n_swa; // positions of a sliding window, 0: none
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
    // logits or embeddings were read, or the context was synchronised, since the call before
    TAP_CALL_READ_SINCE = 1u << 0,
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

// A graph. One of context TAP_ASKS is not computed: the collector is asked which of its nodes are points.
#define TAP_ASKS UINT32_MAX

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
    // the newest graph of the same context, from which this one differs in its changes alone; 0: all of it follows
    uint64_t like;
    uint32_t n_changes;
    uint32_t reserved;
};

struct tap_rec_nodes {
    struct tap_record h;
    uint64_t graph;
    uint32_t first;
    uint32_t count;
};

// One node, followed by n_src int32 (node number, or -1-i for leaf i), its name and its op's name, padded to eight
// bytes.
struct tap_node {
    uint32_t bytes; // with everything
    int32_t  layer;
    uint8_t  component, rows, row_dim, inferred;
    uint8_t  flags; // bit 0 view, bit 1 wanted, bit 2 computed, bit 3 alias name, bit 4 shows routing
    uint8_t  n_src, name_bytes, op_bytes;
    uint16_t occurrence;
    uint16_t type;
    uint16_t slots; // bit k: src[k] is not NULL
    uint16_t number; // among the nodes that are shown under its name
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

// What has changed of a node, or of leaf -1-which, followed by its new place (tap_change_place) and shape
// (tap_change_shape, a leaf's without op_params).
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
    uint32_t provisional; // the context has not yet done anything that distinguishes a run from a warm-up
    uint32_t captured;    // 1: tensors of it may follow
    uint32_t n_tokens;    // int32 ids follow (-1 for embeddings)
    uint32_t n_pos;       // then int32 positions
    uint32_t n_outputs;   // then int32 output rows
    // tokens that the selection's window has left after this execution; UINT32_MAX = it has no end
    uint32_t left;
    uint32_t steer; // number of the vectors that it adds, 0: none yet; UINT32_MAX: the context takes none
    uint32_t reserved;
};

struct tap_rec_exec_end {
    struct tap_record h;
    uint64_t exec;
    uint64_t mono_ns;
    int32_t  status;
    uint32_t async;    // 1: a device may still compute
    uint64_t begin_ns; // when ggml was given the graph
    uint64_t selected_packets; // that were computed and wanted, in the stream or lost
    uint64_t selected_bytes;
    // what the tap took on the model's threads since the end of the execution before, without waiting …
    int64_t  own_ns;
    // … and what these threads waited for the recording. Both may be negative where threads compute at the same time;
    // sums are right
    int64_t  wait_ns;
    int64_t  wait_before_ns; // of wait_ns, before the execution's entry
    uint64_t cuts;    // how often ggml stopped within the graph because of the tap alone
    uint64_t cut_ns;  // what one such stop costs, as measured behind this execution; 0: not measured
};

// What was lost of an execution, by enum tap_loss; only where something was. It comes before the execution's end.
struct tap_rec_losses {
    struct tap_record h;
    uint64_t exec;
    struct {
        uint64_t packets, bytes;
    } loss[TAP_MAX_LOSSES];
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
    uint32_t cut;              // 1: the graph was stopped for it
};

struct tap_rec_resolve {
    struct tap_record h;
    uint32_t ctx;
    uint32_t discarded; // 1: what the context did so far was set-up; 0: it was the run
    uint64_t exec;      // every execution of the context up to this number is meant
};

// A buffer of a backend. It is reported when it is allocated, or when this process is first recorded; again when its
// usage is set, or its memory is taken over by another kind of buffer. TAP_BUFFER_HOST: its base is an address of
// this process.
enum tap_buffer_flag { TAP_BUFFER_HOST = 1u << 0, TAP_BUFFER_MAPPED = 1u << 1, TAP_BUFFER_KNOWN = 1u << 2 };

struct tap_rec_buffer {
    struct tap_record h;
    uint64_t buffer; // counts up per process, from 1
    uint64_t mono_ns;
    uint64_t base, size;
    uint32_t usage; // enum ggml_backend_buffer_usage
    uint32_t flags; // enum tap_buffer_flag
    uint64_t file_offset; // where in its file a mapped buffer begins
    // names follow in this order, without a zero; no file: not mapped, or not known of which
    uint16_t type_bytes, device_bytes, file_bytes;
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

// What a server did for its requests, while these are recorded.
enum tap_served_kind {
    // a token was chosen and accepted at mono_ns; from begun_ns on the program looked at row of its last call. value:
    // 1 where it ends generation. key: the sampler. grammar_ns: of it, what other samplers than the chain took
    TAP_SERVED_CHOICE = 0,
    // thread row tokenized a prompt of value tokens at begun_ns; key: FNV-1a of 64 bits of its tokens. The first bytes
    // of the HTTP request had come at mono_ns. token: 1 where it does not want what its slot holds
    TAP_SERVED_ASK = 1,
    // thread row sends why key generations ended: value, a tap_served_end; 0: not alike. The text is what the answer
    // says of its times, model and id, token of its slot; -1: nothing
    TAP_SERVED_ANSWER = 2,
    TAP_SERVED_LINE = 3,   // a line of the log of thread row: text of bytes
    TAP_SERVED_SAVED = 4,  // the state of sequence row was copied to address key, value bytes (the lower 32 bits)
    TAP_SERVED_RESTORED = 5, // … and from there into sequence row
    TAP_SERVED_ADAPTERS = 6, // what is computed from now on uses the LoRA adapters that key stands for; 0: none
    // what the HTTP request of thread row that began to come at mono_ns says of itself. The text has lines
    // "name value": path, traceparent, tracestate, and settings of its JSON body as they are there
    TAP_SERVED_HTTP = 7,
    // the program read the embedding of row of its last call, or of sequence token; the other is -1
    TAP_SERVED_EMBEDDED = 8,
};

// COMPLETED is what /responses says of both STOP and LENGTH.
enum tap_served_end { TAP_SERVED_STOP = 1, TAP_SERVED_LENGTH = 2, TAP_SERVED_ERROR = 3, TAP_SERVED_COMPLETED = 4 };

struct tap_rec_served {
    struct tap_record h;
    uint64_t mono_ns, begun_ns, grammar_ns, key;
    uint32_t kind; // enum tap_served_kind
    uint32_t ctx;  // UINT32_MAX: none
    int32_t  row, token;
    uint32_t value, bytes;
};

// Bytes of a tensor that were moved to a device, or from one.
enum tap_moved_kind { TAP_MOVED_SET = 0, TAP_MOVED_GET = 1, TAP_MOVED_COPY = 2 /* before it is */ };
enum tap_moved_flag {
    TAP_MOVED_ASYNC = 1u << 0, // it was over when its backend was synchronised with, at the latest
    TAP_MOVED_OWN = 1u << 1,   // it was moved for the recording
};

struct tap_rec_moved {
    struct tap_record h;
    uint64_t begun_ns, mono_ns; // from call to return
    uint64_t buffer, offset, size; // on the device
    uint64_t data;                 // address in the program
    uint32_t kind, flags;
    uint32_t bytes; // of the name
    uint32_t reserved;
};

#endif
