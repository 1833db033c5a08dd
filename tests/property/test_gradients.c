/* test_gradients.c: a step is the gradient of the energy the engine reports, with respect to g where it stands as the query,
 * every key held. Models here step by the bare gradient (R = 1; no preconditioner, eta 1), so x(t) - x(t+1) is compared with
 * central differences of the energy around the g that was observed, with the keys that were observed. And whatever the rate,
 * the slope that is reported is how the energy changes along the step that was made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "drive.h"
#include "random_model.h"

/* The bare gradient is applied. */
static test_model bare_model(rng *r, test_family family, size_t context)
{
    test_model model = random_shape(r, family, context);
    model.rate = "scalar";
    model.rank = -1;
    random_weights(&model, r);
    if (family == TEST_NRGPT) test_model_find(&model, "blk.0.rate.weight")[0] = 1.0;
    static const char *const etas[] = {"blk.%zu.attn_eta.weight", "blk.%zu.mlp_eta.weight"};
    for (size_t l = 0; family != TEST_NRGPT && l < model.layers; l++)
        for (size_t k = 0; k < 2; k++)
            for (size_t n = 0; test_has_energy(family, k) && n < model.eta_entries; n++)
                test_model_find(&model, etas[k], l)[n] = 1.0;
    return model;
}

static void check_site(const test_model *model, const record *seen, descent_site site)
{
    size_t C = model->width, i = site.position;
    const record_step *now = record_at(seen, site);
    descent_site source = site; /* where the keys come from */
    if (test_kinds(model->family) > 1) source.step = 0;
    double *keys = test_alloc((i + 1) * C, sizeof *keys), *g = test_alloc(C, sizeof *g);
    for (size_t n = 0; n < (i + 1) * C; n++) keys[n] = (double)record_at(seen, source)->g[n];
    for (size_t c = 0; c < C; c++) g[c] = (double)now->g[i * C + c];
    double energy = (double)now->energy[0][i] + (isnan(now->energy[1][i]) ? 0.0 : (double)now->energy[1][i]);
    compare_energy(energy, reference_frozen_energy(model, site, keys, NULL, g), "energy", site.step, i);

    descent_site next = site;
    next.step++;
    const float *x = now->x + i * C, *next_x = record_at(seen, next)->x + i * C;
    double largest = 1.0;
    for (size_t c = 0; c < C; c++) largest = fmax(largest, fmax(fabs((double)x[c]), fabs((double)next_x[c])));
    for (size_t c = 0; c < C; c++) {
        const double h = 1e-4, centre = g[c];
        double slope = 0.0; /* fourth order: the error is of h^4 */
        static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12};
        for (size_t k = 0; k < 4; k++) {
            g[c] = centre + at[k] * h;
            slope += weight[k] / h * reference_frozen_energy(model, site, keys, NULL, g);
        }
        g[c] = centre;
        double step = (double)x[c] - (double)next_x[c];
        if (!(fabs(step - slope) <= 2e-5 * largest))
            compare_fail("layer %u, kind %u, step %u, position %zu: x[%zu] went down by %.9g where the energy's slope is %.9g",
                         site.layer, site.kind, site.step, i, c, step, slope);
    }
    free(keys);
    free(g);
}

/* The norm of the sub-layer at a site. */
static void norm_at(const test_model *model, descent_site site, const double *x, double *g)
{
    bool rms = model->family != TEST_NRGPT || model->rms;
    const double *weight = model->family == TEST_NRGPT
                               ? test_model_find(model, "blk.0.norm.weight")
                               : test_model_find(model, "blk.%u.%s_norm.weight", site.layer, site.kind ? "mlp" : "attn");
    const double *bias = model->family == TEST_NRGPT ? test_model_find(model, "blk.0.norm.bias") : NULL;
    reference_norm(x, model->width, model->norm_epsilon, weight, bias, rms, g);
}

/* -d/dh of the energy at norm(x + h (next_x - x)), h = 0, its keys held, is the slope. */
static void check_slope(const test_model *model, const record *seen, descent_site site)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1.0 / 12, -8.0 / 12, 8.0 / 12, -1.0 / 12};
    size_t C = model->width, i = site.position;
    descent_site source = site, next = site;
    if (test_kinds(model->family) > 1) source.step = 0;
    next.step++;
    const record_step *now = record_at(seen, site);
    const float *x = now->x + i * C, *next_x = record_at(seen, next)->x + i * C;
    double *keys = test_alloc((i + 1) * C, sizeof *keys), *there = test_alloc(C, sizeof *there), *g = test_alloc(C, sizeof *g);
    for (size_t n = 0; n < (i + 1) * C; n++) keys[n] = (double)record_at(seen, source)->g[n];
    double moved = 0.0, length = 0.0, slope = 0.0;
    for (size_t c = 0; c < C; c++) {
        moved += ((double)next_x[c] - (double)x[c]) * ((double)next_x[c] - (double)x[c]);
        length += (double)x[c] * (double)x[c];
    }
    double h = fmin(1e-2, 1e-3 * sqrt(length / moved));
    for (size_t k = 0; k < 4; k++) {
        for (size_t c = 0; c < C; c++) there[c] = (double)x[c] + at[k] * h * ((double)next_x[c] - (double)x[c]);
        norm_at(model, site, there, g);
        slope -= weight[k] / h * reference_frozen_energy(model, site, keys, NULL, g);
    }
    compare_energy((double)now->slope[i], slope, "slope beside the energy's differences", site.step, i);
    free(keys);
    free(there);
    free(g);
}

/* `bare`: steps are compared with gradients; otherwise slopes, whatever the rate. */
static void check(bool bare, test_family family, uint64_t test, size_t rounds)
{
    for (size_t round = 0; round < test_rounds(rounds); round++) {
        rng r = rng_seeded(test_seed(test, round));
        size_t count = rng_between(&r, 1, 40);
        test_model model = bare ? bare_model(&r, family, count) : random_model(&r, family, count);
        uint32_t *tokens = random_tokens(&r, &model, count);
        descent_model *engine = drive_open_test_model(&model);
        drive_options options = {.depth = random_depth(&r, &model, 3), .observe = OBSERVE_ALL};
        compare_about("seed %llu, %s, %zu tokens", (unsigned long long)test_seed(test, round), test_model_words(&model), count);
        outcome got = drive(engine, tokens, count, &options);
        for (size_t n = 0; n < 6; n++) {
            descent_site site = {.layer = (uint32_t)rng_below(&r, model.layers),
                                 .kind = (uint32_t)rng_below(&r, test_kinds(family))};
            if (!test_has_energy(family, site.kind)) site.kind = 1 - site.kind;
            site.step = (uint32_t)rng_below(&r, options.depth.steps[site.kind]);
            site.position = n == 0 ? 0 : rng_below(&r, count);
            (bare ? check_site : check_slope)(&model, got.seen, site);
        }
        outcome_free(&got);
        descent_model_close(engine);
        test_model_free(&model);
        free(tokens);
    }
    compare_report();
}

static void nrgpt_steps_are_gradients(void **state)
{
    (void)state;
    check(true, TEST_NRGPT, 30, 60);
}

static void cem_steps_are_gradients(void **state)
{
    (void)state;
    check(true, TEST_CEM, 31, 60);
}

static void hybrids_steps_are_gradients(void **state)
{
    (void)state;
    check(true, TEST_CEM_SWIGLU, 32, 20);
    check(true, TEST_LLAMA_CEM, 33, 20);
}

static void slopes_are_the_energys(void **state)
{
    (void)state;
    check(false, TEST_NRGPT, 34, 60);
    check(false, TEST_CEM, 35, 60);
    check(false, TEST_CEM_SWIGLU, 36, 10);
    check(false, TEST_LLAMA_CEM, 37, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nrgpt_steps_are_gradients), cmocka_unit_test(cem_steps_are_gradients),
                                       cmocka_unit_test(hybrids_steps_are_gradients), cmocka_unit_test(slopes_are_the_energys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
