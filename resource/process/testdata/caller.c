// A program with functions of llama.cpp's names that compute nothing, called with known batches: line by line of
// standard input. It prints the first bytes of llama_decode, then a line after each batch.
//
//   process CONTEXT SEQ:POS:ROWS:OUTPUTS …    a llama_batch_ext
//   decode CONTEXT SEQ:POS:ROWS:OUTPUTS …     a llama_batch
//   one CONTEXT ROWS                          a llama_batch without positions, sequences and outputs
//   shift SEQ DELTA, fail CONTEXT, bytes, repeat N
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct llama_batch {
    int32_t n_tokens;
    int32_t * token;
    float * embd;
    int32_t * pos;
    int32_t * n_seq_id;
    int32_t ** seq_id;
    int8_t * logits;
};

#define FUNCTION __attribute__((noinline, visibility("default")))
static volatile int done;

FUNCTION int llama_decode(void * ctx, struct llama_batch b) { done += b.n_tokens; return ctx == NULL; }
FUNCTION int llama_process(void * ctx, int type, void * batch) {
    struct llama_batch none = {0};
    done += type + (batch != NULL);
    return llama_decode(ctx, none); // as llama.cpp's functions call one another: one batch, seen once
}
FUNCTION void llama_batch_ext_clear(void * batch) { done += batch != NULL; }
FUNCTION int llama_batch_ext_add_token(void * batch, int seq, int token) {
    done += seq;
    return batch == NULL ? -1 : token;
}
FUNCTION bool llama_batch_ext_set_pos(void * batch, int row, const int32_t * pos) {
    done += row + *pos;
    return batch != NULL;
}
FUNCTION bool llama_batch_ext_set_output_logits(void * batch, int row, bool value) {
    done += row;
    return value && batch != NULL;
}
FUNCTION void llama_memory_seq_add(void * memory, int seq, int from, int to, int delta) {
    done += seq + from + to + delta + (memory != NULL);
}

static struct { int seq, pos, rows, outputs; } runs[64];

static void run(bool extended, void * ctx, int n) {
    static int32_t pos[70000], seq[70000], count[70000], * seqs[70000];
    static int8_t logits[70000];
    static int batch;
    int row = 0;
    llama_batch_ext_clear(&batch);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < runs[i].rows; k++, row++) {
            pos[row] = runs[i].pos + k;
            seq[row] = runs[i].seq;
            count[row] = 1;
            seqs[row] = &seq[row];
            logits[row] = k >= runs[i].rows - runs[i].outputs;
            if (extended) {
                llama_batch_ext_add_token(&batch, runs[i].seq, 0);
                llama_batch_ext_set_pos(&batch, row, &pos[row]);
                if (logits[row]) {
                    llama_batch_ext_set_output_logits(&batch, row, true);
                }
            }
        }
    }
    if (extended) {
        llama_process(ctx, 1, &batch);
    } else {
        llama_decode(ctx, (struct llama_batch) {row, NULL, NULL, pos, count, seqs, logits});
    }
}

int main(void) {
    static char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char * word = strtok(line, " \n"), * context = strtok(NULL, " \n"), * next;
        long number = context == NULL ? 0 : atol(context);
        if (strcmp(word, "shift") == 0) {
            llama_memory_seq_add(NULL, number, 0, -1, atoi(strtok(NULL, " \n")));
        } else if (strcmp(word, "bytes") == 0) {
            for (int i = 0; i < 8; i++) {
                printf("%02x", ((const volatile unsigned char *) (uintptr_t) llama_decode)[i]);
            }
        } else if (strcmp(word, "fail") == 0) {
            llama_decode(NULL, (struct llama_batch) {.n_tokens = 1});
        } else if (strcmp(word, "one") == 0) {
            llama_decode((void *) number, (struct llama_batch) {.n_tokens = atoi(strtok(NULL, " \n"))});
        } else if (strcmp(word, "repeat") == 0) {
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (long i = 0; i < number; i++) {
                runs[0].seq = 0, runs[0].pos = i, runs[0].rows = runs[0].outputs = 1;
                run(true, &done, 1);
            }
            clock_gettime(CLOCK_MONOTONIC, &b);
            printf("%ld", (b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec);
        } else {
            int n = 0;
            while ((next = strtok(NULL, " \n")) != NULL && n < 64) {
                sscanf(next, "%d:%d:%d:%d", &runs[n].seq, &runs[n].pos, &runs[n].rows, &runs[n].outputs);
                n++;
            }
            run(strcmp(word, "process") == 0, (void *) number, n);
        }
        printf(".\n");
        fflush(stdout);
    }
}
