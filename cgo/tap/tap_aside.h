// tap_aside.h: the tap's own threads.
#ifndef LLAMATAP_TAP_ASIDE_H
#define LLAMATAP_TAP_ASIDE_H

#include <stdbool.h>

// tap_aside_start starts the tap's own threads, once, in a process whose collector gave it a pipe.
void tap_aside_start(void);
// tap_touch_start starts touching the pool's pages, once: not before tensors are wanted, for it takes the model's
// time. ahead: nothing of the pool is in use yet, and what was not touched shall not be.
void tap_touch_start(bool ahead);
// tap_touch_await waits until the pages are touched, a second at most: before the first graph of a model that may
// not wait later.
void tap_touch_await(void);

#endif
