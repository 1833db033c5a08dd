/* products.c: products of weights and a tile's rows, on the team's threads: what is worth sharing, in which parts, and hidden
 * layers in one pass over their weights. Called by the families. Shapes: arrays are [rows of the tile][stride].
 *
 * Parts change no bit: outputs may be cut anywhere on PRODUCT_CUT, and sums over a hidden layer are always those of groups of
 * PRODUCT_GROUP units, whoever forms them. */
#include "batch.h"
#include "kernels/packed.h"

/* ---- Products -------------------------------------------------------------------------------------------------- */

/* Sharing costs a fraction of a microsecond, what the other threads hand over goes from one core's cache to another's, and
 * narrow parts leave the kernels' widest loops unused: less than this is done sooner by one thread. A shared product's part is
 * about LEAST_PART or more. */
enum { WORTH_SHARING = 1 << 18, LEAST_PART = 1 << 15, PARTS_A_THREAD = 4 };

static bool worth_sharing(const tile *t, size_t work)
{
    return work >= WORTH_SHARING && team_threads(t->team) > 1;
}

void tile_each(const tile *t, size_t n, size_t work, team_part part, const void *arg)
{
    if (worth_sharing(t, work))
        team_share(t->team, n, part, arg);
    else
        for (size_t i = 0; i < n; i++) part(arg, i, 0);
}

size_t tile_rounds(const tile *t, size_t n)
{
    size_t threads = team_threads(t->team);
    return (n + threads - 1) / threads;
}

bool tile_even(const tile *t, size_t n)
{
    return 4 * n >= 3 * tile_rounds(t, n) * team_threads(t->team);
}

size_t matrix_bytes(const matrix *w)
{
    return w->type >= NUMBER_Q8_0 ? packed_bytes(w->packed) : w->rows * w->stride;
}

size_t tile_product_work(const tile *t, const matrix *w)
{
    return w->rows * w->cols * (t->n + READING) / (w->type >= NUMBER_Q8_0 ? 4 : 1);
}

/* How many parts n outputs that are cut at multiples of `cut` are shared in. */
static size_t parts_of(const tile *t, size_t n, size_t cut, size_t work)
{
    if (!worth_sharing(t, work)) return 1;
    size_t cuts = (n + cut - 1) / cut, by_work = work / LEAST_PART;
    size_t parts = PARTS_A_THREAD * (size_t)team_threads(t->team);
    if (parts > by_work) parts = by_work;
    return parts < cuts ? parts : cuts;
}

/* Part `i` of n outputs. */
static void cut_part(size_t n, size_t cut, size_t i, size_t parts, size_t *first, size_t *last)
{
    size_t cuts = (n + cut - 1) / cut;
    *first = cuts * i / parts * cut;
    *last = cuts * (i + 1) / parts * cut;
    if (*last > n) *last = n;
}

typedef struct shared_product {
    const tile *t;
    product whole;
    const float *bias;
    size_t parts, cut;
} shared_product;

static void add_bias(const product *p, const float *bias)
{
    for (size_t m = 0; m < p->count; m++)
        for (size_t r = p->first_row; r < p->last_row; r++) p->out[m * p->out_stride + r] += bias[r];
}

static void project_part(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const shared_product *s = arg;
    product p = s->whole;
    cut_part(p.w->rows, s->cut, i, s->parts, &p.first_row, &p.last_row);
    s->t->kernels->project(&p);
    if (s->bias) add_bias(&p, s->bias);
}

void tile_project(const tile *t, const matrix *w, const float *bias, const float *x, size_t x_stride, float *y, size_t y_stride,
                  bool add)
{
    shared_product s = {.t = t, .whole = product_whole(w, x, x_stride, t->n, y, y_stride), .bias = bias, .cut = PRODUCT_CUT};
    s.whole.add = add;
    s.parts = parts_of(t, w->rows, s.cut, tile_product_work(t, w));
    team_share(t->team, s.parts, project_part, &s);
}

void tile_project_rows(const tile *t, const matrix *w, const float *bias, const float *x, size_t x_stride, float *y,
                       size_t y_stride, size_t first, size_t last)
{
    product p = product_whole(w, x, x_stride, t->n, y, y_stride);
    p.first_row = first;
    p.last_row = last;
    t->kernels->project(&p);
    if (bias) add_bias(&p, bias);
}

/* Rows are read a strip at a time: wide ones, as far as there are enough for everybody. */
static size_t strip_width(const tile *t, size_t n)
{
    size_t cut = 4 * PRODUCT_CUT;
    while (cut > PRODUCT_CUT && n / cut < team_threads(t->team)) cut /= 2;
    return cut;
}

static void project_back_part(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const shared_product *s = arg;
    product p = s->whole;
    cut_part(p.w->cols, s->cut, i, s->parts, &p.first_col, &p.last_col);
    s->t->kernels->project_back(&p);
}

void tile_project_back(const tile *t, const matrix *w, const float *u, size_t u_stride, float *y, size_t y_stride, bool add)
{
    shared_product s = {.t = t, .whole = product_whole(w, u, u_stride, t->n, y, y_stride), .cut = strip_width(t, w->cols)};
    s.whole.add = add;
    s.parts = parts_of(t, w->cols, s.cut, tile_product_work(t, w));
    team_share(t->team, s.parts, project_back_part, &s);
}

/* ---- Hidden layers --------------------------------------------------------------------------------------------- */

/* One thread fills a group of units and adds up what comes of it, while its weights are in cache. Several do so with a group
 * each, into a scratch row for each row and group, as long as there are such rows: where more rows share the weights, they
 * fill parts of the units first and then form parts of the outputs. The sums are the same: each group's from zero, then added
 * in order. */
typedef struct hidden_pass {
    const tile *t;
    size_t hidden, parts;
    hidden_units units;
    const void *arg;
    const hidden_sum *sums;
    size_t n_sums, sum, cut;
} hidden_pass;

/* The sum of units [first, last), for outputs [first_out, last_out). */
static void group_sum(const tile *t, const hidden_sum *s, size_t first, size_t last, size_t first_out, size_t last_out,
                      float *out)
{
    product p = product_whole(s->w, s->in, t->work->hidden_stride, t->n, out, t->work->wide_stride);
    if (s->columns) {
        p.first_row = first_out, p.last_row = last_out;
        p.first_col = first, p.last_col = last;
        t->kernels->project(&p);
    } else {
        p.first_row = first, p.last_row = last;
        p.first_col = first_out, p.last_col = last_out;
        t->kernels->project_back(&p);
    }
}

static void add_rows(const tile *t, const float *from, size_t first, size_t last, float *to)
{
    size_t stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = first; c < last; c++) to[i * stride + c] += from[i * stride + c];
}

static size_t outputs(const hidden_sum *s)
{
    return s->columns ? s->w->rows : s->w->cols;
}

static size_t group_end(const hidden_pass *p, size_t group)
{
    size_t end = (group + 1) * PRODUCT_GROUP;
    return end < p->hidden ? end : p->hidden;
}

/* A group of units and its sums, those of the first group where they belong, the others in a scratch of their own. */
static void hidden_group(const void *arg, size_t group, unsigned thread)
{
    (void)thread;
    const hidden_pass *p = arg;
    const tile *t = p->t;
    size_t first = group * PRODUCT_GROUP, last = group_end(p, group), block = t->n * t->work->wide_stride;
    p->units(t, p->arg, first, last);
    for (size_t k = 0; k < p->n_sums; k++) {
        const hidden_sum *s = &p->sums[k];
        group_sum(t, s, first, last, 0, outputs(s), group == 0 ? s->out : s->scratch + (group - 1) * block);
    }
}

static void hidden_part(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const hidden_pass *p = arg;
    size_t first, last;
    cut_part(p->hidden, PRODUCT_CUT, i, p->parts, &first, &last);
    p->units(p->t, p->arg, first, last);
}

/* Outputs of one sum, of all groups. */
static void hidden_outputs(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const hidden_pass *p = arg;
    const hidden_sum *s = &p->sums[p->sum];
    size_t first, last;
    cut_part(outputs(s), p->cut, i, p->parts, &first, &last);
    for (size_t group = 0; group * PRODUCT_GROUP < p->hidden; group++) {
        group_sum(p->t, s, group * PRODUCT_GROUP, group_end(p, group), first, last, group == 0 ? s->out : s->scratch);
        if (group > 0) add_rows(p->t, s->scratch, first, last, s->out);
    }
}

void tile_hidden(const tile *t, size_t hidden, size_t work, hidden_units units, const void *arg, const hidden_sum *sums,
                 size_t n_sums)
{
    hidden_pass p = {.t = t, .hidden = hidden, .units = units, .arg = arg, .sums = sums, .n_sums = n_sums};
    size_t groups = (hidden + PRODUCT_GROUP - 1) / PRODUCT_GROUP, block = t->n * t->work->wide_stride;
    if (!worth_sharing(t, work)) {
        for (size_t group = 0; group < groups; group++) {
            units(t, arg, group * PRODUCT_GROUP, group_end(&p, group));
            for (size_t k = 0; k < n_sums; k++) {
                float *out = group == 0 ? sums[k].out : sums[k].scratch;
                group_sum(t, &sums[k], group * PRODUCT_GROUP, group_end(&p, group), 0, outputs(&sums[k]), out);
                if (group > 0) add_rows(t, out, 0, outputs(&sums[k]), sums[k].out);
            }
        }
    } else if ((groups - 1) * t->n <= t->work->rows && tile_even(t, groups)) {
        team_share(t->team, groups, hidden_group, &p);
        for (size_t k = 0; k < n_sums; k++)
            for (size_t group = 1; group < groups; group++)
                add_rows(t, sums[k].scratch + (group - 1) * block, 0, outputs(&sums[k]), sums[k].out);
    } else {
        p.parts = parts_of(t, hidden, PRODUCT_CUT, work);
        team_share(t->team, p.parts, hidden_part, &p);
        for (p.sum = 0; p.sum < n_sums; p.sum++) {
            const hidden_sum *s = &sums[p.sum];
            p.cut = s->columns ? PRODUCT_CUT : strip_width(t, outputs(s));
            p.parts = parts_of(t, outputs(s), p.cut, tile_product_work(t, s->w));
            team_share(t->team, p.parts, hidden_outputs, &p);
        }
    }
}
