// test_team.c: copies that the threads of a graph make together.
#define _GNU_SOURCE
#include "bed.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { TEAM = 3, BYTES = 5 << 20, GUARD = 64 };

static bool openmp; // ggml's CPU backend says so

static struct ggml_backend_feature * features(ggml_backend_reg_t reg) {
    static struct ggml_backend_feature all[] = {{"AVX2", "1"}, {"OPENMP", "1"}, {NULL, NULL}};
    (void) reg;
    return openmp ? all : &all[2];
}

static ggml_backend_reg_t reg_by_name(const char * name) {
    return strcmp(name, "CPU") == 0 ? (ggml_backend_reg_t) &openmp : NULL;
}

static void * reg_get_proc_address(ggml_backend_reg_t reg, const char * name) {
    MUST(reg == (ggml_backend_reg_t) &openmp);
    return strcmp(name, "ggml_backend_get_features") == 0 ? (void *) features : NULL;
}

static int32_t n_threads(struct llama_context * ctx) {
    (void) ctx;
    return 1;
}

static int32_t n_threads_batch(struct llama_context * ctx) {
    (void) ctx;
    return TEAM;
}

static void test_copies(unsigned team) {
    static const size_t sizes[] = {0, 1, (512 << 10) - 1, 512 << 10, (1 << 20) + 13, BYTES};
    uint8_t * from = malloc(BYTES), * to = malloc(BYTES + 2 * GUARD), * want = malloc(BYTES + 2 * GUARD);
    MUST(from != NULL && to != NULL && want != NULL);
    for (size_t i = 0; i < BYTES; i++) {
        from[i] = (uint8_t) (i * 2654435761u >> 13);
    }
    test_case("team: copies by %u", team);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(to, 0x5a, BYTES + 2 * GUARD);
        memset(want, 0x5a, BYTES + 2 * GUARD);
        memcpy(want + GUARD, from, sizes[i]);
        tap_team_copy(to + GUARD, from, sizes[i], team);
        CHECK(memcmp(to, want, BYTES + 2 * GUARD) == 0, "%zu bytes are copied wrong", sizes[i]);
    }
    test_end();
    free(from);
    free(to);
    free(want);
}

int main(int argc, char ** argv) {
    struct llama_context * ctx = (struct llama_context *) (uintptr_t) argv;
    openmp = argc == 1; // any argument: a ggml with threads of its own
    MUST(dlopen("libgomp.so.1", RTLD_NOW) != NULL);
    tap_real.ggml_backend_reg_by_name = reg_by_name;
    tap_real.ggml_backend_reg_get_proc_address = reg_get_proc_address;
    tap_real.llama_n_threads = n_threads;
    tap_real.llama_n_threads_batch = n_threads_batch;
    test_case("team: how many");
    const unsigned one = tap_team_of(ctx, 1), many = tap_team_of(ctx, 5), none = tap_team_of(NULL, 5);
    CHECK(one == 1 && many == (openmp ? TEAM : 1) && none == 1, "%u, %u and %u threads", one, many, none);
    test_end();
    test_copies(1);
    test_copies(TEAM);
    return test_done();
}
