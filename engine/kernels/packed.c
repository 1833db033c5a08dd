/* packed.c: quantized tensors from the layout of a GGUF file to that of the kernels (packed_layout.h), and single rows back to
 * floats. Owns a packed matrix's memory. Called where models are loaded and where a token's row is looked up. */
#include "packed_layout.h"

#include "half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The file's side --------------------------------------------------------------------------------------------- */

typedef struct file_type {
    size_t numbers, bytes; /* of a block of the file */
} file_type;

static file_type file_type_of(number_type type)
{
    switch (type) {
    case NUMBER_Q8_0:
        return (file_type){32, 34};
    case NUMBER_Q4_0:
        return (file_type){32, 18};
    case NUMBER_Q4_K:
        return (file_type){256, 144};
    default:
        return (file_type){256, 210}; /* Q6_K */
    }
}

static uint16_t read_f16(const uint8_t *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

/* Columns [32 b, 32 b + 32) of a row as unsigned weights, the offset still in them. */
static void file_weights(number_type type, const uint8_t *row, size_t b, uint8_t w[PACKED_BLOCK])
{
    const uint8_t *super = row + b / PACKED_SUPER * file_type_of(type).bytes;
    size_t s = b % PACKED_SUPER;
    switch (type) {
    case NUMBER_Q8_0:
        for (size_t c = 0; c < 32; c++) w[c] = row[b * 34 + 2 + c] ^ 0x80;
        break;
    case NUMBER_Q4_0:
        for (size_t c = 0; c < 16; c++) {
            w[c] = row[b * 18 + 2 + c] & 15;
            w[c + 16] = row[b * 18 + 2 + c] >> 4;
        }
        break;
    case NUMBER_Q4_K: /* 32 bytes hold two blocks of 32, one in each nibble */
        for (size_t c = 0; c < 32; c++) w[c] = (uint8_t)(super[16 + s / 2 * 32 + c] >> s % 2 * 4 & 15);
        break;
    default: { /* Q6_K: of each half, 64 bytes of nibbles and 32 bytes of upper bits hold four blocks of 32 */
        const uint8_t *low = super + s / 4 * 64 + s % 2 * 32, *high = super + 128 + s / 4 * 32;
        for (size_t c = 0; c < 32; c++) w[c] = (uint8_t)((low[c] >> s % 4 / 2 * 4 & 15) | (high[c] >> s % 4 * 2 & 3) << 4);
    }
    }
}

/* Scale and min of the s-th block of 32 of a Q4_K super-block: eight of each, 6 bits, in 12 bytes. */
static void file_q4_k_scale(const uint8_t *super, size_t s, uint8_t *scale, uint8_t *min)
{
    const uint8_t *six = super + 4;
    if (s < 4) {
        *scale = six[s] & 63;
        *min = six[s + 4] & 63;
    } else {
        *scale = (uint8_t)((six[s + 4] & 15) | (six[s - 4] >> 6) << 4);
        *min = (uint8_t)(six[s + 4] >> 4 | (six[s] >> 6) << 4);
    }
}

/* ---- The kernels' side ------------------------------------------------------------------------------------------- */

/* Where a row's weights begin in a block, and from there that of column c; nibbles of the lower two sets of rows are the lower
 * ones of their bytes. */
static size_t row_place(number_type type, size_t r)
{
    return (type == NUMBER_Q8_0 ? packed_set(r) : packed_set(r) % 2) * PACKED_CELL + packed_place(r) * 8;
}

static size_t column_place(number_type type, size_t c)
{
    return packed_set(c) * (type == NUMBER_Q8_0 ? 4 : 2) * PACKED_CELL + packed_place(c);
}

static unsigned nibble_shift(size_t r)
{
    return packed_set(r) < 2 ? 0 : 4;
}

/* Q6_K's upper bits: of row r and column c, in bits 2 set(r) and up. */
static size_t crumb_place(size_t r, size_t c)
{
    return PACKED_CRUMBS + packed_set(c) * PACKED_CELL + packed_place(r) * 8 + packed_place(c);
}

/* Row r of a block that is zeros where that row will be. */
static void put_row(number_type type, uint8_t *block, size_t r, const uint8_t w[PACKED_BLOCK])
{
    uint8_t *row = block + row_place(type, r);
    for (size_t c = 0; c < PACKED_BLOCK; c++) {
        uint8_t *to = row + column_place(type, c);
        *to = (uint8_t)(type == NUMBER_Q8_0 ? w[c] : *to | (w[c] & 15) << nibble_shift(r));
    }
    for (size_t c = 0; type == NUMBER_Q6_K && c < PACKED_BLOCK; c++) {
        uint8_t *to = block + crumb_place(r, c);
        *to = (uint8_t)(*to | (w[c] >> 4) << 2 * packed_set(r));
    }
}

static void get_row(number_type type, const uint8_t *block, size_t r, uint8_t w[PACKED_BLOCK])
{
    const uint8_t *row = block + row_place(type, r);
    for (size_t c = 0; c < PACKED_BLOCK; c++) {
        uint8_t stored = row[column_place(type, c)];
        w[c] = (uint8_t)(type == NUMBER_Q8_0 ? stored : stored >> nibble_shift(r) & 15);
    }
    for (size_t c = 0; type == NUMBER_Q6_K && c < PACKED_BLOCK; c++)
        w[c] = (uint8_t)(w[c] | (block[crumb_place(r, c)] >> 2 * packed_set(r) & 3) << 4);
}

static uint8_t offset_of(number_type type)
{
    return type == NUMBER_Q8_0 ? 128 : type == NUMBER_Q4_0 ? 8 : type == NUMBER_Q6_K ? 32 : 0;
}

static uint8_t *block_at(const packed *p, size_t row_block, size_t col_block)
{
    return p->blocks + (row_block * p->col_blocks + col_block) * p->block_bytes;
}

static uint8_t *scales_at(const packed *p, size_t row_block, size_t col_block)
{
    return p->even ? NULL : p->scales + (row_block * p->col_blocks + col_block) * PACKED_SCALES;
}

static uint16_t *wide_at(const packed *p, size_t row_block, size_t col_block)
{
    size_t halves = p->type == NUMBER_Q4_K ? 2 * PACKED_BLOCK : PACKED_BLOCK;
    return p->wide + (row_block * p->super_blocks + col_block / PACKED_SUPER) * halves;
}

/* ---- Packing ------------------------------------------------------------------------------------------------------ */

/* Whether the scales of Q8_0 or Q4_0 are the same, bit for bit, all over each 32 x 32 block. */
static bool scales_are_even(number_type type, const uint8_t *data, size_t rows, size_t col_blocks)
{
    if (type != NUMBER_Q8_0 && type != NUMBER_Q4_0) return false;
    size_t bytes = file_type_of(type).bytes, stride = col_blocks * bytes;
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *row = data + r * stride, *first = data + r / PACKED_BLOCK * PACKED_BLOCK * stride;
        for (size_t b = 0; b < col_blocks; b++)
            if (memcmp(row + b * bytes, first + b * bytes, 2) != 0) return false;
    }
    return true;
}

static void pack_scale(packed *p, const uint8_t *row, size_t r, size_t b)
{
    size_t row_block = r / PACKED_BLOCK, in_block = r % PACKED_BLOCK;
    file_type file = file_type_of(p->type);
    uint8_t *scales = scales_at(p, row_block, b);
    const uint8_t *super = row + b / PACKED_SUPER * file.bytes;
    if (p->type == NUMBER_Q4_K) {
        uint16_t *wide = wide_at(p, row_block, b);
        wide[in_block] = read_f16(super);
        wide[PACKED_BLOCK + in_block] = read_f16(super + 2);
        file_q4_k_scale(super, b % PACKED_SUPER, &scales[in_block], &scales[PACKED_BLOCK + in_block]);
    } else if (p->type == NUMBER_Q6_K) {
        wide_at(p, row_block, b)[in_block] = read_f16(super + 208);
        for (size_t half = 0; half < 2; half++)
            scales[half * PACKED_BLOCK + in_block] = super[192 + b % PACKED_SUPER * 2 + half];
    } else {
        uint16_t scale = read_f16(row + b * file.bytes);
        if (p->even)
            p->block_scale[row_block * p->col_blocks + b] = half_to_float(scale);
        else
            memcpy(scales + in_block * sizeof scale, &scale, sizeof scale);
    }
}

static void pack_block(packed *p, const uint8_t *data, size_t stride, size_t row_block, size_t b)
{
    uint8_t *block = block_at(p, row_block, b), zero = offset_of(p->type);
    for (size_t in_block = 0; in_block < PACKED_BLOCK; in_block++) {
        size_t r = row_block * PACKED_BLOCK + in_block, n = 0;
        uint8_t w[PACKED_BLOCK];
        if (r < p->rows) {
            const uint8_t *row = data + r * stride;
            n = p->cols - b * PACKED_BLOCK;
            file_weights(p->type, row, b, w);
            pack_scale(p, row, r, b);
        }
        for (size_t c = n; c < PACKED_BLOCK; c++) w[c] = zero;
        put_row(p->type, block, in_block, w);
    }
}

static size_t packed_parts(number_type type)
{
    return type == NUMBER_Q6_K ? 2 : 1;
}

static size_t to_line(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Everything in one piece of memory: the matrix itself, its blocks, their scales, wide scales, what W^T u needs of them. */
static packed *allocate(packed shape, bool both_ways)
{
    size_t halves = shape.type == NUMBER_Q4_K ? 2 : shape.type == NUMBER_Q6_K ? 1 : 0; /* wide scales of a row */
    shape.block_bytes = packed_block_bytes(shape.type);
    size_t head = to_line(sizeof shape), parts = packed_parts(shape.type);
    size_t largest = 1024 + PACKED_SCALES + 2 * PACKED_BLOCK * sizeof(uint16_t) + (2 * PACKED_BLOCK + 2) * sizeof(float);
    if (shape.col_blocks > 0 && shape.row_blocks > (SIZE_MAX / 2 - head) / shape.col_blocks / largest) return NULL;
    size_t blocks = shape.row_blocks * shape.col_blocks, supers = shape.row_blocks * shape.super_blocks;
    size_t scales = head + blocks * shape.block_bytes;
    size_t wide = scales + to_line(blocks * (shape.even ? sizeof(float) : PACKED_SCALES));
    size_t means = wide + to_line(supers * halves * PACKED_BLOCK * sizeof(uint16_t));
    bool splits = both_ways && !shape.even;
    size_t ratios = means + (splits ? to_line(shape.row_blocks * PACKED_BLOCK * sizeof(float)) : 0);
    shape.bytes = ratios + (splits ? to_line((blocks * parts + 16) * sizeof(float)) : 0); /* they are read 16 at a time */
    uint8_t *memory = aligned_alloc(64, shape.bytes);
    if (!memory) return NULL;
    memset(memory, 0, shape.bytes);
    shape.blocks = memory + head;
    shape.scales = shape.even ? NULL : memory + scales;
    shape.block_scale = shape.even ? (float *)(void *)(memory + scales) : NULL;
    shape.wide = halves ? (uint16_t *)(void *)(memory + wide) : NULL;
    shape.row_mean = splits ? (float *)(void *)(memory + means) : NULL;
    shape.largest = splits ? (float *)(void *)(memory + ratios) : NULL;
    memcpy(memory, &shape, sizeof shape);
    return (packed *)(void *)memory;
}

/* weight = scale * (stored - offset) - min, for one row of a block's 16 columns from column `half` * 16 on. */
static void row_scale(const packed *p, size_t r, size_t b, size_t half, float *scale, float *min)
{
    size_t row_block = r / PACKED_BLOCK, in_block = r % PACKED_BLOCK;
    const uint8_t *scales = scales_at(p, row_block, b);
    *min = 0;
    if (p->even) {
        *scale = p->block_scale[row_block * p->col_blocks + b];
    } else if (p->wide) {
        const uint16_t *wide = wide_at(p, row_block, b);
        if (p->type == NUMBER_Q4_K) {
            *scale = half_to_float(wide[in_block]) * (float)scales[in_block];
            *min = half_to_float(wide[PACKED_BLOCK + in_block]) * (float)scales[PACKED_BLOCK + in_block];
        } else {
            *scale = half_to_float(wide[in_block]) * (float)(int8_t)scales[half * PACKED_BLOCK + in_block];
        }
    } else {
        uint16_t f16;
        memcpy(&f16, scales + in_block * sizeof f16, sizeof f16);
        *scale = half_to_float(f16);
    }
}

/* What a row's scales have in common is multiplied into u before that is rounded, what is left of them after it. A scale that
 * is not a number shows in `largest`, which sums are multiplied with. */
static void split_scales(packed *p)
{
    size_t parts = packed_parts(p->type), columns = p->col_blocks * parts;
    for (size_t r = 0; r < p->rows; r++) {
        double sum = 0;
        float scale, min;
        for (size_t i = 0; i < columns; i++) {
            row_scale(p, r, i / parts, i % parts, &scale, &min);
            sum += fabs((double)scale);
        }
        float mean = (float)(sum / (double)columns);
        p->row_mean[r] = mean < INFINITY ? mean : 0;
        float inverse = 1 / (p->row_mean[r] > PACKED_LEAST_MEAN ? p->row_mean[r] : PACKED_LEAST_MEAN);
        for (size_t i = 0; i < columns; i++) {
            float *largest = &p->largest[(r / PACKED_BLOCK * p->col_blocks + i / parts) * parts + i % parts];
            row_scale(p, r, i / parts, i % parts, &scale, &min);
            float left = fabsf(scale * inverse);
            if (left > *largest || isnan(left)) *largest = left; /* once not a number, always */
        }
    }
}

packed *packed_create(number_type type, const void *data, size_t rows, size_t cols, bool both_ways)
{
    file_type file = file_type_of(type);
    if (rows > SIZE_MAX - PACKED_BLOCK || cols > SIZE_MAX - 256) return NULL;
    packed shape = {.type = type,
                    .rows = rows,
                    .cols = cols,
                    .row_blocks = (rows + PACKED_BLOCK - 1) / PACKED_BLOCK,
                    .col_blocks = (cols + PACKED_BLOCK - 1) / PACKED_BLOCK,
                    .super_blocks = (cols + 255) / 256};
    shape.even = scales_are_even(type, data, rows, shape.col_blocks);
    packed *p = allocate(shape, both_ways);
    if (!p) return NULL;
    size_t stride = (cols + file.numbers - 1) / file.numbers * file.bytes;
    for (size_t r = 0; r < p->row_blocks; r++)
        for (size_t b = 0; b < p->col_blocks; b++) pack_block(p, data, stride, r, b);
    if (p->row_mean) split_scales(p);
    return p;
}

void packed_destroy(packed *p)
{
    free(p);
}

size_t packed_bytes(const packed *p)
{
    return p->bytes;
}

bool packed_is_even(const packed *p)
{
    return p->even;
}

/* ---- One row ------------------------------------------------------------------------------------------------------ */

void packed_row(const packed *p, size_t r, float *out, bool add)
{
    enum { RUN = 16 }; /* columns that share their scale, whatever the type */
    float offset = (float)offset_of(p->type);
    uint8_t stored[PACKED_BLOCK];
    for (size_t first = 0; first < p->cols; first += RUN) {
        size_t b = first / PACKED_BLOCK, end = first + RUN < p->cols ? first + RUN : p->cols;
        float scale, min;
        if (first % PACKED_BLOCK == 0) get_row(p->type, block_at(p, r / PACKED_BLOCK, b), r % PACKED_BLOCK, stored);
        row_scale(p, r, b, first % PACKED_BLOCK / RUN, &scale, &min);
        for (size_t c = first; c < end; c++) {
            float w = scale * ((float)stored[c % PACKED_BLOCK] - offset);
            if (p->type == NUMBER_Q4_K) w -= min;
            out[c] = add ? out[c] + w : w;
        }
    }
}
