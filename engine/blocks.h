/* blocks.h: numbers in GGUF's standard types, written from floats and read back.
 *
 * A row is a whole number of the type's blocks. What is lost is measured as squared error, each number's multiplied by a
 * weight: that of its row times that of its column. Scales are searched for the least loss. The result depends on the numbers
 * and weights alone, not on the machine. All of it is plain arithmetic without memory of its own: any thread.
 */
#ifndef DESCENT_BLOCKS_H
#define DESCENT_BLOCKS_H

#include "gguf.h"

enum { BLOCK_BAND = 32 }; /* rows that a tile of equal scales has, columns as well */

/* True for the types these functions know: gguf_type's. */
bool block_type_known(uint32_t type);

/* `cols` numbers, a whole number of blocks. */
void block_decode(uint32_t type, const void *data, size_t cols, float *out);

/* Up to BLOCK_BAND rows of `cols` numbers, a whole number of blocks, all finite; x [rows][cols]. Weights are positive,
 * row_weights [rows], col_weights [cols]. `even` (Q8_0 and Q4_0): one scale for all rows of a block of columns. `out`: the rows
 * as the file has them. Numbers beyond what the type holds come back from block_decode infinite or NaN. */
void block_encode(uint32_t type, bool even, const float *x, size_t rows, size_t cols, const float *row_weights,
                  const float *col_weights, void *out);

/* ---- Between blocks.c and blocks_k.c ---------------------------------------------------------------------------- */

/* q[i] = x[i] / d to nearest within low..high, n a multiple of 8. Returns the sum of w (x - d q)^2. */
double block_round(const float *x, const float *w, size_t n, float d, float low, float high, float *q);
/* The d that makes the sum of w (x - d q)^2 least; 0 where all q are. */
float block_fit(const float *x, const float *w, size_t n, const float *q);

void block_decode_q4_k(const unsigned char *block, float *out);
void block_decode_q6_k(const unsigned char *block, float *out);
/* 256 numbers. */
void block_encode_q4_k(const float *x, const float *w, unsigned char *block);
void block_encode_q6_k(const float *x, const float *w, unsigned char *block);

#endif
