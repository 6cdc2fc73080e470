// tap_init.h: joining and leaving the collector's memory.
#ifndef LLAMATAP_TAP_INIT_H
#define LLAMATAP_TAP_INIT_H

#include <stdint.h>

#include "tap_state.h"

// tap_attach maps the shared memory behind fd and checks it. life_fd is a pipe that ends with the collector, or -1.
// Both stay open, for processes that this one starts. Returns 0, or an errno value.
int tap_attach(int fd, int life_fd);

// tap_join_now makes this process the one that is recorded, unless another one is.
void tap_join_now(void);

void tap_say_cut_off(void);

// tap_enter stands where a process begins to use llama.cpp: there it joins.
static inline void tap_enter(void) {
    if (__builtin_expect(tap_get(&tap.given), 0)) {
        tap_join_now();
    } else if (__builtin_expect(tap.cut_off, 0)) {
        tap_say_cut_off();
    }
}

// tap_detach says goodbye to the collector. Safe to call twice. The memory stays mapped: other threads may still be
// inside.
void tap_detach(void);

// tap_leave_memory says goodbye and unmaps the memory, so that another can be attached. No other thread may use
// llama.cpp meanwhile.
void tap_leave_memory(void);

bool tap_recording(void); // whether this process is recorded, or will be when it uses llama.cpp

#endif
