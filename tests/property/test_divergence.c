/* test_divergence.c: a state or logit that is not finite ends its own sequence, by name, and nothing else: companions keep
 * every bit, nothing of it reaches the cache, and what came before it is still good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"

enum { TOKENS = 70, SICK = 3 }; /* the token whose embedding is not a number, and which nothing else here holds */

/* A healthy text with the sick token at `position`. */
static example draw(uint64_t test, size_t round, test_family family, size_t position)
{
    example_wish wish = {.family = family, .context = TOKENS, .count = TOKENS};
    example e = example_draw(test_seed(test, round), &wish);
    descent_model_close(e.engine);
    for (size_t i = 0; i < e.count; i++)
        if (e.tokens[i] == SICK) e.tokens[i] = 0;
    e.tokens[position] = SICK;
    return e;
}

/* Finishes a sequence that will diverge; the message names the token and the step. */
static void expect_divergence(descent_batch *batch, descent_sequence *sequence, size_t position, const char *step)
{
    char token[32];
    descent_status status;
    (void)snprintf(token, sizeof token, "token %zu,", position);
    expect_code(descent_batch_finish(batch, sequence, &status), DESCENT_DIVERGED, &status, token);
    expect_code(descent_sequence_state_code(sequence, &status), DESCENT_DIVERGED, &status, token);
    if (!strstr(status.message, step)) compare_fail("no \"%s\" in \"%s\"", step, status.message);
    if (descent_sequence_finished(sequence) > position)
        compare_fail("%zu tokens count as finished where token %zu diverged", descent_sequence_finished(sequence), position);
}

/* Text with a sick token beside a text without; a third, of the same beginning, comes after. */
static void one_sequence_ends(example *e, size_t position, size_t max_rows, const char *step)
{
    /* Without the sick token, for what the others must be. */
    uint32_t *healthy = test_alloc(e->count, sizeof *healthy);
    memcpy(healthy, e->tokens, e->count * sizeof *healthy);
    healthy[position] = 1;
    drive_options options = {.depth = e->depth};
    outcome expected = drive(e->engine, healthy, e->count, &options);

    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    descent_batch *batch = drive_batch(cache, (uint32_t)max_rows, 1);
    descent_sequence *sick = drive_sequence(cache, e->depth, true, e->tokens, e->count);
    descent_sequence *mate = drive_sequence(cache, e->depth, false, healthy, e->count);
    descent_status status;
    size_t added;
    expect_ok(descent_batch_add(batch, mate, 20, &added, &status), &status);
    expect_ok(descent_batch_add(batch, sick, SIZE_MAX, &added, &status), &status);
    expect_divergence(batch, sick, position, step);
    drive_finish(batch, mate);
    outcome got = drive_read(batch, e->engine, mate);
    compare_outcomes(&got, &expected);
    outcome_free(&got);

    /* The ended sequence takes nothing more; cut back to before the named token it goes on as if new. */
    expect_code(descent_sequence_append(sick, healthy, 1, &status), DESCENT_DIVERGED, &status, NULL);
    expect_code(descent_batch_add(batch, sick, 1, &added, &status), DESCENT_DIVERGED, &status, NULL);
    expect_code(descent_sequence_truncate(sick, position + 1, &status), DESCENT_BAD_ARGUMENT, &status, NULL);
    expect_ok(descent_sequence_truncate(sick, position, &status), &status);
    expect_ok(descent_sequence_state_code(sick, &status), &status);
    drive_append(sick, healthy + position, e->count - position);
    drive_finish(batch, sick);
    got = drive_read(batch, e->engine, sick);
    compare_outcomes(&got, &expected);
    outcome_free(&got);
    descent_sequence_destroy(sick);

    /* Diverged and destroyed, it leaves nothing to the next; nor does the next find anything of the sick token. */
    sick = drive_sequence(cache, e->depth, true, e->tokens, e->count);
    expect_divergence(batch, sick, position, step);
    descent_sequence_destroy(sick);
    options.sharing = true;
    got = drive_in(cache, batch, e->engine, healthy, e->count, &options);
    compare_outcomes(&got, &expected);
    outcome_free(&got);
    sick = drive_sequence(cache, e->depth, true, e->tokens, e->count);
    expect_divergence(batch, sick, position, step);
    descent_sequence_destroy(sick);

    descent_sequence_destroy(mate);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    outcome_free(&expected);
    free(healthy);
}

static void a_sick_embedding_ends_its_sequence_alone(void **state)
{
    static const size_t positions[] = {0, 1, 31, 32, 33, 63, 69};
    const double sick[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (size_t round = 0; round < test_rounds(14 * TEST_FAMILIES); round++) {
        size_t position = positions[round / TEST_FAMILIES % 7];
        example e = draw(110, round, family_of(round), position);
        double *embedding = test_model_find(&e.model, "token_embd.weight");
        for (size_t c = 0; c < e.model.width; c++) embedding[SICK * e.model.width + c] = sick[round % 3] * (c % 2 ? -1 : 1);
        /* A head that is the embedding would make every logit of token 3 sick as well. */
        if (e.model.tied) {
            test_tensor *head = test_model_add(&e.model, e.model.vocab, e.model.width, true, "output.weight");
            for (size_t n = 0; n < e.model.vocab * e.model.width; n++) head->values[n] = 0.25;
            e.model.tied = false;
        }
        e.engine = drive_open_test_model(&e.model);
        one_sequence_ends(&e, position, round % 3 ? 0 : 7, "step 0");
        example_free(&e);
    }
}

/* A weight everybody uses ends everybody, at the first token; the process goes on. */
static void a_sick_weight_ends_every_sequence(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++)
        for (size_t n = 0; n < 40; n++) {
            example_wish wish = {.family = family, .context = 5, .count = 5};
            example e = example_draw(test_seed(111 + family, n), &wish);
            test_tensor *tensor = &e.model.tensors[n % e.model.n_tensors];
            if (!strncmp(tensor->name, "output", 6) || strstr(tensor->name, "embd")) { /* those have tests of their own */
                example_free(&e);
                continue;
            }
            tensor->values[rng_below(&e.r, tensor->rows * tensor->columns)] = n % 2 ? NAN : INFINITY;
            descent_model_close(e.engine);
            e.engine = drive_open_test_model(&e.model);
            compare_about("%s, %s is sick", test_model_words(&e.model), tensor->name);
            descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
            descent_batch *batch = drive_batch(cache, 0, 1);
            descent_depth depth = depth_of(family, 6, 6); /* enough for an eta of the third step */
            descent_sequence *sequence = drive_sequence(cache, depth, true, e.tokens, 5);
            descent_status status;
            descent_code code = descent_batch_finish(batch, sequence, &status);
            if (code != DESCENT_DIVERGED && (code != DESCENT_OK || n % 2))
                compare_fail("code %d, \"%s\"", (int)code, status.message);
            if (code == DESCENT_OK) { /* an infinite gate or bias may come to nothing: then the logits are numbers */
                outcome got = drive_read(batch, e.engine, sequence);
                for (size_t i = 0; i < got.count * got.vocab; i++) assert_true(isfinite(got.logits[i]));
                outcome_free(&got);
            }
            assert_int_equal(descent_batch_rows(batch), 0);
            descent_sequence_destroy(sequence);
            descent_batch_destroy(batch);
            descent_cache_destroy(cache);
            example_free(&e);
        }
}

static void a_sick_head_is_named_when_logits_are_read(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 5, .count = 5};
        example e = example_draw(test_seed(113, family), &wish);
        descent_model_close(e.engine);
        if (e.model.tied) {
            test_tensor *head = test_model_add(&e.model, e.model.vocab, e.model.width, true, "output.weight");
            head->values[0] = NAN;
            e.model.tied = false;
        }
        test_model_find(&e.model, "output.weight")[2 * e.model.width + 1] = NAN;
        e.engine = drive_open_test_model(&e.model);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, e.depth, true, e.tokens, 5);
        drive_finish(batch, sequence);
        descent_reading reading = {sequence, 4};
        float *logits = test_alloc(e.model.vocab, sizeof *logits);
        descent_status status;
        expect_code(descent_batch_logits(batch, &reading, 1, logits, &status), DESCENT_DIVERGED, &status, "token 4");
        free(logits);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* History that is a number in f32 and none in f16 ends a sequence on pages of f16 alone. */
static void history_that_no_half_can_hold(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 5, .count = 5, .most = 1};
        example e = example_draw(test_seed(114, family), &wish);
        descent_model_close(e.engine);
        const char *keys = family == TEST_NRGPT ? "blk.0.norm.weight" : "blk.0.attn_k.weight"; /* what they are made with */
        for (size_t n = 0; n < e.model.n_tensors; n++)
            for (size_t c = 0;
                 !strcmp(e.model.tensors[n].name, keys) && c < e.model.tensors[n].rows * e.model.tensors[n].columns; c++)
                e.model.tensors[n].values[c] = 3e5;
        e.engine = drive_open_test_model(&e.model);
        for (int type = 0; type < DESCENT_PAGE_TYPES; type++) {
            descent_cache *cache = drive_cache(e.engine, (descent_page_type)type, 0);
            descent_batch *batch = drive_batch(cache, 0, 1);
            descent_sequence *sequence = drive_sequence(cache, e.depth, true, e.tokens, 5);
            if (type == DESCENT_PAGE_F16)
                expect_divergence(batch, sequence, 0, "step 0");
            else
                drive_finish(batch, sequence);
            descent_sequence_destroy(sequence);
            descent_batch_destroy(batch);
            descent_cache_destroy(cache);
        }
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sick_embedding_ends_its_sequence_alone), cmocka_unit_test(a_sick_weight_ends_every_sequence),
        cmocka_unit_test(a_sick_head_is_named_when_logits_are_read), cmocka_unit_test(history_that_no_half_can_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
