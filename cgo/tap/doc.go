// Package tap is the tap: one C object, without Go, that stands before functions of llama.h and ggml-backend.h and
// reports what they do through shared memory. Before main it maps the memory whose descriptor the environment
// passes on (LLAMATAP_TAP_FD), and joins its collector when the process makes a context or computes a graph;
// otherwise every function of it is one branch and a call.
//
// The same C is built as a preloadable library for programs that are not ours (make build: bin/libllamatap.so).
//
// # Data flow
//
// ggml_backend_sched_alloc_graph: the graph is read, its nodes get layer and component (tap_infer.c) and rows
// (tap_rows.c), the wanted ones are marked (tap_graph.c). ggml_backend_sched_graph_compute_async: inputs are copied,
// the eval callback is set where data is wanted (tap_capture.c). Eval callback, data phase: one copy into slots
// (tap_pool.c), one record (tap_queue.c). llama_decode and its kin frame all that with the program's batch (tap_api.c).
//
// # Whose llama.cpp
//
// Every entry point is looked up by name (tap_real.c), in libraries that the program opens later too. A structure's
// fields are used after llama.cpp's own functions have filled one and the fields were found where the headers of
// this build have them (tap_layout.c). With another ggml nothing is recorded; with another llama_batch, what the
// graphs themselves show.
//
// Headers have an order, which tap.h lists; each includes only those before it (TestDirection).
//
// # Promises
//
// No call into Go, no allocation in steady state, no system call but the futex wait on a full pool. What is dropped
// is counted by cause. Tensor data is never changed.
package tap
