//go:build llama

#define _GNU_SOURCE
#include "bridge.h"

// token_next chooses and accepts a token. Below 0: why there is none.
static llama_token token_next(struct bridge_sampler * s, struct llama_context * ctx) {
	llama_token token = bridge_sample(s, ctx, -1);
	if (token >= 0 && !bridge_accept(s, token, true)) {
		return -5;
	}
	return token;
}

int32_t bridge_generate(struct bridge_sampler * s, struct llama_context * ctx, struct llama_batch batch,
		struct bridge_signal * signal, struct bridge_generation * g, const uint8_t * pause,
		llama_token * tokens, int64_t * at, llama_token * sampled) {
	const struct llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
	const int64_t              begin = bridge_now_ns();
	llama_token                token = g->pending;
	g->chosen = g->decoded = 0;
	bridge_log_collect(true);
	for (;;) {
		if (token >= 0) {
			batch.token[0] = token;
			batch.pos[0]   = g->pos;
			int32_t rc     = llama_decode(ctx, batch);
			if (rc != 0) {
				return rc;
			}
			g->pos++;
			g->decoded++;
		}
		token = *sampled = token_next(s, ctx);
		if (token < 0) {
			break;
		}
		int64_t now       = bridge_now_ns();
		bool    stop      = __atomic_load_n(&signal->stop, __ATOMIC_RELAXED) != 0;
		bool    looked_at = pause != NULL && pause[token];
		tokens[g->chosen] = token;
		at[g->chosen++]   = now;
		if (stop || looked_at || g->chosen == g->most || now - begin >= g->patience || g->pos + 1 >= g->end ||
            llama_vocab_is_eog(vocab, token)) {
			break;
		}
	}
	bridge_log_collect(false);
	return 0;
}
