/* packed.inc.h: both products of a packed matrix, written once over 16 lanes and compiled for each instruction set, with what
 * one of packed_*.inc.h defines: cells of 64 bytes, turn (which transposes a cell), dot (which adds to each lane four products
 * of bytes), a few operations on floats, TOGETHER and PACKED_INLINE. Included by tier_*.c.
 *
 * A block of 32 x 32 weights is 4 x 4 cells, and a cell turned is a cell of the transposed block. So both products are one: the
 * sums of a block's 32 outputs with 32 activations are exact integers; then they are scaled, and added to what is in `out`.
 * Blocks go in the order of what is summed over, whatever the blocking below. */
#include "packed_layout.h"

#include <string.h>

enum {
    BATCH = 16,        /* vectors rounded at a time, */
    ROUNDED = 1 << 15, /* and numbers, of all of them */
    NEAR = 16,         /* blocks along the outer loop that stay in the first cache level while all vectors go by */
    FOUR = 4,          /* blocks rounded at a time, */
    RUN = 16,          /* and rounded before the first of them is used */
    AHEAD = 4096,      /* bytes of weights that are fetched before they are used */
    SETS = 4,          /* of a block's rows or columns, 8 each */
    HALVES = 2         /* of 16 */
};

/* Activations of up to BATCH vectors, rounded: 32 bytes a block, in the order of the sets. */
typedef struct activations {
    int8_t byte[ROUNDED] __attribute__((aligned(64)));
    float scale[ROUNDED / PACKED_BLOCK];
    float total[ROUNDED / PACKED_BLOCK];              /* Q4_K: the sum of the rounded activations, scaled */
    int32_t start[ROUNDED / PACKED_BLOCK][HALVES][2]; /* what takes the weights' offset out of even lanes and of odd ones */
} activations;

/* What dot's weights are too large by. */
PACKED_INLINE int offset_of(number_type type)
{
    return type == NUMBER_Q8_0 ? BYTE_OFFSET : type == NUMBER_Q4_0 ? 8 : type == NUMBER_Q6_K ? 32 : 0;
}

/* Which of a block's scales the columns of set j have. */
PACKED_INLINE size_t part_of(number_type type, size_t j)
{
    return type == NUMBER_Q6_K ? j / 2 : 0;
}

/* Numbers [32 block, 32 (block + n)) of v, zeros in the place of those outside [first, last); in `edge`, unless all are inside.
 */
PACKED_INLINE const float *block_numbers(const float *v, size_t block, size_t n, size_t first, size_t last, float *edge)
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + n * PACKED_BLOCK <= last, 1)) return v + from;
    for (size_t i = 0; i < n * PACKED_BLOCK; i++) edge[i] = from + i >= first && from + i < last ? v[from + i] : 0.0f;
    return edge;
}

/* Blocks [first_block, last_block) of `count` vectors; of the numbers, those in [first, last). Block b of vector m comes to
 * m * (last_block - first_block) + b - first_block. */
static void round_vectors(activations *to, number_type type, const float *in, size_t in_stride, size_t count,
                          size_t first_block, size_t last_block, size_t first, size_t last)
{
    size_t at = 0;
    for (size_t m = 0; m < count; m++)
        for (size_t b = first_block, n; b < last_block; b += n, at += n) {
            float edge[FOUR * PACKED_BLOCK], scale[FOUR];
            int8_t byte[FOUR * PACKED_BLOCK] __attribute__((aligned(64)));
            int32_t start[FOUR][8] __attribute__((aligned(64)));
            const float *from = block_numbers(in + m * in_stride, b, FOUR, first, last, edge);
            floats v[FOUR * HALVES];
            for (size_t i = 0; i < FOUR * HALVES; i++) v[i] = load_floats(from + 16 * i);
            round_four(v, byte, scale);
            starts_of_four(byte, type == NUMBER_Q4_K ? 1 : offset_of(type), type != NUMBER_Q6_K, start);
            n = last_block - b < FOUR ? last_block - b : FOUR;
            for (size_t i = 0; i < n; i++) {
                memcpy(to->byte + (at + i) * PACKED_BLOCK, byte + i * PACKED_BLOCK, PACKED_BLOCK);
                to->scale[at + i] = scale[i];
                to->total[at + i] = scale[i] * (float)-(start[i][0] + start[i][1]);
                for (size_t part = 0; part < HALVES; part++) memcpy(to->start[at + i][part], &start[i][4 * part], 8);
            }
        }
}

PACKED_INLINE ints start_of(number_type type, const int32_t start[2])
{
    return type == NUMBER_Q4_K ? splat_ints(0) : spread_ints(start);
}

/* Cells (i, j) and (i + 2, j), i < 2, turned or not. */
PACKED_INLINE void load_pair(number_type type, const uint8_t *block, size_t i, size_t j, bool turned, cell w[2])
{
    if (type == NUMBER_Q8_0) {
        for (size_t k = 0; k < 2; k++) {
            w[k] = byte_cell(block + (j * SETS + i + 2 * k) * PACKED_CELL);
            if (turned) w[k] = turn(w[k]);
        }
        return;
    }
    cell both = load_cell(block + (j * 2 + i) * PACKED_CELL);
    if (turned) both = turn(both);
    w[0] = lower(both);
    w[1] = upper(both);
    if (type != NUMBER_Q6_K) return;
    cell crumbs = load_cell(block + PACKED_CRUMBS + j * PACKED_CELL);
    if (turned) crumbs = turn(crumbs);
    for (size_t k = 0; k < 2; k++) w[k] = with_crumb(w[k], crumbs, (int)(i + 2 * k));
}

/* A part of the output of one vector: 32 numbers of out, of which [first, last) are asked for. */
PACKED_INLINE float *open_outputs(float *out, size_t block, size_t first, size_t last, float edge[PACKED_BLOCK])
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + PACKED_BLOCK <= last, 1)) return out + from;
    for (size_t i = 0; i < PACKED_BLOCK; i++) edge[i] = from + i >= first && from + i < last ? out[from + i] : 0.0f;
    return edge;
}

PACKED_INLINE void close_outputs(float *out, size_t block, size_t first, size_t last, const float edge[PACKED_BLOCK])
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + PACKED_BLOCK <= last, 1)) return;
    for (size_t i = 0; i < PACKED_BLOCK; i++)
        if (from + i >= first && from + i < last) out[from + i] = edge[i];
}

/* A matrix's types and layouts, which are constants where the functions below are called. */
typedef struct packed_at {
    const uint8_t *weights, *scales;
    size_t bytes;        /* of weights */
    const uint8_t *wide; /* f16: d[32], and for Q4_K dmin[32] */
    float block_scale;
} packed_at;

PACKED_INLINE packed_at block_of(const packed *w, number_type type, bool even, size_t row_block, size_t col_block)
{
    size_t at = row_block * w->col_blocks + col_block, super = row_block * w->super_blocks + col_block / PACKED_SUPER;
    size_t weights = type == NUMBER_Q8_0 ? 1024 : type == NUMBER_Q6_K ? 768 : 512;
    packed_at b = {.weights = w->blocks + at * weights, .bytes = weights};
    if (even)
        b.block_scale = w->block_scale[at];
    else
        b.scales = w->scales + at * PACKED_SCALES;
    if (type == NUMBER_Q4_K) b.wide = (const uint8_t *)(w->wide + super * 2 * PACKED_BLOCK);
    if (type == NUMBER_Q6_K) b.wide = (const uint8_t *)(w->wide + super * PACKED_BLOCK);
    return b;
}

/* Weights `ahead` bytes further on, if that is not 0: where much is done with a line, those to come would be asked for late. */
PACKED_INLINE void fetch_ahead(packed_at b, size_t ahead)
{
    for (size_t line = 0; ahead > 0 && line < b.bytes; line += 64) __builtin_prefetch(b.weights + ahead + line);
}

/* While `count` vectors go by: what is read next is next in memory, or if there are many, one block of rows further down. */
PACKED_INLINE size_t ahead_of(const packed *w, size_t count)
{
    return count <= TOGETHER ? AHEAD : w->col_blocks * w->block_bytes;
}

/* Scales of rows 16 `rows` to 16 `rows` + 15; of Q6_K, for the columns of half `half`. */
PACKED_INLINE floats scales_of(packed_at b, number_type type, size_t rows, size_t half)
{
    if (type == NUMBER_Q4_K) return times(load_halves(b.wide + rows * 32), load_uint8(b.scales + rows * 16));
    if (type == NUMBER_Q6_K) return times(load_halves(b.wide + rows * 32), load_int8(b.scales + half * 32 + rows * 16));
    return load_halves(b.scales + rows * 32);
}

PACKED_INLINE floats mins_of(packed_at b, size_t rows)
{
    return times(load_halves(b.wide + 64 + rows * 32), load_uint8(b.scales + 32 + rows * 16));
}

/* ---- W x ---------------------------------------------------------------------------------------------------------- */

/* To y[m], 32 rows, one block's part of MB vectors; at[m] says where in `x` a vector's block is. */
PACKED_INLINE void project_packed_block(packed_at b, number_type type, bool even, const activations *x, const size_t *at,
                                        int MB, floats y[TOGETHER][HALVES])
{
    size_t parts = type == NUMBER_Q6_K ? HALVES : 1; /* of the columns, each with scales of its own */
    for (size_t part = 0; part < parts; part++) {
        ints sum[TOGETHER][SETS];
        for (int m = 0; m < MB; m++)
            for (int i = 0; i < SETS; i++) sum[m][i] = start_of(type, x->start[at[m]][part]);
        for (size_t j = part * SETS / parts; j < (part + 1) * SETS / parts; j++) {
            cell w[2][2];
            for (size_t i = 0; i < 2; i++) load_pair(type, b.weights, i, j, false, w[i]);
            for (int m = 0; m < MB; m++) {
                cell xj = spread(x->byte + at[m] * PACKED_BLOCK + 8 * j);
                for (int i = 0; i < SETS; i++) sum[m][i] = dot(sum[m][i], w[i % 2][i / 2], xj, type == NUMBER_Q8_0);
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
PACKED_INLINE void project_packed_rows(const product *p, number_type type, bool even, const activations *x, size_t row_block,
                                       size_t first, size_t last, size_t vector, size_t in_batch, size_t ahead, int MB)
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
        packed_at here = block_of(w, type, even, row_block, b);
        fetch_ahead(here, ahead);
        project_packed_block(here, type, even, x, at, MB, y);
        for (int m = 0; m < MB; m++) at[m]++;
    }
    for (int m = 0; m < MB; m++) {
        for (size_t h = 0; h < HALVES; h++) store_floats(out[m] + 16 * h, y[m][h]);
        close_outputs(p->out + (vector + (size_t)m) * p->out_stride, row_block, p->first_row, p->last_row, edge[m]);
    }
}

PACKED_INLINE void project_packed_as(const product *p, number_type type, bool even)
{
    size_t first_row = p->first_row / PACKED_BLOCK, last_row = (p->last_row + PACKED_BLOCK - 1) / PACKED_BLOCK;
    size_t last_col = (p->last_col + PACKED_BLOCK - 1) / PACKED_BLOCK;
    activations x;
    for (size_t m = 0; m < p->count; m += BATCH) {
        size_t count = p->count - m < BATCH ? p->count - m : BATCH;
        size_t chunk = count > TOGETHER ? NEAR : ROUNDED / PACKED_BLOCK / count;
        /* One vector is through with a line of bytes before the next is late: what fetches ahead would only be in its way. */
        size_t ahead = count == 1 && type == NUMBER_Q8_0 ? 0 : ahead_of(p->w->packed, count);
        for (size_t b = p->first_col / PACKED_BLOCK; b < last_col; b += chunk) {
            size_t end = b + chunk < last_col ? b + chunk : last_col;
            round_vectors(&x, type, p->in + m * p->in_stride, p->in_stride, count, b, end, p->first_col, p->last_col);
            for (size_t r = first_row; r < last_row; r++) {
                size_t v = 0;
                for (; v + TOGETHER <= count; v += TOGETHER)
                    project_packed_rows(p, type, even, &x, r, b, end, m + v, v, v == 0 ? ahead : 0, TOGETHER);
                for (; v < count; v++) project_packed_rows(p, type, even, &x, r, b, end, m + v, v, v == 0 ? ahead : 0, 1);
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

PACKED_INLINE turned_block spread_block(number_type type, const int8_t *byte, const int32_t start[2])
{
    turned_block t = {.start = start_of(type, start)};
    for (int i = 0; i < SETS; i++) t.u[i] = spread(byte + 8 * i);
    return t;
}

/* What one block of rows of a vector is, for each of a run of blocks of columns, once the scales are multiplied in: of a Q6_K
 * block for the columns of either half. `min` is what its mins add up to. */
typedef struct folded {
    int8_t byte[HALVES][RUN][PACKED_BLOCK] __attribute__((aligned(64)));
    int32_t start[HALVES][RUN][8] __attribute__((aligned(64)));
    float scale[HALVES][RUN], min[RUN];
} folded;

PACKED_INLINE void fold_scales(folded *to, const packed *w, number_type type, const float *u, size_t row_block, size_t first,
                               size_t n)
{
    size_t parts = type == NUMBER_Q6_K ? HALVES : 1;
    floats low = load_floats(u), high = load_floats(u + 16);
    for (size_t part = 0; part < parts; part++)
        for (size_t i = 0; i < n; i += FOUR) {
            floats v[FOUR * HALVES];
            for (size_t k = 0; k < FOUR; k++) { /* beyond n the last one again, which nobody looks at */
                packed_at b = block_of(w, type, false, row_block, first + (i + k < n ? i + k : n - 1));
                v[HALVES * k] = times(low, scales_of(b, type, 0, part));
                v[HALVES * k + 1] = times(high, scales_of(b, type, 1, part));
                if (type == NUMBER_Q4_K)
                    to->min[i + k] = sum_floats(times_plus(high, mins_of(b, 1), times(low, mins_of(b, 0))));
            }
            round_four(v, to->byte[part][i], &to->scale[part][i]);
            starts_of_four(to->byte[part][i], offset_of(type), true, &to->start[part][i]);
        }
}

/* The sums of a block's columns of sets [first, last), for MB vectors. */
PACKED_INLINE void turned_sums(number_type type, const uint8_t *weights, size_t first, size_t last,
                               turned_block t[HALVES][TOGETHER], int MB, ints sum[SETS][TOGETHER])
{
    for (size_t j = first; j < last; j++)
        for (int m = 0; m < MB; m++) sum[j][m] = t[part_of(type, j)][m].start;
    for (size_t i = 0; i < 2; i++) {
        cell w[SETS][2];
        for (size_t j = first; j < last; j++) load_pair(type, weights, i, j, true, w[j]);
        for (size_t k = 0; k < 2; k++)
            for (size_t j = first; j < last; j++)
                for (int m = 0; m < MB; m++)
                    sum[j][m] = dot(sum[j][m], w[j][k], t[part_of(type, j)][m].u[i + 2 * k], type == NUMBER_Q8_0);
    }
}

/* Rows of one block of rows of MB vectors: the vectors' numbers if scales are to be folded in, else the numbers rounded. */
typedef struct back_rows {
    size_t row_block;
    const float *u[TOGETHER];
    const int8_t *byte[TOGETHER];
    const int32_t *start[TOGETHER];
    float scale[TOGETHER];
} back_rows;

/* Columns of sets [first, last) of one block of W, 16 or 32, into their place among the 32 numbers of each out[m]. */
PACKED_INLINE void back_packed_sets(packed_at b, number_type type, size_t first, size_t last, turned_block t[HALVES][TOGETHER],
                                    const float scale[HALVES][TOGETHER], const float min[TOGETHER], int MB,
                                    float *const out[TOGETHER])
{
    ints sum[SETS][TOGETHER];
    if (MB == 1) { /* side by side, so that there are sums enough to hide the latency of one */
        turned_sums(type, b.weights, first, last, t, MB, sum);
    } else {
        turned_sums(type, b.weights, first, first + 1, t, MB, sum);
        turned_sums(type, b.weights, first + 1, first + 2, t, MB, sum);
    }
    for (size_t h = first / 2; h < last / 2; h++)
        for (int m = 0; m < MB; m++) {
            floats y = load_floats(out[m] + 16 * h);
            if (type == NUMBER_Q4_K) y = minus_times(splat_floats(min[m]), splat_floats(1.0f), y);
            floats by = splat_floats(scale[part_of(type, 2 * h)][m]);
            store_floats(out[m] + 16 * h, times_plus(pair_sums(sum[2 * h][m], sum[2 * h + 1][m]), by, y));
        }
}

PACKED_INLINE void back_packed_block(packed_at b, number_type type, turned_block t[HALVES][TOGETHER],
                                     const float scale[HALVES][TOGETHER], const float min[TOGETHER], int MB,
                                     float *const out[TOGETHER])
{
    if (MB == 1) {
        back_packed_sets(b, type, 0, SETS, t, scale, min, MB, out);
    } else { /* what registers have room for */
        back_packed_sets(b, type, 0, 2, t, scale, min, MB, out);
        back_packed_sets(b, type, 2, SETS, t, scale, min, MB, out);
    }
}

/* Into the 32 n numbers of each out[m], which are the columns of blocks [first, first + n). */
PACKED_INLINE void back_packed_even(const packed *w, number_type type, const back_rows *rows, size_t first, size_t n,
                                    size_t ahead, int MB, float *const out[TOGETHER])
{
    turned_block t[HALVES][TOGETHER];
    for (int m = 0; m < MB; m++) t[0][m] = t[1][m] = spread_block(type, rows->byte[m], rows->start[m]);
    for (size_t c = 0; c < n; c++) {
        packed_at b = block_of(w, type, true, rows->row_block, first + c);
        fetch_ahead(b, ahead);
        float scale[HALVES][TOGETHER], *to[TOGETHER];
        for (int m = 0; m < MB; m++) {
            scale[0][m] = b.block_scale * rows->scale[m];
            to[m] = out[m] + c * PACKED_BLOCK;
        }
        back_packed_block(b, type, t, (const float(*)[TOGETHER])scale, NULL, MB, to);
    }
}

PACKED_INLINE void back_packed_folded(const packed *w, number_type type, const back_rows *rows, size_t first, size_t n,
                                      size_t ahead, int MB, float *const out[TOGETHER])
{
    folded f[TOGETHER];
    for (int m = 0; m < MB; m++) fold_scales(&f[m], w, type, rows->u[m], rows->row_block, first, n);
    for (size_t c = 0; c < n; c++) {
        turned_block t[HALVES][TOGETHER];
        float scale[HALVES][TOGETHER], min[TOGETHER], *to[TOGETHER];
        for (int m = 0; m < MB; m++) {
            for (size_t h = 0; h < HALVES; h++) {
                size_t part = part_of(type, 2 * h);
                t[h][m] = spread_block(type, f[m].byte[part][c], f[m].start[part][c]);
                scale[h][m] = f[m].scale[part][c];
            }
            if (type == NUMBER_Q4_K) min[m] = f[m].min[c];
            to[m] = out[m] + c * PACKED_BLOCK;
        }
        packed_at b = block_of(w, type, false, rows->row_block, first + c);
        fetch_ahead(b, ahead);
        back_packed_block(b, type, t, (const float(*)[TOGETHER])scale, min, MB, to);
    }
}

/* One block of rows of MB vectors into the columns of blocks [first, last). at[m] is where in `u` a vector's rows are. */
PACKED_INLINE void back_packed_row(const product *p, number_type type, bool even, activations *u, const size_t *at,
                                   size_t row_block, size_t first, size_t last, size_t vector, size_t ahead, int MB)
{
    const packed of_w = *p->w->packed, *w = &of_w; /* copies: as far as the compiler knows, out may lie over them */
    const product part = *p;
    back_rows rows = {.row_block = row_block};
    float row_edge[TOGETHER][PACKED_BLOCK], column_edge[TOGETHER][PACKED_BLOCK];
    for (int m = 0; m < MB; m++) {
        if (even) {
            rows.byte[m] = u->byte + at[m] * PACKED_BLOCK;
            rows.start[m] = u->start[at[m]][0];
            rows.scale[m] = u->scale[at[m]];
        } else {
            rows.u[m] = block_numbers(part.in + (vector + (size_t)m) * part.in_stride, row_block, 1, part.first_row,
                                      part.last_row, row_edge[m]);
        }
    }
    for (size_t c = first, n; c < last; c += n) {
        float *out[TOGETHER], *all = part.out + vector * part.out_stride;
        size_t whole = part.last_col / PACKED_BLOCK < last ? part.last_col / PACKED_BLOCK : last; /* up to there, if c is */
        bool edge = c * PACKED_BLOCK < part.first_col || c >= whole;
        n = edge ? 1 : even || whole - c < RUN ? whole - c : RUN;
        for (int m = 0; m < MB; m++) {
            out[m] = all + (size_t)m * part.out_stride + c * PACKED_BLOCK;
            if (edge)
                out[m] = open_outputs(all + (size_t)m * part.out_stride, c, part.first_col, part.last_col, column_edge[m]);
        }
        if (even)
            back_packed_even(w, type, &rows, c, n, ahead, MB, out);
        else
            back_packed_folded(w, type, &rows, c, n, ahead, MB, out);
        for (int m = 0; edge && m < MB; m++)
            close_outputs(all + (size_t)m * part.out_stride, c, part.first_col, part.last_col, column_edge[m]);
    }
}

PACKED_INLINE void back_packed_rows(const product *p, number_type type, bool even, activations *u, size_t first_row,
                                    size_t last_row, size_t first_col, size_t last_col, size_t vector, size_t count)
{
    size_t ahead = ahead_of(p->w->packed, count);
    for (size_t r = first_row; r < last_row; r++) {
        size_t v = 0, at[TOGETHER];
        for (; v + TOGETHER <= count; v += TOGETHER) {
            for (size_t m = 0; m < TOGETHER; m++) at[m] = (v + m) * (last_row - first_row) + r - first_row;
            back_packed_row(p, type, even, u, at, r, first_col, last_col, vector + v, v == 0 ? ahead : 0, TOGETHER);
        }
        for (; v < count; v++) {
            at[0] = v * (last_row - first_row) + r - first_row;
            back_packed_row(p, type, even, u, at, r, first_col, last_col, vector + v, v == 0 ? ahead : 0, 1);
        }
    }
}

PACKED_INLINE void back_packed_as(const product *p, number_type type, bool even)
{
    size_t first_col = p->first_col / PACKED_BLOCK, last_col = (p->last_col + PACKED_BLOCK - 1) / PACKED_BLOCK;
    size_t last_row = (p->last_row + PACKED_BLOCK - 1) / PACKED_BLOCK;
    activations u;
    for (size_t m = 0; m < p->count; m += BATCH) {
        size_t count = p->count - m < BATCH ? p->count - m : BATCH;
        size_t rows = ROUNDED / PACKED_BLOCK / count, columns = count > TOGETHER ? NEAR : last_col - first_col + 1;
        for (size_t r = p->first_row / PACKED_BLOCK; r < last_row; r += rows) {
            size_t end = r + rows < last_row ? r + rows : last_row;
            if (even) round_vectors(&u, type, p->in + m * p->in_stride, p->in_stride, count, r, end, p->first_row, p->last_row);
            for (size_t c = first_col; c < last_col; c += columns)
                back_packed_rows(p, type, even, &u, r, end, c, c + columns < last_col ? c + columns : last_col, m, count);
        }
    }
}

/* ---- By type ------------------------------------------------------------------------------------------------------ */

PACKED_INLINE void start_from_zero(const product *p, size_t first, size_t last)
{
    for (size_t m = 0; m < p->count; m++) memset(p->out + m * p->out_stride + first, 0, (last - first) * sizeof(float));
}

static void project_q8_0(const product *p)
{
    project_packed_as(p, NUMBER_Q8_0, false);
}

static void project_q8_0_even(const product *p)
{
    project_packed_as(p, NUMBER_Q8_0, true);
}

static void project_q4_0(const product *p)
{
    project_packed_as(p, NUMBER_Q4_0, false);
}

static void project_q4_0_even(const product *p)
{
    project_packed_as(p, NUMBER_Q4_0, true);
}

static void project_q4_k(const product *p)
{
    project_packed_as(p, NUMBER_Q4_K, false);
}

static void project_q6_k(const product *p)
{
    project_packed_as(p, NUMBER_Q6_K, false);
}

static void back_q8_0(const product *p)
{
    back_packed_as(p, NUMBER_Q8_0, false);
}

static void back_q8_0_even(const product *p)
{
    back_packed_as(p, NUMBER_Q8_0, true);
}

static void back_q4_0(const product *p)
{
    back_packed_as(p, NUMBER_Q4_0, false);
}

static void back_q4_0_even(const product *p)
{
    back_packed_as(p, NUMBER_Q4_0, true);
}

static void back_q4_k(const product *p)
{
    back_packed_as(p, NUMBER_Q4_K, false);
}

static void back_q6_k(const product *p)
{
    back_packed_as(p, NUMBER_Q6_K, false);
}

/* By type, from NUMBER_Q8_0 on, and whether the matrix is even. */
typedef void packed_product(const product *p);
static packed_product *const projects[][2] = {
    {project_q8_0, project_q8_0_even}, {project_q4_0, project_q4_0_even}, {project_q4_k, NULL}, {project_q6_k, NULL}};
static packed_product *const backs[][2] = {
    {back_q8_0, back_q8_0_even}, {back_q4_0, back_q4_0_even}, {back_q4_k, NULL}, {back_q6_k, NULL}};

static void project_packed(const product *p)
{
    if (!p->add) start_from_zero(p, p->first_row, p->last_row);
    projects[p->w->type - NUMBER_Q8_0][p->w->packed->even](p);
}

static void project_back_packed(const product *p)
{
    if (!p->add) start_from_zero(p, p->first_col, p->last_col);
    backs[p->w->type - NUMBER_Q8_0][p->w->packed->even](p);
}
