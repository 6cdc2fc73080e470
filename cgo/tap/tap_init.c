//go:build llama

// tap_init.c: finding llama.cpp's entry points, joining the shared memory, leaving it.
#define _GNU_SOURCE
#include "tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 // linux/mman.h, since 5.14
#endif

struct tap_real tap_real;
struct tap      tap = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- entry points ---------------------------------------------------------------------------------------------------

// tap_find looks a function up behind this object; a library that the program opened by itself is asked last.
static void * tap_find(const char * name) {
    void * found = dlsym(RTLD_NEXT, name);
    static const char * const libraries[] = {"libllama.so.0", "libggml.so.0", "libggml-base.so.0", "libllama.so", "libggml-base.so"};
    for (size_t i = 0; found == NULL && i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        void * library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) {
            found = dlsym(library, name);
            dlclose(library);
        }
    }
    return found;
}

void tap_real_init(char * missing, size_t missing_size) {
    if (missing != NULL && missing_size > 0) {
        missing[0] = 0;
    }
#define TAP_REAL_FIND(ret, name, params)                                                                                    \
    if (tap_real.name == NULL) {                                                                                            \
        tap_real.name = (ret(*) params) tap_find(#name);                                                                    \
    }                                                                                                                       \
    if (tap_real.name == NULL && missing != NULL && strlen(missing) + sizeof(#name) + 1 < missing_size) {                   \
        strcat(missing, missing[0] == 0 ? "" : " ");                                                                        \
        strcat(missing, #name);                                                                                             \
    }
    TAP_REAL_FUNCTIONS(TAP_REAL_FIND)
#undef TAP_REAL_FIND
}

// ---- joining and leaving --------------------------------------------------------------------------------------------

// tap_inside says whether n things of size bytes lie at offset, behind the header and before the end.
static bool tap_inside(uint64_t offset, uint64_t n, uint64_t size, uint64_t end) {
    return offset >= sizeof(struct tap_header) && offset % 8 == 0 && offset <= end && n <= (end - offset) / size;
}

static bool tap_is_power(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

// tap_layout_ok checks that the header describes memory that is there, so that a wrong file cannot make the program fail later.
// A quarter of the pool holds the largest block of any quantised type: tensors are cut no finer.
static bool tap_layout_ok(const struct tap_header * h, uint64_t bytes) {
    enum { LARGEST_BLOCK = 512 };
    return h->magic == TAP_SHM_MAGIC && h->version == TAP_SHM_VERSION && h->header_bytes == sizeof(*h) && h->total_bytes == bytes &&
           h->queue_bytes >= 65536 && tap_is_power(h->queue_bytes) && tap_inside(h->queue_offset, h->queue_bytes, 1, bytes) &&
           h->ring_entries >= h->n_slots && tap_is_power(h->ring_entries) &&
           tap_inside(h->ring_offset, h->ring_entries, sizeof(uint64_t), bytes) && h->slot_bytes >= 64 && h->slot_bytes % 8 == 0 &&
           h->n_slots >= 4 && h->n_slots < UINT32_MAX && tap_inside(h->slots_offset, h->n_slots, h->slot_bytes, bytes) &&
           h->n_slots * h->slot_bytes / 4 >= LARGEST_BLOCK;
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

// A forked child shares the memory and must not write to it.
static void tap_in_child(void) {
    tap.recording = false;
    tap.header = NULL;
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
        return errno;
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
    tap.n_used = 0;
    tap.n_ready = h->n_slots;
    tap.reserved = 0;
    tap.queue_tail = 0;
    tap.header = h;
    return 0;
}

int tap_attach(int fd) {
    if (tap.header != NULL) {
        return EALREADY;
    }
    const int err = tap_map(fd);
    close(fd);
    if (err != 0) {
        return err;
    }
    tap_real_init(tap.header->missing, sizeof(tap.header->missing));
    pthread_atfork(NULL, NULL, tap_in_child);
    tap.recording = true;
    tap_hello(TAP_REC_HELLO);
    atomic_store_explicit(&tap.header->attached, 1, memory_order_release);
    return 0;
}

void tap_detach(void) {
    struct tap_header * h = tap.header;
    if (h == NULL || atomic_load_explicit(&h->attached, memory_order_acquire) != 1) {
        return;
    }
    tap_resolve_all();
    tap_hello(TAP_REC_GOODBYE);
    atomic_store_explicit(&h->attached, 2, memory_order_release);
    tap.recording = false;
}

// tap_prefault touches the pool's pages ahead of their first use, at the lowest priority: a first touch in a data phase would cost
// the model a page fault each. Kernels before 5.14 refuse, and then that is what happens.
static void * tap_prefault(void * unused) {
    (void) unused;
    enum { STEP = 1 << 20 };
    const struct sched_param none = {.sched_priority = 0};
    setpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid), 19);
    sched_setscheduler((pid_t) syscall(SYS_gettid), SCHED_IDLE, &none);
    uint8_t * pool = tap.base + tap.header->slots_offset;
    const uint64_t slot = tap.header->slot_bytes, all = tap.header->n_slots * slot;
    for (uint64_t done = 0; done < all;) {
        const uint64_t n = all - done < STEP ? all - done : STEP;
        if (madvise(pool + done, n, MADV_POPULATE_WRITE) == 0) {
            done += n;
            tap_pool_ready(done / slot);
        } else if (errno != EINTR && errno != EAGAIN) {
            break;
        }
    }
    tap_pool_ready(all / slot);
    return NULL;
}

// tap_start_prefault lets a thread of its own do it, which takes no signals of the program's. Until it is done, the pool is as large
// as what it has touched.
static void tap_start_prefault(void) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    tap_pool_ready(0);
    if (pthread_create(&thread, NULL, tap_prefault, NULL) == 0) {
        pthread_detach(thread);
    } else {
        tap_pool_ready(tap.header->n_slots);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool tap_recording(void) { return tap_on(); }

// Looks the entry points up before the program's own code runs, and joins where the collector passed a file descriptor on.
__attribute__((constructor)) static void tap_start(void) {
    tap_real_init(NULL, 0);
    const char * fd = getenv("LLAMATAP_TAP_FD");
    if (fd == NULL) {
        return;
    }
    char * end;
    const long n = strtol(fd, &end, 10);
    if (*end != 0 || n < 3 || tap_attach((int) n) != 0) {
        static const char text[] = "llamatap: the tap could not join its collector; nothing is recorded\n";
        ssize_t unused = write(STDERR_FILENO, text, sizeof(text) - 1);
        (void) unused;
    }
    if (tap.header != NULL) {
        tap_start_prefault();
    }
    unsetenv("LLAMATAP_TAP_FD"); // programs that this one starts are not tapped
}

__attribute__((destructor)) static void tap_stop(void) { tap_detach(); }
