// nvml.c: an NVIDIA management library with one GPU that is always as busy and draws 250.5 W.
//
// FAKE_NVML_LACKS names functions that the GPU does not support, by their names without nvmlDeviceGet.
// FAKE_NVML_ENERGY holds what the energy counter says at each look, in mJ, one after another, then always the last.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int lacks(const char * name) {
    const char * all = getenv("FAKE_NVML_LACKS");
    return all != NULL && strstr(all, name) != NULL;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned * n) {
    *n = 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void ** device) {
    static int gpu;
    *device = &gpu;
    return index == 0 ? 0 : 2; // NVML_ERROR_INVALID_ARGUMENT
}

int nvmlDeviceGetName(void * device, char * name, unsigned bytes) {
    (void) device;
    if (bytes < 9) {
        return 7; // NVML_ERROR_INSUFFICIENT_SIZE
    }
    memcpy(name, "Fake GPU", 9);
    return 0;
}

struct utilization {
    unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(void * device, struct utilization * u) {
    (void) device;
    u->gpu = 80;
    u->memory = 40;
    return lacks("UtilizationRates") ? NOT_SUPPORTED : 0;
}

struct sample {
    unsigned long long time_us;
    union {
        unsigned ui;
        unsigned long long ull;
    } value;
};

// Three samples of the GPU in 60 ms since the last that was seen, 87 % in the mean; of its memory 41 %, and one of
// 99 % that is newer than the GPU's.
int nvmlDeviceGetSamples(void * device, unsigned kind, unsigned long long seen, unsigned * type, unsigned * n,
    struct sample * s) {
    static const unsigned gpu[] = {77, 87, 97}, memory[] = {31, 41, 51, 99};
    const unsigned have = kind == 1 ? 3 : 4;
    (void) device;
    if (lacks("Samples")) {
        return NOT_SUPPORTED;
    }
    if (*n < have) {
        return 7; // NVML_ERROR_INSUFFICIENT_SIZE
    }
    *n = have;
    *type = 1; // NVML_VALUE_TYPE_UNSIGNED_INT
    for (unsigned i = 0; i < have; i++) {
        memset(&s[i].value, 0xff, sizeof(s[i].value));
        s[i].time_us = (seen == 0 ? 1000000 : seen) + 20000 * (i + 1);
        s[i].value.ui = kind == 1 ? gpu[i] : memory[i];
    }
    return 0;
}

struct memory {
    unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(void * device, struct memory * m) {
    (void) device;
    m->total = 1ull << 36;
    m->used = 3ull << 30;
    m->free = m->total - m->used;
    return lacks("MemoryInfo") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetClockInfo(void * device, unsigned which, unsigned * mhz) {
    (void) device;
    *mhz = which == 1 ? 1755 : which == 2 ? 2619 : 1;
    return lacks("ClockInfo") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetPcieThroughput(void * device, unsigned which, unsigned * kb_per_s) {
    (void) device;
    *kb_per_s = which == 0 ? 1200 : 34000;
    return lacks("PcieThroughput") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetPowerUsage(void * device, unsigned * milliwatts) {
    (void) device;
    *milliwatts = 250500;
    return lacks("PowerUsage") ? NOT_SUPPORTED : 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void * device, unsigned long long * millijoules) {
    static unsigned looks;
    char * script = getenv("FAKE_NVML_ENERGY");
    struct timespec now;
    (void) device;
    if (script != NULL) {
        for (unsigned i = 0; i <= looks && *script != 0; i++) {
            *millijoules = strtoull(script, &script, 10);
        }
        looks++;
    } else {
        clock_gettime(CLOCK_MONOTONIC, &now);
        *millijoules = (now.tv_sec * 1000000ull + now.tv_nsec / 1000) * 2505 / 10000;
    }
    return lacks("TotalEnergyConsumption") ? NOT_SUPPORTED : 0;
}
