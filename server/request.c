/* request.c: see request.h. The order in which a body is read, the model it names, how it is answered, and the fields that are
 * taken note of or refused. What else a body holds is read by the files of request_parts.h. */
#include "request_parts.h"

#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_COMPLETION = 1 << REQUEST_COMPLETION, IN_CHAT = 1 << REQUEST_CHAT, IN_TRACE = 1 << REQUEST_TRACE };
enum { IN_TEXT = IN_COMPLETION | IN_CHAT, IN_ALL = IN_TEXT | IN_TRACE };
enum { IN_SCALING = 1 << REQUEST_SCALING, IN_STATES = 1 << REQUEST_STATES, IN_ANY = IN_ALL | IN_SCALING | IN_STATES };

request_limits request_limits_defaults(void)
{
    return (request_limits){.json_depth = 64,
                            .steps = 256,
                            .sequences = 128,
                            .stop_strings = 64,
                            .stop_bytes = 256,
                            .logit_bias = 1024,
                            .sweep_token_steps = 100 * 1000 * 1000,
                            .draft_steps = DESCENT_DRAFT_AUTO};
}

void request_no_memory(const request_reader *r)
{
    if (!fields_ok(&r->top)) return;
    (void)api_fail(r->top.error, 500, NULL, NULL, "no memory for the request");
    r->top.error->no_retry = true;
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

bool request_find_model(const model_set *models, const char *name, served_model **model, const char **depth_text,
                        api_error *error)
{
    const char *at = strrchr(name, '@');
    served_model *found = models_find(models, name, strlen(name));
    *depth_text = NULL;
    if (!found && at && (found = models_find(models, name, (size_t)(at - name)))) *depth_text = at + 1;
    if (found) {
        *model = found;
        return true;
    }
    char all[512] = "", shown[FIELDS_WORDS];
    size_t end = 0;
    for (size_t i = 0; i < models->count && end < sizeof all; i++)
        end += (size_t)snprintf(all + end, sizeof all - end, "%s%s", i ? ", " : "", models->items[i].id);
    return api_fail(error, 404, "model", "model_not_found", "the model \"%s\" does not exist: this server has %s",
                    utf8_printable(name, strlen(name), shown, sizeof shown), all);
}

static bool read_model(request_reader *r, const model_set *models)
{
    size_t bytes;
    const char *name = fields_text(&r->top, "model", NULL, &bytes);
    if (!fields_ok(&r->top)) return false;
    if (!name) return fields_fail(&r->top, "model", NULL, "is missing: expected the name of a model, which /v1/models lists");
    if (bytes != strlen(name)) return fields_fail(&r->top, "model", NULL, "holds U+0000: expected the name of a model");
    if (!request_find_model(models, name, &r->out->model, &r->depth_text, r->top.error)) return false;
    r->out->model_name = strdup(name);
    if (!r->out->model_name) request_no_memory(r);
    return fields_ok(&r->top);
}

/* ---- How to answer ----------------------------------------------------------------------------------------------- */

static void read_choices(const request_reader *r)
{
    generation_request *out = r->out;
    bool several = out->kind != REQUEST_TRACE;
    out->n = several ? (uint32_t)fields_integer(&r->top, "n", 1, r->limits->sequences, 1) : 1;
    out->best_of = out->n;
    if (out->kind != REQUEST_COMPLETION) return;
    out->best_of = (uint32_t)fields_integer(&r->top, "best_of", out->n, r->limits->sequences, out->n);
    if (out->stream && out->best_of > out->n)
        (void)fields_fail(&r->top, "best_of", NULL, "is %u with stream: expected no more than n, %u, or no stream",
                          (unsigned)out->best_of, (unsigned)out->n);
}

static void read_lengths(const request_reader *r)
{
    static const int64_t defaults[] = {[REQUEST_COMPLETION] = 16, [REQUEST_CHAT] = -1, [REQUEST_TRACE] = 0};
    int64_t most = fields_integer(&r->top, "max_tokens", 0, INT64_MAX, defaults[r->out->kind]);
    if (r->out->kind == REQUEST_CHAT) most = fields_integer(&r->top, "max_completion_tokens", 0, INT64_MAX, most);
    r->out->max_tokens = most < 0 ? SIZE_MAX : (size_t)most;
}

static void read_logprobs(const request_reader *r)
{
    const fields *f = &r->top;
    generation_request *out = r->out;
    if (out->kind == REQUEST_COMPLETION) {
        out->logprobs = (int)fields_integer(f, "logprobs", 0, REQUEST_MOST_LOGPROBS, -1);
    } else if (out->kind == REQUEST_TRACE) {
        out->logprobs = (int)fields_integer(f, "top", 0, REQUEST_MOST_LOGPROBS, 5);
    } else {
        bool wanted = fields_bool(f, "logprobs", false);
        int most = (int)fields_integer(f, "top_logprobs", 0, REQUEST_MOST_LOGPROBS, -1);
        if (most >= 0 && !wanted)
            (void)fields_fail(f, "top_logprobs", NULL, "is %d without logprobs: expected \"logprobs\": true beside it", most);
        out->logprobs = !wanted ? -1 : most < 0 ? 0 : most;
    }
}

static bool add_stop(const request_reader *r, const char *name, const json_t *value)
{
    char words[FIELDS_WORDS];
    size_t bytes = json_string_length(value);
    if (!json_is_string(value))
        return fields_fail(&r->top, name, NULL, "is %s: expected a string or a list of strings", fields_describe(value, words));
    if (bytes == 0 || bytes > r->limits->stop_bytes)
        return fields_fail(&r->top, name, NULL, "has %zu bytes: expected 1 to %u", bytes, (unsigned)r->limits->stop_bytes);
    stop_string *stop = &r->out->stop[r->out->n_stop];
    stop->text = malloc(bytes + 1);
    if (!stop->text) {
        request_no_memory(r);
        return false;
    }
    memcpy(stop->text, json_string_value(value), bytes + 1);
    stop->bytes = bytes;
    r->out->n_stop++;
    return true;
}

static void read_stop(const request_reader *r)
{
    char name[32];
    const json_t *value = fields_any(&r->top, "stop");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (!value || count == 0) return;
    if (count > r->limits->stop_strings) {
        (void)fields_fail(&r->top, "stop", NULL, "has %zu strings: expected at most %u", count,
                          (unsigned)r->limits->stop_strings);
        return;
    }
    r->out->stop = calloc(count, sizeof *r->out->stop);
    if (!r->out->stop) {
        request_no_memory(r);
    } else if (!json_is_array(value)) {
        (void)add_stop(r, "stop", value);
    } else {
        for (size_t i = 0; i < count; i++) {
            (void)snprintf(name, sizeof name, "stop[%zu]", i);
            if (!add_stop(r, name, json_array_get(value, i))) return;
        }
    }
}

static void read_track(const request_reader *r)
{
    char words[FIELDS_WORDS];
    int64_t id;
    uint32_t vocab = r->out->model->info->vocab;
    const json_t *list = fields_array(&r->top, "track");
    size_t count = json_array_size(list);
    if (count == 0) return;
    if (count > TRACE_MOST_TRACKED) {
        (void)fields_fail(&r->top, "track", NULL, "has %zu tokens: expected at most %d", count, TRACE_MOST_TRACKED);
        return;
    }
    r->out->track = malloc(count * sizeof *r->out->track);
    if (!r->out->track) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        if (!fields_as_integer(value, 0, (int64_t)vocab - 1, &id)) {
            (void)fields_fail(&r->top, "track", NULL, "has %s at %zu: expected tokens, integers from 0 to %u",
                              fields_describe(value, words), i, (unsigned)(vocab - 1));
            return;
        }
        r->out->track[r->out->n_track++] = (uint32_t)id;
    }
}

static void read_answer(const request_reader *r)
{
    generation_request *out = r->out;
    if (out->kind != REQUEST_TRACE) {
        out->stream = fields_bool(&r->top, "stream", false);
        fields options = fields_object(&r->top, "stream_options", "stream_options");
        out->include_usage = fields_bool(&options, "include_usage", false) && out->stream;
        out->parse_special = fields_bool(&r->top, "parse_special", false);
        read_stop(r);
    }
    if (out->kind == REQUEST_COMPLETION) out->echo = fields_bool(&r->top, "echo", false);
    if (out->kind == REQUEST_TRACE) read_track(r);
    read_choices(r);
    read_lengths(r);
    read_logprobs(r);
}

/* ---- What is refused, passed or unknown -------------------------------------------------------------------------- */

static void unsupported(const fields *f, const char *name, const char *what)
{
    (void)fields_fail(f, name, "unsupported_parameter", "is not supported: %s", what);
}

static void check_tools(const fields *f)
{
    static const char *const lists[] = {"tools", "functions"}, *const choices[] = {"tool_choice", "function_call"};
    for (size_t i = 0; i < 2; i++) {
        if (json_array_size(fields_array(f, lists[i])) > 0) unsupported(f, lists[i], "this server calls no tools, expected []");
        const char *choice = json_string_value(fields_any(f, choices[i]));
        if (fields_any(f, choices[i]) && (!choice || (strcmp(choice, "none") != 0 && strcmp(choice, "auto") != 0)))
            unsupported(f, choices[i], "this server calls no tools, expected none or auto");
    }
}

static void check_formats(const fields *f)
{
    size_t bytes;
    fields format = fields_object(f, "response_format", "response_format");
    const char *type = fields_text(&format, "type", NULL, &bytes);
    if (format.object && fields_ok(f) && (!type || strcmp(type, "text") != 0 || bytes != 4))
        unsupported(f, "response_format", "answers are plain text, expected {\"type\": \"text\"}");
    const json_t *modalities = fields_array(f, "modalities");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *one = json_string_value(json_array_get(modalities, i));
        if (!one || strcmp(one, "text") != 0)
            unsupported(f, "modalities", "this server reads and writes text, expected [\"text\"]");
    }
    if (fields_any(f, "audio")) unsupported(f, "audio", "this server reads and writes text");
    (void)fields_text(f, "suffix", NULL, &bytes);
    if (bytes > 0) unsupported(f, "suffix", "text is only continued at its end");
}

/* Fields without effect: of the right type they pass. */
static void check_passing(const fields *f)
{
    static const char *const texts[] = {"user", "service_tier", "prompt_cache_key", "safety_identifier", "verbosity"};
    size_t bytes;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) (void)fields_text(f, texts[i], NULL, &bytes);
    (void)fields_bool(f, "store", false);
    (void)fields_bool(f, "parallel_tool_calls", false);
    (void)fields_object(f, "metadata", "metadata");
}

static const struct {
    const char *name;
    unsigned kinds;
} known[] = {
    {"model", IN_ANY},
    {"prompt", IN_COMPLETION | IN_TRACE | IN_STATES},
    {"of", IN_STATES},
    {"positions", IN_STATES},
    {"layers", IN_STATES},
    {"kinds", IN_STATES},
    {"t", IN_STATES},
    {"start", IN_STATES},
    {"intervene", IN_STATES},
    {"messages", IN_CHAT},
    {"descent", IN_ANY},
    {"reasoning_effort", IN_ANY},
    {"max_tokens", IN_ALL},
    {"max_completion_tokens", IN_CHAT},
    {"n", IN_TEXT},
    {"best_of", IN_COMPLETION},
    {"echo", IN_COMPLETION},
    {"logprobs", IN_TEXT},
    {"top_logprobs", IN_CHAT},
    {"top", IN_TRACE},
    {"track", IN_TRACE},
    {"texts", IN_SCALING},
    {"records", IN_SCALING},
    {"steps", IN_SCALING},
    {"threshold", IN_SCALING},
    {"intervals", IN_SCALING},
    {"stop", IN_TEXT},
    {"seed", IN_ALL},
    {"temperature", IN_ALL},
    {"top_p", IN_ALL},
    {"top_k", IN_ALL},
    {"min_p", IN_ALL},
    {"typical_p", IN_ALL},
    {"presence_penalty", IN_ALL},
    {"frequency_penalty", IN_ALL},
    {"repetition_penalty", IN_ALL},
    {"logit_bias", IN_ALL},
    {"ignore_eos", IN_ALL},
    {"min_tokens", IN_ALL},
    {"stream", IN_TEXT | IN_SCALING},
    {"stream_options", IN_TEXT},
    {"parse_special", IN_TEXT | IN_STATES},
    {"tools", IN_ALL},
    {"functions", IN_ALL},
    {"tool_choice", IN_ALL},
    {"function_call", IN_ALL},
    {"parallel_tool_calls", IN_ALL},
    {"response_format", IN_ALL},
    {"modalities", IN_ALL},
    {"audio", IN_ALL},
    {"suffix", IN_ALL},
    {"user", IN_ANY},
    {"store", IN_ANY},
    {"metadata", IN_ANY},
    {"service_tier", IN_ANY},
    {"prompt_cache_key", IN_ANY},
    {"safety_identifier", IN_ANY},
    {"verbosity", IN_ANY},
};

static void note_unknown(const request_reader *r)
{
    const char *key;
    json_t *value;
    char shown[FIELDS_WORDS];
    json_object_foreach(r->top.object, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0] && !found; i++)
            found = !strcmp(key, known[i].name) && (known[i].kinds & (1u << r->out->kind));
        if (found) continue;
        r->out->unknown_field = strdup(utf8_printable(key, strlen(key), shown, sizeof shown));
        if (!r->out->unknown_field) request_no_memory(r);
        return;
    }
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static void read_generation(const request_reader *r, int64_t seed)
{
    check_tools(&r->top);
    check_formats(&r->top);
    read_answer(r);
    request_read_depth(r);
    request_read_sampling(r, seed);
    if (r->out->kind == REQUEST_CHAT)
        request_read_messages(r);
    else
        request_read_prompts(r);
}

static void read_experiment(const request_reader *r, int64_t seed)
{
    (void)seed; /* nothing is drawn but by the seed of its intervals */
    r->out->stream = fields_bool(&r->top, "stream", false);
    request_read_depth(r);
    request_read_scaling(r);
}

static void read_states(const request_reader *r, int64_t seed)
{
    r->out->n = r->out->best_of = 1;
    r->out->sampling.seed = seed; /* which nothing draws with */
    r->out->parse_special = fields_bool(&r->top, "parse_special", false);
    request_read_depth(r);
    if (r->out->trace)
        (void)fields_fail(&r->top, "descent.trace", NULL,
                          "is true: expected false, /v1/descent/trace is where descents are traced");
    request_read_prompts(r);
    request_read_states(r);
}

bool request_read(request_kind kind, const char *body, size_t bytes, const model_set *models, const request_limits *limits,
                  int64_t seed, generation_request *out, api_error *error)
{
    *error = (api_error){.status = 0};
    *out = (generation_request){.kind = kind, .sampling = descent_sampling_defaults(), .logprobs = -1};
    request_reader r = {.top = {.path = "", .error = error}, .limits = limits, .out = out};
    r.top.object = fields_parse(body, bytes, limits->json_depth, error);
    if (r.top.object && read_model(&r, models)) {
        check_passing(&r.top);
        (kind == REQUEST_SCALING ? read_experiment : kind == REQUEST_STATES ? read_states : read_generation)(&r, seed);
        note_unknown(&r);
    }
    json_decref(r.top.object);
    if (error->status == 0) return true;
    request_release(out);
    return false;
}

void request_release(generation_request *request)
{
    for (size_t i = 0; i < request->n_prompts; i++) descent_free(request->prompts[i].tokens);
    for (size_t i = 0; i < request->n_stop; i++) free(request->stop[i].text);
    free(request->prompts);
    free(request->stop);
    free((void *)request->sampling.bias);
    free(request->track);
    scaling_plan_free(request->scaling);
    states_request_free(request->states);
    free(request->model_name);
    free(request->unknown_field);
    *request = (generation_request){.model = NULL};
}

descent_depth request_deepest(const generation_request *request)
{
    descent_depth depth = request->depth;
    if (request->history.prompt_steps > depth.steps[0]) depth.steps[0] = (uint16_t)request->history.prompt_steps;
    return depth;
}

uint32_t request_texts_of_a_prompt(const generation_request *request)
{
    if (request->candidates > 0) return request->candidates;
    return request->best_of > request->n ? request->best_of : request->n;
}

size_t request_limit_of(const generation_request *request, size_t p)
{
    size_t room = request->model->info->context - request->prompts[p].count + 1; /* the last is read from the last position */
    return request->max_tokens < room ? request->max_tokens : room;
}
