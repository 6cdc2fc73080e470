//go:build llama

// tap_match.c: which rows of a call's batch a micro-batch has. It is ggmlhooks/split.go for the model's own thread:
// a micro-batch that equals the next rows of the batch, as many as a micro-batch takes or all that are left, is those
// rows; otherwise llama.cpp has grouped rows by sequence.
#define _GNU_SOURCE
#include "tap_context.h"

#include <stdlib.h>
#include <string.h>

// A row of the batch, and at the same index a set of sequences that have nothing in common with the sets before.
struct tap_match {
    bool    used;
    int32_t group; // of a row, -1: none
    int32_t row;   // of a group: the first that has its sequences
    int32_t n;     // … and how many are in it
};

bool tap_rows_begin(struct tap_rows_list * l) {
    const size_t bytes = (size_t) l->n * sizeof(l->matched[0]);
    if (bytes > l->matched_bytes) {
        struct tap_match * grown = realloc(l->matched, bytes);
        if (grown == NULL) {
            return false;
        }
        l->matched = grown;
        l->matched_bytes = bytes;
    }
    for (int32_t i = 0; i < l->n; i++) {
        l->matched[i].used = false;
    }
    l->cursor = 0;
    return true;
}

// tap_row_seq is sequence k of a row.
static int32_t tap_row_seq(const struct tap_rows_list * l, int32_t row, int32_t k) {
    int32_t at = 0;
    while (k > 0 && l->extra[at].row != row) {
        at++;
    }
    return k == 0 ? l->rows[row].seq : l->extra[at + k - 1].seq;
}

static bool tap_rows_overlap(const struct tap_rows_list * l, int32_t a, int32_t b) {
    for (int32_t i = 0; i < (int32_t) l->rows[a].n_seq; i++) {
        for (int32_t k = 0; k < (int32_t) l->rows[b].n_seq; k++) {
            if (tap_row_seq(l, a, i) == tap_row_seq(l, b, k)) {
                return true;
            }
        }
    }
    return false;
}

static bool tap_rows_together(const struct tap_rows_list * l, int32_t a, int32_t b) {
    bool same = l->rows[a].n_seq == l->rows[b].n_seq;
    for (int32_t i = 0; same && i < (int32_t) l->rows[a].n_seq; i++) {
        same = tap_row_seq(l, a, i) == tap_row_seq(l, b, i);
    }
    return same;
}

static bool tap_row_is(const struct tap_rows_list * l, int32_t row, const struct tap_micro * micro, int32_t i) {
    const struct tap_call_row * r = &l->rows[row];
    return !l->matched[row].used && r->token == micro->tokens[i] &&
        (micro->pos == NULL || r->pos == INT32_MIN || r->pos == micro->pos[i]);
}

static bool tap_rows_follow(struct tap_rows_list * l, const struct tap_micro * micro, int32_t * rows) {
    const int32_t left = l->n - l->cursor;
    bool follows = micro->n <= left && (micro->n_ubatch <= 0 || micro->n == micro->n_ubatch || micro->n == left);
    for (int32_t i = 0; follows && i < micro->n; i++) {
        rows[i] = l->cursor + i;
        follows = tap_row_is(l, rows[i], micro, i);
    }
    l->cursor += follows ? micro->n : 0;
    return follows;
}

// tap_rows_group gathers the unused rows by their sequences; consecutive: only sets of consecutive sequences, as a
// memory with one stream per sequence takes them. Returns the number of groups.
static int32_t tap_rows_group(struct tap_rows_list * l, bool consecutive) {
    struct tap_match * m = l->matched;
    int32_t groups = 0;
    for (int32_t i = 0; i < l->n; i++) {
        m[i].group = -1;
        int32_t g = 0;
        while (!m[i].used && g < groups && !tap_rows_overlap(l, m[g].row, i)) {
            g++;
        }
        if (m[i].used || (g < groups && !tap_rows_together(l, m[g].row, i))) {
            continue;
        }
        if (g == groups) {
            if (consecutive && groups > 0 && l->rows[i].seq != l->rows[m[groups - 1].row].seq + 1) {
                continue;
            }
            m[groups].row = i;
            m[groups++].n = 0;
        }
        m[i].group = g;
        m[g].n++;
    }
    return groups;
}

// tap_rows_equal takes as many rows of each of the first groups, and reports whether they are the micro-batch.
static bool tap_rows_equal(const struct tap_rows_list * l, int32_t groups, const struct tap_micro * micro,
                           int32_t * rows) {
    const int32_t each = micro->n / groups;
    int32_t at = 0;
    for (int32_t g = 0; g < groups; g++) {
        const int32_t end = at + each;
        for (int32_t i = l->matched[g].row; i < l->n && at < end; i++) {
            if (l->matched[i].group != g) {
                continue;
            }
            if (!tap_row_is(l, i, micro, at)) {
                return false;
            }
            rows[at++] = i;
        }
        if (at < end) {
            return false;
        }
    }
    return true;
}

static bool tap_rows_split(struct tap_rows_list * l, const struct tap_micro * micro, int32_t * rows) {
    for (int consecutive = 0; consecutive < 2; consecutive++) {
        const int32_t groups = tap_rows_group(l, consecutive != 0);
        if ((groups > 0 && micro->n % groups == 0 && tap_rows_equal(l, groups, micro, rows)) ||
            (groups > 1 && tap_rows_equal(l, 1, micro, rows))) { // a split by sequence
            return true;
        }
    }
    return false;
}

bool tap_rows_match(struct tap_rows_list * l, const struct tap_micro * micro, int32_t * rows) {
    const bool found = (micro->grouped && tap_rows_split(l, micro, rows)) || tap_rows_follow(l, micro, rows) ||
        tap_rows_split(l, micro, rows);
    for (int32_t i = 0; found && i < micro->n; i++) {
        l->matched[rows[i]].used = true;
    }
    return found;
}
