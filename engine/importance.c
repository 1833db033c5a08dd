/* importance.c: which rows and columns of a model's matrices a text makes matter. The model runs over the text, and between
 * its steps and the kernels every product is looked at: the squares of the numbers that meet a matrix's columns (the x of W x)
 * and rows (the u of W^T u) are summed. Quantization weighs the error of w_rc by the mean of u_r^2 times that of x_c^2: with
 * the energies here of the form u W x, u_r x_c is dE/dw_rc, so this is what an error does to the energy, squared, were u and x
 * independent.
 *
 * Products are watched on one thread: kernels carry no context, so the one who watches is a thread's own variable. */
#include "importance.h"

#include "batch.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

#define IMPORTANCE_LEAST 1e-3f

/* One matrix: sums of squares until they are scaled. */
typedef struct gathered {
    const matrix *w;
    size_t rows, cols;
    double *sums; /* [cols + rows] */
    matrix_importance result;
} gathered;

struct descent_importance {
    gathered *of; /* [n] in the model's order */
    gathered **by_address;
    size_t n;
};

/* ---- Watching products ------------------------------------------------------------------------------------------ */

static _Thread_local descent_importance *watching;
static _Thread_local const descent_model *watched_model;

static int compare_addresses(const void *a, const void *b)
{
    const char *first = (const char *)(*(const gathered *const *)a)->w,
               *second = (const char *)(*(const gathered *const *)b)->w;
    return (first > second) - (first < second);
}

static gathered *find(const matrix *w)
{
    gathered wanted = {.w = w}, *key = &wanted;
    gathered **found = bsearch(&key, watching->by_address, watching->n, sizeof(void *), compare_addresses);
    if (found) return *found;
    return w == &watched_model->head ? find(&watched_model->embedding) : NULL; /* a tied head is a copy of that */
}

static void add_squares(const product *p, double *sums, size_t first, size_t last)
{
    for (size_t m = 0; m < p->count; m++)
        for (size_t i = first; i < last; i++) {
            double v = (double)p->in[m * p->in_stride + i];
            sums[i] += v * v;
        }
}

/* Products may come in parts: what is summed over is counted once, with the first of the outputs. */
static void watch_project(const product *p)
{
    gathered *g = find(p->w);
    if (g && p->first_row == 0) add_squares(p, g->sums, p->first_col, p->last_col);
    kernels_get()->project(p);
}

static void watch_project_back(const product *p)
{
    gathered *g = find(p->w);
    if (g && p->first_col == 0) add_squares(p, g->sums + g->cols, p->first_row, p->last_row);
    kernels_get()->project_back(p);
}

/* ---- Running a text --------------------------------------------------------------------------------------------- */

/* One window, from its first token to its head. */
static descent_code run_window(descent_batch *batch, descent_cache *cache, const uint32_t *tokens, size_t count,
                               descent_depth depth, float *logits, descent_status *status)
{
    descent_sequence_options options = {.depth = depth, .no_sharing = true};
    descent_sequence *sequence;
    descent_code code = descent_sequence_create(cache, &options, &sequence, status);
    if (code != DESCENT_OK) return code;
    code = descent_sequence_append(sequence, tokens, count, status);
    if (code == DESCENT_OK) code = descent_batch_finish(batch, sequence, status);
    for (size_t i = 0; i < count && code == DESCENT_OK; i++)
        code = descent_batch_logits(batch, &(descent_reading){sequence, i}, 1, logits, status);
    descent_sequence_destroy(sequence);
    return code;
}

typedef struct text {
    const uint32_t *tokens;
    size_t count;
    descent_depth depth;
} text;

static descent_code run_text(const descent_model *model, descent_batch *batch, descent_cache *cache, const text *read,
                             descent_progress progress, void *user, descent_status *status)
{
    float *logits = descent_alloc(model->info.vocab, sizeof *logits);
    descent_code code = DESCENT_OK;
    if (!logits) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for logits");
    for (size_t at = 0; at < read->count && code == DESCENT_OK; at += model->info.context) {
        size_t n = read->count - at < model->info.context ? read->count - at : model->info.context;
        code = run_window(batch, cache, read->tokens + at, n, read->depth, logits, status);
        if (code == DESCENT_OK && progress && !progress(user, at + n, read->count))
            code = descent_fail(status, DESCENT_IO, "stopped by the caller");
    }
    free(logits);
    return code;
}

/* ---- The result ------------------------------------------------------------------------------------------------- */

static bool make_sums(descent_importance *y, const descent_model *model)
{
    y->of = calloc(model->n_matrices + 1, sizeof *y->of);
    y->by_address = calloc(model->n_matrices + 1, sizeof *y->by_address);
    if (!y->of || !y->by_address) return false;
    for (; y->n < model->n_matrices; y->n++) {
        gathered *g = &y->of[y->n];
        const matrix *w = model->matrices[y->n].w;
        *g = (gathered){.w = w, .rows = w->rows, .cols = w->cols, .sums = calloc(w->rows + w->cols, sizeof *g->sums)};
        y->by_address[y->n] = g;
        if (!g->sums) return false;
        g->result.cols = calloc(w->cols, sizeof(float));
        g->result.rows = calloc(w->rows, sizeof(float));
        if (!g->result.cols || !g->result.rows) return false;
    }
    qsort(y->by_address, y->n, sizeof(void *), compare_addresses);
    return true;
}

static void scale(const double *sums, size_t n, float *out)
{
    double mean = 0;
    for (size_t i = 0; i < n; i++) mean += sums[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        float value = mean > 0 ? (float)(sums[i] / mean) : 1;
        out[i] = value < IMPORTANCE_LEAST ? IMPORTANCE_LEAST : value;
    }
}

static descent_code gather(const descent_model *model, const text *read, descent_progress progress, void *user,
                           descent_importance *y, descent_status *status)
{
    if (!make_sums(y, model))
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the importance of %zu matrices", model->n_matrices);
    descent_cache *cache;
    descent_batch *batch;
    descent_code code = descent_cache_create(model, NULL, &cache, status);
    if (code != DESCENT_OK) return code;
    code = descent_batch_create(cache, &(descent_batch_options){.threads = 1}, &batch, status);
    if (code == DESCENT_OK) {
        kernels watched = *kernels_get();
        watched.project = watch_project;
        watched.project_back = watch_project_back;
        batch_set_kernels(batch, &watched);
        watching = y;
        watched_model = model;
        code = run_text(model, batch, cache, read, progress, user, status);
        watching = NULL;
        watched_model = NULL;
        descent_batch_destroy(batch);
    }
    descent_cache_destroy(cache);
    for (size_t i = 0; i < y->n && code == DESCENT_OK; i++) {
        scale(y->of[i].sums, y->of[i].cols, y->of[i].result.cols);
        scale(y->of[i].sums + y->of[i].cols, y->of[i].rows, y->of[i].result.rows);
    }
    return code;
}

descent_code descent_importance_gather(const descent_model *model, const uint32_t *tokens, size_t count, descent_depth depth,
                                       descent_progress progress, void *user, descent_importance **out, descent_status *status)
{
    if (!model || !tokens || !out || count == 0)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "importance needs a model, at least one token and a place to be put");
    descent_importance *y = calloc(1, sizeof *y);
    if (!y) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for importance");
    descent_code code = gather(model, &(text){tokens, count, depth}, progress, user, y, status);
    if (code != DESCENT_OK) {
        descent_importance_free(y);
        return code;
    }
    *out = y;
    return descent_ok(status);
}

void descent_importance_free(descent_importance *y)
{
    if (!y) return;
    for (size_t i = 0; y->of && i <= y->n; i++) { /* one more than n may have been begun */
        free(y->of[i].sums);
        free(y->of[i].result.cols);
        free(y->of[i].result.rows);
    }
    free(y->of);
    free(y->by_address);
    free(y);
}

const matrix_importance *importance_of(const descent_importance *y, const descent_model *model, size_t i)
{
    const matrix *w = model->matrices[i].w;
    if (!y || y->n != model->n_matrices || y->of[i].rows != w->rows || y->of[i].cols != w->cols) return NULL;
    return &y->of[i].result;
}
