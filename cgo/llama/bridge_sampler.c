//go:build llama

#define _GNU_SOURCE
#include "bridge.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

// sampled_fill takes as candidates what the context's own samplers left of output i. false: they did nothing.
static bool sampled_fill(struct bridge_sampler * s, struct llama_context * ctx, int32_t i,
                         llama_token_data_array * out) {
	const llama_token * ids    = llama_get_sampled_candidates_ith(ctx, i);
	const float *       logits = llama_get_sampled_logits_ith(ctx, i);
	const float *       probs  = llama_get_sampled_probs_ith(ctx, i);
	uint32_t            n      = probs != NULL ? llama_get_sampled_probs_count_ith(ctx, i)
	    : llama_get_sampled_logits_count_ith(ctx, i);
	if (logits == NULL || ids == NULL || n > (uint32_t) s->n) {
		return false;
	}
	for (uint32_t k = 0; k < n; k++) {
		s->candidates[k] = (llama_token_data){ .id = ids[k], .logit = logits[k], .p = probs != NULL ? probs[k] : 0.0f };
	}
	*out = (llama_token_data_array){ .data = s->candidates, .size = n, .selected = -1, .sorted = false };
	return true;
}

// candidates_fill takes the logits of output i as candidates. false: there are none.
static bool candidates_fill(struct bridge_sampler * s, struct llama_context * ctx, int32_t i,
                            llama_token_data_array * out) {
	if (s->backend && sampled_fill(s, ctx, i, out)) {
		return true;
	}
	const float * logits = llama_get_logits_ith(ctx, i);
	if (logits == NULL) {
		return false;
	}
	for (int32_t id = 0; id < s->n; id++) {
		s->candidates[id] = (llama_token_data){ .id = id, .logit = logits[id], .p = 0.0f };
	}
	*out = (llama_token_data_array){ .data = s->candidates, .size = (size_t) s->n, .selected = -1, .sorted = false };
	return true;
}

// grammar_allows reports whether a token may come next.
static bool grammar_allows(struct llama_sampler * grammar, llama_token token) {
	llama_token_data       one   = { .id = token, .logit = 1.0f, .p = 0.0f };
	llama_token_data_array array = { .data = &one, .size = 1, .selected = -1, .sorted = false };
	llama_sampler_apply(grammar, &array);
	return one.logit != -INFINITY;
}

llama_token bridge_sample(struct bridge_sampler * s, struct llama_context * ctx, int32_t i) {
	if (s->backend) {
		llama_synchronize(ctx);
		llama_token token = llama_get_sampled_token_ith(ctx, i);
		if (token >= 0) {
			return token;
		}
	}
	for (int32_t round = 0; round < 2; round++) {
		llama_token_data_array all;
		if (!candidates_fill(s, ctx, i, &all)) {
			return -2;
		}
		if (round == 1) {
			llama_sampler_apply(s->grammar, &all);
		}
		llama_sampler_apply(s->chain, &all);
		if (all.selected < 0 || (size_t) all.selected >= all.size) {
			return -3;
		}
		llama_token token = all.data[all.selected].id;
		if (s->grammar == NULL || grammar_allows(s->grammar, token)) {
			return token;
		}
	}
	return -4;
}

bool bridge_accept(struct bridge_sampler * s, llama_token token, bool generated) {
	if (generated && s->grammar != NULL) {
		if (!grammar_allows(s->grammar, token)) {
			return false; // llama.cpp would end the process
		}
		llama_sampler_accept(s->grammar, token);
	}
	llama_sampler_accept(s->chain, token);
	return true;
}

static const char * choices_name(const struct llama_sampler * s) {
	(void) s;
	return "choices";
}

static void choices_apply(struct llama_sampler * s, llama_token_data_array * all) {
	struct bridge_choices * count = s->ctx;
	count->one += all->size == 1;
	count->more += all->size > 1;
}

static struct llama_sampler * choices_clone(const struct llama_sampler * s) { return bridge_choices_init(s->ctx); }

static void choices_free(struct llama_sampler * s) { (void) s; }

static struct llama_sampler_i choices_i = {.name = choices_name, .apply = choices_apply, .clone = choices_clone,
    .free = choices_free};

struct llama_sampler * bridge_choices_init(struct bridge_choices * count) {
    return llama_sampler_init(&choices_i, count);
}

static void choices_replay(struct llama_sampler * sampler, size_t tokens, uint64_t n) {
	for (; n > 0; n--) {
		llama_token_data       two[2] = {{.id = 0, .logit = 0.0f, .p = 0.0f}, {.id = 1, .logit = 0.0f, .p = 0.0f}};
		llama_token_data_array all    = {.data = two, .size = tokens, .selected = -1, .sorted = false};
		llama_sampler_apply(sampler, &all);
	}
}

void bridge_choices_replay(struct llama_sampler * sampler, struct bridge_choices n) {
	choices_replay(sampler, 1, n.one);
	choices_replay(sampler, 2, n.more);
}

// stderr_aside lets what the process writes to stderr go into a file in memory. -1: that cannot be done.
static int stderr_aside(int * saved) {
	int file = memfd_create("stderr", MFD_CLOEXEC);
	*saved   = file < 0 ? -1 : dup(STDERR_FILENO);
	if (*saved < 0 || dup2(file, STDERR_FILENO) < 0) {
		close(file);
		close(*saved);
		return -1;
	}
	return file;
}

// stderr_back ends stderr_aside and returns how much of what was written it put into why, as a string.
static size_t stderr_back(int file, int saved, char * why, size_t size) {
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	ssize_t n = pread(file, why, size - 1, 0);
	close(file);
	n      = n < 0 ? 0 : n;
	why[n] = 0;
	return (size_t) n;
}

struct llama_sampler * bridge_grammar_init(const struct llama_vocab * vocab, const char * text, const char * root,
                                           char * why, size_t size) {
	fflush(stderr);
	int saved, file = stderr_aside(&saved);
	struct llama_sampler * grammar = llama_sampler_init_grammar(vocab, text, root);
	why[0] = 0;
	if (file >= 0 && stderr_back(file, saved, why, size) > 0 && grammar != NULL) {
		bridge_log_write(why); // somebody else's words
	}
	return grammar;
}
