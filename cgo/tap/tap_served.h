// tap_served.h: what a server did for its requests, as far as graphs do not show it. Reported while requests are
// recorded; everything else returns at once.
#ifndef LLAMATAP_TAP_SERVED_H
#define LLAMATAP_TAP_SERVED_H

#include "llama.h"
#include "tap_state.h"

// FNV-1a of 64 bits.
#define TAP_HASH_BEGIN 14695981039346656037u
#define TAP_HASH_PRIME 1099511628211u

static inline bool tap_served_on(void) {
    return tap_on() && (tap.header->config.start.record & TAP_RECORD_REQUESTS) != 0;
}

// tap_served_send reports a record with a text of n bytes.
void tap_served_send(struct tap_rec_served * rec, const char * text, size_t n);

// tap_served_call forgets what this thread was choosing: it computes the next batch.
void tap_served_call(void);

// tap_served_row notes that a token is chosen from a row of a context's last batch; tap_served_device that the backend
// chose it.
void tap_served_row(struct llama_context * ctx, int32_t row);
void tap_served_device(llama_token token);

// tap_served_embedded notes that the embedding of a row of a context's last batch was read, or of a sequence; the other
// is -1.
void tap_served_embedded(struct llama_context * ctx, int32_t row, llama_seq_id seq);

// tap_served_applied and tap_served_accepted take in what the program called a sampler for, from began on.
void tap_served_applied(struct llama_sampler * sampler, const llama_token_data_array * candidates, int64_t began);
void tap_served_accepted(struct llama_sampler * sampler, llama_token token, int64_t began);

// How many calls of its own llama_sampler_apply and llama_sampler_accept are in: a chain passes each on to its members.
// A grammar that throws does not return here, so whoever reads logits is in none.
extern TAP_OWN struct tap_nested {
    int apply, accept;
} tap_nested;

// tap_served_state reports that the whole state of a sequence was saved to memory (TAP_SERVED_SAVED), or restored.
void tap_served_state(uint32_t kind, struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size);

#endif
