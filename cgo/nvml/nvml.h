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

// nvml_sample is how a device is. What it does not report is -1.
struct nvml_sample {
    uint64_t until_us;                      // end of utilization_ns on NVML's clock; 0: NVML keeps no samples
    double   gpu_percent, memory_percent;   // busy share
    int64_t  utilization_ns;                // that they are means of; 0: NVML's last sample period
    int64_t  total_bytes, used_bytes;
    int64_t  sm_mhz, memory_mhz;
    int64_t  pcie_tx_kb_per_s, pcie_rx_kb_per_s; // over the last 20 ms, says NVML
    int64_t  power_mw;
    int64_t  energy_mj;                     // since the driver was loaded
};

// nvml_read reads how a device is. s holds the sample before it; zeros: none. What takes time (PCIe), or only changes
// now and then (the last sample period), is only read with seldom. Returns 0, or NVML's error.
int nvml_read(struct nvml_library * l, unsigned device, int seldom, struct nvml_sample * s);

#endif
