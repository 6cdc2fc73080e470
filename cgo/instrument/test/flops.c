// flops.c: prints what instr_flops makes of the operations that standard input describes, one a line: name, 4 sizes of the output, 8
// parameters, and for each of 5 sources 4 sizes, all 0 where there is none. "-" stands for what it does not know. A test in Go compares
// it with resource/flops.go.
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>

#include "../instrument.h"

int main(void) {
    struct llama_resource_tensor t = {.size = sizeof(t), .n_dims = 4};
    char name[64];
    while (scanf("%63s", name) == 1) {
        int got = 0;
        uint64_t flops;
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
        if (instr_flops(name, &t, 1, &t, &flops)) {
            printf("%" PRIu64 "\n", flops);
        } else {
            printf("-\n");
        }
    }
    return 0;
}
