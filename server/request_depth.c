/* request_depth.c: how deep a request descends: the "descent" object, the model's name and reasoning_effort, in that order of
 * precedence; and what earlier tokens are read at, exit, drafts and choosing. */
#include "request_parts.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_DEPTH = 15 }; /* characters of a T in a model's name, which every answer repeats */

static bool has_steps(const descent_model_info *info, uint32_t kind)
{
    return kind < info->kinds && info->trained.steps[kind] > 0;
}

static bool has_any_steps(const descent_model_info *info)
{
    return has_steps(info, 0) || has_steps(info, 1);
}

/* ---- reasoning_effort -------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned quarters; /* of the trained T, rounded up; 0: --max-steps */
} efforts[] = {{"none", 1}, {"minimal", 1}, {"low", 2}, {"medium", 4}, {"high", 8}, {"xhigh", 12}, {"max", 0}};
enum { EFFORTS = sizeof efforts / sizeof efforts[0], MEDIUM = 3 };

/* The depth of an effort; *capped where --max-steps is less. */
static descent_depth depth_of_effort(const request_reader *r, size_t effort, bool *capped)
{
    const descent_model_info *info = r->out->model->info;
    descent_depth depth = {{0}};
    for (uint32_t k = 0; k < info->kinds; k++) {
        if (!has_steps(info, k)) continue;
        uint32_t steps = (info->trained.steps[k] * efforts[effort].quarters + 3) / 4;
        if (steps > r->limits->steps) *capped = true;
        if (efforts[effort].quarters == 0 || steps > r->limits->steps) steps = r->limits->steps;
        depth.steps[k] = (uint16_t)steps;
    }
    return depth;
}

/* Medium, the trained depth, where there is none. */
static size_t read_effort(const request_reader *r)
{
    char words[FIELDS_WORDS];
    size_t bytes;
    const char *name = fields_text(&r->top, "reasoning_effort", NULL, &bytes);
    for (size_t i = 0; name && i < EFFORTS; i++)
        if (!strcmp(name, efforts[i].name) && bytes == strlen(name)) return i;
    if (name)
        (void)fields_fail(&r->top, "reasoning_effort", NULL, "is %s: expected none, minimal, low, medium, high, xhigh or max",
                          fields_quote(fields_any(&r->top, "reasoning_effort"), words));
    return MEDIUM;
}

/* ---- Explicit steps ---------------------------------------------------------------------------------------------- */

void request_read_steps_by_kind(const request_reader *r, const fields *steps, descent_depth *depth)
{
    const descent_model_info *info = r->out->model->info;
    const char *names[DESCENT_MAX_KINDS + 1] = {NULL};
    size_t n = 0;
    for (uint32_t k = 0; k < info->kinds; k++)
        if (has_steps(info, k)) names[n++] = info->kind_names[k];
    fields_only(steps, names);
    for (uint32_t k = 0; k < info->kinds; k++)
        if (has_steps(info, k))
            depth->steps[k] = (uint16_t)fields_integer(steps, info->kind_names[k], 1, r->limits->steps, depth->steps[k]);
}

/* The field `name` of "descent", a number or an object, into *depth, which holds the trained one. False: it is not there. */
static bool read_steps(const request_reader *r, const fields *f, const char *name, const char *path, descent_depth *depth)
{
    const descent_model_info *info = r->out->model->info;
    const json_t *value = fields_any(f, name);
    if (!value) return false;
    if (!has_any_steps(info))
        return fields_fail(f, name, NULL, "is set, but no sub-layer of model %s has a T: it runs once", r->out->model->id);
    if (json_is_object(value) && info->kinds > 1) {
        fields by_kind = fields_object(f, name, path);
        request_read_steps_by_kind(r, &by_kind, depth);
        return true;
    }
    int64_t steps = fields_integer(f, name, 1, r->limits->steps, 1);
    for (uint32_t k = 0; k < info->kinds; k++)
        if (has_steps(info, k)) depth->steps[k] = (uint16_t)steps;
    return true;
}

/* The depth in the model's name. */
static bool read_name(const request_reader *r, descent_depth *depth)
{
    descent_status status;
    const served_model *model = r->out->model;
    if (!r->depth_text || !fields_ok(&r->top)) return false;
    if (strlen(r->depth_text) > LONGEST_DEPTH)
        return fields_fail(&r->top, "model", NULL, "names a depth of %s in %zu characters: expected at most %d", model->id,
                           strlen(r->depth_text), LONGEST_DEPTH);
    if (descent_depth_parse(model->model, r->depth_text, depth, &status))
        return fields_fail(&r->top, "model", NULL,
                           has_any_steps(model->info) ? "names a depth of %s: %s; this server allows %u"
                                                      : "names a depth of %s: %s",
                           model->id, status.message, (unsigned)r->limits->steps);
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
        if (depth->steps[k] > r->limits->steps)
            return fields_fail(&r->top, "model", NULL, "asks for %u steps, more than the %u this server allows",
                               (unsigned)depth->steps[k], (unsigned)r->limits->steps);
    return true;
}

/* ---- History ------------------------------------------------------------------------------------------------------ */

size_t request_word(const fields *f, const char *name, const char *const *words)
{
    char got[FIELDS_WORDS], expected[160] = "";
    size_t bytes, at = 0;
    const char *word = fields_text(f, name, words[0], &bytes);
    for (size_t i = 0; words[i]; i++) {
        if (!strcmp(word, words[i]) && bytes == strlen(word)) return i;
        at += (size_t)snprintf(expected + at, sizeof expected - at, "%s%s", i ? ", " : "", words[i]);
    }
    (void)fields_fail(f, name, NULL, "is %s: expected one of %s", fields_quote(fields_any(f, name), got), expected);
    return 0;
}

static bool is_nrgpt(const request_reader *r)
{
    return !strcmp(r->out->model->info->family, "nrgpt");
}

static bool same_depth(descent_depth a, descent_depth b)
{
    return a.steps[0] == b.steps[0] && a.steps[1] == b.steps[1];
}

bool request_check_prompt_steps(const fields *f, const descent_history *history, descent_depth depth)
{
    unsigned steps = depth.steps[0];
    if (history->policy != DESCENT_HISTORY_OWN || history->prompt_steps == 0 || history->prompt_steps >= steps) return true;
    return fields_fail(f, "prompt_steps", NULL,
                       "is %u, fewer than descent.steps, %u, and descent.history is own, which reads every earlier token at "
                       "each of the steps: expected at least %u, or the history latest or last",
                       history->prompt_steps, steps, steps);
}

/* T of a prompt's tokens but the last. Of a model that has no such thing, what steps says. */
static void read_prompt_steps(const request_reader *r, const fields *f)
{
    char got[FIELDS_WORDS], expected[16];
    const served_model *model = r->out->model;
    descent_depth asked = model->info->trained;
    bool scaling = r->out->kind == REQUEST_SCALING; /* a list of T, looked at when it is read */
    if (!read_steps(r, f, "prompt_steps", "descent.prompt_steps", &asked) || !fields_ok(f)) return;
    if (!scaling && same_depth(asked, r->out->depth)) return;
    if (!is_nrgpt(r)) {
        (void)fields_fail(f, "prompt_steps", NULL, "is %s, which is for NRGPT; model %s is %s: expected %s",
                          fields_describe(fields_any(f, "prompt_steps"), got), model->id, model->info->family,
                          scaling ? "null" : descent_depth_format(model->model, r->out->depth, expected));
        return;
    }
    r->out->history.prompt_steps = asked.steps[0];
    if (!scaling) (void)request_check_prompt_steps(f, &r->out->history, r->out->depth);
}

/* Behind the depth. */
static void read_history(const request_reader *r, const fields *f)
{
    static const char *const policies[] = {"own", "latest", "last", NULL};
    const served_model *model = r->out->model;
    descent_history *history = &r->out->history;
    history->policy = (descent_history_policy)request_word(f, "history", policies);
    if (history->policy != DESCENT_HISTORY_OWN && !is_nrgpt(r))
        (void)fields_fail(f, "history", NULL, "is %s, which is for NRGPT; model %s is %s: expected own",
                          policies[history->policy], model->id, model->info->family);
    read_prompt_steps(r, f);
}

/* ---- Early exit -------------------------------------------------------------------------------------------------- */

static bool descends(const descent_model_info *info)
{
    for (uint32_t k = 0; k < info->kinds; k++)
        if (info->terms[k] > 0) return true;
    return false;
}

/* The criterion is one that this model's descents can be asked. */
static void check_criterion(const request_reader *r, const fields *exit, descent_exit_criterion criterion)
{
    const descent_model_info *info = r->out->model->info;
    const char *name = descent_exit_name(criterion);
    if (!descends(info))
        (void)fields_fail(exit, "criterion", NULL, "is %s, but model %s does not descend an energy: expected none", name,
                          r->out->model->id);
    else if (criterion >= DESCENT_EXIT_ENTROPY && !info->deepens)
        (void)fields_fail(
            exit, "criterion", NULL,
            "is %s, but the layers of model %s (%s) descend one after another, and only the end of the last says what "
            "follows: expected none, state, cosine or energy",
            name, r->out->model->id, info->family);
}

static float read_threshold(const fields *exit, descent_exit_criterion criterion)
{
    double usual = (double)descent_exit_default_threshold(criterion);
    if (criterion == DESCENT_EXIT_ARGMAX) return (float)fields_integer(exit, "threshold", 1, DESCENT_MAX_STEPS, (int64_t)usual);
    return (float)fields_real(exit, "threshold", 0, 1e6, false, usual);
}

static void read_exit(const request_reader *r, const fields *f)
{
    static const char *const names[] = {"criterion", "threshold", "min_steps", "check_every", "in_prompt", NULL};
    const char *criteria[DESCENT_EXIT_ARGMAX + 2] = {NULL};
    for (size_t i = 0; i <= DESCENT_EXIT_ARGMAX; i++) criteria[i] = descent_exit_name((descent_exit_criterion)i);
    fields exit = fields_object(f, "exit", "descent.exit");
    fields_only(&exit, names);
    descent_exit_criterion criterion = (descent_exit_criterion)request_word(&exit, "criterion", criteria);
    if (criterion != DESCENT_EXIT_NONE) check_criterion(r, &exit, criterion);
    r->out->exit = (descent_exit){
        .criterion = criterion,
        .threshold = read_threshold(&exit, criterion),
        .min_steps = (uint16_t)fields_integer(&exit, "min_steps", 1, DESCENT_MAX_STEPS, 1),
        .check_every = (uint16_t)fields_integer(&exit, "check_every", 1, DESCENT_MAX_STEPS, 1),
    };
    r->out->exit_after_prompt = !fields_bool(&exit, "in_prompt", true);
}

/* ---- Drafts ------------------------------------------------------------------------------------------------------ */

/* What the server was told to do where a request says nothing, as far as the request's T allows. */
static int draft_steps_unasked(const request_reader *r)
{
    int steps = r->limits->draft_steps, most = r->out->depth.steps[0] - 1;
    if (steps <= 0) return steps;
    if (!r->out->model->info->deepens) return 0;
    return steps < most ? steps : most;
}

static int read_draft_steps(const request_reader *r, const fields *f)
{
    int steps = (int)fields_integer(f, "draft_steps", 0, DESCENT_MAX_STEPS, 0), total = r->out->depth.steps[0];
    if (!fields_any(f, "draft_steps")) return draft_steps_unasked(r);
    if (steps == 0 || !fields_ok(f)) return 0;
    if (!r->out->model->info->deepens)
        (void)fields_fail(f, "draft_steps", NULL,
                          "is %d, but of tokens of model %s (%s) nothing is drafted, as of NRGPT's: expected 0 or null", steps,
                          r->out->model->id, r->out->model->info->family);
    else if (steps >= total)
        (void)fields_fail(f, "draft_steps", NULL, "is %d and steps is %d: expected fewer than steps, or 0", steps, total);
    return steps;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

/* What cannot be beside candidates of which one is returned, at the end. */
static void check_choose(const request_reader *r, const fields *f)
{
    const generation_request *out = r->out;
    if (out->kind == REQUEST_TRACE || out->kind == REQUEST_STATES)
        (void)fields_fail(f, "choose", NULL, "is set, but the %s of one text %s asked for: expected null",
                          out->kind == REQUEST_TRACE ? "trace" : "states", out->kind == REQUEST_TRACE ? "is" : "are");
    else if (out->stream)
        (void)fields_fail(f, "choose", NULL,
                          "is set with stream, but the text is chosen when all are there: expected no stream");
    else if (out->n > 1 || out->best_of > 1)
        (void)fields_fail(f, "choose", NULL, "is set and %s is %u: expected 1, since one text is returned",
                          out->n > 1 ? "n" : "best_of", (unsigned)(out->n > 1 ? out->n : out->best_of));
}

static void read_choose(const request_reader *r, const fields *f)
{
    static const char *const names[] = {"n", "by", "candidates", NULL};
    enum { CANDIDATES = 8 };
    generation_request *out = r->out;
    fields choose = fields_object(f, "choose", "descent.choose");
    fields_only(&choose, names);
    if (!choose.object || !fields_ok(f)) return;
    uint32_t usual = r->limits->sequences < CANDIDATES ? r->limits->sequences : CANDIDATES;
    out->candidates = (uint32_t)fields_integer(&choose, "n", 1, r->limits->sequences, usual);
    out->choose_by = (choose_rule)request_word(&choose, "by", choose_rule_names);
    out->show_candidates = fields_bool(&choose, "candidates", false);
    if (choose_flags(out->choose_by) && !descends(out->model->info))
        (void)fields_fail(&choose, "by", NULL, "is %s, but model %s does not descend an energy: expected logprob or vote",
                          choose_rule_names[out->choose_by], out->model->id);
    if (out->choose_by == CHOOSE_VOTE && !out->model->tokenizer)
        (void)fields_fail(&choose, "by", NULL, "is vote, but model %s has no tokenizer, so that there are no texts to count",
                          out->model->id);
    check_choose(r, f);
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

void request_read_depth(const request_reader *r)
{
    static const char *const names[] = {"steps", "prompt_steps", "draft_steps", "exit",   "step_scale", "step_rule", "momentum",
                                        "noise", "history",      "solver",      "choose", "trace",      NULL};
    static const char *const of_scaling[] = {
        "exit",    "step_scale",   "step_rule", "momentum", "noise",
        "history", "prompt_steps", "solver",    NULL}; /* its depths are a list beside it */
    fields f = fields_object(&r->top, "descent", "descent");
    fields_only(&f, r->out->kind == REQUEST_SCALING ? of_scaling : names);

    bool capped = false;
    descent_depth by_effort = depth_of_effort(r, read_effort(r), &capped), by_name = {{0}};
    descent_depth by_steps = r->out->model->info->trained;
    bool named = read_name(r, &by_name);
    bool given = read_steps(r, &f, "steps", "descent.steps", &by_steps);
    r->out->depth = given ? by_steps : named ? by_name : by_effort;
    r->out->depth_capped = capped && !given && !named;

    read_history(r, &f);
    r->out->draft_steps = read_draft_steps(r, &f);
    request_read_motion(r, &f);
    read_exit(r, &f);
    request_read_solver(r, &f);
    read_choose(r, &f);
    r->out->trace = fields_bool(&f, "trace", false);
}
