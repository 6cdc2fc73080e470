// kernel.h: fused multiply-adds, as many at a time as a processor can.
#ifndef LLAMATAP_PEAK_KERNEL_H
#define LLAMATAP_PEAK_KERNEL_H

#include <stdint.h>

// peak_bits is the width of the widest vectors with a fused multiply-add here.
int peak_bits(void);

// peak_run does rounds of multiply-adds on vectors of so many bits and returns how many floating-point operations
// they were. The sum of the results goes to *sum, so that no compiler leaves them out.
uint64_t peak_run(int bits, uint64_t rounds, float * sum);

#endif
