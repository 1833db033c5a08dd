/* history.c: see history.h. Owns descent_history: its checks, and what it comes to at a depth. Owns no memory. sequence.c and
 * sweep.c have what was asked checked here; sequence.h says what follows for a token, cache.h how pages hold it, and nrgpt.c
 * writes what is read. */
#include "history.h"

#include "status.h"

static const char *const names[] = {"own", "latest", "last"};
enum { POLICIES = sizeof names / sizeof names[0] };

const char *descent_history_name(descent_history_policy policy)
{
    return (unsigned)policy < POLICIES ? names[policy] : NULL;
}

/* ---- What was asked ---------------------------------------------------------------------------------------------- */

static bool is_plain(const descent_history *h)
{
    return h->policy == DESCENT_HISTORY_OWN && h->prompt_steps == 0;
}

/* A state of its block is both what a token does and what others read of it, and there is an energy that goes down: NRGPT. */
static descent_code check_model(const descent_model *model, const descent_history *h, descent_status *status)
{
    const descent_model_info *info = &model->info;
    if (info->deepens && info->terms[0] > 0) return DESCENT_OK;
    if (h->policy != DESCENT_HISTORY_OWN)
        return descent_fail(status, DESCENT_UNSUPPORTED, "history is %s, which is for NRGPT; %s is %s (%s): expected own",
                            names[h->policy], info->name, info->family, info->variant);
    return descent_fail(status, DESCENT_UNSUPPORTED, "prompt_steps is %u, which is for NRGPT; %s is %s (%s): expected none",
                        h->prompt_steps, info->name, info->family, info->variant);
}

descent_code history_check(const descent_history *h, descent_depth depth, descent_status *status)
{
    if (h->policy != DESCENT_HISTORY_OWN || h->prompt_steps == 0 || h->prompt_steps >= depth.steps[0]) return DESCENT_OK;
    return descent_fail(status, DESCENT_BAD_ARGUMENT,
                        "prompt_steps is %u, steps %u and history own, which reads every earlier token at each of the steps: "
                        "expected at least %u prompt_steps, or the history latest or last",
                        h->prompt_steps, (unsigned)depth.steps[0], (unsigned)depth.steps[0]);
}

descent_code history_complete(const descent_model *model, descent_sequence_options *options, descent_status *status)
{
    descent_history *h = &options->history;
    if ((unsigned)h->policy >= POLICIES)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "history policy %d; expected DESCENT_HISTORY_OWN to DESCENT_HISTORY_LAST, 0 to %d", (int)h->policy,
                            POLICIES - 1);
    if (h->prompt_steps > DESCENT_MAX_STEPS)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "prompt_steps is %u; expected at most %u", h->prompt_steps,
                            DESCENT_MAX_STEPS);
    if (is_plain(h)) {
        *h = (descent_history){.policy = DESCENT_HISTORY_OWN};
        return DESCENT_OK;
    }
    descent_code code = check_model(model, h, status);
    if (code != DESCENT_OK) return code;
    if (options->solver.method != DESCENT_SOLVER_PLAIN)
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "the solver is anderson and %s is asked: it waits for the tokens before to come to rest, expected "
                            "one or the other",
                            h->policy == DESCENT_HISTORY_OWN ? "prompt_steps" : "a history other than own");
    if (h->prompt_steps == 0) h->prompt = 0;
    return history_check(h, options->depth, status);
}

bool histories_equal(const descent_history *a, const descent_history *b)
{
    return a->policy == b->policy && a->prompt_steps == b->prompt_steps && a->prompt == b->prompt;
}

/* ---- What it comes to -------------------------------------------------------------------------------------------- */

descent_depth history_depth(const descent_history *h, descent_depth depth, size_t position)
{
    if (h->prompt_steps > 0 && position < h->prompt) depth.steps[0] = (uint16_t)h->prompt_steps;
    return depth;
}

uint32_t history_prompt_steps(const descent_history *h, descent_depth depth)
{
    return h->prompt == 0 ? 0 : history_depth(h, depth, 0).steps[0];
}

descent_history history_seed(const descent_history *h, descent_depth depth)
{
    uint32_t prompt_steps = history_prompt_steps(h, depth);
    if (h->policy == DESCENT_HISTORY_LAST) return (descent_history){.policy = DESCENT_HISTORY_LAST};
    if (h->policy == DESCENT_HISTORY_OWN || prompt_steps == 0 || prompt_steps >= depth.steps[0])
        return (descent_history){.policy = DESCENT_HISTORY_OWN};
    return (descent_history){.policy = DESCENT_HISTORY_LATEST, .prompt_steps = prompt_steps};
}

bool history_uneven(const descent_history *h, descent_depth depth)
{
    uint32_t prompt_steps = history_prompt_steps(h, depth);
    return history_seed(h, depth).policy != DESCENT_HISTORY_OWN && prompt_steps > 0 && prompt_steps != depth.steps[0];
}
