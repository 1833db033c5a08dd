/* test_found.c: what the walks of test_lifecycle.c, and reading the engine, have found, each as small as it happens: sequences
 * that share pages or a batch, interventions and last energies, saved sequences of started tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"
#include "drive.h"
#include "model_file.h"
#include "random_model.h"

enum { CONTEXT = 110 };

typedef struct place_to_be {
    rng r;
    test_model shape;
    descent_model *model;
    descent_cache *cache;
    descent_batch *batch;
    uint32_t *tokens; /* [CONTEXT] */
    descent_status status;
} place_to_be;

static place_to_be settle_in(uint64_t seed, test_family chosen, descent_page_type type)
{
    place_to_be p = {.r = rng_seeded(test_seed(96, seed))};
    p.shape = random_model(&p.r, chosen, CONTEXT);
    p.model = drive_open_test_model(&p.shape);
    p.cache = drive_cache(p.model, type, 0);
    p.batch = drive_batch(p.cache, 0, 1);
    p.tokens = random_tokens(&p.r, &p.shape, CONTEXT);
    compare_about("seed %llu, %s", (unsigned long long)test_seed(96, seed), test_model_words(&p.shape));
    return p;
}

static void move_out(place_to_be *p)
{
    descent_batch_destroy(p->batch);
    drive_cache_end(p->cache);
    descent_model_close(p->model);
    test_model_free(&p->shape);
    free(p->tokens);
}

static float *fill(const test_model *shape, float value)
{
    float *values = test_alloc(shape->width, sizeof *values);
    for (size_t c = 0; c < shape->width; c++) values[c] = value;
    return values;
}

static void ignore(void *user, const descent_observation *seen)
{
    (void)user;
    (void)seen;
}

static void a_batch_finishes_its_own_sequences_only(void **state)
{
    (void)state;
    place_to_be p = settle_in(0, TEST_NRGPT, DESCENT_PAGE_F32);
    descent_batch *other = drive_batch(p.cache, 0, 1);
    descent_sequence *s = drive_sequence(p.cache, (descent_depth){{2, 0}}, true, p.tokens, 5);
    expect_ok(descent_sequence_observe(s, DESCENT_OBSERVE_FINAL, ignore, NULL, &p.status), &p.status);
    size_t added;
    expect_ok(descent_batch_add(p.batch, s, 5, &added, &p.status), &p.status);
    for (int n = 0; n < 2; n++) expect_ok(descent_batch_step(p.batch, NULL, &p.status), &p.status);
    expect_ok(descent_batch_add(p.batch, s, 5, &added, &p.status), &p.status);
    assert_int_equal(descent_sequence_finished(s), 5); /* and its rows are about to read their last energy */
    expect_code(descent_batch_finish(other, s, &p.status), DESCENT_BAD_ARGUMENT, &p.status, "another batch");
    drive_finish(p.batch, s);
    descent_sequence_destroy(s);
    descent_batch_destroy(other);
    move_out(&p);
}

/* The page of the first tokens is handed over to an equal one, while later tokens have yet to read from it. */
static void a_last_energy_survives_that_pages_are_merged(void **state)
{
    (void)state;
    place_to_be p = settle_in(1, TEST_NRGPT, DESCENT_PAGE_F32);
    descent_depth depth = {{3, 0}};
    descent_sequence *twin = drive_sequence(p.cache, depth, true, p.tokens, 40);
    descent_sequence *s = drive_sequence(p.cache, depth, true, p.tokens, 40);
    expect_ok(descent_sequence_observe(s, DESCENT_OBSERVE_FINAL | DESCENT_OBSERVE_ENERGY, ignore, NULL, &p.status), &p.status);
    size_t added;
    expect_ok(descent_batch_add(p.batch, s, 32, &added, &p.status), &p.status);
    expect_ok(descent_batch_step(p.batch, NULL, &p.status), &p.status);
    expect_ok(descent_batch_add(p.batch, s, 8, &added, &p.status), &p.status);
    descent_batch *other = drive_batch(p.cache, 0, 1);
    drive_finish(other, twin);
    drive_finish(p.batch, s);
    outcome a = drive_read(p.batch, p.model, s), b = drive_read(p.batch, p.model, twin);
    compare_outcomes(&a, &b);
    outcome_free(&a);
    outcome_free(&b);
    descent_sequence_destroy(s);
    descent_sequence_destroy(twin);
    descent_batch_destroy(other);
    move_out(&p);
}

/* A page is not given up for one that is deeper than the sequence reads: its logits would be lost as soon as computed. */
static void company_at_a_larger_depth_takes_no_logits_away(void **state)
{
    (void)state;
    place_to_be p = settle_in(2, TEST_NRGPT, DESCENT_PAGE_F32);
    drive_options private = {.depth = {{2, 0}}};
    outcome expected = drive(p.model, p.tokens, 70, &private);
    descent_sequence *s = drive_sequence(p.cache, private.depth, true, p.tokens, 70);
    descent_sequence *deep = drive_sequence(p.cache, (descent_depth){{5, 0}}, true, p.tokens, 70);
    drive_finish(p.batch, deep);
    drive_finish(p.batch, s);
    outcome got = drive_read(p.batch, p.model, s);
    compare_outcomes(&got, &expected);
    outcome_free(&got);
    descent_sequence_destroy(s);

    /* Of tokens that were found deeper: truncated and appended again. */
    s = drive_sequence(p.cache, private.depth, true, p.tokens, 70);
    assert_int_equal(descent_sequence_reused(s), 64);
    drive_finish(p.batch, s);
    expect_ok(descent_sequence_truncate(s, 10, &p.status), &p.status);
    drive_append(s, p.tokens + 10, 60);
    drive_finish(p.batch, s);
    size_t vocab = p.shape.vocab;
    float *logits = test_alloc(vocab, sizeof *logits);
    for (size_t i = 10; i < 70; i++) {
        drive_logits(p.batch, s, i, logits);
        compare_bits(logits, expected.logits + i * vocab, vocab, "logits of a token that was appended again");
    }
    free(logits);
    outcome_free(&expected);
    descent_sequence_destroy(s);
    descent_sequence_destroy(deep);
    move_out(&p);
}

/* An equal page that is less deep receives what the sequence has, and the sequence keeps it. */
static void what_is_deeper_goes_into_the_equal_page(void **state)
{
    (void)state;
    place_to_be p = settle_in(7, TEST_NRGPT, DESCENT_PAGE_F32);
    descent_depth shallow = {{2, 0}};
    descent_sequence *s = drive_sequence(p.cache, (descent_depth){{5, 0}}, true, p.tokens, 40);
    descent_sequence *other = drive_sequence(p.cache, shallow, true, p.tokens, 40);
    size_t added;
    expect_ok(descent_batch_add(p.batch, s, 10, &added, &p.status), &p.status);
    for (int n = 0; n < 5; n++) expect_ok(descent_batch_step(p.batch, NULL, &p.status), &p.status);
    expect_ok(descent_sequence_set_depth(s, shallow, &p.status), &p.status);
    drive_finish(p.batch, other);
    drive_finish(p.batch, s);
    float *x = test_alloc(p.shape.width, sizeof *x);
    for (size_t i = 0; i < 80; i++) {
        uint32_t steps;
        expect_ok(descent_sequence_state(i < 40 ? s : other, i % 40, x, &steps, &p.status), &p.status);
        assert_int_equal(steps, i % 40 < 10 ? 5 : 2);
    }
    free(x);
    descent_sequence_destroy(s);
    descent_sequence_destroy(other);
    move_out(&p);
}

/* One token's step fails after an earlier one's intervention was applied: the earlier runs that step again, once changed. */
static void a_step_that_fails_is_repeated_with_its_intervention_once(void **state)
{
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        place_to_be p = settle_in(3 + (uint64_t)chosen, chosen, DESCENT_PAGE_F16);
        descent_depth depth = depth_of(chosen, 3, 1);
        descent_site site = {.step = test_deepens(chosen), .position = 2};
        float *values = fill(&p.shape, 0.25f), *huge = fill(&p.shape, 1e9f);
        descent_sequence *expected = drive_sequence(p.cache, depth, false, p.tokens, 6);
        expect_ok(descent_sequence_intervene(expected, site, DESCENT_ADD_X, values, &p.status), &p.status);
        drive_finish(p.batch, expected);
        descent_sequence *s = drive_sequence(p.cache, depth, false, p.tokens, 7);
        expect_ok(descent_sequence_intervene(s, site, DESCENT_ADD_X, values, &p.status), &p.status);
        site.position = 6;
        expect_ok(descent_sequence_intervene(s, site, DESCENT_SET_G, huge, &p.status), &p.status);
        expect_code(descent_batch_finish(p.batch, s, &p.status), DESCENT_DIVERGED, &p.status, "6");
        expect_ok(descent_sequence_truncate(s, 6, &p.status), &p.status);
        drive_finish(p.batch, s);
        outcome a = drive_read(p.batch, p.model, s), b = drive_read(p.batch, p.model, expected);
        compare_outcomes(&a, &b);
        outcome_free(&a);
        outcome_free(&b);
        free(values);
        free(huge);
        descent_sequence_destroy(s);
        descent_sequence_destroy(expected);
        move_out(&p);
    }
}

/* Reading the energy at x(T) is no step T: what was meant for step T waits until a larger depth runs it. */
static void a_last_energy_leaves_interventions_alone(void **state)
{
    (void)state;
    place_to_be p = settle_in(5, TEST_NRGPT, DESCENT_PAGE_F16);
    float *values = fill(&p.shape, 0.5f), *huge = fill(&p.shape, 1e9f);
    outcome got[2];
    for (int observed = 0; observed < 2; observed++) {
        descent_sequence *s = drive_sequence(p.cache, (descent_depth){{4, 0}}, false, p.tokens, 6);
        expect_ok(descent_sequence_intervene(s, (descent_site){0, 0, 2, 3}, DESCENT_ADD_X, values, &p.status), &p.status);
        expect_ok(descent_sequence_intervene(s, (descent_site){0, 0, 2, 4}, DESCENT_SET_G, huge, &p.status), &p.status);
        expect_ok(descent_sequence_set_depth(s, (descent_depth){{2, 0}}, &p.status), &p.status);
        if (observed) expect_ok(descent_sequence_observe(s, OBSERVE_ALL, ignore, NULL, &p.status), &p.status);
        drive_finish(p.batch, s);
        got[observed] = drive_read(p.batch, p.model, s);
        expect_ok(descent_sequence_set_depth(s, (descent_depth){{3, 0}}, &p.status), &p.status);
        expect_code(descent_batch_finish(p.batch, s, &p.status), DESCENT_DIVERGED, &p.status, "4");
        descent_sequence_destroy(s);
    }
    compare_outcomes(&got[1], &got[0]);
    outcome_free(&got[0]);
    outcome_free(&got[1]);
    free(values);
    free(huge);
    move_out(&p);
}

/* Tokens that start in a layer's MLP have keys from the next layer on: these are what a file must hold. */
static void started_tokens_of_a_layered_model_are_saved_with_their_keys(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < test_rounds(24 * TEST_FAMILIES); round++) {
        test_family chosen = family_of(round);
        if (test_deepens(chosen)) continue;
        place_to_be p = settle_in(10 + round, chosen, (descent_page_type)(round / TEST_FAMILIES % 2));
        descent_depth depth = depth_of(chosen, 3, 2);
        descent_sequence *s = drive_sequence(p.cache, depth, true, p.tokens, 40), *restored = NULL;
        descent_site site = {(uint32_t)rng_below(&p.r, p.shape.layers), (uint32_t)rng_below(&p.r, 2), 0, 0};
        float *x = fill(&p.shape, 0);
        for (; site.position < 40; site.position++) {
            for (size_t c = 0; c < p.shape.width; c++) x[c] = (float)rng_normal(&p.r);
            expect_ok(descent_sequence_start(s, site, x, &p.status), &p.status);
        }
        drive_finish(p.batch, s);
        const char *path = scratch_path("started.sequence");
        expect_ok(descent_sequence_save(s, path, &p.status), &p.status);
        expect_ok(descent_sequence_restore(p.cache, path, &restored, &p.status), &p.status);
        for (int k = 0; k < 2; k++) {
            descent_sequence *one = k ? restored : s;
            drive_append(one, p.tokens + 40, 1);
            site.position = 40;
            expect_ok(descent_sequence_start(one, site, x, &p.status), &p.status);
            drive_finish(p.batch, one);
        }
        outcome a = drive_read(p.batch, p.model, restored), b = drive_read(p.batch, p.model, s);
        compare_outcomes(&a, &b);
        outcome_free(&a);
        outcome_free(&b);
        descent_sequence_destroy(s);
        descent_sequence_destroy(restored);
        (void)unlink(path);
        free(x);
        move_out(&p);
    }
}

/* The header's word that no token was started, with the hash set right again. */
static void deny_starts(const char *path)
{
    enum { HAS_STARTS = 46 };
    unsigned char data[1 << 16];
    FILE *file = fopen(path, "r+b");
    if (!file) compare_fail("cannot open %s", path);
    size_t bytes = fread(data, 1, sizeof data, file);
    assert_true(bytes > HAS_STARTS + 12 && bytes < sizeof data);
    assert_int_equal(data[HAS_STARTS], 1);
    data[HAS_STARTS] = 0;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i + 8 < bytes; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
    memcpy(data + bytes - 8, &hash, 8);
    rewind(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void a_file_cannot_make_tokens_read_planes_that_do_not_exist(void **state)
{
    (void)state;
    place_to_be p = settle_in(6, TEST_NRGPT, DESCENT_PAGE_F32);
    descent_sequence *s = drive_sequence(p.cache, (descent_depth){{4, 0}}, false, p.tokens, 2), *restored = NULL;
    float *x = fill(&p.shape, 0.5f);
    for (size_t i = 0; i < 2; i++) expect_ok(descent_sequence_start(s, (descent_site){0, 0, 2, i}, x, &p.status), &p.status);
    drive_finish(p.batch, s);
    const char *path = scratch_path("denied.sequence");
    expect_ok(descent_sequence_save(s, path, &p.status), &p.status);
    deny_starts(path);
    expect_ok(descent_sequence_restore(p.cache, path, &restored, &p.status), &p.status);
    drive_append(restored, p.tokens + 2, 1);
    expect_code(descent_batch_finish(p.batch, restored, &p.status), DESCENT_BAD_ARGUMENT, &p.status, "token 2");
    descent_sequence_destroy(restored);
    descent_sequence_destroy(s);
    (void)unlink(path);
    free(x);
    move_out(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_finishes_its_own_sequences_only),
                                       cmocka_unit_test(a_last_energy_survives_that_pages_are_merged),
                                       cmocka_unit_test(company_at_a_larger_depth_takes_no_logits_away),
                                       cmocka_unit_test(what_is_deeper_goes_into_the_equal_page),
                                       cmocka_unit_test(a_step_that_fails_is_repeated_with_its_intervention_once),
                                       cmocka_unit_test(a_last_energy_leaves_interventions_alone),
                                       cmocka_unit_test(started_tokens_of_a_layered_model_are_saved_with_their_keys),
                                       cmocka_unit_test(a_file_cannot_make_tokens_read_planes_that_do_not_exist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
