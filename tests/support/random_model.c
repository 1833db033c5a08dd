/* random_model.c: drawing shapes and weights. */
#include "random_model.h"

#include "descent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

size_t test_rounds(size_t meant)
{
    const char *text = getenv("DESCENT_TEST_ROUNDS");
    double times = text ? strtod(text, NULL) : SANITIZED ? 0.25 : 1.0;
    double rounds = floor((double)meant * times);
    return rounds < 1.0 ? 1 : (size_t)rounds;
}

uint64_t test_seed(uint64_t test, size_t round)
{
    const char *text = getenv("DESCENT_TEST_SEED");
    return (text ? strtoull(text, NULL, 10) : 0) + test * 1000000u + round;
}

static const char *one_of(rng *r, const char *const *words, size_t count)
{
    return words[rng_below(r, count)];
}

test_model random_shape(rng *r, test_family family, size_t context)
{
    static const size_t widths[] = {4, 20, 36, 51, 33, 64, 32, 7};
    static const size_t head_widths[] = {2, 4, 6, 10, 16};
    test_model m = {.family = family, .weight = TEST_F32, .norm_epsilon = (double)1e-5f};
    m.context = context;
    m.vocab = rng_between(r, 5, 90);
    m.heads = rng_between(r, 1, 5);
    bool rotary = test_sublayer(family, 0) != NULL;
    m.layers = test_kinds(family) > 1 ? rng_between(r, 1, 3) : 1;
    m.width = rotary ? m.heads * head_widths[rng_below(r, 5)] : widths[rng_below(r, 8)];
    if (m.width == 2) m.width = 8; /* the norm of two numbers is little more than their signs */
    m.hidden = rng_between(r, 3, 120);
    for (size_t k = 0; k < DESCENT_MAX_KINDS; k++)
        if (test_has_depth(family, k)) m.steps[k] = (unsigned)rng_between(r, 1, 5);
    if (rotary) {
        m.diagonal = one_of(r, (const char *const[]){"none", "shared", "per_head"}, 3);
        m.rank = (int)rng_below(r, 3) - 1;
        if (m.rank == 1) m.rank = (int)rng_between(r, 1, m.width < 9 ? m.width : 9);
        m.activation = one_of(r, (const char *const[]){"silu", "gelu"}, 2);
        m.rope_base = rng_below(r, 2) ? 10000.0 : 500.0;
        m.tied = rng_below(r, 2);
        m.eta_entries = rng_between(r, 1, 3);
    } else if (family == TEST_GPT || family == TEST_GPT_REC) {
        if (m.heads > m.width) m.heads = m.width;
    } else {
        m.feed_forward = one_of(r, (const char *const[]){"ff1", "ff2", "ff2w"}, 3);
        m.strict = rng_below(r, 2);
        m.rms = rng_below(r, 2);
        m.rate = one_of(r, (const char *const[]){"matrix", "diag", "scalar"}, 3);
        m.alpha = rng_below(r, 2);
        m.beta = rng_below(r, 2) ? 1.0 : 0.375;
    }
    return m;
}

static void fill(rng *r, test_tensor *tensor, double mean, double deviation)
{
    for (size_t i = 0; i < tensor->rows * tensor->columns; i++) tensor->values[i] = mean + deviation * rng_normal(r);
}

/* Deviations below keep, whatever the width: |x| about sqrt(C), scores of a few units, a step shorter than x. */
static void nrgpt_weights(test_model *m, rng *r)
{
    size_t C = m->width, F = m->hidden;
    double root = 1.0 / sqrt((double)C), hidden_root = 1.0 / sqrt((double)F);
    bool ff2 = !strcmp(m->feed_forward, "ff2");
    fill(r, test_model_add(m, m->vocab, C, true, "token_embd.weight"), 0.0, 0.7);
    fill(r, test_model_add(m, m->context, C, true, "position_embd.weight"), 0.0, 0.7);
    fill(r, test_model_add(m, 0, C, false, "blk.0.norm.weight"), 1.0, 0.1);
    if (!m->rms) fill(r, test_model_add(m, 0, C, false, "blk.0.norm.bias"), 0.0, 0.1);
    for (size_t h = 0; h < m->heads; h++) fill(r, test_model_add(m, C, C, true, "blk.0.attn_h.%zu.weight", h), 0.0, 0.6 * root);
    if (m->alpha) fill(r, test_model_add(m, 0, m->heads, false, "blk.0.attn_alpha.weight"), 1.0, 0.2);
    fill(r, test_model_add(m, ff2 ? C : F, C, true, "blk.0.ffn_1.weight"), 0.0, 0.7 * root);
    fill(r, test_model_add(m, 0, ff2 ? C : F, false, "blk.0.ffn_1.bias"), 0.0, 0.2);
    if (ff2) {
        fill(r, test_model_add(m, F, C, true, "blk.0.ffn_2.weight"), 0.0, 0.7 * root);
        fill(r, test_model_add(m, 0, F, false, "blk.0.ffn_2.bias"), 0.0, 0.2);
    } else if (!strcmp(m->feed_forward, "ff2w")) {
        fill(r, test_model_add(m, C, F, true, "blk.0.ffn_2.weight"), 0.0, 0.7 * hidden_root);
        fill(r, test_model_add(m, 0, C, false, "blk.0.ffn_2.bias"), 0.0, 0.2);
    }
    fill(r, test_model_add(m, 0, 1, false, "blk.0.ffn_scale.weight"), 0.6, 0.1);
    if (!strcmp(m->rate, "matrix"))
        fill(r, test_model_add(m, C, C, true, "blk.0.rate.weight"), 0.0, 0.3 * root);
    else
        fill(r, test_model_add(m, 0, strcmp(m->rate, "diag") ? 1 : C, false, "blk.0.rate.weight"), 0.25, 0.05);
    fill(r, test_model_add(m, 0, C, false, "output_norm.weight"), 1.0, 0.1);
    fill(r, test_model_add(m, 0, C, false, "output_norm.bias"), 0.0, 0.1);
    fill(r, test_model_add(m, m->vocab, C, true, "output.weight"), 0.0, root);
    fill(r, test_model_add(m, 0, m->vocab, false, "output.bias"), 0.0, 0.1);
}

static void cem_part(test_model *m, rng *r, size_t layer, const char *part)
{
    double root = 1.0 / sqrt((double)m->width);
    fill(r, test_model_add(m, 0, m->width, false, "blk.%zu.%s_norm.weight", layer, part), 1.0, 0.1);
    fill(r, test_model_add(m, 0, m->eta_entries, false, "blk.%zu.%s_eta.weight", layer, part), 0.3, 0.05);
    if (m->rank < 0) return;
    fill(r, test_model_add(m, 0, m->width, false, "blk.%zu.%s_precond_d.weight", layer, part), 0.0, 0.3);
    if (m->rank == 0) return;
    fill(r, test_model_add(m, m->width, (size_t)m->rank, false, "blk.%zu.%s_precond_u.weight", layer, part), 0.0, 0.5 * root);
    fill(r, test_model_add(m, m->width, (size_t)m->rank, false, "blk.%zu.%s_precond_v.weight", layer, part), 0.0, 0.5 * root);
}

static void cem_sublayer(test_model *m, rng *r, size_t l, size_t kind)
{
    size_t C = m->width;
    double root = 1.0 / sqrt((double)C);
    cem_part(m, r, l, kind ? "mlp" : "attn");
    if (kind) {
        fill(r, test_model_add(m, m->hidden, C, true, "blk.%zu.mlp_up.weight", l), 0.0, root);
        fill(r, test_model_add(m, m->hidden, C, true, "blk.%zu.mlp_gate.weight", l), 0.0, 0.5 * root);
        return;
    }
    fill(r, test_model_add(m, C, C, true, "blk.%zu.attn_q.weight", l), 0.0, root);
    fill(r, test_model_add(m, C, C, true, "blk.%zu.attn_k.weight", l), 0.0, root);
    if (strcmp(m->diagonal, "none"))
        fill(r, test_model_add(m, strcmp(m->diagonal, "shared") ? m->heads : 0, C, false, "blk.%zu.attn_diag.weight", l), 0.0,
             0.2);
}

static void llama_sublayer(test_model *m, rng *r, size_t l, size_t kind)
{
    size_t C = m->width, M = m->hidden;
    double root = 1.0 / sqrt((double)C);
    fill(r, test_model_add(m, 0, C, false, "blk.%zu.%s_norm.weight", l, kind ? "mlp" : "attn"), 1.0, 0.1);
    if (kind) {
        fill(r, test_model_add(m, M, C, true, "blk.%zu.mlp_gate.weight", l), 0.0, root);
        fill(r, test_model_add(m, M, C, true, "blk.%zu.mlp_up.weight", l), 0.0, root);
        fill(r, test_model_add(m, C, M, true, "blk.%zu.mlp_down.weight", l), 0.0, 1.0 / sqrt((double)M));
        return;
    }
    static const char *const names[] = {"q", "k", "v", "output"};
    for (size_t i = 0; i < 4; i++) fill(r, test_model_add(m, C, C, true, "blk.%zu.attn_%s.weight", l, names[i]), 0.0, root);
}

static void layered_weights(test_model *m, rng *r)
{
    size_t C = m->width;
    fill(r, test_model_add(m, m->vocab, C, true, "token_embd.weight"), 0.0, 0.5);
    for (size_t l = 0; l < m->layers; l++)
        for (size_t k = 0; k < 2; k++) {
            if (test_has_energy(m->family, k))
                cem_sublayer(m, r, l, k);
            else
                llama_sublayer(m, r, l, k);
        }
    fill(r, test_model_add(m, 0, C, false, "output_norm.weight"), 1.0, 0.1);
    if (!m->tied) fill(r, test_model_add(m, m->vocab, C, true, "output.weight"), 0.0, 1.0 / sqrt((double)C));
}

static void gpt_norm(test_model *m, rng *r, const char *name)
{
    fill(r, test_model_add(m, 0, m->width, false, "%s.weight", name), 1.0, 0.1);
    fill(r, test_model_add(m, 0, m->width, false, "%s.bias", name), 0.0, 0.1);
}

static void gpt_block(test_model *m, rng *r, size_t l)
{
    size_t C = m->width, F = m->hidden, A = C / m->heads * m->heads;
    double root = 1.0 / sqrt((double)C), hidden_root = 1.0 / sqrt((double)F);
    char name[48];
    (void)snprintf(name, sizeof name, "blk.%zu.attn_norm", l);
    gpt_norm(m, r, name);
    for (const char *part = "qkv"; *part; part++)
        fill(r, test_model_add(m, A, C, true, "blk.%zu.attn_%c.weight", l, *part), 0.0, root);
    fill(r, test_model_add(m, C, A, true, "blk.%zu.attn_output.weight", l), 0.0, root);
    fill(r, test_model_add(m, 0, C, false, "blk.%zu.attn_output.bias", l), 0.0, 0.1);
    (void)snprintf(name, sizeof name, "blk.%zu.ffn_norm", l);
    gpt_norm(m, r, name);
    fill(r, test_model_add(m, F, C, true, "blk.%zu.ffn_up.weight", l), 0.0, root);
    fill(r, test_model_add(m, 0, F, false, "blk.%zu.ffn_up.bias", l), 0.0, 0.2);
    fill(r, test_model_add(m, C, F, true, "blk.%zu.ffn_down.weight", l), 0.0, 0.7 * hidden_root);
    fill(r, test_model_add(m, 0, C, false, "blk.%zu.ffn_down.bias", l), 0.0, 0.1);
}

static void gpt_weights(test_model *m, rng *r)
{
    fill(r, test_model_add(m, m->vocab, m->width, true, "token_embd.weight"), 0.0, 0.7);
    fill(r, test_model_add(m, m->context, m->width, true, "position_embd.weight"), 0.0, 0.7);
    for (size_t l = 0; l < m->layers; l++) gpt_block(m, r, l);
    gpt_norm(m, r, "output_norm");
    fill(r, test_model_add(m, m->vocab, m->width, true, "output.weight"), 0.0, 1.0 / sqrt((double)m->width));
    fill(r, test_model_add(m, 0, m->vocab, false, "output.bias"), 0.0, 0.1);
}

void random_weights(test_model *model, rng *r)
{
    if (test_sublayer(model->family, 0))
        layered_weights(model, r);
    else if (model->family == TEST_GPT || model->family == TEST_GPT_REC)
        gpt_weights(model, r);
    else
        nrgpt_weights(model, r);
    test_model_round(model);
}

test_model random_model(rng *r, test_family family, size_t context)
{
    test_model model = random_shape(r, family, context);
    random_weights(&model, r);
    return model;
}

descent_depth depth_of(test_family family, size_t first, size_t second)
{
    return (descent_depth){
        {(uint16_t)(test_has_depth(family, 0) ? first : 0), (uint16_t)(test_has_depth(family, 1) ? second : 0)}};
}

descent_depth random_depth(rng *r, const test_model *model, size_t most)
{
    descent_depth depth = {{0}};
    for (size_t k = 0; k < DESCENT_MAX_KINDS; k++)
        if (test_has_depth(model->family, k)) depth.steps[k] = (uint16_t)rng_between(r, 1, most);
    return depth;
}

uint32_t *random_tokens(rng *r, const test_model *model, size_t count)
{
    uint32_t *tokens = test_alloc(count, sizeof *tokens);
    for (size_t i = 0; i < count; i++) tokens[i] = (uint32_t)rng_below(r, model->vocab);
    return tokens;
}
