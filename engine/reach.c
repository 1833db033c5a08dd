/* reach.c: see reach.h. Shapes: states [C]. Called by generation.c, on whatever thread submits for the copy and on the
 * scheduler's for the rest; a paused generation is reached into again in its new sequence. */
#include "reach.h"

#include "history.h"
#include "random.h"
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANGES = 4096, NOISE_STEP = UINT16_MAX }; /* the step of no motion's noise */

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static descent_code check_start(const descent_model *model, const descent_sequence_options *how, const descent_reach *asked,
                                size_t i, size_t count, descent_status *status)
{
    const descent_state *s = &asked->starts[i];
    uint32_t progress;
    if (s->site.position >= count)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "start %zu is of position %zu; the prompt has %zu tokens", i,
                            s->site.position, count);
    for (size_t k = 0; k < i; k++)
        if (asked->starts[k].site.position == s->site.position)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "starts %zu and %zu are both of position %zu", k, i,
                                s->site.position);
    descent_depth depth = history_depth(&how->history, how->depth, s->site.position);
    descent_code code = site_check(model, depth, s->site, s->values, &progress, status);
    if (code != DESCENT_OK || model->info.deepens || s->site.step == 0) return code;
    return descent_fail(status, DESCENT_UNSUPPORTED,
                        "start %zu is of step %u; a %s token starts at step 0 of a sub-layer: intervene at later ones", i,
                        s->site.step, model->info.family);
}

static descent_code check(const descent_model *model, const descent_sequence_options *how, const descent_reach *asked,
                          size_t count, descent_status *status)
{
    uint32_t progress;
    descent_code code = DESCENT_OK;
    if ((asked->n_starts > 0) + asked->previous + (asked->noise != 0) > 1)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "tokens start from states, from the one before or from noise: one of them");
    if (!(asked->noise >= 0 && asked->noise <= 1e6f))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "noise is %g; expected 0 to 1e6", (double)asked->noise);
    if (asked->n_starts > count || asked->n_changes > MOST_CHANGES)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "%zu starts and %zu changes; at most %zu and %d", asked->n_starts,
                            asked->n_changes, count, MOST_CHANGES);
    for (size_t i = 0; i < asked->n_starts && code == DESCENT_OK; i++) code = check_start(model, how, asked, i, count, status);
    for (size_t i = 0; i < asked->n_changes && code == DESCENT_OK; i++) {
        const descent_change *c = &asked->changes[i];
        if (c->how > DESCENT_ADD_G)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "change %zu is %d; expected 0 to 3", i, (int)c->how);
        if (c->state.site.position >= count)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "change %zu is at position %zu; the prompt has %zu tokens", i,
                                c->state.site.position, count);
        descent_depth depth = history_depth(&how->history, how->depth, c->state.site.position);
        code = site_check(model, depth, c->state.site, c->state.values, &progress, status);
    }
    return code;
}

/* Everything in one piece of memory: the struct, its arrays, and the numbers behind them. */
descent_code reach_copy(const descent_model *model, const descent_sequence_options *how, const descent_reach *asked,
                        size_t count, descent_reach **out, descent_status *status)
{
    *out = NULL;
    if (!asked) return DESCENT_OK;
    descent_code code = check(model, how, asked, count, status);
    if (code != DESCENT_OK) return code;
    size_t width = model->info.width, vectors = asked->n_starts + asked->n_changes;
    descent_reach *copy = malloc(sizeof *copy + asked->n_starts * sizeof *asked->starts +
                                 asked->n_changes * sizeof *asked->changes + vectors * width * sizeof(float));
    if (!copy) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for %zu states", vectors);
    descent_state *starts = (descent_state *)(void *)(copy + 1);
    descent_change *changes = (descent_change *)(void *)(starts + asked->n_starts);
    float *values = (float *)(void *)(changes + asked->n_changes);
    *copy = *asked;
    copy->starts = starts;
    copy->changes = changes;
    for (size_t i = 0; i < vectors; i++, values += width) {
        bool is_start = i < asked->n_starts;
        const descent_state *from = is_start ? &asked->starts[i] : &asked->changes[i - asked->n_starts].state;
        memcpy(values, from->values, width * sizeof *values);
        if (is_start)
            starts[i] = (descent_state){from->site, values};
        else
            changes[i - asked->n_starts] = (descent_change){{from->site, values}, asked->changes[i - asked->n_starts].how};
    }
    *out = copy;
    return DESCENT_OK;
}

void reach_free(descent_reach *reach)
{
    free(reach);
}

/* ---- Applying it ------------------------------------------------------------------------------------------------- */

/* x(0) = e + noise |e| / sqrt(C) xi of the first `count` tokens. */
static descent_code start_in_noise(const descent_reach *reach, descent_sequence *s, size_t count, descent_status *status)
{
    const descent_model *model = s->cache->model;
    size_t width = model->info.width;
    float *x = malloc(width * sizeof *x);
    double *normals = malloc(width * sizeof *normals);
    descent_code code = x && normals ? DESCENT_OK : descent_fail(status, DESCENT_NO_MEMORY, "no memory for noise");
    for (size_t i = 0; i < count && code == DESCENT_OK; i++) {
        double square = 0;
        model->family->embed(model, s->tokens[i], i, x);
        for (size_t c = 0; c < width; c++) square += (double)x[c] * (double)x[c];
        descent_random_normals(reach->noise_seed, (noise_place){.position = (uint32_t)i, .step = NOISE_STEP}, normals, width);
        double size = (double)reach->noise * sqrt(square / (double)width);
        for (size_t c = 0; c < width; c++) x[c] = (float)((double)x[c] + size * normals[c]);
        code = descent_sequence_start(s, (descent_site){.position = i}, x, status);
    }
    free(x);
    free(normals);
    return code;
}

descent_code reach_apply(const descent_reach *reach, descent_sequence *s, size_t count, descent_status *status)
{
    descent_code code = DESCENT_OK;
    for (size_t i = 0; i < reach->n_changes && code == DESCENT_OK; i++) {
        const descent_change *c = &reach->changes[i];
        code = descent_sequence_intervene(s, c->state.site, c->how, c->state.values, status);
    }
    for (size_t i = 0; i < reach->n_starts && code == DESCENT_OK; i++)
        code = descent_sequence_start(s, reach->starts[i].site, reach->starts[i].values, status);
    return code == DESCENT_OK && reach->noise != 0 ? start_in_noise(reach, s, count, status) : code;
}

bool reach_follows(const descent_reach *reach)
{
    return reach && reach->previous;
}

descent_code reach_next(descent_sequence *s, descent_status *status)
{
    size_t next = s->finished, width = s->cache->model->info.width;
    uint32_t steps;
    if (next == 0 || next >= s->length || sequence_page(s, next)->started[next % PAGE_TOKENS]) return DESCENT_OK;
    float *x = malloc(width * sizeof *x);
    if (!x) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a start");
    descent_code code = descent_sequence_state(s, next - 1, x, &steps, status);
    if (code == DESCENT_OK) code = descent_sequence_start(s, (descent_site){.position = next}, x, status);
    free(x);
    return code;
}
