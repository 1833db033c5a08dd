/* test_observed_logits.c: observers are told what the head reads on the way: at step t of a model that deepens the bits of a
 * run whose T is t, elsewhere at the ends of sub-layers only, the last of them being what the text's logits are. Being told
 * changes no bit, and every reading is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"

/* Programs are those of reference.h. */
typedef struct readings {
    size_t programs, kinds, most, count, vocab, came;
    float *logits;       /* [programs][most + 1][count][V] */
    unsigned char *seen; /* [programs][most + 1][count] */
    bool plain;          /* something came without logits that has some, or with such it has not */
    bool deepens, wanted;
} readings;

static size_t reading_at(const readings *r, size_t program, size_t step, size_t position)
{
    return (program * (r->most + 1) + step) * r->count + position;
}

static void keep(void *user, const descent_observation *o)
{
    readings *r = user;
    bool has = r->wanted && (r->deepens || o->final);
    if (has != (o->logits != NULL)) r->plain = true;
    if (!o->logits) return;
    size_t at = reading_at(r, o->site.layer * r->kinds + o->site.kind, o->site.step, o->site.position);
    memcpy(r->logits + at * r->vocab, o->logits, r->vocab * sizeof(float));
    r->seen[at]++;
    r->came++;
}

static readings readings_create(const example *e)
{
    const descent_model_info *info = descent_model_describe(e->engine);
    readings r = {.programs = (size_t)info->layers * info->kinds,
                  .kinds = info->kinds,
                  .count = e->count,
                  .vocab = info->vocab,
                  .deepens = info->deepens,
                  .wanted = true};
    for (size_t k = 0; k < r.kinds; k++)
        if (sublayer_steps_at(e->depth, k) > r.most) r.most = sublayer_steps_at(e->depth, k);
    size_t places = r.programs * (r.most + 1) * r.count;
    r.logits = test_alloc(places * r.vocab, sizeof *r.logits);
    r.seen = test_alloc(places, 1);
    return r;
}

static void readings_free(readings *r)
{
    free(r->logits);
    free(r->seen);
}

static void compare_reading(const readings *r, size_t program, size_t step, const outcome *expected)
{
    for (size_t i = 0; i < r->count; i++) {
        size_t at = reading_at(r, program, step, i);
        if (r->seen[at] != 1)
            compare_fail("program %zu, step %zu, position %zu was read %u times", program, step, i, r->seen[at]);
        compare_bits(r->logits + at * r->vocab, expected->logits + i * r->vocab, r->vocab, "logits on the way");
    }
}

static void what_is_read_on_the_way_is_what_an_end_there_says(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(70); round++) {
        test_family family = family_of(round);
        example_wish wish = {.family = family, .context = 60, .weight = (test_weight)(round / TEST_FAMILIES % 5)};
        example e = example_draw(test_seed(390, round), &wish);
        drive_options options = {.depth = e.depth, .threads = 1 + round % 2};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1 + round % 2);
        descent_sequence *beside = drive_sequence(cache, e.depth, false, e.tokens, e.count);
        descent_sequence *sequence = drive_sequence(cache, e.depth, false, e.tokens, e.count);
        readings r = readings_create(&e);
        descent_status status;
        expect_ok(descent_sequence_observe(sequence, DESCENT_OBSERVE_LOGITS | DESCENT_OBSERVE_FINAL, keep, &r, &status),
                  &status);
        size_t added;
        if (round % 3) expect_ok(descent_batch_add(batch, beside, SIZE_MAX, &added, &status), &status);
        drive_finish(batch, sequence);
        outcome got = drive_read(batch, e.engine, sequence);
        compare_outcomes(&got, &expected);
        if (r.plain) compare_fail("logits came where there are none, or did not come");
        compare_reading(&r, r.programs - 1, sublayer_steps_at(e.depth, r.kinds - 1), &expected);
        if (descent_sequence_logits_read(sequence) != r.came || descent_sequence_logits_read(beside) != 0)
            compare_fail("%zu readings came, %llu were counted", r.came,
                         (unsigned long long)descent_sequence_logits_read(sequence));
        size_t wanted = r.deepens ? e.count * (e.depth.steps[0] + (size_t)1) : e.count * r.programs;
        if (r.came != wanted) compare_fail("%zu readings came, expected %zu", r.came, wanted);
        for (uint16_t t = 1; r.deepens && t < e.depth.steps[0]; t++) {
            options.depth.steps[0] = t;
            outcome shallow = drive(e.engine, e.tokens, e.count, &options);
            compare_reading(&r, 0, t, &shallow);
            outcome_free(&shallow);
        }
        readings_free(&r);
        outcome_free(&got);
        outcome_free(&expected);
        descent_sequence_destroy(sequence);
        descent_sequence_destroy(beside);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

static void none_come_unasked(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 12};
        example e = example_draw(test_seed(391, family), &wish);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence(cache, e.depth, false, e.tokens, e.count);
        readings r = readings_create(&e);
        descent_status status;
        r.wanted = false;
        expect_ok(descent_sequence_observe(sequence, OBSERVE_ALL, keep, &r, &status), &status);
        drive_finish(batch, sequence);
        if (r.plain || descent_sequence_logits_read(sequence) > 0) compare_fail("logits came, and nobody asked");
        readings_free(&r);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* A step that only finds out that its token has stopped already tells nothing, and reads nothing: the row behind does. */
static void what_no_observer_is_told_is_not_read(void **state)
{
    size_t stopped = 0;
    (void)state;
    for (size_t round = 0; round < test_rounds(6); round++) {
        example_wish wish = {.family = TEST_NRGPT, .context = 40, .count = 40};
        example e = example_draw(test_seed(395, round), &wish);
        descent_sequence_options how = {.depth = depth_of(TEST_NRGPT, 6, 0),
                                        .exit = {.criterion = DESCENT_EXIT_ENERGY, .threshold = 0.3f}};
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence_as(cache, &how, e.tokens, e.count);
        e.depth = how.depth;
        readings r = readings_create(&e);
        descent_status status;
        int flags = DESCENT_OBSERVE_LOGITS | (round % 2 ? DESCENT_OBSERVE_FINAL : 0);
        expect_ok(descent_sequence_observe(sequence, flags, keep, &r, &status), &status);
        drive_finish(batch, sequence);
        for (size_t i = 0; i < e.count; i++) stopped += descent_sequence_token_steps(sequence, i) < 6;
        if (descent_sequence_logits_read(sequence) != r.came)
            compare_fail("%zu readings came, %llu were counted", r.came,
                         (unsigned long long)descent_sequence_logits_read(sequence));
        readings_free(&r);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        example_free(&e);
    }
    assert_true(stopped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_read_on_the_way_is_what_an_end_there_says),
                                       cmocka_unit_test(none_come_unasked),
                                       cmocka_unit_test(what_no_observer_is_told_is_not_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
