/* reference_cem.c: layers of an attention descent and an MLP descent, either of which may be Llama's sub-layer instead, whole
 * sequence at once.
 *
 * Shapes: L tokens, C width, K heads of D numbers, M hidden, r preconditioner rank, V vocab. A frozen history is, per
 * token, the rotated key (C) and u = norm(h) (C), both rounded to the page; of the MLP the gate values v (M). */
#include "reference_cem.h"

#include "reference_llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct weights {
    const double *norm, *wq, *wk, *diag, *up, *gate, *eta, *d, *u, *v;
    size_t eta_entries;
} weights;

typedef struct history {
    double *keys, *u; /* [L][C]; attention */
    double *gates;    /* [L][M]; MLP */
} history;

static weights weights_of(const test_model *model, size_t layer, size_t kind)
{
    const char *part = kind ? "mlp" : "attn";
    weights w = {.norm = test_model_find(model, "blk.%zu.%s_norm.weight", layer, part),
                 .wq = test_model_find(model, "blk.%zu.attn_q.weight", layer),
                 .wk = test_model_find(model, "blk.%zu.attn_k.weight", layer),
                 .diag = test_model_find(model, "blk.%zu.attn_diag.weight", layer),
                 .up = test_model_find(model, "blk.%zu.mlp_up.weight", layer),
                 .gate = test_model_find(model, "blk.%zu.mlp_gate.weight", layer),
                 .eta = test_model_find(model, "blk.%zu.%s_eta.weight", layer, part),
                 .d = test_model_find(model, "blk.%zu.%s_precond_d.weight", layer, part),
                 .u = test_model_find(model, "blk.%zu.%s_precond_u.weight", layer, part),
                 .v = test_model_find(model, "blk.%zu.%s_precond_v.weight", layer, part),
                 .eta_entries = model->eta_entries};
    return w;
}

/* Turns every head of y to a position (direction 1), or back (-1). */
static void rotate(const test_model *model, double *y, size_t position, double direction)
{
    size_t D = model->width / model->heads;
    for (size_t k = 0; k < model->heads; k++)
        for (size_t d = 0; d < D / 2; d++) {
            double angle = direction * (double)position * pow(model->rope_base, -2.0 * (double)d / (double)D);
            double *low = y + k * D + d, *high = low + D / 2;
            double a = *low, b = *high;
            *low = a * cos(angle) - b * sin(angle);
            *high = a * sin(angle) + b * cos(angle);
        }
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

static void remember(const test_model *model, const weights *w, page_rounding round_page, const double *u, size_t i,
                     const history *past)
{
    size_t C = model->width;
    double *key = past->keys + i * C;
    reference_product(w->wk, C, C, u, key);
    rotate(model, key, i, 1.0);
    for (size_t c = 0; c < C; c++) past->u[i * C + c] = w->diag ? u[c] : 0.0; /* not kept where nobody reads it */
    reference_round_page(round_page, key, C);
    reference_round_page(round_page, past->u + i * C, C);
}

/* E_i of g at position i, and its gradient (NULL: not wanted). */
static double attention(const test_model *model, const weights *w, const history *past, size_t i, const double *g,
                        double *gradient)
{
    size_t C = model->width, D = C / model->heads;
    double tau = sqrt((double)D), energy = 0.0;
    double *q = test_alloc(C, sizeof *q), *o = test_alloc(C, sizeof *o), *p = test_alloc(i + 1, sizeof *p);
    reference_product(w->wq, C, C, g, q);
    rotate(model, q, i, 1.0);
    for (size_t k = 0; k < model->heads; k++) {
        const double *diag = w->diag ? w->diag + (strcmp(model->diagonal, "per_head") ? 0 : k * C) : NULL;
        for (size_t j = 0; j <= i; j++) {
            p[j] = reference_dot(q + k * D, past->keys + j * C + k * D, D);
            for (size_t c = 0; c < C && diag; c++) p[j] += g[c] * diag[c] * past->u[j * C + c];
            p[j] /= tau;
        }
        energy -= tau * reference_softmax(p, i + 1, p);
        for (size_t j = 0; j <= i && gradient; j++) {
            for (size_t d = k * D; d < (k + 1) * D; d++) o[d] += p[j] * past->keys[j * C + d];
            for (size_t c = 0; c < C && diag; c++) gradient[c] -= p[j] * diag[c] * past->u[j * C + c];
        }
    }
    if (gradient) {
        rotate(model, o, i, -1.0);
        reference_transposed(w->wq, C, C, o, q);
        for (size_t c = 0; c < C; c++) gradient[c] -= q[c];
    }
    free(q);
    free(o);
    free(p);
    return energy;
}

/* ---- MLP --------------------------------------------------------------------------------------------------------- */

static double softplus(double z)
{
    return fmax(z, 0.0) + log1p(exp(-fabs(z)));
}

/* The integral of silu from 0 to z, by Gauss-Legendre over pieces of at most half a unit: nothing shared with the series
 * the engine may use. */
static double silu_integral(double z)
{
    static const double at[4] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975363};
    static const double weight[4] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763};
    size_t pieces = (size_t)(fabs(z) * 2.0) + 1;
    double half = z / (double)pieces / 2.0, sum = 0.0;
    for (size_t n = 0; n < pieces; n++) {
        double middle = half * (double)(2 * n + 1);
        for (size_t k = 0; k < 4; k++) {
            double a = middle + half * at[k], b = middle - half * at[k];
            sum += half * weight[k] * (a / (1.0 + exp(-a)) + b / (1.0 + exp(-b)));
        }
    }
    return sum;
}

/* The integral of the activation from 0 to z. */
static double integral(const test_model *model, double z)
{
    if (!strcmp(model->activation, "silu")) return silu_integral(z);
    double cdf = 0.5 * (1.0 + erf(z * sqrt(0.5))), pdf = exp(-0.5 * z * z) / sqrt(2.0 * 3.141592653589793);
    return 0.5 * ((z * z - 1.0) * cdf + z * pdf) + 0.25;
}

static double activation(const test_model *model, double z)
{
    return strcmp(model->activation, "silu") ? reference_gelu(z) : z * exp(-softplus(-z));
}

static double mlp(const test_model *model, const weights *w, const double *gates, const double *g, double *gradient)
{
    size_t C = model->width, M = model->hidden;
    double energy = 0.0;
    double *z = test_alloc(M, sizeof *z), *back = test_alloc(C, sizeof *back);
    reference_product(w->up, M, C, g, z);
    for (size_t m = 0; m < M; m++) {
        energy -= gates[m] * integral(model, z[m]);
        z[m] = gates[m] * activation(model, z[m]);
    }
    reference_transposed(w->up, M, C, z, back);
    for (size_t c = 0; c < C && gradient; c++) gradient[c] -= back[c];
    free(z);
    free(back);
    return energy;
}

/* ---- The descents ------------------------------------------------------------------------------------------------ */

static double energy_of(const test_model *model, const weights *w, const history *past, size_t kind, size_t i, const double *g,
                        double *gradient)
{
    return kind ? mlp(model, w, past->gates + i * model->hidden, g, gradient) : attention(model, w, past, i, g, gradient);
}

/* update = eta P gradient. Returns the slope of the energy along it. */
static double rated(const test_model *model, const weights *w, size_t t, const double *x, const double *gradient,
                    double *update)
{
    size_t C = model->width, rank = model->rank > 0 ? (size_t)model->rank : 0;
    double eta = w->eta[t < w->eta_entries ? t : w->eta_entries - 1];
    double *gu = test_alloc(rank, sizeof *gu), *gv = test_alloc(rank, sizeof *gv);
    if (rank) {
        reference_transposed(w->u, C, rank, gradient, gu);
        reference_transposed(w->v, C, rank, gradient, gv);
    }
    for (size_t c = 0; c < C; c++) {
        update[c] = w->d ? softplus(w->d[c]) * gradient[c] : gradient[c];
        if (rank) update[c] += reference_dot(w->u + c * rank, gv, rank) + reference_dot(w->v + c * rank, gu, rank);
        update[c] *= eta;
    }
    free(gu);
    free(gv);
    return reference_slope(x, C, model->norm_epsilon, w->norm, true, gradient, update);
}

static void compare(reference_step *before, reference_step *after, size_t count, size_t C)
{
    for (size_t i = 0; i < count; i++) {
        before->own_change[i] = after->energy[0][i] - before->energy[0][i];
        after->history_change[i] = 0.0;
        before->update_norm[i] = reference_distance(after->x + i * C, before->x + i * C, C);
        before->relative_change[i] = reference_distance(after->g + i * C, before->g + i * C, C) /
                                     sqrt(reference_dot(before->g + i * C, before->g + i * C, C));
    }
}

/* A sub-layer that runs once and has no energy, of every token: h [L][C] in, what comes of it out in place. */
static void run_once(const test_model *model, const reference_request *request, reference_run *run, size_t program, double *h)
{
    size_t C = model->width, layer = program / 2, kind = program % 2;
    const double *norm = test_model_find(model, "blk.%zu.%s_norm.weight", layer, kind ? "mlp" : "attn");
    reference_step *before = &run->at[program][0], *after = &run->at[program][1];
    memcpy(before->x, h, run->count * C * sizeof *h);
    for (size_t i = 0; i < run->count; i++) {
        descent_site site = {(uint32_t)layer, (uint32_t)kind, 0, i};
        reference_apply(request, site, false, before->x + i * C, C);
        reference_norm(before->x + i * C, C, model->norm_epsilon, norm, NULL, true, before->g + i * C);
        reference_apply(request, site, true, before->g + i * C, C);
    }
    if (kind)
        reference_swiglu(model, layer, before->g, run->count, h);
    else
        reference_llama_attention(model, layer, request->round_page, before->g, run->count, h);
    for (size_t c = 0; c < run->count * C; c++) h[c] += before->x[c];
    memcpy(after->x, h, run->count * C * sizeof *h);
    for (size_t i = 0; i < run->count; i++)
        reference_norm(h + i * C, C, model->norm_epsilon, norm, NULL, true, after->g + i * C);
    compare(before, after, run->count, C);
    for (size_t i = 0; i < run->count; i++) after->history_change[i] = NAN;
}

/* One sub-layer of every token: h [L][C] in, x(T) out in place. */
static void run_program(const test_model *model, const reference_request *request, reference_run *run, size_t program,
                        const history *past, double *h)
{
    size_t C = model->width, layer = program / 2, kind = program % 2, T = run->steps[program];
    weights w = weights_of(model, layer, kind);
    double *gradient = test_alloc(C, sizeof *gradient), *update = test_alloc(C, sizeof *update);
    double *momentum = test_alloc(run->count * C, sizeof *momentum);
    memcpy(run->at[program][0].x, h, run->count * C * sizeof *h);
    for (size_t t = 0; t <= T; t++) {
        reference_step *step = &run->at[program][t];
        for (size_t i = 0; i < run->count; i++) {
            descent_site site = {(uint32_t)layer, (uint32_t)kind, (uint32_t)t, i};
            double *x = step->x + i * C, *g = step->g + i * C;
            if (t < T) reference_apply(request, site, false, x, C);
            reference_norm(x, C, model->norm_epsilon, w.norm, NULL, true, g);
            if (t < T) reference_apply(request, site, true, g, C);
            if (t == 0 && kind == 0) remember(model, &w, request->round_page, g, i, past);
            if (t == 0 && kind == 1) reference_product(w.gate, model->hidden, C, g, past->gates + i * model->hidden);
            memset(gradient, 0, C * sizeof *gradient);
            step->energy[0][i] = energy_of(model, &w, past, kind, i, g, gradient);
            if (t > 0) reference_decide(request, run, program, t - 1, i);
            if (t == T) continue;
            double *next = run->at[program][t + 1].x + i * C;
            step->slope[i] = rated(model, &w, t, x, gradient, update);
            reference_move(request, site, false, run->at[program][0].x + i * C, x, update, momentum + i * C, C, next);
            if (run->used[program][i] <= t) memcpy(next, x, C * sizeof *x); /* it has stopped */
        }
        if (t > 0) compare(&run->at[program][t - 1], step, run->count, C);
    }
    memcpy(h, run->at[program][T].x, run->count * C * sizeof *h);
    free(gradient);
    free(update);
    free(momentum);
}

static history history_create(const test_model *model, size_t count)
{
    return (history){.keys = test_alloc(count * model->width, sizeof(double)),
                     .u = test_alloc(count * model->width, sizeof(double)),
                     .gates = test_alloc(count * model->hidden, sizeof(double))};
}

static void history_free(history *past)
{
    free(past->keys);
    free(past->u);
    free(past->gates);
}

reference_run reference_cem(const test_model *model, const reference_request *request)
{
    size_t C = model->width;
    reference_run run = reference_run_create(model, request);
    history past = history_create(model, request->count);
    const double *embedding = test_model_find(model, "token_embd.weight");
    for (size_t i = 0; i < run.count; i++) memcpy(run.states + i * C, embedding + request->tokens[i] * C, C * sizeof(double));
    for (size_t program = 0; program < run.programs; program++) {
        if (test_has_energy(model->family, program % 2))
            run_program(model, request, &run, program, &past, run.states);
        else
            run_once(model, request, &run, program, run.states);
    }
    const double *head = test_model_find(model, model->tied ? "token_embd.weight" : "output.weight");
    double *normed = test_alloc(C, sizeof *normed);
    for (size_t i = 0; i < run.count; i++) {
        reference_norm(run.states + i * C, C, model->norm_epsilon, test_model_find(model, "output_norm.weight"), NULL, true,
                       normed);
        reference_product(head, model->vocab, C, normed, run.logits + i * model->vocab);
    }
    reference_blank(&run);
    free(normed);
    history_free(&past);
    return run;
}

double reference_cem_energy(const test_model *model, descent_site site, const double *keys, page_rounding round_page,
                            const double *g)
{
    size_t C = model->width, i = site.position;
    weights w = weights_of(model, site.layer, site.kind);
    history past = history_create(model, i + 1);
    for (size_t j = 0; j <= i && site.kind == 0; j++) remember(model, &w, round_page, keys + j * C, j, &past);
    if (site.kind == 1) reference_product(w.gate, model->hidden, C, keys + i * C, past.gates + i * model->hidden);
    double energy = energy_of(model, &w, &past, site.kind, i, g, NULL);
    history_free(&past);
    return energy;
}
