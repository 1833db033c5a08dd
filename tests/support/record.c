/* record.c: observers that keep what they see, and comparing it. See drive.h. */
#include "compare.h"
#include "drive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *of_nan(size_t count)
{
    float *values = test_alloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = NAN;
    return values;
}

record *record_create(const descent_model *model, size_t count, descent_depth depth)
{
    const descent_model_info *info = descent_model_describe(model);
    record *r = test_alloc(1, sizeof *r);
    *r = (record){.count = count, .width = info->width, .programs = info->layers * info->kinds, .kinds = info->kinds};
    r->steps = test_alloc(r->programs, sizeof *r->steps);
    r->at = test_alloc(r->programs, sizeof(record_step *));
    for (size_t p = 0; p < r->programs; p++) {
        r->steps[p] = sublayer_steps_at(depth, p % r->kinds);
        r->at[p] = test_alloc(r->steps[p] + 1, sizeof(record_step));
        for (size_t t = 0; t <= r->steps[p]; t++) {
            record_step *step = &r->at[p][t];
            step->seen = test_alloc(count, sizeof *step->seen);
            step->x = of_nan(count * r->width);
            step->g = of_nan(count * r->width);
            for (size_t e = 0; e < DESCENT_MAX_TERMS; e++) step->energy[e] = of_nan(count);
            step->own_change = of_nan(count);
            step->history_change = of_nan(count);
            step->update_norm = of_nan(count);
            step->relative_change = of_nan(count);
            step->slope = of_nan(count);
        }
    }
    return r;
}

void record_free(record *r)
{
    for (size_t p = 0; p < r->programs; p++) {
        for (size_t t = 0; t <= r->steps[p]; t++) {
            record_step *step = &r->at[p][t];
            free(step->seen);
            free(step->x);
            free(step->g);
            for (size_t e = 0; e < DESCENT_MAX_TERMS; e++) free(step->energy[e]);
            free(step->own_change);
            free(step->history_change);
            free(step->update_norm);
            free(step->relative_change);
            free(step->slope);
        }
        free(r->at[p]);
    }
    free(r->at);
    free(r->steps);
    free(r);
}

const record_step *record_at(const record *r, descent_site site)
{
    return &r->at[site.layer * r->kinds + site.kind][site.step];
}

static void keep(void *user, const descent_observation *o)
{
    record *r = user;
    size_t i = o->site.position, program = o->site.layer * r->kinds + o->site.kind;
    if (i >= r->count || o->site.kind >= r->kinds || program >= r->programs || o->site.step > r->steps[program])
        compare_fail("observed layer %u, kind %u, step %u, position %zu, which the sequence does not have", o->site.layer,
                     o->site.kind, o->site.step, i);
    record_step *step = &r->at[program][o->site.step];
    step->seen[i]++;
    for (size_t e = 0; e < DESCENT_MAX_TERMS; e++) step->energy[e][i] = o->energy[e];
    step->own_change[i] = o->own_change;
    step->history_change[i] = o->history_change;
    step->update_norm[i] = o->update_norm;
    step->relative_change[i] = o->relative_change;
    step->slope[i] = o->slope;
    if (o->x) memcpy(step->x + i * r->width, o->x, r->width * sizeof(float));
    if (o->g) memcpy(step->g + i * r->width, o->g, r->width * sizeof(float));
}

void record_observe(record *r, descent_sequence *sequence, int flags)
{
    descent_status status;
    expect_ok(descent_sequence_observe(sequence, flags, keep, r, &status), &status);
}

static void compare_look(const record_step *step, const reference_step *wanted, size_t width, size_t t, size_t i,
                         const char *where)
{
    if (!step->seen[i]) compare_fail("%s, position %zu was not observed", where, i);
    compare_states(step->x + i * width, wanted->x + i * width, 1, width, where);
    compare_states(step->g + i * width, wanted->g + i * width, 1, width, where);
    for (size_t e = 0; e < DESCENT_MAX_TERMS; e++)
        compare_energy((double)step->energy[e][i], wanted->energy[e][i], e ? "second energy" : "first energy", t, i);
}

static void compare_changes(const record_step *step, const reference_step *wanted, size_t t, size_t i)
{
    compare_energy((double)step->own_change[i], wanted->own_change[i], "own_change", t, i);
    compare_energy((double)step->history_change[i], wanted->history_change[i], "history_change", t, i);
    compare_energy((double)step->update_norm[i], wanted->update_norm[i], "update_norm", t, i);
    compare_energy((double)step->relative_change[i], wanted->relative_change[i], "relative_change", t, i);
    compare_energy((double)step->slope[i], wanted->slope[i], "slope", t, i);
}

static void compare_observations(const record *got, const reference_run *expected, size_t from, size_t to, bool changes)
{
    char where[96];
    for (size_t p = 0; p < got->programs; p++)
        for (size_t t = 0; t <= expected->steps[p]; t++) {
            (void)snprintf(where, sizeof where, "layer %zu, kind %zu, step %zu", p / got->kinds, p % got->kinds, t);
            for (size_t i = from; i < to; i++) {
                if (t > expected->used[p][i]) {
                    if (got->at[p][t].seen[i]) compare_fail("%s, position %zu was observed: it had stopped", where, i);
                    continue;
                }
                compare_look(&got->at[p][t], &expected->at[p][t], got->width, t, i, where);
                if (changes) compare_changes(&got->at[p][t], &expected->at[p][t], t, i);
            }
        }
}

void compare_record(const record *got, const reference_run *expected, size_t from, size_t to)
{
    compare_observations(got, expected, from, to, true);
}

void compare_record_looks(const record *got, const reference_run *expected, size_t from, size_t to)
{
    compare_observations(got, expected, from, to, false);
}

void compare_records(const record *got, const record *expected)
{
    size_t both = 0;
    for (size_t p = 0; p < got->programs; p++)
        for (size_t t = 0; t <= got->steps[p] && t <= expected->steps[p]; t++)
            for (size_t i = 0; i < got->count && i < expected->count; i++) {
                const record_step *a = &got->at[p][t], *b = &expected->at[p][t];
                size_t C = got->width;
                if (!a->seen[i] || !b->seen[i]) continue;
                both++;
                compare_bits(a->x + i * C, b->x + i * C, C, "observed x");
                compare_bits(a->g + i * C, b->g + i * C, C, "observed g");
                for (size_t e = 0; e < DESCENT_MAX_TERMS; e++) compare_bits(&a->energy[e][i], &b->energy[e][i], 1, "energy");
                compare_bits(&a->own_change[i], &b->own_change[i], 1, "own_change");
                compare_bits(&a->history_change[i], &b->history_change[i], 1, "history_change");
                compare_bits(&a->update_norm[i], &b->update_norm[i], 1, "update_norm");
                compare_bits(&a->relative_change[i], &b->relative_change[i], 1, "relative_change");
                compare_bits(&a->slope[i], &b->slope[i], 1, "slope");
            }
    if (!both) compare_fail("no step was observed in both runs");
}
