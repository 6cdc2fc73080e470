// nvml.h: the few functions of NVIDIA's management library that are used, found at run time.
#ifndef LLAMATAP_NVML_H
#define LLAMATAP_NVML_H

#include <stdint.h>

struct nvml_library;

// nvml_open opens the library by name and begins with it. On failure it returns NULL, and error holds why.
struct nvml_library * nvml_open(const char * name, char * error, int error_bytes);
void                  nvml_close(struct nvml_library * l);

// nvml_count returns how many devices there are, or -1.
int nvml_count(struct nvml_library * l);

// nvml_name writes a device's name. Returns 0, or NVML's error.
int nvml_name(struct nvml_library * l, unsigned device, char * name, unsigned bytes);

struct nvml_sample {
    uint32_t gpu_percent, memory_percent; // busy share of the last sample period
    uint64_t total_bytes, used_bytes;
    uint32_t power_mw, has_power;   // drawn now
    uint64_t energy_mj, has_energy; // since the driver was loaded
};

// nvml_read reads how a device is. Returns 0, or NVML's error.
int nvml_read(struct nvml_library * l, unsigned device, struct nvml_sample * s);

#endif
