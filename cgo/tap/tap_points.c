//go:build llama

// tap_points.c: the nodes of a graph that named points mean. The collector finds them in the graph's description. It is
// asked when a graph is marked, which is before it is allocated, and the model waits for the answer.
//
// Runs once per new graph, where points are selected. Graphs of one form have the same points, and are asked about
// once.
#define _GNU_SOURCE
#include "tap_graph.h"
#include "tap_queue.h"
#include "tap_real.h"

#include <string.h>

// What the collector answered, newest last. Guarded by tap_selecting.
enum { TAP_ANSWERS = 4 };

static struct tap_answer {
    uint64_t form; // of the graph, 0: none
    uint32_t selection;
    uint64_t points[TAP_POINT_WORDS];
} tap_answers[TAP_ANSWERS];

static unsigned tap_answers_next;

// tap_points_form hashes what the points of a graph depend on: which node reads what. 0: it has no marks.
static uint64_t tap_points_form(const struct tap_graph * g) {
    uint64_t h = 1469598103934665603ull;
    for (int i = 0; g->formed && i < g->n_nodes + g->n_leafs; i++) {
        h = (h ^ g->marks[i].form) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return g->formed ? h | 1 : 0;
}

static const struct tap_answer * tap_points_known(uint64_t form, uint32_t selection) {
    for (int i = 0; form != 0 && i < TAP_ANSWERS; i++) {
        if (tap_answers[i].form == form && tap_answers[i].selection == selection) {
            return &tap_answers[i];
        }
    }
    return NULL;
}

void tap_points_ask(struct tap_graph * g, uint32_t selection) {
    const struct tap_header * h = tap.header;
    const uint64_t form = tap_points_form(g);
    const struct tap_answer * known = tap_points_known(form, selection);
    if (known == NULL) {
        struct tap_answer * a = &tap_answers[tap_answers_next++ % TAP_ANSWERS];
        memset(a, 0, sizeof(*a));
        g->id = tap_graph_number();
        if (tap_graph_ask(g)) {
            tap_queue_settle();
            if (tap_get(&h->points_of) == g->id) {
                a->form = form;
                a->selection = selection;
                for (int i = 0; i < TAP_POINT_WORDS; i++) {
                    a->points[i] = tap_get(&h->points[i]);
                }
            }
        }
        known = a;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        g->nodes[i].point = i / 64 < TAP_POINT_WORDS && (known->points[i / 64] >> (i % 64) & 1);
    }
}
