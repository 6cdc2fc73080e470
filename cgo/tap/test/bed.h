// bed.h: what a case of graphs needs: a region, a scheduler, a log and a graph.
#ifndef LLAMATAP_TEST_BED_H
#define LLAMATAP_TEST_BED_H

#include "expect.h"

// Tokens and positions to compute with.
extern const int32_t tokens[64];
extern const int32_t positions[64];

// A case: a region, a scheduler, a log and a graph.
struct bed {
    struct shm                  shm;
    struct log                  log;
    struct graph                graph;
    struct ggml_backend_sched * sched;
};

// bed_make makes region, log and scheduler; bed_join puts the tap under them; bed_end takes all of it away and
// demands a log without damage.
void bed_make(struct bed * b, const struct shm_options * o);
void bed_join(struct bed * b);
void bed_end(struct bed * b);

// bed_run computes the graph once, built anew if alloc.
enum ggml_status bed_run(struct bed * b, bool alloc);

// bed_expect is what the nth execution is checked by.
struct expected bed_expect(struct bed * b, size_t exec, wanted_fn wanted, void * arg);

void no_losses(const struct bed * b);

// shape_graph makes rows of n elements, a view of them in four dimensions with the axes in another order, a window
// on them, and a dense tensor in the view's shape, of any type.
void shape_graph(struct graph * g, const int64_t * n, int n_tokens, const int * axis, enum ggml_type type, bool device);

// What nodes are: is_view computes nothing, computed is computed by the graph. want_computed wants the latter.
bool is_view(const struct ggml_tensor * t);
bool computed(const struct graph * g, int i);
bool want_computed(const struct graph * g, int i, void * arg);

// want_names wants the names in arg, separated by spaces: of computed nodes, +name of views, ~name of the node right
// before a view of that name.
bool want_names(const struct graph * g, int i, void * arg);

#endif
