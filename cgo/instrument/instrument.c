// instrument.c: files of events: how they are opened and closed, levels, sessions. The program's own file is one
// that lives as long as the library, so that a thread that comes late finds it closed, not gone.
#define _GNU_SOURCE
#include "instrument.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

static struct llama_resource_instr   own = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t               all_lock = PTHREAD_MUTEX_INITIALIZER; // taken before the lock of a file
static struct llama_resource_instr * all;
static pthread_once_t                once = PTHREAD_ONCE_INIT;

INSTR_API struct llama_resource_instr * g_resource_instr;
INSTR_API int                           llama_resource_instr_on;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}

uint64_t instr_now(void) { return clock_ns(CLOCK_MONOTONIC); }

bool instr_enter(struct instr_call * c, struct llama_resource_instr * instr) {
    if (instr == NULL || !__atomic_load_n(&instr->enabled, __ATOMIC_RELAXED)) {
        return false;
    }
    c->instr = instr;
    c->mono_ns = instr_now();
    pthread_mutex_lock(&instr->lock);
    if (!instr->open || !instr->enabled) {
        pthread_mutex_unlock(&instr->lock);
        return false;
    }
    return true;
}

void instr_leave(struct instr_call * c) {
    struct instr_thread * t = c->instr->threads_used > 0 ? instr_thread(c->instr, false) : NULL;
    if (t != NULL) {
        t->looking_ns += instr_now() - c->mono_ns;
    }
    pthread_mutex_unlock(&c->instr->lock);
}

// set_state is called with the lock held.
static void set_state(struct llama_resource_instr * s, bool open, bool enabled) {
    __atomic_store_n(&s->open, open, __ATOMIC_RELEASE);
    __atomic_store_n(&s->enabled, open && enabled, __ATOMIC_RELEASE);
    if (s == &own) {
        __atomic_store_n(&g_resource_instr, open ? s : NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&llama_resource_instr_on, open && enabled, __ATOMIC_RELEASE);
    }
}

// ---- children -------------------------------------------------------------------------------------------------------

static void before_fork(void) {
    pthread_mutex_lock(&all_lock);
    for (struct llama_resource_instr * s = all; s != NULL; s = s->next) {
        pthread_mutex_lock(&s->lock);
    }
}

static void after_fork(bool child) {
    for (struct llama_resource_instr * s = all; s != NULL; s = s->next) {
        if (child) { // what waits is the parent's to write; the end of the session too
            s->used = s->line = 0;
            s->forked = true;
            instr_forget_ranges(s);
        }
        pthread_mutex_unlock(&s->lock);
    }
    pthread_mutex_unlock(&all_lock);
}

static void parent_after_fork(void) { after_fork(false); }
static void child_after_fork(void) { after_fork(true); }
static void watch_forks(void) { pthread_atfork(before_fork, parent_after_fork, child_after_fork); }

// ---- what the environment says --------------------------------------------------------------------------------------

static bool disabled_by_environment(void) {
    const char * value = getenv("LLAMA_RESOURCE_DISABLED");
    static const char * const no[] = {"", "0", "false", "no", "off"};
    for (size_t i = 0; value != NULL && i < sizeof(no) / sizeof(no[0]); i++) {
        if (strcasecmp(value, no[i]) == 0) {
            return false;
        }
    }
    return value != NULL;
}

static int valid_level(int level) {
    return level < INSTR_LEVEL_MINIMAL ? INSTR_LEVEL_MINIMAL : level > INSTR_LEVEL_VERBOSE ? INSTR_LEVEL_VERBOSE
        : level;
}

static int level_by_environment(int level) {
    const char * value = getenv("LLAMA_RESOURCE_LOG_LEVEL");
    if (value == NULL || value[0] == 0) {
        return valid_level(level);
    }
    for (int l = 0; l < 3; l++) {
        if (strcasecmp(value, instr_levels[l]) == 0) {
            return l;
        }
    }
    instr_complain("LLAMA_RESOURCE_LOG_LEVEL=%.40s is no level: use MINIMAL, DETAILED or VERBOSE; %s holds, as the "
                   "program asks", value,
                   instr_levels[valid_level(level)]);
    return valid_level(level);
}

// ---- opening and closing --------------------------------------------------------------------------------------------

static void name_session(struct llama_resource_instr * s) {
    uint64_t us = clock_ns(CLOCK_REALTIME) / 1000;
    time_t seconds = (time_t) (us / 1000000);
    struct tm t;
    gmtime_r(&seconds, &t);
    snprintf(s->session, sizeof(s->session), "resource_sess_%04d%02d%02d_%02d%02d%02d_%06u", t.tm_year + 1900,
             t.tm_mon + 1, t.tm_mday,
             t.tm_hour, t.tm_min, t.tm_sec, (unsigned) (us % 1000000));
}

// begin_file starts a file of events with its first line. The lock is held.
static bool begin_file(struct llama_resource_instr * s, int level, const char * path) {
    struct instr_call c = {s, 0};
    if (!instr_open_file(s, path)) {
        return false;
    }
    uint64_t real = clock_ns(CLOCK_REALTIME);
    c.mono_ns = instr_now();
    s->unix_offset_ns = (int64_t) (real - c.mono_ns);
    s->level = level_by_environment(level);
    s->start_ns = s->flushed_ns = c.mono_ns;
    s->forked = false;
    name_session(s);
    instr_begin(&c, INSTR_SESSION_START, "measured");
    instr_text(s, "level", instr_levels[s->level]);
    instr_uint(s, "events_version", 1);
    instr_text(s, "recorder", "llama-resource-instrumentation");
    instr_end(&c);
    set_state(s, true, true);
    return true;
}

// end_file writes the last line. The lock is held.
static void end_file(struct llama_resource_instr * s) {
    struct instr_call c = {s, instr_now()};
    if (!s->forked) {
        instr_begin(&c, INSTR_SESSION_END, "measured");
        instr_uint(s, "duration_ns", c.mono_ns - s->start_ns);
        instr_end(&c);
    }
    instr_flush(s, c.mono_ns);
    set_state(s, false, false);
    instr_close_file(s);
    instr_forget_ranges(s);
    instr_memory_free(&s->memory);
    memset(s->lost, 0, sizeof(s->lost));
    memset(s->lost_told, 0, sizeof(s->lost_told));
    memset(&s->total, 0, sizeof(s->total));
    s->events = s->flows = s->unmatched_ends = s->left_open = 0;
}

static void link_to_all(struct llama_resource_instr * s) {
    s->next = all;
    all = s;
}

static void unlink_from_all(struct llama_resource_instr * s) {
    struct llama_resource_instr ** at = &all;
    while (*at != NULL && *at != s) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = s->next;
    }
}

INSTR_API struct llama_resource_instr * llama_resource_instr_open(LLAMA_RESOURCE_LEVEL level, const char * path) {
    if (disabled_by_environment()) {
        return NULL;
    }
    struct llama_resource_instr * s = calloc(1, sizeof(*s));
    if (s == NULL) {
        instr_complain("no memory for a file of events; %s is not written", path != NULL ? path : "it");
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&all_lock);
    bool ok = begin_file(s, (int) level, path);
    if (ok) {
        link_to_all(s);
    }
    pthread_mutex_unlock(&all_lock);
    if (!ok) {
        pthread_mutex_destroy(&s->lock);
        free(s);
        return NULL;
    }
    return s;
}

INSTR_API void llama_resource_instr_close(struct llama_resource_instr * instr) {
    if (instr == NULL) {
        return;
    }
    if (instr == &own) {
        llama_resource_instrumentation_free();
        return;
    }
    pthread_mutex_lock(&all_lock);
    unlink_from_all(instr);
    pthread_mutex_unlock(&all_lock);
    pthread_mutex_lock(&instr->lock);
    end_file(instr);
    pthread_mutex_unlock(&instr->lock);
    pthread_mutex_destroy(&instr->lock);
    free(instr);
}

INSTR_API void llama_resource_instrumentation_init(LLAMA_RESOURCE_LEVEL level, const char * path) {
    if (disabled_by_environment()) {
        return;
    }
    const char * other = getenv("LLAMA_RESOURCE_LOG_PATH");
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&all_lock);
    pthread_mutex_lock(&own.lock);
    if (!own.open && begin_file(&own, (int) level, other != NULL && other[0] != 0 ? other : path)) {
        link_to_all(&own);
    }
    pthread_mutex_unlock(&own.lock);
    pthread_mutex_unlock(&all_lock);
}

INSTR_API void llama_resource_instrumentation_free(void) {
    pthread_mutex_lock(&all_lock);
    pthread_mutex_lock(&own.lock);
    if (own.open) {
        end_file(&own);
        unlink_from_all(&own);
    }
    pthread_mutex_unlock(&own.lock);
    pthread_mutex_unlock(&all_lock);
}

// at_exit closes the file of a program that ends without having done so.
__attribute__((destructor)) static void at_exit(void) { llama_resource_instrumentation_free(); }

INSTR_API struct llama_resource_instr * llama_resource_instr_global(void) { return &own; }

INSTR_API bool llama_resource_instr_is_open(const struct llama_resource_instr * instr) {
    return instr != NULL && __atomic_load_n(&instr->open, __ATOMIC_ACQUIRE);
}

// ---- while it is open -----------------------------------------------------------------------------------------------

static void level_event(struct instr_call * c, int previous, bool enabled) {
    instr_begin(c, INSTR_LEVEL, "measured");
    instr_text(c->instr, "level", instr_levels[c->instr->level]);
    instr_text(c->instr, "previous", instr_levels[previous]);
    instr_key(c->instr, "enabled");
    instr_raw(c->instr, enabled ? "true" : "false");
    instr_end(c);
}

static void set_enabled(struct llama_resource_instr * s, bool enabled) {
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (s->open && (s->enabled != 0) != enabled) {
        struct instr_call c = {s, instr_now()};
        level_event(&c, s->level, enabled);
        instr_forget_ranges(s);
        set_state(s, true, enabled);
    }
    pthread_mutex_unlock(&s->lock);
}

INSTR_API void llama_resource_instr_enable(struct llama_resource_instr * instr) { set_enabled(instr, true); }
INSTR_API void llama_resource_instr_disable(struct llama_resource_instr * instr) { set_enabled(instr, false); }

INSTR_API void llama_resource_instr_flush(struct llama_resource_instr * instr) {
    if (instr == NULL) {
        return;
    }
    pthread_mutex_lock(&instr->lock);
    if (instr->open) {
        instr_flush(instr, instr_now());
    }
    pthread_mutex_unlock(&instr->lock);
}

INSTR_API void llama_resource_instr_set_level(struct llama_resource_instr * instr, LLAMA_RESOURCE_LEVEL level) {
    if (instr == NULL) {
        return;
    }
    pthread_mutex_lock(&instr->lock);
    int previous = instr->level;
    if (instr->open && previous != valid_level((int) level)) {
        struct instr_call c = {instr, instr_now()};
        instr->level = valid_level((int) level);
        level_event(&c, previous, instr->enabled);
    }
    pthread_mutex_unlock(&instr->lock);
}
