/* request_scaling.c: see request_scaling.h. Reads "texts" or "records", "steps", "threshold" and "intervals", and refuses what
 * would take more steps or memory than the server allows, with both numbers, before anything runs. */
#include "request_scaling.h"

#include "request_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 48, MOST_RESAMPLES = 100000, ENOUGH_TEXTS = 8 };
/* Draws of units in resamples, times depths: what summing up takes. */
static const uint64_t MOST_DRAWS = UINT64_C(1) << 28;
/* Numbers of all resamples, which it keeps: 128 MiB. */
static const uint64_t MOST_RESAMPLED = UINT64_C(1) << 24;

void scaling_plan_free(scaling_plan *plan)
{
    if (!plan) return;
    for (size_t i = 0; i < plan->n_texts; i++) descent_free(plan->texts[i].tokens);
    for (size_t i = 0; i < plan->n_questions; i++) question_release(&plan->questions[i]);
    free(plan->depths);
    free(plan->texts);
    free(plan->questions);
    free(plan->inputs);
    free(plan);
}

size_t scaling_answer_room(const descent_model_info *info, const question *q)
{
    size_t room = (size_t)info->context - q->prompt_count + 1; /* the last is read from the last position */
    return room < SCALING_ANSWER_TOKENS ? room : SCALING_ANSWER_TOKENS;
}

uint64_t scaling_answer_steps(const served_model *model, const question *q, descent_depth depth, const descent_history *history)
{
    uint64_t tokens = q->prompt_count + scaling_answer_room(model->info, q) - 1;
    return descent_sweep_steps(model->model, &depth, 1, history, 2 * tokens);
}

/* ---- Depths ------------------------------------------------------------------------------------------------------ */

static bool same_depth(descent_depth a, descent_depth b)
{
    return !memcmp(&a, &b, sizeof a);
}

/* Behind the others, where it is not there yet. */
static void add_depth(const request_reader *r, const char *name, descent_depth depth)
{
    scaling_plan *plan = r->out->scaling;
    char text[16];
    for (size_t i = 0; i < plan->n_depths; i++) {
        if (!same_depth(plan->depths[i], depth)) continue;
        (void)fields_fail(&r->top, name, NULL, "is %s, which is there already: expected each depth once",
                          descent_depth_format(r->out->model->model, depth, text));
        return;
    }
    plan->depths[plan->n_depths++] = depth;
}

static bool make_depths(const request_reader *r, size_t count)
{
    scaling_plan *plan = r->out->scaling;
    if (count == 0 || count > DESCENT_SWEEP_DEPTHS) {
        (void)fields_fail(&r->top, "steps", NULL, "has %zu depths: expected 1 to %d", count, DESCENT_SWEEP_DEPTHS);
        return false;
    }
    plan->depths = calloc(count, sizeof *plan->depths);
    if (!plan->depths) request_no_memory(r);
    return plan->depths != NULL;
}

static bool within_limit(const request_reader *r, const char *name, descent_depth depth)
{
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
        if (depth.steps[k] > r->limits->steps)
            return fields_fail(&r->top, name, NULL, "asks for %u steps, more than the %u this server allows",
                               (unsigned)depth.steps[k], (unsigned)r->limits->steps);
    return true;
}

/* Any other text may be somebody's prompt, which no message repeats. */
static bool is_depth_text(const json_t *value)
{
    enum { LONGEST = 15 };
    const char *text = json_string_value(value);
    return text && json_string_length(value) <= LONGEST && strspn(text, "0123456789x") == json_string_length(value);
}

/* One depth of a list: 12, "3x2" or {"attention": 3, "mlp": 2}. */
static void read_depth(const request_reader *r, size_t i, const json_t *value)
{
    char name[NAME_SIZE], words[FIELDS_WORDS];
    const served_model *model = r->out->model;
    descent_depth depth = model->info->trained;
    descent_status status;
    int64_t steps;
    (void)snprintf(name, sizeof name, "steps[%zu]", i);
    if (is_depth_text(value)) {
        if (descent_depth_parse(model->model, json_string_value(value), &depth, &status) != DESCENT_OK)
            (void)fields_fail(&r->top, name, NULL, "is no depth of %s: %s", model->id, status.message);
        else if (within_limit(r, name, depth))
            add_depth(r, name, depth);
    } else if (json_is_object(value)) {
        fields by_kind = {.object = (json_t *)value, .path = name, .error = r->top.error};
        request_read_steps_by_kind(r, &by_kind, &depth);
        if (fields_ok(&r->top)) add_depth(r, name, depth);
    } else if (fields_as_integer(value, 1, r->limits->steps, &steps)) {
        for (uint32_t k = 0; k < model->info->kinds; k++)
            if (model->info->trained.steps[k]) depth.steps[k] = (uint16_t)steps;
        add_depth(r, name, depth);
    } else {
        (void)fields_fail(&r->top, name, NULL,
                          "is %s: expected an integer from 1 to %u, or where layers descend twice also \"3x2\" or an object",
                          fields_describe(value, words), (unsigned)r->limits->steps);
    }
}

/* One side of a grid, steps [*n] of one kind; absent: its trained T. */
static bool read_side(const request_reader *r, const fields *grid, uint32_t kind, uint16_t steps[DESCENT_SWEEP_DEPTHS],
                      size_t *n)
{
    char words[FIELDS_WORDS];
    const descent_model_info *info = r->out->model->info;
    bool has_steps = kind < info->kinds && info->trained.steps[kind] > 0;
    const json_t *list = has_steps ? fields_array(grid, info->kind_names[kind]) : NULL;
    steps[0] = info->trained.steps[kind];
    *n = list ? json_array_size(list) : 1;
    if (*n == 0 || *n > DESCENT_SWEEP_DEPTHS)
        return fields_fail(grid, info->kind_names[kind], NULL, "has %zu depths: expected 1 to %d", *n, DESCENT_SWEEP_DEPTHS);
    for (size_t i = 0; list && i < *n; i++) {
        int64_t number;
        const json_t *value = json_array_get(list, i);
        if (!fields_as_integer(value, 1, r->limits->steps, &number))
            return fields_fail(grid, info->kind_names[kind], NULL, "has %s at %zu: expected integers from 1 to %u",
                               fields_describe(value, words), i, (unsigned)r->limits->steps);
        steps[i] = (uint16_t)number;
    }
    return fields_ok(&r->top);
}

/* {"attention": [1, 2], "mlp": [1, 2, 3]}: all pairs, the last kind's T changing fastest. */
static void read_grid(const request_reader *r)
{
    const descent_model_info *info = r->out->model->info;
    const char *names[DESCENT_MAX_KINDS + 1] = {NULL};
    uint16_t sides[DESCENT_MAX_KINDS][DESCENT_SWEEP_DEPTHS];
    size_t n[DESCENT_MAX_KINDS], known = 0;
    fields grid = fields_object(&r->top, "steps", "steps");
    for (uint32_t k = 0; k < info->kinds; k++)
        if (info->trained.steps[k] > 0) names[known++] = info->kind_names[k];
    fields_only(&grid, names);
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
        if (!read_side(r, &grid, k, sides[k], &n[k])) return;
    if (!make_depths(r, n[0] * n[1])) return;
    for (size_t i = 0; i < n[0] && fields_ok(&r->top); i++)
        for (size_t k = 0; k < n[1] && fields_ok(&r->top); k++)
            add_depth(r, "steps", (descent_depth){{sides[0][i], sides[1][k]}});
}

static void read_depths(const request_reader *r)
{
    char words[FIELDS_WORDS];
    const json_t *value = fields_any(&r->top, "steps");
    const descent_model_info *info = r->out->model->info;
    if (!fields_ok(&r->top)) return;
    if (!value) {
        if (make_depths(r, 1)) add_depth(r, "steps", r->out->depth);
    } else if (info->trained.steps[0] == 0 && info->trained.steps[1] == 0) {
        (void)fields_fail(&r->top, "steps", NULL, "is set, but no sub-layer of model %s has a T: it runs once",
                          r->out->model->id);
    } else if (json_is_object(value)) {
        read_grid(r);
    } else if (!json_is_array(value)) {
        (void)fields_fail(&r->top, "steps", NULL, "is %s: expected a list of depths, or an object with a list of each kind",
                          fields_describe(value, words));
    } else if (make_depths(r, json_array_size(value))) {
        for (size_t i = 0; i < json_array_size(value) && fields_ok(&r->top); i++) read_depth(r, i, json_array_get(value, i));
    }
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

static bool check_vocab(const request_reader *r, const char *name, const uint32_t *tokens, size_t count)
{
    uint32_t vocab = r->out->model->info->vocab;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= vocab)
            return fields_fail(&r->top, name, NULL, "has token %u at %zu, for which model %s of %u tokens has no embedding",
                               (unsigned)tokens[i], i, r->out->model->id, (unsigned)vocab);
    return true;
}

static bool read_string(const request_reader *r, const char *name, const json_t *value, scaling_text *text)
{
    const served_model *model = r->out->model;
    descent_status status;
    if (!model->tokenizer)
        return fields_fail(&r->top, name, NULL, "is a string, but model %s has no tokenizer: expected a list of tokens",
                           model->id);
    if (descent_tokenizer_encode(model->tokenizer, json_string_value(value), json_string_length(value), DESCENT_ADD_SPECIAL,
                                 &text->tokens, &text->count, &status) != DESCENT_OK)
        return request_unspelled(r, name, &status);
    return check_vocab(r, name, text->tokens, text->count);
}

static bool read_tokens(const request_reader *r, const char *name, const json_t *list, scaling_text *text)
{
    char words[FIELDS_WORDS];
    uint32_t vocab = r->out->model->info->vocab;
    size_t count = json_array_size(list);
    text->tokens = malloc((count ? count : 1) * sizeof *text->tokens);
    if (!text->tokens) {
        request_no_memory(r);
        return false;
    }
    for (; text->count < count; text->count++) {
        int64_t id;
        const json_t *value = json_array_get(list, text->count);
        if (!fields_as_integer(value, 0, (int64_t)vocab - 1, &id))
            return fields_fail(&r->top, name, NULL, "has %s at %zu: expected tokens, integers from 0 to %u",
                               fields_describe(value, words), text->count, (unsigned)(vocab - 1));
        text->tokens[text->count] = (uint32_t)id;
    }
    return true;
}

static void read_texts(const request_reader *r, const json_t *list)
{
    char name[NAME_SIZE], words[FIELDS_WORDS];
    scaling_plan *plan = r->out->scaling;
    size_t count = json_array_size(list);
    if (count == 0 || count > SCALING_MOST_MEASURES) {
        (void)fields_fail(&r->top, "texts", NULL, "has %zu texts: expected 1 to %d", count, SCALING_MOST_MEASURES);
        return;
    }
    plan->texts = calloc(count, sizeof *plan->texts);
    if (!plan->texts) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        scaling_text *text = &plan->texts[plan->n_texts++];
        (void)snprintf(name, sizeof name, "texts[%zu]", i);
        if (json_is_string(value)  ? !read_string(r, name, value, text)
            : json_is_array(value) ? !read_tokens(r, name, value, text)
                                   : !fields_fail(&r->top, name, NULL, "is %s: expected a string or a list of tokens",
                                                  fields_describe(value, words)))
            return;
        if (text->count >= 2) continue;
        (void)fields_fail(&r->top, name, NULL, "has %zu tokens: expected 2 at least, since the first is not predicted",
                          text->count);
        return;
    }
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

/* A record is as it should be, and of the kind of the one before it. */
static bool check_question(const request_reader *r, const char *name, const question *first, const question *q)
{
    if (!check_vocab(r, name, q->prompt, q->prompt_count)) return false;
    for (size_t i = 0; i < q->n_choices; i++)
        if (!check_vocab(r, name, q->choices[i].tokens, q->choices[i].count)) return false;
    if (!q->choices == !first->choices) return true;
    return fields_fail(&r->top, name, NULL, "has %s, and those before it have %s: expected records of one kind",
                       q->choices ? "choices" : "no choices", q->choices ? "none" : "some");
}

/* A prompt of few bytes is as many tokens again before each of its choices: what is too much stops being read. */
static bool check_choices(const request_reader *r, size_t choices, uint64_t tokens)
{
    const scaling_plan *plan = r->out->scaling;
    uint64_t steps = descent_sweep_steps(r->out->model->model, plan->depths, plan->n_depths, &r->out->history, tokens);
    if (choices <= SCALING_MOST_MEASURES / plan->n_depths && steps <= r->limits->sweep_token_steps) return true;
    return fields_fail(&r->top, "records", "sweep_too_large",
                       "have %zu choices in the first %zu alone, which take up to %" PRIu64
                       " token-steps at these %zu depths; at most %d measures are kept and %" PRIu64
                       " token-steps taken (--max-sweep-token-steps)",
                       choices, plan->n_questions, steps, plan->n_depths, SCALING_MOST_MEASURES, r->limits->sweep_token_steps);
}

static void read_records(const request_reader *r, const json_t *list)
{
    char name[NAME_SIZE];
    size_t choices = 0;
    uint64_t tokens = 0;
    const served_model *model = r->out->model;
    scaling_plan *plan = r->out->scaling;
    descent_status status;
    size_t count = json_array_size(list);
    if (!model->tokenizer) {
        (void)fields_fail(&r->top, "records", NULL, "is set, but model %s has no tokenizer to read them with: expected texts",
                          model->id);
        return;
    }
    if (count == 0 || count > SCALING_MOST_MEASURES) {
        (void)fields_fail(&r->top, "records", NULL, "has %zu records: expected 1 to %d", count, SCALING_MOST_MEASURES);
        return;
    }
    plan->questions = calloc(count, sizeof *plan->questions);
    if (!plan->questions) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        question *q = &plan->questions[plan->n_questions++];
        (void)snprintf(name, sizeof name, "records[%zu]", i);
        descent_code code = question_of_json(model->tokenizer, model->info->context, json_array_get(list, i), q, &status);
        if (code == DESCENT_NO_MEMORY) {
            request_no_memory(r);
            return;
        }
        if (code != DESCENT_OK) {
            (void)fields_fail(&r->top, name, NULL, "is no record: %s", status.message);
            r->top.error->quotes_prompt = true;
            return;
        }
        if (!check_question(r, name, plan->questions, q)) return;
        choices += q->n_choices;
        for (size_t c = 0; c < q->n_choices; c++) tokens += q->choices[c].count - 1;
        if (!check_choices(r, choices, tokens)) return;
    }
    plan->answers = !plan->questions->choices;
    if (plan->answers && descent_tokenizer_describe(model->tokenizer)->eos < 0)
        (void)fields_fail(&r->top, "records", NULL,
                          "have answers, which end with a token that the tokenizer of model %s does not have: expected choices",
                          model->id);
}

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

static size_t windows_of(const scaling_text *text, size_t context)
{
    return (text->count - 1 + context - 1) / context;
}

static size_t count_inputs(const scaling_plan *plan, size_t context)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->n_texts; i++) count += windows_of(&plan->texts[i], context);
    for (size_t i = 0; !plan->answers && i < plan->n_questions; i++) count += plan->questions[i].n_choices;
    return count;
}

/* Windows of `context` inputs, one behind the other, so that each token but the first is predicted once (models.md section 3).
 */
static void add_windows(scaling_plan *plan, const scaling_text *text, uint64_t document, size_t context)
{
    for (size_t start = 0; start + 1 < text->count; start += context) {
        size_t left = text->count - start;
        plan->inputs[plan->n_inputs] = (scaling_input){.tokens = text->tokens + start,
                                                       .count = left < context + 1 ? left : context + 1,
                                                       .first = 1,
                                                       .unit = plan->units == SCALING_DOCUMENTS ? document : plan->n_inputs};
        plan->n_inputs++;
    }
}

static void add_choices(scaling_plan *plan, const question *q, uint64_t unit)
{
    for (size_t i = 0; i < q->n_choices; i++)
        plan->inputs[plan->n_inputs++] =
            (scaling_input){.tokens = q->choices[i].tokens, .count = q->choices[i].count, .first = q->scored, .unit = unit};
}

static uint64_t add_steps(uint64_t sum, uint64_t more)
{
    return more > UINT64_MAX - sum ? UINT64_MAX : sum + more;
}

static uint64_t count_steps(const request_reader *r)
{
    const scaling_plan *plan = r->out->scaling;
    const served_model *model = r->out->model;
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->n_inputs; i++)
        sum = add_steps(
            sum, descent_sweep_steps(model->model, plan->depths, plan->n_depths, &r->out->history, plan->inputs[i].count - 1));
    for (size_t i = 0; plan->answers && i < plan->n_questions; i++) {
        for (size_t d = 0; d < plan->n_depths; d++)
            sum = add_steps(sum, scaling_answer_steps(model, &plan->questions[i], plan->depths[d], &r->out->history));
    }
    return sum;
}

static void make_inputs(const request_reader *r)
{
    scaling_plan *plan = r->out->scaling;
    size_t context = r->out->model->info->context, inputs = count_inputs(plan, context);
    size_t measured = plan->answers ? plan->n_questions : inputs;
    const char *name = plan->texts ? "texts" : "records";
    if (measured * plan->n_depths > SCALING_MOST_MEASURES) {
        (void)fields_fail(&r->top, name, "sweep_too_large", "are %zu %s at %zu depths, %zu measures; at most %d are kept",
                          measured,
                          plan->texts     ? "windows"
                          : plan->answers ? "answers"
                                          : "choices",
                          plan->n_depths, measured * plan->n_depths, SCALING_MOST_MEASURES);
        return;
    }
    if (plan->units == SCALING_AUTO) plan->units = plan->n_texts < ENOUGH_TEXTS ? SCALING_WINDOWS : SCALING_DOCUMENTS;
    plan->inputs = calloc(inputs ? inputs : 1, sizeof *plan->inputs);
    if (!plan->inputs) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < plan->n_texts; i++) add_windows(plan, &plan->texts[i], i, context);
    for (size_t i = 0; !plan->answers && i < plan->n_questions; i++) add_choices(plan, &plan->questions[i], i);
    plan->token_steps = count_steps(r);
    if (plan->token_steps <= r->limits->sweep_token_steps) return;
    (void)fields_fail(&r->top, name, "sweep_too_large",
                      "take up to %" PRIu64 " token-steps at these depths; at most %" PRIu64
                      " are taken (--max-sweep-token-steps)",
                      plan->token_steps, r->limits->sweep_token_steps);
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static void read_intervals(const request_reader *r)
{
    static const char *const names[] = {"resamples", "seed", "level", "units", NULL};
    static const char *const units[] = {"auto", "windows", "documents", NULL}; /* by scaling_units */
    scaling_plan *plan = r->out->scaling;
    fields f = fields_object(&r->top, "intervals", "intervals");
    fields_only(&f, names);
    plan->units = (scaling_units)request_word(&f, "units", units);
    plan->options = (descent_scaling_options){
        .resamples = (uint32_t)fields_integer(&f, "resamples", 1, MOST_RESAMPLES, 1000),
        .seed = (uint64_t)fields_integer(&f, "seed", 0, INT64_MAX, 0),
        .level = fields_real(&f, "level", 0, 0.9999, true, 0.95),
        .reference = DESCENT_NO_REFERENCE,
    };
    for (size_t d = 0; d < plan->n_depths; d++)
        if (same_depth(plan->depths[d], r->out->model->info->trained)) plan->options.reference = (int)d;
}

static void check_draws(const request_reader *r)
{
    const scaling_plan *plan = r->out->scaling;
    bool documents = plan->n_texts && plan->units == SCALING_DOCUMENTS;
    uint64_t units = documents ? plan->n_texts : plan->n_questions ? plan->n_questions : plan->n_inputs;
    uint64_t draws = units * plan->n_depths * plan->options.resamples; /* each factor is bounded */
    uint64_t numbers = (uint64_t)DESCENT_METRICS * plan->n_depths * plan->options.resamples;
    if (draws > MOST_DRAWS)
        (void)fields_fail(&r->top, "intervals.resamples", "sweep_too_large",
                          "are %u, of %" PRIu64 " units at %zu depths %" PRIu64 " draws; at most %" PRIu64 " are made",
                          (unsigned)plan->options.resamples, units, plan->n_depths, draws, MOST_DRAWS);
    else if (numbers > MOST_RESAMPLED)
        (void)fields_fail(&r->top, "intervals.resamples", "sweep_too_large",
                          "are %u, at %zu depths %" PRIu64 " numbers; at most %" PRIu64 " are kept",
                          (unsigned)plan->options.resamples, plan->n_depths, numbers, MOST_RESAMPLED);
}

/* A solver's way to one T is no part of its way to another. */
static void check_solver(const request_reader *r)
{
    const scaling_plan *plan = r->out->scaling;
    if (r->out->solver.method == DESCENT_SOLVER_PLAIN || plan->answers || plan->n_depths == 1) return;
    (void)fields_fail(&r->top, "steps", NULL,
                      "has %zu depths, and with descent.solver texts and choices begin anew at each: expected one",
                      plan->n_depths);
}

static void check_history(const request_reader *r)
{
    const scaling_plan *plan = r->out->scaling;
    fields f = fields_object(&r->top, "descent", "descent");
    if (r->out->history.prompt_steps > 0 && plan->n_questions == 0)
        (void)fields_fail(&f, "prompt_steps", NULL, "is set, but texts have no prompts: expected records");
    for (size_t d = 0; d < plan->n_depths; d++)
        if (!request_check_prompt_steps(&f, &r->out->history, plan->depths[d])) return;
}

void request_read_scaling(const request_reader *r)
{
    const json_t *texts = fields_array(&r->top, "texts"), *records = fields_array(&r->top, "records");
    r->out->scaling = calloc(1, sizeof *r->out->scaling);
    if (!r->out->scaling) {
        request_no_memory(r);
        return;
    }
    if (!texts == !records)
        (void)fields_fail(&r->top, "texts", NULL, "%s: expected either texts or records",
                          texts ? "is there beside records" : "is missing");
    r->out->scaling->threshold = fields_real(&r->top, "threshold", 0, 1e6, false, 0.03);
    read_depths(r);
    read_intervals(r);
    if (texts && fields_ok(&r->top)) read_texts(r, texts);
    if (records && fields_ok(&r->top)) read_records(r, records);
    if (fields_ok(&r->top)) check_solver(r);
    if (fields_ok(&r->top)) check_history(r);
    if (fields_ok(&r->top)) make_inputs(r);
    if (fields_ok(&r->top)) check_draws(r);
}
