/* motion.c: how far and which way a step moves a token. Owns what may be asked of it (descent_motion) and the last operation of
 * every descent, from R grad to x(t+1):
 *
 *     d_t    = m d_(t-1) + s_t R grad_t
 *     x(t+1) = x(t) - d_t,  or where steps are angular  x(t) - (d_t less its part along x(t)) |x(t)| / |x(0)|
 *     x(t+1) += sigma_t |x(t+1)| / sqrt(C) xi
 *
 * d is kept beside x in the token's page where tokens go on from the middle of a descent, and so is |x(0)|; elsewhere with the
 * row.
 * Shapes: [rows of the tile][stride]. sequence.c has what was asked checked here, the families that descend call tile_move. */
#include "motion.h"

#include "batch.h"
#include "random.h"
#include "sequence.h"
#include "solver.h"
#include "status.h"

#include <math.h>
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
    if (!descends && m->noise.sigma > 0)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "noise sigma is %g: %s (%s, %s) does not descend an energy; expected 0", (double)m->noise.sigma,
                            info->name, info->family, info->variant);
    if (!descends && m->momentum > 0)
        return descent_fail(status, DESCENT_UNSUPPORTED, "momentum is %g: %s (%s, %s) does not descend an energy; expected 0",
                            (double)m->momentum, info->name, info->family, info->variant);
    return DESCENT_OK;
}

static descent_code check_momentum(descent_motion *m, descent_status *status)
{
    if (!(m->momentum >= 0 && m->momentum < 1))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "momentum is %g; expected at least 0 and less than 1",
                            (double)m->momentum);
    if (m->momentum == 0) m->momentum = 0; /* -0 */
    return DESCENT_OK;
}

static descent_code check_rule(const descent_model *model, const descent_motion *m, descent_status *status)
{
    const descent_model_info *info = &model->info;
    if (m->rule != DESCENT_RULE_PLAIN && m->rule != DESCENT_RULE_ANGULAR)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "step rule %d; expected DESCENT_RULE_PLAIN or DESCENT_RULE_ANGULAR",
                            (int)m->rule);
    if (m->rule == DESCENT_RULE_ANGULAR && model->invariance == SEES_ALL)
        return descent_fail(
            status, DESCENT_UNSUPPORTED,
            "step_rule is angular, which is for NRGPT, whose block sees no length of x; %s is %s (%s): expected "
            "plain",
            info->name, info->family, info->variant);
    return DESCENT_OK;
}

static descent_code check_noise(descent_noise *noise, descent_status *status)
{
    if (!(noise->sigma >= 0) || isinf(noise->sigma))
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "noise sigma is %g; expected a finite number of at least 0",
                            (double)noise->sigma);
    if (noise->sigma == 0) {
        *noise = (descent_noise){.sigma = 0};
        return DESCENT_OK;
    }
    if (noise->schedule != DESCENT_NOISE_FIXED && noise->schedule != DESCENT_NOISE_DECAY)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "noise schedule %d; expected DESCENT_NOISE_FIXED or DESCENT_NOISE_DECAY", (int)noise->schedule);
    return DESCENT_OK;
}

descent_code motion_complete(const descent_model *model, descent_motion *m, descent_status *status)
{
    descent_code code = check_scales(m, status);
    if (code == DESCENT_OK) code = check_momentum(m, status);
    if (code == DESCENT_OK) code = check_rule(model, m, status);
    if (code == DESCENT_OK) code = check_noise(&m->noise, status);
    if (code != DESCENT_OK) return code;
    shorten_scales(m);
    return check_descends(&model->info, m, status);
}

bool motions_equal(const descent_motion *a, const descent_motion *b)
{
    return a->n_scales == b->n_scales && !memcmp(a->step_scale, b->step_scale, sizeof a->step_scale) &&
           !memcmp(&a->momentum, &b->momentum, sizeof a->momentum) && a->rule == b->rule &&
           !memcmp(&a->noise.sigma, &b->noise.sigma, sizeof a->noise.sigma) && a->noise.seed == b->noise.seed &&
           a->noise.schedule == b->noise.schedule;
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
    return hash_mix(hash, (uint64_t)m->rule << 32 | bits_of(m->momentum));
}

/* ---- The move ---------------------------------------------------------------------------------------------------- */

static float scale_at(const descent_motion *m, uint32_t step)
{
    if (m->n_scales == 0) return 1.0f;
    return m->step_scale[step < m->n_scales ? step : m->n_scales - 1];
}

size_t motion_row_numbers(const descent_model *model, const descent_motion *m)
{
    return m->momentum > 0 && !model->info.deepens ? model->info.width : 0;
}

/* The step is the first of its descent. */
static bool begins(const tile *t, const row *r)
{
    if (!t->model->info.deepens) return r->where.step == 0;
    return r->progress == sequence_page(r->sequence, r->position)->origin[r->position % PAGE_TOKENS];
}

/* d_t of one row, in the workspace. */
static const float *gather_momentum(const tile *t, size_t i, float s, const float *update)
{
    const row *r = t->rows[i];
    size_t C = t->model->info.width;
    float *d = t->work->velocity + i * t->work->wide_stride, m = r->sequence->seed.motion.momentum;
    if (begins(t, r))
        for (size_t c = 0; c < C; c++) d[c] = s * update[c];
    else
        for (size_t c = 0; c < C; c++) d[c] = m * r->velocity[c] + s * update[c];
    return d;
}

static double mean(const float *v, size_t n)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++) sum += (double)v[c];
    return sum / (double)n;
}

/* to = x less what of s d lies across x, longer as x is longer than at the start. */
static void turn(const tile *t, row *r, const float *x, float s, const float *d, float *to)
{
    size_t C = t->model->info.width;
    bool centred = t->model->invariance == SEES_NO_LENGTH_OR_MEAN;
    double mean_x = centred ? mean(x, C) : 0, mean_d = centred ? mean(d, C) : 0, square = 0, along = 0;
    for (size_t c = 0; c < C; c++) {
        square += ((double)x[c] - mean_x) * ((double)x[c] - mean_x);
        along += ((double)x[c] - mean_x) * ((double)d[c] - mean_d);
    }
    if (begins(t, r)) {
        r->start = (float)sqrt(square);
        if (t->model->info.deepens) sequence_page(r->sequence, r->position)->start[r->position % PAGE_TOKENS] = r->start;
    }
    double part = square > 0 ? along / square : 0, length = r->start > 0 ? sqrt(square) / (double)r->start : 1;
    for (size_t c = 0; c < C; c++)
        to[c] = (float)((double)x[c] - length * (double)s * ((double)d[c] - mean_d - part * ((double)x[c] - mean_x)));
}

static void shake(const tile *t, const row *r, float *x)
{
    const descent_noise *noise = &r->sequence->seed.motion.noise;
    size_t C = t->model->info.width;
    double *xi = t->work->numbers, sigma = (double)noise->sigma;
    if (noise->schedule == DESCENT_NOISE_DECAY) sigma /= (double)r->where.step + 1;
    double length = sigma * sqrt(dot(x, x, C)) / sqrt((double)C);
    noise_place here = {.position = (uint32_t)r->position,
                        .layer = r->where.layer,
                        .kind = (uint16_t)r->where.kind,
                        .step = (uint16_t)r->where.step};
    descent_random_normals(noise->seed, here, xi, C);
    for (size_t c = 0; c < C; c++) x[c] = (float)((double)x[c] + length * xi[c]);
}

void tile_move(const tile *t, const float *x, const float *update, float *next_x)
{
    size_t C = t->model->info.width, stride = t->work->wide_stride;
    for (size_t i = 0; i < t->n; i++) {
        row *r = t->rows[i];
        const descent_motion *m = &r->sequence->seed.motion;
        const float *move = update + i * stride, *from = x + i * stride;
        float s = scale_at(m, r->where.step), *to = next_x + i * stride;
        if (r->sequence->seed.solver.method == DESCENT_SOLVER_ANDERSON) {
            solver_move(t, r, from, move, s, to);
            continue;
        }
        if (m->momentum > 0) {
            move = gather_momentum(t, i, s, move);
            s = 1.0f;
        }
        if (m->rule == DESCENT_RULE_ANGULAR)
            turn(t, r, from, s, move, to);
        else
            for (size_t c = 0; c < C; c++) to[c] = from[c] - s * move[c];
        if (m->noise.sigma > 0) shake(t, r, to);
    }
}

void motion_keep(const tile *t, size_t i)
{
    const row *r = t->rows[i];
    if (r->velocity) memcpy(r->velocity, t->work->velocity + i * t->work->wide_stride, t->model->info.width * sizeof(float));
}
