/* packed.inc.h: both products of a packed matrix, written once over 16 lanes and compiled for each instruction set, with what
 * one of packed_*.inc.h defines: cells of 64 bytes, turn (which transposes a cell), dot (which adds to each lane four products
 * of bytes) and a few operations on floats. Called by tier.inc.h alone.
 *
 * A block of 32 x 32 weights is 4 x 4 cells, and a cell turned is a cell of the transposed block. So both products are one: the
 * sums of a block's 32 outputs with 32 activations are exact integers; then they are scaled, and added to what is in `out`.
 * Blocks go in the order of what is summed over, whatever the blocking below. */
#include "packed_layout.h"

enum {
    TOGETHER = 4,      /* vectors that share a block in registers */
    BATCH = 16,        /* vectors rounded at a time, */
    ROUNDED = 1 << 15, /* and numbers, of all of them */
    NEAR = 16,         /* blocks along the outer loop that stay in the first cache level while all vectors go by */
    SETS = 4,          /* of a block's rows or columns, 8 each */
    HALVES = 2         /* of 16 */
};

/* Activations of up to BATCH vectors, rounded: 32 bytes a block, in the order of the sets. */
typedef struct activations {
    int8_t byte[ROUNDED] __attribute__((aligned(64)));
    float scale[ROUNDED / PACKED_BLOCK];
    float total[ROUNDED / PACKED_BLOCK];           /* the sum of the rounded activations, scaled */
    int32_t start[ROUNDED / PACKED_BLOCK][HALVES]; /* what takes the weights' offset out, for each lane */
} activations;

/* What dot's weights are too large by, over 2, as two lanes make a sum. */
INLINE int32_t half_offset(number_type type)
{
    return type == NUMBER_Q8_0 ? BYTE_OFFSET / 2 : type == NUMBER_Q4_0 ? 4 : type == NUMBER_Q6_K ? 16 : 0;
}

/* Below this a block's activations count as zeros: the inverse of their scale would be none. */
static const float least_activation = 0x1p-110f;

/* 32 numbers as bytes; the scale to multiply them with, which is not finite if one of the numbers is not. */
INLINE float round_block(floats low, floats high, int8_t *to, int32_t sum[HALVES])
{
    float max = largest(low, high), inverse = max < least_activation ? 0.0f : 127.0f / max;
    sum[0] = round_sixteen(low, inverse, to);
    sum[1] = round_sixteen(high, inverse, to + 16);
    return max < least_activation ? 0.0f : max / 127.0f;
}

/* Numbers [32 block, 32 block + 32) of v, zeros in the place of those outside [first, last). */
INLINE void load_block(const float *v, size_t block, size_t first, size_t last, floats to[HALVES])
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + PACKED_BLOCK <= last, 1)) {
        to[0] = load_floats(v + from);
        to[1] = load_floats(v + from + 16);
        return;
    }
    float edge[PACKED_BLOCK] = {0};
    for (size_t i = 0; i < PACKED_BLOCK; i++)
        if (from + i >= first && from + i < last) edge[i] = v[from + i];
    to[0] = load_floats(edge);
    to[1] = load_floats(edge + 16);
}

/* Blocks [first_block, last_block) of `count` vectors; of the numbers, those in [first, last). Block b of vector m comes to
 * m * (last_block - first_block) + b - first_block. */
INLINE void round_vectors(activations *to, number_type type, const float *in, size_t in_stride, size_t count,
                          size_t first_block, size_t last_block, size_t first, size_t last)
{
    size_t at = 0;
    for (size_t m = 0; m < count; m++)
        for (size_t b = first_block; b < last_block; b++, at++) {
            floats v[HALVES];
            int32_t sum[HALVES];
            load_block(in + m * in_stride, b, first, last, v);
            to->scale[at] = round_block(v[0], v[1], to->byte + at * PACKED_BLOCK, sum);
            to->total[at] = to->scale[at] * (float)(sum[0] + sum[1]);
            bool one = type != NUMBER_Q6_K; /* one start for the block, or one a half */
            to->start[at][0] = -half_offset(type) * (one ? sum[0] + sum[1] : sum[0]);
            to->start[at][1] = -half_offset(type) * sum[1];
        }
}

/* The four cells of the columns of set j, turned or not. */
INLINE void load_cells(number_type type, const uint8_t *block, size_t j, bool turned, cell w[SETS])
{
    if (type == NUMBER_Q8_0) {
        for (size_t i = 0; i < SETS; i++) {
            w[i] = byte_cell(block + (j * SETS + i) * PACKED_CELL);
            if (turned) w[i] = turn(w[i]);
        }
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        cell both = load_cell(block + (j * 2 + i) * PACKED_CELL);
        if (turned) both = turn(both);
        w[i] = lower(both);
        w[i + 2] = upper(both);
    }
    if (type != NUMBER_Q6_K) return;
    cell crumbs = load_cell(block + PACKED_CRUMBS + j * PACKED_CELL);
    if (turned) crumbs = turn(crumbs);
    for (int i = 0; i < SETS; i++) w[i] = with_crumb(w[i], crumbs, i);
}

/* A part of the output of one vector: 32 numbers of out, of which [first, last) are asked for. */
INLINE float *open_outputs(float *out, size_t block, size_t first, size_t last, float edge[PACKED_BLOCK])
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + PACKED_BLOCK <= last, 1)) return out + from;
    for (size_t i = 0; i < PACKED_BLOCK; i++) edge[i] = from + i >= first && from + i < last ? out[from + i] : 0.0f;
    return edge;
}

INLINE void close_outputs(float *out, size_t block, size_t first, size_t last, const float edge[PACKED_BLOCK])
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + PACKED_BLOCK <= last, 1)) return;
    for (size_t i = 0; i < PACKED_BLOCK; i++)
        if (from + i >= first && from + i < last) out[from + i] = edge[i];
}

/* A matrix's types and layouts, which are constants where the functions below are called. */
typedef struct packed_at {
    const uint8_t *weights, *scales;
    const uint8_t *wide; /* f16: d[32], and for Q4_K dmin[32] */
    float block_scale;
} packed_at;

INLINE packed_at block_of(const packed *w, number_type type, bool even, size_t row_block, size_t col_block)
{
    size_t at = row_block * w->col_blocks + col_block, super = row_block * w->super_blocks + col_block / PACKED_SUPER;
    size_t weights = type == NUMBER_Q8_0 ? 1024 : type == NUMBER_Q6_K ? 768 : 512;
    packed_at b = {.weights = w->blocks + at * (weights + (even ? 0 : 64))};
    b.scales = b.weights + weights;
    if (even) b.block_scale = w->block_scale[at];
    if (type == NUMBER_Q4_K) b.wide = (const uint8_t *)(w->wide + super * 2 * PACKED_BLOCK);
    if (type == NUMBER_Q6_K) b.wide = (const uint8_t *)(w->wide + super * PACKED_BLOCK);
    return b;
}

/* Scales of rows 16 `rows` to 16 `rows` + 15; of Q6_K, for the columns of half `half`. */
INLINE floats scales_of(packed_at b, number_type type, size_t rows, size_t half)
{
    if (type == NUMBER_Q4_K) return times(load_halves(b.wide + rows * 32), load_uint8(b.scales + rows * 16));
    if (type == NUMBER_Q6_K) return times(load_halves(b.wide + rows * 32), load_int8(b.scales + half * 32 + rows * 16));
    return load_halves(b.scales + rows * 32);
}

INLINE floats mins_of(packed_at b, size_t rows)
{
    return times(load_halves(b.wide + 64 + rows * 32), load_uint8(b.scales + 32 + rows * 16));
}

/* ---- W x ---------------------------------------------------------------------------------------------------------- */

/* To y[m], 32 rows, one block's part of MB vectors; at[m] says where in `x` a vector's block is. */
INLINE void project_packed_block(packed_at b, number_type type, bool even, const activations *x, const size_t *at, int MB,
                                 floats y[TOGETHER][HALVES])
{
    size_t parts = type == NUMBER_Q6_K ? HALVES : 1; /* of the columns, each with scales of its own */
    for (size_t part = 0; part < parts; part++) {
        ints sum[TOGETHER][SETS];
        for (int m = 0; m < MB; m++)
            for (int i = 0; i < SETS; i++) sum[m][i] = splat_ints(x->start[at[m]][part]);
        for (size_t j = part * SETS / parts; j < (part + 1) * SETS / parts; j++) {
            cell w[SETS];
            load_cells(type, b.weights, j, false, w);
            for (int m = 0; m < MB; m++) {
                cell xj = spread(x->byte + at[m] * PACKED_BLOCK + 8 * j);
                for (int i = 0; i < SETS; i++) sum[m][i] = dot(sum[m][i], w[i], xj, type == NUMBER_Q8_0);
            }
        }
        for (size_t h = 0; h < HALVES; h++) {
            floats scale = even ? splat_floats(b.block_scale) : scales_of(b, type, h, part);
            for (int m = 0; m < MB; m++) {
                floats by = times(scale, splat_floats(x->scale[at[m]]));
                y[m][h] = times_plus(pair_sums(sum[m][2 * h], sum[m][2 * h + 1]), by, y[m][h]);
            }
            if (type != NUMBER_Q4_K) continue;
            floats min = mins_of(b, h);
            for (int m = 0; m < MB; m++) y[m][h] = minus_times(min, splat_floats(x->total[at[m]]), y[m][h]);
        }
    }
}

/* Rows of one block of rows, over columns of blocks [first, last), which are those rounded in x. */
INLINE void project_packed_rows(const product *p, number_type type, bool even, const activations *x, size_t row_block,
                                size_t first, size_t last, size_t vector, size_t in_batch, int MB)
{
    const packed *w = p->w->packed;
    float edge[TOGETHER][PACKED_BLOCK], *out[TOGETHER];
    floats y[TOGETHER][HALVES];
    size_t at[TOGETHER];
    for (int m = 0; m < MB; m++) {
        out[m] = open_outputs(p->out + (vector + (size_t)m) * p->out_stride, row_block, p->first_row, p->last_row, edge[m]);
        for (size_t h = 0; h < HALVES; h++) y[m][h] = load_floats(out[m] + 16 * h);
        at[m] = (in_batch + (size_t)m) * (last - first);
    }
    for (size_t b = first; b < last; b++) {
        project_packed_block(block_of(w, type, even, row_block, b), type, even, x, at, MB, y);
        for (int m = 0; m < MB; m++) at[m]++;
    }
    for (int m = 0; m < MB; m++) {
        for (size_t h = 0; h < HALVES; h++) store_floats(out[m] + 16 * h, y[m][h]);
        close_outputs(p->out + (vector + (size_t)m) * p->out_stride, row_block, p->first_row, p->last_row, edge[m]);
    }
}

INLINE void project_packed_as(const product *p, number_type type, bool even)
{
    size_t first_row = p->first_row / PACKED_BLOCK, last_row = (p->last_row + PACKED_BLOCK - 1) / PACKED_BLOCK;
    size_t last_col = (p->last_col + PACKED_BLOCK - 1) / PACKED_BLOCK;
    activations x;
    for (size_t m = 0; m < p->count; m += BATCH) {
        size_t count = p->count - m < BATCH ? p->count - m : BATCH;
        size_t chunk = count > 1 ? NEAR : ROUNDED / PACKED_BLOCK;
        for (size_t b = p->first_col / PACKED_BLOCK; b < last_col; b += chunk) {
            size_t end = b + chunk < last_col ? b + chunk : last_col;
            round_vectors(&x, type, p->in + m * p->in_stride, p->in_stride, count, b, end, p->first_col, p->last_col);
            for (size_t r = first_row; r < last_row; r++) {
                size_t v = 0;
                for (; v + TOGETHER <= count; v += TOGETHER)
                    project_packed_rows(p, type, even, &x, r, b, end, m + v, v, TOGETHER);
                for (; v < count; v++) project_packed_rows(p, type, even, &x, r, b, end, m + v, v, 1);
            }
        }
    }
}

/* ---- W^T u -------------------------------------------------------------------------------------------------------- */

/* A block's activations as its cells meet them, turned: one cell for each set of rows; and what takes the offset out. */
typedef struct turned_block {
    cell u[SETS];
    ints start;
} turned_block;

INLINE turned_block spread_block(number_type type, const int8_t *byte)
{
    turned_block t;
    int8_t offset[8];
    memset(offset, 2 * half_offset(type), sizeof offset);
    ints sum = splat_ints(0);
    for (int i = 0; i < SETS; i++) {
        t.u[i] = spread(byte + 8 * i);
        sum = dot(sum, spread(offset), t.u[i], type == NUMBER_Q8_0);
    }
    t.start = negative(sum);
    return t;
}

/* u, times the scales of a block's rows, rounded: for the columns of one half. */
INLINE float fold_scales(packed_at b, number_type type, const floats u[HALVES], size_t half, turned_block *to)
{
    int8_t byte[PACKED_BLOCK] __attribute__((aligned(32)));
    int32_t sum[HALVES];
    float scale = round_block(times(u[0], scales_of(b, type, 0, half)), times(u[1], scales_of(b, type, 1, half)), byte, sum);
    *to = spread_block(type, byte);
    return scale;
}

/* One block of rows of MB vectors into columns of blocks [first, last). */
INLINE void back_packed_row(const product *p, number_type type, bool even, const activations *u, const size_t *at,
                            size_t row_block, size_t first, size_t last, size_t vector, int MB)
{
    const packed *w = p->w->packed;
    floats wide[TOGETHER][HALVES];
    turned_block t[TOGETHER][HALVES];
    float scale[TOGETHER][HALVES];
    for (int m = 0; m < MB; m++) {
        if (even) {
            t[m][0] = t[m][1] = spread_block(type, u->byte + at[m] * PACKED_BLOCK);
        } else {
            load_block(p->in + (vector + (size_t)m) * p->in_stride, row_block, p->first_row, p->last_row, wide[m]);
        }
    }
    for (size_t c = first; c < last; c++) {
        packed_at b = block_of(w, type, even, row_block, c);
        floats out[TOGETHER][HALVES];
        float edge[TOGETHER][PACKED_BLOCK], *to[TOGETHER];
        for (int m = 0; m < MB; m++) {
            to[m] = open_outputs(p->out + (vector + (size_t)m) * p->out_stride, c, p->first_col, p->last_col, edge[m]);
            for (size_t h = 0; h < HALVES; h++) out[m][h] = load_floats(to[m] + 16 * h);
            if (even) {
                scale[m][0] = scale[m][1] = b.block_scale * u->scale[at[m]];
                continue;
            }
            scale[m][0] = fold_scales(b, type, wide[m], 0, &t[m][0]);
            if (type == NUMBER_Q6_K) {
                scale[m][1] = fold_scales(b, type, wide[m], 1, &t[m][1]);
            } else {
                scale[m][1] = scale[m][0];
                t[m][1] = t[m][0];
            }
            if (type != NUMBER_Q4_K) continue;
            floats min = splat_floats(sum_floats(times_plus(wide[m][1], mins_of(b, 1), times(wide[m][0], mins_of(b, 0)))));
            for (size_t h = 0; h < HALVES; h++) out[m][h] = minus_times(min, splat_floats(1.0f), out[m][h]);
        }
        for (size_t h = 0; h < HALVES; h++) {
            ints sum[TOGETHER][2];
            for (size_t j = 0; j < 2; j++) {
                cell cells[SETS];
                load_cells(type, b.weights, 2 * h + j, true, cells);
                for (int m = 0; m < MB; m++) {
                    sum[m][j] = t[m][h].start;
                    for (int i = 0; i < SETS; i++) sum[m][j] = dot(sum[m][j], cells[i], t[m][h].u[i], type == NUMBER_Q8_0);
                }
            }
            for (int m = 0; m < MB; m++)
                store_floats(to[m] + 16 * h, times_plus(pair_sums(sum[m][0], sum[m][1]), splat_floats(scale[m][h]), out[m][h]));
        }
        for (int m = 0; m < MB; m++)
            close_outputs(p->out + (vector + (size_t)m) * p->out_stride, c, p->first_col, p->last_col, edge[m]);
    }
}

INLINE void back_packed_rows(const product *p, number_type type, bool even, const activations *u, size_t first_row,
                             size_t last_row, size_t first_col, size_t last_col, size_t vector, size_t count)
{
    for (size_t r = first_row; r < last_row; r++) {
        size_t v = 0, at[TOGETHER];
        for (; v + TOGETHER <= count; v += TOGETHER) {
            for (size_t m = 0; m < TOGETHER; m++) at[m] = (v + m) * (last_row - first_row) + r - first_row;
            back_packed_row(p, type, even, u, at, r, first_col, last_col, vector + v, TOGETHER);
        }
        for (; v < count; v++) {
            at[0] = v * (last_row - first_row) + r - first_row;
            back_packed_row(p, type, even, u, at, r, first_col, last_col, vector + v, 1);
        }
    }
}

INLINE void back_packed_as(const product *p, number_type type, bool even)
{
    size_t first_col = p->first_col / PACKED_BLOCK, last_col = (p->last_col + PACKED_BLOCK - 1) / PACKED_BLOCK;
    size_t last_row = (p->last_row + PACKED_BLOCK - 1) / PACKED_BLOCK;
    activations u;
    for (size_t m = 0; m < p->count; m += BATCH) {
        size_t count = p->count - m < BATCH ? p->count - m : BATCH;
        size_t rows = ROUNDED / PACKED_BLOCK / count, columns = count > 1 ? NEAR : last_col - first_col + 1;
        for (size_t r = p->first_row / PACKED_BLOCK; r < last_row; r += rows) {
            size_t end = r + rows < last_row ? r + rows : last_row;
            if (even) round_vectors(&u, type, p->in + m * p->in_stride, p->in_stride, count, r, end, p->first_row, p->last_row);
            for (size_t c = first_col; c < last_col; c += columns)
                back_packed_rows(p, type, even, &u, r, end, c, c + columns < last_col ? c + columns : last_col, m, count);
        }
    }
}

/* ---- By type ------------------------------------------------------------------------------------------------------ */

INLINE void start_from_zero(const product *p, size_t first, size_t last)
{
    for (size_t m = 0; m < p->count; m++) memset(p->out + m * p->out_stride + first, 0, (last - first) * sizeof(float));
}

static void project_packed(const product *p)
{
    if (!p->add) start_from_zero(p, p->first_row, p->last_row);
    switch (p->w->type) {
    case NUMBER_Q8_0:
        if (p->w->packed->even)
            project_packed_as(p, NUMBER_Q8_0, true);
        else
            project_packed_as(p, NUMBER_Q8_0, false);
        break;
    case NUMBER_Q4_0:
        if (p->w->packed->even)
            project_packed_as(p, NUMBER_Q4_0, true);
        else
            project_packed_as(p, NUMBER_Q4_0, false);
        break;
    case NUMBER_Q4_K:
        project_packed_as(p, NUMBER_Q4_K, false);
        break;
    default:
        project_packed_as(p, NUMBER_Q6_K, false);
    }
}

static void project_back_packed(const product *p)
{
    if (!p->add) start_from_zero(p, p->first_col, p->last_col);
    switch (p->w->type) {
    case NUMBER_Q8_0:
        if (p->w->packed->even)
            back_packed_as(p, NUMBER_Q8_0, true);
        else
            back_packed_as(p, NUMBER_Q8_0, false);
        break;
    case NUMBER_Q4_0:
        if (p->w->packed->even)
            back_packed_as(p, NUMBER_Q4_0, true);
        else
            back_packed_as(p, NUMBER_Q4_0, false);
        break;
    case NUMBER_Q4_K:
        back_packed_as(p, NUMBER_Q4_K, false);
        break;
    default:
        back_packed_as(p, NUMBER_Q6_K, false);
    }
}
