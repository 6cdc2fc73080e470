// tap_buffer.h: where in which buffer bytes lie.
#ifndef LLAMATAP_TAP_BUFFER_H
#define LLAMATAP_TAP_BUFFER_H

#include "llama.h"
#include "tap_state.h"

// tap_buffers_announce reports every buffer that this process has, when it is first recorded.
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

// tap_buffer_on is the device that a buffer lies on; NULL: in this process's memory, or not known.
const void * tap_buffer_on(ggml_backend_buffer_t ptr);

// tap_buffer_of is the buffer that a tensor's bytes lie in, or NULL.
static inline ggml_backend_buffer_t tap_buffer_of(const struct ggml_tensor * t) {
    return t->view_src != NULL ? t->view_src->buffer : t->buffer;
}

#endif
