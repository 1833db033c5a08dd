/* attention.c: attention of runs of rows over pages. Called by the families, inside their loop over runs; owns nothing. */
#include "attention.h"

#include <string.h>

size_t runs_make(const tile *t, bool strict, run *runs)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const row *r = t->rows[i];
        run *last = n ? &runs[n - 1] : NULL;
        if (!last || last->n == RUN_ROWS || last->sequence != r->sequence || last->plane != r->where.plane) {
            last = &runs[n++];
            *last = (run){.first = i, .sequence = r->sequence, .plane = r->where.plane};
        }
        last->longest = r->position + !strict;
        last->sees[last->n++] = last->longest;
    }
    return n;
}

size_t runs_work(const run *runs, size_t n)
{
    size_t work = 0;
    for (size_t i = 0; i < n; i++) work += 2 * (runs[i].n + READING) * runs[i].longest;
    return work;
}

/* Columns offset .. offset+width of the run's plane in page b, for as many slots as the longest row sees. */
static matrix page_matrix(const tile *t, const run *r, size_t b, size_t offset, size_t width)
{
    const descent_cache *cache = t->cache;
    size_t left = r->longest - b * PAGE_TOKENS;
    const page *p = r->sequence->pages[b];
    const char *plane = page_slot(cache, p, page_plane(p, r->plane), 0);
    bool blocks = cache->number == NUMBER_Q8_ROWS;
    return (matrix){.data = blocks ? plane : plane + offset * number_bytes(cache->number),
                    .first = blocks ? offset : 0,
                    .type = cache->number,
                    .rows = left < PAGE_TOKENS ? left : PAGE_TOKENS,
                    .cols = width,
                    .stride = cache->slot_bytes};
}

void run_scores(const tile *t, const run *r, size_t offset, size_t width, const float *q, size_t q_stride, float *scores,
                bool add)
{
    size_t stride = t->work->score_stride;
    for (size_t b = 0; b * PAGE_TOKENS < r->longest; b++) {
        matrix keys = page_matrix(t, r, b, offset, width);
        product p = product_whole(&keys, q, q_stride, r->n, scores + b * PAGE_TOKENS, stride);
        p.add = add;
        t->kernels->project(&p);
    }
}

void run_softmax(const tile *t, const run *r, float *scores, float *log_sum)
{
    for (size_t m = 0; m < r->n; m++) {
        float *row_scores = scores + m * t->work->score_stride;
        log_sum[m] = t->kernels->softmax(row_scores, r->sees[m]);
        memset(row_scores + r->sees[m], 0, (r->longest - r->sees[m]) * sizeof(float));
    }
}

void run_gather(const tile *t, const run *r, size_t offset, size_t width, const float *weights, float *out, size_t out_stride)
{
    size_t stride = t->work->score_stride;
    if (r->longest == 0) /* a strict first token has no history */
        for (size_t m = 0; m < r->n; m++) memset(out + m * out_stride, 0, width * sizeof(float));
    for (size_t b = 0; b * PAGE_TOKENS < r->longest; b++) {
        matrix keys = page_matrix(t, r, b, offset, width);
        product p = product_whole(&keys, weights + b * PAGE_TOKENS, stride, r->n, out, out_stride);
        p.add = b > 0;
        t->kernels->project_back(&p);
    }
}

typedef struct heads_pass {
    const tile *t;
    const run *runs;
    const head_layout *heads;
    const float *q;
    float *out;
    size_t stride;
} heads_pass;

static void attend_head(const void *arg, size_t pair, unsigned thread)
{
    const heads_pass *p = arg;
    const head_layout *heads = p->heads;
    const run *r = &p->runs[pair / heads->count];
    size_t first = pair % heads->count * heads->width, at = r->first * p->stride + first;
    float *scores = run_scratch(p->t, thread, 0), log_sum[RUN_ROWS];
    run_scores(p->t, r, heads->keys + first, heads->width, p->q + at, p->stride, scores, false);
    run_softmax(p->t, r, scores, log_sum);
    run_gather(p->t, r, heads->values + first, heads->width, scores, p->out + at, p->stride);
}

void softmax_attention(const tile *t, bool strict, const head_layout *heads, const float *q, float *out, size_t stride)
{
    run runs[TILE_ROWS];
    size_t n = runs_make(t, strict, runs);
    const heads_pass pass = {t, runs, heads, q, out, stride};
    tile_each(t, n * heads->count, runs_work(runs, n) * heads->count * heads->width, attend_head, &pass);
}

float *run_scratch(const tile *t, unsigned thread, unsigned buffer)
{
    return t->work->scores + ((size_t)thread * SCORE_BUFFERS + buffer) * RUN_ROWS * t->work->score_stride;
}
