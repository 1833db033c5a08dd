/* cem.c: CEM (arXiv 2605.07588), layers of an attention descent and an MLP descent. Section 2 of the mathematics:
 *
 *     x_i(0) = h_i,   g_i = norm(x_i(t)),   x_i(t+1) = x_i(t) - eta[min(t, n-1)] * P grad_i(t)
 *
 * with the history frozen at the sub-layer's input h. A row step is one gradient step of one sub-layer of one layer; rows of
 * one sub-layer share its weights. Plane l holds for each token R_j W^K u_j and, where there is a diagonal, u_j behind it,
 * u_j = norm(h_j); it is written by the first attention step of layer l. K heads of width D; arrays are [rows][stride]. */
#include "attention.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum diagonal { DIAGONAL_NONE, DIAGONAL_SHARED, DIAGONAL_PER_HEAD } diagonal;
typedef enum activation { SILU, GELU } activation;
enum { ATTENTION, MLP };

/* What both kinds of sub-layer have. */
typedef struct sublayer {
    const float *norm; /* [C] */
    const float *eta;  /* [n_eta] */
    size_t n_eta;
    float *diagonal; /* [C] softplus(d) of the preconditioner, or NULL: no preconditioner */
    matrix u, v;     /* [C, r], rank > 0 */
} sublayer;

typedef struct layer {
    sublayer attention, mlp;
    matrix wq, wk;   /* [C, C], rows kD..(k+1)D are head k */
    const float *d;  /* [C] or [K, C] */
    matrix up, gate; /* [M, C] */
} layer;

typedef struct cem {
    diagonal diagonal;
    activation act;
    uint32_t heads, head_width, hidden;
    int32_t rank; /* -1: no preconditioner, 0: diagonal only */
    float eps, tau;
    float *rotation; /* [context][D/2] pairs (cos, sin) */
    const float *final_norm;
    layer *layers;
} cem;

/* ---- Loading --------------------------------------------------------------------------------------------------- */

static const char *const diagonal_names[] = {"none", "shared", "per_head", NULL};
static const char *const activation_names[] = {"silu", "gelu", NULL};

static void describe(descent_model *model, const cem *w)
{
    char preconditioner[32];
    if (w->rank > 0)
        (void)snprintf(preconditioner, sizeof preconditioner, "rank %d", w->rank);
    else
        (void)snprintf(preconditioner, sizeof preconditioner, "%s", w->rank < 0 ? "none" : "diagonal");
    (void)snprintf(model->variant, sizeof model->variant, "%s diagonal, preconditioner %s, %s, %s head",
                   diagonal_names[w->diagonal], preconditioner, activation_names[w->act],
                   model->head.data == model->embedding.data ? "tied" : "own");
    descent_model_info *info = &model->info;
    info->kinds = 2;
    info->kind_names[ATTENTION] = "attention";
    info->kind_names[MLP] = "mlp";
    info->terms[ATTENTION] = info->terms[MLP] = 1;
    info->term_names[ATTENTION][0] = "attention";
    info->term_names[MLP][0] = "mlp";
    info->deepens = false;
}

static descent_code load_settings(descent_model *model, cem *w, descent_status *status)
{
    uint32_t diag, act, steps[2], C = model->info.width;
    descent_code code;
    if ((code = model_choice(model, "attention.diagonal", diagonal_names, &diag, status)) != DESCENT_OK) return code;
    if ((code = model_choice(model, "activation", activation_names, &act, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "attention.head_count", 1, C, &w->heads, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "feed_forward_length", 1, 1u << 24, &w->hidden, status)) != DESCENT_OK) return code;
    if ((code = model_u32(model, "steps.attention", 1, DESCENT_MAX_STEPS, &steps[ATTENTION], status)) != DESCENT_OK)
        return code;
    if ((code = model_u32(model, "steps.mlp", 1, DESCENT_MAX_STEPS, &steps[MLP], status)) != DESCENT_OK) return code;
    if ((code = model_f32(model, "norm_epsilon", &w->eps, status)) != DESCENT_OK) return code;
    code = gguf_get_i32(model->file, "cem.preconditioner.rank", -1, (int32_t)C, &w->rank, status);
    if (code != DESCENT_OK) return code;
    if (!(w->eps >= 0))
        return descent_fail(status, DESCENT_BAD_FILE, "cem.norm_epsilon is %g; expected 0 or more", (double)w->eps);
    if (C % w->heads != 0 || C / w->heads % 2 != 0)
        return descent_fail(status, DESCENT_BAD_FILE,
                            "cem.attention.head_count is %u; expected to divide the width %u into even parts", w->heads, C);
    w->diagonal = (diagonal)diag;
    w->act = (activation)act;
    w->head_width = C / w->heads;
    w->tau = sqrtf((float)w->head_width);
    model->info.trained = (descent_depth){{(uint16_t)steps[ATTENTION], (uint16_t)steps[MLP]}};
    return DESCENT_OK;
}

/* cos and sin of every position's rotation, pair (d, d + D/2) turning by position * base^(-2d/D). */
static descent_code load_rotation(descent_model *model, cem *w, descent_status *status)
{
    enum { MOST_NUMBERS = 1 << 26 };
    float base;
    descent_code code = model_f32(model, "rope.freq_base", &base, status);
    if (code != DESCENT_OK) return code;
    if (!(base > 0))
        return descent_fail(status, DESCENT_BAD_FILE, "cem.rope.freq_base is %g; expected more than 0", (double)base);
    size_t half = w->head_width / 2, numbers = (size_t)model->info.context * half * 2;
    if (numbers > MOST_NUMBERS)
        return descent_fail(status, DESCENT_UNSUPPORTED, "cem.context_length %u times head width %u: more than %d rotations",
                            model->info.context, w->head_width, MOST_NUMBERS);
    w->rotation = descent_alloc(numbers, sizeof *w->rotation);
    if (!w->rotation) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu rotations", numbers);
    for (size_t d = 0; d < half; d++) {
        double frequency = pow((double)base, -2.0 * (double)d / (double)w->head_width);
        for (size_t i = 0; i < model->info.context; i++) {
            w->rotation[(i * half + d) * 2] = (float)cos((double)i * frequency);
            w->rotation[(i * half + d) * 2 + 1] = (float)sin((double)i * frequency);
        }
    }
    return DESCENT_OK;
}

/* blk.{l}.{kind}_{part}.weight */
static const char *tensor_name(char name[64], uint32_t l, const char *kind, const char *part)
{
    (void)snprintf(name, 64, "blk.%u.%s_%s.weight", l, kind, part);
    return name;
}

static descent_code load_sublayer(descent_model *model, uint32_t l, const char *kind, sublayer *s, descent_status *status)
{
    const cem *w = model->weights;
    size_t C = model->info.width;
    char name[64];
    descent_code code;
    if ((code = model_vector(model, tensor_name(name, l, kind, "norm"), C, 1, &s->norm, status)) != DESCENT_OK) return code;
    const gguf_tensor *eta = gguf_find_tensor(model->file, tensor_name(name, l, kind, "eta"));
    s->n_eta = eta ? (size_t)eta->dims[0] : 1;
    if ((code = model_vector(model, name, s->n_eta, 1, &s->eta, status)) != DESCENT_OK) return code;
    if (w->rank < 0) return DESCENT_OK;
    const float *d;
    if ((code = model_vector(model, tensor_name(name, l, kind, "precond_d"), C, 1, &d, status)) != DESCENT_OK) return code;
    s->diagonal = descent_alloc(C, sizeof(float));
    if (!s->diagonal) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a preconditioner");
    for (size_t c = 0; c < C; c++) s->diagonal[c] = (float)(fmax((double)d[c], 0) + log1p(exp(-fabs((double)d[c]))));
    size_t r = (size_t)w->rank;
    if (r == 0) return DESCENT_OK;
    if ((code = model_matrix(model, tensor_name(name, l, kind, "precond_u"), C, r, &s->u, status)) != DESCENT_OK) return code;
    return model_matrix(model, tensor_name(name, l, kind, "precond_v"), C, r, &s->v, status);
}

static descent_code load_layer(descent_model *model, uint32_t l, layer *y, descent_status *status)
{
    const cem *w = model->weights;
    size_t C = model->info.width, M = w->hidden;
    char name[64];
    descent_code code;
    if ((code = load_sublayer(model, l, "attn", &y->attention, status)) != DESCENT_OK) return code;
    if ((code = load_sublayer(model, l, "mlp", &y->mlp, status)) != DESCENT_OK) return code;
    if ((code = model_matrix(model, tensor_name(name, l, "attn", "q"), C, C, &y->wq, status)) != DESCENT_OK) return code;
    if ((code = model_matrix(model, tensor_name(name, l, "attn", "k"), C, C, &y->wk, status)) != DESCENT_OK) return code;
    if ((code = model_matrix(model, tensor_name(name, l, "mlp", "up"), M, C, &y->up, status)) != DESCENT_OK) return code;
    if ((code = model_matrix(model, tensor_name(name, l, "mlp", "gate"), M, C, &y->gate, status)) != DESCENT_OK) return code;
    (void)tensor_name(name, l, "attn", "diag");
    if (w->diagonal == DIAGONAL_SHARED) return model_vector(model, name, C, 1, &y->d, status);
    if (w->diagonal == DIAGONAL_PER_HEAD) return model_vector(model, name, w->heads, C, &y->d, status);
    return DESCENT_OK;
}

static descent_code cem_load(descent_model *model, descent_status *status)
{
    size_t C = model->info.width;
    cem *w = calloc(1, sizeof *w);
    if (!w) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a model");
    model->weights = w;
    descent_code code;
    if ((code = load_settings(model, w, status)) != DESCENT_OK) return code;
    if (model->info.layers > gguf_tensor_count(model->file))
        return descent_fail(status, DESCENT_BAD_FILE, "cem.block_count is %u; the file has only %zu tensors",
                            model->info.layers, gguf_tensor_count(model->file));
    w->layers = calloc(model->info.layers, sizeof *w->layers);
    if (!w->layers) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %u layers", model->info.layers);
    for (uint32_t l = 0; l < model->info.layers; l++)
        if ((code = load_layer(model, l, &w->layers[l], status)) != DESCENT_OK) return code;
    if ((code = model_vector(model, "output_norm.weight", C, 1, &w->final_norm, status)) != DESCENT_OK) return code;
    model->head = model->embedding;
    if (model_has_tensor(model, "output.weight") &&
        (code = model_matrix(model, "output.weight", model->info.vocab, C, &model->head, status)) != DESCENT_OK)
        return code;
    if ((code = load_rotation(model, w, status)) != DESCENT_OK) return code;
    model->slot = w->diagonal == DIAGONAL_NONE ? C : 2 * C;
    model->hidden = w->rank > (int32_t)w->hidden ? (size_t)w->rank : w->hidden;
    model->frozen = w->hidden;
    describe(model, w);
    return DESCENT_OK;
}

static void cem_unload(descent_model *model)
{
    cem *w = model->weights;
    if (!w) return;
    for (uint32_t l = 0; w->layers && l < model->info.layers; l++) {
        free(w->layers[l].attention.diagonal);
        free(w->layers[l].mlp.diagonal);
    }
    free(w->layers);
    free(w->rotation);
    free(w);
}

/* ---- The shape of a descent ------------------------------------------------------------------------------------- */

static uint32_t cem_planes(const descent_model *model, descent_depth depth)
{
    (void)depth;
    return model->info.layers;
}

static uint32_t cem_total(const descent_model *model, descent_depth depth)
{
    return model->info.layers * ((uint32_t)depth.steps[ATTENTION] + depth.steps[MLP]);
}

static place cem_locate(const descent_model *model, descent_depth depth, uint32_t progress)
{
    (void)model;
    uint32_t both = (uint32_t)depth.steps[ATTENTION] + depth.steps[MLP], l = progress / both, t = progress % both;
    uint32_t kind = t < depth.steps[ATTENTION] ? ATTENTION : MLP;
    return (place){.layer = l,
                   .kind = kind,
                   .step = kind == ATTENTION ? t : t - depth.steps[ATTENTION],
                   .group = 2 * l + kind,
                   .plane = l,
                   .level = 2 * l + kind};
}

static bool cem_find(const descent_model *model, descent_depth depth, descent_site site, uint32_t *progress)
{
    if (site.layer >= model->info.layers || site.kind > MLP || site.step >= depth.steps[site.kind]) return false;
    uint32_t both = (uint32_t)depth.steps[ATTENTION] + depth.steps[MLP];
    *progress = site.layer * both + (site.kind == MLP ? depth.steps[ATTENTION] : 0) + site.step;
    return true;
}

static void cem_embed(const descent_model *model, uint32_t token, size_t position, float *x)
{
    (void)position;
    matrix_row(&model->embedding, token, x, false);
}

static void cem_final_norm(const descent_model *model, const float *x, float *out)
{
    const cem *w = model->weights;
    kernels_get()->rms_norm(x, model->info.width, w->final_norm, w->eps, out);
}

/* ---- Pieces ---------------------------------------------------------------------------------------------------- */

enum wide { X, G, NEXT_X, NEXT_G, GRADIENT, QUERY, OUTPUT, DIAGONAL_G, DIAGONAL_U, DIAGONAL_SUM, RATED };
enum hidden { Z, ACTIVATED, GATED, SLOPE, LOW_RANK };
enum scores { HEAD_SCORES, SHARED_SCORES, SUMMED_WEIGHTS };

typedef float (*energies)[DESCENT_MAX_TERMS];

static void normalize(const tile *t, const sublayer *s, const float *x, float *g)
{
    const cem *w = t->model->weights;
    for (size_t i = 0; i < t->n; i++)
        t->kernels->rms_norm(x + i * t->work->wide_stride, t->model->info.width, s->norm, w->eps, g + i * t->work->wide_stride);
}

/* Turns every head of y [C] by the rotation of a position, forwards (+1) or back (-1). */
static void rotate(const cem *w, size_t position, float direction, float *y)
{
    size_t half = w->head_width / 2;
    const float *turn = w->rotation + position * half * 2;
    for (uint32_t k = 0; k < w->heads; k++, y += w->head_width)
        for (size_t d = 0; d < half; d++) {
            float c = turn[2 * d], s = direction * turn[2 * d + 1], a = y[d], b = y[d + half];
            y[d] = a * c - b * s;
            y[d + half] = b * c + a * s;
        }
}

/* The rows that begin this sub-layer, and copies of their g in `copied`. `chosen` [TILE_ROWS] becomes the new tile's rows. */
static tile beginning(const tile *t, const float *g, row **chosen, float *copied)
{
    tile begin = *t;
    begin.rows = chosen;
    begin.n = 0;
    size_t ws = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i]->where.step == 0) {
            memcpy(copied + begin.n * ws, g + i * ws, t->model->info.width * sizeof *g);
            chosen[begin.n++] = t->rows[i];
        }
    return begin;
}

/* GRADIENT becomes P GRADIENT: diag(softplus(d)) + U V^T + V U^T. */
static void precondition(const tile *t, const sublayer *s)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride, hs = k->hidden_stride;
    if (!s->diagonal) return;
    float *gradient = k->wide[GRADIENT], *rated = k->wide[RATED], *low = k->hidden[LOW_RANK];
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++) rated[i * ws + c] = s->diagonal[c] * gradient[i * ws + c];
    if (w->rank > 0) {
        tile_project_back(t, &s->v, gradient, ws, low, hs, false);
        tile_project(t, &s->u, NULL, low, hs, rated, ws, true);
        tile_project_back(t, &s->u, gradient, ws, low, hs, false);
        tile_project(t, &s->v, NULL, low, hs, rated, ws, true);
    }
    k->wide[GRADIENT] = rated;
    k->wide[RATED] = gradient;
}

/* NEXT_X = X - eta[min(t, n-1)] * P GRADIENT */
static void descend(const tile *t, const sublayer *s)
{
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    precondition(t, s);
    for (size_t i = 0; i < t->n; i++) {
        size_t step = t->rows[i]->where.step;
        float eta = s->eta[step < s->n_eta ? step : s->n_eta - 1];
        for (size_t c = 0; c < C; c++)
            k->wide[NEXT_X][i * ws + c] = k->wide[X][i * ws + c] - eta * k->wide[GRADIENT][i * ws + c];
    }
}

/* ---- Attention ------------------------------------------------------------------------------------------------- */

/* Writes R_j W^K u_j and u_j of the rows that enter the layer. */
static void write_keys(const tile *t, const layer *y, const float *u)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    row *chosen[TILE_ROWS];
    tile begin = beginning(t, u, chosen, k->wide[DIAGONAL_U]);
    if (begin.n == 0) return;
    tile_project(&begin, &y->wk, NULL, k->wide[DIAGONAL_U], ws, k->wide[OUTPUT], ws, false);
    for (size_t i = 0; i < begin.n; i++) {
        const row *r = begin.rows[i];
        rotate(w, r->position, 1, k->wide[OUTPUT] + i * ws);
        (void)tile_write_key(t, r, r->where.plane, 0, k->wide[OUTPUT] + i * ws, C);
        if (w->diagonal != DIAGONAL_NONE) (void)tile_write_key(t, r, r->where.plane, C, k->wide[DIAGONAL_U] + i * ws, C);
    }
}

/* out_m = g_m * d / tau, so that a product with u_j gives the diagonal's part of a_kij / tau. */
static void weigh_by_diagonal(const tile *t, const run *r, const float *g, const float *d, float *out)
{
    const cem *w = t->model->weights;
    size_t C = t->model->info.width, ws = t->work->wide_stride;
    for (size_t m = 0; m < r->n; m++)
        for (size_t c = 0; c < C; c++) out[m * ws + c] = g[(r->first + m) * ws + c] * d[c] / w->tau;
}

/* Scores, softmax and sums of every head of one run. OUTPUT [heads of rotated keys] and DIAGONAL_SUM (sum over heads of
 * d_k * sum_j p_kij u_j) where the gradient is wanted. */
static void attend(const tile *t, const layer *y, const run *r, const float *g, bool gradient, energies energy)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, D = w->head_width, ws = k->wide_stride, ss = k->score_stride;
    float *scores = run_scratch(t, HEAD_SCORES), *shared = run_scratch(t, SHARED_SCORES),
          *summed = run_scratch(t, SUMMED_WEIGHTS);
    const float *query = k->wide[QUERY] + r->first * ws;
    float *output = k->wide[OUTPUT] + r->first * ws, *sum = k->wide[DIAGONAL_SUM] + r->first * ws;
    float *weighed = k->wide[DIAGONAL_G] + r->first * ws, *mixed = k->wide[DIAGONAL_U] + r->first * ws;
    if (w->diagonal == DIAGONAL_SHARED) {
        weigh_by_diagonal(t, r, g, y->d, weighed);
        run_scores(t, r, C, C, weighed, ws, shared, false);
    }
    double total[RUN_ROWS] = {0};
    for (uint32_t h = 0; h < w->heads; h++) {
        const float *d = w->diagonal == DIAGONAL_PER_HEAD ? y->d + h * C : y->d;
        if (w->diagonal == DIAGONAL_SHARED)
            for (size_t m = 0; m < r->n; m++) memcpy(scores + m * ss, shared + m * ss, r->longest * sizeof *scores);
        if (w->diagonal == DIAGONAL_PER_HEAD) {
            weigh_by_diagonal(t, r, g, d, weighed);
            run_scores(t, r, C, C, weighed, ws, scores, false);
        }
        run_scores(t, r, h * D, D, query + h * D, ws, scores, w->diagonal != DIAGONAL_NONE);
        float log_sum[RUN_ROWS];
        run_softmax(t, r, scores, log_sum);
        for (size_t m = 0; m < r->n; m++) total[m] += (double)log_sum[m];
        if (!gradient) continue;
        run_gather(t, r, h * D, D, scores, output + h * D, ws);
        if (w->diagonal == DIAGONAL_SHARED)
            for (size_t m = 0; m < r->n; m++)
                for (size_t j = 0; j < r->longest; j++)
                    summed[m * ss + j] = scores[m * ss + j] + (h ? summed[m * ss + j] : 0.0f);
        if (w->diagonal == DIAGONAL_PER_HEAD) {
            run_gather(t, r, C, C, scores, mixed, ws);
            for (size_t m = 0; m < r->n; m++)
                for (size_t c = 0; c < C; c++) sum[m * ws + c] = d[c] * mixed[m * ws + c] + (h ? sum[m * ws + c] : 0.0f);
        }
    }
    for (size_t m = 0; energy && m < r->n; m++) energy[r->first + m][0] = (float)(-(double)w->tau * total[m]);
    if (!gradient || w->diagonal != DIAGONAL_SHARED) return;
    run_gather(t, r, C, C, summed, mixed, ws);
    for (size_t m = 0; m < r->n; m++)
        for (size_t c = 0; c < C; c++) sum[m * ws + c] = y->d[c] * mixed[m * ws + c];
}

/* E_i = -tau sum_k log sum_j exp(a_kij / tau), and GRADIENT = -sum_k sum_j p_kij ( W^Q_k^T R_i^T R_j W^K_k u_j + d_k * u_j ),
 * at g with the keys in the pages. */
static void attention_force(const tile *t, const layer *y, const float *g, bool gradient, energies energy)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    tile_project(t, &y->wq, NULL, g, ws, k->wide[QUERY], ws, false);
    for (size_t i = 0; i < t->n; i++) {
        rotate(w, t->rows[i]->position, 1, k->wide[QUERY] + i * ws);
        for (size_t c = 0; c < C; c++) k->wide[QUERY][i * ws + c] /= w->tau;
    }
    run runs[TILE_ROWS];
    size_t n_runs = runs_make(t, false, runs);
    int threads = tile_threads(t, runs_work(runs, n_runs) * t->model->slot);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(dynamic)
    for (size_t i = 0; i < n_runs; i++) attend(t, y, &runs[i], g, gradient, energy);
    if (!gradient) return;
    for (size_t i = 0; i < t->n; i++) rotate(w, t->rows[i]->position, -1, k->wide[OUTPUT] + i * ws);
    tile_project_back(t, &y->wq, k->wide[OUTPUT], ws, k->wide[GRADIENT], ws, false);
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++) {
            float diagonal_part = w->diagonal == DIAGONAL_NONE ? 0.0f : k->wide[DIAGONAL_SUM][i * ws + c];
            k->wide[GRADIENT][i * ws + c] = -k->wide[GRADIENT][i * ws + c] - diagonal_part;
        }
}

/* ---- MLP ------------------------------------------------------------------------------------------------------- */

/* v_i = gate norm(h_i) of the rows that enter the MLP, kept with the row. */
static void freeze_gate(const tile *t, const layer *y, const float *g)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    row *chosen[TILE_ROWS];
    tile begin = beginning(t, g, chosen, k->wide[QUERY]);
    if (begin.n == 0) return;
    tile_project(&begin, &y->gate, NULL, k->wide[QUERY], k->wide_stride, k->hidden[GATED], k->hidden_stride, false);
    for (size_t i = 0; i < begin.n; i++)
        memcpy(begin.rows[i]->frozen, k->hidden[GATED] + i * k->hidden_stride, w->hidden * sizeof(float));
}

/* Li2(-exp(z)) for z <= 0, the dilogarithm: with q = log(1 + e^z), it is -(q^2/2 + q - q^2/4 + sum_k B_2k q^(2k+1) / (2k+1)!).
 */
static double dilogarithm(double z)
{
    /* B_2k / (2k+1)! */
    static const double term[] = {1.0 / 36,
                                  -1.0 / 3600,
                                  1.0 / 211680,
                                  -1.0 / 10886400,
                                  1.0 / 526901760.0,
                                  -691.0 / 16999766784000.0,
                                  1.0 / 1120863744000.0};
    double q = log1p(exp(z)), power = q * q * q, sum = q + q * q / 4;
    for (size_t k = 0; k < sizeof term / sizeof term[0]; k++, power *= q * q) sum += term[k] * power;
    return -sum;
}

/* Phi' = act, Phi(0) = 0. */
static double antiderivative(double z, activation act)
{
    const double pi = 3.14159265358979323846;
    if (act == GELU) {
        double cdf = 0.5 * erfc(-z / sqrt(2)), density = exp(-0.5 * z * z) / sqrt(2 * pi);
        return 0.25 + 0.5 * ((z * z - 1) * cdf + z * density);
    }
    double softplus = fmax(z, 0) + log1p(exp(-fabs(z)));
    double li2 = z <= 0 ? dilogarithm(z) : -dilogarithm(-z) - pi * pi / 6 - z * z / 2;
    return z * softplus + li2 + pi * pi / 12;
}

/* E_i = -sum_m v_im Phi(z_m),  GRADIENT = -up^T ( v_i * act(z) ),  z = up g */
static void mlp_force(const tile *t, const layer *y, const float *g, bool gradient, energies energy)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, M = w->hidden, ws = k->wide_stride, hs = k->hidden_stride;
    tile_project(t, &y->up, NULL, g, ws, k->hidden[Z], hs, false);
    for (size_t i = 0; energy && i < t->n; i++) {
        double sum = 0;
        for (size_t m = 0; m < M; m++)
            sum += (double)t->rows[i]->frozen[m] * antiderivative((double)k->hidden[Z][i * hs + m], w->act);
        energy[i][0] = (float)-sum;
    }
    if (!gradient) return;
    int threads = tile_threads(t, t->n * M * 20);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (size_t i = 0; i < t->n; i++) {
        const float *z = k->hidden[Z] + i * hs;
        float *a = k->hidden[ACTIVATED] + i * hs;
        if (w->act == GELU)
            t->kernels->gelu(z, M, a, k->hidden[SLOPE] + i * hs);
        else
            t->kernels->silu(z, M, a);
        for (size_t m = 0; m < M; m++) a[m] *= t->rows[i]->frozen[m];
    }
    tile_project_back(t, &y->up, k->hidden[ACTIVATED], hs, k->wide[GRADIENT], ws, false);
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++) k->wide[GRADIENT][i * ws + c] = -k->wide[GRADIENT][i * ws + c];
}

/* ---- The step -------------------------------------------------------------------------------------------------- */

typedef void (*force)(const tile *t, const layer *y, const float *g, bool gradient, energies energy);

static void observe(const tile *t, const layer *y, const sublayer *s, force at)
{
    workspace *k = t->work;
    size_t ws = k->wide_stride;
    bool energy = t->watch & DESCENT_OBSERVE_ENERGY;
    normalize(t, s, k->wide[NEXT_X], k->wide[NEXT_G]);
    if (energy) at(t, y, k->wide[NEXT_G], false, k->energy[1]);
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        const descent_sequence *q = r->sequence;
        if (!q->observe || q->ended != DESCENT_OK) continue;
        const float *x = k->wide[X] + i * ws, *next_x = k->wide[NEXT_X] + i * ws, *next_g = k->wide[NEXT_G] + i * ws;
        tile_report(t, i,
                    &(step_record){.x = x,
                                   .g = k->wide[G] + i * ws,
                                   .next_x = next_x,
                                   .next_g = next_g,
                                   .before = energy ? k->energy[0][i] : NULL,
                                   .after = energy ? k->energy[1][i] : NULL});
        bool last = r->where.step + 1 == q->depth.steps[r->where.kind];
        if (last && (q->observe & DESCENT_OBSERVE_FINAL)) {
            r->where.step++; /* the keys are frozen, so the reading at x(T) is at hand */
            tile_report(t, i,
                        &(step_record){.x = next_x, .g = next_g, .before = energy ? k->energy[1][i] : NULL, .final = true});
            r->where.step--;
        }
        if (last) r->own_after = NAN; /* the next sub-layer has an energy of its own */
    }
}

static void cem_step(tile *t)
{
    const cem *w = t->model->weights;
    workspace *k = t->work;
    bool attention = t->rows[0]->where.kind == ATTENTION;
    const layer *y = &w->layers[t->rows[0]->where.layer];
    const sublayer *s = attention ? &y->attention : &y->mlp;
    force at = attention ? attention_force : mlp_force;
    tile_gather(t, k->wide[X]);
    normalize(t, s, k->wide[X], k->wide[G]);
    tile_intervene_g(t, k->wide[G]);
    if (attention)
        write_keys(t, y, k->wide[G]);
    else
        freeze_gate(t, y, k->wide[G]);
    at(t, y, k->wide[G], true, t->watch & DESCENT_OBSERVE_ENERGY ? k->energy[0] : NULL);
    descend(t, s);
    tile_scatter(t, k->wide[NEXT_X]);
    if (t->watch) observe(t, y, s, at);
}

const family cem_family = {
    .name = "cem",
    .load = cem_load,
    .unload = cem_unload,
    .planes = cem_planes,
    .total = cem_total,
    .locate = cem_locate,
    .find = cem_find,
    .embed = cem_embed,
    .step = cem_step,
    .final_norm = cem_final_norm,
};
