/* test_snapshot.c: a saved sequence goes on with the same bits; a file that is damaged, or of something else, is an error that
 * says so, and a hostile one (its hash made to fit) at worst a sequence of wrong numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "example.h"
#include "model_file.h"

static void save(const descent_sequence *sequence, const char *path)
{
    descent_status status;
    expect_ok(descent_sequence_save(sequence, path, &status), &status);
}

static descent_sequence *restore(descent_cache *cache, const char *path)
{
    descent_sequence *sequence = NULL;
    descent_status status;
    expect_ok(descent_sequence_restore(cache, path, &sequence, &status), &status);
    return sequence;
}

/* A sequence of e's first tokens in some state: finished, unfinished, in the middle of its descent, deeper than it asks. */
static descent_sequence *in_some_state(example *e, descent_cache *cache, size_t count, unsigned kind)
{
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence *sequence = drive_sequence(cache, e->depth, kind % 2, e->tokens, count);
    descent_status status;
    size_t added;
    if (kind != 0) drive_finish(batch, sequence);
    if (kind == 2 && test_deepens(e->model.family)) { /* the first half deeper than the rest */
        descent_depth deeper = {{(uint16_t)(e->depth.steps[0] + 3), 0}};
        expect_ok(descent_sequence_truncate(sequence, count / 2, &status), &status);
        expect_ok(descent_sequence_set_depth(sequence, deeper, &status), &status);
        drive_finish(batch, sequence);
        expect_ok(descent_sequence_set_depth(sequence, e->depth, &status), &status);
        drive_append(sequence, e->tokens + count / 2, count - count / 2);
    }
    if (kind == 3) { /* some rows have done some steps */
        expect_ok(descent_sequence_truncate(sequence, count / 2, &status), &status);
        drive_append(sequence, e->tokens + count / 2, count - count / 2);
        expect_ok(descent_batch_add(batch, sequence, 5, &added, &status), &status);
        expect_ok(descent_batch_step(batch, NULL, &status), &status);
        descent_batch_remove(batch, sequence);
    }
    descent_batch_destroy(batch);
    return sequence;
}

static void a_restored_sequence_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t round = 0; round < test_rounds(64); round++) {
        example_wish wish = {.family = family_of(round), .context = 75};
        example e = example_draw(test_seed(100, round), &wish);
        descent_page_type type = (descent_page_type)(round / TEST_FAMILIES % DESCENT_PAGE_TYPES);
        size_t count = rng_below(&e.r, e.count + 1);
        drive_options options = {.depth = e.depth, .page_type = type};
        outcome expected = drive(e.engine, e.tokens, e.count, &options);
        const char *path = scratch_path("sequence");
        descent_cache *cache = drive_cache(e.engine, type, 0);
        descent_sequence *sequence = in_some_state(&e, cache, count, (unsigned)(round / 4 % 4));
        size_t finished = descent_sequence_finished(sequence);
        save(sequence, path);
        descent_sequence_destroy(sequence);
        descent_cache_destroy(cache);

        cache = drive_cache(e.engine, type, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        sequence = restore(cache, path);
        assert_int_equal(descent_sequence_length(sequence), count);
        assert_int_equal(descent_sequence_finished(sequence), finished);
        assert_memory_equal(descent_sequence_tokens(sequence), e.tokens, count * sizeof *e.tokens);
        descent_depth depth = descent_sequence_depth(sequence);
        assert_memory_equal(&depth, &e.depth, sizeof depth);
        drive_append(sequence, e.tokens + count, e.count - count);
        drive_finish(batch, sequence);
        float *logits = test_alloc(expected.vocab, sizeof *logits);
        size_t last = e.count - 1;
        if (count < e.count || round / 4 % 4 != 2) { /* else the last one may be deeper, and has no logits */
            drive_logits(batch, sequence, last, logits);
            compare_bits(logits, expected.logits + last * expected.vocab, expected.vocab, "last logits");
        }
        /* What came from a file is offered to nobody. */
        descent_sequence *other = drive_sequence(cache, e.depth, true, e.tokens, e.count);
        assert_int_equal(descent_sequence_reused(other), 0);
        descent_sequence_destroy(other);
        free(logits);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        outcome_free(&expected);
        example_free(&e);
    }
}

/* ---- Bad files --------------------------------------------------------------------------------------------------- */

static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(stream);
    rewind(stream);
    unsigned char *data = test_alloc(*bytes, 1);
    assert_int_equal(fread(data, 1, *bytes, stream), *bytes);
    (void)fclose(stream);
    return data;
}

static void write_file(const char *path, const unsigned char *data, size_t bytes)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, bytes, stream), bytes);
    assert_int_equal(fclose(stream), 0);
}

/* The file ends with an FNV-1a hash of all before it. */
static void fit_hash(unsigned char *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i + 8 < bytes; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
    memcpy(data + bytes - 8, &hash, 8);
}

/* A finished sequence of 40 tokens, all of which have stopped early where that is asked. */
static descent_sequence *finished(const example *e, descent_cache *cache, bool stops)
{
    descent_sequence_options how = {.depth = e->depth};
    if (stops) how.exit = (descent_exit){.criterion = DESCENT_EXIT_STATE, .threshold = 3e38f};
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence *sequence = drive_sequence_as(cache, &how, e->tokens, 40);
    drive_finish(batch, sequence);
    descent_batch_destroy(batch);
    return sequence;
}

/* The same saved, as bytes. */
static unsigned char *saved(const example *e, bool stops, size_t *bytes)
{
    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    descent_sequence *sequence = finished(e, cache, stops);
    save(sequence, scratch_path("whole"));
    descent_sequence_destroy(sequence);
    descent_cache_destroy(cache);
    return read_file(scratch_path("whole"), bytes);
}

static void expect_refused(descent_cache *cache, const unsigned char *data, size_t bytes, const char *what, size_t where)
{
    const char *path = scratch_path("damaged");
    descent_sequence *sequence = NULL;
    descent_status status;
    write_file(path, data, bytes);
    descent_code code = descent_sequence_restore(cache, path, &sequence, &status);
    if (code == DESCENT_OK) compare_fail("restored although %s at %zu", what, where);
    if (code != DESCENT_BAD_FILE && code != DESCENT_UNSUPPORTED && code != DESCENT_BAD_ARGUMENT && code != DESCENT_LIMIT)
        compare_fail("%s at %zu gives code %d: %s", what, where, (int)code, status.message);
    if (!status.message[0]) compare_fail("%s at %zu has no message", what, where);
    if (sequence) compare_fail("%s at %zu: a sequence came out of a failure", what, where);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    for (test_family family = 0; family < TEST_FAMILIES; family++) {
        example_wish wish = {.family = family, .context = 64, .count = 45};
        example e = example_draw(test_seed(101, family), &wish);
        size_t bytes;
        unsigned char *data = saved(&e, false, &bytes);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        for (size_t n = 0; n < 50; n++) expect_refused(cache, data, bytes * n / 50, "it was cut", bytes * n / 50);
        for (size_t n = bytes - 9; n < bytes; n++) expect_refused(cache, data, n, "it was cut", n);
        for (size_t n = 0; n < test_rounds(400); n++) {
            size_t where = n < 96 ? n : rng_below(&e.r, bytes);
            unsigned char bit = (unsigned char)(1u << rng_below(&e.r, 8));
            data[where] ^= bit;
            expect_refused(cache, data, bytes, "a bit was changed", where);
            data[where] ^= bit;
        }
        unsigned char *longer = test_alloc(bytes + 1, 1);
        memcpy(longer, data, bytes);
        expect_refused(cache, longer, bytes + 1, "something follows", bytes);
        assert_int_equal(descent_cache_describe(cache).bytes, 0); /* nothing was left behind */
        free(longer);
        free(data);
        descent_cache_destroy(cache);
        example_free(&e);
    }
}

/* Options lie in memory that held something else: nothing of that comes into the file. */
static void equal_sequences_make_equal_files(void **state)
{
    (void)state;
    example_wish wish = {.family = TEST_NRGPT, .context = 40, .count = 35};
    example e = example_draw(test_seed(103, 0), &wish);
    unsigned char *data[2];
    size_t bytes[2];
    for (size_t i = 0; i < 2; i++) {
        descent_sequence_options asked;
        memset(&asked, i ? 0x55 : 0xaa, sizeof asked);
        asked.depth = e.depth;
        asked.motion.n_scales = 0;
        asked.motion.momentum = asked.motion.noise.sigma = 0;
        asked.motion.rule = DESCENT_RULE_PLAIN;
        asked.solver.method = DESCENT_SOLVER_PLAIN;
        asked.exit.criterion = DESCENT_EXIT_NONE;
        asked.history.policy = DESCENT_HISTORY_OWN;
        asked.history.prompt_steps = 0;
        asked.share_group = 0;
        asked.no_sharing = false;
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
        descent_batch *batch = drive_batch(cache, 0, 1);
        descent_sequence *sequence = drive_sequence_as(cache, &asked, e.tokens, e.count);
        drive_finish(batch, sequence);
        save(sequence, scratch_path("equal"));
        data[i] = read_file(scratch_path("equal"), &bytes[i]);
        descent_sequence_destroy(sequence);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    free(data[0]);
    free(data[1]);
    example_free(&e);
}

/* Damage that the hash does not show: refused, or a sequence one can go on with or be refused by. Nothing worse. */
static void hostile_files_do_no_harm(void **state)
{
    (void)state;
    for (size_t round = 0; round < 2 * TEST_FAMILIES; round++) {
        test_family family = family_of(round);
        bool stops = round >= TEST_FAMILIES;
        if (stops && !test_descends(family)) continue;
        example_wish wish = {.family = family, .context = 64, .count = 45};
        example e = example_draw(test_seed(102, round), &wish);
        size_t bytes, restored = 0;
        unsigned char *data = saved(&e, stops, &bytes), *bad = test_alloc(bytes, 1);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 1u << 22);
        descent_batch *batch = drive_batch(cache, 0, 1);
        for (size_t n = 0; n < test_rounds(400); n++) {
            memcpy(bad, data, bytes);
            /* Mostly where numbers that say how many and how far stand: the header, and the beginnings of pages. */
            size_t where = n % 3 ? rng_below(&e.r, 700) : rng_below(&e.r, bytes - 8);
            bad[where] = rng_below(&e.r, 3) ? (unsigned char)rng_next(&e.r) : (unsigned char)(rng_below(&e.r, 2) ? 0xff : 0);
            fit_hash(bad, bytes);
            descent_sequence *sequence = NULL;
            descent_status status;
            write_file(scratch_path("hostile"), bad, bytes);
            if (descent_sequence_restore(cache, scratch_path("hostile"), &sequence, &status) != DESCENT_OK) {
                if (!status.message[0]) compare_fail("byte %zu: no message", where);
                continue;
            }
            restored++;
            descent_code code = DESCENT_OK;
            if (descent_sequence_length(sequence) < 45) code = descent_sequence_append(sequence, e.tokens, 1, &status);
            if (code == DESCENT_OK) (void)descent_batch_finish(batch, sequence, &status);
            descent_sequence_destroy(sequence);
        }
        assert_true(restored > 0); /* most bytes are numbers, any of which is as good */
        assert_int_equal(descent_batch_rows(batch), 0);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        free(data);
        free(bad);
        example_free(&e);
    }
}

/* A file of tokens that others read at their last states: a prompt's 36 of two steps, or one that was started late. */
static unsigned char *saved_history(const example *e, descent_history_policy policy, size_t *bytes)
{
    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    descent_sequence_options how = {.depth = {{4}}, .history = {.policy = policy}};
    bool latest = policy == DESCENT_HISTORY_LATEST;
    if (latest) how.history = (descent_history){.policy = policy, .prompt_steps = 2, .prompt = 36};
    descent_batch *batch = drive_batch(cache, 0, 1);
    descent_sequence *sequence = drive_sequence_as(cache, &how, e->tokens, 40);
    descent_status status;
    uint32_t width = descent_model_describe(e->engine)->width;
    float *x = test_alloc(width, sizeof *x);
    for (uint32_t c = 0; c < width; c++) x[c] = (float)c / 7;
    for (size_t i = 0; !latest && i < 40; i++)
        expect_ok(descent_sequence_start(sequence, (descent_site){.position = i, .step = 3}, x, &status), &status);
    if (latest) drive_finish(batch, sequence);
    save(sequence, scratch_path("history"));
    free(x);
    descent_sequence_destroy(sequence);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
    return read_file(scratch_path("history"), bytes);
}

/* Nobody reads a plane that is not there where a file says that a token is done, and has not written what is then read of it.
 */
static void hostile_histories_do_no_harm(void **state)
{
    static const uint16_t numbers[] = {0, 3};
    (void)state;
    example_wish wish = {.family = TEST_NRGPT, .context = 64, .count = 45};
    example e = example_draw(test_seed(104, 0), &wish);
    for (int policy = DESCENT_HISTORY_LATEST; policy <= DESCENT_HISTORY_LAST; policy++) {
        size_t bytes, restored = 0, refused = 0;
        unsigned char *data = saved_history(&e, (descent_history_policy)policy, &bytes), *bad = test_alloc(bytes, 1);
        descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 1u << 22);
        descent_batch *batch = drive_batch(cache, 0, 1);
        /* One number each: of the header, or of what begins the first page. */
        for (size_t n = 0; n < 2 * 600; n++) {
            memcpy(bad, data, bytes);
            memcpy(bad + n / 2 * sizeof *numbers, &numbers[n % 2], sizeof *numbers);
            fit_hash(bad, bytes);
            descent_sequence *sequence = NULL;
            descent_status status;
            write_file(scratch_path("hostile"), bad, bytes);
            if (descent_sequence_restore(cache, scratch_path("hostile"), &sequence, &status) != DESCENT_OK) {
                refused += strstr(status.message, "the progress of token") != NULL;
                continue;
            }
            restored++;
            descent_code code = DESCENT_OK;
            if (descent_sequence_length(sequence) < 45) code = descent_sequence_append(sequence, e.tokens, 1, &status);
            if (code == DESCENT_OK) (void)descent_batch_finish(batch, sequence, &status);
            descent_sequence_destroy(sequence);
        }
        assert_true(restored > 0 && refused > 0);
        descent_batch_destroy(batch);
        descent_cache_destroy(cache);
        free(data);
        free(bad);
    }
    example_free(&e);
}

static void files_of_something_else_are_refused(void **state)
{
    (void)state;
    example_wish wish = {.context = 64, .count = 45};
    example e = example_draw(test_seed(103, 0), &wish);
    const char *path = scratch_path("of one model");
    descent_status status;
    descent_sequence *restored = NULL;
    descent_cache *cache = drive_cache(e.engine, DESCENT_PAGE_F32, 0);
    descent_sequence *sequence = in_some_state(&e, cache, 40, 1);
    save(sequence, path);

    /* The same shape with one other weight; another page type; no file; not a file of ours. */
    test_model changed = test_model_copy(&e.model);
    changed.tensors[0].values[0] += 0.125;
    descent_model *other = drive_open_test_model(&changed);
    descent_cache *others = drive_cache(other, DESCENT_PAGE_F32, 0), *halves = drive_cache(e.engine, DESCENT_PAGE_F16, 0);
    expect_code(descent_sequence_restore(others, path, &restored, &status), DESCENT_BAD_FILE, &status, "model");
    expect_code(descent_sequence_restore(halves, path, &restored, &status), DESCENT_BAD_FILE, &status, "page type");
    expect_code(descent_sequence_restore(cache, scratch_path("nowhere"), &restored, &status), DESCENT_IO, &status, "nowhere");
    write_file(scratch_path("text"),
               (const unsigned char *)"To be, or not to be, that is the question: whether it is nobler in the mind", 75);
    expect_code(descent_sequence_restore(cache, scratch_path("text"), &restored, &status), DESCENT_BAD_FILE, &status, "text");
    assert_null(restored);

    /* Too little room for what is in it. */
    descent_cache *small = drive_cache(e.engine, DESCENT_PAGE_F32, 1000);
    expect_code(descent_sequence_restore(small, path, &restored, &status), DESCENT_LIMIT, &status, "1000");

    /* A save that cannot be made leaves what was there. */
    size_t bytes, again;
    unsigned char *before = read_file(path, &bytes);
    char inside[400];
    (void)snprintf(inside, sizeof inside, "%s/x", path);
    expect_code(descent_sequence_save(sequence, inside, &status), DESCENT_IO, &status, inside);
    unsigned char *after = read_file(path, &again);
    assert_int_equal(bytes, again);
    assert_memory_equal(before, after, bytes);
    free(before);
    free(after);
    descent_sequence_destroy(sequence);
    descent_cache_destroy(small);
    descent_cache_destroy(halves);
    descent_cache_destroy(others);
    descent_cache_destroy(cache);
    descent_model_close(other);
    test_model_free(&changed);
    example_free(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_restored_sequence_goes_on_with_the_same_bits),
                                       cmocka_unit_test(damaged_files_are_refused),
                                       cmocka_unit_test(hostile_files_do_no_harm),
                                       cmocka_unit_test(equal_sequences_make_equal_files),
                                       cmocka_unit_test(hostile_histories_do_no_harm),
                                       cmocka_unit_test(files_of_something_else_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
