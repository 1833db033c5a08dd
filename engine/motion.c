/* motion.c: how far and which way a step moves a token. Owns what may be asked of it (descent_motion) and the last operation of
 * every descent, from R grad to x(t+1):
 *
 *     x(t+1) = x(t) - s_t R grad_t
 *
 * Shapes: [rows of the tile][stride]. sequence.c has what was asked checked here, the families that descend call tile_move. */
#include "motion.h"

#include "batch.h"
#include "sequence.h"
#include "status.h"

#include <string.h>

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static const float most_scale = 4.0f;

static descent_code check_scales(const descent_motion *m, descent_status *status)
{
    if (m->n_scales > DESCENT_MAX_SCALES)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "step_scale has %u numbers; expected at most %d", m->n_scales,
                            DESCENT_MAX_SCALES);
    for (uint32_t t = 0; t < m->n_scales; t++) {
        if (m->step_scale[t] > 0 && m->step_scale[t] <= most_scale) continue;
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "step_scale is %g at step %u; expected more than 0, at most %g",
                            (double)m->step_scale[t], t, (double)most_scale);
    }
    return DESCENT_OK;
}

/* What lies behind the last number is zero; that number is repeated by itself, and 1 is what there is without any. */
static void shorten_scales(descent_motion *m)
{
    while (m->n_scales > 1 && m->step_scale[m->n_scales - 2] == m->step_scale[m->n_scales - 1]) m->n_scales--;
    if (m->n_scales == 1 && m->step_scale[0] == 1.0f) m->n_scales = 0;
    memset(m->step_scale + m->n_scales, 0, (DESCENT_MAX_SCALES - m->n_scales) * sizeof m->step_scale[0]);
}

/* Only a descent has a rate, and where there is one there is an energy. */
static descent_code check_descends(const descent_model_info *info, const descent_motion *m, descent_status *status)
{
    bool descends = false;
    for (uint32_t k = 0; k < info->kinds; k++) descends = descends || info->terms[k] > 0;
    if (!descends && m->n_scales > 0)
        return descent_fail(status, DESCENT_UNSUPPORTED, "step_scale is %g: %s (%s, %s) has no inference rate; expected 1",
                            (double)m->step_scale[0], info->name, info->family, info->variant);
    return DESCENT_OK;
}

descent_code motion_complete(const descent_model *model, descent_motion *m, descent_status *status)
{
    descent_code code = check_scales(m, status);
    if (code != DESCENT_OK) return code;
    shorten_scales(m);
    return check_descends(&model->info, m, status);
}

bool motions_equal(const descent_motion *a, const descent_motion *b)
{
    return a->n_scales == b->n_scales && !memcmp(a->step_scale, b->step_scale, sizeof a->step_scale);
}

static uint64_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint64_t motion_hash(const descent_motion *m, uint64_t hash)
{
    for (uint32_t t = 0; t < m->n_scales; t++) hash = hash_mix(hash, bits_of(m->step_scale[t]));
    return hash;
}

/* ---- The move ---------------------------------------------------------------------------------------------------- */

static float scale_at(const descent_motion *m, uint32_t step)
{
    if (m->n_scales == 0) return 1.0f;
    return m->step_scale[step < m->n_scales ? step : m->n_scales - 1];
}

void tile_move(const tile *t, const float *x, const float *update, float *next_x)
{
    size_t C = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) {
        const row *r = t->rows[i];
        float s = scale_at(&r->sequence->seed.motion, r->where.step);
        for (size_t c = i * stride; c < i * stride + C; c++) next_x[c] = x[c] - s * update[c];
    }
}
