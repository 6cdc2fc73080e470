// tap_team.h: large copies, by all threads that compute the graph.
#ifndef LLAMATAP_TAP_TEAM_H
#define LLAMATAP_TAP_TEAM_H

#include <stddef.h>
#include <stdint.h>

#include "llama.h"

// tap_team_of is how many threads compute a context's graphs of so many tokens, if they can copy, too; else 1.
unsigned tap_team_of(struct llama_context * ctx, int32_t n_tokens);

// tap_team_copy copies n bytes with a team of so many threads: the calling one, and those that it computes graphs with.
void tap_team_copy(uint8_t * dst, const uint8_t * src, size_t n, unsigned team);

#endif
