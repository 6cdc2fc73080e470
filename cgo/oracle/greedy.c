// greedy: a llama.cpp program that is not llama.cpp's own: it continues four tokens, in two sequences, with the
// likeliest one.
//
// greedy MODEL BACKENDS N [TIMES] prints the N tokens of sequence 0, one a line; TIMES over, loading the model anew
// each time
//
// Compiled with -DLATE it is not linked with llama.cpp: it opens the library by itself, for itself alone, as
// Python's ctypes does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "llama.h"

#ifdef LATE
static void * library, * base;
#define CALL(name) ((__typeof__(name) *) (dlsym(library, #name) != NULL ? dlsym(library, #name) : dlsym(base, #name)))
#else
#define CALL(name) name
#endif

// Sequence 0 has every token; sequence 1 the first one alone, at a place of its own.
static void fill(struct llama_batch * b, int32_t first, int32_t n, const llama_token * tokens) {
    b->n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        b->token[i] = tokens[i];
        b->pos[i] = first + i;
        b->n_seq_id[i] = first == 0 && i == 0 ? 2 : 1;
        b->seq_id[i][0] = 0;
        b->seq_id[i][1] = 1;
        b->logits[i] = i == n - 1;
    }
}

static void quiet(enum ggml_log_level level, const char * text, void * data) {
    (void) level;
    (void) text;
    (void) data;
}

// continue_tokens loads the model, prints so many tokens and frees it.
static int continue_tokens(const char * path, int times) {
    struct llama_model * model = CALL(llama_model_load_from_file)(path, CALL(llama_model_default_params)());
    struct llama_context_params params = CALL(llama_context_default_params)();
    params.n_ctx = 256;
    params.n_seq_max = 2;
    params.n_threads = params.n_threads_batch = 1;
    params.kv_unified = true;
    struct llama_context * ctx = model != NULL ? CALL(llama_init_from_model)(model, params) : NULL;
    if (ctx == NULL) {
        return 4;
    }
    const int32_t n_vocab = CALL(llama_vocab_n_tokens)(CALL(llama_model_get_vocab)(model));
    llama_token tokens[4] = {1, 5, 6, 7};
    struct llama_batch batch = CALL(llama_batch_init)(4, 0, 2);
    int32_t n = 4;
    for (int32_t at = 0, i = 0; i < times; i++) {
        fill(&batch, at, n, tokens);
        if (CALL(llama_decode)(ctx, batch) != 0) {
            return 5;
        }
        at += n;
        n = 1;
        const float * logits = CALL(llama_get_logits_ith)(ctx, -1);
        tokens[0] = 0;
        for (int32_t k = 1; k < n_vocab; k++) {
            tokens[0] = logits[k] > logits[tokens[0]] ? k : tokens[0];
        }
        printf("%d\n", tokens[0]);
        fflush(stdout);
    }
    CALL(llama_batch_free)(batch);
    CALL(llama_free)(ctx);
    CALL(llama_model_free)(model);
    return 0;
}

int main(int argc, char ** argv) {
    if (argc != 4 && argc != 5) {
        return 2;
    }
#ifdef LATE
    base = dlopen("libggml.so.0", RTLD_NOW | RTLD_LOCAL); // first: libllama searches only a path of its own for it
    library = base != NULL ? dlopen("libllama.so.0", RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
#endif
    CALL(llama_log_set)(quiet, NULL);
    CALL(ggml_backend_load_all_from_path)(argv[2]);
    int status = 0;
    for (int i = 0; i < (argc == 5 ? atoi(argv[4]) : 1) && status == 0; i++) {
        status = continue_tokens(argv[1], atoi(argv[3]));
    }
    return status;
}
