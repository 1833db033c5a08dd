/* packed.inc.h: both products of a packed matrix, written once over 16 lanes and compiled for each instruction set, with what
 * one of packed_*.inc.h defines: cells of 64 bytes, turn (which transposes a cell), dot (which adds to each lane four products
 * of bytes), a few operations on floats and on words of 16 bits, and PACKED_INLINE. Included by tier_*.c.
 *
 * A block of 32 x 32 weights is 4 x 4 cells, and a cell turned is a cell of the transposed block. So both products are one: the
 * sums of a block's 32 outputs with 32 activations are exact integers; then they are scaled, and added to what is in `out`.
 * Blocks go in the order of what is summed over, whatever the blocking below.
 *
 * A block's 16 cells stay in registers, where there are so many, while the vectors go by: each costs 16 dots, and what else is
 * done for it goes beside them. */
#include "packed_layout.h"

#include <string.h>

enum {
    BATCH = 16,        /* vectors rounded at a time, */
    ROUNDED = 1 << 15, /* and numbers, of all of them */
    NEAR = 8,          /* blocks along the outer loop that stay in the first cache level while all vectors go by */
    FOUR = 4,          /* blocks rounded at a time, */
    RUN = 32,          /* and blocks that scales are folded into before the first of them is used */
    FEW = 4,           /* vectors for which weights are walked along as they lie in memory */
    AHEAD = 8192,      /* bytes of weights that are fetched before they are used */
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

/* How many scales a row of a block has, each for a part of the columns. */
PACKED_INLINE size_t parts_of(number_type type)
{
    return type == NUMBER_Q6_K ? HALVES : 1;
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

/* A block's cells as bytes: cell (i, j). */
typedef struct block_cells {
    cell cell[SETS][SETS];
} block_cells;

/* A line of weights. What lies `ahead` bytes further on is asked for, one line for each that is loaded: those of a whole block
 * at once would wait for each other. */
PACKED_INLINE cell load_line(const uint8_t *from, size_t ahead, bool turned)
{
    __builtin_prefetch(from + ahead);
    cell c = load_cell(from);
    return turned ? turn(c) : c;
}

/* Of cells that share lines, (i, j) and (i + 2, j), i < 2. */
PACKED_INLINE void load_shared(number_type type, const uint8_t *block, size_t j, size_t ahead, bool turned, block_cells *w)
{
    for (size_t i = 0; i < 2; i++) {
        cell both = load_line(block + (j * 2 + i) * PACKED_CELL, ahead, turned);
        w->cell[i][j] = lower(both);
        w->cell[i + 2][j] = upper(both);
    }
    if (type != NUMBER_Q6_K) return;
    cell crumbs = load_line(block + PACKED_CRUMBS + j * PACKED_CELL, ahead, turned);
    for (size_t i = 0; i < SETS; i++) w->cell[i][j] = with_crumb(w->cell[i][j], crumbs, (int)i);
}

/* All of them, turned or not. */
PACKED_INLINE block_cells load_block(number_type type, const uint8_t *weights, size_t ahead, bool turned)
{
    block_cells w;
    for (size_t j = 0; j < SETS; j++) {
        if (type != NUMBER_Q8_0) {
            load_shared(type, weights, j, ahead, turned, &w);
            continue;
        }
        for (size_t i = 0; i < SETS; i++)
            w.cell[i][j] = signed_cell(load_line(weights + (j * SETS + i) * PACKED_CELL, ahead, turned));
    }
    return w;
}

/* 32 numbers of the outputs of several vectors, `stride` apart. Of those only [first, last) may be looked at, they lie in
 * `edge` instead, unless all are inside. */
typedef struct outputs {
    float *at;
    size_t stride;
    bool edge;
} outputs;

PACKED_INLINE outputs open_outputs(float *out, size_t stride, size_t count, size_t block, size_t first, size_t last,
                                   float edge[BATCH][PACKED_BLOCK])
{
    size_t from = block * PACKED_BLOCK;
    if (__builtin_expect(from >= first && from + PACKED_BLOCK <= last, 1)) return (outputs){out + from, stride, false};
    for (size_t m = 0; m < count; m++)
        for (size_t i = 0; i < PACKED_BLOCK; i++)
            edge[m][i] = from + i >= first && from + i < last ? out[m * stride + from + i] : 0.0f;
    return (outputs){edge[0], PACKED_BLOCK, true};
}

PACKED_INLINE void close_outputs(outputs o, float *out, size_t stride, size_t count, size_t block, size_t first, size_t last)
{
    size_t from = block * PACKED_BLOCK;
    for (size_t m = 0; o.edge && m < count; m++)
        for (size_t i = 0; i < PACKED_BLOCK; i++)
            if (from + i >= first && from + i < last) out[m * stride + from + i] = o.at[m * PACKED_BLOCK + i];
}

/* A matrix's types and layouts, which are constants where the functions below are called. */
typedef struct packed_at {
    const uint8_t *weights, *scales;
    const uint8_t *wide;  /* f16: d[32], and for Q4_K dmin[32] */
    float block_scale;    /* even */
    const float *largest; /* the others: [part] */
} packed_at;

PACKED_INLINE packed_at block_of(const packed *w, number_type type, bool even, size_t row_block, size_t col_block)
{
    size_t at = row_block * w->col_blocks + col_block, super = row_block * w->super_blocks + col_block / PACKED_SUPER;
    packed_at b = {.weights = w->blocks + at * packed_block_bytes(type)};
    if (even)
        b.block_scale = w->block_scale[at];
    else
        b.scales = w->scales + at * PACKED_SCALES;
    if (w->largest) b.largest = w->largest + at * parts_of(type);
    if (type == NUMBER_Q4_K) b.wide = (const uint8_t *)(w->wide + super * 2 * PACKED_BLOCK);
    if (type == NUMBER_Q6_K) b.wide = (const uint8_t *)(w->wide + super * PACKED_BLOCK);
    return b;
}

/* How far ahead weights are fetched while `count` vectors go by. What is read next is next in memory, or if W^T u has many
 * vectors, one block of rows further down. */
PACKED_INLINE size_t ahead_of(const packed *w, size_t count, bool back)
{
    return back && count > FEW ? w->col_blocks * w->block_bytes : AHEAD;
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

/* What the weights of a block are multiplied with before they are added up: of a Q6_K block, for each half of its columns. */
typedef struct block_scales {
    floats scale[HALVES][HALVES], min[HALVES]; /* [part][half of the rows] */
} block_scales;

PACKED_INLINE block_scales load_scales(packed_at b, number_type type, bool even)
{
    block_scales s;
    for (size_t part = 0; part < parts_of(type); part++)
        for (size_t h = 0; h < HALVES; h++) s.scale[part][h] = even ? splat_floats(b.block_scale) : scales_of(b, type, h, part);
    for (size_t h = 0; type == NUMBER_Q4_K && h < HALVES; h++) s.min[h] = mins_of(b, h);
    return s;
}

/* To y, 32 rows, one block's part of one vector, which is rounded at `at`. */
PACKED_INLINE void project_vector(const block_cells *w, number_type type, const block_scales *s, const activations *x,
                                  size_t at, floats y[HALVES])
{
    size_t parts = parts_of(type);
    floats x_scale = splat_floats(x->scale[at]);
    for (size_t part = 0; part < parts; part++) {
        ints sum[SETS];
        for (size_t i = 0; i < SETS; i++) sum[i] = start_of(type, x->start[at][part]);
        for (size_t j = part * SETS / parts; j < (part + 1) * SETS / parts; j++) {
            cell xj = spread(x->byte + at * PACKED_BLOCK + 8 * j);
            for (size_t i = 0; i < SETS; i++) sum[i] = dot(sum[i], w->cell[i][j], xj, type == NUMBER_Q8_0);
        }
        for (size_t h = 0; h < HALVES; h++)
            y[h] = times_plus(pair_sums(sum[2 * h], sum[2 * h + 1]), times(s->scale[part][h], x_scale), y[h]);
    }
    for (size_t h = 0; type == NUMBER_Q4_K && h < HALVES; h++) y[h] = minus_times(s->min[h], splat_floats(x->total[at]), y[h]);
}

/* Rows of one block of rows, over columns of blocks [first, last), which are those rounded in x: of the `count` vectors from
 * `vector` on. What is added to stays in registers while one vector goes by, a block's weights while several do. */
PACKED_INLINE void project_packed_rows(const product *p, number_type type, bool even, const activations *x, size_t row_block,
                                       size_t first, size_t last, size_t vector, size_t count, size_t ahead, bool alone)
{
    const packed of_w = *p->w->packed, *w = &of_w; /* a copy: as far as the compiler knows, out may lie over it */
    float edge[BATCH][PACKED_BLOCK], *all = p->out + vector * p->out_stride;
    const outputs out = open_outputs(all, p->out_stride, count, row_block, p->first_row, p->last_row, edge);
    floats y[HALVES];
    for (size_t h = 0; alone && h < HALVES; h++) y[h] = load_floats(out.at + 16 * h);
    for (size_t b = first; b < last; b++) {
        packed_at here = block_of(w, type, even, row_block, b);
        const block_cells cells = load_block(type, here.weights, ahead, false);
        const block_scales scales = load_scales(here, type, even);
        if (alone) project_vector(&cells, type, &scales, x, b - first, y);
        for (size_t m = 0; !alone && m < count; m++) {
            float *to = out.at + m * out.stride;
            for (size_t h = 0; h < HALVES; h++) y[h] = load_floats(to + 16 * h);
            project_vector(&cells, type, &scales, x, m * (last - first) + b - first, y);
            for (size_t h = 0; h < HALVES; h++) store_floats(to + 16 * h, y[h]);
        }
    }
    for (size_t h = 0; alone && h < HALVES; h++) store_floats(out.at + 16 * h, y[h]);
    close_outputs(out, all, p->out_stride, count, row_block, p->first_row, p->last_row);
}

PACKED_INLINE void project_packed_as(const product *p, number_type type, bool even)
{
    size_t first_row = p->first_row / PACKED_BLOCK, last_row = (p->last_row + PACKED_BLOCK - 1) / PACKED_BLOCK;
    size_t last_col = (p->last_col + PACKED_BLOCK - 1) / PACKED_BLOCK;
    activations x;
    for (size_t m = 0; m < p->count; m += BATCH) {
        size_t count = p->count - m < BATCH ? p->count - m : BATCH;
        size_t chunk = ROUNDED / PACKED_BLOCK / count;
        size_t ahead = ahead_of(p->w->packed, count, false);
        for (size_t b = p->first_col / PACKED_BLOCK; b < last_col; b += chunk) {
            size_t end = b + chunk < last_col ? b + chunk : last_col;
            round_vectors(&x, type, p->in + m * p->in_stride, p->in_stride, count, b, end, p->first_col, p->last_col);
            for (size_t r = first_row; count == 1 && r < last_row; r++)
                project_packed_rows(p, type, even, &x, r, b, end, m, 1, ahead, true);
            for (size_t r = first_row; count > 1 && r < last_row; r++)
                project_packed_rows(p, type, even, &x, r, b, end, m, count, ahead, false);
        }
    }
}

/* ---- W^T u -------------------------------------------------------------------------------------------------------- */

/* Rows of up to BATCH vectors, times the means of their scales: 32 words a block, in the order of the sets. */
typedef struct row_words {
    int16_t word[ROUNDED] __attribute__((aligned(64)));
    float scale[ROUNDED / PACKED_BLOCK];
} row_words;

/* Blocks [first_block, last_block) of `count` vectors, which come to the places round_vectors has them in. */
static void round_rows(row_words *to, const packed *w, const float *in, size_t in_stride, size_t count, size_t first_block,
                       size_t last_block, size_t first, size_t last)
{
    size_t at = 0;
    for (size_t m = 0; m < count; m++)
        for (size_t b = first_block, n; b < last_block; b += n, at += n) {
            float edge[FOUR * PACKED_BLOCK], scale[FOUR];
            int16_t word[FOUR * PACKED_BLOCK] __attribute__((aligned(64)));
            const float *from = block_numbers(in + m * in_stride, b, FOUR, first, last, edge);
            floats v[FOUR * HALVES];
            n = last_block - b < FOUR ? last_block - b : FOUR;
            for (size_t i = 0; i < FOUR * HALVES; i++) {
                size_t row = b * PACKED_BLOCK + 16 * i;
                v[i] = i < n * HALVES ? times(load_floats(from + 16 * i), load_floats(w->row_mean + row)) : splat_floats(0);
            }
            round_words(v, word, scale);
            memcpy(to->word + at * PACKED_BLOCK, word, n * PACKED_BLOCK * sizeof *word);
            memcpy(to->scale + at, scale, n * sizeof *scale);
        }
}

/* What is left of a block's scales, of one part, over the largest of that, as words up to WORD_ONE. */
PACKED_INLINE words load_factors(packed_at b, number_type type, size_t part, const floats inverse_mean[HALVES],
                                 float inverse_largest)
{
    floats v[HALVES];
    for (size_t h = 0; h < HALVES; h++)
        v[h] = times(times(scales_of(b, type, h, part), inverse_mean[h]), splat_floats(inverse_largest));
    return to_words(v[0], v[1]);
}

/* One block of rows of a batch's vectors. */
typedef struct back_rows {
    size_t row_block, count;
    size_t at, step;            /* of the first vector among those rounded, and from one to the next */
    const activations *rounded; /* even */
    const row_words *words;     /* not even, */
    const float *u[BATCH];      /* and for Q4_K the numbers */
} back_rows;

/* What rows of one block are for each of a run of blocks of columns, once the rest of the scales is multiplied in: bytes of all
 * vectors for the first of them, then for the next; of a Q6_K block for the columns of either half. Two lie together: 8 bytes
 * of a set of the one, 8 of the other. `min` is what its mins add up to. */
typedef struct folded {
    int8_t byte[HALVES][RUN][PACKED_BLOCK] __attribute__((aligned(64)));
    int32_t start[HALVES][RUN][2] __attribute__((aligned(64)));
    float scale[HALVES][RUN], min[RUN];
} folded;

PACKED_INLINE float fold_min(packed_at b, const float *u)
{
    return sum_floats(times_plus(load_floats(u + 16), mins_of(b, 1), times(load_floats(u), mins_of(b, 0))));
}

/* n words of 32 rows, and what is there up to a multiple of FOUR, become bytes, and their scales what those count. Each loop is
 * over all: what has to wait for itself would be late otherwise. */
PACKED_INLINE void narrow(folded *to, number_type type, size_t part, int16_t word[RUN][PACKED_BLOCK], size_t n)
{
    int32_t largest[RUN] __attribute__((aligned(64))) = {0}, by[RUN] __attribute__((aligned(64)));
    float unit[RUN];
    for (size_t e = 0; e < n; e += FOUR) largest_of_four(word[e], largest + e);
    for (size_t e = 0; e < n; e += 16) byte_factors(largest + e, by + e, unit + e);
    for (size_t e = 0; e < n; e++) to->scale[part][e] *= unit[e];
    for (size_t e = 0; e < n; e += 2) narrow_pair(word[e], by + e, to->byte[part][e]);
    for (size_t e = 0; e < n; e += FOUR) starts_of_pairs(to->byte[part][e], offset_of(type), &to->start[part][e]);
}

/* For the n blocks of columns from `first` on: n times the vectors are at most RUN. */
PACKED_INLINE void fold_rows(folded *to, const packed *w, number_type type, const back_rows *rows, size_t first, size_t n,
                             bool alone)
{
    const int16_t *u = rows->words->word + rows->at * PACKED_BLOCK;
    const float *scale = rows->words->scale + rows->at;
    size_t count = alone ? 1 : rows->count, step = rows->step, parts = parts_of(type);
    floats inverse_mean[HALVES], least = splat_floats(PACKED_LEAST_MEAN);
    for (size_t h = 0; h < HALVES; h++)
        inverse_mean[h] =
            over(splat_floats(1), larger(load_floats(w->row_mean + rows->row_block * PACKED_BLOCK + 16 * h), least));
    float by[RUN * HALVES];
    for (size_t i = 0; i < n * parts; i += 16) { /* where it is 0, all factors are */
        floats largest = load_floats(block_of(w, type, false, rows->row_block, first).largest + i);
        store_floats(by + i, over(splat_floats(WORD_ONE), larger(largest, least)));
    }
    for (size_t part = 0; part < parts; part++) {
        int16_t word[RUN][PACKED_BLOCK] __attribute__((aligned(64)));
        for (size_t c = 0; c < n; c++) {
            packed_at b = block_of(w, type, false, rows->row_block, first + c);
            words factors = load_factors(b, type, part, inverse_mean, by[c * parts + part]);
            for (size_t m = 0; m < count; m++) {
                store_words(word[c * count + m], fold(load_words(u + m * step * PACKED_BLOCK), factors));
                to->scale[part][c * count + m] = scale[m * step] * b.largest[part];
                if (type == NUMBER_Q4_K) to->min[c * count + m] = fold_min(b, rows->u[m]);
            }
        }
        for (size_t e = n * count; e % FOUR > 0; e++) memcpy(word[e], word[0], sizeof word[0]); /* nobody looks at those */
        narrow(to, type, part, word, n * count);
    }
}

/* One vector's rows as a block's columns meet them: of a Q6_K block those of either half. */
typedef struct turned_rows {
    cell u[HALVES][SETS];
    ints start[HALVES];
    float scale[HALVES], min;
} turned_rows;

PACKED_INLINE turned_rows folded_at(const folded *f, number_type type, size_t at)
{
    turned_rows t;
    for (size_t part = 0; part < parts_of(type); part++) {
        const int8_t *byte = f->byte[part][at - at % 2] + at % 2 * 8;
        for (size_t i = 0; i < SETS; i++) t.u[part][i] = spread(byte + 16 * i);
        t.start[part] = start_of(type, f->start[part][at]);
        t.scale[part] = f->scale[part][at];
    }
    t.min = type == NUMBER_Q4_K ? f->min[at] : 0;
    return t;
}

/* Of vector m of an even matrix. Their scale is yet to be multiplied with that of a block. */
PACKED_INLINE turned_rows rounded_at(const back_rows *rows, number_type type, size_t m)
{
    const activations *a = rows->rounded;
    size_t at = rows->at + m * rows->step;
    turned_rows t;
    for (size_t i = 0; i < SETS; i++) t.u[0][i] = spread(a->byte + at * PACKED_BLOCK + 8 * i);
    t.start[0] = start_of(type, a->start[at][0]);
    t.scale[0] = a->scale[at];
    t.min = 0;
    return t;
}

/* To out, 32 columns, one block's part of one vector, whose scales are times `block_scale`. */
PACKED_INLINE void back_vector(const block_cells *w, number_type type, const turned_rows *t, float block_scale, float *out)
{
    ints sum[SETS];
    for (size_t j = 0; j < SETS; j++) sum[j] = t->start[part_of(type, j)];
    for (size_t i = 0; i < SETS; i++)
        for (size_t j = 0; j < SETS; j++) sum[j] = dot(sum[j], w->cell[i][j], t->u[part_of(type, j)][i], type == NUMBER_Q8_0);
    for (size_t h = 0; h < HALVES; h++) {
        floats y = load_floats(out + 16 * h), by = splat_floats(block_scale * t->scale[part_of(type, 2 * h)]);
        if (type == NUMBER_Q4_K) y = minus_times(splat_floats(t->min), splat_floats(1.0f), y);
        store_floats(out + 16 * h, times_plus(pair_sums(sum[2 * h], sum[2 * h + 1]), by, y));
    }
}

/* One block of rows of a batch's vectors, which begin at `vector`, into the columns of blocks [first, last). */
PACKED_INLINE void back_packed_row(const product *p, number_type type, bool even, const back_rows *rows, size_t first,
                                   size_t last, size_t vector, size_t ahead, bool alone)
{
    const packed of_w = *p->w->packed, *w = &of_w; /* copies: as far as the compiler knows, out may lie over them */
    const product part = *p;
    float edge[BATCH][PACKED_BLOCK], *all = part.out + vector * part.out_stride;
    size_t count = alone ? 1 : rows->count, run = RUN / count;
    folded f;
    for (size_t c = first; c < last; c++) {
        size_t in_run = (c - first) % run;
        if (!even && in_run == 0) fold_rows(&f, w, type, rows, c, last - c < run ? last - c : run, alone);
        outputs out = open_outputs(all, part.out_stride, count, c, part.first_col, part.last_col, edge);
        packed_at b = block_of(w, type, even, rows->row_block, c);
        const block_cells cells = load_block(type, b.weights, ahead, true);
        for (size_t m = 0; m < count; m++) {
            const turned_rows t = even ? rounded_at(rows, type, m) : folded_at(&f, type, in_run * count + m);
            back_vector(&cells, type, &t, even ? b.block_scale : 1, out.at + m * out.stride);
        }
        close_outputs(out, all, part.out_stride, count, c, part.first_col, part.last_col);
    }
}

/* The same of a single vector and an even matrix. Between blocks of which only some columns are asked for there is nothing to
 * be done but to read weights, and to keep up with that nothing else is. */
PACKED_INLINE void back_even_row(const product *p, number_type type, const back_rows *rows, size_t first, size_t last,
                                 size_t vector)
{
    size_t inside = (p->first_col + PACKED_BLOCK - 1) / PACKED_BLOCK, outside = p->last_col / PACKED_BLOCK;
    inside = inside < first ? first : inside < last ? inside : last;
    outside = outside > last ? last : outside > inside ? outside : inside;
    const turned_rows t = rounded_at(rows, type, 0);
    size_t at = rows->row_block * p->w->packed->col_blocks + inside;
    const uint8_t *weights = p->w->packed->blocks + at * packed_block_bytes(type);
    const float *scale = p->w->packed->block_scale + at;
    float *out = p->out + vector * p->out_stride + inside * PACKED_BLOCK;
    back_packed_row(p, type, true, rows, first, inside, vector, AHEAD, true);
    for (size_t c = 0; c < outside - inside; c++) {
        const block_cells cells = load_block(type, weights + c * packed_block_bytes(type), AHEAD, true);
        back_vector(&cells, type, &t, scale[c], out + c * PACKED_BLOCK);
    }
    back_packed_row(p, type, true, rows, outside, last, vector, AHEAD, true);
}

PACKED_INLINE void back_packed_rows(const product *p, number_type type, bool even, const void *rounded, size_t first_row,
                                    size_t last_row, size_t first_col, size_t last_col, size_t vector, size_t count)
{
    size_t ahead = ahead_of(p->w->packed, count, true);
    for (size_t r = first_row; r < last_row; r++) {
        float edge[BATCH][PACKED_BLOCK];
        back_rows rows = {.row_block = r, .count = count, .at = r - first_row, .step = last_row - first_row};
        if (even)
            rows.rounded = rounded;
        else
            rows.words = rounded;
        for (size_t m = 0; type == NUMBER_Q4_K && m < count; m++)
            rows.u[m] = block_numbers(p->in + (vector + m) * p->in_stride, r, 1, p->first_row, p->last_row, edge[m]);
        if (count == 1 && even)
            back_even_row(p, type, &rows, first_col, last_col, vector);
        else if (count == 1)
            back_packed_row(p, type, even, &rows, first_col, last_col, vector, ahead, true);
        else
            back_packed_row(p, type, even, &rows, first_col, last_col, vector, ahead, false);
    }
}

PACKED_INLINE void back_packed_as(const product *p, number_type type, bool even)
{
    size_t first_col = p->first_col / PACKED_BLOCK, last_col = (p->last_col + PACKED_BLOCK - 1) / PACKED_BLOCK;
    size_t last_row = (p->last_row + PACKED_BLOCK - 1) / PACKED_BLOCK;
    union {
        activations bytes;
        row_words words;
    } u;
    for (size_t m = 0; m < p->count; m += BATCH) {
        size_t count = p->count - m < BATCH ? p->count - m : BATCH;
        size_t rows = ROUNDED / PACKED_BLOCK / count, columns = count > FEW ? NEAR : last_col - first_col + 1;
        const float *in = p->in + m * p->in_stride;
        for (size_t r = p->first_row / PACKED_BLOCK; r < last_row; r += rows) {
            size_t end = r + rows < last_row ? r + rows : last_row;
            if (even)
                round_vectors(&u.bytes, type, in, p->in_stride, count, r, end, p->first_row, p->last_row);
            else
                round_rows(&u.words, p->w->packed, in, p->in_stride, count, r, end, p->first_row, p->last_row);
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
