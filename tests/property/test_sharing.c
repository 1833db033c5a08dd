/* test_sharing.c: which pages are found by whom: the same tokens behind the same tokens, of one group, never the page of the
 * last token; and that whoever goes another way takes nothing from the others. Pages hold 32 tokens (engine/cache.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "compare.h"
#include "example.h"

enum { TOKENS = 3 * PAGE_TOKENS + 1 };

typedef struct setting {
    example e;
    outcome expected; /* of all tokens */
    descent_cache *cache;
    descent_batch *batch;
} setting;

static setting set_up(uint64_t test, test_family chosen, uint64_t limit)
{
    example_wish wish = {.family = chosen, .context = TOKENS + 3, .count = TOKENS, .most = 3};
    setting s = {.e = example_draw(test_seed(test, chosen), &wish)};
    drive_options alone = {.depth = s.e.depth};
    s.expected = drive(s.e.engine, s.e.tokens, TOKENS, &alone);
    s.cache = drive_cache(s.e.engine, DESCENT_PAGE_F32, limit);
    s.batch = drive_batch(s.cache, 0, 1);
    return s;
}

static void tear_down(setting *s)
{
    descent_batch_destroy(s->batch);
    drive_cache_end(s->cache);
    outcome_free(&s->expected);
    example_free(&s->e);
}

static descent_sequence *create(setting *s, const descent_sequence_options *options)
{
    descent_sequence *sequence = NULL;
    descent_status status;
    expect_ok(descent_sequence_create(s->cache, options, &sequence, &status), &status);
    return sequence;
}

/* Tokens a new sequence of the first `count` tokens finds; it is finished, compared and destroyed. */
static size_t found(setting *s, descent_sequence_options options, size_t count)
{
    options.depth = s->e.depth;
    descent_sequence *sequence = create(s, &options);
    drive_append(sequence, s->e.tokens, count);
    size_t reused = descent_sequence_reused(sequence);
    assert_int_equal(descent_sequence_finished(sequence), reused);
    drive_finish(s->batch, sequence);
    assert_int_equal(descent_sequence_steps_run(sequence), (count - reused) * row_steps_at(&s->e.model, s->e.depth));
    outcome got = drive_read(s->batch, s->e.engine, sequence);
    compare_bits(got.logits, s->expected.logits, count * got.vocab, "logits");
    compare_bits(got.states, s->expected.states, count * got.width, "states");
    outcome_free(&got);
    descent_sequence_destroy(sequence);
    return reused;
}

static void pages_are_found_up_to_the_last_token(void **state)
{
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        setting s = set_up(130, chosen, 0);
        const descent_sequence_options anybody = {.share_group = 0};
        assert_int_equal(found(&s, anybody, TOKENS), 0);
        assert_int_equal(found(&s, anybody, TOKENS), 3 * PAGE_TOKENS);
        assert_int_equal(found(&s, anybody, 3 * PAGE_TOKENS), 2 * PAGE_TOKENS);
        assert_int_equal(found(&s, anybody, 2 * PAGE_TOKENS + 1), 2 * PAGE_TOKENS);
        assert_int_equal(found(&s, anybody, 2 * PAGE_TOKENS), PAGE_TOKENS);
        assert_int_equal(found(&s, anybody, PAGE_TOKENS), 0);
        assert_int_equal(found(&s, anybody, 1), 0);
        assert_int_equal(descent_cache_describe(s.cache).shared_hits, 3 + 2 + 2 + 1);
        tear_down(&s);
    }
}

static void groups_and_hermits_do_not_share(void **state)
{
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        setting s = set_up(131, chosen, 0);
        const descent_sequence_options one = {.share_group = 1}, two = {.share_group = 2},
                                       hermit = {.share_group = 1, .no_sharing = true};
        assert_int_equal(found(&s, hermit, TOKENS), 0);
        assert_int_equal(descent_cache_describe(s.cache).bytes, 0); /* and leaves nothing */
        assert_int_equal(found(&s, one, TOKENS), 0);
        assert_int_equal(found(&s, two, TOKENS), 0);
        assert_int_equal(found(&s, hermit, TOKENS), 0);
        assert_int_equal(found(&s, one, TOKENS), 3 * PAGE_TOKENS);
        assert_int_equal(found(&s, two, TOKENS), 3 * PAGE_TOKENS);
        tear_down(&s);
    }
}

/* A page is what came before it as well. */
static void the_same_tokens_behind_others_are_not_the_same(void **state)
{
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        setting s = set_up(132, chosen, 0);
        uint32_t *other = test_alloc(TOKENS, sizeof *other);
        memcpy(other, s.e.tokens, TOKENS * sizeof *other);
        other[0] = other[0] ? 0 : 1;
        descent_sequence *first = drive_sequence(s.cache, s.e.depth, true, other, TOKENS);
        drive_finish(s.batch, first);
        assert_int_equal(found(&s, (descent_sequence_options){.share_group = 0}, TOKENS), 0);
        descent_sequence_destroy(first);

        free(other);
        if (!test_has_depth(chosen, 0) && !test_has_depth(chosen, 1)) {
            tear_down(&s);
            continue;
        }

        /* Nor at another depth, where that is another computation. */
        descent_depth deeper = s.e.depth;
        deeper.steps[test_has_depth(chosen, 0) ? 0 : 1]++;
        descent_sequence *sequence = drive_sequence(s.cache, deeper, true, s.e.tokens, TOKENS);
        assert_int_equal(descent_sequence_reused(sequence), 0); /* not deep enough: none count, some may be there */
        drive_finish(s.batch, sequence);
        size_t steps = !test_deepens(chosen) ? TOKENS * row_steps_at(&s.e.model, deeper)
                                             : 3 * PAGE_TOKENS + (TOKENS - 3 * PAGE_TOKENS) * (size_t)deeper.steps[0];
        assert_int_equal(descent_sequence_steps_run(sequence), steps);
        descent_sequence_destroy(sequence);
        assert_int_equal(found(&s, (descent_sequence_options){.share_group = 0}, PAGE_TOKENS), 0);
        tear_down(&s);
    }
}

/* A sequence that is cut inside a shared page and goes on with other tokens leaves the page as it was. */
static void who_goes_another_way_takes_nothing_along(void **state)
{
    static const size_t cuts[] = {1, 20, PAGE_TOKENS, PAGE_TOKENS + 5, 2 * PAGE_TOKENS - 1, 2 * PAGE_TOKENS + 9};
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++)
        for (size_t n = 0; n < sizeof cuts / sizeof *cuts; n++) {
            setting s = set_up(133 + n, chosen, 0);
            size_t cut = cuts[n];
            descent_status status;
            descent_sequence *stays = drive_sequence(s.cache, s.e.depth, true, s.e.tokens, TOKENS);
            drive_finish(s.batch, stays);
            descent_sequence *turns = drive_sequence(s.cache, s.e.depth, true, s.e.tokens, TOKENS);
            drive_finish(s.batch, turns);
            expect_ok(descent_sequence_truncate(turns, cut, &status), &status);
            assert_int_equal(descent_sequence_finished(turns), cut);
            uint32_t *other = random_tokens(&s.e.r, &s.e.model, TOKENS);
            memcpy(other, s.e.tokens, cut * sizeof *other);
            drive_append(turns, other + cut, TOKENS - cut);
            drive_finish(s.batch, turns);
            drive_options alone = {.depth = s.e.depth};
            outcome another = drive(s.e.engine, other, TOKENS, &alone), got = drive_read(s.batch, s.e.engine, turns);
            compare_outcomes(&got, &another);
            outcome_free(&got);
            got = drive_read(s.batch, s.e.engine, stays);
            compare_outcomes(&got, &s.expected);
            outcome_free(&got);
            /* The pages of the one that stayed still serve, to it and to others. */
            drive_append(stays, other, 2);
            drive_finish(s.batch, stays);
            assert_int_equal(found(&s, (descent_sequence_options){.share_group = 0}, TOKENS), 3 * PAGE_TOKENS);
            outcome_free(&another);
            free(other);
            descent_sequence_destroy(turns);
            descent_sequence_destroy(stays);
            tear_down(&s);
        }
}

/* What somebody holds is not evicted; what nobody holds goes when room is needed. */
static void held_pages_stay_and_idle_ones_go(void **state)
{
    (void)state;
    for (test_family chosen = 0; chosen < TEST_FAMILIES; chosen++) {
        setting probe = set_up(140, chosen, 0);
        uint64_t needed = bytes_at(probe.e.engine, DESCENT_PAGE_F32, TOKENS, probe.e.depth);
        tear_down(&probe);
        setting s = set_up(140, chosen, needed + needed / 2);
        uint32_t *other = random_tokens(&s.e.r, &s.e.model, TOKENS);
        other[0] = s.e.tokens[0] ? 0 : 1;
        descent_sequence *held = drive_sequence(s.cache, s.e.depth, true, s.e.tokens, TOKENS);
        drive_finish(s.batch, held);
        descent_sequence *second = drive_sequence(s.cache, s.e.depth, true, NULL, 0);
        descent_status status;
        descent_code code = descent_sequence_append(second, other, TOKENS, &status);
        if (code == DESCENT_OK) code = descent_batch_finish(s.batch, second, &status);
        expect_code(code, DESCENT_LIMIT, &status, NULL);
        assert_true(descent_cache_describe(s.cache).bytes <= needed + needed / 2);
        outcome got = drive_read(s.batch, s.e.engine, held);
        compare_outcomes(&got, &s.expected);
        outcome_free(&got);
        descent_sequence_destroy(held); /* now there is room */
        if (descent_sequence_length(second) == 0) drive_append(second, other, TOKENS);
        drive_finish(s.batch, second);
        drive_options alone = {.depth = s.e.depth};
        outcome another = drive(s.e.engine, other, TOKENS, &alone);
        got = drive_read(s.batch, s.e.engine, second);
        compare_outcomes(&got, &another);
        outcome_free(&got);
        outcome_free(&another);
        descent_sequence_destroy(second);
        free(other);
        tear_down(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_found_up_to_the_last_token), cmocka_unit_test(groups_and_hermits_do_not_share),
        cmocka_unit_test(the_same_tokens_behind_others_are_not_the_same),
        cmocka_unit_test(who_goes_another_way_takes_nothing_along), cmocka_unit_test(held_pages_stay_and_idle_ones_go)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
