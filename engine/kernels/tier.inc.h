/* tier.inc.h: the kernels, written once over vectors of LANES floats and compiled once for each instruction set by a
 * tier_*.c file, which defines TIER (a name), LANES, loads of 16 bits and of a part of a vector, fused multiply-adds, and the
 * products of packed matrices (packed.inc.h). GCC's and clang's vector types turn each operation into the tier's own
 * instructions; multiply-adds are fused where the tier has them.
 *
 * Order of the sums. project: lane l of a row's accumulator takes columns l, l+LANES, ... in order; the lanes are then
 * added as a fixed tree. project_back: a column takes rows in order, in groups of PRODUCT_GROUP rows whose sums are added in
 * order (which keeps the rounding error of a long sum down). Neither depends on the blocking below. */
#include "inline.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#define VECTOR_BYTES (LANES * 4)
typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VECTOR_BYTES)));

/* Blocking, by the number of vector registers (32 or 16): ROWS x MANY accumulators of a project, COLUMNS x MANY of a
 * project_back, or up to REST x MANY of the last columns, ALONE for a single vector. */
enum { MANY = LANES == 16 ? 4 : 2, ROWS = LANES == 16 ? 4 : 6, COLUMNS = LANES == 16 ? 4 : 6, REST = 6, ALONE = 8 };

/* How many rows further down a single vector's halves are fetched: what is read of a row is too short, and the next too far
 * away, for the CPU to see where it goes on. */
enum { FORTH_AHEAD = ALONE, BACK_AHEAD = 16 };

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vf splat(float f)
{
    return f - (vf){0}; /* f as it is: 0 + f would have to be added, since it makes 0 of -0 */
}

/* Column c of a row, the `at`-th of those that are read on end: once for every 64 bytes. */
INLINE void fetch_halves(const char *row, number_type type, size_t c, size_t at)
{
    if (type != NUMBER_F32 && at % 32 == 0) __builtin_prefetch(row + c * 2);
}

/* LANES numbers of a row from column c on. */
INLINE vf load_weights(const char *row, number_type type, size_t c)
{
    const uint16_t *half = (const uint16_t *)(const void *)row + c;
    if (type == NUMBER_F32) return load((const float *)(const void *)row + c);
    return type == NUMBER_F16 ? (vf)load_f16(half) : (vf)load_bf16(half);
}

/* The first n of them, 1 to LANES, and zeros. */
INLINE vf load_some_weights(const char *row, number_type type, size_t c, size_t n)
{
    const uint16_t *half = (const uint16_t *)(const void *)row + c;
    if (type == NUMBER_F32) return (vf)load_some((const float *)(const void *)row + c, n);
    return type == NUMBER_F16 ? (vf)load_some_f16(half, n) : (vf)load_some_bf16(half, n);
}

/* Numbers from i on, of n; zeros behind them. */
INLINE vf load_tail(const float *p, size_t i, size_t n)
{
    return __builtin_expect(i + LANES <= n, 1) ? load(p + i) : (vf)load_some(p + i, n - i);
}

INLINE void store_tail(float *p, vf v, size_t i, size_t n)
{
    if (__builtin_expect(i + LANES <= n, 1))
        store(p + i, v);
    else
        store_some(p + i, v, n - i);
}

/* p and q hold `size` lanes of each of several accumulators: the upper half of each is added to the lower, those of p first. */
INLINE vf add_halves(vf p, vf q, int size)
{
    switch (size) {
#if LANES == 16
    case 16:
        return __builtin_shufflevector(p, q, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
               __builtin_shufflevector(p, q, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    case 8:
        return __builtin_shufflevector(p, q, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               __builtin_shufflevector(p, q, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    case 4:
        return __builtin_shufflevector(p, q, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
               __builtin_shufflevector(p, q, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    default:
        return __builtin_shufflevector(p, q, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
               __builtin_shufflevector(p, q, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif LANES == 8
    case 8:
        return __builtin_shufflevector(p, q, 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(p, q, 4, 5, 6, 7, 12, 13, 14, 15);
    case 4:
        return __builtin_shufflevector(p, q, 0, 1, 4, 5, 8, 9, 12, 13) +
               __builtin_shufflevector(p, q, 2, 3, 6, 7, 10, 11, 14, 15);
    default:
        return __builtin_shufflevector(p, q, 0, 2, 4, 6, 8, 10, 12, 14) +
               __builtin_shufflevector(p, q, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    case 4:
        return __builtin_shufflevector(p, q, 0, 1, 4, 5) + __builtin_shufflevector(p, q, 2, 3, 6, 7);
    default:
        return __builtin_shufflevector(p, q, 0, 2, 4, 6) + __builtin_shufflevector(p, q, 1, 3, 5, 7);
#endif
    }
}

/* Of n accumulators with `size` lanes each, half as many vectors of those with half as many lanes. */
INLINE int add_level(vf *part, int n, int size)
{
    if (n == 1) part[0] = add_halves(part[0], part[0], size);
    for (int i = 0; i < n / 2; i++) part[i] = add_halves(part[2 * i], part[2 * i + 1], size);
    return n > 1 ? n / 2 : 1;
}

/* The lanes of n accumulators added up, sum i in lane i; n is a power of two, at most LANES, and a constant where it is called.
 * Each is the same tree: the upper half of the lanes to the lower, down to one. */
INLINE vf sum_lanes(vf *part, int n)
{
    n = add_level(part, n, LANES);
    n = add_level(part, n, LANES / 2);
    if (LANES > 4) n = add_level(part, n, LANES / 4);
    if (LANES > 8) n = add_level(part, n, LANES / 8);
    return part[0];
}

typedef float four __attribute__((vector_size(16)));

/* Lanes 0 to 3, or where there are so many and `from` is 4, lanes 4 to 7. */
INLINE four four_lanes(vf v, int from)
{
#if LANES >= 8
    if (from == 4) return __builtin_shufflevector(v, v, 4, 5, 6, 7);
#endif
    (void)from;
    return __builtin_shufflevector(v, v, 0, 1, 2, 3);
}

/* ---- W x ------------------------------------------------------------------------------------------------------- */

/* Some vectors of a product of floats: project's rows [first, last) of W, or project_back's columns. */
typedef struct some_vectors {
    const matrix *w;
    const float *in; /* of a project x [..][cols], else u [..][rows] */
    size_t in_stride;
    float *out;
    size_t out_stride, first, last;
    bool add;
} some_vectors;

/* By type and how many vectors, 1 to MANY, in a table `name`_parts. Each is a function of its own: in one, loops need more
 * addresses than there are registers. */
typedef void typed_part(const some_vectors *p);
#define TYPED_PART(name, all, type, MB)                                                                                        \
    static __attribute__((noinline)) void name##_##MB(const some_vectors *p)                                                   \
    {                                                                                                                          \
        all(p, type, MB);                                                                                                      \
    }
#if LANES == 16
#define EACH_COUNT(name, all, type)                                                                                            \
    TYPED_PART(name, all, type, 1)                                                                                             \
    TYPED_PART(name, all, type, 2)                                                                                             \
    TYPED_PART(name, all, type, 3)                                                                                             \
    TYPED_PART(name, all, type, 4)
#define COUNTS(name) name##_1, name##_2, name##_3, name##_4
#else
#define EACH_COUNT(name, all, type)                                                                                            \
    TYPED_PART(name, all, type, 1)                                                                                             \
    TYPED_PART(name, all, type, 2)
#define COUNTS(name) name##_1, name##_2
#endif
#define TYPED_PARTS(name, all)                                                                                                 \
    EACH_COUNT(name##_f32, all, NUMBER_F32)                                                                                    \
    EACH_COUNT(name##_f16, all, NUMBER_F16)                                                                                    \
    EACH_COUNT(name##_bf16, all, NUMBER_BF16)                                                                                  \
    static typed_part *const name##_parts[][MANY] = {                                                                          \
        [NUMBER_F32] = {COUNTS(name##_f32)}, [NUMBER_F16] = {COUNTS(name##_f16)}, [NUMBER_BF16] = {COUNTS(name##_bf16)}};

/* All `count` vectors through one such function after the other, as many at a time as go together. */
INLINE void in_parts(some_vectors p, typed_part *const parts[MANY], size_t count)
{
    for (; count >= MANY; count -= MANY) {
        parts[MANY - 1](&p);
        p.in += MANY * p.in_stride;
        p.out += MANY * p.out_stride;
    }
    if (count > 0) parts[count - 1](&p);
}

/* out[r] (+)= the lanes of sum[r][m] added up, for r from `first` on, n of them as sum_lanes takes them. */
INLINE void put_sums(vf sum[ALONE][MANY], int m, int first, int n, float *out, bool add)
{
    vf part[ALONE];
    for (int i = 0; i < n; i++) part[i] = sum[first + i][m];
    vf total = sum_lanes(part, n);
    for (int i = 0; i + 4 <= n; i += 4) { /* in one piece, as who reads them next would wait for several */
        four old, value = four_lanes(total, i);
        if (add) {
            memcpy(&old, out + first + i, sizeof old);
            value = old + value;
        }
        memcpy(out + first + i, &value, sizeof value);
    }
    for (int i = n - n % 4; i < n; i++) out[first + i] = add ? out[first + i] + total[i] : total[i];
}

/* RB rows of W against MB vectors; both are constants where it is called, so the accumulators stay in registers. */
INLINE void project_block(const some_vectors *p, number_type type, size_t row, int RB, int MB)
{
    vf sum[ALONE][MANY];
    for (int r = 0; r < RB; r++)
        for (int m = 0; m < MB; m++) sum[r][m] = (vf){0};
    const matrix *w = p->w;
    const float *x = p->in;
    const char *rows[ALONE];
    for (int r = 0; r < RB; r++) rows[r] = (const char *)w->data + (row + (size_t)r) * w->stride;
    size_t cols = w->cols, whole = cols - cols % LANES, x_stride = p->in_stride;
    for (size_t c = 0; c < whole; c += LANES) {
        vf xv[MANY];
        for (int m = 0; m < MB; m++) xv[m] = load(x + (size_t)m * x_stride + c);
        for (int r = 0; r < RB; r++) {
            vf wv = load_weights(rows[r], type, c);
            if (RB == ALONE) fetch_halves(rows[r] + FORTH_AHEAD * w->stride, type, c, c);
            if (MB > 1) wv = in_register(wv);
            for (int m = 0; m < MB; m++) sum[r][m] = times_plus_f32(wv, xv[m], sum[r][m]);
        }
    }
    if (whole < cols) {
        for (int r = 0; r < RB; r++) {
            vf wv = load_some_weights(rows[r], type, whole, cols - whole);
            for (int m = 0; m < MB; m++) {
                vf xv = load_some(x + (size_t)m * x_stride + whole, cols - whole);
                sum[r][m] = times_plus_f32(wv, xv, sum[r][m]);
            }
        }
    }
    int set = RB == 8 && LANES >= 8 ? 8 : RB >= 4 ? 4 : 1; /* RB is 8, 6, 4 or 1: one or two sets */
    for (int m = 0; m < MB; m++) {
        put_sums(sum, m, 0, set, p->out + (size_t)m * p->out_stride + row, p->add);
        if (RB > set) put_sums(sum, m, set, RB - set, p->out + (size_t)m * p->out_stride + row, p->add);
    }
}

INLINE void project_rows(const some_vectors *p, number_type type, int MB)
{
    size_t r = p->first;
    for (; MB == 1 && r + ALONE <= p->last; r += ALONE) project_block(p, type, r, ALONE, 1);
    for (; r + ROWS <= p->last; r += ROWS) project_block(p, type, r, ROWS, MB);
    for (; r < p->last; r++) project_block(p, type, r, 1, MB);
}

TYPED_PARTS(project, project_rows)

/* With several times as many, a band of W that stays in the first cache level meets them all before the next one is read. */
static void project_typed(some_vectors p, size_t count)
{
    size_t first = p.first, last = p.last, band = last - first;
    if (count > MANY) band = 16384 / (p.w->cols * number_bytes(p.w->type) + 1) / (2 * ROWS) * (2 * ROWS);
    if (band < 2 * ROWS) band = 2 * ROWS;
    for (p.first = first; p.first < last; p.first = p.last) {
        p.last = p.first + band < last ? p.first + band : last;
        in_parts(p, project_parts[p.w->type], count);
    }
}

/* ---- Rows of blocks ---------------------------------------------------------------------------------------------
 *
 * A piece at a time becomes floats, which stay in the first cache level, and is multiplied as such. Where pieces end depends
 * on the shape alone. */

enum { PIECE = 4096 }; /* numbers of a piece */

INLINE void block_floats(const q8_block *block, int first, int n, float *x)
{
    for (int i = 0; i < n; i++) x[i] = (float)block->quant[first + i] * block->scale;
}

/* Columns [first, first + n) of a row. */
static void row_floats(const matrix *w, size_t row, size_t first, size_t n, float *x)
{
    const q8_block *block = (const q8_block *)(const void *)((const char *)w->data + row * w->stride);
    size_t at = w->first + first, inside = at % Q8_BLOCK;
    block += at / Q8_BLOCK;
    if (inside > 0) {
        size_t some = Q8_BLOCK - inside < n ? Q8_BLOCK - inside : n;
        block_floats(block++, (int)inside, (int)some, x);
        x += some;
        n -= some;
    }
    for (; n >= Q8_BLOCK; n -= Q8_BLOCK, x += Q8_BLOCK) block_floats(block++, 0, Q8_BLOCK, x);
    if (n > 0) block_floats(block, 0, (int)n, x);
}

static void project_blocks(const product *p)
{
    float piece[PIECE];
    for (size_t c = p->first_col; c < p->last_col; c += PIECE) {
        size_t cols = p->last_col - c < PIECE ? p->last_col - c : PIECE, at_once = PIECE / cols;
        bool add = p->add || c > p->first_col;
        for (size_t first = p->first_row; first < p->last_row; first += at_once) {
            size_t rows = p->last_row - first < at_once ? p->last_row - first : at_once;
            matrix w = {.data = piece, .type = NUMBER_F32, .rows = rows, .cols = cols, .stride = cols * sizeof *piece};
            for (size_t r = 0; r < rows; r++) row_floats(p->w, first + r, c, cols, piece + r * cols);
            const some_vectors all = {&w, p->in + c, p->in_stride, p->out + first, p->out_stride, 0, rows, add};
            project_typed(all, p->count);
        }
    }
}

static void project(const product *p)
{
    if (p->w->packed) {
        project_packed(p);
        return;
    }
    if (p->w->type == NUMBER_Q8_ROWS) {
        project_blocks(p);
        return;
    }
    matrix w = *p->w; /* the columns asked for */
    w.data = (const char *)w.data + p->first_col * number_bytes(w.type);
    w.cols = p->last_col - p->first_col;
    const some_vectors all = {&w, p->in + p->first_col, p->in_stride, p->out, p->out_stride, p->first_row, p->last_row, p->add};
    project_typed(all, p->count);
}

/* ---- W^T u ------------------------------------------------------------------------------------------------------ */

/* NV vectors of columns from `col` on, MB vectors u, all rows of W. `whole` says that every column lies inside W; else the last
 * vector's may be fewer than its lanes. */
INLINE void back_block(const some_vectors *p, number_type type, size_t col, int NV, int MB, bool whole)
{
    const matrix *w = p->w;
    const float *u = p->in;
    vf total[ALONE][MANY] = {{{0}}};
    size_t left = w->cols - col - (size_t)(NV - 1) * LANES, last = left < LANES ? left : LANES; /* numbers of the last vector */
    size_t stride = w->stride, u_stride = p->in_stride;
    for (size_t group = 0; group < w->rows || group == 0; group += PRODUCT_GROUP) {
        size_t end = group + PRODUCT_GROUP < w->rows ? group + PRODUCT_GROUP : w->rows;
        vf sum[ALONE][MANY];
        for (int v = 0; v < NV; v++)
            for (int m = 0; m < MB; m++) sum[v][m] = (vf){0};
        const char *row = (const char *)w->data + group * stride + col * number_bytes(type);
        for (size_t r = group; r < end; r++, row += stride) {
            vf uv[MANY];
            for (int m = 0; m < MB; m++) uv[m] = splat(u[(size_t)m * u_stride + r]);
            for (int v = 0; v < NV; v++) {
                size_t c = (size_t)v * LANES;
                vf wv = whole || v < NV - 1 ? load_weights(row, type, c) : load_some_weights(row, type, c, last);
                if (NV == ALONE) fetch_halves(row + BACK_AHEAD * stride, type, c, c);
                if (MB > 1) wv = in_register(wv);
                for (int m = 0; m < MB; m++) sum[v][m] = times_plus_f32(wv, uv[m], sum[v][m]);
            }
        }
        for (int v = 0; v < NV; v++)
            for (int m = 0; m < MB; m++) total[v][m] = group == 0 ? sum[v][m] : total[v][m] + sum[v][m];
    }
    for (int m = 0; m < MB; m++)
        for (int v = 0; v < NV; v++) {
            float *out = p->out + (size_t)m * p->out_stride + col + (size_t)v * LANES;
            size_t n = whole || v < NV - 1 ? LANES : last;
            store_tail(out, p->add ? load_tail(out, 0, n) + total[v][m] : total[v][m], 0, n);
        }
}

/* Columns from `col` on that NV vectors hold, 1 to ALONE, or with several vectors u to REST, the last of them maybe in part. */
INLINE void back_rest(const some_vectors *p, number_type type, size_t col, size_t NV, int MB)
{
    switch (NV) {
    case 1:
        back_block(p, type, col, 1, MB, false);
        break;
    case 2:
        back_block(p, type, col, 2, MB, false);
        break;
    case 3:
        back_block(p, type, col, 3, MB, false);
        break;
    case 4:
        back_block(p, type, col, 4, MB, false);
        break;
    case 5:
        back_block(p, type, col, 5, MB, false);
        break;
    case 6:
        back_block(p, type, col, 6, MB, false);
        break;
    default:
        if (MB == 1 && NV == 7) back_block(p, type, col, 7, 1, false);
        if (MB == 1 && NV == 8) back_block(p, type, col, 8, 1, false);
    }
}

/* Several vectors of columns at a time, and what is left of them at once, as far as registers go: sums side by side do not
 * wait for each other. */
INLINE void back_columns(const some_vectors *p, number_type type, int MB)
{
    const size_t some = MB == 1 ? ALONE : COLUMNS, rest = MB == 1 ? ALONE : REST;
    size_t c = p->first, left = (p->last - c + LANES - 1) / LANES;
    for (; c + some * LANES <= p->last && (left > rest || left == some); c += some * LANES, left -= some)
        back_block(p, type, c, (int)some, MB, true);
    back_rest(p, type, c, left, MB);
}

TYPED_PARTS(back, back_columns)

/* With several times as many, a band of columns at a time, so that what the first read is still near when the next ones come.
 */
static void back_typed(some_vectors p, size_t count)
{
    size_t first = p.first, last = p.last, band = count > MANY ? COLUMNS * LANES : last - first;
    for (p.first = first; p.first < last; p.first = p.last) {
        p.last = p.first + band < last ? p.first + band : last;
        in_parts(p, back_parts[p.w->type], count);
    }
}

static void back_blocks(const product *p)
{
    enum { COLS = 128, AT_ONCE = PIECE / COLS };
    float piece[PIECE];
    for (size_t c = p->first_col; c < p->last_col; c += COLS) {
        size_t cols = p->last_col - c < COLS ? p->last_col - c : COLS;
        for (size_t first = p->first_row; first < p->last_row; first += AT_ONCE) {
            size_t rows = p->last_row - first < AT_ONCE ? p->last_row - first : AT_ONCE;
            matrix w = {.data = piece, .type = NUMBER_F32, .rows = rows, .cols = cols, .stride = cols * sizeof *piece};
            for (size_t r = 0; r < rows; r++) row_floats(p->w, first + r, c, cols, piece + r * cols);
            bool add = p->add || first > p->first_row;
            const some_vectors all = {&w, p->in + first, p->in_stride, p->out + c, p->out_stride, 0, cols, add};
            back_typed(all, p->count);
        }
    }
}

static void project_back(const product *p)
{
    if (p->w->packed) {
        project_back_packed(p);
        return;
    }
    if (p->w->type == NUMBER_Q8_ROWS) {
        back_blocks(p);
        return;
    }
    matrix w = *p->w; /* the rows asked for */
    w.data = (const char *)w.data + p->first_row * w.stride;
    w.rows = p->last_row - p->first_row;
    const some_vectors all = {&w, p->in + p->first_row, p->in_stride, p->out, p->out_stride, p->first_col, p->last_col, p->add};
    back_typed(all, p->count);
}

/* ---- One vector at a time ---------------------------------------------------------------------------------------- */

enum { PARTS = 8 }; /* partial sums of a norm, in double: a state may be as large as a float can be */

static void layer_norm(const float *x, size_t n, const float *weight, const float *bias, float eps, float *g)
{
    double part[PARTS] = {0};
    for (size_t i = 0; i < n; i++) part[i % PARTS] += (double)x[i];
    double sum = 0;
    for (int p = 0; p < PARTS; p++) sum += part[p];
    double mean = sum / (double)n;
    memset(part, 0, sizeof part);
    for (size_t i = 0; i < n; i++) part[i % PARTS] += ((double)x[i] - mean) * ((double)x[i] - mean);
    double squares = 0;
    for (int p = 0; p < PARTS; p++) squares += part[p];
    double scale = 1.0 / sqrt(squares / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) g[i] = (float)(((double)x[i] - mean) * scale) * weight[i] + bias[i];
}

static void rms_norm(const float *x, size_t n, const float *weight, float eps, float *g)
{
    double part[PARTS] = {0};
    for (size_t i = 0; i < n; i++) part[i % PARTS] += (double)x[i] * (double)x[i];
    double squares = 0;
    for (int p = 0; p < PARTS; p++) squares += part[p];
    double scale = 1.0 / sqrt(squares / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) g[i] = (float)((double)x[i] * scale) * weight[i];
}

INLINE vf where(vi mask, vf yes, vf no)
{
    vi a, b;
    memcpy(&a, &yes, sizeof a);
    memcpy(&b, &no, sizeof b);
    vi bits = (a & mask) | (b & ~mask);
    vf out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* exp(v) for v <= 88, 0 below -87.3, where the result would leave the normal numbers; NaN stays NaN. */
INLINE vf vexp(vf v)
{
    vf x = where(v < -87.3f, splat(-87.3f), v);
    const vf magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
    vf shifted = x * 1.44269504088896341f + magic;
    vi n;
    memcpy(&n, &shifted, sizeof n);
    vf whole = shifted - magic;
    vf r = x - whole * 0.693145751953125f; /* ln 2 in two parts, the first exact in few bits */
    r = r - whole * 1.42860682030941723e-6f;
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    vi exponent = ((n - 0x4b400000) + 127) << 23;
    vf scale;
    memcpy(&scale, &exponent, sizeof scale);
    return where(v < -87.3f, splat(0.0f), p * scale);
}

/* Cdf N(z) and density n(z) of the normal distribution: N(-|z|) = n(z) * t * (polynomial of t), t = 1 / (1 + 0.35 |z|), a
 * least-maximum fit of Mills' ratio on [0, 13.5] with relative error 3.2e-8. */
INLINE void normal(vf z, vf *cdf, vf *density)
{
    vf a = where(z < 0.0f, -z, z);
    a = where(a > 13.5f, splat(13.5f), a);
    vf t = 1.0f / (1.0f + 0.35f * a);
    vf e = vexp(-0.5f * a * a) * 0.398942280401432678f;
    vf p = splat(-0.07300842662365417f);
    p = p * t + 0.360637591636431f;
    p = p * t - 0.6404617570971246f;
    p = p * t + 0.3983841406845492f;
    p = p * t - 0.057499801637911824f;
    p = p * t + 0.26428314331096925f;
    p = p * t + 0.30042504784113355f;
    p = p * t + 0.3505747876763207f;
    p = p * t + 0.34997937171623894f;
    vf tail = e * t * p;
    *density = e;
    *cdf = where(z < 0.0f, tail, 1.0f - tail);
}

static void gelu(const float *z, size_t n, float *value, float *slope)
{
    for (size_t i = 0; i < n; i += LANES) {
        vf v = load_tail(z, i, n), cdf, density;
        normal(v, &cdf, &density);
        store_tail(value, v * cdf, i, n);
        store_tail(slope, cdf + v * density, i, n);
    }
}

static void silu(const float *z, size_t n, float *value)
{
    for (size_t i = 0; i < n; i += LANES) {
        vf v = load_tail(z, i, n);
        vf a = where(v < 0.0f, v, -v); /* -|v|: the exponential stays at most 1 */
        vf e = vexp(a);
        store_tail(value, v * where(v < 0.0f, e, splat(1.0f)) / (1.0f + e), i, n);
    }
}

INLINE float max_of(const float *a, size_t n)
{
    float lane[LANES];
    for (int l = 0; l < LANES; l++) lane[l] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = a[i + (size_t)l] > lane[l] ? a[i + (size_t)l] : lane[l];
    for (; i < n; i++) lane[0] = a[i] > lane[0] ? a[i] : lane[0];
    for (int l = 1; l < LANES; l++) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

INLINE vi lane_numbers(void)
{
    vi number;
    for (int l = 0; l < LANES; l++) number[l] = l;
    return number;
}

static float softmax(float *a, size_t n)
{
    if (n == 0) return 0;
    float max = max_of(a, n);
    vf sum = {0};
    for (size_t i = 0; i < n; i += LANES) {
        vf v = load_tail(a, i, n) - max;
        if (i + LANES > n) v = where(lane_numbers() < (int)(n - i), v, splat(-INFINITY));
        vf e = vexp(v);
        store_tail(a, e, i, n);
        sum += e;
    }
    float total = sum_lanes(&sum, 1)[0], inverse = 1.0f / total;
    for (size_t i = 0; i < n; i++) a[i] *= inverse;
    return max + logf(total);
}

static void from_f16(const uint16_t *h, size_t n, float *x)
{
    for (size_t i = 0; i < n; i += LANES) {
        vf v = i + LANES <= n ? (vf)load_f16(h + i) : (vf)load_some_f16(h + i, n - i);
        store_tail(x, v, i, n);
    }
}

static void to_bf16(const float *x, size_t n, uint16_t *b)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40u;
        b[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}

static void to_q8(const float *x, size_t n, q8_block *blocks)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    for (size_t first = 0; first < n; first += Q8_BLOCK, blocks++) {
        float values[Q8_BLOCK] = {0}, largest = 0;
        memcpy(values, x + first, (n - first < Q8_BLOCK ? n - first : Q8_BLOCK) * sizeof(float));
        for (int i = 0; i < Q8_BLOCK; i++) largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
        float scale = largest / 127.0f, divisor = scale > 0 ? scale : 1.0f;
        blocks->scale = scale;
        for (int i = 0; i < Q8_BLOCK; i++) {
            float quant = values[i] / divisor + magic - magic; /* a scale that is subnormal is inexact: up to 190 of them */
            quant = quant > 127.0f ? 127.0f : quant < -127.0f ? -127.0f : quant;
            blocks->quant[i] = (int8_t)quant;
        }
    }
}

const kernels TIER_TABLE = {
    .name = TIER,
    .project = project,
    .project_back = project_back,
    .layer_norm = layer_norm,
    .rms_norm = rms_norm,
    .gelu = gelu,
    .silu = silu,
    .softmax = softmax,
    .to_f16 = to_f16,
    .from_f16 = from_f16,
    .to_bf16 = to_bf16,
    .to_q8 = to_q8,
};
