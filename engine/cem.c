/* cem.c: CEM's sub-layers (arXiv 2605.07588), an attention descent and an MLP descent. Section 2 of the mathematics:
 *
 *     x_i(0) = h_i,   g_i = norm(x_i(t)),   x_i(t+1) = x_i(t) - eta[min(t, n-1)] * P grad_i(t)
 *
 * (but for what a sequence asks of its motion, motion.c) with the history frozen at the sub-layer's input h. Called by
 * layered.c. Plane l holds for each token R_j W^K u_j and, where there is a diagonal, u_j behind it, u_j = norm(h_j); it is
 * written by the first attention step of layer l. K heads of width D; arrays are [rows][stride]. */
#include "attention.h"
#include "layered.h"
#include "motion.h"
#include "sequence.h"
#include "slope.h"
#include "status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum diagonal { DIAGONAL_NONE, DIAGONAL_SHARED, DIAGONAL_PER_HEAD } diagonal;
typedef enum activation { SILU, GELU } activation;

static const char *const diagonal_names[] = {"none", "shared", "per_head", NULL};
static const char *const activation_names[] = {"silu", "gelu", NULL};

enum wide { GRADIENT = WIDE_OWN, QUERY, OUTPUT, DIAGONAL_G, DIAGONAL_U, DIAGONAL_SUM, RATED };
enum hidden { Z, ACTIVATED, GATED, SLOPE, LOW_RANK };
enum scores { HEAD_SCORES, SHARED_SCORES, SUMMED_WEIGHTS };

/* ---- The descent both sub-layers make --------------------------------------------------------------------------- */

/* How far, and through what preconditioner P. */
typedef struct rates {
    const float *eta; /* [n_eta] */
    size_t n_eta;
    int32_t rank;    /* -1: no preconditioner, 0: diagonal only */
    float *diagonal; /* [C] softplus(d), or NULL: no preconditioner */
    matrix u, v;     /* [C, r], rank > 0 */
} rates;

static descent_code load_rates(descent_model *model, uint32_t l, const char *part, rates *s, descent_status *status)
{
    size_t C = model->info.width;
    char name[64], piece[32];
    descent_code code = gguf_get_i32(model->file, "cem.preconditioner.rank", -1, (int32_t)C, &s->rank, status);
    if (code != DESCENT_OK) return code;
    (void)snprintf(piece, sizeof piece, "%s_eta", part);
    const gguf_tensor *eta = gguf_find_tensor(model->file, layered_tensor(name, l, piece));
    s->n_eta = eta ? (size_t)eta->dims[0] : 1;
    if ((code = model_vector(model, name, s->n_eta, 1, &s->eta, status)) != DESCENT_OK) return code;
    if (s->rank < 0) return DESCENT_OK;
    const float *d;
    (void)snprintf(piece, sizeof piece, "%s_precond_d", part);
    if ((code = layered_vector(model, l, piece, C, 1, &d, status)) != DESCENT_OK) return code;
    s->diagonal = descent_alloc(C, sizeof(float));
    if (!s->diagonal) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a preconditioner");
    for (size_t c = 0; c < C; c++) s->diagonal[c] = (float)(fmax((double)d[c], 0) + log1p(exp(-fabs((double)d[c]))));
    size_t r = (size_t)s->rank;
    if (r == 0) return DESCENT_OK;
    if (model->hidden < r) model->hidden = r;
    (void)snprintf(piece, sizeof piece, "%s_precond_u", part);
    if ((code = layered_matrix(model, l, piece, C, r, &s->u, status)) != DESCENT_OK) return code;
    (void)snprintf(piece, sizeof piece, "%s_precond_v", part);
    return layered_matrix(model, l, piece, C, r, &s->v, status);
}

static void describe_rates(const rates *s, char *text, size_t size)
{
    if (s->rank > 0)
        (void)snprintf(text, size, "preconditioner rank %d", s->rank);
    else
        (void)snprintf(text, size, "preconditioner %s", s->rank < 0 ? "none" : "diagonal");
}

/* GRADIENT becomes P GRADIENT: diag(softplus(d)) + U V^T + V U^T. */
static void precondition(const tile *t, const rates *s)
{
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride, hs = k->hidden_stride;
    if (!s->diagonal) return;
    float *gradient = k->wide[GRADIENT], *rated = k->wide[RATED], *low = k->hidden[LOW_RANK];
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++) rated[i * ws + c] = s->diagonal[c] * gradient[i * ws + c];
    if (s->rank > 0) {
        tile_project_back(t, &s->v, gradient, ws, low, hs, false);
        tile_project(t, &s->u, NULL, low, hs, rated, ws, true);
        tile_project_back(t, &s->u, gradient, ws, low, hs, false);
        tile_project(t, &s->v, NULL, low, hs, rated, ws, true);
    }
    k->wide[GRADIENT] = rated;
    k->wide[RATED] = gradient;
}

static float eta_of(const rates *s, const row *r)
{
    size_t step = r->where.step;
    return s->eta[step < s->n_eta ? step : s->n_eta - 1];
}

/* Behind precondition, which leaves P grad in GRADIENT and, where there is a P, grad in RATED. */
static void slopes(const tile *t, const rates *s)
{
    const layered *w = t->model->weights;
    workspace *k = t->work;
    place where = t->rows[0]->where;
    float eta[TILE_ROWS];
    for (size_t i = 0; i < t->n; i++) eta[i] = eta_of(s, t->rows[i]);
    const slope_norm norm = {.weight = w->norms[where.kind][where.layer], .eps = w->eps};
    tile_slopes(t, &norm, k->wide[WIDE_X], k->wide[s->diagonal ? RATED : GRADIENT], k->wide[GRADIENT], eta);
}

static void scale(float *a, float by, size_t n)
{
    for (size_t k = 0; k < n; k++) a[k] *= by;
}

/* GRADIENT becomes eta[min(t, n-1)] * P GRADIENT, and NEXT_X is X moved by it. */
static void descend(const tile *t, const rates *s)
{
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    precondition(t, s);
    if (t->watch & DESCENT_OBSERVE_SLOPE) slopes(t, s);
    for (size_t i = 0; i < t->n; i++) scale(k->wide[GRADIENT] + i * ws, eta_of(s, t->rows[i]), C);
    tile_move(t, k->wide[WIDE_X], k->wide[GRADIENT], k->wide[WIDE_NEXT_X]);
}

/* Row r of U V^T + V U^T, beside softplus(d_r) or 1 on the diagonal. u and v are [C, rank], as floats. */
static void rate_row(const rates *s, size_t r, size_t width, const float *u, const float *v, double *sums)
{
    size_t rank = s->rank > 0 ? (size_t)s->rank : 0;
    for (size_t c = 0; c < width; c++) {
        sums[c] = c != r ? 0 : s->diagonal ? (double)s->diagonal[r] : 1;
        for (size_t k = 0; k < rank; k++)
            sums[c] += (double)u[r * rank + k] * (double)v[c * rank + k] + (double)v[r * rank + k] * (double)u[c * rank + k];
    }
}

static bool rates_beside(const rates *s, size_t width, const float *norm, uint32_t step, descent_rate *rate)
{
    size_t rank = s->rank > 0 ? (size_t)s->rank : 0;
    double *sums = calloc(width, sizeof *sums);
    float *u = calloc(width * rank + 1, sizeof *u), *v = calloc(width * rank + 1, sizeof *v);
    rate_sum sum = rate_sum_none();
    bool known = sums && u && v;
    for (size_t r = 0; known && rank > 0 && r < width; r++) {
        matrix_row(&s->u, r, u + r * rank, false);
        matrix_row(&s->v, r, v + r * rank, false);
    }
    for (size_t r = 0; known && r < width; r++) {
        rate_row(s, r, width, u, v, sums);
        rate_sum_row(&sum, r, sums, width, (double)s->eta[step < s->n_eta ? step : s->n_eta - 1], norm[r]);
    }
    if (known) rate_sum_end(&sum, rate);
    free(sums);
    free(u);
    free(v);
    return known;
}

/* ---- Attention ------------------------------------------------------------------------------------------------- */

typedef struct attention {
    rates rates;
    matrix wq, wk; /* [C, C], rows kD..(k+1)D are head k */
    diagonal diagonal;
    const float *d; /* [C] or [K, C] */
    float tau;
} attention;

static descent_code attention_load(descent_model *model, uint32_t l, void *weights, descent_status *status)
{
    attention *y = weights;
    const layered *w = model->weights;
    size_t C = model->info.width;
    uint32_t diag;
    descent_code code;
    if ((code = model_choice(model, "attention.diagonal", diagonal_names, &diag, status)) != DESCENT_OK) return code;
    if ((code = load_rates(model, l, "attn", &y->rates, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "attn_q", C, C, &y->wq, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "attn_k", C, C, &y->wk, status)) != DESCENT_OK) return code;
    y->diagonal = (diagonal)diag;
    y->tau = sqrtf((float)w->head_width);
    model->history_weight += (double)y->tau * w->heads;
    size_t slot = y->diagonal == DIAGONAL_NONE ? C : slot_part(C) + C;
    if (model->slot < slot) model->slot = slot;
    if (y->diagonal == DIAGONAL_SHARED) return layered_vector(model, l, "attn_diag", C, 1, &y->d, status);
    if (y->diagonal == DIAGONAL_PER_HEAD) return layered_vector(model, l, "attn_diag", w->heads, C, &y->d, status);
    return DESCENT_OK;
}

static void attention_unload(void *weights)
{
    free(((attention *)weights)->rates.diagonal);
}

static void attention_describe(const layered *w, const void *weights, char *text, size_t size)
{
    (void)w;
    const attention *y = weights;
    char preconditioner[48];
    describe_rates(&y->rates, preconditioner, sizeof preconditioner);
    (void)snprintf(text, size, "%s diagonal, %s", diagonal_names[y->diagonal], preconditioner);
}

/* Writes R_j W^K u_j and u_j of the rows that enter the layer. */
static void write_keys(const tile *t, const attention *y, const float *u)
{
    const layered *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    row *chosen[TILE_ROWS];
    tile begin = layered_beginning(t, u, chosen, k->wide[DIAGONAL_U]);
    if (begin.n == 0) return;
    tile_project(&begin, &y->wk, NULL, k->wide[DIAGONAL_U], ws, k->wide[OUTPUT], ws, false);
    for (size_t i = 0; i < begin.n; i++) {
        const row *r = begin.rows[i];
        layered_rotate(w, r->position, 1, k->wide[OUTPUT] + i * ws);
        (void)tile_write_key(t, r, r->where.plane, 0, k->wide[OUTPUT] + i * ws, C);
        if (y->diagonal != DIAGONAL_NONE)
            (void)tile_write_key(t, r, r->where.plane, slot_part(C), k->wide[DIAGONAL_U] + i * ws, C);
    }
}

/* out_m = g_m * d / tau, so that a product with u_j gives the diagonal's part of a_kij / tau. */
static void weigh_by_diagonal(const tile *t, const run *r, const float *g, const float *d, float tau, float *out)
{
    size_t C = t->model->info.width, ws = t->work->wide_stride;
    for (size_t m = 0; m < r->n; m++)
        for (size_t c = 0; c < C; c++) out[m * ws + c] = g[(r->first + m) * ws + c] * d[c] / tau;
}

/* Scores, softmax and sums of every head of one run. OUTPUT [heads of rotated keys] and DIAGONAL_SUM (sum over heads of
 * d_k * sum_j p_kij u_j) where the gradient is wanted. */
typedef struct attention_pass {
    const tile *t;
    const attention *y;
    const run *runs;
    const float *g;
    bool gradient;
    energies energy;
} attention_pass;

static void attend(const void *arg, size_t i, unsigned thread)
{
    const attention_pass *p = arg;
    const tile *t = p->t;
    const attention *y = p->y;
    const run *r = &p->runs[i];
    const float *g = p->g;
    bool gradient = p->gradient;
    energies energy = p->energy;
    const layered *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, D = w->head_width, ws = k->wide_stride, ss = k->score_stride;
    size_t inputs = slot_part(C); /* where a slot has u_j, behind R_j W^K u_j */
    float *scores = run_scratch(t, thread, HEAD_SCORES), *shared = run_scratch(t, thread, SHARED_SCORES),
          *summed = run_scratch(t, thread, SUMMED_WEIGHTS);
    const float *query = k->wide[QUERY] + r->first * ws;
    float *output = k->wide[OUTPUT] + r->first * ws, *sum = k->wide[DIAGONAL_SUM] + r->first * ws;
    float *weighed = k->wide[DIAGONAL_G] + r->first * ws, *mixed = k->wide[DIAGONAL_U] + r->first * ws;
    if (y->diagonal == DIAGONAL_SHARED) {
        weigh_by_diagonal(t, r, g, y->d, y->tau, weighed);
        run_scores(t, r, inputs, C, weighed, ws, shared, false);
    }
    double total[RUN_ROWS] = {0};
    for (uint32_t h = 0; h < w->heads; h++) {
        const float *d = y->diagonal == DIAGONAL_PER_HEAD ? y->d + h * C : y->d;
        if (y->diagonal == DIAGONAL_SHARED)
            for (size_t m = 0; m < r->n; m++) memcpy(scores + m * ss, shared + m * ss, r->longest * sizeof *scores);
        if (y->diagonal == DIAGONAL_PER_HEAD) {
            weigh_by_diagonal(t, r, g, d, y->tau, weighed);
            run_scores(t, r, inputs, C, weighed, ws, scores, false);
        }
        run_scores(t, r, h * D, D, query + h * D, ws, scores, y->diagonal != DIAGONAL_NONE);
        float log_sum[RUN_ROWS];
        run_softmax(t, r, scores, log_sum);
        for (size_t m = 0; m < r->n; m++) total[m] += (double)log_sum[m];
        if (!gradient) continue;
        run_gather(t, r, h * D, D, scores, output + h * D, ws);
        if (y->diagonal == DIAGONAL_SHARED)
            for (size_t m = 0; m < r->n; m++)
                for (size_t j = 0; j < r->longest; j++)
                    summed[m * ss + j] = scores[m * ss + j] + (h ? summed[m * ss + j] : 0.0f);
        if (y->diagonal == DIAGONAL_PER_HEAD) {
            run_gather(t, r, inputs, C, scores, mixed, ws);
            for (size_t m = 0; m < r->n; m++)
                for (size_t c = 0; c < C; c++) sum[m * ws + c] = d[c] * mixed[m * ws + c] + (h ? sum[m * ws + c] : 0.0f);
        }
    }
    for (size_t m = 0; energy && m < r->n; m++) energy[r->first + m][0] = (float)(-(double)y->tau * total[m]);
    if (!gradient || y->diagonal != DIAGONAL_SHARED) return;
    run_gather(t, r, inputs, C, summed, mixed, ws);
    for (size_t m = 0; m < r->n; m++)
        for (size_t c = 0; c < C; c++) sum[m * ws + c] = y->d[c] * mixed[m * ws + c];
}

/* E_i = -tau sum_k log sum_j exp(a_kij / tau), and GRADIENT = -sum_k sum_j p_kij ( W^Q_k^T R_i^T R_j W^K_k u_j + d_k * u_j ),
 * at g with the keys in the pages. */
static void attention_force(const tile *t, const attention *y, const float *g, bool gradient, energies energy)
{
    const layered *w = t->model->weights;
    workspace *k = t->work;
    size_t C = t->model->info.width, ws = k->wide_stride;
    tile_project(t, &y->wq, NULL, g, ws, k->wide[QUERY], ws, false);
    for (size_t i = 0; i < t->n; i++) {
        layered_rotate(w, t->rows[i]->position, 1, k->wide[QUERY] + i * ws);
        for (size_t c = 0; c < C; c++) k->wide[QUERY][i * ws + c] /= y->tau;
    }
    run runs[TILE_ROWS];
    size_t n_runs = runs_make(t, false, runs);
    tile_each(t, n_runs, runs_work(runs, n_runs) * t->model->slot, attend, &(attention_pass){t, y, runs, g, gradient, energy});
    if (!gradient) return;
    for (size_t i = 0; i < t->n; i++) layered_rotate(w, t->rows[i]->position, -1, k->wide[OUTPUT] + i * ws);
    tile_project_back(t, &y->wq, k->wide[OUTPUT], ws, k->wide[GRADIENT], ws, false);
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++) {
            float diagonal_part = y->diagonal == DIAGONAL_NONE ? 0.0f : k->wide[DIAGONAL_SUM][i * ws + c];
            k->wide[GRADIENT][i * ws + c] = -k->wide[GRADIENT][i * ws + c] - diagonal_part;
        }
}

static void attention_step(const tile *t, const void *weights, energies energy)
{
    const attention *y = weights;
    write_keys(t, y, t->work->wide[WIDE_G]);
    attention_force(t, y, t->work->wide[WIDE_G], true, energy);
    descend(t, &y->rates);
}

static void attention_energy(const tile *t, const void *weights, const float *g, energies energy)
{
    attention_force(t, weights, g, false, energy);
}

static bool attention_rate(const descent_model *model, const void *weights, const float *norm, uint32_t step,
                           descent_rate *rate)
{
    return rates_beside(&((const attention *)weights)->rates, model->info.width, norm, step, rate);
}

const sublayer_kind cem_attention = {
    .name = "cem",
    .size = sizeof(attention),
    .load = attention_load,
    .unload = attention_unload,
    .describe = attention_describe,
    .step = attention_step,
    .rate = attention_rate,
    .energy = attention_energy,
};

/* ---- MLP ------------------------------------------------------------------------------------------------------- */

typedef struct mlp {
    rates rates;
    matrix up, gate; /* [M, C] */
    activation act;
} mlp;

static descent_code mlp_load(descent_model *model, uint32_t l, void *weights, descent_status *status)
{
    mlp *y = weights;
    size_t C = model->info.width, M = ((const layered *)model->weights)->hidden;
    uint32_t act;
    descent_code code;
    if ((code = model_choice(model, "activation", activation_names, &act, status)) != DESCENT_OK) return code;
    if ((code = load_rates(model, l, "mlp", &y->rates, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "mlp_up", M, C, &y->up, status)) != DESCENT_OK) return code;
    if ((code = layered_matrix(model, l, "mlp_gate", M, C, &y->gate, status)) != DESCENT_OK) return code;
    y->act = (activation)act;
    if (model->hidden < M) model->hidden = M;
    model->frozen = M;
    return DESCENT_OK;
}

static void mlp_unload(void *weights)
{
    free(((mlp *)weights)->rates.diagonal);
}

/* The preconditioner's rank is one for both kinds, and has been told where the attention is of CEM too. */
static void mlp_describe(const layered *w, const void *weights, char *text, size_t size)
{
    const mlp *y = weights;
    char preconditioner[48];
    describe_rates(&y->rates, preconditioner, sizeof preconditioner);
    bool told = w->kind[ATTENTION] == &cem_attention;
    (void)snprintf(text, size, "%s%s%s", told ? "" : preconditioner, told ? "" : ", ", activation_names[y->act]);
}

/* v_i = gate norm(h_i) of the rows that enter the MLP, kept with the row. */
static void freeze_gate(const tile *t, const mlp *y, const float *g)
{
    workspace *k = t->work;
    row *chosen[TILE_ROWS];
    tile begin = layered_beginning(t, g, chosen, k->wide[QUERY]);
    if (begin.n == 0) return;
    tile_project(&begin, &y->gate, NULL, k->wide[QUERY], k->wide_stride, k->hidden[GATED], k->hidden_stride, false);
    for (size_t i = 0; i < begin.n; i++)
        memcpy(begin.rows[i]->frozen, k->hidden[GATED] + i * k->hidden_stride, y->up.rows * sizeof(float));
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

typedef struct mlp_pass {
    const mlp *y;
    const float *g;
} mlp_pass;

/* Hidden units [first, last): Z = up g, ACTIVATED = v_i * act(z). */
static void mlp_units(const tile *t, const void *arg, size_t first, size_t last)
{
    const mlp_pass *p = arg;
    workspace *k = t->work;
    size_t hs = k->hidden_stride, n = last - first;
    tile_project_rows(t, &p->y->up, NULL, p->g, k->wide_stride, k->hidden[Z], hs, first, last);
    for (size_t i = 0; i < t->n; i++) {
        const float *z = k->hidden[Z] + i * hs + first, *gate = t->rows[i]->frozen + first;
        float *a = k->hidden[ACTIVATED] + i * hs + first;
        if (p->y->act == GELU)
            t->kernels->gelu(z, n, a, k->hidden[SLOPE] + i * hs + first);
        else
            t->kernels->silu(z, n, a);
        for (size_t m = 0; m < n; m++) a[m] *= gate[m];
    }
}

/* E_i = -sum_m v_im Phi(z_m),  GRADIENT = -up^T ( v_i * act(z) ),  z = up g */
static void mlp_force(const tile *t, const mlp *y, const float *g, bool gradient, energies energy)
{
    workspace *k = t->work;
    size_t C = t->model->info.width, M = y->up.rows, ws = k->wide_stride, hs = k->hidden_stride;
    const hidden_sum back = {.w = &y->up, .in = k->hidden[ACTIVATED], .out = k->wide[GRADIENT], .scratch = k->wide[QUERY]};
    tile_hidden(t, M, 2 * tile_product_work(t, &y->up) + 20 * t->n * M, mlp_units, &(mlp_pass){y, g}, &back, gradient);
    for (size_t i = 0; energy && i < t->n; i++) {
        double sum = 0;
        for (size_t m = 0; m < M; m++)
            sum += (double)t->rows[i]->frozen[m] * antiderivative((double)k->hidden[Z][i * hs + m], y->act);
        energy[i][0] = (float)-sum;
    }
    if (!gradient) return;
    for (size_t i = 0; i < t->n; i++)
        for (size_t c = 0; c < C; c++) k->wide[GRADIENT][i * ws + c] = -k->wide[GRADIENT][i * ws + c];
}

static void mlp_step(const tile *t, const void *weights, energies energy)
{
    const mlp *y = weights;
    freeze_gate(t, y, t->work->wide[WIDE_G]);
    mlp_force(t, y, t->work->wide[WIDE_G], true, energy);
    descend(t, &y->rates);
}

static void mlp_energy(const tile *t, const void *weights, const float *g, energies energy)
{
    mlp_force(t, weights, g, false, energy);
}

static bool mlp_rate(const descent_model *model, const void *weights, const float *norm, uint32_t step, descent_rate *rate)
{
    return rates_beside(&((const mlp *)weights)->rates, model->info.width, norm, step, rate);
}

const sublayer_kind cem_mlp = {
    .name = "cem",
    .size = sizeof(mlp),
    .load = mlp_load,
    .unload = mlp_unload,
    .describe = mlp_describe,
    .step = mlp_step,
    .rate = mlp_rate,
    .energy = mlp_energy,
};
