//go:build llama

// tap_dlsym.c: programs that open llama.cpp by themselves, as Python's ctypes does, and ask for its functions by
// name. Those names lead past the tap; so the tap stands before dlsym too, in the preloadable object alone.
#define _GNU_SOURCE
#include "tap_real.h"
#include "tap_state.h"

#include <dlfcn.h>
#include <string.h>

#ifdef LLAMATAP_PRELOADED

typedef void * (*tap_dlsym_t)(void *, const char *);

// tap_dlsym_real finds the C library's dlsym, under the names that its versions gave it.
static tap_dlsym_t tap_dlsym_real(void) {
    static _Atomic(tap_dlsym_t) known;
    static const char * const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    tap_dlsym_t real = tap_peek(&known);
    for (size_t i = 0; real == NULL && i < sizeof(versions) / sizeof(versions[0]); i++) {
        real = (tap_dlsym_t) dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    tap_poke(&known, real);
    return real;
}

void * tap_dlsym(void * handle, const char * name) { return tap_dlsym_real()(handle, name); }

// tap_dlsym_own is the tap's function of that name, NULL where it has none.
static void * tap_dlsym_own(const char * name) {
    static _Atomic(void *) self;
    void * handle = tap_peek(&self);
    Dl_info info;
    if (handle == NULL && dladdr((void *) tap_dlsym_own, &info) != 0) {
        handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        tap_poke(&self, handle);
    }
    return handle != NULL ? tap_dlsym(handle, name) : NULL;
}

// For whom RTLD_NEXT is asked the C library sees from where it is called: it has to be entered by a jump, as the
// compiler makes of a call that ends a function.
__attribute__((optimize("O2"))) void * dlsym(void * handle, const char * name) {
    const bool theirs = handle == RTLD_NEXT || handle == RTLD_DEFAULT ||
        (strncmp(name, "llama_", 6) != 0 && strncmp(name, "ggml_", 5) != 0);
    if (theirs || tap.header == NULL) {
        return tap_dlsym_real()(handle, name);
    }
    void * found = tap_dlsym(handle, name);
    void * own = found != NULL ? tap_dlsym_own(name) : NULL;
    return own != NULL ? own : found;
}

#else

void * tap_dlsym(void * handle, const char * name) { return dlsym(handle, name); }

#endif
