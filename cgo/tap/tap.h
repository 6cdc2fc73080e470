// tap.h: every header of the tap. A header includes only those above it in this list, and a module's files include
// the headers of the modules that they use; direction_test.go checks both.
#ifndef LLAMATAP_TAP_H
#define LLAMATAP_TAP_H

#include "tap_shm.h"
#include "tap_atomic.h"
#include "tap_state.h"
#include "tap_real.h"
#include "tap_lock.h"
#include "tap_wait.h"
#include "tap_queue.h"
#include "tap_pool.h"
#include "tap_aside.h"
#include "tap_team.h"
#include "tap_buffer.h"
#include "tap_moved.h"
#include "tap_context.h"
#include "tap_steer.h"
#include "tap_graph.h"
#include "tap_sched.h"
#include "tap_turn.h"
#include "tap_http.h"
#include "tap_ids.h"
#include "tap_served.h"
#include "tap_init.h"

#endif
