/* test_lifecycle.c: whatever is done with several sequences and two batches over one small cache, in whatever order, what a
 * sequence comes to is what it comes to alone: a random walk over descent.h. Texts share their beginnings, so that pages are
 * found, deepened, cut, copied and evicted; the limit is tight, so that operations fail halfway. Whenever a sequence is
 * finished every logit and state must have the bits of a private computation in a cache of its own, and when all is
 * destroyed no byte may be left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "compare.h"
#include "drive.h"
#include "model_file.h"
#include "random_model.h"

enum { CONTEXT = 110, TEXTS = 3, MOST_LINES = 6, MOST_CHANGES = 12, MOST_STEPS = 5, OPERATIONS = 160 };

typedef struct change {
    descent_site site;
    descent_intervention how;
    float *values;
} change;

/* A sequence and what this program knows about it. */
typedef struct line {
    descent_sequence *sequence;
    size_t text;
    uint32_t tokens[CONTEXT];
    size_t length;
    descent_depth depth;
    descent_motion motion;
    descent_history history;
    change changes[MOST_CHANGES];
    size_t n_changes;
    size_t started_from; /* tokens from here on start at `start`; SIZE_MAX: none */
    descent_site start;
    float *starts; /* [CONTEXT][C] */
} line;

typedef struct walk {
    rng r;
    test_model shape;
    descent_model *model;
    descent_page_type page_type;
    descent_cache *cache;
    descent_batch *batches[2];
    uint32_t texts[TEXTS][CONTEXT];
    line *lines[MOST_LINES];
    size_t compared, diverged, refused; /* what came of it, so that a walk that does nothing is noticed */
    descent_status status;
} walk;

static descent_depth some_depth(walk *w)
{
    return random_depth(&w->r, &w->shape, MOST_STEPS - (test_kinds(w->shape.family) > 1 ? 2 : 0));
}

static float *some_values(walk *w, double size)
{
    float *values = test_alloc(w->shape.width, sizeof *values);
    for (size_t c = 0; c < w->shape.width; c++) values[c] = (float)(size * rng_normal(&w->r));
    return values;
}

/* An operation is done, or refused for want of memory; nothing else. */
static bool done(walk *w, descent_code code)
{
    if (code != DESCENT_LIMIT) expect_ok(code, &w->status);
    w->refused += code == DESCENT_LIMIT;
    return code == DESCENT_OK;
}

/* Another T takes its tokens on from where they stand. */
static bool deepens(const walk *w, const line *l)
{
    return test_deepens(w->shape.family) && l->history.policy == DESCENT_HISTORY_OWN;
}

/* Steps of a sub-layer of the token at `position`. */
static size_t steps_at(const line *l, descent_depth depth, size_t position, size_t kind)
{
    return position < l->history.prompt ? l->history.prompt_steps : sublayer_steps_at(depth, kind);
}

/* ---- What a line comes to alone --------------------------------------------------------------------------------- */

/* The line's first tokens in a cache of its own at a depth, with the changes that exist at that depth; NULL where it diverges.
 */
static descent_sequence *alone(walk *w, const line *l, size_t count, descent_depth depth, descent_cache **cache,
                               descent_batch **batch)
{
    *cache = drive_cache(w->model, w->page_type, 0);
    *batch = drive_batch(*cache, 0, 1);
    descent_sequence_options how = {.depth = depth, .motion = l->motion, .history = l->history, .no_sharing = true};
    descent_sequence *s = drive_sequence_as(*cache, &how, l->tokens, count);
    for (size_t i = 0; i < l->n_changes; i++) {
        const change *c = &l->changes[i];
        if (c->site.step >= steps_at(l, depth, c->site.position, c->site.kind)) continue;
        expect_ok(descent_sequence_intervene(s, c->site, c->how, c->values, &w->status), &w->status);
    }
    for (size_t i = l->started_from; i < count; i++) {
        descent_site site = l->start;
        site.position = i;
        expect_ok(descent_sequence_start(s, site, l->starts + i * w->shape.width, &w->status), &w->status);
    }
    descent_code code = descent_batch_finish(*batch, s, &w->status);
    if (code != DESCENT_DIVERGED) expect_ok(code, &w->status);
    if (code == DESCENT_OK) return s;
    descent_sequence_destroy(s);
    descent_batch_destroy(*batch);
    descent_cache_destroy(*cache);
    return NULL;
}

/* Compares the tokens that stand at `depth`, `steps` row steps. */
static void compare_at(walk *w, const line *l, descent_depth depth, uint32_t steps, const uint32_t *stand, const float *x)
{
    size_t C = w->shape.width, V = w->shape.vocab;
    descent_cache *cache;
    descent_batch *batch;
    size_t count =
        l->length; /* tokens behind the last one that stands there may not have come so far, and need not be able to */
    while (count > 0 && stand[count - 1] != steps) count--;
    if (count == 0) return;
    descent_sequence *expected = alone(w, l, count, depth, &cache, &batch);
    if (!expected) compare_fail("alone it diverges, in company it does not");
    float *state = test_alloc(C, sizeof *state), *logits = test_alloc(2 * V, sizeof *logits);
    bool own = !memcmp(&depth, &l->depth, sizeof depth);
    for (size_t i = 0; i < count; i++) {
        if (stand[i] != steps) continue;
        expect_ok(descent_sequence_state(expected, i, state, NULL, &w->status), &w->status);
        compare_bits(x + i * C, state, C, "a state");
        if (!own) continue;
        drive_logits(w->batches[0], l->sequence, i, logits);
        drive_logits(batch, expected, i, logits + V);
        compare_bits(logits, logits + V, V, "logits");
    }
    free(state);
    free(logits);
    descent_sequence_destroy(expected);
    descent_batch_destroy(batch);
    descent_cache_destroy(cache);
}

/* A finished line against itself alone; tokens that are deeper than it asked against that depth. */
static void compare_line(walk *w, const line *l)
{
    size_t C = w->shape.width;
    uint32_t stand[CONTEXT];
    float *x = test_alloc((l->length + 1) * C, sizeof *x), *logits = test_alloc(w->shape.vocab, sizeof *logits);
    assert_int_equal(descent_sequence_length(l->sequence), l->length);
    assert_int_equal(descent_sequence_finished(l->sequence), l->length);
    if (l->length) assert_memory_equal(descent_sequence_tokens(l->sequence), l->tokens, l->length * sizeof(uint32_t));
    for (size_t i = 0; i < l->length; i++)
        expect_ok(descent_sequence_state(l->sequence, i, x + i * C, &stand[i], &w->status), &w->status);
    if (!deepens(w, l)) {
        uint32_t total = (uint32_t)row_steps_at(&w->shape, l->depth), of_prompt = l->history.prompt_steps;
        bool shares = l->history.policy == DESCENT_HISTORY_LATEST && (l->history.prompt == 0 || of_prompt >= total);
        for (size_t i = 0; i < l->length; i++) {
            uint32_t wanted = i < l->history.prompt ? of_prompt : total;
            assert_true(stand[i] == wanted || (shares && stand[i] > wanted)); /* pages of any T are its own */
            if (stand[i] != wanted) stand[i] = UINT32_MAX;
        }
        compare_at(w, l, l->depth, total, stand, x);
        if (l->history.prompt > 0 && of_prompt != total) compare_at(w, l, l->depth, of_prompt, stand, x);
    } else {
        for (uint32_t t = l->depth.steps[0]; t <= MOST_STEPS; t++)
            compare_at(w, l, (descent_depth){{(uint16_t)t, 0}}, t, stand, x);
        for (size_t i = 0; i < l->length; i++) {
            descent_reading deeper = {l->sequence, i};
            if (stand[i] == l->depth.steps[0]) continue;
            descent_code code = descent_batch_logits(w->batches[0], &deeper, 1, logits, &w->status);
            expect_code(code, DESCENT_BAD_ARGUMENT, &w->status, "deeper");
        }
    }
    w->compared++;
    free(x);
    free(logits);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void line_end(line *l)
{
    descent_sequence_destroy(l->sequence);
    for (size_t i = 0; i < l->n_changes; i++) free(l->changes[i].values);
    free(l->starts);
    free(l);
}

static void take_out(walk *w, const line *l)
{
    for (size_t b = 0; b < 2; b++) descent_batch_remove(w->batches[b], l->sequence);
}

/* Gives tokens that have no start one, where the line's tokens are started. Where there is no memory for it the line is cut
 * to those that have. */
static void start_new(walk *w, line *l, size_t from)
{
    if (l->started_from == SIZE_MAX) return;
    for (size_t i = from > l->started_from ? from : l->started_from; i < l->length; i++) {
        descent_site site = l->start;
        site.position = i;
        float *x = some_values(w, 1);
        memcpy(l->starts + i * w->shape.width, x, w->shape.width * sizeof *x);
        bool started = done(w, descent_sequence_start(l->sequence, site, x, &w->status));
        free(x);
        if (started) continue;
        while (!done(w, descent_sequence_truncate(l->sequence, i, &w->status))) i--; /* whole pages always go */
        l->length = i;
        return;
    }
}

static void op_create(walk *w, size_t at)
{
    line *l = test_alloc(1, sizeof *l);
    *l = (line){.text = rng_below(&w->r, TEXTS), .depth = some_depth(w), .started_from = SIZE_MAX};
    if (test_descends(w->shape.family) && rng_below(&w->r, 2)) l->motion = motion_random(&w->r, w->shape.family == TEST_NRGPT);
    if (w->shape.family == TEST_NRGPT && rng_below(&w->r, 3) == 0) {
        l->history.policy = rng_below(&w->r, 2) ? DESCENT_HISTORY_LAST : DESCENT_HISTORY_LATEST;
        if (rng_below(&w->r, 3)) l->history.prompt_steps = (uint32_t)rng_between(&w->r, 1, MOST_STEPS);
        if (l->history.prompt_steps > 0) l->history.prompt = rng_below(&w->r, 2) ? 40 : (uint32_t)rng_below(&w->r, CONTEXT);
    }
    descent_sequence_options options = {.depth = l->depth,
                                        .motion = l->motion,
                                        .history = l->history,
                                        .share_group = rng_below(&w->r, 8) == 0,
                                        .no_sharing = rng_below(&w->r, 6) == 0};
    expect_ok(descent_sequence_create(w->cache, &options, &l->sequence, &w->status), &w->status);
    w->lines[at] = l;
}

static void op_append(walk *w, line *l)
{
    size_t count = rng_below(&w->r, 3) ? rng_between(&w->r, 1, 6) : rng_between(&w->r, 1, 70);
    if (count > CONTEXT - l->length) count = CONTEXT - l->length;
    for (size_t i = 0; i < count; i++) {
        bool own = rng_below(&w->r, 300) == 0;
        l->tokens[l->length + i] = own ? (uint32_t)rng_below(&w->r, w->shape.vocab) : w->texts[l->text][l->length + i];
    }
    if (!done(w, descent_sequence_append(l->sequence, l->tokens + l->length, count, &w->status))) return;
    l->length += count;
    if (l->started_from != SIZE_MAX) take_out(w, l);
    start_new(w, l, l->length - count);
}

static void op_truncate(walk *w, line *l)
{
    size_t keep = rng_below(&w->r, l->length + 1);
    if (done(w, descent_sequence_truncate(l->sequence, keep, &w->status))) l->length = keep;
}

static void op_depth(walk *w, line *l)
{
    descent_depth depth = some_depth(w);
    if (l->started_from != SIZE_MAX) {
        if (!deepens(w, l)) return;
        if (depth.steps[0] <= l->start.step) depth.steps[0] = (uint16_t)(l->start.step + 1);
    }
    if (done(w, descent_sequence_set_depth(l->sequence, depth, &w->status))) l->depth = depth;
}

static void op_intervene(walk *w, line *l)
{
    if (l->n_changes == MOST_CHANGES) return;
    change c = {.site = {.layer = (uint32_t)rng_below(&w->r, w->shape.layers), .position = rng_below(&w->r, CONTEXT)},
                .how = (descent_intervention)rng_below(&w->r, 4)};
    if (l->length && rng_below(&w->r, 3)) c.site.position = l->length - 1 - rng_below(&w->r, l->length < 8 ? l->length : 8);
    c.site.kind = (uint32_t)rng_below(&w->r, test_kinds(w->shape.family));
    c.site.step = (uint32_t)rng_below(&w->r, steps_at(l, l->depth, c.site.position, c.site.kind));
    /* Some are too large for a half, and end the sequence where pages are made of halves. */
    c.values = some_values(w, rng_below(&w->r, 4) || !(c.how & 2) ? 0.5 : 1e6);
    take_out(w, l);
    descent_code code = descent_sequence_intervene(l->sequence, c.site, c.how, c.values, &w->status);
    if (code != DESCENT_BAD_ARGUMENT && done(w, code)) {
        l->changes[l->n_changes++] = c;
        return;
    }
    if (code == DESCENT_BAD_ARGUMENT) expect_code(code, code, &w->status, "already");
    free(c.values);
}

/* Starts every token from a random one on, where none of them has begun. */
static void op_start(walk *w, line *l)
{
    if (l->started_from != SIZE_MAX || l->length == 0 || l->n_changes) return;
    size_t from = l->length - 1;
    if (descent_sequence_finished(l->sequence) > from) return;
    float x[256];
    uint32_t steps;
    take_out(w, l);
    expect_ok(descent_sequence_state(l->sequence, from, x, &steps, &w->status), &w->status);
    if (steps > 0) return;
    l->start = (descent_site){.layer = (uint32_t)rng_below(&w->r, w->shape.layers)};
    l->start.kind = (uint32_t)rng_below(&w->r, test_kinds(w->shape.family));
    size_t of_all = l->depth.steps[0], of_first = steps_at(l, l->depth, from, 0);
    if (test_deepens(w->shape.family)) l->start.step = (uint32_t)rng_below(&w->r, of_first < of_all ? of_first : of_all);
    l->started_from = from;
    l->starts = test_alloc((size_t)CONTEXT * w->shape.width, sizeof *l->starts);
    start_new(w, l, from);
}

static void look(void *user, const descent_observation *seen)
{
    walk *w = user;
    double sum = 0;
    for (size_t c = 0; seen->x && c < w->shape.width; c++) sum += (double)seen->x[c] + (double)seen->g[c];
    if (!isfinite(sum)) compare_fail("an observed state of token %zu is not finite", seen->site.position);
}

static void op_observe(walk *w, line *l)
{
    take_out(w, l);
    expect_ok(descent_sequence_observe(l->sequence, (int)rng_below(&w->r, 16), look, w, &w->status), &w->status);
}

/* Saves the line and goes on with what is restored. Interventions are not saved, so a line that has some stays. */
static void op_snapshot(walk *w, line *l)
{
    if (l->n_changes) return;
    const char *path = scratch_path("lifecycle.sequence");
    take_out(w, l);
    descent_code code = descent_sequence_save(l->sequence, path, &w->status);
    if (code == DESCENT_UNSUPPORTED && !test_deepens(w->shape.family) && l->started_from != SIZE_MAX) return;
    expect_ok(code, &w->status);
    descent_sequence *restored = NULL;
    if (done(w, descent_sequence_restore(w->cache, path, &restored, &w->status))) {
        descent_sequence_destroy(l->sequence);
        l->sequence = restored;
    }
    (void)unlink(path);
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

static void op_batch(walk *w, size_t b)
{
    if (w->batches[b]) descent_batch_destroy(w->batches[b]);
    w->batches[b] = drive_batch(w->cache, (uint32_t)rng_between(&w->r, 1, 60), 1 + (uint32_t)rng_below(&w->r, 2));
}

static void op_step(walk *w, descent_batch *batch)
{
    for (size_t n = rng_between(&w->r, 1, 4); n > 0; n--) {
        descent_step_report report;
        size_t rows = descent_batch_rows(batch);
        expect_ok(descent_batch_step(batch, &report, &w->status), &w->status);
        assert_true(report.rows <= rows && (report.rows + report.finished + report.diverged > 0) == (rows > 0));
    }
}

static void op_add(walk *w, descent_batch *batch, line *l)
{
    size_t added = 0;
    descent_code code = descent_batch_add(batch, l->sequence, rng_between(&w->r, 1, 50), &added, &w->status);
    if (code == DESCENT_BAD_ARGUMENT)
        expect_code(code, code, &w->status, "another batch");
    else
        (void)done(w, code);
}

static void op_finish(walk *w, descent_batch *batch, line *l)
{
    descent_code code = descent_batch_finish(batch, l->sequence, &w->status);
    if (code == DESCENT_BAD_ARGUMENT)
        expect_code(code, code, &w->status, "another batch");
    else if (code != DESCENT_DIVERGED && done(w, code))
        compare_line(w, l);
}

/* A sequence that has ended: says where, is cut there and lives on. */
static void recover(walk *w, line *l)
{
    unsigned long token = CONTEXT;
    if (sscanf(w->status.message, "diverged at token %lu", &token) != 1 || token >= l->length)
        compare_fail("a sequence of %zu tokens ended with \"%s\"", l->length, w->status.message);
    w->diverged++;
    descent_status status;
    expect_code(descent_sequence_append(l->sequence, l->tokens, 1, &status), DESCENT_DIVERGED, &status, "diverged");
    size_t keep = rng_between(&w->r, token / 2, token);
    while (!done(w, descent_sequence_truncate(l->sequence, keep, &w->status))) keep--;
    l->length = keep;
}

/* ---- The walk ---------------------------------------------------------------------------------------------------- */

static void operate(walk *w)
{
    size_t at = rng_below(&w->r, MOST_LINES), what = rng_below(&w->r, 100);
    line *l = w->lines[at];
    descent_batch *batch = w->batches[rng_below(&w->r, 2)];
    if (!l) {
        op_create(w, at);
        return;
    }
    if (descent_sequence_state_code(l->sequence, &w->status) != DESCENT_OK)
        recover(w, l);
    else if (what < 20)
        op_append(w, l);
    else if (what < 25)
        op_truncate(w, l);
    else if (what < 33)
        op_depth(w, l);
    else if (what < 37)
        op_intervene(w, l);
    else if (what < 39)
        op_start(w, l);
    else if (what < 43)
        op_observe(w, l);
    else if (what < 46)
        op_snapshot(w, l);
    else if (what < 62)
        op_add(w, batch, l);
    else if (what < 77)
        op_step(w, batch);
    else if (what < 80)
        descent_batch_remove(batch, l->sequence);
    else if (what < 93)
        op_finish(w, batch, l);
    else if (what < 98) {
        line_end(l);
        w->lines[at] = NULL;
    } else
        op_batch(w, rng_below(&w->r, 2));
}

static void draw_texts(walk *w)
{
    for (size_t k = 0; k < TEXTS; k++)
        for (size_t i = 0; i < CONTEXT; i++)
            w->texts[k][i] = k > 0 && i < 35 * k ? w->texts[0][i] : (uint32_t)rng_below(&w->r, w->shape.vocab);
}

static void take_a_walk(walk *w, uint64_t seed, test_family chosen)
{
    w->r = rng_seeded(seed);
    w->shape = random_shape(&w->r, chosen, CONTEXT);
    if (w->shape.hidden > 30) w->shape.hidden = 30;
    random_weights(&w->shape, &w->r);
    w->model = drive_open_test_model(&w->shape);
    w->page_type = (descent_page_type)rng_below(&w->r, 2);
    compare_about("seed %llu, %s, %s pages", (unsigned long long)seed, test_model_words(&w->shape),
                  w->page_type ? "f16" : "f32");
    descent_depth middle = depth_of(chosen, 4, 4);
    uint64_t limit = bytes_at(w->model, w->page_type, CONTEXT, middle) * rng_between(&w->r, 9, 30) / 8;
    w->cache = drive_cache(w->model, w->page_type, limit);
    for (size_t b = 0; b < 2; b++) op_batch(w, b);
    draw_texts(w);
    for (size_t n = 0; n < OPERATIONS; n++) {
        operate(w);
        assert_true(descent_cache_describe(w->cache).bytes <= limit);
    }
    for (size_t i = 0; i < MOST_LINES; i++) {
        if (w->lines[i]) line_end(w->lines[i]);
        w->lines[i] = NULL;
    }
    for (size_t b = 0; b < 2; b++) {
        descent_batch_destroy(w->batches[b]);
        w->batches[b] = NULL;
    }
    drive_cache_end(w->cache);
    descent_model_close(w->model);
    test_model_free(&w->shape);
}

static void in_whatever_order_it_is_used(void **state)
{
    (void)state;
    walk w = {0};
    size_t rounds = test_rounds(500);
    for (size_t round = 0; round < rounds; round++) take_a_walk(&w, test_seed(95, round), family_of(round));
    assert_true(w.compared > 2 * rounds);
    assert_true(w.refused > 0);
    if (rounds >= 50) assert_true(w.diverged > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_whatever_order_it_is_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
