//go:build llama

// matrix.c: see vector.h. Each width of vectors has functions of its own, compiled for the processors that have it.
// Hot path: no allocation; a tile of products stays in registers, and a block of rows in the second-level cache.
#include "vector.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define UNROLL _Pragma("GCC unroll 8")
#define ALWAYS static inline __attribute__((always_inline))

// rows of x and of w that are multiplied before others are: together they fit the second-level cache
enum { X_BLOCK = 60, W_BLOCK = 60 };

// vectors of a sum that stay in registers
enum { SUMS = 8 };

// MATRIX_KERNEL defines the functions for vectors of so many bytes. A tile is M rows of x by N rows of w: M * N sums
// and M + 1 operands fit the registers.
#define MATRIX_KERNEL(name, bytes, M, N, attribute) \
    typedef float name##_vector __attribute__((vector_size(bytes))); \
    enum { name##_LANES = bytes / sizeof(float) }; \
    \
    attribute ALWAYS name##_vector name##_load(const float * from) { \
        name##_vector v; \
        memcpy(&v, from, sizeof v); \
        return v; \
    } \
    \
    attribute ALWAYS float name##_total(name##_vector v) { \
        float sum = 0; \
        for (int i = 0; i < name##_LANES; i++) { \
            sum += v[i]; \
        } \
        return sum; \
    } \
    \
    attribute ALWAYS void name##_tile(float * out, const float * x, const float * w, int m, int n, \
        int64_t features, int64_t width) { \
        name##_vector sums[M][N] = {0}; \
        int64_t k = 0; \
        for (; k + name##_LANES <= width; k += name##_LANES) { \
            name##_vector a[M]; \
            UNROLL for (int i = 0; i < m; i++) { \
                a[i] = name##_load(x + i * width + k); \
            } \
            UNROLL for (int j = 0; j < n; j++) { \
                name##_vector b = name##_load(w + j * width + k); \
                UNROLL for (int i = 0; i < m; i++) { \
                    sums[i][j] += a[i] * b; \
                } \
            } \
        } \
        for (int i = 0; i < m; i++) { \
            for (int j = 0; j < n; j++) { \
                float sum = name##_total(sums[i][j]); \
                for (int64_t rest = k; rest < width; rest++) { \
                    sum += x[i * width + rest] * w[j * width + rest]; \
                } \
                out[i * features + j] = sum; \
            } \
        } \
    } \
    \
    attribute static void name##_products(float * out, const float * x, const float * w, int64_t rows, \
        int64_t features, int64_t width) { \
        for (int64_t block = 0; block < rows * features; ) { \
            int64_t r0 = block / features, f0 = block % features; \
            int64_t r1 = r0 + X_BLOCK < rows ? r0 + X_BLOCK : rows; \
            int64_t f1 = f0 + W_BLOCK < features ? f0 + W_BLOCK : features; \
            for (int64_t r = r0; r < r1; ) { \
                int whole = r + M <= r1; \
                for (int64_t f = f0; f < f1; ) { \
                    float * to = out + r * features + f; \
                    if (whole && f + N <= f1) { \
                        name##_tile(to, x + r * width, w + f * width, M, N, features, width); \
                        f += N; \
                    } else { \
                        for (int i = 0; i < (whole ? M : 1); i++) { \
                            name##_tile(to + i * features, x + (r + i) * width, w + f * width, 1, 1, features, \
                                width); \
                        } \
                        f++; \
                    } \
                } \
                r += whole ? M : 1; \
            } \
            block = f1 < features ? r0 * features + f1 : r1 * features; \
        } \
    } \
    \
    attribute static void name##_add_rows(float * out, const float * scales, const int32_t * index, int64_t n, \
        const float * rows, int64_t width) { \
        int64_t k = 0; \
        for (; k + SUMS * name##_LANES <= width; k += SUMS * name##_LANES) { \
            name##_vector sums[SUMS]; \
            UNROLL for (int s = 0; s < SUMS; s++) { \
                sums[s] = name##_load(out + k + s * name##_LANES); \
            } \
            for (int64_t i = 0; i < n; i++) { \
                const float * row = rows + index[i] * width + k; \
                UNROLL for (int s = 0; s < SUMS; s++) { \
                    sums[s] += scales[i] * name##_load(row + s * name##_LANES); \
                } \
            } \
            memcpy(out + k, sums, sizeof sums); \
        } \
        for (int64_t i = 0; i < n && k < width; i++) { \
            for (int64_t rest = k; rest < width; rest++) { \
                out[rest] += scales[i] * rows[index[i] * width + rest]; \
            } \
        } \
    } \
    \
    attribute static void name##_dots(float * out, const int32_t * index, int64_t n, const float * rows, \
        const float * row, int64_t width) { \
        for (int64_t i = 0; i < n; i++) { \
            const float * other = rows + index[i] * width; \
            name##_vector sums[4] = {0}; \
            int64_t k = 0; \
            for (; k + 4 * name##_LANES <= width; k += 4 * name##_LANES) { \
                UNROLL for (int s = 0; s < 4; s++) { \
                    sums[s] += name##_load(row + k + s * name##_LANES) * name##_load(other + k + s * name##_LANES); \
                } \
            } \
            out[i] = name##_total((sums[0] + sums[1]) + (sums[2] + sums[3])); \
            for (; k < width; k++) { \
                out[i] += row[k] * other[k]; \
            } \
        } \
    } \
    \
    attribute static void name##_adam(float * values, const float * gradients, float * moment1, float * moment2, \
        int64_t n, float rate, float correct) { \
        for (int64_t i = 0; i < n; i += name##_LANES) { \
            size_t size = sizeof(float) * (n - i < name##_LANES ? n - i : name##_LANES); \
            name##_vector x = {0}, g = {0}, m = {0}, v = {0}; \
            memcpy(&x, values + i, size); \
            memcpy(&g, gradients + i, size); \
            memcpy(&m, moment1 + i, size); \
            memcpy(&v, moment2 + i, size); \
            m += 0.1f * (g - m); \
            v += 0.001f * (g * g - v); \
            x -= rate * m / (name##_sqrt(v * correct) + 1e-8f); \
            memcpy(values + i, &x, size); \
            memcpy(moment1 + i, &m, size); \
            memcpy(moment2 + i, &v, size); \
        } \
    }

#define matrix_512_sqrt(v) ((matrix_512_vector) _mm512_sqrt_ps((__m512) (v)))
#define matrix_256_sqrt(v) ((matrix_256_vector) _mm256_sqrt_ps((__m256) (v)))

#define matrix_128_sqrt(v) ({ \
        matrix_128_vector roots = v; \
        for (int k = 0; k < matrix_128_LANES; k++) { \
            roots[k] = sqrtf(roots[k]); \
        } \
        roots; \
    })

MATRIX_KERNEL(matrix_128, 16, 3, 4, )

#if defined(__x86_64__)
MATRIX_KERNEL(matrix_512, 64, 5, 5, __attribute__((target("avx512f"))))
MATRIX_KERNEL(matrix_256, 32, 3, 4, __attribute__((target("avx2,fma"))))

int vector_bits(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? 512 : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
        ? 256 : 128;
}

#define CHOOSE(bits, operation) \
    ((bits) == 512 ? matrix_512_##operation : (bits) == 256 ? matrix_256_##operation : matrix_128_##operation)
#else
int vector_bits(void) { return 128; }

#define CHOOSE(bits, operation) ((void) (bits), matrix_128_##operation)
#endif

void matrix_products(int bits, float * out, const float * x, const float * w, int64_t rows, int64_t features,
    int64_t width) {
    CHOOSE(bits, products)(out, x, w, rows, features, width);
}

void matrix_add_rows(int bits, float * out, const float * scales, const int32_t * index, int64_t n,
    const float * rows, int64_t width) {
    CHOOSE(bits, add_rows)(out, scales, index, n, rows, width);
}

void matrix_dots(int bits, float * out, const int32_t * index, int64_t n, const float * rows, const float * row,
    int64_t width) {
    CHOOSE(bits, dots)(out, index, n, rows, row, width);
}

void matrix_adam(int bits, float * values, const float * gradients, float * moment1, float * moment2, int64_t n,
    float rate, float correct) {
    CHOOSE(bits, adam)(values, gradients, moment1, moment2, n, rate, correct);
}
