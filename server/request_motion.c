/* request_motion.c: how the steps of a request's descent move, from its "descent" object: the motion of descent.h. */
#include "request_parts.h"

#include <string.h>

static bool descends(const descent_model_info *info)
{
    for (uint32_t k = 0; k < info->kinds; k++)
        if (info->terms[k] > 0) return true;
    return false;
}

#define SCALE "a number above 0 and at most 4"

static void read_scale_list(const fields *f, const json_t *list, descent_motion *motion)
{
    char words[FIELDS_WORDS];
    size_t n = json_array_size(list);
    if (n == 0 || n > DESCENT_MAX_SCALES) {
        (void)fields_fail(f, "step_scale", NULL, "has %zu numbers: expected 1 to %d, each " SCALE, n, DESCENT_MAX_SCALES);
        return;
    }
    for (size_t t = 0; t < n; t++) {
        const json_t *item = json_array_get(list, t);
        double s = json_is_number(item) ? json_number_value(item) : 0;
        if (!(s > 0 && s <= 4)) {
            (void)fields_fail(f, "step_scale", NULL, "has %s at step %zu: expected " SCALE, fields_describe(item, words), t);
            return;
        }
        motion->step_scale[t] = request_positive(s);
    }
    motion->n_scales = (uint32_t)n;
}

/* One number, or one for each step. */
static void read_scales(const fields *f, descent_motion *motion)
{
    char words[FIELDS_WORDS];
    const json_t *value = fields_any(f, "step_scale");
    if (json_is_array(value)) {
        read_scale_list(f, value, motion);
    } else if (value) {
        double s = json_is_number(value) ? json_number_value(value) : 0;
        motion->n_scales = 1;
        if (s > 0 && s <= 4)
            motion->step_scale[0] = request_positive(s);
        else
            (void)fields_fail(f, "step_scale", NULL, "is %s: expected " SCALE ", or a list of such",
                              fields_describe(value, words));
    }
}

/* At least 0, and less than 1 as a float. */
static void read_momentum(const fields *f, descent_motion *motion)
{
    char words[FIELDS_WORDS];
    double m = fields_real(f, "momentum", 0, 1, false, 0);
    motion->momentum = (float)m;
    if (motion->momentum >= 1)
        (void)fields_fail(f, "momentum", NULL, "is %s: expected less than 1",
                          fields_describe(fields_any(f, "momentum"), words));
}

static void read_noise(const fields *f, descent_motion *motion)
{
    static const char *const names[] = {"sigma", "seed", "schedule", NULL};
    static const char *const schedules[] = {"fixed", "decay", NULL};
    fields noise = fields_object(f, "noise", "descent.noise");
    fields_only(&noise, names);
    motion->noise = (descent_noise){.seed = fields_integer(&noise, "seed", INT64_MIN, INT64_MAX, 1),
                                    .sigma = (float)fields_real(&noise, "sigma", 0, 1e6, false, 0),
                                    .schedule = (descent_noise_schedule)request_word(&noise, "schedule", schedules)};
}

static void read_rule(const request_reader *r, const fields *f)
{
    static const char *const rules[] = {"plain", "angular", NULL};
    const served_model *model = r->out->model;
    r->out->motion.rule = (descent_step_rule)request_word(f, "step_rule", rules);
    if (r->out->motion.rule == DESCENT_RULE_ANGULAR && strcmp(model->info->family, "nrgpt") != 0)
        (void)fields_fail(f, "step_rule", NULL, "is angular, which is for NRGPT; model %s is %s: expected plain", model->id,
                          model->info->family);
}

/* Behind the motion, the exit and the history. */
void request_read_solver(const request_reader *r, const fields *descent)
{
    static const char *const names[] = {"method", "nstep", "residual", NULL};
    static const char *const methods[] = {"plain", "anderson", NULL};
    const generation_request *out = r->out;
    fields solver = fields_object(descent, "solver", "descent.solver");
    fields_only(&solver, names);
    size_t method = request_word(&solver, "method", methods);
    int64_t nstep = fields_integer(&solver, "nstep", 1, DESCENT_MAX_NSTEP, 5);
    double residual = fields_real(&solver, "residual", 0, 1e6, false, 1e-4);
    if (method == 0 || !fields_ok(descent)) return;
    const char *other = out->motion.momentum > 0                     ? "momentum"
                        : out->motion.rule != DESCENT_RULE_PLAIN     ? "step_rule"
                        : out->motion.noise.sigma > 0                ? "noise"
                        : out->exit.criterion != DESCENT_EXIT_NONE   ? "exit"
                        : out->history.policy != DESCENT_HISTORY_OWN ? "history"
                        : out->history.prompt_steps > 0              ? "prompt_steps"
                                                                     : NULL;
    if (strcmp(out->model->info->family, "nrgpt") != 0)
        (void)fields_fail(&solver, "method", NULL, "is anderson, which is for NRGPT; model %s is %s: expected plain",
                          out->model->id, out->model->info->family);
    else if (other)
        (void)fields_fail(&solver, "method", NULL, "is anderson and descent.%s is set: expected one or the other", other);
    r->out->solver = (descent_solver){.method = DESCENT_SOLVER_ANDERSON, .nstep = (uint32_t)nstep, .residual = (float)residual};
}

/* A model that descends no energy takes what changes nothing. */
static void refuse_motion(const request_reader *r, const fields *f)
{
    const descent_motion *m = &r->out->motion;
    const char *refused = NULL;
    for (uint32_t t = 0; t < m->n_scales; t++)
        if (m->step_scale[t] != 1.0f) refused = "step_scale";
    if (m->momentum > 0) refused = "momentum";
    if (m->noise.sigma > 0) refused = "noise";
    if (refused)
        (void)fields_fail(f, refused, NULL, "is set, but model %s does not descend an energy: expected %s", r->out->model->id,
                          strcmp(refused, "step_scale") ? strcmp(refused, "noise") ? "0" : "a sigma of 0" : "1");
}

void request_read_motion(const request_reader *r, const fields *descent)
{
    descent_motion *motion = &r->out->motion;
    read_scales(descent, motion);
    read_momentum(descent, motion);
    read_rule(r, descent);
    read_noise(descent, motion);
    if (fields_ok(descent) && !descends(r->out->model->info)) refuse_motion(r, descent);
}
