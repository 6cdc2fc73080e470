// tap_moved.h: what is moved to and from devices.
#ifndef LLAMATAP_TAP_MOVED_H
#define LLAMATAP_TAP_MOVED_H

#include <stdbool.h>

// tap_moves_announce reports what was moved before this process was recorded.
void tap_moves_announce(void);

// tap_moves_own says whether this thread moves for the recording from now on.
void tap_moves_own(bool own);

#endif
