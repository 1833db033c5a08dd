/* kernels.h: the arithmetic everything else is built from, in one table per instruction set.
 *
 * A matrix W has `rows` rows of `cols` numbers, stored row by row, and is multiplied both ways from the same bytes:
 * project is W x (one dot product a row), project_back is W^T u (rows added up). A page of the state cache is a matrix too:
 * its slots are the rows, so attention scores are a project and the attention output a project_back.
 *
 * Every output number is computed in an order that depends on the matrix's shape and the instruction set alone, never on
 * how many vectors are multiplied at once or which part of the output is asked for. That is where "what a row computes does
 * not depend on its batch" comes from; nothing above this file has to care.
 */
#ifndef DESCENT_KERNELS_H
#define DESCENT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum number_type { NUMBER_F32 = 0, NUMBER_F16, NUMBER_BF16 } number_type;

static inline size_t number_bytes(number_type type)
{
    return type == NUMBER_F32 ? 4 : 2;
}

typedef struct matrix {
    const void *data;
    number_type type;
    size_t rows, cols;
    size_t stride; /* bytes from one row to the next */
} matrix;

typedef struct kernels {
    const char *name;

    /* y[m * y_stride + r] = sum_c W[r][c] x[m * x_stride + c] for r in [first, last), m in [0, count); added to y where
     * `add`. */
    void (*project)(const matrix *w, const float *x, size_t x_stride, size_t count, float *y, size_t y_stride, size_t first,
                    size_t last, bool add);

    /* y[m * y_stride + c] = sum_r W[r][c] u[m * u_stride + r] for c in [first, last); added to y where `add`. `first` is
     * a multiple of 16, and `last` too unless it is W's width. */
    void (*project_back)(const matrix *w, const float *u, size_t u_stride, size_t count, float *y, size_t y_stride,
                         size_t first, size_t last, bool add);

    /* LayerNorm where bias is not NULL, else RMSNorm; both with weight and eps. g may be x. */
    void (*layer_norm)(const float *x, size_t n, const float *weight, const float *bias, float eps, float *g);
    void (*rms_norm)(const float *x, size_t n, const float *weight, float eps, float *g);

    /* value = gelu(z), slope = gelu'(z), the exact form; either output may be z. */
    void (*gelu)(const float *z, size_t n, float *value, float *slope);
    void (*silu)(const float *z, size_t n, float *value);

    /* a becomes softmax(a), n numbers; returns log sum exp(a), 0 where n is 0. */
    float (*softmax)(float *a, size_t n);

    void (*to_f16)(const float *x, size_t n, uint16_t *h); /* to nearest, ties to even */
    void (*from_f16)(const uint16_t *h, size_t n, float *x);
} kernels;

/* The table this machine runs on, chosen at the first call: the highest tier the CPU has, or what DESCENT_ISA names if the
 * CPU has it. Safe from any thread. */
const kernels *kernels_get(void);

#endif
