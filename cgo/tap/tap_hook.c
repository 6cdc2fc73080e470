//go:build llama

// tap_hook.c: the functions of ggml that the tap stands before.
#define _GNU_SOURCE
#include "tap_init.h"
#include "tap_real.h"
#include "tap_sched.h"
#include "tap_steer.h"

#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t tap_next_graph = 1;

uint64_t tap_graph_number(void) { return tap_count(&tap_next_graph, 1); }

// ---- fetching ahead -------------------------------------------------------------------------------------------------

// Where the linker puts what is TAP_HOT.
extern const uint8_t __start_tap_hot[] __attribute__((visibility("hidden")));
extern const uint8_t __stop_tap_hot[] __attribute__((visibility("hidden")));

enum { TAP_LINE = 64 };

static inline void tap_fetch_code(const uint8_t * first, const uint8_t * end) {
    for (; first < end; first += TAP_LINE) {
        __builtin_prefetch(first);
    }
}

// tap_fetch_queue fetches what is written next.
static inline void tap_fetch_queue(size_t bytes) {
    // near its end it is what lies behind the queue, which does no harm
    const uint8_t * next = tap.queue + (tap_peek(&tap.opened) & (tap.queue_bytes - 1));
    __builtin_prefetch(&tap.header->queue_head, 1);
    for (size_t i = 0; i < bytes; i += TAP_LINE) {
        __builtin_prefetch(next + i, 1);
    }
}

static TAP_HOT void tap_fetch_entry(void) {
    const struct tap_header * h = tap.header;
    __builtin_prefetch(&h->stats.executions, 1);
    __builtin_prefetch(&h->selection);
    __builtin_prefetch(&h->config.overflow);
    tap_fetch_code(__start_tap_hot, __stop_tap_hot);
    tap_fetch_queue(8 * TAP_LINE);
}

static TAP_HOT void tap_fetch_end(void) {
    const uint8_t * end = (const uint8_t *) (uintptr_t) tap_exec_end, * open =
        (const uint8_t *) (uintptr_t) tap_queue_open;
    tap_fetch_code(end, end + 6 * TAP_LINE); // about as much as they are
    tap_fetch_code(open, open + 4 * TAP_LINE);
    tap_fetch_queue(2 * TAP_LINE);
    __builtin_prefetch(&tap.header->stats.hook_ns, 1);
}

// tap_selection_changed says whether the collector has changed its mind since s's graph was marked.
static bool tap_selection_changed(const struct tap_sched * s) {
    return __builtin_expect(tap_get(&tap.header->selection) != s->graph.selection, 0);
}

// tap_named accounts for a graph that was read or marked anew since began: it has a number and a description of its
// own.
static void tap_named(struct tap_sched * s, int64_t began) {
    s->graph.id = tap_graph_number();
    s->graph.sent = false;
    tap_add(&tap.header->stats.graphs, 1);
    tap_add(&tap.header->stats.rebuilt, s->graph.like != 0);
    tap_described((uint64_t) (tap_now() - began), s->graph.like != 0);
}

// tap_describe_again describes a graph that is made as the one before, see tap_known.c. Returns false where it is
// not, or where more of it is wanted than its description.
static bool tap_describe_again(struct tap_sched * s, struct ggml_cgraph * cgraph) {
    struct tap_graph * g = &s->graph;
    if (g->captures || !tap_graph_alike(g, cgraph)) {
        return false;
    }
    if (!g->selected || tap_selection_changed(s)) {
        tap_select(s);
        g->like = 0; // what is marked may be reported a second time, but not as a change
    } else if (g->sent) {
        g->like = g->id;
    }
    return true;
}

static TAP_RARE bool tap_describe(struct tap_sched * s, struct ggml_cgraph * cgraph) {
    const int64_t began = tap_now();
    if (!tap_describe_again(s, cgraph)) {
        if (!tap_graph_describe(&s->graph, cgraph)) {
            tap_loss_add(TAP_LOSS_NO_MEMORY, 0, 0);
            return false;
        }
        tap_select(s);
    }
    tap_named(s, began);
    return true;
}

// tap_finish completes the description of a graph that was allocated, which is part of describing it.
static void tap_finish(struct tap_sched * s) {
    const int64_t began = tap_now();
    tap_graph_finish(&s->graph);
    tap_look_devices(&s->graph);
    tap_described((uint64_t) (tap_now() - began), s->graph.like != 0);
}

// tap_remark marks a known graph by another selection.
static TAP_RARE void tap_remark(struct tap_sched * s) {
    const int64_t began = tap_now();
    tap_select(s);
    s->graph.like = 0;
    tap_graph_finish(&s->graph);
    tap_look_devices(&s->graph);
    tap_named(s, began);
}

// ---- interposed -----------------------------------------------------------------------------------------------------

// Before allocation a node's sources still are the tensors that llama.cpp built; the scheduler then puts copies on
// devices in their place. After it, addresses and buffers are final.
bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    tap_enter();
    if (!tap_on()) {
        tap_steer_by_row(sched, graph);
        return TAP_REAL(ggml_backend_sched_alloc_graph)(sched, graph);
    }
    struct tap_sched * s = tap_sched_of(sched, true);
    tap_steer_find(graph);
    // Compute allocates by itself where the program did not; what it allocates has just been described.
    const bool known = s != NULL && s->computing && s->graph.described && s->graph.cgraph == graph;
    const bool described = known || (s != NULL && tap_describe(s, graph));
    if (described) {
        tap_keep_begin(s, graph);
    }
    tap_steer_by_row(sched, graph); // a graph is described as llama.cpp built it
    const bool ok = TAP_REAL(ggml_backend_sched_alloc_graph)(sched, graph);
    if (described && ok) {
        tap_finish(s);
        tap_keep_end(s);
    }
    return ok;
}

// tap_reserve reads a graph that is measured and not computed.
static void tap_reserve(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    struct tap_sched * s = tap_on() ? tap_sched_of(sched, true) : NULL;
    if (s == NULL || s->computing) {
        return;
    }
    struct tap_graph * g = &s->graph;
    if ((!g->captures && tap_graph_alike(g, graph)) || tap_graph_describe(g, graph)) {
        tap_select_ahead(g);
        tap_keep_reserve(s); // memory for what will be kept
    }
    g->described = false;
}

// A program that has its graphs measured before it computes gives the tap the time to read one: the tables are
// there when the first one is computed, and what follows from its form is known. What is selected of it counts: a
// name may be one of a graph that comes later.
bool ggml_backend_sched_reserve(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    tap_reserve(sched, graph);
    return TAP_REAL(ggml_backend_sched_reserve)(sched, graph);
}

void ggml_backend_sched_reserve_size(ggml_backend_sched_t sched, struct ggml_cgraph * graph, size_t * sizes) {
    tap_reserve(sched, graph);
    TAP_REAL(ggml_backend_sched_reserve_size)(sched, graph, sizes);
}

// tap_still_on is tap_on at the entry of a graph: a collector that lives and records no more says so, and from this
// graph on the program runs as it would without the tap. Policy drop and a pool with room would never ask.
static bool tap_still_on(void) {
    const uint32_t closed = tap_on() ? tap_get(&tap.header->closed) : TAP_OPEN;
    if (__builtin_expect(closed == TAP_COUNTS, 0)) {
        tap_set(&tap.counting, true);
    } else if (__builtin_expect(closed == TAP_CLOSED, 0)) {
        tap_poke(&tap.recording, false);
    }
    return tap_on();
}

// tap_retire takes our callback away from a scheduler when recording has ended.
static TAP_RARE void tap_retire(ggml_backend_sched_t sched) {
    struct tap_sched * s = tap_sched_of(sched, false);
    if (s != NULL && s->installed) {
        TAP_REAL(ggml_backend_sched_set_eval_callback)(sched, s->user_callback, s->user_data);
        s->installed = false;
    }
}

TAP_HOT enum ggml_status ggml_backend_sched_graph_compute_async(ggml_backend_sched_t sched,
                                                                struct ggml_cgraph * graph) {
    tap_enter();
    if (!tap_still_on()) {
        if (tap.header != NULL && tap.joined) {
            tap_retire(sched);
            tap_add(&tap.header->stats.unrecorded, 1);
        }
        return tap_steer_rows(sched, graph) ? TAP_REAL(ggml_backend_sched_graph_compute_async)(sched, graph)
                                            : GGML_STATUS_FAILED;
    }
    const int64_t began = tap_now();
    if (!tap_steer_rows(sched, graph)) {
        return GGML_STATUS_FAILED;
    }
    tap_fetch_entry();
    struct tap_thread before = tap_thread;
    struct tap_sched * s = tap_sched_enter(sched);
    bool seen = s != NULL;
    if (seen && (!s->graph.described || s->graph.cgraph != graph)) {
        seen = tap_describe(s, graph);
        if (seen) {
            tap_graph_cut(&s->graph); // it was allocated before it was looked at
            tap_finish(s);
        }
    }
    if (!seen) {
        // a graph without a place in the tables, or without memory to describe it
        tap_loss_add(TAP_LOSS_NO_MEMORY, 1, 0);
        return TAP_REAL(ggml_backend_sched_graph_compute_async)(sched, graph);
    }
    if (tap_selection_changed(s)) {
        tap_remark(s);
    }
    tap_exec_begin(s, began);
    const uint64_t entry_ns = tap_own_until(began, s->begin_ns, &before);
    s->computing = true;
    const enum ggml_status status = TAP_REAL(ggml_backend_sched_graph_compute_async)(sched, graph);
    s->computing = false;
    if (tap.header == NULL) {
        return status; // a child, forked inside of the graph
    }
    if (s->graph.n_kept > 0 && s->keeps && (s->capturing || s->routed) && status == GGML_STATUS_SUCCESS) {
        tap_capture_kept(s);
    }
    const int64_t left = tap_now(); // the model has waited for the copies, as it does where they cut the graph
    tap_fetch_end();
    before = tap_thread;
    tap_exec_end(s, status, left);
    tap_add(&tap.header->stats.hook_ns, entry_ns + tap_own_since(left, &before));
    return status;
}

// A graph that a device has part in is computed when its scheduler was synchronised first.
void ggml_backend_sched_synchronize(ggml_backend_sched_t sched) {
    struct tap_sched * s = tap_on() ? tap_sched_of(sched, false) : NULL;
    if (s == NULL || s->running == 0 || s->computing) {
        TAP_REAL(ggml_backend_sched_synchronize)(sched);
        return;
    }
    const int64_t began = tap_now();
    TAP_REAL(ggml_backend_sched_synchronize)(sched);
    tap_sync_end(s, began);
}

void ggml_backend_sched_set_eval_callback(ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback,
                                          void * user_data) {
    tap_enter();
    if (tap.header != NULL) {
        struct tap_sched * s = tap_sched_of(sched, tap_on());
        if (s != NULL) {
            s->user_callback = callback;
            s->user_data = user_data;
            s->installed = false;
        }
    }
    TAP_REAL(ggml_backend_sched_set_eval_callback)(sched, callback, user_data);
}

// After a reset the graph that was described may be gone, and another one may lie in its memory.
void ggml_backend_sched_reset(ggml_backend_sched_t sched) {
    struct tap_sched * s = tap.header != NULL ? tap_sched_of(sched, false) : NULL;
    if (s != NULL && !s->computing) {
        s->graph.described = false;
    }
    TAP_REAL(ggml_backend_sched_reset)(sched);
}

void ggml_backend_sched_free(ggml_backend_sched_t sched) {
    if (tap.header != NULL) {
        tap_sched_forget(sched);
        tap_stand_in_forget(sched);
    }
    TAP_REAL(ggml_backend_sched_free)(sched);
}

// The tools of llama.cpp search a compiled-in system folder for their CPU backends; on a machine without one they
// would find none.
void ggml_backend_load_all(void) {
    if (tap.header != NULL && tap.header->config.backends[0] != 0) {
        TAP_REAL(ggml_backend_load_all_from_path)(tap.header->config.backends);
        return;
    }
    TAP_REAL(ggml_backend_load_all)();
}
