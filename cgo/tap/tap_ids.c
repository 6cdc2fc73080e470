//go:build llama

// tap_ids.c: finds prompts of token ids in a JSON body.
#define _GNU_SOURCE
#include "tap_ids.h"
#include "tap_served.h"

#include <string.h>

// What a key that is followed by token ids is called.
static const char * const keys[] = {"\"prompt\"", "\"input\"", "\"content\""};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

// What is expected. Less than COLON: a key, of which so many bytes have come.
enum { COLON = 16, LIST, WITHIN };

// begin_key begins to look for a key where c is a quote.
static void begin_key(struct tap_ids * ids, char c) {
    ids->state = c == '"';
    ids->keys = (1 << KEYS) - 1;
}

// take_key takes the next character of what may be a key; true: it is the last one of it.
static bool take_key(struct tap_ids * ids, char c) {
    const uint32_t at = ids->state++;
    for (int k = 0; k < KEYS; k++) {
        if ((ids->keys >> k & 1) == 0) {
            continue;
        }
        if (keys[k][at] != c) {
            ids->keys &= ~(1u << k);
        } else if (keys[k][at + 1] == 0) {
            return true;
        }
    }
    if (ids->keys == 0) {
        begin_key(ids, c);
    }
    return false;
}

void tap_ids_read(struct tap_ids * ids, const char * data, size_t n, void (*found)(uint64_t hash, uint32_t n)) {
    for (size_t i = 0; i < n; i++) {
        const char c = data[i];
        if (ids->state < COLON) {
            if (ids->state == 0) { // most of a body
                const char * next = memchr(data + i, '"', n - i);
                if (next == NULL) {
                    return;
                }
                i = (size_t) (next - data);
                begin_key(ids, *next);
                continue;
            }
            if (take_key(ids, c)) {
                ids->state = COLON;
            }
            continue;
        }
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            continue;
        }
        if (ids->state == COLON && c == ':') {
            ids->state = LIST;
            ids->depth = 0;
        } else if (ids->state >= LIST && c == '[') {
            ids->state = WITHIN;
            ids->depth++;
            ids->hash = TAP_HASH_BEGIN;
            ids->id = ids->n = 0;
            ids->digits = false;
        } else if (ids->state == WITHIN && c >= '0' && c <= '9') {
            ids->id = 10 * ids->id + (uint64_t) (c - '0');
            ids->digits = true;
        } else if (ids->state == WITHIN && (c == ',' || c == ']')) {
            if (ids->digits) {
                ids->hash = (ids->hash ^ (uint32_t) ids->id) * TAP_HASH_PRIME;
                ids->n++;
            }
            ids->id = 0;
            ids->digits = false;
            if (c == ']') {
                if (ids->n > 0) {
                    found(ids->hash, ids->n);
                }
                ids->n = 0;
                ids->state = --ids->depth > 0 ? WITHIN : 0;
            }
        } else {
            begin_key(ids, c);
        }
    }
}
