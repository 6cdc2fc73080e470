// What package llama needs in C: llama.cpp's log, flags that its callbacks read, a file in memory, threads, and one
// step of sampling. Nothing here calls Go.
#ifndef LLAMATAP_BRIDGE_H
#define LLAMATAP_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "llama.h"

// bridge_signal is shared between Go and a callback. Both sides access its fields atomically.
struct bridge_signal {
	int32_t  stop;     // not 0: the callback asks llama.cpp to stop
	uint32_t fraction; // how much of the model is loaded, bits of a float
};

// bridge_log_init routes the log of llama.cpp and ggml, and the message of a failed assertion, through this file.
void bridge_log_init(void);
// bridge_log_write writes a text of llama.cpp to stderr; what controls a terminal is written as \xNN.
void bridge_log_write(const char * text);
// bridge_log_level sets the lowest level that is written to stderr.
void bridge_log_level(int level);
// bridge_log_collect starts or stops keeping errors for bridge_log_take in place of writing them. What nobody took
// is written when it stops.
void bridge_log_collect(bool on);
// bridge_log_take moves the collected errors into buf as a string and returns its length.
size_t bridge_log_take(char * buf, size_t size);

// bridge_backends_load loads the backends of a folder and returns whether there is one for the CPU then.
bool bridge_backends_load(const char * dir);
// bridge_rpc_add loads the RPC backend from path (may be NULL), and registers the devices of a server.
// 0: done, 1: there is no RPC backend, 2: the server does not answer as one.
int bridge_rpc_add(const char * path, const char * endpoint);
// bridge_blas_load loads the BLAS backend of a folder, with the libraries beside it, unless one is loaded. Where it is
// OpenBLAS, it uses so many threads.
bool bridge_blas_load(const char * dir, int threads);
// bridge_product_time returns the shortest time, in s, in which a device multiplies rows of n float32 by n rows of n
// weights of a type of ggml, tried for about limit s; less than 0: it cannot.
double bridge_product_time(const char * device, int type, int64_t n, int64_t rows, int threads, double limit);

// bridge_model_params sets the progress callback of params to one that reads and writes signal.
void bridge_model_params(struct llama_model_params * params, struct bridge_signal * signal);
// bridge_context_signal lets signal->stop end a running decode.
void bridge_context_signal(struct llama_context * ctx, struct bridge_signal * signal);

// bridge_memory_file makes a file in memory that holds size bytes of data. NULL: errno says why. The caller closes it.
FILE * bridge_memory_file(const char * name, const void * data, size_t size);

// bridge_now_ns is CLOCK_MONOTONIC in ns.
int64_t bridge_now_ns(void);
// bridge_decode is llama_decode. Where it fails, the errors that it logged wait for bridge_log_take and a
// bridge_log_collect(false).
int32_t bridge_decode(struct llama_context * ctx, struct llama_batch batch);
// bridge_decode_each decodes batch as often as steps says, each time with the next of its tokens, and waits for
// each. The positions grow by one from step to step. at[0] is CLOCK_MONOTONIC in ns before the first, at[i + 1]
// after step i. It returns llama_decode's result of the last step; done is how many succeeded. The log is as with
// bridge_decode.
int32_t bridge_decode_each(struct llama_context * ctx, struct llama_batch batch, const llama_token * tokens,
                           int32_t steps, int64_t * at, int32_t * done);

// What bridge_decode_watched does to a part of a tensor.
enum bridge_write_kind {
	BRIDGE_SET,     // writes values
	BRIDGE_PROJECT, // takes the part along a direction, of length 1, out of F32 values
	BRIDGE_KEEP,    // writes what is there
};
// bridge_write changes size bytes of a tensor from offset on.
struct bridge_write {
	int32_t      kind;
	size_t       offset, size;
	const void * data; // of size bytes; not of BRIDGE_KEEP
};
// bridge_site is a node of a graph at which the graph is cut: size bytes from offset on are read, and then changed.
struct bridge_site {
	int32_t node;         // number of the node in graph order
	size_t  offset, size; // what is read
	void *  read;         // NULL: nothing
	int32_t first_write, n_writes;
};
// bridge_watch is what the eval callback of a context works with. It is zero at first.
struct bridge_watch {
	struct ggml_tensor ** nodes; // of the last graph; freed by the owner
	int32_t n_nodes, cap;
	bool    failed; // a site was not as its numbers say
	int32_t next, n_sites;
	const struct bridge_site *  sites;
	const struct bridge_write * writes;
};
// bridge_watch_params sets the eval callback of params.
void bridge_watch_params(struct llama_context_params * params, struct bridge_watch * watch);
// bridge_decode_watched is bridge_decode of a batch that is one micro-batch, and llama_synchronize. sites are in the
// order of their nodes.
int32_t bridge_decode_watched(struct llama_context * ctx, struct llama_batch batch, struct bridge_watch * watch,
                              const struct bridge_site * sites, int32_t n_sites, const struct bridge_write * writes);

// bridge_set_weight writes a weight that the last graph of bridge_decode_watched read; false: it read none of the name,
// or of another size. The weight is not repacked, and its memory can be written.
bool bridge_set_weight(const struct bridge_watch * watch, const char * name, const void * data, size_t size);
// bridge_requantise converts rows of weights from one type to another; false: a type cannot be converted.
bool bridge_requantise(const void * from, enum ggml_type from_type, void * to, enum ggml_type to_type, int64_t rows,
                       int64_t per_row);

// bridge_threads are the thread pools of a context; batch is NULL where one serves both.
struct bridge_threads {
	struct ggml_threadpool * single;
	struct ggml_threadpool * batch;
};
// bridge_threads_attach makes the pools and attaches them to ctx. false: the CPU backend makes none, and ggml makes
// its own per graph.
bool bridge_threads_attach(struct llama_context * ctx, int n, int n_batch, struct bridge_threads * out);
// bridge_threads_free frees the pools; after llama_free of their context.
void bridge_threads_free(struct bridge_threads * threads);

// bridge_sampler is a chain of samplers with what choosing needs beside it.
struct bridge_sampler {
	struct llama_sampler * chain;
	struct llama_sampler * grammar;    // NULL: none
	llama_token_data *     candidates; // n of them
	int32_t                n;          // tokens of the vocabulary
	bool                   backend;    // the context may have applied a part of the chain, or all of it
};
// bridge_choices are how often a sampler was applied to one token, and to more.
struct bridge_choices {
	uint64_t one;
	uint64_t more;
};
// bridge_choices_init makes a sampler that changes nothing, and counts for the one behind it in its chain. count
// outlives it.
struct llama_sampler * bridge_choices_init(struct bridge_choices * count);
// bridge_choices_replay applies a sampler as often to one token, and to two that are equally likely.
void bridge_choices_replay(struct llama_sampler * sampler, struct bridge_choices n);
// bridge_sample applies the sampler to output i of ctx and returns the chosen token. What the chain chooses is
// looked up in the grammar; only where that forbids it, grammar and then chain are applied to all tokens. -2: there
// are no logits, -3: the chain chose none, -4: the grammar allows none.
llama_token bridge_sample(struct bridge_sampler * s, struct llama_context * ctx, int32_t i);
// bridge_accept passes a token to the chain, and to the grammar where generated is set. false: the grammar does not
// allow it, and nothing was changed.
bool bridge_accept(struct bridge_sampler * s, llama_token token, bool generated);
// bridge_grammar_init is llama_sampler_init_grammar. What a failure writes to stderr, past the log, comes into why,
// of size bytes.
struct llama_sampler * bridge_grammar_init(const struct llama_vocab * vocab, const char * text, const char * root,
                                           char * why, size_t size);

// bridge_generation says how bridge_generate goes on and when it comes back.
struct bridge_generation {
	llama_token pending;  // chosen before and not decoded; -1: none, there are logits
	llama_pos   pos;      // where the next token goes; it moves on
	llama_pos   end;      // a token that would go behind end - 2 is not decoded
	int32_t     most;     // tokens to choose, at least 1
	int64_t     patience; // ns after which no further token is decoded
	int32_t     chosen;   // how many were
	int32_t     decoded;  // how many were, pending among them
};
// bridge_generate decodes the pending token, and chooses, accepts and decodes one token after the other. It comes
// back with the last one chosen and not decoded: when it was the last of most, ends a text, has no room, or stands
// in pause (one byte per token of the vocabulary, or NULL), when patience is over, or signal says stop. tokens and
// at get most values: what was chosen and CLOCK_MONOTONIC in ns then. 0: as said, status: llama_decode's, or in
// *sampled what bridge_sample returned, -5 where the grammar does not allow the token. The log is as with
// bridge_decode.
int32_t bridge_generate(struct bridge_sampler * s, struct llama_context * ctx, struct llama_batch batch,
                        struct bridge_signal * signal,
	struct bridge_generation * g, const uint8_t * pause, llama_token * tokens, int64_t * at, llama_token * sampled);

#endif
