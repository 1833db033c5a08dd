/* catalogue.c: what is served, as clients of OpenAI and of llama.cpp ask for it: /v1/models, /v1/models/{id}, /props. */
#include "service.h"

#include <string.h>

/* T as requests give it: a number, or one of each kind where there are two. null: nothing here has a T. */
static json_t *steps_json(const served_model *m, descent_depth depth)
{
    const descent_model_info *info = m->info;
    json_t *object = json_object();
    int64_t last = 0;
    size_t count = 0;
    for (uint32_t k = 0; k < info->kinds; k++) {
        if (!info->trained.steps[k]) continue;
        last = depth.steps[k];
        count++;
        (void)json_object_set_new(object, info->kind_names[k], json_integer(last));
    }
    if (count > 1) return object;
    json_decref(object);
    return count ? json_integer(last) : json_null();
}

static const char *template_name(const served_model *m)
{
    return m->template == CHAT_NONE ? NULL : chat_template_names[m->template - 1];
}

/* A new reference; `id` as it was asked for, T as that name says. */
static json_t *model_json(const served_model *m, const char *id, descent_depth depth)
{
    const descent_model_info *info = m->info;
    json_t *own = json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:s, s:I, s:s?, s:s}", "family", info->family, "variant",
                            info->variant, "steps", steps_json(m, depth), "trained_steps", steps_json(m, info->trained),
                            "context", (json_int_t)info->context, "vocabulary", (json_int_t)info->vocab, "quantization",
                            info->weight_type, "parameters", (json_int_t)info->parameters, "chat_template", template_name(m),
                            "system_fingerprint", m->fingerprint);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", "model", "created", (json_int_t)m->created, "owned_by",
                     "descent", "descent", own);
}

/* A model by name, "x@12" with the T it names. */
static void one_model(exchange *x, const char *name)
{
    const service *s = x->service;
    api_error error = {0};
    descent_status status;
    served_model *m;
    const char *depth_text;
    if (!request_find_model(&s->models, name, &m, &depth_text, &error)) {
        exchange_fail(x, &error);
        return;
    }
    descent_depth depth = m->info->trained;
    if (depth_text && descent_depth_parse(m->model, depth_text, &depth, &status) != DESCENT_OK) {
        (void)api_fail(&error, 404, "model", "model_not_found", "%s", status.message);
        exchange_fail(x, &error);
        return;
    }
    for (uint32_t k = 0; k < m->info->kinds; k++) {
        if (depth.steps[k] <= s->options->limits.steps || !depth_text) continue;
        (void)api_fail(&error, 400, "model", NULL, "%s asks for %u steps; at most %u are allowed (--max-steps)", name,
                       (unsigned)depth.steps[k], (unsigned)s->options->limits.steps);
        exchange_fail(x, &error);
        return;
    }
    exchange_reply(x, 200, model_json(m, name, depth));
}

void endpoint_models(exchange *x)
{
    static const char list[] = "/v1/models";
    const model_set *models = &x->service->models;
    const char *path = http_path(x->request);
    if (path[sizeof list - 1] == '/') {
        one_model(x, path + sizeof list);
        return;
    }
    json_t *data = json_array();
    for (size_t i = 0; i < models->count; i++)
        (void)json_array_append_new(data, model_json(&models->items[i], models->items[i].id, models->items[i].info->trained));
    exchange_reply(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", data));
}

/* ---- /props ------------------------------------------------------------------------------------------------------ */

/* What a request gets that names nothing. */
static json_t *default_settings(const served_model *m)
{
    descent_sampling d = descent_sampling_defaults();
    json_t *params =
        json_pack("{s:f, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:b, s:[]}", "temperature", (double)d.temperature, "top_p",
                  (double)d.top_p, "top_k", (int)d.top_k, "min_p", (double)d.min_p, "typical_p", (double)d.typical_p,
                  "repetition_penalty", (double)d.repetition_penalty, "presence_penalty", (double)d.presence_penalty,
                  "frequency_penalty", (double)d.frequency_penalty, "max_tokens", 16, "stream", 0, "stop");
    return json_pack("{s:I, s:o}", "n_ctx", (json_int_t)m->info->context, "params", params);
}

static json_t *limits_json(const service_options *o)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "max_body", (json_int_t)o->max_body, "prompt_tokens",
                     (json_int_t)o->limits.prompt_tokens, "max_steps", (json_int_t)o->limits.steps, "max_sequences",
                     (json_int_t)o->limits.sequences, "max_queue", (json_int_t)o->max_queue, "stop_strings",
                     (json_int_t)o->limits.stop_strings, "stop_bytes", (json_int_t)o->limits.stop_bytes, "logit_bias_entries",
                     (json_int_t)o->limits.logit_bias, "max_sweep_token_steps", (json_int_t)o->limits.sweep_token_steps);
}

void endpoint_props(exchange *x)
{
    const service *s = x->service;
    api_error error = {0};
    served_model *m = &s->models.items[0];
    const char *name = http_query(x->request, "model"); /* the first, where none is named, as /v1/models lists them */
    if (name && !service_model(s, name, &m, &error)) {
        exchange_fail(x, &error);
        return;
    }
    char build[64];
    (void)snprintf(build, sizeof build, "descent %s (%s)", descent_version(), descent_isa());
    const char *file = strrchr(m->path, '/'); /* where it lies is nobody's affair */
    json_t *own = model_json(m, m->id, m->info->trained);
    exchange_reply(x, 200,
                   json_pack("{s:o, s:I, s:s, s:s, s:s?, s:{s:b, s:b}, s:s, s:O, s:o}", "default_generation_settings",
                             default_settings(m), "total_slots", (json_int_t)s->options->max_running, "model_alias", m->id,
                             "model_path", file ? file + 1 : m->path, "chat_template", template_name(m), "modalities", "vision",
                             0, "audio", 0, "build_info", build, "descent", json_object_get(own, "descent"), "limits",
                             limits_json(s->options)));
    json_decref(own);
}
