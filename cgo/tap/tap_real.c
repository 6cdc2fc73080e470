//go:build llama

// tap_real.c: finding llama.cpp's entry points.
#define _GNU_SOURCE
#include "tap_real.h"
#include "tap_state.h"

#include <pthread.h>
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tap_real tap_real;
_Static_assert(sizeof(tap_real) <= 2048, "it has grown out of a page");

// Libraries of llama.cpp in this process, by the paths that the loader knows them under.
struct tap_libraries {
    int  n;
    char paths[12][TAP_PATH_SIZE];
};

static int tap_library_note(struct dl_phdr_info * info, size_t size, void * data) {
    (void) size;
    struct tap_libraries * l = data;
    const char * path = info->dlpi_name != NULL ? info->dlpi_name : "";
    const char * name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    const bool ours = strncmp(name, "libllamatap", 11) == 0;
    if (!ours && (strncmp(name, "libllama", 8) == 0 || strncmp(name, "libggml", 7) == 0) &&
        strlen(path) < TAP_PATH_SIZE &&
        l->n < (int) (sizeof(l->paths) / sizeof(l->paths[0]))) {
        strcpy(l->paths[l->n++], path);
    }
    return 0;
}

// tap_library_find looks a function up in the libraries that the program opened by itself, for nobody else to see.
static void * tap_library_find(const struct tap_libraries * l, const char * name) {
    void * found = NULL;
    for (int i = 0; i < l->n && found == NULL; i++) {
        void * library = dlopen(l->paths[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library != NULL) {
            found = tap_dlsym(library, name);
            dlclose(library);
        }
    }
    return found;
}

static pthread_mutex_t      tap_real_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tap_libraries tap_libraries; // guarded by tap_real_lock

void tap_real_init(void) {
    pthread_mutex_lock(&tap_real_lock);
    tap_libraries.n = 0;
    dl_iterate_phdr(tap_library_note, &tap_libraries);
#define TAP_REAL_FIND(ret, name, params) \
    if (tap_real.name == NULL) { \
        void * found = tap_dlsym(RTLD_NEXT, #name); \
        tap_real.name = (ret(*) params) (found != NULL ? found : tap_library_find(&tap_libraries, #name)); \
    }
    TAP_REAL_FUNCTIONS(TAP_REAL_FIND)
#undef TAP_REAL_FIND
    pthread_mutex_unlock(&tap_real_lock);
}

void * tap_real_find(const char * name) {
    void * found = tap_dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        pthread_mutex_lock(&tap_real_lock);
        tap_libraries.n = 0;
        dl_iterate_phdr(tap_library_note, &tap_libraries);
        found = tap_library_find(&tap_libraries, name);
        pthread_mutex_unlock(&tap_real_lock);
    }
    return found;
}

void * tap_behind(_Atomic(void *) * known, const char * name) {
    void * real = tap_peek(known);
    if (real == NULL) {
        real = tap_real_find(name);
        tap_poke(known, real);
    }
    return real;
}

void tap_real_missing(char * missing, size_t missing_size) {
    missing[0] = 0;
#define TAP_REAL_MISSING(ret, name, params) \
    if (tap_real.name == NULL && strlen(missing) + sizeof(#name) + 1 < missing_size) { \
        strcat(missing, missing[0] == 0 ? "" : " "); \
        strcat(missing, #name); \
    }
    TAP_REAL_FUNCTIONS(TAP_REAL_MISSING)
#undef TAP_REAL_MISSING
}

void tap_real_need(void * const volatile * function, const char * name) {
    tap_real_init();
    if (*function == NULL) {
        tap_say("the program calls ", name, ", which no library in it defines; it cannot go on under the tap");
        abort();
    }
}

bool tap_real_loaded(void) {
    pthread_mutex_lock(&tap_real_lock);
    tap_libraries.n = 0;
    dl_iterate_phdr(tap_library_note, &tap_libraries);
    const bool loaded = tap_libraries.n > 0 || tap_dlsym(RTLD_NEXT, "llama_backend_init") != NULL;
    pthread_mutex_unlock(&tap_real_lock);
    return loaded;
}
