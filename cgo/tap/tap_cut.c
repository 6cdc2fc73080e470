//go:build llama

// tap_cut.c: what a cut of the graph costs the model.
//
// With an eval callback, ggml computes a graph up to each node that the callback wants, and waits: per cut a launch of
// all threads and a wait for the last of them, which an unrecorded run does not have. No clock of the tap sees that
// time alone, so it is measured: after an execution that was cut, the CPU backend that computed it computes one
// addition of a few values, with the same threads. Between two nodes of an uncut graph the threads meet at a barrier:
// what two additions take more than one is subtracted. An empty range of the graph itself would not do: ggml computes
// a range of views with one thread.
#define _GNU_SOURCE
#include "tap_real.h"
#include "tap_sched.h"

#include <string.h>

// A probe is made behind every execution that is cut often, behind every 8th of the others, and behind each where few
// are timed. The first result is the least of several: other programs may have interrupted one.
enum { TAP_CUT_OFTEN = 32, TAP_CUT_EVERY = 8, TAP_CUT_FIRST = 5, TAP_CUT_VALUES = 16 };

// tap_cut_backend is the CPU backend of a scheduler, or NULL.
static ggml_backend_t tap_cut_backend(ggml_backend_sched_t sched) {
    const int n = tap_real.ggml_backend_sched_get_n_backends(sched);
    for (int i = n - 1; i >= 0; i--) {
        ggml_backend_t b = tap_real.ggml_backend_sched_get_backend(sched, i);
        ggml_backend_dev_t dev = b != NULL ? tap_real.ggml_backend_get_device(b) : NULL;
        if (dev != NULL && tap_real.ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) {
            return b;
        }
    }
    return NULL;
}

static struct ggml_cgraph * tap_cut_graph(struct ggml_context * ctx, struct ggml_tensor * result) {
    struct ggml_cgraph * graph = tap_real.ggml_new_graph_custom(ctx, 8, false);
    tap_real.ggml_build_forward_expand(graph, result);
    return graph;
}

// tap_cut_make makes the graphs of one and of two additions. Where it cannot, cuts are counted and their cost is not
// known.
static TAP_RARE void tap_cut_make(struct tap_sched * s) {
    struct tap_cut * c = &s->cut;
    c->tried = true;
    if (tap_real.ggml_backend_sched_get_n_backends == NULL || tap_real.ggml_backend_sched_get_backend == NULL ||
        tap_real.ggml_backend_get_device == NULL || tap_real.ggml_backend_dev_type == NULL ||
        tap_real.ggml_backend_graph_compute == NULL ||
        tap_real.ggml_init == NULL || tap_real.ggml_free == NULL || tap_real.ggml_new_tensor_4d == NULL ||
        tap_real.ggml_add == NULL ||
        tap_real.ggml_new_graph_custom == NULL || tap_real.ggml_build_forward_expand == NULL ||
            tap_real.ggml_get_data == NULL) {
        return;
    }
    c->backend = tap_cut_backend(s->ptr);
    c->ctx = c->backend != NULL ? tap_real.ggml_init((struct ggml_init_params) {.mem_size = 64 << 10}) : NULL;
    if (c->ctx == NULL) {
        return;
    }
    struct ggml_tensor * a = tap_real.ggml_new_tensor_4d(c->ctx, GGML_TYPE_F32, TAP_CUT_VALUES, 1, 1, 1);
    struct ggml_tensor * b = tap_real.ggml_new_tensor_4d(c->ctx, GGML_TYPE_F32, TAP_CUT_VALUES, 1, 1, 1);
    memset(tap_real.ggml_get_data(a), 0, TAP_CUT_VALUES * sizeof(float));
    memset(tap_real.ggml_get_data(b), 0, TAP_CUT_VALUES * sizeof(float));
    struct ggml_tensor * sum = tap_real.ggml_add(c->ctx, a, b);
    c->one = tap_cut_graph(c->ctx, sum);
    c->two = tap_cut_graph(c->ctx, tap_real.ggml_add(c->ctx, sum, b));
}

// tap_cut_compute returns how long a graph took, or -1.
static int64_t tap_cut_compute(const struct tap_cut * c, struct ggml_cgraph * graph) {
    const int64_t began = tap_now();
    const bool ok = tap_real.ggml_backend_graph_compute(c->backend, graph) == GGML_STATUS_SUCCESS;
    return ok ? tap_now() - began : -1;
}

// tap_cut_measure returns what one cut costs, 0: that could not be measured.
static uint64_t tap_cut_measure(const struct tap_cut * c) {
    // The first launch finds the threads and the caches as a cut finds them, after work of other kinds.
    const int64_t first = tap_cut_compute(c, c->one), two = tap_cut_compute(c, c->two),
        one = tap_cut_compute(c, c->one);
    if (first < 0 || two < 0 || one < 0) {
        return 0;
    }
    const int64_t node = two > one ? two - one : 0;
    return first > node ? (uint64_t) (first - node) : 0;
}

uint64_t tap_cut_probe(struct tap_sched * s) {
    struct tap_cut * c = &s->cut;
    const bool sampled = s->timing && s->graph.look_every != 1;
    if (s->n_cuts == 0 || s->graph.device ||
        (s->n_cuts < TAP_CUT_OFTEN && !sampled && s->exec % TAP_CUT_EVERY != 1)) {
        return 0;
    }
    if (!c->tried) {
        tap_cut_make(s);
    }
    if (c->two == NULL) {
        return 0;
    }
    uint64_t least = tap_cut_measure(c);
    for (int i = 1; i < TAP_CUT_FIRST && s->cut_ns == 0; i++) {
        const uint64_t ns = tap_cut_measure(c);
        least = least == 0 || (ns != 0 && ns < least) ? ns : least;
    }
    return least;
}

void tap_cut_release(struct tap_sched * s) {
    if (s->cut.ctx != NULL) {
        tap_real.ggml_free(s->cut.ctx);
    }
    memset(&s->cut, 0, sizeof(s->cut));
}
