// vector.h: products and sums of rows of float32 with vectors of 512, 256 or 128 bits, and how fast these are.
#ifndef LLAMATAP_VECTOR_H
#define LLAMATAP_VECTOR_H

#include <stdint.h>

// vector_bits is the width of the widest vectors with a fused multiply-add here.
int vector_bits(void);

// matrix_products sets out[r * features + f] to the product of row r of x and row f of w; rows have width values.
void matrix_products(int bits, float * out, const float * x, const float * w, int64_t rows, int64_t features,
    int64_t width);

// matrix_add_rows adds scales[i] times row index[i] of rows to out, for n indexes in their order.
void matrix_add_rows(int bits, float * out, const float * scales, const int32_t * index, int64_t n,
    const float * rows, int64_t width);

// matrix_dots sets out[i] to the product of row and row index[i] of rows, for n indexes.
void matrix_dots(int bits, float * out, const int32_t * index, int64_t n, const float * rows, const float * row,
    int64_t width);

// matrix_adam is a step of Adam with the constants 0.9, 0.999 and 1e-8 on n values: gradients changes the moments, and
// they the values.
void matrix_adam(int bits, float * values, const float * gradients, float * moment1, float * moment2, int64_t n,
    float rate, float correct);

// peak_run does rounds of multiply-adds on vectors of so many bits, as many at a time as a processor can, and returns
// how many floating-point operations they were. The sum of the results goes to *sum, so that no compiler leaves them
// out.
uint64_t peak_run(int bits, uint64_t rounds, float * sum);

#endif
