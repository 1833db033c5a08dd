/* observe.c: looking inside a descent and reaching into it. Owns a sequence's observer, its interventions and its started
 * tokens; step.c calls back here when a row comes to a place. */
#include "sequence.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static descent_code outside_batch(const descent_sequence *s, const char *what, descent_status *status)
{
    if (!s->batch) return DESCENT_OK;
    return descent_fail(status, DESCENT_BAD_ARGUMENT, "cannot %s while the sequence has rows in a batch: take them out first",
                        what);
}

descent_code descent_sequence_observe(descent_sequence *s, int flags, descent_observer observer, void *user,
                                      descent_status *status)
{
    if (flags & ~OBSERVE_KNOWN)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "observe flags %d; expected a sum of 1, 2, 4, 8, 16 and 32", flags);
    if (flags && !observer) return descent_fail(status, DESCENT_BAD_ARGUMENT, "observing needs an observer");
    descent_code code = outside_batch(s, "change what is observed", status);
    if (code != DESCENT_OK) return code;
    s->observe = flags;
    s->observer = observer;
    s->observer_user = user;
    return descent_ok(status);
}

uint64_t descent_sequence_logits_read(const descent_sequence *s)
{
    return s->logits_read;
}

descent_code site_check(const descent_model *model, descent_depth depth, descent_site site, const float *values,
                        uint32_t *progress, descent_status *status)
{
    const descent_model_info *info = &model->info;
    if (site.position >= info->context)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "position %zu; the context of %s holds %u tokens", site.position,
                            info->name, info->context);
    if (!model->family->progression->find(model, depth, site, progress)) {
        uint32_t kind = site.kind < info->kinds ? site.kind : 0;
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "no step %u of kind %u in layer %u: %u layers, %u kinds, %u steps of %s", site.step, site.kind,
                            site.layer, info->layers, info->kinds, sublayer_steps(depth, kind), info->kind_names[kind]);
    }
    for (uint32_t c = 0; c < info->width; c++)
        if (!isfinite(values[c]))
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "number %u of the %u given is not finite", c, info->width);
    return DESCENT_OK;
}

static float *copy_values(const descent_sequence *s, const float *values)
{
    size_t width = s->cache->model->info.width;
    float *copy = malloc(width * sizeof *copy);
    if (copy) memcpy(copy, values, width * sizeof *copy);
    return copy;
}

descent_code descent_sequence_intervene(descent_sequence *s, descent_site site, descent_intervention how, const float *values,
                                        descent_status *status)
{
    uint32_t progress;
    descent_code code = outside_batch(s, "intervene", status);
    if (code != DESCENT_OK) return code;
    if (how > DESCENT_ADD_G) return descent_fail(status, DESCENT_BAD_ARGUMENT, "intervention %d; expected 0 to 3", (int)how);
    descent_depth depth = sequence_token_depth(s, site.position);
    if ((code = site_check(s->cache->model, depth, site, values, &progress, status)) != DESCENT_OK) return code;
    if (site.position < s->length && sequence_progress(s, site.position) > progress)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %zu has run step %u already: intervene before it does",
                            site.position, site.step);
    intervention *list = realloc(s->interventions, (s->n_interventions + 1) * sizeof *list);
    if (list) s->interventions = list;
    float *copy = list ? copy_values(s, values) : NULL;
    if (!copy) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for an intervention");
    if ((code = sequence_make_private(s, site.position / PAGE_TOKENS, status)) != DESCENT_OK) {
        free(copy);
        return code;
    }
    s->interventions[s->n_interventions++] = (intervention){.site = site, .how = how, .values = copy};
    return descent_ok(status);
}

bool sequence_intervene(const descent_sequence *s, size_t position, place where, bool on_g, float *values)
{
    bool any = false;
    for (size_t i = 0; i < s->n_interventions; i++) {
        const intervention *v = &s->interventions[i];
        bool touches_g = v->how == DESCENT_SET_G || v->how == DESCENT_ADD_G;
        if (touches_g != on_g || v->site.position != position || v->site.layer != where.layer || v->site.kind != where.kind ||
            v->site.step != where.step)
            continue;
        bool add = v->how == DESCENT_ADD_X || v->how == DESCENT_ADD_G;
        for (uint32_t c = 0; c < s->cache->model->info.width; c++) values[c] = add ? values[c] + v->values[c] : v->values[c];
        any = true;
    }
    return any;
}

/* ---- Starting in the middle ------------------------------------------------------------------------------------- */

static const float *start_of(const descent_sequence *s, size_t position)
{
    for (size_t i = 0; i < s->n_starts; i++)
        if (s->starts[i].position == position) return s->starts[i].x;
    return NULL;
}

void sequence_begin_token(const descent_sequence *s, size_t position)
{
    const page *p = sequence_page(s, position);
    float *x = page_state(s->cache, p, position % PAGE_TOKENS);
    if (!p->started[position % PAGE_TOKENS]) {
        s->cache->model->family->embed(s->cache->model, s->tokens[position], position, x);
        return;
    }
    const float *given = start_of(s, position);
    if (given) memcpy(x, given, s->cache->model->info.width * sizeof *x);
}

void sequence_drop_starts(descent_sequence *s, size_t first)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_starts; i++) {
        if (s->starts[i].position < first)
            s->starts[kept++] = s->starts[i];
        else
            free(s->starts[i].x);
    }
    s->n_starts = kept;
}

descent_code descent_sequence_start(descent_sequence *s, descent_site site, const float *x, descent_status *status)
{
    const descent_model *model = s->cache->model;
    size_t slot = site.position % PAGE_TOKENS;
    uint32_t progress;
    descent_code code = outside_batch(s, "start a token", status);
    if (code != DESCENT_OK) return code;
    if (site.position >= s->length)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "position %zu of a sequence of %zu tokens", site.position, s->length);
    descent_depth depth = sequence_token_depth(s, site.position);
    if ((code = site_check(model, depth, site, x, &progress, status)) != DESCENT_OK) return code;
    if (!model->info.deepens && site.step != 0)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "a %s token starts at step 0 of a sub-layer, whose input is its x; step %u needs that "
                            "input as well: intervene there instead",
                            model->info.family, site.step);
    if (sequence_progress(s, site.position) > 0 || sequence_page(s, site.position)->started[slot])
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "token %zu has begun its descent already", site.position);
    start *list = realloc(s->starts, (s->n_starts + 1) * sizeof *list);
    if (list) s->starts = list;
    float *copy = list ? copy_values(s, x) : NULL;
    if (!copy) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a start");
    code = sequence_make_private(s, site.position / PAGE_TOKENS, status);
    if (code == DESCENT_OK) code = page_reserve(s->cache, sequence_page(s, site.position), (page_needs){.planes = 0}, status);
    if (code != DESCENT_OK) {
        free(copy);
        return code;
    }
    s->starts[s->n_starts++] = (start){.position = site.position, .x = copy};
    page *p = sequence_page(s, site.position);
    p->started[slot] = true;
    p->origin[slot] = progress;
    if (model->info.deepens) p->progress[slot] = progress;
    s->has_starts = true;
    sequence_begin_token(s, site.position);
    return descent_ok(status);
}
