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

union value { // nvmlValue_t
    double d;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
};

struct past_sample { // nvmlSample_t
    unsigned long long time_us;
    union value value;
};

// Of nvmlReturn_t, nvmlSamplingType_t, nvmlValueType_t, nvmlClockType_t and nvmlPcieUtilCounter_t.
enum { NVML_NOT_FOUND = 6 };
enum { GPU_SAMPLES = 1, MEMORY_SAMPLES = 2 };
enum { VALUE_DOUBLE = 0, VALUE_UINT = 1, VALUE_ULONG = 2 };
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2 };
enum { PCIE_TX = 0, PCIE_RX = 1 };

struct nvml_library {
    void * handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*device)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    // NULL: the library has none
    int (*utilization)(void *, struct utilization *);
    int (*samples)(void *, unsigned, unsigned long long, unsigned *, unsigned *, struct past_sample *);
    int (*memory)(void *, struct memory *);
    int (*clock)(void *, unsigned, unsigned *);
    int (*pcie)(void *, unsigned, unsigned *);
    int (*power)(void *, unsigned *);
    int (*energy)(void *, unsigned long long *);
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
    *(void **) &l->utilization = dlsym(l->handle, "nvmlDeviceGetUtilizationRates");
    *(void **) &l->samples = dlsym(l->handle, "nvmlDeviceGetSamples");
    *(void **) &l->memory = dlsym(l->handle, "nvmlDeviceGetMemoryInfo");
    *(void **) &l->clock = dlsym(l->handle, "nvmlDeviceGetClockInfo");
    *(void **) &l->pcie = dlsym(l->handle, "nvmlDeviceGetPcieThroughput");
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

// nvml_mean sets the mean of a device's samples of a kind that are newer than a time, up to *until_us (0: all), and
// *until_us to the newest of them. Returns 0, or NVML's error.
static int nvml_mean(struct nvml_library * l, void * handle, unsigned kind, uint64_t since_us, uint64_t * until_us,
    double * mean) {
    struct past_sample past[1024]; // NVML keeps about 100
    unsigned type = VALUE_UINT, n = sizeof(past) / sizeof(past[0]), of = 0;
    if (l->samples == NULL) {
        return NVML_NOT_FOUND;
    }
    const int status = l->samples(handle, kind, since_us, &type, &n, past);
    if (status != 0) {
        return status;
    }
    const uint64_t most = *until_us;
    double sum = 0;
    for (unsigned i = 0; i < n; i++) {
        const union value v = past[i].value;
        if (past[i].time_us <= since_us || (most != 0 && past[i].time_us > most)) {
            continue;
        }
        sum += type == VALUE_DOUBLE ? v.d : type == VALUE_UINT ? v.ui : type == VALUE_ULONG ? v.ul : v.ull;
        of++;
        if (past[i].time_us > *until_us) {
            *until_us = past[i].time_us;
        }
    }
    if (of == 0) {
        return NVML_NOT_FOUND;
    }
    *mean = sum / of;
    return 0;
}

// nvml_busy sets how busy the device was since the sample before, where NVML keeps samples; else in NVML's last period.
static void nvml_busy(struct nvml_library * l, void * handle, int seldom, struct nvml_sample * s) {
    const uint64_t since = s->until_us;
    uint64_t until = 0;
    double gpu, memory;
    struct utilization busy;
    s->gpu_percent = s->memory_percent = -1;
    s->utilization_ns = 0;
    if (nvml_mean(l, handle, GPU_SAMPLES, since, &until, &gpu) == 0) {
        if (since != 0) { // older ones are of before the recording
            s->gpu_percent = gpu;
            s->memory_percent = nvml_mean(l, handle, MEMORY_SAMPLES, since, &until, &memory) == 0 ? memory : -1;
            s->utilization_ns = (int64_t) (until - since) * 1000;
        }
        s->until_us = until;
    } else if (since == 0 && seldom && l->utilization != NULL && l->utilization(handle, &busy) == 0) {
        s->gpu_percent = busy.gpu;
        s->memory_percent = busy.memory;
    }
}

// nvml_figure is one that a call of two arguments after the device reports, or -1.
static int64_t nvml_figure(int (*call)(void *, unsigned, unsigned *), void * handle, unsigned which) {
    unsigned value;
    return call != NULL && call(handle, which, &value) == 0 ? (int64_t) value : -1;
}

int nvml_read(struct nvml_library * l, unsigned device, int seldom, struct nvml_sample * s) {
    void * handle;
    const int status = l->device(device, &handle);
    if (status != 0) {
        return status;
    }
    nvml_busy(l, handle, seldom, s);
    struct memory memory;
    const int has_memory = l->memory != NULL && l->memory(handle, &memory) == 0;
    s->total_bytes = has_memory ? (int64_t) memory.total : -1;
    s->used_bytes = has_memory ? (int64_t) memory.used : -1;
    s->sm_mhz = nvml_figure(l->clock, handle, CLOCK_SM);
    s->memory_mhz = nvml_figure(l->clock, handle, CLOCK_MEMORY);
    s->pcie_tx_kb_per_s = seldom ? nvml_figure(l->pcie, handle, PCIE_TX) : -1;
    s->pcie_rx_kb_per_s = seldom ? nvml_figure(l->pcie, handle, PCIE_RX) : -1;
    unsigned power;
    unsigned long long energy;
    s->power_mw = l->power != NULL && l->power(handle, &power) == 0 ? (int64_t) power : -1;
    s->energy_mj = l->energy != NULL && l->energy(handle, &energy) == 0 ? (int64_t) energy : -1;
    return 0;
}
