//go:build llama

// nvml.c: see nvml.h. Names and structures are those of NVML's documented interface, version 2 of each function
// that has one.
#define _GNU_SOURCE
#include "nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct utilization { // nvmlUtilization_t
    unsigned gpu, memory;
};

struct memory { // nvmlMemory_t
    unsigned long long total, free, used;
};

struct nvml_library {
    void * handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*device)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*utilization)(void *, struct utilization *);
    int (*memory)(void *, struct memory *);
    int (*power)(void *, unsigned *);             // NULL: the library has none
    int (*energy)(void *, unsigned long long *);  // the same
};

static void * nvml_symbol(struct nvml_library * l, const char * name, const char ** missing) {
    void * found = dlsym(l->handle, name);
    if (found == NULL && *missing == NULL) {
        *missing = name;
    }
    return found;
}

struct nvml_library * nvml_open(const char * name, char * error, int error_bytes) {
    struct nvml_library * l = calloc(1, sizeof(*l));
    if (l == NULL) {
        snprintf(error, (size_t) error_bytes, "no memory");
        return NULL;
    }
    l->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (l->handle == NULL) {
        snprintf(error, (size_t) error_bytes, "%s", dlerror());
        free(l);
        return NULL;
    }
    const char * missing = NULL;
    *(void **) &l->init = nvml_symbol(l, "nvmlInit_v2", &missing);
    *(void **) &l->shutdown = nvml_symbol(l, "nvmlShutdown", &missing);
    *(void **) &l->count = nvml_symbol(l, "nvmlDeviceGetCount_v2", &missing);
    *(void **) &l->device = nvml_symbol(l, "nvmlDeviceGetHandleByIndex_v2", &missing);
    *(void **) &l->name = nvml_symbol(l, "nvmlDeviceGetName", &missing);
    *(void **) &l->utilization = nvml_symbol(l, "nvmlDeviceGetUtilizationRates", &missing);
    *(void **) &l->memory = nvml_symbol(l, "nvmlDeviceGetMemoryInfo", &missing);
    *(void **) &l->power = dlsym(l->handle, "nvmlDeviceGetPowerUsage");
    *(void **) &l->energy = dlsym(l->handle, "nvmlDeviceGetTotalEnergyConsumption");
    const int status = missing == NULL ? l->init() : 0;
    if (missing != NULL || status != 0) {
        if (missing != NULL) {
            snprintf(error, (size_t) error_bytes, "it has no %s", missing);
        } else {
            snprintf(error, (size_t) error_bytes, "nvmlInit_v2: error %d", status);
        }
        dlclose(l->handle);
        free(l);
        return NULL;
    }
    return l;
}

void nvml_close(struct nvml_library * l) {
    l->shutdown();
    dlclose(l->handle);
    free(l);
}

int nvml_count(struct nvml_library * l) {
    unsigned n = 0;
    return l->count(&n) == 0 ? (int) n : -1;
}

int nvml_name(struct nvml_library * l, unsigned device, char * name, unsigned bytes) {
    void * handle;
    const int status = l->device(device, &handle);
    return status != 0 ? status : l->name(handle, name, bytes);
}

int nvml_read(struct nvml_library * l, unsigned device, struct nvml_sample * s) {
    void * handle;
    struct utilization busy = {0};
    struct memory memory = {0};
    int status = l->device(device, &handle);
    if (status == 0) {
        status = l->utilization(handle, &busy);
    }
    if (status == 0) {
        status = l->memory(handle, &memory);
    }
    *s = (struct nvml_sample) {.gpu_percent = busy.gpu, .memory_percent = busy.memory, .total_bytes = memory.total,
        .used_bytes = memory.used};
    if (status != 0) {
        return status;
    }
    unsigned power = 0;
    unsigned long long energy = 0;
    s->has_power = l->power != NULL && l->power(handle, &power) == 0;
    s->has_energy = l->energy != NULL && l->energy(handle, &energy) == 0;
    s->power_mw = power;
    s->energy_mj = energy;
    return 0;
}
