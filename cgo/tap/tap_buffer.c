//go:build llama

// tap_buffer.c: the buffers of ggml's backends, from their allocation to their end. Every address that is recorded
// is a place in one.
//
// A program loads its model before it computes, and is recorded from there on: what it allocated before is noted
// here and reported then.
#define _GNU_SOURCE
#include "tap_buffer.h"
#include "tap_init.h"
#include "tap_queue.h"
#include "tap_real.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct tap_buffer {
    ggml_backend_buffer_t ptr; // NULL: the entry is free
    uint64_t              number, base, size;
    int64_t               since;
    uint32_t              usage, flags;
    bool                  reported;
    char *                file; // that is mapped; NULL: none
    uint64_t              file_offset;
};

static pthread_mutex_t     tap_buffers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tap_buffer * tap_buffers; // guarded, as is what follows
static size_t              tap_n_buffers, tap_cap_buffers;
static uint64_t            tap_next_buffer = 1;
_Atomic uint64_t           tap_buffers_age;

static void tap_buffers_aged(void) { tap_agree_add(&tap_buffers_age, 1); }

// tap_buffers_open says whether this process is recorded, or may be.
static bool tap_buffers_open(void) {
    return __builtin_expect(tap.header != NULL && (tap_get(&tap.given) || tap_on()), 0);
}

static struct tap_buffer * tap_buffer_at(ggml_backend_buffer_t ptr) {
    for (size_t i = 0; i < tap_n_buffers; i++) {
        if (tap_buffers[i].ptr == ptr) {
            return &tap_buffers[i];
        }
    }
    return NULL;
}

static struct tap_buffer * tap_buffer_new(void) {
    struct tap_buffer * b = tap_buffer_at(NULL);
    if (b != NULL) {
        return b;
    }
    if (tap_n_buffers == tap_cap_buffers) {
        const size_t cap = tap_cap_buffers == 0 ? 64 : tap_cap_buffers * 2;
        void * grown = realloc(tap_buffers, cap * sizeof(tap_buffers[0]));
        if (grown == NULL) {
            return NULL;
        }
        tap_buffers = grown;
        tap_cap_buffers = cap;
    }
    return &tap_buffers[tap_n_buffers++];
}

static size_t tap_name_copy(char * to, size_t size, const char * name) {
    size_t n = 0;
    for (; name != NULL && n < size && name[n] != 0; n++) {
        to[n] = name[n];
    }
    return n;
}

// tap_buffer_device is the device of a kind of buffers, or NULL.
static ggml_backend_dev_t tap_buffer_device(ggml_backend_buffer_type_t type) {
    return type != NULL && tap_real.ggml_backend_buft_get_device != NULL ? tap_real.ggml_backend_buft_get_device(type)
        : NULL;
}

static ggml_backend_buffer_type_t tap_buffer_type(ggml_backend_buffer_t ptr) {
    return tap_real.ggml_backend_buffer_get_type != NULL ? tap_real.ggml_backend_buffer_get_type(ptr) : NULL;
}

// tap_buffer_here says whether a buffer's memory is this process's. Where weights are repacked ggml does not call
// it so, for nobody shall read them as they are.
static bool tap_buffer_here(ggml_backend_buffer_t ptr) {
    if (tap_real.ggml_backend_buffer_is_host(ptr)) {
        return true;
    }
    ggml_backend_dev_t device = tap_buffer_device(tap_buffer_type(ptr));
    return device != NULL && tap_real.ggml_backend_dev_type != NULL &&
        tap_real.ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

const void * tap_buffer_on(ggml_backend_buffer_t ptr) {
    return ptr == NULL || tap_buffer_here(ptr) ? NULL : tap_buffer_device(tap_buffer_type(ptr));
}

// tap_buffer_tell reports a buffer. The caller holds the lock of the buffers.
static void tap_buffer_tell(struct tap_buffer * b) {
    ggml_backend_buffer_type_t type = tap_buffer_type(b->ptr);
    ggml_backend_dev_t device = tap_buffer_device(type);
    char names[2 * TAP_NAME_SIZE];
    struct tap_rec_buffer rec = {
        .h.type = TAP_REC_BUFFER, .buffer = b->number, .mono_ns = (uint64_t) b->since, .base = b->base, .size = b->size,
        .usage = b->usage, .flags = b->flags | (b->reported ? TAP_BUFFER_KNOWN : 0), .file_offset = b->file_offset,
    };
    if (type != NULL && tap_real.ggml_backend_buft_name != NULL) {
        rec.type_bytes = (uint16_t) tap_name_copy(names, TAP_NAME_SIZE, tap_real.ggml_backend_buft_name(type));
    }
    if (device != NULL && tap_real.ggml_backend_dev_name != NULL) {
        rec.device_bytes = (uint16_t) tap_name_copy(names + rec.type_bytes, TAP_NAME_SIZE,
                                                    tap_real.ggml_backend_dev_name(device));
    } else if (b->flags & TAP_BUFFER_HOST) { // ggml names no device for the plain memory of the CPU
        rec.device_bytes = (uint16_t) tap_name_copy(names + rec.type_bytes, TAP_NAME_SIZE, "CPU");
    }
    rec.file_bytes = (uint16_t) (b->file != NULL ? strnlen(b->file, TAP_PATH_SIZE) : 0);
    const struct tap_part parts[2] = {{names, (size_t) rec.type_bytes + rec.device_bytes}, {b->file, rec.file_bytes}};
    tap_queue_put(&rec.h, sizeof(rec), parts, 2);
    b->reported = true;
}

// tap_buffer_over ends a buffer's life. The caller holds the lock of the buffers.
static void tap_buffer_over(struct tap_buffer * b) {
    tap_buffers_aged();
    b->ptr = NULL;
    free(b->file);
    b->file = NULL;
    if (b->reported && tap_on()) {
        struct tap_rec_buffer_end rec = {.h.type = TAP_REC_BUFFER_END, .buffer = b->number,
            .mono_ns = (uint64_t) tap_now()};
        tap_queue_put(&rec.h, sizeof(rec), NULL, 0);
    }
}

// tap_buffer_put keeps a buffer in mind. One that is known with the same memory is another kind's, which was made
// of it: that of repacked weights is a CPU's at first. With other memory it is a new one, whose predecessor ended
// unseen. The caller holds the lock of the buffers.
static uint64_t tap_buffer_put(struct tap_buffer * note) {
    struct tap_buffer * b = tap_buffer_at(note->ptr);
    if (b != NULL && b->base == note->base && b->size == note->size) {
        free(note->file);
    } else {
        if (b != NULL) {
            tap_buffer_over(b);
        }
        if ((b = tap_buffer_new()) == NULL) {
            free(note->file);
            return 0;
        }
        tap_buffers_aged();
        note->number = tap_next_buffer++;
        *b = *note;
    }
    if (tap_on()) {
        tap_buffer_tell(b);
    }
    return b->number;
}

// tap_buffer_note keeps a buffer in mind, and reports it if this process is recorded. Those without bytes, which
// llama.cpp makes by the hundred to learn sizes, are none. Returns its number, or 0.
static uint64_t tap_buffer_note(ggml_backend_buffer_t ptr, bool mapped) {
    if (ptr == NULL || tap_real.ggml_backend_buffer_get_size == NULL || tap_real.ggml_backend_buffer_get_base == NULL) {
        return 0;
    }
    const size_t size = tap_real.ggml_backend_buffer_get_size(ptr);
    if (size == 0) {
        return 0;
    }
    struct tap_buffer note = {
        .ptr = ptr, .base = (uint64_t) (uintptr_t) tap_real.ggml_backend_buffer_get_base(ptr), .size = size,
        .since = tap_now(),
        .usage = tap_real.ggml_backend_buffer_get_usage != NULL
            ? (uint32_t) tap_real.ggml_backend_buffer_get_usage(ptr) : 0,
        .flags = (mapped ? TAP_BUFFER_MAPPED : 0) | (tap_buffer_here(ptr) ? TAP_BUFFER_HOST : 0),
    };
    if (mapped && note.flags & TAP_BUFFER_HOST) {
        note.file = tap_mapped_file((const void *) (uintptr_t) note.base, &note.file_offset);
    }
    pthread_mutex_lock(&tap_buffers_lock);
    const uint64_t number = tap_buffer_put(&note);
    pthread_mutex_unlock(&tap_buffers_lock);
    return number;
}

void tap_buffers_announce(void) {
    pthread_mutex_lock(&tap_buffers_lock);
    for (size_t i = 0; i < tap_n_buffers; i++) {
        if (tap_buffers[i].ptr != NULL && !tap_buffers[i].reported) {
            tap_buffer_tell(&tap_buffers[i]);
        }
    }
    pthread_mutex_unlock(&tap_buffers_lock);
}

// tap_buffer_known finds number and base of a buffer; one that came by a way that the tap does not know is noted.
// number is 0 where it has none.
static void tap_buffer_known(ggml_backend_buffer_t ptr, uint64_t * number, uint64_t * base) {
    pthread_mutex_lock(&tap_buffers_lock);
    const struct tap_buffer * b = tap_buffer_at(ptr);
    *number = b != NULL ? b->number : 0;
    *base = b != NULL ? b->base : 0;
    pthread_mutex_unlock(&tap_buffers_lock);
    if (b == NULL && (*number = tap_buffer_note(ptr, false)) != 0) {
        *base = (uint64_t) (uintptr_t) tap_real.ggml_backend_buffer_get_base(ptr);
    }
}

void tap_where(struct tap_nearby * near, const struct ggml_tensor * t, uint64_t * buffer, uint64_t * offset) {
    enum { MOST = sizeof(near->of) / sizeof(near->of[0]) };
    ggml_backend_buffer_t ptr = tap_buffer_of(t);
    *buffer = *offset = 0;
    if (ptr == NULL || t->data == NULL) {
        return;
    }
    unsigned i = 0;
    while (i < MOST && near->of[i].ptr != ptr) {
        i++;
    }
    if (i == MOST) {
        i = near->next++ % MOST;
        near->of[i].ptr = ptr;
        tap_buffer_known(ptr, &near->of[i].number, &near->of[i].base);
    }
    if (near->of[i].number != 0) {
        *buffer = near->of[i].number;
        *offset = (uint64_t) (uintptr_t) t->data - near->of[i].base;
    }
}

// ---- interposed -----------------------------------------------------------------------------------------------------

ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = TAP_REAL(ggml_backend_buft_alloc_buffer)(type, size);
    if (tap_buffers_open()) {
        tap_buffer_note(buffer, false);
    }
    return buffer;
}

ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(ggml_backend_dev_t device, void * ptr, size_t size,
                                                            size_t max_tensor_size) {
    ggml_backend_buffer_t buffer = TAP_REAL(ggml_backend_dev_buffer_from_host_ptr)(device, ptr, size, max_tensor_size);
    if (tap_buffers_open()) {
        tap_buffer_note(buffer, true);
    }
    return buffer;
}

void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, enum ggml_backend_buffer_usage usage) {
    TAP_REAL(ggml_backend_buffer_set_usage)(buffer, usage);
    if (!tap_buffers_open()) {
        return;
    }
    pthread_mutex_lock(&tap_buffers_lock);
    struct tap_buffer * b = buffer != NULL ? tap_buffer_at(buffer) : NULL;
    if (b != NULL && b->usage != (uint32_t) usage) {
        b->usage = (uint32_t) usage;
        if (tap_on()) {
            tap_buffer_tell(b);
        }
    }
    pthread_mutex_unlock(&tap_buffers_lock);
}

void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    if (buffer != NULL && tap_buffers_open()) {
        pthread_mutex_lock(&tap_buffers_lock);
        struct tap_buffer * b = tap_buffer_at(buffer);
        if (b != NULL) {
            tap_buffer_over(b);
        }
        pthread_mutex_unlock(&tap_buffers_lock);
        tap_buffers_aged(); // one that was never seen, too
    }
    TAP_REAL(ggml_backend_buffer_free)(buffer);
}
