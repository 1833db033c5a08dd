/* request_prompt.c: "prompt": a string, a list of strings, a list of tokens or a list of lists of tokens, into prompts of
 * tokens. Numbers of prompts and tokens are checked before memory is taken for them; a string's tokens are bounded by its
 * bytes. */
#include "request_parts.h"

#include <stdio.h>
#include <stdlib.h>

static bool check_length(const request_reader *r, const char *name, size_t count)
{
    const served_model *model = r->out->model;
    if (count > model->info->context)
        return fields_fail(&r->top, name, "context_length_exceeded", "has %zu tokens, more than the %u of the context of %s",
                           count, (unsigned)model->info->context, model->id);
    if (r->limits->prompt_tokens > 0 && count > r->limits->prompt_tokens)
        return fields_fail(&r->top, name, "context_length_exceeded", "has %zu tokens, more than the %llu this server allows",
                           count, (unsigned long long)r->limits->prompt_tokens);
    return true;
}

bool request_check_text(const request_reader *r, const char *name, size_t bytes)
{
    const served_model *model = r->out->model;
    if (bytes / REQUEST_MOST_TOKEN_BYTES <= model->info->context) return true;
    return fields_fail(&r->top, name, "context_length_exceeded",
                       "has %zu bytes, more than %d for each of the %u tokens of the context of %s", bytes,
                       REQUEST_MOST_TOKEN_BYTES, (unsigned)model->info->context, model->id);
}

bool request_unspelled(const request_reader *r, const char *name, const descent_status *status)
{
    if (status->code == DESCENT_NO_MEMORY) {
        request_no_memory(r);
        return false;
    }
    (void)fields_fail(&r->top, name, NULL, "cannot be read by %s: %s", r->out->model->id, status->message);
    r->top.error->quotes_prompt = true;
    return false;
}

/* Tokens of a text are below the tokenizer's vocabulary, which may be larger than the model's. */
bool request_check_prompt(const request_reader *r, const char *name, const prompt *p)
{
    uint32_t vocab = r->out->model->info->vocab;
    for (size_t i = 0; i < p->count; i++)
        if (p->tokens[i] >= vocab)
            return fields_fail(&r->top, name, NULL, "has token %u at %zu, for which model %s of %u tokens has no embedding",
                               (unsigned)p->tokens[i], i, r->out->model->id, (unsigned)vocab);
    return check_length(r, name, p->count);
}

/* A text of no tokens is continued from BOS alone. */
static bool read_nothing(const request_reader *r, const char *name, prompt *p)
{
    const descent_tokenizer *tokenizer = r->out->model->tokenizer;
    int64_t bos = tokenizer ? descent_tokenizer_describe(tokenizer)->bos : -1;
    if (bos < 0)
        return fields_fail(&r->top, name, NULL, "is empty, and model %s has no BOS token to begin with: expected some text",
                           r->out->model->id);
    p->tokens = malloc(sizeof *p->tokens);
    if (!p->tokens) {
        request_no_memory(r);
        return false;
    }
    p->tokens[0] = (uint32_t)bos;
    p->count = p->special = 1;
    return request_check_prompt(r, name, p);
}

/* A JSON string, or NULL for an empty one. */
static bool read_text(const request_reader *r, const char *name, const json_t *text, prompt *p)
{
    const descent_tokenizer *tokenizer = r->out->model->tokenizer;
    descent_status status;
    size_t bytes = json_string_length(text);
    int flags = DESCENT_ADD_SPECIAL | (r->out->parse_special ? DESCENT_PARSE_SPECIAL : 0);
    if (bytes == 0) return read_nothing(r, name, p);
    if (!tokenizer)
        return fields_fail(&r->top, name, NULL, "is a string, but model %s has no tokenizer: expected a list of tokens",
                           r->out->model->id);
    if (!request_check_text(r, name, bytes)) return false;
    if (descent_tokenizer_encode(tokenizer, json_string_value(text), bytes, flags, &p->tokens, &p->count, &status))
        return request_unspelled(r, name, &status);
    if (p->count == 0) {
        descent_free(p->tokens);
        p->tokens = NULL;
        return read_nothing(r, name, p);
    }
    p->special = descent_tokenizer_describe(tokenizer)->adds_bos ? 1 : 0;
    return request_check_prompt(r, name, p);
}

static bool read_tokens(const request_reader *r, const char *name, const json_t *list, prompt *p)
{
    char words[FIELDS_WORDS];
    uint32_t vocab = r->out->model->info->vocab;
    size_t count = json_array_size(list);
    if (count == 0) return fields_fail(&r->top, name, NULL, "is an empty list: expected tokens");
    if (!check_length(r, name, count)) return false;
    p->tokens = malloc(count * sizeof *p->tokens);
    if (!p->tokens) {
        request_no_memory(r);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        const json_t *value = json_array_get(list, i);
        if (!fields_as_integer(value, 0, (int64_t)vocab - 1, &id))
            return fields_fail(&r->top, name, NULL, "has %s at %zu: expected tokens, integers from 0 to %u",
                               fields_describe(value, words), i, (unsigned)(vocab - 1));
        p->tokens[i] = (uint32_t)id;
    }
    p->count = count;
    return true;
}

/* Room for `count` prompts, as long as they are not too many sequences. */
static bool make_prompts(const request_reader *r, size_t count)
{
    generation_request *out = r->out;
    if ((out->kind == REQUEST_TRACE || out->kind == REQUEST_STATES) && count > 1)
        return fields_fail(&r->top, "prompt", NULL, "is %zu prompts: expected one", count);
    uint32_t texts = request_texts_of_a_prompt(out);
    if (count > r->limits->sequences / texts)
        return fields_fail(&r->top, "prompt", NULL,
                           "is %zu prompts of %u choices each, %zu sequences, more than the %u of one request", count,
                           (unsigned)texts, count * texts, (unsigned)r->limits->sequences);
    out->prompts = calloc(count, sizeof *out->prompts);
    if (!out->prompts) {
        request_no_memory(r);
        return false;
    }
    out->n_prompts = count;
    return true;
}

/* A list of prompts: all strings or all lists. */
static void read_list(const request_reader *r, const json_t *list)
{
    char words[FIELDS_WORDS], name[32];
    bool strings = json_is_string(json_array_get(list, 0));
    size_t count = json_array_size(list);
    if (!make_prompts(r, count)) return;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        (void)snprintf(name, sizeof name, count > 1 ? "prompt[%zu]" : "prompt", i);
        prompt *p = &r->out->prompts[i];
        if (strings && json_is_string(value) ? !read_text(r, name, value, p)
            : !strings && json_is_array(value)
                ? !read_tokens(r, name, value, p)
                : !fields_fail(&r->top, name, NULL, "is %s: expected %s, as the one before", fields_describe(value, words),
                               strings ? "a string" : "a list of tokens"))
            return;
    }
}

void request_read_prompts(const request_reader *r)
{
    char words[FIELDS_WORDS];
    const json_t *value = fields_any(&r->top, "prompt"), *first = json_array_get(value, 0);
    if (!fields_ok(&r->top)) return;
    if (!value || json_is_string(value)) {
        if (make_prompts(r, 1)) (void)read_text(r, "prompt", value, r->out->prompts);
    } else if (json_is_string(first) || json_is_array(first)) {
        read_list(r, value);
    } else if (json_is_array(value)) {
        if (make_prompts(r, 1)) (void)read_tokens(r, "prompt", value, r->out->prompts);
    } else {
        (void)fields_fail(&r->top, "prompt", NULL,
                          "is %s: expected a string, a list of strings, a list of tokens or a list of lists of tokens",
                          fields_describe(value, words));
    }
}
