/* test_logprobs.c: log-softmax against a sum in long double, the likeliest tokens against a sort, ties, tokens that cannot be,
 * and logits as large as they come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "logprobs.h"
#include "rng.h"

enum { VOCAB = 500 };

static float logits[VOCAB];

static void draw(uint64_t seed, double size)
{
    rng r = rng_seeded(seed);
    for (size_t i = 0; i < VOCAB; i++) logits[i] = (float)(size * rng_normal(&r));
}

/* No shift and no order in common with the code under test: the sum is taken relative to the token itself, from the end. */
static double exact(uint32_t vocab, uint32_t token)
{
    long double sum = 0;
    for (uint32_t i = vocab; i-- > 0;) sum += expl((long double)logits[i] - (long double)logits[token]);
    return (double)-logl(sum);
}

static void a_logprob_is_log_softmax(void **state)
{
    static const double sizes[] = {0.0, 0.1, 1.0, 10.0, 100.0};
    (void)state;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        draw(n, sizes[n]);
        for (uint32_t i = 0; i < VOCAB; i++) {
            double expected = exact(VOCAB, i);
            assert_true(fabs((double)logprob_of(logits, VOCAB, i) - expected) <= 1e-7 * fmax(1, fabs(expected)));
        }
    }
}

static void large_logits_do_not_overflow(void **state)
{
    (void)state;
    const float large[] = {3e38f, 3e38f, -3e38f, -INFINITY};
    assert_true(fabsf(logprob_of(large, 4, 0) + logf(2)) < 1e-6f);
    assert_true(logprob_of(large, 4, 2) < -1e38f);
    assert_true(isinf(logprob_of(large, 4, 3)));
    const float one[] = {-7};
    assert_true(logprob_of(one, 1, 0) == 0);
}

static int likelier(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (logits[i] != logits[k]) return logits[i] > logits[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

static void the_likeliest_come_first_and_ties_by_id(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 30; round++) {
        uint32_t order[VOCAB];
        draw(100 + round, 2);
        for (uint32_t i = 0; i < VOCAB; i++) {
            if (round % 2) logits[i] = roundf(logits[i]); /* many ties */
            order[i] = i;
        }
        qsort(order, VOCAB, sizeof *order, likelier);
        for (size_t most = 0; most <= LOGPROBS_MOST; most++) {
            token_logprob top[LOGPROBS_MOST];
            assert_int_equal(logprobs_top(logits, VOCAB, most, top), most);
            for (size_t i = 0; i < most; i++) {
                float same = logprob_of(logits, VOCAB, order[i]);
                assert_int_equal(top[i].token, order[i]);
                assert_memory_equal(&top[i].logprob, &same, sizeof same);
            }
        }
    }
}

static void a_small_vocabulary_gives_all_it_has(void **state)
{
    (void)state;
    const float few[] = {-INFINITY, 1, -INFINITY};
    token_logprob top[LOGPROBS_MOST];
    assert_int_equal(logprobs_top(few, 3, LOGPROBS_MOST, top), 3);
    assert_int_equal(top[0].token, 1);
    assert_true(top[0].logprob == 0);
    assert_int_equal(top[1].token, 0);
    assert_int_equal(top[2].token, 2);
    assert_true(top[1].logprob == -INFINITY && top[2].logprob == -INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_logprob_is_log_softmax), cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(the_likeliest_come_first_and_ties_by_id), cmocka_unit_test(a_small_vocabulary_gives_all_it_has)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
