//go:build llama

// tap_moved.c: bytes of tensors that go to a device and come back: of a remote one, those on the wire.
//
// A model's weights go there before the program is recorded: what is moved until then is kept and reported with the
// buffers.
#define _GNU_SOURCE
#include "tap_buffer.h"
#include "tap_init.h"
#include "tap_moved.h"
#include "tap_queue.h"
#include "tap_real.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The most moves that are kept until the program is recorded, and the most of a thread that are not over.
enum { TAP_MOVES_KEPT = 1 << 17, TAP_MOVES_OPEN = 1 << 14 };

struct tap_move {
    struct tap_rec_moved rec;
    char                 name[TAP_NAME_SIZE];
    ggml_backend_t       backend; // of one that is not over
};

static pthread_mutex_t   tap_moves_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tap_move * tap_moves; // guarded, as is what follows
static size_t            tap_n_moves, tap_cap_moves;

static __thread struct tap_move * tap_open_moves;
static __thread unsigned          tap_n_open, tap_cap_open;
static __thread unsigned          tap_within; // ggml moves bytes by its own functions, too
static __thread bool              tap_own;    // what is moved now is moved for the recording

void tap_moves_own(bool own) { tap_own = own; }

static bool tap_on_device(const struct ggml_tensor * t) {
    ggml_backend_buffer_t buffer = tap_buffer_of(t);
    return buffer != NULL && !TAP_REAL(ggml_backend_buffer_is_host)(buffer);
}

// tap_moves_of says whether what is moved of a tensor is reported: it lies on a device.
static bool tap_moves_of(const struct ggml_tensor * t) {
    return tap_within == 0 && tap.header != NULL && (tap.header->config.start.record & TAP_RECORD_MOVES) &&
        (tap_get(&tap.given) || tap_on()) && tap_on_device(t);
}

// tap_move_put reports a move, or keeps it.
static void tap_move_put(struct tap_move * m) {
    if (tap_on()) {
        const struct tap_part part = {m->name, m->rec.bytes};
        tap_queue_put(&m->rec.h, sizeof(m->rec), &part, 1);
        return;
    }
    pthread_mutex_lock(&tap_moves_lock);
    if (tap_n_moves == tap_cap_moves && tap_cap_moves < TAP_MOVES_KEPT) {
        const size_t cap = tap_cap_moves == 0 ? 256 : tap_cap_moves * 2;
        void * grown = realloc(tap_moves, cap * sizeof(tap_moves[0]));
        if (grown != NULL) {
            tap_moves = grown;
            tap_cap_moves = cap;
        }
    }
    if (tap_n_moves < tap_cap_moves) {
        tap_moves[tap_n_moves++] = *m;
    } else {
        tap_loss_add(TAP_LOSS_NO_MEMORY, 0, sizeof(m->rec));
    }
    pthread_mutex_unlock(&tap_moves_lock);
}

void tap_moves_announce(void) {
    pthread_mutex_lock(&tap_moves_lock);
    struct tap_move * kept = tap_moves;
    const size_t n = tap_n_moves;
    tap_moves = NULL;
    tap_n_moves = tap_cap_moves = 0;
    pthread_mutex_unlock(&tap_moves_lock);
    for (size_t i = 0; i < n; i++) {
        tap_move_put(&kept[i]);
    }
    free(kept);
}

// tap_move describes what was moved from begun on. Its end is now.
static struct tap_move tap_move(const struct ggml_tensor * t, const void * data, size_t offset, size_t size,
                                enum tap_moved_kind kind, int64_t begun) {
    struct tap_nearby near = {0};
    struct tap_move m = {.rec = {.h.type = TAP_REC_MOVED, .begun_ns = (uint64_t) begun,
        .mono_ns = (uint64_t) tap_now(), .size = size, .data = (uintptr_t) data, .kind = kind,
        .flags = tap_own ? TAP_MOVED_OWN : 0}};
    tap_where(&near, t, &m.rec.buffer, &m.rec.offset);
    m.rec.offset += offset;
    m.rec.bytes = (uint32_t) strnlen(t->name, TAP_NAME_SIZE);
    memcpy(m.name, t->name, m.rec.bytes);
    return m;
}

// tap_move_open notes a move that is over when its backend was synchronised with.
static void tap_move_open(ggml_backend_t backend, struct tap_move m) {
    m.rec.flags |= TAP_MOVED_ASYNC;
    m.backend = backend;
    if (tap_n_open == tap_cap_open && tap_cap_open < TAP_MOVES_OPEN) {
        const unsigned cap = tap_cap_open == 0 ? 64 : tap_cap_open * 2;
        void * grown = realloc(tap_open_moves, cap * sizeof(tap_open_moves[0])); // kept: threads that compute are few
        if (grown != NULL) {
            tap_open_moves = grown;
            tap_cap_open = cap;
        }
    }
    if (tap_n_open < tap_cap_open) {
        tap_open_moves[tap_n_open++] = m;
    } else { // with the time of the call alone
        tap_move_put(&m);
    }
}

// tap_copy reports that bytes will be copied to a device: at once, so that the report comes within the graph that needs
// them, however late they arrive.
static void tap_copy(const struct ggml_tensor * t, const void * data, size_t offset, size_t size) {
    if (tap_within > 0 || tap_own || tap.header == NULL || !(tap.header->config.start.record & TAP_RECORD_COPIES) ||
        !tap_on() || !tap_on_device(t)) {
        return;
    }
    struct tap_move m = tap_move(t, data, offset, size, TAP_MOVED_COPY, tap_now());
    tap_move_put(&m);
}

// ---- interposed -----------------------------------------------------------------------------------------------------

void ggml_backend_tensor_set(struct ggml_tensor * t, const void * data, size_t offset, size_t size) {
    tap_copy(t, data, offset, size);
    if (!tap_moves_of(t)) {
        TAP_REAL(ggml_backend_tensor_set)(t, data, offset, size);
        return;
    }
    const int64_t begun = tap_now();
    tap_within++;
    TAP_REAL(ggml_backend_tensor_set)(t, data, offset, size);
    tap_within--;
    struct tap_move m = tap_move(t, data, offset, size, TAP_MOVED_SET, begun);
    tap_move_put(&m);
}

void ggml_backend_tensor_get(const struct ggml_tensor * t, void * data, size_t offset, size_t size) {
    if (!tap_moves_of(t)) {
        TAP_REAL(ggml_backend_tensor_get)(t, data, offset, size);
        return;
    }
    const int64_t begun = tap_now();
    tap_within++;
    TAP_REAL(ggml_backend_tensor_get)(t, data, offset, size);
    tap_within--;
    struct tap_move m = tap_move(t, data, offset, size, TAP_MOVED_GET, begun);
    tap_move_put(&m);
}

void ggml_backend_tensor_set_async(ggml_backend_t backend, struct ggml_tensor * t, const void * data, size_t offset,
                                   size_t size) {
    tap_copy(t, data, offset, size);
    if (!tap_moves_of(t)) {
        TAP_REAL(ggml_backend_tensor_set_async)(backend, t, data, offset, size);
        return;
    }
    const int64_t begun = tap_now();
    tap_within++;
    TAP_REAL(ggml_backend_tensor_set_async)(backend, t, data, offset, size);
    tap_within--;
    tap_move_open(backend, tap_move(t, data, offset, size, TAP_MOVED_SET, begun));
}

// llama.cpp reads the logits of a graph whose logits were not computed, as of any other.
void ggml_backend_tensor_get_async(ggml_backend_t backend, const struct ggml_tensor * t, void * data, size_t offset,
                                   size_t size) {
    if (tap.header != NULL && tap.header->config.no_logits && strcmp(t->name, "result_output") == 0) {
        return;
    }
    if (!tap_moves_of(t)) {
        TAP_REAL(ggml_backend_tensor_get_async)(backend, t, data, offset, size);
        return;
    }
    const int64_t begun = tap_now();
    tap_within++;
    TAP_REAL(ggml_backend_tensor_get_async)(backend, t, data, offset, size);
    tap_within--;
    tap_move_open(backend, tap_move(t, data, offset, size, TAP_MOVED_GET, begun));
}

void ggml_backend_synchronize(ggml_backend_t backend) {
    TAP_REAL(ggml_backend_synchronize)(backend);
    unsigned left = 0;
    for (unsigned i = 0; i < tap_n_open; i++) {
        if (tap_open_moves[i].backend != backend) {
            tap_open_moves[left++] = tap_open_moves[i];
            continue;
        }
        tap_open_moves[i].rec.mono_ns = (uint64_t) tap_now();
        tap_move_put(&tap_open_moves[i]);
    }
    tap_n_open = left;
}
