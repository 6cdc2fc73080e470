// nvml.c: an NVIDIA management library with one GPU that is always as busy. It uses 2 J from each look at its
// counter to the next.
#include <string.h>

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
    u->gpu = 87;
    u->memory = 41;
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
    return 0;
}

int nvmlDeviceGetPowerUsage(void * device, unsigned * milliwatts) {
    (void) device;
    *milliwatts = 250500;
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void * device, unsigned long long * millijoules) {
    static unsigned long long used = 8000;
    (void) device;
    *millijoules = used += 2000;
    return 0;
}
