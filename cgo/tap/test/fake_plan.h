// fake_plan.h: the fake allocator's plan, and transfers that arrive later.
#ifndef LLAMATAP_TEST_FAKE_PLAN_H
#define LLAMATAP_TEST_FAKE_PLAN_H

#include "harness.h"

// plan_reserve makes a plan for a graph that is measured; plan_alloc places the nodes of a graph, where the scheduler
// does that.
void plan_reserve(struct ggml_backend_sched * s, struct ggml_cgraph * g);
void plan_alloc(struct ggml_backend_sched * s, struct ggml_cgraph * g);

// What ggml offers to whoever changes a graph.
struct ggml_tensor ** plan_nodes(struct ggml_cgraph * g);
int                   plan_size(struct ggml_cgraph * g);
void                  plan_expand(struct ggml_cgraph * g, struct ggml_tensor * t);

// A device's asynchronous reads: they arrive when its backend is synchronised.
ggml_backend_t later_backend(ggml_backend_sched_t s, struct ggml_tensor * t);
void           later_get(ggml_backend_t backend, const struct ggml_tensor * t, void * to, size_t offset, size_t n);
void           later_synchronize(ggml_backend_t backend);

#endif
