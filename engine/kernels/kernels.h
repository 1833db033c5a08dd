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

/* NUMBER_Q8_ROWS is a type of pages: rows of q8_block. The types from NUMBER_Q8_0 on are those of quantized weights: their
 * matrices are packed. */
typedef enum number_type {
    NUMBER_F32 = 0,
    NUMBER_F16,
    NUMBER_BF16,
    NUMBER_Q8_ROWS,
    NUMBER_Q8_0,
    NUMBER_Q4_0,
    NUMBER_Q4_K,
    NUMBER_Q6_K
} number_type;

/* Of the types before NUMBER_Q8_ROWS. */
static inline size_t number_bytes(number_type type)
{
    return type == NUMBER_F32 ? 4 : 2;
}

/* Q8_BLOCK numbers of a row: quant times scale. */
enum { Q8_BLOCK = 32 };
typedef struct q8_block {
    float scale;
    int8_t quant[Q8_BLOCK];
} q8_block;

struct packed; /* packed.h: a quantized matrix as the kernels read it */

typedef struct matrix {
    const void *data;
    number_type type;
    size_t rows, cols;
    size_t stride;               /* bytes from one row to the next */
    size_t first;                /* NUMBER_Q8_ROWS: the number of a row that is column 0, others begin with it */
    const struct packed *packed; /* quantized types: instead of data and stride */
} matrix;

/* One product of a matrix, or of a part of it, with `count` vectors: vector m is in[m * in_stride ...], its result
 * out[m * out_stride ...]. Indices of vectors are those of the whole matrix, whatever the part. */
typedef struct product {
    const matrix *w;
    const float *in;
    float *out;
    size_t in_stride, out_stride, count;
    size_t first_row, last_row, first_col, last_col; /* the part: rows [first_row, last_row) of columns [first_col, last_col) */
    bool add;                                        /* to `out`, which otherwise is stored */
} product;

/* How far apart vectors of n numbers best lie in memory: whole registers, and not a multiple of 2048 bytes, which would bring
 * 16 of them into the same few places of a core's first cache level: products with them then take twice as long. */
static inline size_t vector_stride(size_t n)
{
    size_t whole = (n + 15) / 16 * 16;
    return whole % 512 == 0 ? whole + 16 : whole;
}

/* The whole of a matrix. */
static inline product product_whole(const matrix *w, const float *in, size_t in_stride, size_t count, float *out,
                                    size_t out_stride)
{
    return (product){.w = w,
                     .in = in,
                     .out = out,
                     .in_stride = in_stride,
                     .out_stride = out_stride,
                     .count = count,
                     .last_row = w->rows,
                     .last_col = w->cols};
}

/* Where a matrix may be cut without changing a bit: outputs anywhere on multiples of PRODUCT_CUT; what is summed over in parts
 * of multiples of PRODUCT_GROUP, in order, the later ones added: rows of project_back, and of packed matrices columns of
 * project as well. */
enum { PRODUCT_CUT = 32, PRODUCT_GROUP = 256 };

typedef struct kernels {
    const char *name;

    /* out[r] = sum over the part's columns c of W[r][c] in[c], for the part's rows r. */
    void (*project)(const product *p);

    /* out[c] = sum over the part's rows r of W[r][c] in[r], for the part's columns c. */
    void (*project_back)(const product *p);

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
    void (*to_bf16)(const float *x, size_t n, uint16_t *b); /* the same */
    /* n finite numbers as blocks, the last one filled up with zeros: the largest of a block becomes 127 or -127 (its scale is
     * 0 where that is not a number f32 can tell from 0), each number the nearest multiple of the scale, ties to even. */
    void (*to_q8)(const float *x, size_t n, q8_block *blocks);
} kernels;

/* The table this machine runs on, chosen at the first call: the highest tier the CPU has, or what DESCENT_ISA names if the
 * CPU has it. Safe from any thread. */
const kernels *kernels_get(void);

/* All *n tables this machine could run on, from the portable one up. Safe from any thread. */
const kernels *const *kernels_tiers(size_t *n);

#endif
