/* packed_layout.h: how a packed matrix lies in memory (packed.h says why). Read by packed.c, which packs and decodes, and by
 * the kernels; nobody else looks inside.
 *
 * Blocks of 32 x 32 weights follow each other along the columns, then down the rows; so do, in an array of their own, the 64
 * bytes of each block that scale them, but for those of an even matrix, which are one float. Of a block:
 *   Q8_0  1024 bytes: 16 cells of 64                      f16 scale[32 rows]
 *   Q4_0   512 bytes: 8 of 64, two cells each in nibbles  f16 scale[32 rows]
 *   Q4_K   512 bytes: as Q4_0                             uint8 scale[32 rows], uint8 min[32 rows]
 *   Q6_K   768 bytes: 8 as Q4_0, then 4 of 64, the two    int8 scale[2 halves of 16 columns][32 rows]
 *          upper bits of four cells each
 * A cell is 8 x 8 weights. Cell (i, j) holds the rows of set i and the columns of set j; sets 0 and 1 share the first 16, by
 * pairs in turn (0 1 4 5 8 9 12 13 and 2 3 6 7 10 11 14 15), sets 2 and 3 the others: so the sums of neighbouring lanes of two
 * cells, as shuffles within 128 bits give them, come out in order. Cells go j by j; a nibble of cell (i, j) with i < 2 is the
 * lower one, and shares its byte with that of (i + 2, j); upper bits of cell (i, j) are bits 2i and 2i + 1 of theirs. */
#ifndef DESCENT_PACKED_LAYOUT_H
#define DESCENT_PACKED_LAYOUT_H

#include "packed.h"

enum {
    PACKED_BLOCK = 32,  /* rows and columns of a block */
    PACKED_CELL = 64,   /* bytes of a cell */
    PACKED_SCALES = 64, /* bytes of what scales a block */
    PACKED_SUPER = 8,   /* blocks a scale in `wide` spans */
    PACKED_CRUMBS = 512 /* where a Q6_K block's upper bits start */
};

/* Rows that a part of their scales is folded into are words up to WORD_MOST; what is left of the scales, up to WORD_ONE. Times
 * each other / 2^15 they are words again; these times WORD_TO_BYTE over the largest of them / 2^15, or times WORD_TOP where
 * that is less, are bytes. A byte counts WORD_UNIT over what it was multiplied with last, times the largest of the rows / 127
 * and that of what is left: so whole numbers up to 127 whose scales are 1 remain what they are. */
enum { WORD_MOST = 127 << 8, WORD_ONE = 1 << 14, WORD_TO_BYTE = 127 << 15, WORD_TOP = 32767, WORD_UNIT = 256 };

/* Means of a row's scales below it, which only 0 is, count as it. */
#define PACKED_LEAST_MEAN 0x1p-100f

struct packed {
    number_type type;
    bool even;
    size_t rows, cols;
    size_t row_blocks, col_blocks, super_blocks; /* super_blocks: along the columns */
    size_t block_bytes;
    uint8_t *blocks;    /* [row_blocks][col_blocks][block_bytes], on a multiple of 64 */
    uint8_t *scales;    /* [row_blocks][col_blocks][PACKED_SCALES] */
    float *block_scale; /* even, instead: [row_blocks][col_blocks] */
    float
        *row_mean;  /* not even, both ways: [row_blocks][32] what a row's scales are on average; 0 where that is not a number */
    float *largest; /* [row_blocks][col_blocks][2 halves if Q6_K, else 1] of a block's scales, each over its row's mean */
    uint16_t *wide; /* f16, Q4_K: [row_blocks][super_blocks][2][32], d and dmin; Q6_K: [row_blocks][super_blocks][32], d */
    size_t bytes;
};

/* Of a block's weights, without their scales. */
static inline size_t packed_block_bytes(number_type type)
{
    return type == NUMBER_Q8_0 ? 1024 : type == NUMBER_Q6_K ? 768 : 512;
}

/* Of 32 rows or columns, the set that `at` is in, and which of its 8 it is. */
static inline size_t packed_set(size_t at)
{
    return at / 16 * 2 + (at / 2) % 2;
}

static inline size_t packed_place(size_t at)
{
    return (at % 16) / 4 * 2 + at % 2;
}

#endif
