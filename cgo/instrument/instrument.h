// instrument.h: what the parts of the library share. One lock per file of events guards all of struct
// llama_resource_instr but the two atomic fields; a line is made in the file's buffer under that lock, so that
// lines are whole and nothing is allocated.
#ifndef LLAMATAP_INSTRUMENT_H
#define LLAMATAP_INSTRUMENT_H

#include <pthread.h>

#include "llama-resource-instrumentation.h"

#define INSTR_API __attribute__((visibility("default")))
#define INSTR_HIDDEN __attribute__((visibility("hidden")))

enum {
    INSTR_BUFFER = 64 << 10,
    INSTR_LINE = 16 << 10,     // bytes of the longest line
    INSTR_TEXT = 200,          // bytes of a text that is kept
    INSTR_NAME = 64,           // bytes of a component's name that is kept, with its end
    INSTR_THREADS = 64,        // threads with something open at the same time
    INSTR_DEPTH = 8,           // open layers and components of a thread
    INSTR_LIVE = 65536,        // allocations that are remembered
    INSTR_BUCKETS = 4096,      // of the tables that find them
    INSTR_LEVEL_MINIMAL = 0,
    INSTR_LEVEL_DETAILED = 1,
    INSTR_LEVEL_VERBOSE = 2,
    INSTR_MINIMAL_BYTES = 1 << 20, // from this size on MINIMAL reports allocations
};
#define INSTR_FLUSH_NS 1000000000 // a line waits no longer than until the first line this time later
#define INSTR_RETRY_NS 100000000  // time between attempts to write that failed

// Kinds of events. Their names are in instrument_line.c.
enum instr_kind {
    INSTR_SESSION_START, INSTR_TRACKING_BEGIN, INSTR_LAYER_BEGIN, INSTR_LAYER_END, INSTR_COMPONENT_BEGIN,
    INSTR_COMPONENT_END,
    INSTR_ALLOCATION, INSTR_DEALLOCATION, INSTR_COMPUTE, INSTR_HANDOFF, INSTR_KV, INSTR_MLP, INSTR_SUMMARY,
    INSTR_SESSION_END,
    INSTR_LOSS, INSTR_LEVEL, INSTR_KINDS
};

// Why a line is lost. Their names are in instrument_line.c.
enum instr_cause { INSTR_DISK_FULL, INSTR_WRITE_ERROR, INSTR_TOO_LONG, INSTR_CAUSES };

// What an operation is, by its name. Arithmetic is by an operation's shapes.
enum instr_class { INSTR_CLASS_UNKNOWN, INSTR_CLASS_PRODUCT, INSTR_CLASS_OTHER, INSTR_CLASS_ELEMENTWISE };

// What was done in a layer, a component or a session.
struct instr_work {
    uint64_t flops, memory_bytes;
    uint32_t memory_operations, compute_operations, without_flops;
};

// An open layer or component.
struct instr_range {
    bool     layer, reported;
    int32_t  layer_id;
    char     name[INSTR_NAME];
    uint64_t start_ns, looking_ns; // looking_ns is the thread's at the beginning
    struct instr_work work;
};

// A thread with something open.
struct instr_thread {
    pthread_t          id;
    int                depth; // 0 = free
    uint64_t           looking_ns; // time in this library
    struct instr_range open[INSTR_DEPTH];
};

// An allocation that was reported and not given back.
struct instr_live {
    uint64_t number, address, bytes, mono_ns; // number ends its resource_id
    uint32_t next_number, next_address;       // in their chains, index + 1
    int32_t  layer_id;
    bool     host;
    char     device[32], component[INSTR_TEXT + 1];
};

struct instr_memory {
    struct instr_live * live;
    uint32_t cap, used, free;   // entries: allocated, ever used, first free + 1
    uint32_t by_number[INSTR_BUCKETS], by_address[INSTR_BUCKETS]; // index + 1
    uint64_t live_bytes, peak_bytes, allocated_bytes, freed_bytes;
    uint64_t untracked, unmatched;
};

struct llama_resource_instr {
    pthread_mutex_t lock;
    int             open, enabled; // atomic, written under the lock
    int             fd;
    int             level;
    bool            forked; // this process is a child of the one that opened the file
    char *          path;
    char            session[INSTR_TEXT + 1];
    int64_t         unix_offset_ns; // of the monotonic clock
    uint64_t        start_ns, last_id_us;

    char            buffer[INSTR_BUFFER];
    size_t          used, line; // bytes in the buffer; where the line being made begins
    enum instr_cause line_fault; // why it did not fit, INSTR_CAUSES = it did
    enum instr_kind line_kind;
    uint64_t        flushed_ns, failed_ns;
    int             error;      // errno of the last attempt to write, 0 = it worked
    bool            error_told;

    uint64_t        events, flows;
    uint64_t        lost[INSTR_KINDS][INSTR_CAUSES], lost_told[INSTR_KINDS][INSTR_CAUSES]; // lost_told: in loss events
    uint64_t        unmatched_ends, left_open;
    uint32_t        threads_used;
    struct instr_thread threads[INSTR_THREADS];
    struct instr_work   total;
    struct instr_memory memory;
    struct llama_resource_instr * next; // of all that are open
};

// One call of a function of the library.
struct instr_call {
    struct llama_resource_instr * instr;
    uint64_t mono_ns; // when the program called
};

#pragma GCC visibility push(hidden)

// ---- instrument.c ---------------------------------------------------------------------------------------------------

uint64_t instr_now(void);

// enter takes the lock where something may be written; then leave must follow.
bool instr_enter(struct instr_call * c, struct llama_resource_instr * instr);
void instr_leave(struct instr_call * c);

// ---- instrument_line.c: a line of JSON in the buffer ----------------------------------------------------------------

extern const char * const instr_kinds[INSTR_KINDS], * const instr_causes[INSTR_CAUSES], * const instr_levels[3];

// begin writes what every event begins with, and its source. end puts the line into the file, or counts its loss.
void instr_begin(struct instr_call * c, enum instr_kind kind, const char * source);
void instr_end(struct instr_call * c);

// Each of these writes one key with its value. Of a text all is escaped, and what is no UTF-8 replaced.
void instr_key(struct llama_resource_instr * s, const char * key);
void instr_raw(struct llama_resource_instr * s, const char * text);
void instr_quoted(struct llama_resource_instr * s, const char * text, size_t most);
void instr_text(struct llama_resource_instr * s, const char * key, const char * text);
void instr_int(struct llama_resource_instr * s, const char * key, int64_t value);
void instr_uint(struct llama_resource_instr * s, const char * key, uint64_t value);
void instr_hex(struct llama_resource_instr * s, const char * key, uint64_t value);
void instr_shape(struct llama_resource_instr * s, const char * key, const struct llama_resource_tensor * t);
// ratio writes numerator / denominator with 2 to 9 decimals, whatever the program's locale is.
void instr_ratio(struct llama_resource_instr * s, const char * key, uint64_t numerator, uint64_t denominator);
void instr_mib(struct llama_resource_instr * s, const char * key, uint64_t bytes);

// copy keeps the beginning of a text: size bytes with its end, whole characters.
void instr_copy(char * to, size_t size, const char * text);

// ---- instrument_write.c ---------------------------------------------------------------------------------------------

bool instr_open_file(struct llama_resource_instr * s, const char * path);
void instr_flush(struct llama_resource_instr * s, uint64_t now_ns); // tries to write all of the buffer
void instr_close_file(struct llama_resource_instr * s);
void instr_lose(struct llama_resource_instr * s, enum instr_kind kind, enum instr_cause cause, uint64_t n);
enum instr_cause instr_write_cause(const struct llama_resource_instr * s);
void instr_complain(const char * format, ...) __attribute__((format(printf, 1, 2)));

// ---- instrument_range.c ---------------------------------------------------------------------------------------------

struct instr_thread * instr_thread(struct llama_resource_instr * s, bool claim);
// open in this thread, else by the name, else -1
int  instr_layer(struct llama_resource_instr * s, const char * tensor_name);
void instr_work(struct llama_resource_instr * s, const struct instr_work * more);
void instr_forget_ranges(struct llama_resource_instr * s);

// ---- instrument_memory.c --------------------------------------------------------------------------------------------

bool instr_memory_add(struct instr_memory * m, const struct instr_live * a);
bool instr_memory_take(struct instr_memory * m, const char * resource_id, struct instr_live * a);
void instr_memory_free(struct instr_memory * m);
void instr_device(char * to, size_t size, const char * name, bool host);
// id writes a resource_id; unique within the file's process, for its number grows.
void instr_id(struct instr_call * c, char * to, const char * device, const char * type, int layer,
              const char * component);

// ---- instrument_ops.c -----------------------------------------------------------------------------------------------

enum instr_class instr_class(const char * operation, const struct llama_resource_tensor * output);
// flops and bytes are false where they do not follow from the shapes alone.
bool instr_flops(const char * operation, const struct llama_resource_tensor * inputs, size_t n_inputs,
                 const struct llama_resource_tensor * output, uint64_t * flops);
bool instr_bytes(const char * operation, const struct llama_resource_tensor * output, uint64_t * read,
                 uint64_t * written);
bool instr_f32_bytes(const struct llama_resource_tensor * t, uint64_t * bytes); // that its values would take as F32
// function that computed it, NULL = none, or not known
const char * instr_activation(const struct llama_resource_tensor * t);

#pragma GCC visibility pop

#endif
