/* answer_motion.c: how the steps of a request's descent moved and what they read, as its answer repeats it: what is not the
 * default. See answer.h. */
#include "answer.h"

static bool scales(const descent_motion *m)
{
    for (uint32_t t = 0; t < m->n_scales; t++)
        if (m->step_scale[t] != 1.0f) return true;
    return false;
}

/* One number, or a list of those asked for. */
static void put_scales(json_text *out, const descent_motion *m)
{
    json_text_put(out, ",\"step_scale\":");
    if (m->n_scales > 1) json_text_put(out, "[");
    for (uint32_t t = 0; t < m->n_scales; t++) {
        if (t > 0) json_text_put(out, ",");
        json_text_real(out, (double)m->step_scale[t]);
    }
    if (m->n_scales > 1) json_text_put(out, "]");
}

static void put_noise(json_text *out, const descent_noise *noise)
{
    json_text_put(out, ",\"noise\":{\"sigma\":");
    json_text_real(out, (double)noise->sigma);
    json_text_put(out, ",\"seed\":");
    json_text_integer(out, noise->seed);
    json_text_put(out, noise->schedule == DESCENT_NOISE_DECAY ? ",\"schedule\":\"decay\"}" : ",\"schedule\":\"fixed\"}");
}

void answer_put_motion(json_text *out, const generation_request *r)
{
    const descent_motion *m = &r->motion;
    if (scales(m)) put_scales(out, m);
    if (m->momentum > 0) {
        json_text_put(out, ",\"momentum\":");
        json_text_real(out, (double)m->momentum);
    }
    if (m->rule == DESCENT_RULE_ANGULAR) json_text_put(out, ",\"step_rule\":\"angular\"");
    if (m->noise.sigma > 0) put_noise(out, &m->noise);
    if (r->history.policy != DESCENT_HISTORY_OWN) {
        json_text_put(out, ",\"history\":\"");
        json_text_put(out, descent_history_name(r->history.policy));
        json_text_put(out, "\"");
    }
    if (r->history.prompt_steps > 0) {
        json_text_put(out, ",\"prompt_steps\":");
        json_text_unsigned(out, r->history.prompt_steps);
    }
    if (r->solver.method != DESCENT_SOLVER_ANDERSON) return;
    json_text_put(out, ",\"solver\":{\"method\":\"anderson\",\"nstep\":");
    json_text_unsigned(out, r->solver.nstep);
    json_text_put(out, ",\"residual\":");
    json_text_real(out, (double)r->solver.residual);
    json_text_put(out, "}");
}
