// ask.c: asks the library for what tests in Go compare with something else.
//
// ask flops FLOPs of the operations that standard input describes, one a line: name, 4 sizes of the output, 8
// parameters, and
// for each of 5 sources 4 sizes, all 0 where there is none. "-" stands for what the library does not know.
//   ask texts FILE  standard input is texts, each with a zero behind it; each becomes a component's name in FILE.
//   ask cost FILE   nanoseconds that a macro takes, off and on.
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../instrument.h"

static int flops(void) {
    struct llama_resource_tensor t = {.size = sizeof(t), .n_dims = 4};
    char name[64];
    while (scanf("%63s", name) == 1) {
        int got = 0;
        uint64_t n;
        t.op = name;
        t.sources = 0;
        for (int i = 0; i < 4; i++) {
            got += scanf("%" SCNd64, &t.ne[i]);
        }
        for (int i = 0; i < 8; i++) {
            got += scanf("%" SCNd32, &t.op_params[i]);
        }
        for (int s = 0; s < LLAMA_RESOURCE_MAX_SOURCES; s++) {
            for (int i = 0; i < 4; i++) {
                got += scanf("%" SCNd64, &t.source_ne[s][i]);
            }
            t.sources |= (uint32_t) (t.source_ne[s][0] > 0) << s;
        }
        if (got != 12 + 4 * LLAMA_RESOURCE_MAX_SOURCES) {
            return 1;
        }
        if (instr_flops(name, &t, 1, &t, &n)) {
            printf("%" PRIu64 "\n", n);
        } else {
            printf("-\n");
        }
    }
    return 0;
}

static int texts(const char * path) {
    char * text = NULL;
    size_t size = 0;
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    while (getdelim(&text, &size, 0, stdin) >= 0) {
        LLAMA_RESOURCE_BEGIN_COMPONENT(text);
        LLAMA_RESOURCE_END_COMPONENT(text);
    }
    llama_resource_instrumentation_free();
    free(text);
    return 0;
}

// TIME prints how long a statement takes, the shortest of some rounds.
#define TIME(what, rounds, statement) \
    do { \
        double shortest = 1e9; \
        for (int round_ = 0; round_ < 20; round_++) { \
            uint64_t began = instr_now(); \
            for (int i = 0; i < (rounds); i++) { \
                statement; \
                __asm__ volatile("" ::: "memory"); \
            } \
            double each = (double) (instr_now() - began) / (rounds); \
            shortest = each < shortest ? each : shortest; \
        } \
        printf("%-36s %8.1f ns\n", what, shortest); \
    } while (0)

static int cost(const char * path) {
    struct llama_resource_tensor t = {
        .size = sizeof(t), .n_dims = 2, .ne = {4096, 32, 1, 1}, .bytes = 4096 * 32 * 4, .value_bytes = 4096 * 32 * 4,
        .name = "Qcur-0",
        .type = "f32", .op = "MUL_MAT", .sources = 1, .source_ne = {{4096, 4096, 1, 1}}, .address = 64,
        .root_address = 64,
    };
    TIME("nothing", 1000000, (void) 0);
    TIME("macro, off", 1000000, LLAMA_RESOURCE_BEGIN_LAYER(i));
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    struct llama_resource_instr * own = llama_resource_instr_global();
    TIME("layer, beginning and end", 1000, {
        LLAMA_RESOURCE_BEGIN_LAYER(i);
        LLAMA_RESOURCE_END_LAYER(i);
    });
    TIME("component, beginning and end", 1000, {
        LLAMA_RESOURCE_BEGIN_COMPONENT("attention");
        LLAMA_RESOURCE_END_COMPONENT("attention");
    });
    TIME("operation", 1000, llama_resource_instr_compute_operation(own, "mul_mat", "attention", &t, 1, &t));
    TIME("allocation", 1000, llama_resource_instr_memory_allocation(own, &t, "attention", NULL, 0));
    llama_resource_instr_set_level(own, LLAMA_RESOURCE_MINIMAL);
    TIME("layer, not reported at this level", 1000, {
        LLAMA_RESOURCE_BEGIN_LAYER(i);
        LLAMA_RESOURCE_END_LAYER(i);
    });
    llama_resource_instr_disable(own);
    TIME("macro, disabled", 1000000, LLAMA_RESOURCE_BEGIN_LAYER(i));
    llama_resource_instrumentation_free();
    return 0;
}

int main(int argc, char ** argv) {
    if (argc == 2 && strcmp(argv[1], "flops") == 0) {
        return flops();
    } else if (argc == 3 && strcmp(argv[1], "texts") == 0) {
        return texts(argv[2]);
    } else if (argc == 3 && strcmp(argv[1], "cost") == 0) {
        return cost(argv[2]);
    }
    fprintf(stderr, "usage: ask flops|texts FILE|cost FILE\n");
    return 2;
}
