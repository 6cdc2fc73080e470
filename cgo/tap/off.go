//go:build llama

package tap

// #include "tap.h"
//
// static int32_t no_decode(struct llama_context * c, struct tap_by_value b) { (void) c; return b.bytes[0]; }
// static enum ggml_status no_compute(ggml_backend_sched_t s, struct ggml_cgraph * g) {
//     (void) s;
//     (void) g;
//     return GGML_STATUS_SUCCESS;
// }
// static void no_synchronize(struct llama_context * c) { (void) c; }
// static float * no_logits(struct llama_context * c, int32_t i) { (void) c; (void) i; return NULL; }
// static void no_accept(struct llama_sampler * s, llama_token t) { (void) s; (void) t; }
//
// // The calls of one decoded token: a batch, its graph, a look at its logits, a token accepted by a chain of twelve
// // samplers.
// #define TOKEN_CALLS(decode, batch, compute, synchronize, logits, accept) \
//     do { \
//         decode(NULL, batch); \
//         compute(NULL, NULL); \
//         synchronize(NULL); \
//         logits(NULL, 0); \
//         for (int k = 0; k < 13; k++) { \
//             accept(NULL, k); \
//         } \
//     } while (0)
//
// static void tap_off_cost(int64_t rounds, int64_t * through, int64_t * direct) {
//     const struct tap_real real = tap_real;
//     tap_real.llama_decode = no_decode;
//     tap_real.ggml_backend_sched_graph_compute_async = no_compute;
//     tap_real.llama_synchronize = no_synchronize;
//     tap_real.llama_get_logits_ith = no_logits;
//     tap_real.llama_sampler_accept = no_accept;
//     const struct llama_batch batch = {.n_tokens = 1};
//     const struct tap_by_value value = {{1}};
//     int64_t began = tap_now();
//     for (int64_t i = 0; i < rounds; i++) {
//         TOKEN_CALLS(llama_decode, batch, ggml_backend_sched_graph_compute_async, llama_synchronize,
//                     llama_get_logits_ith, llama_sampler_accept);
//     }
//     *through = tap_now() - began;
//     struct tap_real * volatile to = &tap_real;
//     began = tap_now();
//     for (int64_t i = 0; i < rounds; i++) {
//         TOKEN_CALLS(to->llama_decode, value, to->ggml_backend_sched_graph_compute_async, to->llama_synchronize,
//                     to->llama_get_logits_ith, to->llama_sampler_accept);
//     }
//     *direct = tap_now() - began;
//     tap_real = real;
// }
import "C"

// OffCost measures what the tap costs a decoded token while nothing is recorded, in nanoseconds: the calls of one token
// through the tap, and the same calls without it, with functions behind both that do nothing. No model may be in use.
func OffCost(rounds int) (through, direct float64) {
	var a, b C.int64_t
	C.tap_off_cost(C.int64_t(rounds), &a, &b)
	return float64(a) / float64(rounds), float64(b) / float64(rounds)
}
