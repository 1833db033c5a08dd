/* reference_nrgpt.c: one block, applied T times, whole sequence at once; where last states are read, token by token.
 *
 * Shapes: L tokens, C width, H heads, F hidden, V vocab. Keys are g of every token at one step, rounded to the page; of a token
 * that has made its last step, g at its last state. */
#include "reference_nrgpt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tensors by what they are in the formulas. */
typedef struct weights {
    const double *norm_weight, *norm_bias;
    const double *alpha;
    const double *w1, *b1, *w2, *b2;
    double scale_ff;
    const double *rate;
    const double **h; /* [H] of C x C */
} weights;

static weights weights_of(const test_model *model)
{
    weights w = {.norm_weight = test_model_find(model, "blk.0.norm.weight"),
                 .norm_bias = test_model_find(model, "blk.0.norm.bias"),
                 .alpha = test_model_find(model, "blk.0.attn_alpha.weight"),
                 .w1 = test_model_find(model, "blk.0.ffn_1.weight"),
                 .b1 = test_model_find(model, "blk.0.ffn_1.bias"),
                 .w2 = test_model_find(model, "blk.0.ffn_2.weight"),
                 .b2 = test_model_find(model, "blk.0.ffn_2.bias"),
                 .scale_ff = test_model_find(model, "blk.0.ffn_scale.weight")[0],
                 .rate = test_model_find(model, "blk.0.rate.weight")};
    w.h = test_alloc(model->heads, sizeof(double *));
    for (size_t h = 0; h < model->heads; h++) w.h[h] = test_model_find(model, "blk.0.attn_h.%zu.weight", h);
    return w;
}

/* Energy of g as the query against keys 0..n-1, and its gradient (NULL: not wanted). No key: both 0. */
static double attention(const test_model *model, const weights *w, const double *g, const double *keys, size_t n,
                        double *gradient)
{
    size_t C = model->width;
    double energy = 0.0;
    double *q = test_alloc(C, sizeof *q), *u = test_alloc(C, sizeof *u), *a = test_alloc(n, sizeof *a);
    for (size_t h = 0; h < model->heads && n > 0; h++) {
        double alpha = w->alpha ? w->alpha[h] : 1.0;
        reference_transposed(w->h[h], C, C, g, q);
        for (size_t j = 0; j < n; j++) a[j] = model->beta * reference_dot(q, keys + j * C, C);
        energy -= alpha / model->beta * reference_softmax(a, n, a);
        if (!gradient) continue;
        memset(u, 0, C * sizeof *u);
        for (size_t j = 0; j < n; j++)
            for (size_t c = 0; c < C; c++) u[c] += a[j] * keys[j * C + c];
        reference_product(w->h[h], C, C, u, q);
        for (size_t c = 0; c < C; c++) gradient[c] -= alpha * q[c];
    }
    free(q);
    free(u);
    free(a);
    return energy;
}

/* E = -|gelu(Wg + b)|^2 */
static double ff1(const test_model *model, const weights *w, const double *g, double *gradient)
{
    size_t C = model->width, F = model->hidden;
    double energy = 0.0;
    double *z = test_alloc(F, sizeof *z), *back = test_alloc(C, sizeof *back);
    reference_product(w->w1, F, C, g, z);
    for (size_t f = 0; f < F; f++) {
        double y = reference_gelu(z[f] + w->b1[f]);
        energy -= y * y;
        z[f] = y * reference_gelu_slope(z[f] + w->b1[f]);
    }
    reference_transposed(w->w1, F, C, z, back);
    for (size_t c = 0; c < C; c++) gradient[c] += w->scale_ff * -2.0 * back[c];
    free(z);
    free(back);
    return energy;
}

/* E = -|gelu(W2 gelu(W1 g + b1) + b2)|^2, W1 of C x C */
static double ff2(const test_model *model, const weights *w, const double *g, double *gradient)
{
    size_t C = model->width, F = model->hidden;
    double energy = 0.0;
    double *z1 = test_alloc(C, sizeof *z1), *y1 = test_alloc(C, sizeof *y1), *z2 = test_alloc(F, sizeof *z2);
    reference_product(w->w1, C, C, g, z1);
    for (size_t c = 0; c < C; c++) {
        z1[c] += w->b1[c];
        y1[c] = reference_gelu(z1[c]);
    }
    reference_product(w->w2, F, C, y1, z2);
    for (size_t f = 0; f < F; f++) {
        double y = reference_gelu(z2[f] + w->b2[f]);
        energy -= y * y;
        z2[f] = y * reference_gelu_slope(z2[f] + w->b2[f]);
    }
    reference_transposed(w->w2, F, C, z2, y1);
    for (size_t c = 0; c < C; c++) z1[c] = y1[c] * reference_gelu_slope(z1[c]);
    reference_transposed(w->w1, C, C, z1, y1);
    for (size_t c = 0; c < C; c++) gradient[c] += w->scale_ff * -2.0 * y1[c];
    free(z1);
    free(y1);
    free(z2);
    return energy;
}

/* E = -g . (W2 gelu(W1 g + b1) + b2), W2 of C x F */
static double ff2w(const test_model *model, const weights *w, const double *g, double *gradient)
{
    size_t C = model->width, F = model->hidden;
    double *z = test_alloc(F, sizeof *z), *y = test_alloc(F, sizeof *y), *back = test_alloc(F, sizeof *back);
    double *out = test_alloc(C, sizeof *out);
    reference_product(w->w1, F, C, g, z);
    for (size_t f = 0; f < F; f++) {
        z[f] += w->b1[f];
        y[f] = reference_gelu(z[f]);
    }
    reference_product(w->w2, C, F, y, out);
    for (size_t c = 0; c < C; c++) {
        out[c] += w->b2[c];
        gradient[c] -= w->scale_ff * out[c];
    }
    double energy = -reference_dot(g, out, C);
    reference_transposed(w->w2, C, F, g, back);
    for (size_t f = 0; f < F; f++) back[f] *= reference_gelu_slope(z[f]);
    reference_transposed(w->w1, F, C, back, out);
    for (size_t c = 0; c < C; c++) gradient[c] -= w->scale_ff * out[c];
    free(z);
    free(y);
    free(back);
    free(out);
    return energy;
}

/* s E_FF; its gradient is added. */
static double feed_forward(const test_model *model, const weights *w, const double *g, double *gradient)
{
    double energy;
    if (!strcmp(model->feed_forward, "ff1"))
        energy = ff1(model, w, g, gradient);
    else if (!strcmp(model->feed_forward, "ff2"))
        energy = ff2(model, w, g, gradient);
    else
        energy = ff2w(model, w, g, gradient);
    return w->scale_ff * energy;
}

/* update = R gradient. Returns the slope of the energy along it. */
static double rated(const test_model *model, const weights *w, const double *x, const double *gradient, double *update)
{
    size_t C = model->width;
    if (!strcmp(model->rate, "matrix")) reference_product(w->rate, C, C, gradient, update);
    for (size_t c = 0; c < C; c++) {
        if (!strcmp(model->rate, "diag")) update[c] = w->rate[c] * gradient[c];
        if (!strcmp(model->rate, "scalar")) update[c] = w->rate[0] * gradient[c];
    }
    return reference_slope(x, C, model->norm_epsilon, w->norm_weight, model->rms, gradient, update);
}

static size_t history_length(const test_model *model, size_t position)
{
    return model->strict ? position : position + 1;
}

/* The logits [V] of a state. */
static void say(const test_model *model, const double *x, double *logits)
{
    size_t C = model->width;
    const double *head_bias = test_model_find(model, "output.bias");
    double *normed = test_alloc(C, sizeof *normed);
    reference_norm(x, C, model->norm_epsilon, test_model_find(model, "output_norm.weight"),
                   test_model_find(model, "output_norm.bias"), false, normed);
    reference_product(test_model_find(model, "output.weight"), model->vocab, C, normed, logits);
    for (size_t v = 0; v < model->vocab; v++) logits[v] += head_bias[v];
    free(normed);
}

/* Tokens first .. end - 1, which descend together. */
typedef struct group {
    size_t first, end;
} group;

/* x(t) of every token of the group is in run->at[0][t].x: fills in g, what is said, the energies and their gradients there;
 * keys come out rounded, those of tokens before the group are there. */
static void look(const test_model *model, const weights *w, const reference_request *request, reference_run *run, group of,
                 size_t t, double *keys, double *gradients)
{
    size_t C = model->width;
    reference_step *step = &run->at[0][t];
    bool says = t == run->steps[0] || request->exit.criterion >= DESCENT_EXIT_ENTROPY;
    for (size_t i = of.first; i < of.end; i++) {
        descent_site site = {0, 0, (uint32_t)t, i};
        bool stepping = t < reference_token_steps(request, i);
        memset(gradients + i * C, 0, C * sizeof *gradients);
        if (stepping) reference_apply(request, site, false, step->x + i * C, C);
        reference_norm(step->x + i * C, C, model->norm_epsilon, w->norm_weight, w->norm_bias, model->rms, step->g + i * C);
        if (stepping) reference_apply(request, site, true, step->g + i * C, C);
        memcpy(keys + i * C, step->g + i * C, C * sizeof *keys);
        reference_round_page(request->round_page, keys + i * C, C);
    }
    for (size_t i = of.first; i < of.end; i++) {
        const double *g = step->g + i * C;
        step->energy[0][i] = attention(model, w, g, keys, history_length(model, i), gradients + i * C);
        step->energy[1][i] = feed_forward(model, w, g, gradients + i * C);
        if (says) say(model, step->x + i * C, step->said + i * model->vocab);
    }
}

/* Fills in what compares step t with step t-1, whose keys are given. */
static void compare(const test_model *model, const weights *w, reference_run *run, group of, size_t t,
                    const double *earlier_keys)
{
    size_t C = model->width;
    reference_step *before = &run->at[0][t - 1], *after = &run->at[0][t];
    double *unused = test_alloc(C, sizeof *unused);
    for (size_t i = of.first; i < of.end; i++) {
        const double *g = after->g + i * C;
        double old_keys =
            attention(model, w, g, earlier_keys, history_length(model, i), NULL) + feed_forward(model, w, g, unused);
        before->own_change[i] = old_keys - reference_energy(before, i);
        after->history_change[i] = reference_energy(after, i) - old_keys;
        before->update_norm[i] = reference_distance(after->x + i * C, before->x + i * C, C);
        before->relative_change[i] =
            reference_distance(g, before->g + i * C, C) / sqrt(reference_dot(before->g + i * C, before->g + i * C, C));
    }
    free(unused);
}

/* x(t+1) of one token. */
static void move(const reference_request *request, reference_run *run, descent_site site, bool centred, const double *update,
                 double *momentum, double *steps)
{
    size_t C = run->width, t = site.step, at = site.position * C;
    double *next = run->at[0][t + 1].x + at;
    if (request->solver.method == DESCENT_SOLVER_PLAIN) {
        reference_move(request, site, centred, run->at[0][0].x + at, run->at[0][t].x + at, update, momentum, C, next);
        return;
    }
    const double **states = test_alloc(t + 1, sizeof *states);
    for (size_t k = 0; k <= t; k++) states[k] = run->at[0][k].x + at;
    double residual = reference_solve(request, site, centred, states, update, steps, C, next);
    reference_decide_residual(request, run, t, site.position, residual);
    free(states);
}

reference_run reference_nrgpt(const test_model *model, const reference_request *request)
{
    size_t C = model->width, count = request->count;
    reference_run run = reference_run_create(model, request);
    weights w = weights_of(model);
    double *keys = test_alloc(count * C, sizeof *keys), *earlier = test_alloc(count * C, sizeof *earlier);
    double *gradients = test_alloc(count * C, sizeof *gradients), *update = test_alloc(C, sizeof *update);
    double *momentum = test_alloc(count * C, sizeof *momentum);
    double *steps = test_alloc(count * run.steps[0] * C, sizeof *steps);
    const double *tokens = test_model_find(model, "token_embd.weight");
    const double *positions = test_model_find(model, "position_embd.weight");
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < C; c++) run.at[0][0].x[i * C + c] = tokens[request->tokens[i] * C + c] + positions[i * C + c];
    size_t together = request->history.policy == DESCENT_HISTORY_LAST ? 1 : count;
    for (group of = {0, together}; of.end <= count; of.first = of.end, of.end += together)
        for (size_t t = 0; t <= run.steps[0]; t++) {
            look(model, &w, request, &run, of, t, keys, gradients);
            if (t > 0) compare(model, &w, &run, of, t, earlier);
            for (size_t i = of.first; i < of.end && t > 0; i++) reference_decide(request, &run, 0, t - 1, i);
            memcpy(earlier, keys, of.end * C * sizeof *keys);
            for (size_t i = of.first; i < of.end && t < run.steps[0]; i++) {
                const double *x = run.at[0][t].x + i * C;
                double *next = run.at[0][t + 1].x + i * C;
                descent_site site = {0, 0, (uint32_t)t, i};
                run.at[0][t].slope[i] = rated(model, &w, x, gradients + i * C, update);
                move(request, &run, site, !model->rms, update, momentum + i * C, steps + i * run.steps[0] * C);
                if (run.used[0][i] <= t) memcpy(next, x, C * sizeof *x); /* it has stopped */
            }
        }
    reference_blank(&run);
    memcpy(run.states, run.at[0][run.steps[0]].x, count * C * sizeof(double));
    memcpy(run.logits, run.at[0][run.steps[0]].said, count * model->vocab * sizeof(double));
    free(keys);
    free(earlier);
    free(gradients);
    free(update);
    free(momentum);
    free(steps);
    free(w.h);
    return run;
}

double reference_nrgpt_energy(const test_model *model, descent_site site, const double *keys, page_rounding round_page,
                              const double *g)
{
    size_t C = model->width, n = history_length(model, site.position);
    weights w = weights_of(model);
    double *rounded = test_alloc(n * C, sizeof *rounded), *unused = test_alloc(C, sizeof *unused);
    memcpy(rounded, keys, n * C * sizeof *rounded);
    for (size_t i = 0; i < n; i++) reference_round_page(round_page, rounded + i * C, C);
    double energy = attention(model, &w, g, rounded, n, NULL) + feed_forward(model, &w, g, unused);
    free(rounded);
    free(unused);
    free(w.h);
    return energy;
}
