//go:build llama

// tap_team.c: large copies, by all threads that compute the graph.
//
// ggml's CPU backend computes with OpenMP: each range of a graph is a parallel region of the thread that decodes. While
// that thread copies a tensor, the others spin and wait for the next region. A region of as many threads gives the copy
// to them: no thread is started, and one core rarely reaches the memory's bandwidth. Another number of threads would
// have OpenMP start threads anew, so it is that of the context. With a ggml that has threads of its own, or an OpenMP
// that is not GCC's, the calling thread copies.
#define _GNU_SOURCE
#include "tap_team.h"
#include "tap_atomic.h"
#include "tap_real.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

enum {
    TEAM_LEAST = 512 << 10, // bytes that are worth a region
    TEAM_PART  = 64 << 10,
};

typedef void (*tap_parallel)(void (*)(void *), void *, unsigned, unsigned);

// A copy that a team makes.
struct tap_shared {
    uint8_t *        dst;
    const uint8_t *  src;
    size_t           size;
    _Atomic uint64_t next; // the first byte that nobody has taken
};

static void tap_team_part(void * data) {
    struct tap_shared * c = data;
    for (;;) {
        const uint64_t at = tap_count(&c->next, TEAM_PART);
        if (at >= c->size) {
            return;
        }
        memcpy(c->dst + at, c->src + at, c->size - at < TEAM_PART ? c->size - at : TEAM_PART);
    }
}

// tap_openmp says whether ggml's CPU backend computes with OpenMP.
static bool tap_openmp(void) {
    if (tap_real.ggml_backend_reg_by_name == NULL || tap_real.ggml_backend_reg_get_proc_address == NULL) {
        return false;
    }
    ggml_backend_reg_t cpu = tap_real.ggml_backend_reg_by_name("CPU");
    const ggml_backend_get_features_t features = cpu == NULL ? NULL :
        (ggml_backend_get_features_t) tap_real.ggml_backend_reg_get_proc_address(cpu, "ggml_backend_get_features");
    for (const struct ggml_backend_feature * f = features != NULL ? features(cpu) : NULL; f != NULL && f->name != NULL;
         f++) {
        if (strcmp(f->name, "OPENMP") == 0) {
            return true;
        }
    }
    return false;
}

static tap_parallel tap_gomp(void) {
    static const char * const others[] = {"libomp.so", "libomp.so.5", "libiomp5.so"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (dlopen(others[i], RTLD_NOLOAD | RTLD_LAZY) != NULL) {
            return NULL;
        }
    }
    void * gomp = tap_openmp() ? dlopen("libgomp.so.1", RTLD_NOLOAD | RTLD_LAZY) : NULL;
    return gomp != NULL ? (tap_parallel) dlsym(gomp, "GOMP_parallel") : NULL;
}

// What was found, once, when the first graph was captured: its backend is there by then.
static _Atomic(tap_parallel) tap_team_begin;
static _Atomic bool tap_team_looked;

unsigned tap_team_of(struct llama_context * ctx, int32_t n_tokens) {
    if (!tap_get(&tap_team_looked)) {
        tap_set(&tap_team_begin, tap_gomp());
        tap_set(&tap_team_looked, true);
    }
    int32_t (*threads)(struct llama_context *) =
        n_tokens > 1 ? tap_real.llama_n_threads_batch : tap_real.llama_n_threads;
    const int32_t n = ctx != NULL && threads != NULL && tap_get(&tap_team_begin) != NULL ?
        threads(ctx) : 1;
    return n > 1 ? (unsigned) n : 1;
}

void tap_team_copy(uint8_t * dst, const uint8_t * src, size_t n, unsigned team) {
    const tap_parallel begin = team > 1 && n >= TEAM_LEAST ? tap_get(&tap_team_begin) : NULL;
    if (begin == NULL) {
        memcpy(dst, src, n);
        return;
    }
    struct tap_shared c = {.dst = dst, .src = src, .size = n};
    begin(tap_team_part, &c, team, 0);
}
