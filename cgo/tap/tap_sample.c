//go:build llama

// tap_sample.c: what samplers choose from. Looked at only while it is recorded.
#define _GNU_SOURCE
#include "tap_init.h"
#include "tap_queue.h"
#include "tap_real.h"
#include "tap_sched.h"
#include "tap_served.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TAP_CANDIDATES = 10 };

// What the outermost sampler of this thread chose, until it is accepted: a program may choose again where a grammar
// refuses.
struct tap_chosen {
    bool                 waits;
    struct tap_rec_sample rec;
    struct tap_candidate top[TAP_CANDIDATES];
};

// Few threads choose, so that this is not TAP_OWN, which every thread of the program has.
static pthread_key_t tap_chosen_key;
static pthread_once_t tap_chosen_once = PTHREAD_ONCE_INIT;
static bool tap_chosen_made;

static void tap_chosen_make(void) { tap_chosen_made = pthread_key_create(&tap_chosen_key, free) == 0; }

// tap_chosen returns the calling thread's, NULL where there is none; with make it makes it.
static struct tap_chosen * tap_chosen(bool make) {
    pthread_once(&tap_chosen_once, tap_chosen_make);
    struct tap_chosen * c = tap_chosen_made ? pthread_getspecific(tap_chosen_key) : NULL;
    if (c == NULL && make && tap_chosen_made && (c = calloc(1, sizeof(*c))) != NULL &&
        pthread_setspecific(tap_chosen_key, c) != 0) {
        free(c);
        c = NULL;
    }
    return c;
}

// tap_top keeps the candidates of the highest logits, highest first.
static uint32_t tap_top(struct tap_candidate * top, const llama_token_data * data, size_t n) {
    uint32_t have = 0;
    for (size_t i = 0; i < n; i++) {
        if (have == TAP_CANDIDATES && data[i].logit <= top[have - 1].logit) {
            continue;
        }
        uint32_t at = have < TAP_CANDIDATES ? have++ : have - 1;
        for (; at > 0 && top[at - 1].logit < data[i].logit; at--) {
            top[at] = top[at - 1];
        }
        top[at] = (struct tap_candidate) {data[i].id, data[i].logit, data[i].p};
    }
    return have;
}

TAP_OWN struct tap_nested tap_nested;

// A chain applies its members through this function too: only the outermost call is the program's. A grammar that
// is applied alone chooses nothing.
void llama_sampler_apply(struct llama_sampler * sampler, llama_token_data_array * candidates) {
    const bool look = tap_nested.apply == 0 && tap_peek(&tap_samples_wanted) && tap_on();
    const bool serves = tap_nested.apply == 0 && tap_served_on();
    const int64_t entered = serves ? tap_now() : 0;
    const size_t before = look ? candidates->size : 0;
    tap_nested.apply++;
    TAP_REAL(llama_sampler_apply)(sampler, candidates);
    tap_nested.apply--;
    if (serves) {
        tap_served_applied(sampler, candidates, entered);
    }
    if (!look || candidates->data == NULL || candidates->selected < 0 ||
        (size_t) candidates->selected >= candidates->size) {
        return;
    }
    const int64_t began = tap_now();
    struct tap_chosen * c = tap_chosen(true);
    if (c == NULL) {
        return;
    }
    c->waits = true;
    c->rec = (struct tap_rec_sample) {
        .h.type = TAP_REC_SAMPLE, .mono_ns = (uint64_t) began, .token = candidates->data[candidates->selected].id,
        .n_before = before, .n_after = candidates->size,
    };
    c->rec.count = tap_top(c->top, candidates->data, candidates->size);
    tap_add(&tap.header->stats.api_ns, (uint64_t) (tap_now() - began));
}

void tap_sample_accepted(llama_token token) {
    struct tap_chosen * c = tap_peek(&tap_samples_wanted) ? tap_chosen(false) : NULL;
    if (c == NULL || !c->waits) {
        return;
    }
    c->waits = false;
    if (c->rec.token != token || !tap_on()) {
        return;
    }
    c->rec.ctx = tap_last_context;
    const struct tap_part part = {c->top, c->rec.count * sizeof(c->top[0])};
    tap_queue_put(&c->rec.h, sizeof(c->rec), &part, 1);
}
