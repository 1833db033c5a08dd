/* tokens.c: texts to tokens and back: /tokenize, /detokenize, /tokenizer_info. The time they take is linear in the body, which
 * --max-body bounds. */
#include "service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The request's object, or NULL after an answer. */
static json_t *read_body(exchange *x, api_error *error)
{
    size_t bytes;
    const char *text = http_body(x->request, &bytes);
    return fields_parse(text, bytes, x->service->options->limits.json_depth, error);
}

/* The model a body names, which must have a tokenizer. */
static bool find_tokenizer(const service *s, const char *name, served_model **model, api_error *error)
{
    if (!service_model(s, name, model, error)) return false;
    if ((*model)->tokenizer) return true;
    return api_fail(error, 400, "model", "unsupported_parameter", "%s has no tokenizer: its file carries none", (*model)->id);
}

/* ---- /tokenize -------------------------------------------------------------------------------------------------- */

/* {"tokens":[...],"count":n,"max_model_len":context}: written, since as jansson's values ids take thirty times their bytes. */
static void reply_tokens(exchange *x, const served_model *m, const uint32_t *tokens, size_t count)
{
    char *body = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&body, &bytes);
    if (out) {
        (void)fputs("{\"tokens\":[", out);
        for (size_t i = 0; i < count; i++) (void)fprintf(out, i ? ",%" PRIu32 : "%" PRIu32, tokens[i]);
        (void)fprintf(out, "],\"count\":%zu,\"max_model_len\":%" PRIu32 "}", count, m->info->context);
    }
    bool good = out && !ferror(out);
    if (out && fclose(out) != 0) good = false;
    if (good)
        exchange_reply_text(x, 200, body, bytes);
    else
        exchange_reply(x, 500, NULL);
    free(body);
}

static void tokenize(exchange *x, const fields *f, api_error *error)
{
    served_model *m;
    size_t bytes = 0, count;
    uint32_t *tokens;
    const char *model = fields_text(f, "model", NULL, &bytes);
    const char *param = "content", *text = fields_text(f, "content", NULL, &bytes);
    if (fields_any(f, "prompt")) text = fields_text(f, param = "prompt", NULL, &bytes);
    bool special = fields_bool(f, "add_special_tokens", true), parse = fields_bool(f, "parse_special", false);
    if (!fields_ok(f) || !find_tokenizer(x->service, model, &m, error)) return;
    if (!text) {
        (void)api_fail(error, 400, "prompt", NULL, "prompt or content must be a text");
        return;
    }
    descent_status status;
    int flags = (special ? DESCENT_ADD_SPECIAL : 0) | (parse ? DESCENT_PARSE_SPECIAL : 0);
    if (descent_tokenizer_encode(m->tokenizer, text, bytes, flags, &tokens, &count, &status) != DESCENT_OK) {
        (void)api_fail_status(error, param, &status);
        return;
    }
    reply_tokens(x, m, tokens, count);
    descent_free(tokens);
}

void endpoint_tokenize(exchange *x)
{
    api_error error = {0};
    json_t *body = read_body(x, &error);
    fields f = {.object = body, .path = "", .error = &error};
    if (body) tokenize(x, &f, &error);
    if (error.status) exchange_fail(x, &error);
    json_decref(body);
}

/* ---- /detokenize ------------------------------------------------------------------------------------------------ */

/* The text of the ids in `tokens`, as JSON; NULL where there is an error, or no memory. */
static json_t *decode(const descent_tokenizer *tokenizer, json_t *tokens, api_error *error)
{
    uint32_t vocab = descent_tokenizer_describe(tokenizer)->vocab;
    descent_decoder *decoder;
    descent_status status;
    char *text = NULL;
    size_t bytes = 0, piece;
    if (descent_decoder_create(tokenizer, &decoder, &status) != DESCENT_OK) return NULL;
    FILE *out = open_memstream(&text, &bytes);
    const char *certain = "";
    for (size_t i = 0; out && certain && i < json_array_size(tokens) && !error->status; i++) {
        json_t *id = json_array_get(tokens, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)vocab) {
            (void)api_fail(error, 400, "tokens", NULL, "tokens[%zu] must be an id from 0 to %" PRIu32, i, vocab - 1);
        } else {
            certain = descent_decoder_push(decoder, (uint32_t)json_integer_value(id), &piece);
            if (certain) (void)fwrite(certain, 1, piece, out);
        }
    }
    if (out && certain) certain = descent_decoder_finish(decoder, &piece);
    if (out && certain) (void)fwrite(certain, 1, piece, out);
    bool good = out && certain && !ferror(out);
    if (out && fclose(out) != 0) good = false;
    json_t *decoded = good && !error->status ? json_stringn(text, bytes) : NULL;
    free(text);
    descent_decoder_destroy(decoder);
    return decoded;
}

static void detokenize(exchange *x, const fields *f, api_error *error)
{
    served_model *m;
    size_t bytes = 0;
    const char *model = fields_text(f, "model", NULL, &bytes);
    json_t *tokens = fields_array(f, "tokens");
    if (!fields_ok(f) || !find_tokenizer(x->service, model, &m, error)) return;
    if (!tokens) {
        (void)api_fail(error, 400, "tokens", NULL, "tokens must be a list of ids");
        return;
    }
    json_t *text = decode(m->tokenizer, tokens, error);
    if (!error->status) exchange_reply(x, 200, json_pack("{s:O, s:O}", "prompt", text, "content", text));
    json_decref(text);
}

void endpoint_detokenize(exchange *x)
{
    api_error error = {0};
    json_t *body = read_body(x, &error);
    fields f = {.object = body, .path = "", .error = &error};
    if (body) detokenize(x, &f, &error);
    if (error.status) exchange_fail(x, &error);
    json_decref(body);
}

/* ---- /tokenizer_info -------------------------------------------------------------------------------------------- */

/* How a token is spelled; null where there is none, or its bytes are no text. */
static json_t *spelling(const descent_tokenizer *tokenizer, int64_t id)
{
    size_t bytes;
    if (id < 0) return json_null();
    const char *text = descent_tokenizer_spelling(tokenizer, (uint32_t)id, &bytes);
    json_t *spelled = json_stringn(text, bytes);
    return spelled ? spelled : json_null();
}

void endpoint_tokenizer_info(exchange *x)
{
    api_error error = {0};
    served_model *m;
    if (!find_tokenizer(x->service, http_query(x->request, "model"), &m, &error)) {
        exchange_fail(x, &error);
        return;
    }
    const descent_tokenizer_info *info = descent_tokenizer_describe(m->tokenizer);
    const char *template = m->template == CHAT_NONE ? NULL : chat_template_names[m->template - 1];
    exchange_reply(x, 200,
                   json_pack("{s:o, s:o, s:o, s:s?, s:s, s:I}", "bos_token", spelling(m->tokenizer, info->bos), "eos_token",
                             spelling(m->tokenizer, info->eos), "pad_token", spelling(m->tokenizer, info->pad), "chat_template",
                             template, "tokenizer", info->model, "vocabulary", (json_int_t)info->vocab));
}
