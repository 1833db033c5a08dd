/* nrgpt.c: NRGPT (arXiv 2512.16762), one block applied T times. Section 1 of the mathematics:
 *
 *     g_i      = norm(x_i(t))
 *     x_i(t+1) = x_i(t) - R ( grad_AT_i + s * grad_FF_i )
 *
 * but for what a sequence asks of its motion (motion.c).
 * A row step is one application of the block, plane t holds g_j(t). The attention reads history in the form that needs only
 * g: q_h = H_h^T g_i, score_j = q_h . g_j, u_h = sum_j p_hj g_j, grad_AT_i = - sum_h alpha_h H_h u_h.
 * Arrays are [rows][stride] over the tile; C is the width, F the feed-forward's hidden width. */
#include "attention.h"
#include "exit.h"
#include "motion.h"
#include "sequence.h"
#include "slope.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum feed_forward { FF1, FF2, FF2W } feed_forward;
typedef enum rate { RATE_MATRIX, RATE_DIAG, RATE_SCALAR } rate;

typedef struct nrgpt {
    feed_forward ff;
    rate rate;
    bool strict, layer_norm;
    uint32_t heads, hidden;
    float beta, eps, ff_scale;
    matrix positions;   /* [context, C] */
    matrix *h;          /* [heads] of [C, C] */
    const float *alpha; /* [heads], or NULL: 1 */
    const float *norm, *norm_bias;
    matrix w1, w2; /* FF1, FF2W: w1 [F, C]; FF2: w1 [C, C], w2 [F, C]; FF2W: w2 [C, F] */
    const float *b1, *b2;
    matrix rate_matrix;       /* [C, C] */
    const float *rate_vector; /* [C] or [1] */
    const float *final_norm, *final_bias;
} nrgpt;

/* ---- Loading --------------------------------------------------------------------------------------------------- */

static const char *const ff_names[] = {"ff1", "ff2", "ff2w", NULL};
static const char *const mask_names[] = {"causal", "strict", NULL};
static const char *const norm_names[] = {"layernorm", "rmsnorm", NULL};
static const char *const rate_names[] = {"matrix", "diag", "scalar", NULL};

static descent_code load_settings(descent_model *model, nrgpt *w, descent_status *status)
{
    uint32_t ff, strict, norm, rate_kind, steps;
    descent_code code;
    if ((code = model_choice(model, "feed_forward", ff_names, &ff, status)) != DESCENT_OK) return code;
    if ((code = model_choice(model, "attention.mask", mask_names, &strict, status)) != DESCENT_OK) return code;
    if ((code = model_choice(model, "norm", norm_names, &norm, status)) != DESCENT_OK) return code;
    if ((code = model_choice(model, "rate", rate_names, &rate_kind, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "attention.head_count", 1, 1u << 16, &w->heads, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "feed_forward_length", 1, 1u << 24, &w->hidden, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "steps", 1, DESCENT_MAX_STEPS, &steps, status)) != DESCENT_OK) return code;
    if ((code = model_f32(model, "attention.beta", &w->beta, status)) != DESCENT_OK) return code;
    if ((code = model_f32(model, "norm_epsilon", &w->eps, status)) != DESCENT_OK) return code;
    if (!(w->beta > 0))
        return descent_fail(status, DESCENT_BAD_FILE, "nrgpt.attention.beta is %g; expected more than 0", (double)w->beta);
    if (!(w->eps >= 0))
        return descent_fail(status, DESCENT_BAD_FILE, "nrgpt.norm_epsilon is %g; expected 0 or more", (double)w->eps);
    if (model->info.layers != 1)
        return descent_fail(status, DESCENT_BAD_FILE, "nrgpt.block_count is %u; an nrgpt model has one block",
                            model->info.layers);
    w->ff = (feed_forward)ff;
    w->strict = strict == 1;
    w->layer_norm = norm == 0;
    w->rate = (rate)rate_kind;
    model->info.kinds = 1;
    model->info.kind_names[0] = "block";
    model->info.trained.steps[0] = (uint16_t)steps;
    model->info.deepens = true;
    model->info.terms[0] = 2;
    model->info.term_names[0][0] = "attention";
    model->info.term_names[0][1] = "feed_forward";
    (void)snprintf(model->variant, sizeof model->variant, "%s, %s mask, %s, %s rate", ff_names[ff], mask_names[strict],
                   norm_names[norm], rate_names[rate_kind]);
    return DESCENT_OK;
}

static descent_code load_attention(descent_model *model, nrgpt *w, descent_status *status)
{
    size_t C = model->info.width;
    descent_code code;
    if (w->heads > gguf_tensor_count(model->file))
        return descent_fail(status, DESCENT_BAD_FILE, "nrgpt.attention.head_count is %u; the file has only %zu tensors",
                            w->heads, gguf_tensor_count(model->file));
    w->h = calloc(w->heads, sizeof *w->h);
    if (!w->h) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %u heads", w->heads);
    for (uint32_t h = 0; h < w->heads; h++) {
        char name[48];
        (void)snprintf(name, sizeof name, "blk.0.attn_h.%u.weight", h);
        if ((code = model_matrix(model, name, C, C, &w->h[h], status)) != DESCENT_OK) return code;
    }
    if (!model_has_tensor(model, "blk.0.attn_alpha.weight")) return DESCENT_OK;
    return model_vector(model, "blk.0.attn_alpha.weight", w->heads, 1, &w->alpha, status);
}

static descent_code load_feed_forward(descent_model *model, nrgpt *w, descent_status *status)
{
    size_t C = model->info.width, F = w->hidden;
    size_t rows1 = w->ff == FF2 ? C : F, rows2 = w->ff == FF2 ? F : C, cols2 = w->ff == FF2 ? C : F;
    const float *scale;
    descent_code code;
    if ((code = model_matrix(model, "blk.0.ffn_1.weight", rows1, C, &w->w1, status)) != DESCENT_OK) return code;
    if ((code = model_vector(model, "blk.0.ffn_1.bias", rows1, 1, &w->b1, status)) != DESCENT_OK) return code;
    if ((code = model_vector(model, "blk.0.ffn_scale.weight", 1, 1, &scale, status)) != DESCENT_OK) return code;
    w->ff_scale = *scale;
    if (w->ff == FF1) return DESCENT_OK;
    if ((code = model_matrix(model, "blk.0.ffn_2.weight", rows2, cols2, &w->w2, status)) != DESCENT_OK) return code;
    return model_vector(model, "blk.0.ffn_2.bias", rows2, 1, &w->b2, status);
}

static descent_code load_ends(descent_model *model, nrgpt *w, descent_status *status)
{
    size_t C = model->info.width, V = model->info.vocab;
    descent_code code;
    if ((code = model_matrix(model, "position_embd.weight", model->info.context, C, &w->positions, status)) != DESCENT_OK)
        return code;
    if ((code = model_vector(model, "blk.0.norm.weight", C, 1, &w->norm, status)) != DESCENT_OK) return code;
    if (w->layer_norm && (code = model_vector(model, "blk.0.norm.bias", C, 1, &w->norm_bias, status)) != DESCENT_OK)
        return code;
    code = w->rate == RATE_MATRIX
               ? model_matrix(model, "blk.0.rate.weight", C, C, &w->rate_matrix, status)
               : model_vector(model, "blk.0.rate.weight", w->rate == RATE_DIAG ? C : 1, 1, &w->rate_vector, status);
    if (code != DESCENT_OK) return code;
    if ((code = model_vector(model, "output_norm.weight", C, 1, &w->final_norm, status)) != DESCENT_OK) return code;
    if ((code = model_vector(model, "output_norm.bias", C, 1, &w->final_bias, status)) != DESCENT_OK) return code;
    if ((code = model_matrix(model, "output.weight", V, C, &model->head, status)) != DESCENT_OK) return code;
    return model_vector(model, "output.bias", V, 1, &model->head_bias, status);
}

static descent_code nrgpt_load(descent_model *model, descent_status *status)
{
    nrgpt *w = calloc(1, sizeof *w);
    if (!w) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a model");
    model->weights = w;
    descent_code code;
    if ((code = load_settings(model, w, status)) != DESCENT_OK) return code;
    if ((code = load_attention(model, w, status)) != DESCENT_OK) return code;
    if ((code = load_feed_forward(model, w, status)) != DESCENT_OK) return code;
    if ((code = load_ends(model, w, status)) != DESCENT_OK) return code;
    model->slot = model->info.width;
    model->hidden = w->hidden;
    model->invariance = w->layer_norm ? SEES_NO_LENGTH_OR_MEAN : SEES_NO_LENGTH;
    model->strict_history = w->strict;
    for (uint32_t h = 0; h < w->heads; h++) model->history_weight += (double)(w->alpha ? w->alpha[h] : 1.0f) / (double)w->beta;
    return DESCENT_OK;
}

static void nrgpt_unload(descent_model *model)
{
    nrgpt *w = model->weights;
    if (w) free(w->h);
    free(w);
}

/* ---- Both ends -------------------------------------------------------------------------------------------------- */

/* x_i(0) = token_embedding[id_i] + position_embedding[i] */
static void nrgpt_embed(const descent_model *model, uint32_t token, size_t position, float *x)
{
    const nrgpt *w = model->weights;
    matrix_row(&model->embedding, token, x, false);
    matrix_row(&w->positions, position, x, true);
}

static void normalize(const descent_model *model, const float *x, float *g)
{
    const nrgpt *w = model->weights;
    const kernels *k = kernels_get();
    if (w->layer_norm)
        k->layer_norm(x, model->info.width, w->norm, w->norm_bias, w->eps, g);
    else
        k->rms_norm(x, model->info.width, w->norm, w->eps, g);
}

static void nrgpt_final_norm(const descent_model *model, const float *x, float *out)
{
    const nrgpt *w = model->weights;
    kernels_get()->layer_norm(x, model->info.width, w->final_norm, w->final_bias, w->eps, out);
}

/* ---- Forces ---------------------------------------------------------------------------------------------------- */

enum wide { X, G, NEXT_X, NEXT_G, ATTENTION, FEED, QUERY, MIXED, INNER, INNER_VALUE, INNER_SLOPE, RATED };
enum { OUTPUT = RATED, SCRATCH = QUERY, BACK_SUM = MIXED, BACK_SCRATCH = INNER }; /* at other times of a step */
enum hidden { VALUE, SLOPE, BACK };
enum term { TERM_ATTENTION, TERM_FEED_FORWARD };

typedef float (*energies)[DESCENT_MAX_TERMS];

static void scale(float *a, float by, size_t n)
{
    for (size_t k = 0; k < n; k++) a[k] *= by;
}

static void multiply(float *a, const float *b, size_t n)
{
    for (size_t k = 0; k < n; k++) a[k] *= b[k];
}

static void add(float *a, const float *b, size_t n)
{
    for (size_t k = 0; k < n; k++) a[k] += b[k];
}

/* A block of heads at work: head first + k has rows k * n to (k + 1) * n of QUERY, MIXED and OUTPUT, n being the tile's. The
 * heads of a group meet a key together, since all heads have the same keys. */
typedef struct attention_pass {
    const tile *t;
    const run *runs;
    size_t n_runs;
    const float *g;
    bool gradient;
    size_t first, heads, group;
    float *log_sum; /* [heads][n] log sum_j exp(beta q . g_j) */
} attention_pass;

/* Heads [head, head + heads) of the block for row m of a run, as a run whose rows they are: u_h into MIXED. */
static void attend_row(const attention_pass *p, const run *r, size_t m, size_t head, size_t heads, float *scores)
{
    const tile *t = p->t;
    size_t C = t->model->info.width, first = head * t->n + r->first + m;
    size_t at = first * t->work->wide_stride, apart = t->n * t->work->wide_stride;
    run one = {.n = heads, .sequence = r->sequence, .plane = r->plane, .longest = r->sees[m]};
    float log_sum[RUN_ROWS];
    for (size_t k = 0; k < heads; k++) one.sees[k] = r->sees[m];
    run_scores(t, &one, 0, C, t->work->wide[QUERY] + at, apart, scores, false);
    run_softmax(t, &one, scores, log_sum);
    for (size_t k = 0; k < heads; k++) p->log_sum[first + k * t->n] = log_sum[k];
    if (p->gradient) run_gather(t, &one, 0, C, scores, t->work->wide[MIXED] + at, apart);
}

/* One head of the block for all rows of a run. */
static void attend_run(const attention_pass *p, const run *r, size_t head, float *scores)
{
    const tile *t = p->t;
    size_t C = t->model->info.width, stride = t->work->wide_stride, first = head * t->n + r->first;
    run_scores(t, r, 0, C, t->work->wide[QUERY] + first * stride, stride, scores, false);
    run_softmax(t, r, scores, p->log_sum + first);
    if (p->gradient) run_gather(t, r, 0, C, scores, t->work->wide[MIXED] + first * stride, stride);
}

static size_t group_heads(const attention_pass *p, size_t group)
{
    size_t left = p->heads - group * p->group;
    return left < p->group ? left : p->group;
}

/* A group of heads over one run: from H_h^T g_i in QUERY to alpha_h u_h in MIXED where the gradient is wanted. */
static void attend(const attention_pass *p, const run *r, size_t group, unsigned thread)
{
    const nrgpt *w = p->t->model->weights;
    size_t head = group * p->group, heads = group_heads(p, group), C = p->t->model->info.width;
    size_t stride = p->t->work->wide_stride;
    float *scores = run_scratch(p->t, thread, 0);
    for (size_t k = head; k < head + heads; k++) {
        float *query = p->t->work->wide[QUERY] + (k * p->t->n + r->first) * stride;
        for (size_t m = 0; w->beta != 1.0f && m < r->n; m++) scale(query + m * stride, w->beta, C);
        if (heads <= r->n) attend_run(p, r, k, scores);
    }
    for (size_t m = 0; heads > r->n && m < r->n; m++) attend_row(p, r, m, head, heads, scores);
    for (size_t k = head; w->alpha && p->gradient && k < head + heads; k++) {
        float *u = p->t->work->wide[MIXED] + (k * p->t->n + r->first) * stride;
        for (size_t m = 0; m < r->n; m++) scale(u + m * stride, w->alpha[p->first + k], C);
    }
}

static void attend_part(const void *arg, size_t i, unsigned thread)
{
    const attention_pass *p = arg;
    attend(p, &p->runs[i % p->n_runs], i / p->n_runs, thread);
}

static product head_product(const attention_pass *p, size_t head, const float *in, float *out)
{
    const nrgpt *w = p->t->model->weights;
    size_t stride = p->t->work->wide_stride;
    return product_whole(&w->h[p->first + head], in, stride, p->t->n, out + head * p->t->n * stride, stride);
}

/* All of a group, while its H_h are in cache. */
static void attend_whole(const void *arg, size_t group, unsigned thread)
{
    const attention_pass *p = arg;
    float *const *wide = p->t->work->wide;
    size_t head = group * p->group, last = head + group_heads(p, group);
    for (size_t k = head; k < last; k++) {
        product query = head_product(p, k, p->g, wide[QUERY]);
        p->t->kernels->project_back(&query);
    }
    for (size_t i = 0; i < p->n_runs; i++) attend(p, &p->runs[i], group, thread);
    for (size_t k = head; p->gradient && k < last; k++) {
        product output = head_product(p, k, wide[MIXED] + k * p->t->n * p->t->work->wide_stride, wide[OUTPUT]);
        p->t->kernels->project(&output);
    }
}

/* The block's shares of the energy, from its log sums, and with them of ATTENTION, from OUTPUT. */
static void add_heads(const attention_pass *p, energies energy)
{
    const tile *t = p->t;
    const nrgpt *w = t->model->weights;
    size_t C = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < p->heads; k++) {
            float alpha = w->alpha ? w->alpha[p->first + k] : 1.0f, *sum = t->work->wide[ATTENTION] + i * stride;
            const float *output = t->work->wide[OUTPUT] + (k * t->n + i) * stride;
            if (energy) energy[i][TERM_ATTENTION] -= alpha / w->beta * p->log_sum[k * t->n + i];
            if (!p->gradient) continue;
            if (p->first + k == 0)
                memcpy(sum, output, C * sizeof *sum);
            else
                add(sum, output, C);
        }
}

/* How many heads meet a key together: four, or fewer where that keeps more threads busy; but one where their H_h would push
 * each other out of a core's cache and keys are few beside them. */
static size_t group_of(const attention_pass *p)
{
    enum { MOST = 4, NEAR = 1 << 19 };
    const nrgpt *w = p->t->model->weights;
    size_t keys = 0, best = 1, bytes = matrix_bytes(&w->h[0]), key_bytes = p->t->model->info.width * sizeof(float);
    for (size_t i = 0; i < p->n_runs; i++) keys += p->runs[i].longest;
    if (MOST * bytes > NEAR && 2 * keys * key_bytes < bytes) return 1;
    for (size_t group = 2; group <= MOST && group <= p->heads; group++)
        if (tile_rounds(p->t, (p->heads + group - 1) / group) * group <= tile_rounds(p->t, (p->heads + best - 1) / best) * best)
            best = group;
    return best;
}

/* As many heads as there is room for, since they meet keys together; where a sequence has so many rows that these do so by
 * themselves, no more than there are threads, which takes less memory. */
static size_t heads_at_once(const attention_pass *p)
{
    enum { ENOUGH = 4 };
    size_t room = p->t->work->rows / p->t->n, threads = team_threads(p->t->team);
    return p->t->n >= ENOUGH * p->n_runs && threads < room ? threads : room;
}

/* ATTENTION = sum_h H_h (alpha_h u_h) = -grad_AT at g, the keys of the rows' planes held fixed.
 *
 * A thread takes whole heads, where there are as many as keep all of them busy; else it is each product that is shared. */
static void attention_force(const tile *t, const float *g, bool gradient, energies energy)
{
    const nrgpt *w = t->model->weights;
    workspace *k = t->work;
    size_t stride = k->wide_stride;
    run runs[TILE_ROWS];
    float log_sum[TILE_ROWS];
    attention_pass p = {
        .t = t, .runs = runs, .n_runs = runs_make(t, w->strict, runs), .g = g, .gradient = gradient, .log_sum = log_sum};
    size_t attending = runs_work(runs, p.n_runs) * t->model->info.width, products = 2 * tile_product_work(t, &w->h[0]);
    for (size_t block = heads_at_once(&p); p.first < w->heads; p.first += p.heads) {
        p.heads = w->heads - p.first < block ? w->heads - p.first : block;
        p.group = group_of(&p);
        size_t groups = (p.heads + p.group - 1) / p.group;
        if (tile_even(t, groups)) {
            tile_each(t, groups, p.heads * (products + attending), attend_whole, &p);
        } else {
            for (size_t h = 0; h < p.heads; h++)
                tile_project_back(t, &w->h[p.first + h], g, stride, k->wide[QUERY] + h * t->n * stride, stride, false);
            tile_each(t, groups * p.n_runs, p.heads * attending, attend_part, &p);
            for (size_t h = 0; gradient && h < p.heads; h++)
                tile_project(t, &w->h[p.first + h], NULL, k->wide[MIXED] + h * t->n * stride, stride,
                             k->wide[OUTPUT] + h * t->n * stride, stride, false);
        }
        add_heads(&p, energy);
    }
}

/* value = gelu(z), slope = gelu'(z) of one row, z = INNER. */
static void activate_inner(const void *arg, size_t i, unsigned thread)
{
    (void)thread;
    const tile *t = arg;
    size_t at = i * t->work->wide_stride;
    float *const *wide = t->work->wide;
    t->kernels->gelu(wide[INNER] + at, t->model->info.width, wide[INNER_VALUE] + at, wide[INNER_SLOPE] + at);
}

/* Hidden units [first, last) from `in`: VALUE = gelu(z), SLOPE = gelu'(z),  z = W in + b. */
static void activate_hidden(const tile *t, const matrix *w, const float *bias, const float *in, size_t first, size_t last)
{
    workspace *k = t->work;
    size_t hs = k->hidden_stride;
    tile_project_rows(t, w, bias, in, k->wide_stride, k->hidden[VALUE], hs, first, last);
    for (size_t at = first; at < t->n * hs; at += hs)
        t->kernels->gelu(k->hidden[VALUE] + at, last - first, k->hidden[VALUE] + at, k->hidden[SLOPE] + at);
}

/* Hidden units of -|gelu(W in + b)|^2: BACK = gelu(z) gelu'(z), half the gradient with respect to -z. `layer` is in and W. */
typedef struct squared_layer {
    const matrix *w;
    const float *bias, *in;
} squared_layer;

static void squared_units(const tile *t, const void *layer, size_t first, size_t last)
{
    const squared_layer *l = layer;
    workspace *k = t->work;
    activate_hidden(t, l->w, l->bias, l->in, first, last);
    for (size_t i = 0; i < t->n; i++)
        for (size_t f = i * k->hidden_stride + first; f < i * k->hidden_stride + last; f++)
            k->hidden[BACK][f] = k->hidden[VALUE][f] * k->hidden[SLOPE][f];
}

/* E = -|gelu(W in + b)|^2 and, in `out`, W^T( gelu(z) gelu'(z) ), to be multiplied by -2. */
static void squared_force(const tile *t, const squared_layer *l, float *out, bool gradient, energies energy)
{
    workspace *k = t->work;
    size_t F = l->w->rows, hs = k->hidden_stride;
    const hidden_sum back = {.w = l->w, .in = k->hidden[BACK], .out = out, .scratch = k->wide[SCRATCH]};
    tile_hidden(t, F, 2 * tile_product_work(t, l->w) + 20 * t->n * F, squared_units, l, &back, gradient);
    for (size_t i = 0; energy && i < t->n; i++)
        energy[i][TERM_FEED_FORWARD] = (float)-dot(k->hidden[VALUE] + i * hs, k->hidden[VALUE] + i * hs, F);
}

/* E = -|gelu(W g + b)|^2,  grad = -2 W^T( gelu(z) gelu'(z) ) */
static void ff1_force(const tile *t, const float *g, bool gradient, energies energy)
{
    const nrgpt *w = t->model->weights;
    workspace *k = t->work;
    squared_force(t, &(squared_layer){&w->w1, w->b1, g}, k->wide[FEED], gradient, energy);
    for (size_t i = 0; gradient && i < t->n; i++) scale(k->wide[FEED] + i * k->wide_stride, -2.0f, t->model->info.width);
}

/* E = -|gelu(W2 gelu(W1 g + b1) + b2)|^2 */
static void ff2_force(const tile *t, const float *g, bool gradient, energies energy)
{
    const nrgpt *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    tile_project(t, &w->w1, w->b1, g, ws, k->wide[INNER], ws, false);
    tile_each(t, t->n, t->n * C * 20, activate_inner, t);
    squared_force(t, &(squared_layer){&w->w2, w->b2, k->wide[INNER_VALUE]}, k->wide[INNER], gradient, energy);
    if (!gradient) return;
    for (size_t i = 0; i < t->n; i++) multiply(k->wide[INNER] + i * ws, k->wide[INNER_SLOPE] + i * ws, C);
    tile_project_back(t, &w->w1, k->wide[INNER], ws, k->wide[FEED], ws, false);
    for (size_t i = 0; i < t->n; i++) scale(k->wide[FEED] + i * ws, -2.0f, C);
}

/* Hidden units of FF2W: VALUE = gelu(z), BACK = (W2^T g) gelu'(z),  z = W1 g + b1 */
static void ff2w_units(const tile *t, const void *g, size_t first, size_t last)
{
    const nrgpt *w = t->model->weights;
    workspace *k = t->work;
    size_t hs = k->hidden_stride;
    activate_hidden(t, &w->w1, w->b1, g, first, last);
    product back = product_whole(&w->w2, g, k->wide_stride, t->n, k->hidden[BACK], hs);
    back.first_col = first;
    back.last_col = last;
    t->kernels->project_back(&back);
    for (size_t at = first; at < t->n * hs; at += hs) multiply(k->hidden[BACK] + at, k->hidden[SLOPE] + at, last - first);
}

/* E = -g . y, y = W2 gelu(z) + b2;  grad = -( y + W1^T( (W2^T g) gelu'(z) ) ) */
static void ff2w_force(const tile *t, const float *g, bool gradient, energies energy)
{
    const nrgpt *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, F = w->hidden, ws = k->wide_stride;
    float *y = k->wide[FEED], *back = k->wide[BACK_SUM];
    const hidden_sum sums[] = {{.w = &w->w2, .columns = true, .in = k->hidden[VALUE], .out = y, .scratch = k->wide[SCRATCH]},
                               {.w = &w->w1, .in = k->hidden[BACK], .out = back, .scratch = k->wide[BACK_SCRATCH]}};
    tile_hidden(t, F, 4 * tile_product_work(t, &w->w1) + 20 * t->n * F, ff2w_units, g, sums, gradient ? 2 : 1);
    for (size_t i = 0; i < t->n; i++) add(y + i * ws, w->b2, C);
    for (size_t i = 0; energy && i < t->n; i++) energy[i][TERM_FEED_FORWARD] = (float)-dot(g + i * ws, y + i * ws, C);
    for (size_t i = 0; gradient && i < t->n; i++)
        for (size_t c = 0; c < C; c++) y[i * ws + c] = -(y[i * ws + c] + back[i * ws + c]);
}

/* Energies at g, by term, and where wanted both gradients. */
static void forces(const tile *t, const float *g, bool gradient, energies energy)
{
    static void (*const feed_forward_force[])(const tile *, const float *, bool, energies) = {ff1_force, ff2_force, ff2w_force};
    const nrgpt *w = t->model->weights;
    if (energy) memset(energy, 0, t->n * sizeof *energy);
    attention_force(t, g, gradient, energy);
    feed_forward_force[w->ff](t, g, gradient, energy);
    for (size_t i = 0; energy && i < t->n; i++) energy[i][TERM_FEED_FORWARD] *= w->ff_scale;
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

/* RATED = R ( grad_AT + s grad_FF ), and NEXT_X, X moved by it. */
static void descend(const tile *t)
{
    const nrgpt *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++)
            k->wide[FEED][i * ws + c] = w->ff_scale * k->wide[FEED][i * ws + c] - k->wide[ATTENTION][i * ws + c];
    const float *gradient = k->wide[FEED];
    if (w->rate == RATE_MATRIX) tile_project(t, &w->rate_matrix, NULL, gradient, ws, k->wide[RATED], ws, false);
    for (size_t i = 0; w->rate != RATE_MATRIX && i < t->n; i++)
        for (size_t c = 0; c < C; c++)
            k->wide[RATED][i * ws + c] = w->rate_vector[w->rate == RATE_DIAG ? c : 0] * gradient[i * ws + c];
    tile_move(t, k->wide[X], k->wide[RATED], k->wide[NEXT_X]);
}

/* Behind descend, which leaves the gradient in FEED and R times it in RATED. */
static void slopes(const tile *t)
{
    const nrgpt *w = t->model->weights;
    const workspace *k = t->work;
    const slope_norm norm = {.weight = w->norm, .eps = w->eps, .centred = w->layer_norm};
    tile_slopes(t, &norm, k->wide[X], k->wide[FEED], k->wide[RATED], NULL);
}

/* Rows that only read their energy at x(T) need plane T of earlier tokens that ended at T: its contents follow from the states
 * that those tokens keep. Where last states are read they are there. */
static void complete_plane(const tile *t, const row *r)
{
    size_t C = t->model->info.width;
    float *g = t->work->wide[NEXT_G];
    for (size_t j = 0; j < r->position && !sequence_reads_last(r->sequence); j++) {
        const page *p = sequence_page(r->sequence, j);
        if (p->progress[j % PAGE_TOKENS] != r->where.plane || !sequence_done(r->sequence, j)) continue;
        row earlier = {.sequence = r->sequence, .position = j, .where = r->where, .measuring = true};
        normalize(t->model, page_state(t->cache, p, j % PAGE_TOKENS), g);
        (void)tile_write_key(t, &earlier, r->where.plane, 0, g, C);
    }
}

static void write_keys(const tile *t, const float *g)
{
    for (size_t i = 0; i < t->n; i++) {
        const row *r = t->rows[i], *before = i > 0 ? t->rows[i - 1] : NULL;
        bool completed =
            before && before->sequence == r->sequence && before->measuring && before->where.plane == r->where.plane;
        if (r->measuring && !completed) complete_plane(t, r);
        (void)tile_write_key(t, r, r->where.plane, 0, g + i * t->work->wide_stride, t->model->info.width);
    }
}

/* Writes g of x(t+1), the last state of a row, into a plane. What the page cannot hold ends the sequence at step t+1, which
 * would have read it: a row that can go on is left to come there. */
static bool write_last(const tile *t, size_t i, uint32_t plane, bool goes_on)
{
    row next = *t->rows[i];
    next.measuring = goes_on;
    next.where.step++;
    return tile_write_key(t, &next, plane, 0, t->work->wide[NEXT_G] + i * t->work->wide_stride, t->model->info.width);
}

/* Tokens that stop are read at their last state, g of x(t+1), from plane t+1 on. */
static void stop_early(const tile *t)
{
    const workspace *k = t->work;
    tile_decide(t, k->wide[G], k->wide[NEXT_G]);
    tile_decide_by_logits(t, k->wide[X], k->wide[NEXT_X], k->wide[QUERY]);
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        const descent_sequence *s = r->sequence;
        if (!r->moved || !r->stops) continue; /* one that stopped before this step has its last state as its key */
        if (!sequence_reads_last(s))
            r->stops = write_last(t, i, r->where.plane + 1, r->progress + 1 < sequence_total(s, r->position));
    }
}

/* The row's descent ends with this step, and nothing but its last state will be read of it. */
static bool leaves_last(const row *r)
{
    const descent_sequence *s = r->sequence;
    return sequence_reads_last(s) && r->moved && (r->stops || r->progress + 1 >= sequence_total(s, r->position));
}

static bool any_leaves_last(const tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (leaves_last(t->rows[i])) return true;
    return false;
}

/* Energies behind the step are for rows that make one. */
static bool wants_next_energy(const tile *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (!t->rows[i]->measuring && (row_watch(t->rows[i]) & DESCENT_OBSERVE_ENERGY)) return true;
    return false;
}

static void observe(const tile *t)
{
    workspace *k = t->work;
    size_t ws = k->wide_stride;
    if (wants_next_energy(t)) forces(t, k->wide[NEXT_G], false, k->energy[1]);
    size_t read = 0; /* rows before this one have their logits */
    for (size_t i = 0; i < t->n; i++) {
        const row *r = t->rows[i];
        bool energy = row_watch(r) & DESCENT_OBSERVE_ENERGY;
        if (i == read) read = tile_read_observed(t, i, k->wide[X], false, k->wide[QUERY]);
        if (!row_observed(r)) continue;
        bool final = r->measuring;
        tile_report(t, i,
                    &(step_record){.x = k->wide[X] + i * ws,
                                   .g = k->wide[G] + i * ws,
                                   .next_x = final ? NULL : k->wide[NEXT_X] + i * ws,
                                   .next_g = final ? NULL : k->wide[NEXT_G] + i * ws,
                                   .before = energy ? k->energy[0][i] : NULL,
                                   .after = energy && !final ? k->energy[1][i] : NULL,
                                   .logits = r->logits,
                                   .final = final});
    }
}

static void nrgpt_step(tile *t)
{
    workspace *k = t->work;
    size_t ws = k->wide_stride;
    tile_gather(t, k->wide[X]);
    for (size_t i = 0; i < t->n; i++) normalize(t->model, k->wide[X] + i * ws, k->wide[G] + i * ws);
    tile_intervene_g(t, k->wide[G]);
    write_keys(t, k->wide[G]);
    if (!tile_moves(t)) {
        if (t->watch & DESCENT_OBSERVE_ENERGY) forces(t, k->wide[G], false, k->energy[0]);
        observe(t);
        return;
    }
    bool weighs = tile_weighs(t);
    forces(t, k->wide[G], true, weighs || (t->watch & DESCENT_OBSERVE_ENERGY) ? k->energy[0] : NULL);
    if (weighs) tile_weigh(t);
    descend(t);
    if (t->watch & DESCENT_OBSERVE_SLOPE) slopes(t);
    tile_scatter(t, k->wide[NEXT_X]);
    bool asks = tile_asks(t);
    for (size_t i = 0; (t->watch || asks || any_leaves_last(t)) && i < t->n; i++)
        normalize(t->model, k->wide[NEXT_X] + i * ws, k->wide[NEXT_G] + i * ws);
    if (asks) stop_early(t);
    if (t->watch) observe(t);
    for (size_t i = 0; i < t->n; i++) /* it takes the place of g(t), which energies at x(t+1) have read up to here */
        if (leaves_last(t->rows[i])) (void)write_last(t, i, 0, false);
}

static bool nrgpt_rate(const descent_model *model, uint32_t layer, uint32_t kind, uint32_t step, descent_rate *found)
{
    const nrgpt *w = model->weights;
    size_t C = model->info.width;
    (void)layer, (void)kind, (void)step;
    double *sums = calloc(C, sizeof *sums);
    float *packed = calloc(C, sizeof *packed);
    rate_sum sum = rate_sum_none();
    for (size_t r = 0; sums && packed && r < C; r++) {
        if (w->rate == RATE_MATRIX) matrix_row(&w->rate_matrix, r, packed, false);
        for (size_t c = 0; c < C; c++) sums[c] = (double)packed[c];
        if (w->rate != RATE_MATRIX) sums[r] = (double)w->rate_vector[w->rate == RATE_DIAG ? r : 0];
        rate_sum_row(&sum, r, sums, C, 1, w->norm[r]);
    }
    bool known = sums && packed;
    if (known) rate_sum_end(&sum, found);
    free(sums);
    free(packed);
    return known;
}

const family nrgpt_family = {
    .name = "nrgpt",
    .progression = &recurrent_progression,
    .load = nrgpt_load,
    .unload = nrgpt_unload,
    .measures = true,
    .embed = nrgpt_embed,
    .step = nrgpt_step,
    .rate = nrgpt_rate,
    .final_norm = nrgpt_final_norm,
};
