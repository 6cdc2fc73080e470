//go:build llama

// tap_pin.c: the slot pool in memory that a GPU's driver has pinned.
//
// A device copies to pinned memory by itself, while its driver returns at once. To other memory the driver copies in
// parts, through a buffer of its own, and waits for each. NVIDIA's driver pins what is there already; its library is
// the one that the process has loaded, and is never linked. Without it the pool stays as it is.
#include "tap_pool.h"

#include <dlfcn.h>
#include <pthread.h>

// The part of the driver's interface that is used. 0 is success.
typedef int (*tap_get_context)(void ** context);
typedef int (*tap_register)(void * memory, size_t bytes, unsigned flags);
enum { TAP_PIN_FOR_ALL_CONTEXTS = 1 }; // CU_MEMHOSTREGISTER_PORTABLE

static tap_get_context tap_pin_context;
static tap_register tap_pin_memory;

static void tap_pin_find(void) {
    void * driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (driver != NULL) {
        tap_pin_context = (tap_get_context) dlsym(driver, "cuCtxGetCurrent");
        tap_pin_memory = (tap_register) dlsym(driver, "cuMemHostRegister_v2");
    }
}

void tap_pool_pin(void) {
    static pthread_once_t found = PTHREAD_ONCE_INIT;
    static _Atomic bool tried; // what a driver refuses once it refuses again
    if (tap_peek(&tried)) {
        return;
    }
    pthread_once(&found, tap_pin_find);
    void * context = NULL;
    if (tap_pin_context == NULL || tap_pin_memory == NULL || tap_pin_context(&context) != 0 || context == NULL ||
        tap_swap(&tried, true)) {
        return; // a device of another maker, or one that this thread has not used yet
    }
    const size_t bytes = tap.header->n_slots * tap.header->slot_bytes;
    const int status = tap_pin_memory(tap_slot(0), bytes, TAP_PIN_FOR_ALL_CONTEXTS);
    tap_add(&tap.header->stats.pinned_bytes, status == 0 ? bytes : 0);
    tap_add(&tap.header->stats.pin_error, (uint64_t) status);
}
