//go:build llama

// peak.c: see vector.h. Each width has a function of its own, compiled for the processors that have it.
#include "vector.h"

// The sums converge to 1, 2, 3 …: with a smallest one of 0 they would become subnormal numbers, which Intel's
// processors take two hundred times as long for.

// multiply-adds that do not wait for each other: more than latency times throughput of known processors
enum { LANES = 10 };

#define PEAK_KERNEL(name, bytes, attribute) \
    typedef float name##_vector __attribute__((vector_size(bytes))); \
    attribute static uint64_t name(uint64_t rounds, float * sum) { \
        name##_vector x[LANES], a, b; \
        for (unsigned i = 0; i < bytes / sizeof(float); i++) { \
            a[i] = 0.999f; \
            b[i] = 0.001f * (float) (i + 1); \
        } \
        for (int k = 0; k < LANES; k++) { \
            x[k] = b + (float) k; \
        } \
        for (uint64_t r = 0; r < rounds; r++) { \
            x[0] = x[0] * a + b; \
            x[1] = x[1] * a + b; \
            x[2] = x[2] * a + b; \
            x[3] = x[3] * a + b; \
            x[4] = x[4] * a + b; \
            x[5] = x[5] * a + b; \
            x[6] = x[6] * a + b; \
            x[7] = x[7] * a + b; \
            x[8] = x[8] * a + b; \
            x[9] = x[9] * a + b; \
        } \
        for (int k = 0; k < LANES; k++) { \
            *sum += x[k][0] + x[k][1]; \
        } \
        return rounds * LANES * 2 * (bytes / sizeof(float)); \
    }

#if defined(__x86_64__)
PEAK_KERNEL(peak_512, 64, __attribute__((target("avx512f"))))
PEAK_KERNEL(peak_256, 32, __attribute__((target("avx2,fma"))))
#endif
PEAK_KERNEL(peak_128, 16, )

uint64_t peak_run(int bits, uint64_t rounds, float * sum) {
#if defined(__x86_64__)
    if (bits == 512) {
        return peak_512(rounds, sum);
    }
    if (bits == 256) {
        return peak_256(rounds, sum);
    }
#endif
    return bits == 128 ? peak_128(rounds, sum) : 0;
}
