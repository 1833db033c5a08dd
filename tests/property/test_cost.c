/* test_cost.c: multiply-adds are counted from a model's shape. Here they are counted once more, product by product, as the
 * engine hands them to the kernels while it runs a text a token at a time, which is where it takes no other form of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "compare.h"
#include "example.h"

enum { CONTEXT = 70 };

/* ---- Watching ------------------------------------------------------------------------------------------------------ */

static struct {
    const descent_model *model;
    uint64_t weights, attention, head; /* multiply-adds of products with these */
} watched;

static bool is_weight(const matrix *w)
{
    for (size_t i = 0; i < watched.model->n_matrices; i++)
        if (watched.model->matrices[i].w == w) return true;
    return false;
}

static void count(const product *p)
{
    uint64_t n = (uint64_t)p->count * (p->last_row - p->first_row) * (p->last_col - p->first_col);
    if (p->w == &watched.model->head)
        watched.head += n;
    else
        *(is_weight(p->w) ? &watched.weights : &watched.attention) += n;
}

static void count_project(const product *p)
{
    count(p);
    kernels_get()->project(p);
}

static void count_project_back(const product *p)
{
    count(p);
    kernels_get()->project_back(p);
}

/* An example's tokens, run one at a time under watch. */
typedef struct run {
    descent_cache *cache;
    descent_batch *batch;
    descent_sequence *sequence;
} run;

static run run_begin(const example *e)
{
    static kernels watching;
    watching = *kernels_get();
    watching.project = count_project;
    watching.project_back = count_project_back;
    descent_cache *cache = drive_cache(e->engine, DESCENT_PAGE_F32, 0);
    run r = {.cache = cache, .batch = drive_batch(cache, 0, 1), .sequence = drive_sequence(cache, e->depth, false, NULL, 0)};
    batch_set_kernels(r.batch, &watching);
    return r;
}

/* Forgets what was watched before. */
static void run_token(const run *r, const example *e, size_t i)
{
    memset(&watched, 0, sizeof watched);
    watched.model = e->engine;
    drive_append(r->sequence, &e->tokens[i], 1);
    drive_finish(r->batch, r->sequence);
}

static void run_end(run *r)
{
    descent_sequence_destroy(r->sequence);
    descent_batch_destroy(r->batch);
    descent_cache_destroy(r->cache);
}

/* ---- Tests --------------------------------------------------------------------------------------------------------- */

static void same(uint64_t got, uint64_t expected, const char *what, size_t position)
{
    if (got != expected)
        compare_fail("position %zu: %s counted as %llu, watched %llu", position, what, (unsigned long long)got,
                     (unsigned long long)expected);
}

static void every_product_is_counted(void **state)
{
    static const test_weight weights[] = {TEST_F32, TEST_Q8_0, TEST_BF16};
    (void)state;
    for (size_t round = 0; round < test_rounds(6 * TEST_FAMILIES); round++) {
        example_wish wish = {.family = family_of(round), .context = CONTEXT, .weight = weights[round / TEST_FAMILIES % 3]};
        example e = example_draw(test_seed(420, round), &wish);
        run r = run_begin(&e);
        descent_model_cost cost;
        descent_status status;
        descent_measure sum = {.code = DESCENT_OK};
        float *logits = test_alloc(e.model.vocab, sizeof *logits);
        expect_ok(descent_model_count(e.engine, &cost, &status), &status);
        assert_ptr_equal(cost.info, descent_model_describe(e.engine));
        assert_int_equal(cost.strict, e.model.strict);
        for (size_t i = 0; i < e.count; i++) {
            descent_token_cost token = descent_cost_token(&cost, e.depth, i + 1 - e.model.strict);
            run_token(&r, &e, i);
            drive_logits(r.batch, r.sequence, i, logits);
            same(token.weights, watched.weights, "weights", i);
            same(token.attention, watched.attention, "attention", i);
            same(cost.head.multiply_adds, watched.head, "the head", i);
            sum.cost.weights += watched.weights;
            sum.cost.attention += watched.attention;
            sum.cost.head += watched.head;
        }
        descent_measure all = descent_measure_cost(&cost, e.depth, e.count, e.count);
        assert_memory_equal(&all.cost, &sum.cost, sizeof sum.cost);
        assert_int_equal(all.token_steps, e.count * row_steps_at(&e.model, e.depth));
        assert_int_equal(all.tokens, e.count);
        free(logits);
        run_end(&r);
        example_free(&e);
    }
}

static void look(void *user, const descent_observation *seen)
{
    (void)user;
    (void)seen;
}

/* Whoever observes energies has one more computed behind every step of a sub-layer that has one. */
static void energies_are_counted(void **state)
{
    static const test_family families[] = {TEST_CEM, TEST_CEM_SWIGLU, TEST_LLAMA_CEM};
    (void)state;
    for (size_t round = 0; round < test_rounds(24); round++) {
        example_wish wish = {.family = families[round % 3], .context = CONTEXT};
        example e = example_draw(test_seed(422, round), &wish);
        run r = run_begin(&e);
        descent_model_cost cost;
        descent_status status;
        expect_ok(descent_model_count(e.engine, &cost, &status), &status);
        expect_ok(descent_sequence_observe(r.sequence, DESCENT_OBSERVE_ENERGY, look, NULL, &status), &status);
        for (size_t i = 0; i < e.count; i++) {
            descent_token_cost token = descent_cost_token(&cost, e.depth, i + 1);
            for (uint32_t k = 0; k < 2; k++) {
                if (!test_has_energy(wish.family, k)) continue;
                token.weights += e.depth.steps[k] * cost.kinds[k].energy;
                token.attention += e.depth.steps[k] * cost.kinds[k].attention / 2 * (i + 1);
            }
            run_token(&r, &e, i);
            same(token.weights, watched.weights, "weights", i);
            same(token.attention, watched.attention, "attention", i);
        }
        run_end(&r);
        example_free(&e);
    }
}

/* A depth of zeros is the trained one. */
static void the_trained_depth_is_where_none_is_named(void **state)
{
    (void)state;
    for (size_t round = 0; round < TEST_FAMILIES; round++) {
        example_wish wish = {.family = family_of(round), .context = 8};
        example e = example_draw(test_seed(421, round), &wish);
        descent_model_cost cost;
        descent_status status;
        descent_depth none = {{0}}, trained = descent_model_describe(e.engine)->trained;
        expect_ok(descent_model_count(e.engine, &cost, &status), &status);
        descent_measure a = descent_measure_cost(&cost, none, 5, 2), b = descent_measure_cost(&cost, trained, 5, 2);
        assert_memory_equal(&a.cost, &b.cost, sizeof a.cost);
        assert_memory_equal(&a.depth, &trained, sizeof trained);
        assert_int_equal(descent_sweep_steps(e.engine, &none, 1, NULL, 5), descent_sweep_steps(e.engine, &trained, 1, NULL, 5));
        assert_int_equal(descent_sweep_steps(e.engine, &none, 1, NULL, UINT64_MAX), UINT64_MAX);
        example_free(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_product_is_counted), cmocka_unit_test(energies_are_counted),
                                       cmocka_unit_test(the_trained_depth_is_where_none_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
