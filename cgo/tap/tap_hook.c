//go:build llama

// tap_hook.c: the functions of ggml that the tap stands before, and the tables of contexts and schedulers.
#define _GNU_SOURCE
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static struct tap_context * tap_contexts[TAP_MAX_CONTEXTS];
static uint32_t             tap_n_contexts;
static _Atomic uint64_t     tap_next_graph = 1;

TAP_OWN struct tap_call tap_current_call;

// tap_sched_new makes the state of a scheduler, of which an execution uses the beginning: one page.
static struct tap_sched * tap_sched_new(void) {
    enum { PAGE = 4096 };
    _Static_assert(offsetof(struct tap_sched, out) + 512 <= PAGE, "what a token's execution tells ends in another page");
    struct tap_sched * s = aligned_alloc(PAGE, (sizeof(*s) + PAGE - 1) / PAGE * PAGE);
    if (s != NULL) {
        memset(s, 0, sizeof(*s));
    }
    return s;
}

// tap_sched_at finds the state of a scheduler. A table that is full makes schedulers go unseen, never the program
// fail. The caller holds the lock.
static struct tap_sched * tap_sched_at(ggml_backend_sched_t ptr, bool make) {
    struct tap_sched * s = NULL;
    int free_at = -1;
    for (int i = 0; i < TAP_MAX_SCHEDS && s == NULL; i++) {
        if (tap.scheds[i] == NULL) {
            free_at = free_at < 0 ? i : free_at;
        } else if (tap.scheds[i]->ptr == ptr) {
            s = tap.scheds[i];
        }
    }
    if (s == NULL && make && free_at >= 0 && (s = tap_sched_new()) != NULL) {
        s->ptr = ptr;
        tap.scheds[free_at] = s;
    }
    return s;
}

struct tap_sched * tap_sched_of(ggml_backend_sched_t ptr, bool make) {
    tap_lock();
    struct tap_sched * s = tap_sched_at(ptr, make);
    tap_unlock();
    return s;
}

static void tap_sched_forget(ggml_backend_sched_t ptr) {
    tap_lock();
    for (int i = 0; i < TAP_MAX_SCHEDS; i++) {
        struct tap_sched * s = tap.scheds[i];
        if (s != NULL && s->ptr == ptr) {
            tap_graph_release(&s->graph);
            tap_cut_release(s);
            free(s->scratch);
            free(s->runs);
            free(s->times);
            free(s->fetched);
            free(s);
            tap.scheds[i] = NULL;
        }
    }
    tap_unlock();
}

// tap_context_at finds a context, or an entry for a new one where make says so. Entries are used again and never
// freed, so that a thread that walks the table meets no freed memory. The caller holds the lock.
static struct tap_context * tap_context_at(struct llama_context * ptr, bool make) {
    struct tap_context * unused = NULL;
    for (int i = 0; i < TAP_MAX_CONTEXTS; i++) {
        if (tap_contexts[i] == NULL && unused == NULL && make) {
            unused = tap_contexts[i] = i < TAP_FEW_CONTEXTS ? &tap.few_contexts[i] : calloc(1, sizeof(*unused));
        }
        struct tap_context * c = tap_contexts[i];
        if (c != NULL && c->ptr == ptr) {
            return c;
        }
        if (c != NULL && c->ptr == NULL && unused == NULL) {
            unused = c;
        }
    }
    return make ? unused : NULL;
}

// tap_context_init makes an entry new. Its list of rows stays: it is memory to be used again.
static void tap_context_init(struct tap_context * c) {
    tap_set(&c->memory, NULL);
    tap_set(&c->number, UINT32_MAX); // given at the first graph
    c->flash_attn = -2; // unknown
    c->announced = false;
    tap_set(&c->provisional, true);
    tap_set(&c->pending, false);
    c->batch_hash = 0;
    tap_set(&c->flags, 0);
    tap_set(&c->last_exec, 0);
    c->told_graph = 0;
}

struct tap_context * tap_context_of(struct llama_context * ptr) {
    tap_lock();
    struct tap_context * c = tap_context_at(ptr, true);
    if (c != NULL && c->ptr == NULL) {
        tap_context_init(c);
        c->ptr = ptr;
    }
    tap_unlock();
    return c;
}

void tap_context_forget(struct llama_context * ptr) {
    tap_lock();
    struct tap_context * c = ptr != NULL ? tap_context_at(ptr, false) : NULL;
    for (int k = 0; c != NULL && k < TAP_MAX_SCHEDS; k++) {
        if (tap.scheds[k] != NULL && tap.scheds[k]->context == c) {
            tap.scheds[k]->context = NULL;
        }
    }
    if (c != NULL) {
        c->ptr = NULL;
    }
    tap_unlock();
}

void tap_contexts_each(void (*fn)(struct tap_context *, void *), void * user_data) {
    struct tap_context * found[TAP_MAX_CONTEXTS];
    int n = 0;
    tap_lock();
    for (int i = 0; i < TAP_MAX_CONTEXTS; i++) {
        if (tap_contexts[i] != NULL && tap_contexts[i]->ptr != NULL) {
            found[n++] = tap_contexts[i];
        }
    }
    tap_unlock();
    for (int i = 0; i < n; i++) {
        fn(found[i], user_data);
    }
}

void tap_context_number(struct tap_context * c) {
    tap_lock();
    const bool first = !c->announced;
    if (first) {
        tap_set(&c->number, tap_n_contexts++);
        c->announced = true;
    }
    tap_unlock();
    if (first) {
        tap_context_announce(c);
    }
}

// tap_sched_context says whose graph is about to run: the context of the call that this thread is in, else the
// scheduler's last one, else one that stands for the scheduler alone (a vision encoder, a program that uses ggml
// directly).
static struct tap_context * tap_sched_context(struct tap_sched * s) {
    if (tap_current_call.context != NULL) {
        s->context = tap_current_call.context;
    } else if (s->context == NULL) {
        s->context = tap_context_of((struct llama_context *) s->ptr);
    }
    if (s->context != NULL) {
        tap_context_number(s->context);
    }
    return s->context;
}

// tap_sched_enter finds the state of a scheduler and the context whose graph is about to run. NULL: there is no
// place in the tables.
static TAP_HOT struct tap_sched * tap_sched_enter(ggml_backend_sched_t ptr) {
    struct tap_context * c = tap_current_call.context;
    tap_lock();
    struct tap_sched * s = tap_sched_at(ptr, true);
    const bool known = s != NULL && (c != NULL ? c : s->context) != NULL && (c != NULL ? c : s->context)->announced;
    if (known && c != NULL) {
        s->context = c;
    }
    tap_unlock();
    return known || (s != NULL && tap_sched_context(s) != NULL) ? s : NULL;
}

// tap_stand_in_forget ends the context that stood for a scheduler alone: the next scheduler may lie at the same
// address.
static void tap_stand_in_forget(ggml_backend_sched_t sched) {
    struct llama_context * ptr = (struct llama_context *) sched;
    tap_lock();
    struct tap_context * c = tap_context_at(ptr, false);
    tap_unlock();
    if (c != NULL) {
        if (tap_on()) {
            tap_context_resolve(c, false);
        }
        tap_context_forget(ptr);
    }
}

// tap_selection_changed says whether the collector has changed its mind since s's graph was marked.
static bool tap_selection_changed(const struct tap_sched * s) {
    return __builtin_expect(tap_get(&tap.header->selection) != s->graph.selection, 0);
}

void tap_described(uint64_t took, bool rebuilt) {
    tap_thread.described_ns += took;
    tap_add(&tap.header->stats.describe_ns, took);
    if (rebuilt) {
        tap_add(&tap.header->stats.rebuilt_ns, took);
    }
}

// tap_named accounts for a graph that was read or marked anew since began: it has a number and a description of its
// own.
static void tap_named(struct tap_sched * s, int64_t began) {
    s->graph.id = tap_count(&tap_next_graph, 1);
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
        g->like = 0; // what is marked may be told of a second time, but not as a change
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
    tap_described((uint64_t) (tap_now() - began), s->graph.like != 0);
}

// tap_remark marks a known graph by another selection.
static TAP_RARE void tap_remark(struct tap_sched * s) {
    const int64_t began = tap_now();
    tap_select(s);
    s->graph.like = 0;
    tap_graph_finish(&s->graph);
    tap_named(s, began);
}

// ---- interposed -----------------------------------------------------------------------------------------------------

// Before allocation a node's sources still are the tensors that llama.cpp built; the scheduler then puts copies on
// devices in their place. After it, addresses and buffers are final.
bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    tap_enter();
    if (!tap_on()) {
        return TAP_REAL(ggml_backend_sched_alloc_graph)(sched, graph);
    }
    struct tap_sched * s = tap_sched_of(sched, true);
    // Compute allocates by itself where the program did not; what it allocates has just been described.
    const bool known = s != NULL && s->computing && s->graph.described && s->graph.cgraph == graph;
    const bool described = known || (s != NULL && tap_describe(s, graph));
    const bool ok = TAP_REAL(ggml_backend_sched_alloc_graph)(sched, graph);
    if (described && ok) {
        tap_finish(s);
    }
    return ok;
}

// A program that has its graphs measured before it computes gives the tap the time to read one: the tables are
// there when the first one is computed, and what follows from its form is known. What is selected of it counts: a
// name may be one of a graph that comes later.
bool ggml_backend_sched_reserve(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    struct tap_sched * s = tap_on() ? tap_sched_of(sched, true) : NULL;
    if (s != NULL && !s->computing) {
        if ((!s->graph.captures && tap_graph_alike(&s->graph, graph)) || tap_graph_describe(&s->graph, graph)) {
            tap_select_ahead(&s->graph);
        }
        s->graph.described = false;
    }
    return TAP_REAL(ggml_backend_sched_reserve)(sched, graph);
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

TAP_HOT enum ggml_status ggml_backend_sched_graph_compute_async(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    tap_enter();
    if (!tap_still_on()) {
        if (tap.header != NULL && tap.joined) {
            tap_retire(sched);
            tap_add(&tap.header->stats.unrecorded, 1);
        }
        return TAP_REAL(ggml_backend_sched_graph_compute_async)(sched, graph);
    }
    const int64_t began = tap_now();
    tap_fetch_entry();
    struct tap_thread before = tap_thread;
    struct tap_sched * s = tap_sched_enter(sched);
    bool seen = s != NULL;
    if (seen && (!s->graph.described || s->graph.cgraph != graph)) {
        seen = tap_describe(s, graph);
        if (seen) {
            tap_finish(s);
        }
    }
    if (!seen) {
        tap_loss_add(TAP_LOSS_NO_MEMORY, 1, 0); // a graph without a place in the tables, or without memory to describe it
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
    const int64_t left = tap_now();
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

void ggml_backend_sched_set_eval_callback(ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback, void * user_data) {
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
