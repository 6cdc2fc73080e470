//go:build llama

// tap_served.c: tokens as a server chooses them, and those lines of llama-server's log that state what no function of
// llama.h shows.
#define _GNU_SOURCE
#include "tap_context.h"
#include "tap_init.h"
#include "tap_queue.h"
#include "tap_real.h"
#include "tap_served.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void tap_served_send(struct tap_rec_served * rec, const char * text, size_t n) {
    rec->h.type = TAP_REC_SERVED;
    rec->bytes = (uint32_t) n;
    const struct tap_part part = {text, n};
    tap_queue_put(&rec->h, sizeof(*rec), &part, n > 0 ? 1 : 0);
}

// ---- choices --------------------------------------------------------------------------------------------------------

// The token that this thread chooses.
static TAP_OWN struct {
    struct llama_context * ctx; // NULL: none
    int32_t row;
    llama_token token; // chosen and not accepted yet; -1: none
    struct llama_sampler * sampler; // that chose it, NULL: the backend
    int64_t begun, grammar;
} tap_choice;

void tap_served_call(void) { tap_choice.ctx = NULL; }

void tap_served_row(struct llama_context * ctx, int32_t row) {
    if (!tap_served_on()) {
        return;
    }
    if (tap_choice.ctx != ctx || tap_choice.row != row) {
        tap_choice.ctx = ctx;
        tap_choice.row = row;
        tap_choice.begun = tap_now();
        tap_choice.grammar = 0;
    }
    tap_choice.token = -1;
}

void tap_served_device(llama_token token) {
    if (tap_choice.ctx != NULL && token >= 0) {
        tap_choice.token = token;
        tap_choice.sampler = NULL;
    }
}

void tap_served_applied(struct llama_sampler * sampler, const llama_token_data_array * candidates, int64_t began) {
    if (tap_choice.ctx == NULL) {
        return;
    }
    if (candidates->data != NULL && candidates->selected >= 0 &&
        (size_t) candidates->selected < candidates->size) {
        tap_choice.token = candidates->data[candidates->selected].id;
        tap_choice.sampler = sampler;
    } else {
        tap_choice.grammar += tap_now() - began;
    }
}

void tap_served_accepted(struct llama_sampler * sampler, llama_token token, int64_t began) {
    if (tap_choice.ctx == NULL || tap_choice.token != token || token < 0) {
        return;
    }
    const int64_t now = tap_now();
    if (tap_choice.sampler != NULL && tap_choice.sampler != sampler) { // a grammar accepts it first
        tap_choice.grammar += now - began;
        return;
    }
    struct tap_context * c = tap_context_of(tap_choice.ctx);
    if (c != NULL) {
        struct tap_rec_served rec = {
            .kind = TAP_SERVED_CHOICE, .mono_ns = (uint64_t) now, .begun_ns = (uint64_t) tap_choice.begun,
            .grammar_ns = (uint64_t) tap_choice.grammar, .ctx = tap_get(&c->number), .row = tap_choice.row,
            .token = token, .key = (uint64_t) (uintptr_t) sampler,
        };
        if (tap_real.llama_vocab_is_eog != NULL && tap_real.llama_get_model != NULL &&
            tap_real.llama_model_get_vocab != NULL) {
            const struct llama_model * model = tap_real.llama_get_model(tap_choice.ctx);
            rec.value = tap_real.llama_vocab_is_eog(tap_real.llama_model_get_vocab(model), token) ? 1 : 0;
        }
        tap_served_send(&rec, NULL, 0);
    }
    tap_choice.ctx = NULL;
    tap_add(&tap.header->stats.api_ns, (uint64_t) (tap_now() - now));
}

void tap_served_embedded(struct llama_context * ctx, int32_t row, llama_seq_id seq) {
    struct tap_context * c = tap_served_on() ? tap_context_of(ctx) : NULL;
    if (c != NULL) {
        struct tap_rec_served rec = {
            .kind = TAP_SERVED_EMBEDDED, .mono_ns = (uint64_t) tap_now(), .ctx = tap_get(&c->number), .row = row,
            .token = seq,
        };
        tap_served_send(&rec, NULL, 0);
    }
}

void tap_served_state(uint32_t kind, struct llama_context * ctx, llama_seq_id seq, const void * data, size_t size) {
    struct tap_context * c = tap_served_on() ? tap_context_of(ctx) : NULL;
    if (c != NULL) {
        struct tap_rec_served rec = {
            .kind = kind, .mono_ns = (uint64_t) tap_now(), .ctx = tap_get(&c->number), .row = seq,
            .key = (uint64_t) (uintptr_t) data, .value = (uint32_t) size,
        };
        tap_served_send(&rec, NULL, 0);
    }
}

// What cells were computed with one set of adapters does not serve another.
int32_t llama_set_adapters_lora(struct llama_context * ctx, struct llama_adapter_lora ** adapters, size_t n,
                                float * scales) {
    const int32_t status = TAP_REAL(llama_set_adapters_lora)(ctx, adapters, n, scales);
    struct tap_context * c = status == 0 && tap_served_on() ? tap_context_of(ctx) : NULL;
    if (c != NULL) {
        struct tap_rec_served rec = {
            .kind = TAP_SERVED_ADAPTERS, .mono_ns = (uint64_t) tap_now(), .ctx = tap_get(&c->number),
        };
        for (size_t i = 0; i < n; i++) {
            uint32_t scale;
            memcpy(&scale, &scales[i], sizeof(scale));
            if (scales[i] != 0) {
                rec.key = (rec.key ^ (uint64_t) (uintptr_t) adapters[i] ^ scale) * TAP_HASH_PRIME;
            }
        }
        tap_served_send(&rec, NULL, 0);
    }
    return status;
}

// ---- the log --------------------------------------------------------------------------------------------------------

#ifdef LLAMATAP_PRELOADED

// What llama-server's lines are known by. None of them holds text of a prompt or an answer.
static bool tap_line_wanted(const char * format) {
    static const char * const wanted[] = {
        "selected slot by", "processing task, is_child", "cancel task, id_task", "        eval time = ",
        "task id = %d, error: ",
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strstr(format, wanted[i]) != NULL) {
            return true;
        }
    }
    return false;
}

// common_log_add of libllama-common, which queues a line for the thread that writes it.
#define TAP_LOG_LINE "_Z14common_log_addP10common_log14ggml_log_levelPKcz"
void tap_log_line(void * log, int level, const char * format, ...) __asm__(TAP_LOG_LINE);
static _Atomic(void *) tap_behind_tap_log_line;

void tap_log_line(void * log, int level, const char * format, ...) {
    char text[2048], * line = text;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(text, sizeof(text), format, args);
    if (n >= (int) sizeof(text) && vasprintf(&line, format, again) < 0) {
        line = text;
    }
    va_end(again);
    va_end(args);
    if (n > 0 && tap_served_on() && tap_line_wanted(format)) {
        struct tap_rec_served rec = {
            .kind = TAP_SERVED_LINE, .mono_ns = (uint64_t) tap_now(), .row = (int32_t) syscall(SYS_gettid),
            .ctx = UINT32_MAX,
        };
        tap_served_send(&rec, line, (size_t) n < 512 ? (size_t) n : 512);
    }
    __typeof__(&tap_log_line) real = TAP_BEHIND(tap_log_line, TAP_LOG_LINE);
    if (real != NULL) {
        real(log, level, "%s", line);
    }
    if (line != text) {
        free(line);
    }
}

#endif
