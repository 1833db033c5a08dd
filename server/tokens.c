/* tokens.c: texts to tokens and back: /tokenize, /detokenize, /tokenizer_info. The time they take is linear in the body, which
 * --max-body bounds. */
#include "reading.h"

#include <inttypes.h>

/* The model a body names, which must have a tokenizer. */
static bool find_tokenizer(const service *s, const char *name, served_model **model, api_error *error)
{
    if (!service_model(s, name, model, error)) return false;
    if ((*model)->tokenizer) return true;
    return api_fail(error, 400, "model", "unsupported_parameter", "%s has no tokenizer: its file carries none", (*model)->id);
}

/* Calls `convert` with the fields of a body. */
static void with_fields(reading *r, void (*convert)(reading *r, const fields *f))
{
    json_t *body = fields_parse(r->body.text, r->body.bytes, r->service->options->limits.json_depth, &r->error);
    fields f = {.object = body, .path = "", .error = &r->error};
    if (body) convert(r, &f);
    json_decref(body);
    if (r->error.status || !r->answer.failed) return;
    (void)api_fail(&r->error, 500, NULL, NULL, "no memory for the answer");
    r->error.no_retry = true;
}

static void answer(reading *r)
{
    exchange_reply_text(r->exchange, 200, r->answer.text, r->answer.bytes);
}

/* ---- /tokenize -------------------------------------------------------------------------------------------------- */

/* {"tokens":[...],"count":n,"max_model_len":context} */
static void put_tokens(json_text *out, const served_model *m, const uint32_t *tokens, size_t count)
{
    json_text_put(out, "{\"tokens\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) json_text_put(out, ",");
        json_text_unsigned(out, tokens[i]);
    }
    json_text_put(out, "],\"count\":");
    json_text_unsigned(out, count);
    json_text_put(out, ",\"max_model_len\":");
    json_text_unsigned(out, m->info->context);
    json_text_put(out, "}");
}

static void tokenize(reading *r, const fields *f)
{
    served_model *m;
    size_t bytes = 0, count;
    uint32_t *tokens;
    const char *model = fields_text(f, "model", NULL, &bytes);
    const char *param = "content", *text = fields_text(f, "content", NULL, &bytes);
    if (fields_any(f, "prompt")) text = fields_text(f, param = "prompt", NULL, &bytes);
    bool special = fields_bool(f, "add_special_tokens", true), parse = fields_bool(f, "parse_special", false);
    if (!fields_ok(f) || !find_tokenizer(r->service, model, &m, f->error)) return;
    if (!text) {
        (void)api_fail(f->error, 400, "prompt", NULL, "prompt or content must be a text");
        return;
    }
    descent_status status;
    int flags = (special ? DESCENT_ADD_SPECIAL : 0) | (parse ? DESCENT_PARSE_SPECIAL : 0);
    if (descent_tokenizer_encode(m->tokenizer, text, bytes, flags, &tokens, &count, &status) != DESCENT_OK) {
        (void)api_fail_status(f->error, param, &status);
        f->error->quotes_prompt = true;
        return;
    }
    put_tokens(&r->answer, m, tokens, count);
    descent_free(tokens);
}

static void read_tokenize(reading *r)
{
    with_fields(r, tokenize);
}

void endpoint_tokenize(exchange *x)
{
    reading_start(x, REQUEST_COMPLETION, read_tokenize, answer);
}

/* ---- /detokenize ------------------------------------------------------------------------------------------------ */

/* The text of the ids in `tokens`, as a JSON string. */
static void put_text(json_text *out, const descent_tokenizer *tokenizer, json_t *tokens, api_error *error)
{
    uint32_t vocab = descent_tokenizer_describe(tokenizer)->vocab;
    descent_decoder *decoder;
    descent_status status;
    json_text text = {0};
    size_t piece;
    if (descent_decoder_create(tokenizer, &decoder, &status) != DESCENT_OK) {
        (void)api_fail_status(error, NULL, &status);
        return;
    }
    const char *certain = "";
    for (size_t i = 0; certain && i < json_array_size(tokens) && !error->status; i++) {
        json_t *id = json_array_get(tokens, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= (json_int_t)vocab) {
            (void)api_fail(error, 400, "tokens", NULL, "tokens[%zu] must be an id from 0 to %" PRIu32, i, vocab - 1);
        } else {
            certain = descent_decoder_push(decoder, (uint32_t)json_integer_value(id), &piece);
            if (certain) json_text_bytes(&text, certain, piece);
        }
    }
    if (certain) certain = descent_decoder_finish(decoder, &piece);
    if (certain) json_text_bytes(&text, certain, piece);
    json_text_string(out, text.text ? text.text : "", text.bytes);
    out->failed |= text.failed || !certain;
    json_text_release(&text);
    descent_decoder_destroy(decoder);
}

static void detokenize(reading *r, const fields *f)
{
    served_model *m;
    size_t bytes = 0;
    const char *model = fields_text(f, "model", NULL, &bytes);
    json_t *tokens = fields_array(f, "tokens");
    if (!fields_ok(f) || !find_tokenizer(r->service, model, &m, f->error)) return;
    if (!tokens) {
        (void)api_fail(f->error, 400, "tokens", NULL, "tokens must be a list of ids");
        return;
    }
    json_text text = {0};
    put_text(&text, m->tokenizer, tokens, f->error);
    json_text_put(&r->answer, "{\"prompt\":");
    json_text_bytes(&r->answer, text.text, text.bytes);
    json_text_put(&r->answer, ",\"content\":");
    json_text_bytes(&r->answer, text.text, text.bytes);
    json_text_put(&r->answer, "}");
    r->answer.failed |= text.failed;
    json_text_release(&text);
}

static void read_detokenize(reading *r)
{
    with_fields(r, detokenize);
}

void endpoint_detokenize(exchange *x)
{
    reading_start(x, REQUEST_COMPLETION, read_detokenize, answer);
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
