// tap_ids.h: prompts that a JSON body gives as token ids.
#ifndef LLAMATAP_TAP_IDS_H
#define LLAMATAP_TAP_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A body that is being received. All zero: none of it has come.
struct tap_ids {
    uint32_t state, depth, n; // see tap_ids.c; open brackets; tokens so far
    uint32_t keys;            // that begin like what came since a quote, a bit each
    uint64_t hash, id;
    bool     digits;
};

// tap_ids_read takes in the next bytes of the body, wherever they are cut. It calls found with each prompt: the hash of
// its tokens, FNV-1a of 64 bits, and their number.
//
// "prompt": [1, 2, 3], or several of these in a list; of embeddings, "input" or "content". llama-server computes such a
// prompt as it is, and tokenizes nothing. Within a text the quotes would be escaped.
void tap_ids_read(struct tap_ids * ids, const char * data, size_t n, void (*found)(uint64_t hash, uint32_t n));

#endif
