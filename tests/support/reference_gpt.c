/* reference_gpt.c: softmax attention and a ReLU network around a residual stream, whole sequence at once.
 *
 * Shapes: L tokens, C width, H heads of D = floor(C/H), F hidden, V vocab. Keys and values are [L][H D], rounded to the page.
 */
#include "reference_gpt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* out [L][C] = attention of g [L][C] in block l: every head by itself, then the projection of all heads side by side. */
static void attention(const test_model *model, const reference_request *request, size_t l, const double *g, double *out)
{
    size_t L = request->count, C = model->width, D = C / model->heads, A = model->heads * D;
    const double *wq = test_model_find(model, "blk.%zu.attn_q.weight", l),
                 *wk = test_model_find(model, "blk.%zu.attn_k.weight", l);
    const double *wv = test_model_find(model, "blk.%zu.attn_v.weight", l);
    const double *wo = test_model_find(model, "blk.%zu.attn_output.weight", l);
    const double *bo = test_model_find(model, "blk.%zu.attn_output.bias", l);
    double *q = test_alloc(A, sizeof *q), *keys = test_alloc(L * A, sizeof *keys), *values = test_alloc(L * A, sizeof *values);
    double *p = test_alloc(L, sizeof *p), *mixed = test_alloc(A, sizeof *mixed);
    for (size_t i = 0; i < L; i++) {
        reference_product(wk, A, C, g + i * C, keys + i * A);
        reference_product(wv, A, C, g + i * C, values + i * A);
        reference_round_page(request->round_page, keys + i * A, A);
        reference_round_page(request->round_page, values + i * A, A);
    }
    for (size_t i = 0; i < L; i++) {
        reference_product(wq, A, C, g + i * C, q);
        memset(mixed, 0, A * sizeof *mixed);
        for (size_t h = 0; h < model->heads; h++) {
            for (size_t j = 0; j <= i; j++) p[j] = reference_dot(q + h * D, keys + j * A + h * D, D) / sqrt((double)D);
            (void)reference_softmax(p, i + 1, p);
            for (size_t j = 0; j <= i; j++)
                for (size_t d = 0; d < D; d++) mixed[h * D + d] += p[j] * values[j * A + h * D + d];
        }
        reference_product(wo, C, A, mixed, out + i * C);
        for (size_t c = 0; c < C; c++) out[i * C + c] += bo[c];
    }
    free(q);
    free(keys);
    free(values);
    free(p);
    free(mixed);
}

/* out [L][C] = W_down relu(W_up g + b_up) + b_down */
static void feed_forward(const test_model *model, const reference_request *request, size_t l, const double *g, double *out)
{
    size_t C = model->width, F = model->hidden;
    const double *up = test_model_find(model, "blk.%zu.ffn_up.weight", l),
                 *bu = test_model_find(model, "blk.%zu.ffn_up.bias", l);
    const double *down = test_model_find(model, "blk.%zu.ffn_down.weight", l);
    const double *bd = test_model_find(model, "blk.%zu.ffn_down.bias", l);
    double *z = test_alloc(F, sizeof *z);
    for (size_t i = 0; i < request->count; i++) {
        reference_product(up, F, C, g + i * C, z);
        for (size_t f = 0; f < F; f++) z[f] = fmax(0.0, z[f] + bu[f]);
        reference_product(down, C, F, z, out + i * C);
        for (size_t c = 0; c < C; c++) out[i * C + c] += bd[c];
    }
    free(z);
}

/* g [L][C] = the norm "attn_norm" or "ffn_norm" of block l. */
static void norm(const test_model *model, size_t count, size_t l, const char *name, const double *x, double *g)
{
    size_t C = model->width;
    const double *weight = test_model_find(model, "blk.%zu.%s.weight", l, name),
                 *bias = test_model_find(model, "blk.%zu.%s.bias", l, name);
    for (size_t i = 0; i < count; i++) reference_norm(x + i * C, C, model->norm_epsilon, weight, bias, false, g + i * C);
}

/* The changes the request asks for at a site, of every token's x or g. */
static void apply(const reference_request *request, descent_site site, bool of_g, double *values, size_t C)
{
    for (site.position = 0; site.position < request->count; site.position++)
        reference_apply(request, site, of_g, values + site.position * C, C);
}

/* What the step from `before` to `after` was, both looked at through the same norm. */
static void compare(reference_step *before, const reference_step *after, size_t count, size_t C)
{
    for (size_t i = 0; i < count; i++) {
        const double *g = before->g + i * C;
        before->update_norm[i] = reference_distance(after->x + i * C, before->x + i * C, C);
        before->relative_change[i] = reference_distance(after->g + i * C, g, C) / sqrt(reference_dot(g, g, C));
    }
}

static void embed(const test_model *model, const reference_request *request, double *x)
{
    size_t C = model->width;
    const double *tokens = test_model_find(model, "token_embd.weight");
    const double *positions = test_model_find(model, "position_embd.weight");
    for (size_t i = 0; i < request->count; i++)
        for (size_t c = 0; c < C; c++) x[i * C + c] = tokens[request->tokens[i] * C + c] + positions[i * C + c];
}

/* States and logits from the x that was reached last. */
static void finish(const test_model *model, reference_run *run, const double *x)
{
    size_t C = model->width, V = model->vocab;
    const double *bias = test_model_find(model, "output.bias");
    double *normed = test_alloc(C, sizeof *normed);
    memcpy(run->states, x, run->count * C * sizeof *x);
    for (size_t i = 0; i < run->count; i++) {
        reference_norm(x + i * C, C, model->norm_epsilon, test_model_find(model, "output_norm.weight"),
                       test_model_find(model, "output_norm.bias"), false, normed);
        reference_product(test_model_find(model, "output.weight"), V, C, normed, run->logits + i * V);
        for (size_t v = 0; v < V; v++) run->logits[i * V + v] += bias[v];
    }
    free(normed);
}

reference_run reference_gpt(const test_model *model, const reference_request *request)
{
    size_t C = model->width, L = request->count;
    reference_run run = reference_run_create(model, request);
    double *x = test_alloc(L * C, sizeof *x), *out = test_alloc(L * C, sizeof *out);
    embed(model, request, x);
    for (size_t program = 0; program < 2 * model->layers; program++) {
        size_t l = program / 2, kind = program % 2;
        const char *name = kind ? "ffn_norm" : "attn_norm";
        descent_site site = {(uint32_t)l, (uint32_t)kind, 0, 0};
        reference_step *step = run.at[program];
        apply(request, site, false, x, C);
        memcpy(step[0].x, x, L * C * sizeof *x);
        norm(model, L, l, name, x, step[0].g);
        apply(request, site, true, step[0].g, C);
        (kind ? feed_forward : attention)(model, request, l, step[0].g, out);
        for (size_t n = 0; n < L * C; n++) x[n] += out[n];
        memcpy(step[1].x, x, L * C * sizeof *x);
        norm(model, L, l, name, x, step[1].g);
        compare(&step[0], &step[1], L, C);
    }
    finish(model, &run, x);
    free(x);
    free(out);
    return run;
}

reference_run reference_gpt_rec_parallel(const test_model *model, const reference_request *request)
{
    size_t C = model->width, L = request->count;
    reference_run run = reference_run_create(model, request);
    double *x = test_alloc(L * C, sizeof *x), *g = test_alloc(L * C, sizeof *g);
    double *attended = test_alloc(L * C, sizeof *attended), *fed = test_alloc(L * C, sizeof *fed);
    embed(model, request, x);
    for (size_t t = 0; t < run.steps[0]; t++) {
        descent_site site = {0, 0, (uint32_t)t, 0};
        reference_step *step = &run.at[0][t];
        apply(request, site, false, x, C);
        memcpy(step[0].x, x, L * C * sizeof *x);
        norm(model, L, 0, "attn_norm", x, step[0].g);
        apply(request, site, true, step[0].g, C);
        attention(model, request, 0, step[0].g, attended);
        norm(model, L, 0, "ffn_norm", x, g);
        feed_forward(model, request, 0, g, fed);
        for (size_t n = 0; n < L * C; n++) x[n] += attended[n] + fed[n];
        memcpy(step[1].x, x, L * C * sizeof *x);
        norm(model, L, 0, "attn_norm", x, step[1].g);
        compare(&step[0], &step[1], L, C);
    }
    finish(model, &run, x);
    free(x);
    free(g);
    free(attended);
    free(fed);
    return run;
}
