// harness.c: results of cases, and the collector's end of the shared memory.
#define _GNU_SOURCE
#include "harness.h"

#include <linux/futex.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// ---- cases ----------------------------------------------------------------------------------------------------------

static char         case_name[256];
static _Atomic int  case_failures;
static int          failures, cases;

void test_case(const char * format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(case_name, sizeof(case_name), format, args);
    va_end(args);
    case_failures = 0;
}

void test_fail(const char * file, int line, const char * format, ...) {
    if (case_failures++ >= 10) {
        return; // the first ones are enough
    }
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, case_name, text);
}

void test_end(void) {
    cases++;
    failures += case_failures != 0;
    printf("%s %s\n", case_failures == 0 ? "ok  " : "FAIL", case_name);
    fflush(stdout);
}

int test_done(void) {
    printf("%d cases, %d failed\n", cases, failures);
    return failures != 0;
}

uint64_t rng_next(uint64_t * state) {
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t rng_below(uint64_t * state, uint64_t n) { return rng_next(state) % n; }

// ---- the region -----------------------------------------------------------------------------------------------------

static uint64_t or_default(uint64_t value, uint64_t fallback) { return value != 0 ? value : fallback; }

static uint64_t ceil_power(uint64_t n) {
    uint64_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

void shm_make(struct shm * s, const struct shm_options * o) {
    const uint64_t slots = or_default(o->slots, 1024), slot_bytes = or_default(o->slot_bytes, 4096);
    const uint64_t queue = or_default(o->queue_bytes, 1 << 20), entries = ceil_power(slots);
    const uint64_t queue_offset = (sizeof(struct tap_header) + 4095) & ~4095ull;
    const uint64_t slots_offset = (queue_offset + queue + entries * 8 + 4095) & ~4095ull;
    const uint64_t steer_offset = slots_offset + slots * slot_bytes;
    s->bytes = steer_offset + 2 * o->steer_bytes;
    s->fd = memfd_create("llamatap-test", MFD_CLOEXEC);
    MUST(s->fd >= 0 && ftruncate(s->fd, (off_t) s->bytes) == 0);
    s->life[0] = s->life[1] = -1;
    s->base = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    MUST(s->base != MAP_FAILED);
    struct tap_header * h = s->h = (struct tap_header *) s->base;
    h->header_bytes = sizeof(*h);
    h->total_bytes = s->bytes;
    h->queue_offset = queue_offset;
    h->queue_bytes = queue;
    h->ring_offset = queue_offset + queue;
    h->ring_entries = entries;
    h->slots_offset = slots_offset;
    h->slot_bytes = slot_bytes;
    h->n_slots = slots;
    h->steer_offset = steer_offset;
    h->steer_bytes = o->steer_bytes;
    h->config.start.record = TAP_RECORD_ACTIVATIONS;
    h->config.overflow = o->overflow;
    h->config.start.token_end = -1;
    // here model and collector are one process: the parent's life stands for the collector's
    h->config.collector_pid = getppid();
    h->version = TAP_SHM_VERSION;
    h->magic = TAP_SHM_MAGIC;
}

void shm_free(struct shm * s) {
    munmap(s->base, s->bytes);
    close(s->fd);
    memset(s, 0, sizeof(*s));
}

static void shm_made_room(struct shm * s) {
    atomic_fetch_add(&s->h->room, 1);
    if (atomic_load(&s->h->waiting) > 0 && atomic_load(&s->h->returned) >= atomic_load(&s->h->wake_returned)) {
        syscall(SYS_futex, &s->h->room, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    }
}

void shm_give_back(struct shm * s, uint64_t first, uint64_t n) {
    const uint64_t head = atomic_load(&s->h->ring_head);
    MUST(head - atomic_load(&s->h->ring_tail) < s->h->ring_entries);
    ((uint64_t *) (s->base + s->h->ring_offset))[head & (s->h->ring_entries - 1)] = first << 32 | n;
    atomic_store(&s->h->ring_head, head + 1);
    atomic_fetch_add(&s->h->returned, n);
    shm_made_room(s);
}

void shm_select(struct shm * s, const struct tap_selection * wish) {
    const uint32_t number = atomic_load(&s->h->selection) + 1;
    struct tap_selection next = *wish;
    next.window_of = next.window_of != 0 ? next.window_of : number;
    uint64_t words[TAP_SELECTION_WORDS];
    memcpy(words, &next, sizeof(words));
    for (size_t i = 0; i < TAP_SELECTION_WORDS; i++) {
        atomic_store(&s->h->selections[number % 2][i], words[i]);
    }
    atomic_store(&s->h->selection, number);
}

void shm_read(struct shm * s, const struct tap_record * record) {
    atomic_fetch_add(&s->h->queue_tail, record->bytes);
    shm_made_room(s);
}

struct tap_record * shm_next(struct shm * s) {
    for (;;) {
        const uint64_t tail = atomic_load(&s->h->queue_tail), head = atomic_load(&s->h->queue_head);
        if (head == tail) {
            return NULL;
        }
        struct tap_record * r = (struct tap_record *) (s->base + s->h->queue_offset + (tail & (s->h->queue_bytes - 1)));
        if (r->type != TAP_REC_PAD) {
            return r;
        }
        MUST(r->bytes >= 8 && r->bytes % 8 == 0 && r->bytes <= head - tail);
        shm_read(s, r);
    }
}

void shm_sleep(struct shm * s, int64_t ns) {
    const uint32_t word = atomic_load(&s->h->work);
    atomic_store(&s->h->collector_sleeps, 1);
    const struct timespec timeout = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    syscall(SYS_futex, &s->h->work, FUTEX_WAIT, word, &timeout, NULL, 0);
    atomic_store(&s->h->collector_sleeps, 0);
}

void tap_join(struct shm * s) {
    fake_real();
    tap.given = false;
    MUST(tap_attach(s->fd, s->life[0]) == 0);
    s->h->pid = 0; // a fork of the test may have joined it before
    tap_join_now();
    MUST(tap_recording());
}

void tap_leave(void) {
    tap_detach();
    if (tap.base != NULL) {
        munmap(tap.base, tap.header != NULL ? tap.header->total_bytes : 0);
    }
    free(tap.used);
    tap.used = NULL;
    tap.base = NULL;
    tap.header = NULL;
    tap.given = tap.recording = tap.joined = tap.aside = tap.touched = tap.watched = false;
}

// ---- the log --------------------------------------------------------------------------------------------------------

void log_init(struct log * l, struct shm * s) {
    memset(l, 0, sizeof(*l));
    l->shm = s;
    l->last = &l->first;
}

static void log_take(struct log * l, const struct tap_record * r) {
    struct event * e = calloc(1, sizeof(*e));
    MUST(e != NULL);
    e->type = r->type;
    e->record = malloc(r->bytes);
    MUST(e->record != NULL);
    memcpy(e->record, r, r->bytes);
    if (r->type == TAP_REC_CAPTURE) {
        const struct tap_rec_capture * c = (const struct tap_rec_capture *) r;
        const struct tap_header * h = l->shm->h;
        if (c->slot + (uint64_t) c->n_slots > h->n_slots || c->bytes > c->n_slots * h->slot_bytes) {
            l->damage = "a capture outside of the pool";
            free(e->record);
            free(e);
            return;
        }
        e->data = malloc(c->bytes);
        MUST(e->data != NULL);
        memcpy(e->data, l->shm->base + h->slots_offset + c->slot * h->slot_bytes, c->bytes);
        if (!l->hold) {
            shm_give_back(l->shm, c->slot, c->n_slots);
        }
    }
    *l->last = e;
    l->last = &e->next;
    l->n++;
}

size_t log_drain(struct log * l) {
    size_t n = 0;
    for (struct tap_record * r; l->damage == NULL && (r = shm_next(l->shm)) != NULL; n++) {
        if (r->bytes < sizeof(*r) || r->bytes % 8 != 0 || r->type > TAP_REC_LOSSES) {
            l->damage = "no record of the tap";
            break;
        }
        log_take(l, r);
        shm_read(l->shm, r);
    }
    return n;
}

void log_release(struct log * l) {
    for (struct event * e = l->first; e != NULL; e = e->next) {
        if (e->type == TAP_REC_CAPTURE) {
            const struct tap_rec_capture * c = (const struct tap_rec_capture *) e->record;
            shm_give_back(l->shm, c->slot, c->n_slots);
        }
    }
}

void log_clear(struct log * l) {
    for (struct event * e = l->first, * next; e != NULL; e = next) {
        next = e->next;
        free(e->record);
        free(e->data);
        free(e);
    }
    l->first = NULL;
    l->last = &l->first;
    l->n = 0;
}

static void * log_main(void * arg) {
    struct log * l = arg;
    while (!l->stop) {
        if (log_drain(l) == 0) {
            shm_sleep(l->shm, 1000000);
        }
    }
    log_drain(l);
    return NULL;
}

void log_start(struct log * l) {
    l->stop = false;
    MUST(pthread_create(&l->thread, NULL, log_main, l) == 0);
}

void log_finish(struct log * l) {
    l->stop = true;
    pthread_join(l->thread, NULL);
}

struct event * log_find(const struct log * l, uint32_t type, size_t nth) {
    for (struct event * e = l->first; e != NULL; e = e->next) {
        if (e->type == type && nth-- == 0) {
            return e;
        }
    }
    return NULL;
}

size_t log_count(const struct log * l, uint32_t type) {
    size_t n = 0;
    for (const struct event * e = l->first; e != NULL; e = e->next) {
        n += e->type == type;
    }
    return n;
}
