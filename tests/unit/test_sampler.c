/* test_sampler.c: the sampler against its definition. The reference below asks, token by token, "how many, or how much, comes
 * before it?" (quadratic, no sorting, no shared code), and draws are counted against it with chi-square at p = 1e-4. Seeds
 * are fixed, so a test that passes always passes. What a penalty makes of a logit is pinned between two neighbours by
 * greedy choices. The tokenizer is a real one, from a GGUF file in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "descent.h"
#include "gguf.h"
#include "gguf_writer.h"
#include "random.h"
#include "rng.h"
#include "tokenizer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 40, DRAWS = 20000, LONG = 64 };

/* ---- A tokenizer: ids 0 and 1 control, 2 EOS, 3 padding, then words --------------------------------------------------- */

enum { TOKENIZER_VOCAB = V - 2, EOS = 2 };

typedef struct {
    uint8_t *bytes;
    gguf_file *file;
    descent_tokenizer *tokenizer;
} words;

static words words_open(void)
{
    static char names[TOKENIZER_VOCAB][8];
    const char *tokens[TOKENIZER_VOCAB] = {"<s>", "<sep>", "</s>", "<pad>"};
    int32_t types[TOKENIZER_VOCAB] = {3, 3, 3, 1};
    for (int i = 4; i < TOKENIZER_VOCAB; i++) {
        (void)snprintf(names[i], sizeof names[i], "w%d", i);
        tokens[i] = names[i];
        types[i] = 1;
    }
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_string(writer, "general.architecture", "nrgpt");
    gguf_writer_string(writer, "tokenizer.ggml.model", "words");
    gguf_writer_string(writer, "tokenizer.descent.separator", ",");
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", tokens, TOKENIZER_VOCAB);
    gguf_writer_i32s(writer, "tokenizer.ggml.token_type", types, TOKENIZER_VOCAB);
    gguf_writer_u32(writer, "tokenizer.ggml.eos_token_id", EOS);
    gguf_writer_u32(writer, "tokenizer.ggml.padding_token_id", 3);

    words w = {0};
    size_t bytes;
    descent_status status;
    w.bytes = gguf_writer_build(writer, &bytes);
    gguf_writer_destroy(writer);
    if (gguf_open_memory(w.bytes, bytes, &w.file, &status) != DESCENT_OK) fail_msg("%s", status.message);
    if (tokenizer_load(w.file, TOKENIZER_VOCAB, &w.tokenizer, &status) != DESCENT_OK) fail_msg("%s", status.message);
    return w;
}

static void words_close(words *w)
{
    tokenizer_free(w->tokenizer);
    gguf_close(w->file);
    free(w->bytes);
}

/* ---- The definition -------------------------------------------------------------------------------------------------- */

static void renormalize(double *p)
{
    double total = 0;
    for (int i = 0; i < V; i++) total += p[i];
    for (int i = 0; i < V; i++) p[i] /= total;
}

/* Keeps token i when fewer than `most` tokens come before it and their mass is below `mass`; the larger key comes first. */
static void keep(double *p, const double *key, int most, double mass)
{
    double kept[V];
    for (int i = 0; i < V; i++) {
        int ahead = 0;
        double ahead_mass = 0;
        for (int j = 0; j < V; j++)
            if (p[j] > 0 && (key[j] > key[i] || (key[j] == key[i] && j < i))) {
                ahead++;
                ahead_mass += p[j];
            }
        kept[i] = ahead < most && ahead_mass < mass ? p[i] : 0;
    }
    memcpy(p, kept, sizeof kept);
    renormalize(p);
}

static void define(const descent_sampling *s, const descent_tokenizer *tokenizer, const float *logits, const uint32_t *text,
                   size_t count, size_t prompt_count, double p[V])
{
    double logit[V];
    for (int i = 0; i < V; i++) {
        double seen = 0, generated = 0;
        for (size_t j = 0; j < count; j++) {
            seen += text[j] == (uint32_t)i;
            generated += text[j] == (uint32_t)i && j >= prompt_count;
        }
        logit[i] = (double)logits[i];
        if (seen > 0) logit[i] *= logit[i] > 0 ? 1 / (double)s->repetition_penalty : (double)s->repetition_penalty;
        logit[i] -= (generated > 0) * (double)s->presence_penalty + generated * (double)s->frequency_penalty;
        for (size_t j = 0; j < s->n_bias; j++) logit[i] += s->bias[j].token == (uint32_t)i ? (double)s->bias[j].bias : 0;
        bool end = tokenizer && i == EOS, textless = tokenizer && (i < 4 || i >= TOKENIZER_VOCAB);
        if (end ? s->ignore_eos || count - prompt_count < s->min_tokens : textless) logit[i] = -INFINITY;
        p[i] = exp(logit[i] / (double)s->temperature);
    }
    renormalize(p);
    keep(p, logit, s->top_k > 0 ? s->top_k : V, 2);

    double distance[V], entropy = 0;
    for (int i = 0; i < V; i++) entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    for (int i = 0; i < V; i++) distance[i] = p[i] > 0 ? -fabs(-log(p[i]) - entropy) : -INFINITY;
    if (s->typical_p < 1) keep(p, distance, V, (double)s->typical_p);
    if (s->top_p < 1) keep(p, logit, V, (double)s->top_p);

    double top = 0;
    for (int i = 0; i < V; i++) top = p[i] > top ? p[i] : top;
    for (int i = 0; i < V; i++)
        if (p[i] < (double)s->min_p * top) p[i] = 0;
    renormalize(p);
}

/* ---- Counting --------------------------------------------------------------------------------------------------------- */

/* The value chi-square with `df` degrees of freedom passes with probability 1e-4 (Wilson and Hilferty). */
static double critical(int df)
{
    double v = 2.0 / (9.0 * df);
    return df * pow(1 - v + 3.719 * sqrt(v), 3);
}

/* Bins that expect fewer than 5 are counted together; what has probability 0 must not have happened. */
static void assert_distributed(const char *what, const size_t *counts, const double *p, int bins, size_t draws)
{
    double statistic = 0, rest = 0, rest_counted = 0;
    int used = 0;
    for (int i = 0; i < bins; i++) {
        double expected = p[i] * (double)draws, counted = (double)counts[i];
        if (p[i] == 0 && counts[i] > 0) fail_msg("%s: %d came %zu times and should never", what, i, counts[i]);
        if (expected < 5) {
            rest += expected;
            rest_counted += counted;
            continue;
        }
        statistic += (counted - expected) * (counted - expected) / expected;
        used++;
    }
    if (rest >= 5) {
        statistic += (rest_counted - rest) * (rest_counted - rest) / rest;
        used++;
    } else if (rest_counted > rest + 10 + 5 * sqrt(rest)) {
        fail_msg("%s: rare tokens came %g times, %g expected", what, rest_counted, rest);
    }
    if (used > 1 && statistic > critical(used - 1))
        fail_msg("%s: chi-square %g over %d bins, at most %g expected", what, statistic, used, critical(used - 1));
}

static uint32_t sample(const descent_sampling *s, const descent_tokenizer *tokenizer, const float *logits, uint32_t vocab,
                       const uint32_t *text, size_t count, size_t prompt_count)
{
    uint32_t token = UINT32_MAX;
    descent_status status;
    if (descent_sample(s, tokenizer, logits, vocab, text, count, prompt_count, &token, &status) != DESCENT_OK)
        fail_msg("%s", status.message);
    assert_true(token < vocab);
    return token;
}

static void random_logits(rng *r, float *logits, double spread)
{
    for (int i = 0; i < V; i++) logits[i] = (float)(spread * rng_normal(r));
}

static void random_text(rng *r, uint32_t *text, size_t count)
{
    for (size_t i = 0; i < count; i++) text[i] = (uint32_t)rng_below(r, V);
}

static void compare_to_definition(const char *what, descent_sampling s, const descent_tokenizer *tokenizer, uint64_t seed,
                                  double spread)
{
    rng r = rng_seeded(seed);
    float logits[V];
    uint32_t text[30];
    random_logits(&r, logits, spread);
    logits[7] = logits[31] = logits[20]; /* ties */
    random_text(&r, text, 30);
    double p[V];
    define(&s, tokenizer, logits, text, 30, 12, p);
    size_t counts[V] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        s.choice = i;
        counts[sample(&s, tokenizer, logits, V, text, 30, 12)]++;
    }
    assert_distributed(what, counts, p, V, DRAWS);
}

/* Zeros stand for "off" in the tables below. */
static descent_sampling or_defaults(descent_sampling s)
{
    if (s.temperature == 0) s.temperature = 1;
    if (s.top_p == 0) s.top_p = 1;
    if (s.typical_p == 0) s.typical_p = 1;
    if (s.repetition_penalty == 0) s.repetition_penalty = 1;
    return s;
}

static void test_every_knob_against_the_definition(void **state)
{
    (void)state;
    static const descent_logit_bias bias[] = {{3, 2.5f}, {9, -4.0f}, {3, 0.5f}, {11, -INFINITY}, {12, -100.0f}};
    const struct {
        const char *what;
        descent_sampling s;
    } cases[] = {
        {"defaults", {.temperature = 1}},
        {"temperature 0.5", {.temperature = 0.5f}},
        {"temperature 3", {.temperature = 3}},
        {"top_k 1", {.top_k = 1}},
        {"top_k 7", {.top_k = 7}},
        {"top_k V", {.top_k = V}},
        {"top_k V + 5", {.top_k = V + 5}},
        {"top_k -1", {.top_k = -1}},
        {"top_p 0.9", {.top_p = 0.9f}},
        {"top_p 0.2", {.top_p = 0.2f}},
        {"top_p 1e-6", {.top_p = 1e-6f}},
        {"min_p 0.1", {.min_p = 0.1f}},
        {"min_p 1", {.min_p = 1}},
        {"typical_p 0.5", {.typical_p = 0.5f}},
        {"typical_p 0.95", {.typical_p = 0.95f}},
        {"repetition 1.7", {.repetition_penalty = 1.7f}},
        {"repetition 0.6", {.repetition_penalty = 0.6f}},
        {"presence 1.5", {.presence_penalty = 1.5f}},
        {"frequency 0.8", {.frequency_penalty = 0.8f}},
        {"frequency -0.8, presence -0.5", {.frequency_penalty = -0.8f, .presence_penalty = -0.5f}},
        {"bias", {.bias = bias, .n_bias = 5}},
        {"temperature, top_k, top_p, min_p", {.temperature = 1.5f, .top_k = 12, .top_p = 0.8f, .min_p = 0.05f}},
        {"typical_p, top_p", {.temperature = 0.8f, .typical_p = 0.7f, .top_p = 0.9f, .repetition_penalty = 1.2f}},
        {"bias, top_k, typical_p, min_p",
         {.bias = bias, .n_bias = 5, .presence_penalty = 0.4f, .top_k = 20, .typical_p = 0.9f, .min_p = 0.02f}},
        {"min_tokens", {.min_tokens = 18}},
        {"min_tokens not reached", {.min_tokens = 19}},
        {"ignore_eos", {.ignore_eos = true}},
    };
    words w = words_open();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        descent_sampling s = or_defaults(cases[i].s);
        s.seed = (int64_t)i * 1000003 - 5;
        compare_to_definition(cases[i].what, s, NULL, 100 + i, 1.0);
        compare_to_definition(cases[i].what, s, w.tokenizer, 200 + i, 2.0);
    }
    words_close(&w);
}

static void test_random_combinations(void **state)
{
    (void)state;
    rng r = rng_seeded(31);
    for (int i = 0; i < 12; i++) {
        descent_sampling s = descent_sampling_defaults();
        s.seed = (int64_t)rng_next(&r);
        s.temperature = (float)(0.3 + 2 * rng_uniform(&r));
        if (rng_below(&r, 2)) s.top_k = (int32_t)rng_between(&r, 1, V);
        if (rng_below(&r, 2)) s.top_p = (float)(0.05 + 0.95 * rng_uniform(&r));
        if (rng_below(&r, 2)) s.typical_p = (float)(0.05 + 0.95 * rng_uniform(&r));
        if (rng_below(&r, 2)) s.min_p = (float)(0.3 * rng_uniform(&r));
        if (rng_below(&r, 2)) s.repetition_penalty = (float)(0.5 + rng_uniform(&r));
        if (rng_below(&r, 2)) s.presence_penalty = (float)rng_normal(&r);
        if (rng_below(&r, 2)) s.frequency_penalty = (float)rng_normal(&r);
        char what[32];
        (void)snprintf(what, sizeof what, "combination %d", i);
        compare_to_definition(what, s, NULL, rng_next(&r), 0.5 + rng_uniform(&r));
    }
}

/* Ten equal tokens: three of them are exactly 0.3f of the mass, and ids break the ties. */
static void test_equal_tokens_rank_by_id(void **state)
{
    (void)state;
    float logits[10] = {0};
    for (int knob = 0; knob < 3; knob++) {
        descent_sampling s = descent_sampling_defaults();
        if (knob == 0) s.top_p = 0.3f;
        if (knob == 1) s.top_k = 3;
        if (knob == 2) s.typical_p = 0.3f;
        size_t counts[10] = {0};
        double p[10] = {1. / 3, 1. / 3, 1. / 3};
        for (s.choice = 0; s.choice < 3000; s.choice++) counts[sample(&s, NULL, logits, 10, NULL, 0, 0)]++;
        assert_distributed("ties", counts, p, 10, 3000);
    }
}

/* Exactly the k largest of n, for every k and n of a small size and many orders. */
static void test_top_k_of_every_size(void **state)
{
    (void)state;
    rng r = rng_seeded(61);
    for (uint32_t n = 2; n <= 12; n++)
        for (uint32_t k = 1; k < n; k++) {
            float logits[12];
            for (uint32_t i = 0; i < n; i++) logits[i] = (float)rng_normal(&r);
            descent_sampling s = descent_sampling_defaults();
            s.temperature = 1e6f; /* all that are kept come equally often */
            s.top_k = (int32_t)k;
            bool came[12] = {false};
            for (s.choice = 0; s.choice < 300; s.choice++) came[sample(&s, NULL, logits, n, NULL, 0, 0)] = true;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t larger = 0;
                for (uint32_t j = 0; j < n; j++) larger += logits[j] > logits[i];
                assert_int_equal(came[i], larger < k);
            }
        }
}

/* Typical sampling may drop the likeliest token, which top-p never does. One token of 0.4 and ten of 0.06 have an entropy
 * of 2.05 nats; their surprises, 0.92 and 2.81, lie 1.14 and 0.76 from it, so nine of the ten come first and reach 0.5. */
static void test_typical_drops_the_obvious(void **state)
{
    (void)state;
    float logits[11];
    logits[0] = logf(0.4f);
    for (int i = 1; i < 11; i++) logits[i] = logf(0.06f);
    descent_sampling s = descent_sampling_defaults();
    s.typical_p = 0.5f;
    size_t counts[11] = {0};
    for (s.choice = 0; s.choice < 2000; s.choice++) counts[sample(&s, NULL, logits, 11, NULL, 0, 0)]++;
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[10], 0);
    for (int i = 1; i < 10; i++) assert_true(counts[i] > 0);
}

/* ---- Greedy, penalties, bans ------------------------------------------------------------------------------------------- */

static void test_greedy(void **state)
{
    (void)state;
    descent_sampling s = descent_sampling_defaults();
    s.temperature = 0;
    s.typical_p = 0.1f; /* the filters do not matter */
    s.top_p = 0.1f;
    float logits[6] = {-3, 2, 5, 5, 4.9999995f, 5};
    for (s.choice = 0; s.choice < 50; s.choice++) assert_int_equal(sample(&s, NULL, logits, 6, NULL, 0, 0), 2);
    float negative[3] = {-7, -6, -6};
    assert_int_equal(sample(&s, NULL, negative, 3, NULL, 0, 0), 1);
    float zeros[2] = {0.0f, -0.0f};
    assert_int_equal(sample(&s, NULL, zeros, 2, NULL, 0, 0), 0);
    float one[1] = {-1e30f};
    assert_int_equal(sample(&s, NULL, one, 1, NULL, 0, 0), 0);
    s.temperature = 1;
    assert_int_equal(sample(&s, NULL, one, 1, NULL, 0, 0), 0);
}

/* The logit of token 0 becomes `expected`: a rival a little below loses to it, one a little above wins. */
static void assert_becomes(const descent_sampling *s, float logit, const uint32_t *text, size_t count, size_t prompt_count,
                           double expected)
{
    descent_sampling greedy = *s;
    greedy.temperature = 0;
    for (int above = 0; above < 2; above++) {
        float logits[3] = {logit, (float)(expected + (above ? 1e-4 : -1e-4)), -50};
        assert_int_equal(sample(&greedy, NULL, logits, 3, text, count, prompt_count), above);
    }
}

static void test_penalties_by_hand(void **state)
{
    (void)state;
    static const uint32_t text[] = {0, 2, 0, 2, 0, 0}; /* token 0: twice in the prompt of 4, twice after it */
    descent_sampling s = descent_sampling_defaults();
    assert_becomes(&s, 3, text, 6, 4, 3);
    s.repetition_penalty = 1.5f;
    assert_becomes(&s, 3, text, 6, 4, 2);
    assert_becomes(&s, -3, text, 6, 4, -4.5);
    assert_becomes(&s, 3, text, 4, 4, 2); /* the prompt counts */
    assert_becomes(&s, 3, text + 1, 1, 0, 3);
    s = descent_sampling_defaults();
    s.presence_penalty = 0.75f;
    assert_becomes(&s, 3, text, 6, 4, 2.25);
    assert_becomes(&s, 3, text, 6, 6, 3); /* the prompt does not count */
    s.frequency_penalty = 0.5f;
    assert_becomes(&s, 3, text, 6, 4, 1.25);
    assert_becomes(&s, 3, text, 6, 0, 0.25);
    s.repetition_penalty = 2.0f; /* first, on the model's logit */
    assert_becomes(&s, 3, text, 6, 4, -0.25);
    descent_logit_bias bias[] = {{0, 2}, {0, 1.5f}}; /* last, each entry added */
    s.bias = bias;
    s.n_bias = 2;
    assert_becomes(&s, 3, text, 6, 4, 3.25);
}

static void test_ids_without_text_and_eos(void **state)
{
    (void)state;
    words w = words_open();
    descent_sampling s = descent_sampling_defaults();
    s.temperature = 0;
    float logits[V] = {0};
    uint32_t text[8] = {4, 5, 6, 7, 8, 9, 10, 11};
    logits[0] = logits[1] = logits[3] = 50; /* control, control, padding */
    logits[V - 1] = logits[V - 2] = 60;     /* past the tokenizer's vocabulary */
    logits[EOS] = 40;
    logits[17] = 30;
    assert_int_equal(sample(&s, w.tokenizer, logits, V, text, 8, 4), EOS);
    assert_int_equal(sample(&s, NULL, logits, V, text, 8, 4), V - 2);
    s.ignore_eos = true;
    assert_int_equal(sample(&s, w.tokenizer, logits, V, text, 8, 4), 17);
    assert_int_equal(sample(&s, NULL, logits, V, text, 8, 4), V - 2); /* without a tokenizer there is no EOS */
    s.ignore_eos = false;
    s.min_tokens = 4;
    assert_int_equal(sample(&s, w.tokenizer, logits, V, text, 7, 4), 17); /* three generated: a fourth must be text */
    assert_int_equal(sample(&s, w.tokenizer, logits, V, text, 8, 4), EOS);
    assert_int_equal(sample(&s, w.tokenizer, logits, V, text, 8, 8), 17);
    descent_logit_bias bias = {EOS, 1000};
    s.bias = &bias;
    s.n_bias = 1;
    assert_int_equal(sample(&s, w.tokenizer, logits, V, text, 7, 4), 17); /* no bias lifts a ban */
    words_close(&w);
}

/* ---- Random numbers ------------------------------------------------------------------------------------------------------ */

static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        descent_philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

/* The counter is laid out as random.h says: the words of the known answers, as places. */
static void test_uniform_is_philox_of_the_place(void **state)
{
    (void)state;
    double zero = (double)(((uint64_t)0x6627e8d5u << 21) | (0xe169c58du >> 11)) / 9007199254740992.0;
    double pi = (double)(((uint64_t)0xd16cfe09u << 21) | (0x94fdccebu >> 11)) / 9007199254740992.0;
    assert_true(descent_random_uniform(0, 0, 0, 0) == zero);
    assert_true(descent_random_uniform(0x299f31d0a4093822, 0x13198a2e, 0x03707344, 0x85a308d3243f6a88) == pi);
    assert_true(descent_random_uniform(-1, UINT32_MAX, UINT32_MAX, UINT64_MAX) < 1.0);
}

/* Uniform, and no two neighbouring places alike: pairs (here, next) fall evenly into 16 x 16 bins, along each coordinate. */
static void test_uniform_along_every_coordinate(void **state)
{
    (void)state;
    for (int coordinate = 0; coordinate < 4; coordinate++) {
        size_t counts[256] = {0};
        double p[256], before = 0;
        for (int i = 0; i < 256; i++) p[i] = 1.0 / 256;
        for (uint32_t i = 0; i <= 50000; i++) {
            double u = descent_random_uniform(coordinate == 0 ? i : 7, coordinate == 1 ? i : 0, coordinate == 2 ? i : 0,
                                              coordinate == 3 ? i : 0);
            assert_true(u >= 0 && u < 1);
            if (i > 0) counts[(int)(16 * before) * 16 + (int)(16 * u)]++;
            before = u;
        }
        assert_distributed("uniform", counts, p, 256, 50000);
    }
}

/* The draw is the inverse of the cumulative distribution over ids, at the number of (seed, prompt, choice, count). */
static void test_draw_inverts_the_distribution(void **state)
{
    (void)state;
    rng r = rng_seeded(5);
    float logits[V];
    random_logits(&r, logits, 1.5);
    uint32_t text[LONG];
    random_text(&r, text, LONG);
    for (int i = 0; i < 2000; i++) {
        descent_sampling s = descent_sampling_defaults();
        s.seed = (int64_t)rng_next(&r);
        s.prompt = (uint32_t)rng_next(&r);
        s.choice = (uint32_t)rng_next(&r);
        if (i % 2) s.top_p = 0.9f;
        size_t count = rng_below(&r, LONG);
        double p[V], cumulative = 0, u = descent_random_uniform(s.seed, s.prompt, s.choice, count);
        define(&s, NULL, logits, text, count, count, p);
        uint32_t expected = 0;
        while (cumulative + p[expected] <= u) cumulative += p[expected++];
        assert_int_equal(sample(&s, NULL, logits, V, text, count, count), expected);
    }
}

/* A token depends on where it is chosen and on nothing done in between; other places give other tokens. */
static void test_only_the_place_matters(void **state)
{
    (void)state;
    float flat[V] = {0};
    uint32_t text[LONG] = {0}, first[LONG];
    size_t differ[4] = {0};
    descent_sampling s = descent_sampling_defaults();
    s.seed = 42;
    for (size_t i = 0; i < LONG; i++) first[i] = sample(&s, NULL, flat, V, text, i, 0);
    for (size_t i = LONG; i-- > 0;) {
        descent_sampling seed = s, prompt = s, choice = s;
        seed.seed = 43;
        prompt.prompt = 1;
        choice.choice = 1;
        differ[0] += sample(&seed, NULL, flat, V, text, i, 0) != first[i];
        differ[1] += sample(&prompt, NULL, flat, V, text, i, 0) != first[i];
        differ[2] += sample(&choice, NULL, flat, V, text, i, 0) != first[i];
        differ[3] += first[i] != first[(i + 1) % LONG];
        assert_int_equal(sample(&s, NULL, flat, V, text, i, 0), first[i]);
        assert_int_equal(sample(&s, NULL, flat, V, text, i, i / 2), first[i]); /* nor on where the prompt ends */
    }
    for (int i = 0; i < 4; i++) assert_true(differ[i] > LONG * 3 / 4);
}

/* ---- Errors and extremes ----------------------------------------------------------------------------------------------- */

static void assert_refused(descent_code code, descent_code expected, const descent_status *status, const char *message)
{
    assert_int_equal(code, expected);
    assert_int_equal(status->code, expected);
    if (!strstr(status->message, message)) fail_msg("\"%s\" should say \"%s\"", status->message, message);
}

static void test_check_names_the_field(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
        float bad[4], good[3];
    } fields[] = {
        {"temperature", offsetof(descent_sampling, temperature), {-0.1f, NAN, INFINITY, -INFINITY}, {0, 1e-30f, 1e30f}},
        {"top_p", offsetof(descent_sampling, top_p), {0, 1.0001f, NAN, -1}, {1, 0.5f, 1e-30f}},
        {"min_p", offsetof(descent_sampling, min_p), {-0.1f, 1.0001f, NAN, INFINITY}, {0, 0.5f, 1}},
        {"typical_p", offsetof(descent_sampling, typical_p), {0, 1.0001f, NAN, -INFINITY}, {1, 0.5f, 1e-30f}},
        {"repetition_penalty", offsetof(descent_sampling, repetition_penalty), {0, -1, NAN, INFINITY}, {1, 0.01f, 100}},
        {"presence_penalty", offsetof(descent_sampling, presence_penalty), {NAN, INFINITY, -INFINITY, NAN}, {-2, 2, 0}},
        {"frequency_penalty", offsetof(descent_sampling, frequency_penalty), {NAN, INFINITY, -INFINITY, NAN}, {-2, 2, 0}},
    };
    descent_status status;
    float logits[2] = {0, 0};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        descent_sampling s = descent_sampling_defaults();
        float *field = (float *)(void *)((char *)&s + fields[i].offset);
        for (int j = 0; j < 4; j++) {
            *field = fields[i].bad[j];
            assert_refused(descent_sampling_check(&s, 2, &status), DESCENT_BAD_ARGUMENT, &status, fields[i].name);
            uint32_t token = 77;
            assert_refused(descent_sample(&s, NULL, logits, 2, NULL, 0, 0, &token, &status), DESCENT_BAD_ARGUMENT, &status,
                           fields[i].name);
            assert_int_equal(token, 77);
        }
        for (int j = 0; j < 3; j++) {
            *field = fields[i].good[j];
            assert_int_equal(descent_sampling_check(&s, 2, &status), DESCENT_OK);
            assert_string_equal(status.message, "");
        }
    }
    assert_int_equal(descent_sampling_check(NULL, 2, NULL), DESCENT_BAD_ARGUMENT);
}

static void test_check_of_biases(void **state)
{
    (void)state;
    descent_status status;
    descent_sampling s = descent_sampling_defaults();
    descent_logit_bias bias[2] = {{1, -INFINITY}, {4, 3}};
    s.n_bias = 2;
    assert_refused(descent_sampling_check(&s, 5, &status), DESCENT_BAD_ARGUMENT, &status, "bias is NULL");
    s.bias = bias;
    assert_int_equal(descent_sampling_check(&s, 5, &status), DESCENT_OK);
    assert_refused(descent_sampling_check(&s, 4, &status), DESCENT_BAD_ARGUMENT, &status, "token 4");
    bias[1].bias = NAN;
    assert_refused(descent_sampling_check(&s, 5, &status), DESCENT_BAD_ARGUMENT, &status, "nan");
    bias[1].bias = INFINITY;
    assert_refused(descent_sampling_check(&s, 5, &status), DESCENT_BAD_ARGUMENT, &status, "inf");
}

static void test_calls_that_are_refused(void **state)
{
    (void)state;
    descent_status status;
    descent_sampling s = descent_sampling_defaults();
    float logits[4] = {1, 2, 3, 4};
    uint32_t text[3] = {0, 3, 4}, token = 77;
    assert_refused(descent_sample(&s, NULL, logits, 0, text, 2, 0, &token, &status), DESCENT_BAD_ARGUMENT, &status, "vocab");
    assert_refused(descent_sample(&s, NULL, NULL, 4, text, 2, 0, &token, &status), DESCENT_BAD_ARGUMENT, &status, "logits");
    assert_refused(descent_sample(&s, NULL, logits, 4, NULL, 2, 0, &token, &status), DESCENT_BAD_ARGUMENT, &status, "tokens");
    assert_refused(descent_sample(&s, NULL, logits, 4, text, 2, 0, NULL, &status), DESCENT_BAD_ARGUMENT, &status, "token");
    assert_refused(descent_sample(&s, NULL, logits, 4, text, 2, 3, &token, &status), DESCENT_BAD_ARGUMENT, &status, "prompt");
    assert_refused(descent_sample(&s, NULL, logits, 4, text, 3, 0, &token, &status), DESCENT_BAD_ARGUMENT, &status,
                   "token 2 is 4");
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int temperature = 0; temperature < 2; temperature++)
        for (int i = 0; i < 3; i++) {
            float row[4] = {1, 2, bad[i], 4};
            s.temperature = (float)temperature;
            assert_refused(descent_sample(&s, NULL, row, 4, text, 2, 0, &token, &status), DESCENT_DIVERGED, &status, "token 2");
        }
    assert_int_equal(token, 77);
}

static void test_nothing_left_to_sample(void **state)
{
    (void)state;
    words w = words_open();
    descent_status status;
    float logits[V] = {0};
    uint32_t token = 77;
    descent_logit_bias bias[V];
    for (uint32_t i = 0; i < V; i++) bias[i] = (descent_logit_bias){i, -INFINITY};
    bias[EOS].bias = 0;
    for (int temperature = 0; temperature < 2; temperature++) {
        descent_sampling s = descent_sampling_defaults();
        s.temperature = (float)temperature;
        s.bias = bias;
        s.n_bias = V;
        assert_int_equal(sample(&s, w.tokenizer, logits, V, NULL, 0, 0), EOS);
        s.ignore_eos = true;
        assert_refused(descent_sample(&s, w.tokenizer, logits, V, NULL, 0, 0, &token, &status), DESCENT_BAD_ARGUMENT, &status,
                       "none of 40 tokens");
    }
    assert_int_equal(token, 77);
    words_close(&w);
}

static float extreme(rng *r)
{
    static const float values[] = {1e30f, -1e30f, FLT_MAX, -FLT_MAX, FLT_MIN / 8, -FLT_MIN / 8, 0, -0.0f, 1, -1};
    size_t i = rng_below(r, 14);
    return i < sizeof values / sizeof values[0] ? values[i] : (float)(10 * rng_normal(r));
}

static float pick(rng *r, const float *values, size_t n)
{
    return values[rng_below(r, n)];
}

/* Any finite logits and any allowed knobs give a token of nonzero probability. */
static void test_extreme_numbers(void **state)
{
    (void)state;
    static const float temperatures[] = {0, FLT_MIN / 8, 1e-30f, 0.01f, 1, 1e10f, FLT_MAX};
    static const float fractions[] = {FLT_MIN / 8, 1e-9f, 0.1f, 0.5f, 0.99999994f, 1, 1, 1};
    static const float penalties[] = {FLT_MAX, -FLT_MAX, 0, 0, 1};
    static const float repetitions[] = {FLT_MAX, FLT_MIN / 8, 0.5f, 1, 1};
    rng r = rng_seeded(77);
    for (int i = 0; i < 20000; i++) {
        float logits[V];
        uint32_t vocab = (uint32_t)rng_between(&r, 1, V), text[16];
        for (uint32_t id = 0; id < vocab; id++) logits[id] = extreme(&r);
        for (int j = 0; j < 16; j++) text[j] = (uint32_t)rng_below(&r, vocab);
        descent_sampling s = descent_sampling_defaults();
        descent_logit_bias bias = {(uint32_t)rng_below(&r, vocab), extreme(&r)};
        s.seed = i;
        s.temperature = pick(&r, temperatures, 7);
        s.top_k = (int32_t)rng_between(&r, 0, V);
        s.top_p = pick(&r, fractions, 8);
        s.min_p = pick(&r, fractions, 8);
        s.typical_p = pick(&r, fractions, 8);
        s.repetition_penalty = pick(&r, repetitions, 5);
        s.presence_penalty = pick(&r, penalties, 5);
        s.frequency_penalty = pick(&r, penalties, 5);
        s.bias = &bias;
        s.n_bias = rng_below(&r, 2);
        size_t count = rng_below(&r, 17);
        (void)sample(&s, NULL, logits, vocab, text, count, rng_below(&r, count + 1));
    }
    float far[3] = {0, FLT_MAX, 1};
    descent_sampling s = descent_sampling_defaults();
    for (s.choice = 0; s.choice < 200; s.choice++) assert_int_equal(sample(&s, NULL, far, 3, NULL, 0, 0), 1);
}

/* A vocabulary of GPT-2's size: top-k and top-p keep what a full sort would. */
static void test_large_vocabulary(void **state)
{
    (void)state;
    enum { LARGE = 50257 };
    float *logits = malloc(LARGE * sizeof *logits);
    assert_non_null(logits);
    rng r = rng_seeded(9);
    for (int i = 0; i < LARGE; i++) logits[i] = (float)rng_normal(&r);
    for (uint32_t i = 0; i < 30; i++) logits[1000 + 7 * i] = 12; /* each 163,000 times the usual token */
    descent_sampling s = descent_sampling_defaults();
    for (int knob = 0; knob < 2; knob++) {
        s.top_k = knob == 0 ? 30 : 0;
        s.top_p = knob == 0 ? 1.0f : 0.9f;
        size_t counts[30] = {0};
        double p[30];
        for (int i = 0; i < 30; i++) p[i] = knob == 0 || i < 28 ? 1.0 / (knob == 0 ? 30 : 28) : 0;
        for (s.choice = 0; s.choice < 300; s.choice++) {
            uint32_t token = sample(&s, NULL, logits, LARGE, NULL, 0, 0);
            assert_true(token >= 1000 && (token - 1000) % 7 == 0 && (token - 1000) / 7 < 30);
            counts[(token - 1000) / 7]++;
        }
        assert_distributed("large vocabulary", counts, p, 30, 300);
    }
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_knob_against_the_definition),
        cmocka_unit_test(test_random_combinations),
        cmocka_unit_test(test_equal_tokens_rank_by_id),
        cmocka_unit_test(test_top_k_of_every_size),
        cmocka_unit_test(test_typical_drops_the_obvious),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalties_by_hand),
        cmocka_unit_test(test_ids_without_text_and_eos),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_uniform_is_philox_of_the_place),
        cmocka_unit_test(test_uniform_along_every_coordinate),
        cmocka_unit_test(test_draw_inverts_the_distribution),
        cmocka_unit_test(test_only_the_place_matters),
        cmocka_unit_test(test_check_names_the_field),
        cmocka_unit_test(test_check_of_biases),
        cmocka_unit_test(test_calls_that_are_refused),
        cmocka_unit_test(test_nothing_left_to_sample),
        cmocka_unit_test(test_extreme_numbers),
        cmocka_unit_test(test_large_vocabulary),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
