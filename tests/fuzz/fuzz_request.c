/* fuzz_request.c: libFuzzer's entry to the request parser. The input is a byte that chooses endpoint and limits, and a body: it
 * is refused with a status, a message and no more, or what it asks for keeps every limit. The models are those of served.h,
 * among them five families and four kinds of vocabulary. */
#include "served.h"

#include "utf8.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static model_set models;

static void require(bool holds)
{
    if (!holds) abort();
}

static bool is_text(const char *text)
{
    return utf8_valid(text, strlen(text));
}

static void check_error(const api_error *error)
{
    require(error->status == 400 || error->status == 404);
    require(error->message[0] && is_text(error->message) && is_text(error->param));
    json_t *body = api_error_json(error);
    require(body != NULL);
    json_decref(body);
}

static void check_depth(const generation_request *r, const request_limits *limits)
{
    const descent_model_info *info = r->model->info;
    char text[16];
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++) {
        bool has_steps = k < info->kinds && info->trained.steps[k] > 0;
        require(has_steps ? r->depth.steps[k] >= 1 && r->depth.steps[k] <= limits->steps : r->depth.steps[k] == 0);
    }
    descent_depth again;
    descent_status status;
    require(!descent_depth_parse(r->model->model, descent_depth_format(r->model->model, r->depth, text), &again, &status));
    require(!memcmp(&again, &r->depth, sizeof again));
    require(r->draft_steps <= 0 || (info->deepens && r->draft_steps < r->depth.steps[0]));
    require(r->draft_steps >= 0 || r->draft_steps == DESCENT_DRAFT_AUTO);
    require(r->motion.n_scales <= DESCENT_MAX_SCALES && r->motion.momentum >= 0 && r->motion.momentum < 1);
    require(r->solver.nstep <= DESCENT_MAX_NSTEP && r->solver.residual >= 0);
    require(r->motion.noise.sigma >= 0 && r->motion.noise.sigma <= 1e6f);
    for (uint32_t t = 0; t < r->motion.n_scales; t++) require(r->motion.step_scale[t] > 0 && r->motion.step_scale[t] <= 4);
    require(r->exit.threshold >= 0 && r->exit.threshold <= FLT_MAX && r->exit.min_steps > 0 && r->exit.check_every > 0);
}

static void check_prompts(const generation_request *r, const request_limits *limits)
{
    uint32_t context = r->model->info->context, vocab = r->model->info->vocab;
    require(r->n_prompts >= 1 && r->n >= 1 && r->best_of >= r->n);
    require(r->n_prompts * request_texts_of_a_prompt(r) <= limits->sequences);
    require(r->kind == REQUEST_COMPLETION || r->n_prompts == 1);
    for (size_t p = 0; p < r->n_prompts; p++) {
        const prompt *one = &r->prompts[p];
        require(one->count >= 1 && one->count <= context && one->special <= one->count);
        require(limits->prompt_tokens == 0 || one->count <= limits->prompt_tokens);
        for (size_t i = 0; i < one->count; i++) require(one->tokens[i] < vocab);
        size_t limit = request_limit_of(r, p);
        require(limit <= r->max_tokens && one->count + limit <= (size_t)context + 1 && (limit > 0 || r->max_tokens == 0));
    }
}

static void check_request(const generation_request *r, const request_limits *limits)
{
    descent_status status;
    const char *depth_text;
    served_model *model;
    api_error error;
    require(request_find_model(&models, r->model_name, &model, &depth_text, &error) && model == r->model);
    require(strlen(r->model_name) < 32);
    check_depth(r, limits);
    check_prompts(r, limits);
    require(!descent_sampling_check(&r->sampling, r->model->info->vocab, &status));
    require(r->sampling.n_bias <= limits->logit_bias);
    require(r->logprobs >= -1 && r->logprobs <= REQUEST_MOST_LOGPROBS && r->n_track <= TRACE_MOST_TRACKED);
    for (size_t i = 0; i < r->n_track; i++) require(r->track[i] < r->model->info->vocab);
    require(r->n_stop <= limits->stop_strings);
    for (size_t i = 0; i < r->n_stop; i++) {
        require(r->stop[i].bytes >= 1 && r->stop[i].bytes <= limits->stop_bytes);
        require(utf8_valid(r->stop[i].text, r->stop[i].bytes) && r->stop[i].text[r->stop[i].bytes] == '\0');
    }
    require(!r->unknown_field || (is_text(r->unknown_field) && strlen(r->unknown_field) < FIELDS_WORDS));
    require(!r->include_usage || r->stream);
    require(!r->stream || r->best_of == r->n);
    require(r->candidates == 0 || (!r->stream && r->best_of == 1 && r->kind != REQUEST_TRACE));
    require(r->candidates == 0 || r->choose_by != CHOOSE_VOTE || r->model->tokenizer);
}

/* Every input is one that a sweep or a generation takes, and the whole keeps the limit of its steps. */
static void check_experiment(const generation_request *r, const request_limits *limits)
{
    const scaling_plan *plan = r->scaling;
    const descent_model_info *info = r->model->info;
    require(plan->n_depths >= 1 && plan->n_depths <= DESCENT_SWEEP_DEPTHS && plan->token_steps <= limits->sweep_token_steps);
    for (size_t d = 0; d < plan->n_depths; d++)
        for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
            require((info->trained.steps[k] == 0) == (plan->depths[d].steps[k] == 0) &&
                    plan->depths[d].steps[k] <= limits->steps);
    require(!plan->texts != !plan->questions && (plan->answers ? plan->n_questions : plan->n_inputs) > 0);
    for (size_t i = 0; i < plan->n_inputs; i++) {
        const scaling_input *input = &plan->inputs[i];
        require(input->count >= 2 && input->count <= (size_t)info->context + 1 && input->first >= 1 &&
                input->first < input->count);
        for (size_t k = 0; k < input->count; k++) require(input->tokens[k] < info->vocab);
    }
    for (size_t i = 0; plan->answers && i < plan->n_questions; i++)
        require(scaling_answer_room(info, &plan->questions[i]) >= 1 && plan->questions[i].prompt_count >= 1);
    require(plan->options.reference >= DESCENT_NO_REFERENCE && plan->options.reference < (int)plan->n_depths);
    require(plan->threshold >= 0 && plan->options.resamples >= 1 && plan->options.level > 0 && plan->options.level < 1);
}

static void check_states(const generation_request *r, const request_limits *limits)
{
    const descent_model_info *info = r->model->info;
    const descent_reach *reach = &r->states->reach;
    size_t count = r->prompts[0].count;
    check_depth(r, limits);
    check_prompts(r, limits);
    require(r->n_prompts == 1 && r->states->most * info->width <= STATES_MOST_NUMBERS && r->states->choice.of >= 1);
    require((reach->n_starts > 0) + reach->previous + (reach->noise > 0) <= 1 && reach->n_changes <= STATES_MOST_CHANGES);
    require(reach->n_starts <= count);
    for (size_t i = 0; i < reach->n_starts; i++) require(reach->starts[i].site.position < count);
    for (size_t i = 0; i < reach->n_changes; i++) require(reach->changes[i].state.site.position < count);
}

/* The usual limits, or small ones, so that small bodies come to them. */
static request_limits limits_of(bool small)
{
    request_limits limits = request_limits_defaults();
    if (small) limits = (request_limits){4, 6, 3, 4, 2, 3, 2, 200, 2};
    return limits;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    models = served_open();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const request_kind kinds[] = {REQUEST_COMPLETION, REQUEST_CHAT, REQUEST_TRACE, REQUEST_SCALING};
    if (size == 0) return 0;
    request_limits limits = limits_of(data[0] & 4);
    request_kind kind = data[0] & 8 ? REQUEST_STATES : kinds[data[0] & 3];
    size_t bytes = --size;
    char *body = malloc(bytes ? bytes : 1); /* of the exact size, so that reading one byte too far is seen */
    if (!body) return 0;
    memcpy(body, data + 1, bytes);
    generation_request request;
    api_error error;
    if (request_read(kind, body, bytes, &models, &limits, 42, &request, &error)) {
        require(error.status == 0);
        (kind == REQUEST_SCALING ? check_experiment : kind == REQUEST_STATES ? check_states : check_request)(&request, &limits);
        request_release(&request);
    } else {
        check_error(&error);
    }
    free(body);
    return 0;
}
