/* reference_llama.c: softmax attention with keys and values, and the gated MLP, a whole sequence at once.
 *
 * Shapes: C width, K heads of D numbers, M hidden. Keys (rotated) and values are rounded to the page. */
#include "reference_llama.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

/* Numbers d and d + D/2 of each head are a complex number, turned by position * base^(-2d/D). */
static void turn(const test_model *model, double *y, size_t position)
{
    size_t D = model->width / model->heads, half = D / 2;
    for (size_t i = 0; i < model->heads * half; i++) {
        double *low = y + i / half * D + i % half, *high = low + half;
        double angle = (double)position * exp(-log(model->rope_base) * (double)(i % half) / (double)half);
        double complex turned = (*low + *high * I) * cexp(I * angle);
        *low = creal(turned);
        *high = cimag(turned);
    }
}

void reference_llama_attention(const test_model *model, size_t layer, page_rounding round_page, const double *g, size_t count,
                               double *out)
{
    size_t C = model->width, D = C / model->heads;
    const double *wq = test_model_find(model, "blk.%zu.attn_q.weight", layer);
    const double *wk = test_model_find(model, "blk.%zu.attn_k.weight", layer);
    const double *wv = test_model_find(model, "blk.%zu.attn_v.weight", layer);
    const double *wo = test_model_find(model, "blk.%zu.attn_output.weight", layer);
    double *keys = test_alloc(count * C, sizeof *keys), *values = test_alloc(count * C, sizeof *values);
    double *q = test_alloc(C, sizeof *q), *mixed = test_alloc(C, sizeof *mixed), *p = test_alloc(count, sizeof *p);
    for (size_t i = 0; i < count; i++) {
        double *key = keys + i * C, *value = values + i * C;
        reference_product(wk, C, C, g + i * C, key);
        reference_product(wv, C, C, g + i * C, value);
        turn(model, key, i);
        reference_round_page(round_page, key, C);
        reference_round_page(round_page, value, C);
        reference_product(wq, C, C, g + i * C, q);
        turn(model, q, i);
        for (size_t c = 0; c < C; c++) mixed[c] = 0.0;
        for (size_t k = 0; k < model->heads; k++) {
            for (size_t j = 0; j <= i; j++) p[j] = reference_dot(q + k * D, keys + j * C + k * D, D) / sqrt((double)D);
            (void)reference_softmax(p, i + 1, p);
            for (size_t j = 0; j <= i; j++)
                for (size_t d = k * D; d < (k + 1) * D; d++) mixed[d] += p[j] * values[j * C + d];
        }
        reference_product(wo, C, C, mixed, out + i * C);
    }
    free(keys);
    free(values);
    free(q);
    free(mixed);
    free(p);
}

void reference_swiglu(const test_model *model, size_t layer, const double *g, size_t count, double *out)
{
    size_t C = model->width, M = model->hidden;
    const double *gate = test_model_find(model, "blk.%zu.mlp_gate.weight", layer);
    const double *up = test_model_find(model, "blk.%zu.mlp_up.weight", layer);
    const double *down = test_model_find(model, "blk.%zu.mlp_down.weight", layer);
    double *a = test_alloc(M, sizeof *a), *b = test_alloc(M, sizeof *b);
    for (size_t i = 0; i < count; i++) {
        reference_product(gate, M, C, g + i * C, a);
        reference_product(up, M, C, g + i * C, b);
        for (size_t m = 0; m < M; m++) b[m] *= a[m] / (1.0 + exp(-a[m]));
        reference_product(down, C, M, b, out + i * C);
    }
    free(a);
    free(b);
}
