//go:build llama

// tap_init.c: meeting the collector, joining its shared memory, leaving it.
//
// A program may start others, and the one that runs llama.cpp need not be the first: a shell script, a driver in
// Python, a server that starts one of itself per model. So every process maps the memory when it starts, and the
// first that makes a context or computes a graph is the one that is recorded. The others are counted.
#define _GNU_SOURCE
#include "tap_init.h"
#include "tap_aside.h"
#include "tap_buffer.h"
#include "tap_moved.h"
#include "tap_queue.h"
#include "tap_real.h"
#include "tap_sched.h"
#include "tap_turn.h"

#include <pthread.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- joining and leaving --------------------------------------------------------------------------------------------

// tap_inside says whether n things of size bytes lie at offset, behind the header and before the end.
static bool tap_inside(uint64_t offset, uint64_t n, uint64_t size, uint64_t end) {
    return offset >= sizeof(struct tap_header) && offset % 8 == 0 && offset <= end && n <= (end - offset) / size;
}

static bool tap_is_power(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

// tap_layout_ok checks that the header describes memory that is there, so that a wrong file cannot make the program
// fail later. A quarter of the pool holds the largest block of any quantised type: tensors are cut no finer.
static bool tap_layout_ok(const struct tap_header * h, uint64_t bytes) {
    enum { LARGEST_BLOCK = 512 };
    return h->magic == TAP_SHM_MAGIC && h->version == TAP_SHM_VERSION && h->header_bytes == sizeof(*h) &&
        h->total_bytes == bytes &&
           h->queue_bytes >= 65536 && tap_is_power(h->queue_bytes) && tap_inside(h->queue_offset, h->queue_bytes,
               1, bytes) &&
           h->ring_entries >= h->n_slots && tap_is_power(h->ring_entries) &&
           tap_inside(h->ring_offset, h->ring_entries, sizeof(uint64_t), bytes) && h->slot_bytes >= 64 &&
           h->slot_bytes % 8 == 0 &&
           h->n_slots >= 4 && h->n_slots < UINT32_MAX && tap_inside(h->slots_offset, h->n_slots,
               h->slot_bytes, bytes) &&
           h->n_slots * h->slot_bytes / 4 >= LARGEST_BLOCK &&
           (h->steer_bytes == 0 || tap_inside(h->steer_offset, 2, h->steer_bytes, bytes));
}

static void tap_hello(uint32_t type) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    struct tap_rec_hello rec = {
        .h.type = type, .pid = getpid(), .mono_ns = (uint64_t) tap_now(),
        .unix_ns = (uint64_t) ts.tv_sec * 1000000000u + (uint64_t) ts.tv_nsec,
    };
    tap_queue_put(&rec.h, sizeof(rec), NULL, 0);
}

// A child that is forked from the process that is recorded shares the memory and must not write to it.
static void tap_in_child(void) {
    tap_set(&tap.recording, false);
    tap.aside = tap.touched = tap.watched = false;
    if (tap.joined) {
        tap.header = NULL;
    }
}

// tap_map_header maps the header alone, to say that there was no room for more.
static void tap_map_header(int fd) {
    struct tap_header * h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h != MAP_FAILED) {
        tap_flag(&h->seen, TAP_SEEN_TAP | TAP_SEEN_NO_MEMORY);
        munmap(h, sizeof(*h));
    }
}

static int tap_map(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return errno;
    }
    if (st.st_size < (off_t) sizeof(struct tap_header)) {
        return EINVAL;
    }
    void * base = mmap(NULL, (size_t) st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        const int err = errno;
        tap_map_header(fd);
        return err;
    }
    struct tap_header * h = base;
    const size_t words = (size_t) (h->n_slots + 63) / 64;
    uint64_t * used = tap_layout_ok(h, (uint64_t) st.st_size) ? calloc(words, sizeof(uint64_t)) : NULL;
    if (used == NULL) {
        munmap(base, (size_t) st.st_size);
        return EINVAL;
    }
    for (uint64_t i = h->n_slots; i < words * 64; i++) {
        used[i / 64] |= 1ull << (i % 64); // bits behind the last slot are never free
    }
    tap.base = base;
    tap.used = used;
    tap.used_words = words;
    tap.first_free_word = 0;
    tap.none_of = UINT64_MAX;
    tap.starved = false;
    tap_set(&tap.counting, false);
    tap_set(&tap.told_own_ns, 0);
    tap_set(&tap.told_wait_ns, 0);
    tap.n_used = 0;
    tap_set(&tap.n_ready, h->n_slots);
    tap.reserved = 0;
    tap.window_of = 0;
    tap.queue = tap.base + h->queue_offset;
    tap.queue_bytes = h->queue_bytes;
    tap.queue_tail = 0;
    tap_set(&tap.judged, false);
    tap_select_init();
    tap.header = h;
    return 0;
}

int tap_attach(int fd, int life_fd) {
    if (tap.header != NULL) {
        return EALREADY;
    }
    const int err = tap_map(fd);
    if (err != 0) {
        return err;
    }
    static bool once;
    if (!once) {
        once = true;
        pthread_atfork(NULL, NULL, tap_in_child);
    }
    tap_flag(&tap.header->seen, TAP_SEEN_TAP);
    tap.life_fd = life_fd;
    tap_set(&tap.given, true);
    return 0;
}

// tap_copy_version copies what a library says of its version.
static void tap_copy_version(char * to, const char * version) {
    strncpy(to, version != NULL ? version : "", TAP_VERSION_SIZE - 1);
}

// tap_begin starts the recording of this process, which nobody else records.
static void tap_begin(uint32_t layouts) {
    struct tap_header * h = tap.header;
    h->layouts = tap.layouts = layouts;
    tap_real_missing(h->missing, sizeof(h->missing));
    tap_copy_version(h->llama_version, tap_real.llama_version != NULL ? tap_real.llama_version() : NULL);
    tap_copy_version(h->ggml_version, tap_real.ggml_version != NULL ? tap_real.ggml_version() : NULL);
    tap.joined = true;
    tap_set(&tap.turning, tap_turn_asked());
    tap_poke(&tap.recording, true);
    tap_hello(TAP_REC_HELLO);
    tap_set(&h->attached, 1);
    tap_buffers_announce();
    tap_moves_announce();
    tap_aside_start();
}

// Runs once per process, under the lock of its own that tap_join_now holds.
static void tap_join_locked(void) {
    struct tap_header * h = tap.header;
    tap_real_init();
    tap_flag(&h->seen, TAP_SEEN_LLAMA);
    const uint32_t layouts = tap_layouts();
    if (layouts & TAP_LAYOUT_GGML) {
        tap_copy_version(h->ggml_version, tap_real.ggml_version != NULL ? tap_real.ggml_version() : NULL);
        tap_flag(&h->seen, TAP_SEEN_GGML);
        return;
    }
    int32_t nobody = 0;
    if (tap_claim(&h->pid, &nobody, getpid())) {
        tap_begin(layouts);
    } else if (nobody != getpid()) { // not another copy of the tap in this process
        tap_count(&h->others, 1);
    }
}

void tap_join_now(void) {
    static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&joining);
    if (tap_get(&tap.given) && tap.header != NULL) {
        tap_set(&tap.given, false);
        tap_join_locked();
    }
    pthread_mutex_unlock(&joining);
}

void tap_detach(void) {
    struct tap_header * h = tap.header;
    if (h == NULL) {
        return;
    }
    if (tap_get(&tap.given)) {
        if (tap_real_loaded()) {
            tap_flag(&h->seen, TAP_SEEN_LLAMA);
        }
        return;
    }
    if (!tap.joined || tap_get(&h->attached) != 1) {
        return;
    }
    if (tap_get(&tap.turning) && !tap_get(&h->closed)) {
        tap_set(&tap.turning, false);
        tap_poke(&tap.recording, true);
    }
    tap_resolve_all();
    tap_hello(TAP_REC_GOODBYE);
    tap_set(&h->attached, 2);
    tap_set(&tap.recording, false);
}

void tap_leave_memory(void) {
    tap_detach();
    struct tap_header * h = tap.header;
    if (h == NULL) {
        return;
    }
    tap.header = NULL;
    tap_set(&tap.given, false);
    tap_set(&tap.recording, false);
    tap_set(&tap.turning, false);
    tap.joined = tap.aside = tap.touched = tap.watched = false;
    munmap(tap.base, h->total_bytes);
    free(tap.used);
    tap.base = NULL;
    tap.used = NULL;
    tap.next_token = 0;
}

bool tap_recording(void) { return tap_on() || (tap.header != NULL && tap_get(&tap.given)); }

// tap_is_region says whether fd is the collector's memory: a parent may have closed the descriptors of its child,
// and something else may stand in their place.
static bool tap_is_region(int fd) {
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, has = fcntl(fd, F_GET_SEALS);
    return has >= 0 && (has & seals) == seals;
}

// tap_meet maps the memory whose descriptors the environment names: LLAMATAP_TAP_FD=MEMORY,LIFE.
static void tap_meet(const char * text) {
    char * rest;
    const long fd = strtol(text, &rest, 10);
    const long life = *rest == ',' ? strtol(rest + 1, &rest, 10) : -1;
    if (*rest != 0 || fd < 3 || !tap_is_region((int) fd)) {
        tap.cut_off = true;
        return;
    }
    const int err = tap_attach((int) fd, (int) life);
    if (err == ENOMEM) {
        tap_say("too little address space for the tap: this process is not recorded; raise its limit (ulimit -v), or "
                "lower --tap-memory", "", "");
    } else if (err != 0) {
        tap_say("the tap could not join its collector: ", strerror(err), "; this process is not recorded");
    }
}

void tap_say_cut_off(void) {
    tap.cut_off = false;
    tap_say("the program that started this one closed the descriptors that the recording needs (Python: subprocess "
            "with close_fds=False); "
            "it is not recorded", "", "");
}

// tap_name_process gives a program that was started by a loader of its own, ld.so, its own name, which pgrep, perf and
// others find it by. Its threads take it over.
static void tap_name_process(void) {
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) == 0 && strcmp(name, "ld.so") == 0) {
        prctl(PR_SET_NAME, program_invocation_short_name);
    }
}

// Looks the entry points up before the program's own code runs, and maps the memory where the collector passed it on.
__attribute__((constructor)) static void tap_start(void) {
    tap_real_init();
    const char * fd = getenv("LLAMATAP_TAP_FD");
    if (fd != NULL) {
        tap_name_process();
        tap_meet(fd);
        tap_log_start();
    }
}

__attribute__((destructor)) static void tap_stop(void) { tap_detach(); }
