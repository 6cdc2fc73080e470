//go:build llama

// tap_steer_cells.c: by which vectors the cells of a sequence were computed.
//
// Cells that were computed by other vectors must not serve a later prompt. For each sequence the tap knows by which
// vectors its cells were computed. llama-server asks for the first position of a sequence before it reuses it; the
// answer of a sequence of other vectors is a position that no prompt reaches, as it is of a sliding window that has
// passed on, and llama-server computes the prompt in full. Saved states of other vectors are not restored. A sequence
// that is given the cells of another one, and has none, is steered as that one until they are removed: one request.
#define _GNU_SOURCE
#include "tap_lock.h"
#include "tap_real.h"
#include "tap_steer.h"

#include <string.h>
#include <sys/stat.h>

struct tap_steer_search {
    llama_memory_t       memory;
    struct tap_context * found;
};

static void tap_steer_same(struct tap_context * c, void * user_data) {
    struct tap_steer_search * search = user_data;
    if (tap_get(&c->memory) == search->memory && c->steered != NULL) {
        search->found = c;
    }
}

// tap_steer_of finds the steered context that has a memory; NULL: none.
static struct tap_context * tap_steer_of(llama_memory_t memory) {
    struct tap_steer_search search = {memory, NULL};
    if (memory != NULL && tap_steer_on()) {
        tap_contexts_each(tap_steer_same, &search);
    }
    return search.found;
}

// tap_steer_clear forgets the cells of a sequence, or (others) of all others.
static void tap_steer_clear(llama_memory_t memory, llama_seq_id seq, bool others) {
    const struct tap_context * c = tap_steer_of(memory);
    for (uint32_t i = 0; c != NULL && i < c->steered->n_seq; i++) {
        if ((i == (uint32_t) seq) != others) {
            c->steered->cells[i] = c->steered->lent[i] = TAP_CELLS_NONE;
        }
    }
}

void tap_steer_removed(llama_memory_t memory, llama_seq_id seq, llama_pos first, llama_pos end) {
    if (first <= 0 && end < 0) {
        tap_steer_clear(memory, seq, seq < 0);
    }
}

void tap_steer_kept(llama_memory_t memory, llama_seq_id seq) { tap_steer_clear(memory, seq, true); }

// A sequence that has no cells but another one's continues it: llama-server answers one request several times so.
void tap_steer_copied(llama_memory_t memory, llama_seq_id from, llama_seq_id to) {
    struct tap_context * c = tap_steer_of(memory);
    struct tap_steered * s = c != NULL ? c->steered : NULL;
    if (s == NULL || from < 0 || to < 0 || (uint32_t) from >= s->n_seq || (uint32_t) to >= s->n_seq || from == to) {
        return;
    }
    if (s->cells[to] == TAP_CELLS_NONE) {
        s->cells[to] = s->cells[from];
        s->lent[to] = s->cells[from] != tap_steer_state(s, to) ? s->cells[from] : TAP_CELLS_NONE;
    } else if (s->cells[to] != s->cells[from]) {
        s->cells[to] = TAP_CELLS_MIXED;
    }
}

llama_pos llama_memory_seq_pos_min(llama_memory_t memory, llama_seq_id seq) {
    const llama_pos first = TAP_REAL(llama_memory_seq_pos_min)(memory, seq);
    struct tap_context * c = tap_steer_of(memory);
    if (c == NULL || first < 0 || seq < 0 || (uint32_t) seq >= c->steered->n_seq) {
        return first;
    }
    tap_steer_exchange(c); // a request that comes after the command is computed by its vectors alone
    const struct tap_steered * s = c->steered;
    const bool stale = s->cells[seq] != TAP_CELLS_NONE && s->cells[seq] != tap_steer_state(s, seq);
    return stale || s->whole ? INT32_MAX : first;
}

// ---- saved states ---------------------------------------------------------------------------------------------------

enum { TAP_MAX_SAVED = 4096 };

// States of sequences that were saved, by their contents: equal ones were computed by equal vectors, or by vectors
// that changed nothing.
static struct {
    uint64_t contents, state;
} tap_saved[TAP_MAX_SAVED]; // guarded by tap.lock
static uint32_t tap_n_saved;

// tap_steered_of finds the vectors of a context, which are the newest then; NULL: none.
static struct tap_steered * tap_steered_of(struct llama_context * ctx) {
    struct tap_context * c = ctx != NULL && tap_steer_on() ? tap_context_of(ctx) : NULL;
    if (c != NULL && c->steered != NULL) {
        tap_steer_exchange(c);
    }
    return c != NULL ? c->steered : NULL;
}

void tap_steer_restored(struct llama_context * ctx, llama_seq_id seq) {
    struct tap_steered * s = tap_steered_of(ctx);
    if (s != NULL && seq >= 0 && (uint32_t) seq < s->n_seq) {
        s->cells[seq] = tap_steer_state(s, seq);
        s->lent[seq] = TAP_CELLS_NONE;
    }
}

void tap_steer_saved(struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size) {
    const struct tap_steered * s = tap_steered_of(ctx);
    if (s == NULL || seq < 0 || (uint32_t) seq >= s->n_seq || s->cells[seq] == TAP_CELLS_MIXED) {
        return;
    }
    const uint64_t contents = tap_steer_hash(data, size);
    tap_lock();
    const uint32_t at = tap_n_saved++ % TAP_MAX_SAVED;
    tap_saved[at].contents = contents;
    tap_saved[at].state = s->cells[seq] != TAP_CELLS_NONE ? s->cells[seq] : tap_steer_state(s, seq);
    tap_unlock();
}

bool tap_steer_admits(struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size) {
    const struct tap_steered * s = tap_steered_of(ctx);
    if (s == NULL) {
        return true;
    }
    const uint64_t contents = tap_steer_hash(data, size);
    bool admits = false;
    tap_lock();
    for (uint32_t i = 0; i < TAP_MAX_SAVED && i < tap_n_saved && !admits; i++) {
        admits = tap_saved[i].contents == contents && tap_saved[i].state == tap_steer_state(s, seq);
    }
    tap_unlock();
    return admits;
}

// What a file is known by.
struct tap_steer_file {
    uint64_t device, inode, bytes, seconds, nanoseconds;
};

static bool tap_steer_stat(const char * path, struct tap_steer_file * f) {
    struct stat st;
    const bool ok = stat(path, &st) == 0;
    if (ok) {
        *f = (struct tap_steer_file) {st.st_dev, st.st_ino, (uint64_t) st.st_size, (uint64_t) st.st_mtim.tv_sec,
            (uint64_t) st.st_mtim.tv_nsec};
    }
    return ok;
}

void tap_steer_saved_file(struct llama_context * ctx, llama_seq_id seq, const char * path) {
    struct tap_steer_file f;
    if (tap_steered_of(ctx) != NULL && tap_steer_stat(path, &f)) {
        tap_steer_saved(ctx, seq, &f, sizeof(f));
    }
}

bool tap_steer_admits_file(struct llama_context * ctx, llama_seq_id seq, const char * path) {
    struct tap_steer_file f;
    if (tap_steered_of(ctx) == NULL || !tap_steer_stat(path, &f) || tap_steer_admits(ctx, seq, &f, sizeof(f))) {
        return true;
    }
    tap_say("", path, " is not restored: it was not saved by this process under the vectors that are in force; "
            "let the prompt be computed again");
    return false;
}

bool tap_steer_admits_all(struct llama_context * ctx) {
    // a program that loads a state before it computes has no vectors yet
    const struct tap_context * c = ctx != NULL && tap_steer_on() ? tap_context_of(ctx) : NULL;
    if (c == NULL || c->unsteered) {
        return true;
    }
    tap_say("a saved state is not restored in a run that is armed for steering: nothing shows by which vectors it "
            "was computed; leave --prompt-cache out", "", "");
    return false;
}
