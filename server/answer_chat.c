/* answer_chat.c: a choice of /v1/chat/completions: {"index", "message", "logprobs", "finish_reason"}; in a chunk "delta". */
#include "answer.h"

#include "token_name.h"

static void put_token(json_text *out, const descent_tokenizer *tokenizer, uint32_t token, float logprob)
{
    json_text_put(out, "{\"token\":");
    token_name(out, tokenizer, token);
    json_text_put(out, ",\"logprob\":");
    token_logprob_value(out, logprob);
    json_text_put(out, ",\"bytes\":");
    token_bytes(out, tokenizer, token);
}

static void put_logprobs(json_text *out, const answer_part *part)
{
    const job_text *t = part->text;
    const record *r = &t->record;
    const descent_tokenizer *tokenizer = t->job->request.model->tokenizer;
    if (t->job->request.logprobs < 0 || part->silent) {
        json_text_put(out, "null");
        return;
    }
    json_text_put(out, "{\"content\":[");
    for (size_t i = part->from; i < part->to; i++) {
        const token_entry *entry = &r->tokens[i];
        if (i > part->from) json_text_put(out, ",");
        put_token(out, tokenizer, entry->token, entry->logprob);
        json_text_put(out, ",\"top_logprobs\":[");
        const token_logprob *top = record_top(r, entry);
        for (size_t k = 0; k < entry->n_top; k++) {
            if (k > 0) json_text_put(out, ",");
            put_token(out, tokenizer, top[k].token, top[k].logprob);
            json_text_put(out, "}");
        }
        json_text_put(out, "]}");
    }
    json_text_put(out, "],\"refusal\":null,\"descent_steps\":[");
    for (size_t i = part->from; i < part->to; i++) {
        if (i > part->from) json_text_put(out, ",");
        json_text_unsigned(out, r->tokens[i].steps);
    }
    json_text_put(out, "]}");
}

static void put_choice(json_text *out, const answer_part *part, const char *name, const char *before, bool content,
                       const char *after)
{
    json_text_put(out, "{\"index\":");
    json_text_unsigned(out, part->text->index);
    json_text_put(out, ",\"");
    json_text_put(out, name);
    json_text_put(out, "\":{");
    json_text_put(out, before);
    if (content) {
        json_text_put(out, "\"content\":");
        json_text_string(out, part->bytes, part->count);
    }
    json_text_put(out, after);
    json_text_put(out, "},\"logprobs\":");
    put_logprobs(out, part);
    answer_traces(out, part);
    json_text_put(out, ",\"finish_reason\":");
    answer_text_or_null(out, part->finish);
    json_text_put(out, "}");
}

static void put_whole(json_text *out, const answer_part *part)
{
    put_choice(out, part, "message", "\"role\":\"assistant\",", true, ",\"refusal\":null");
}

static void put_delta(json_text *out, const answer_part *part)
{
    put_choice(out, part, "delta", "", !part->silent, "");
}

static void put_opening(json_text *out, const job_text *text)
{
    json_text_put(out, "{\"index\":");
    json_text_unsigned(out, text->index);
    json_text_put(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
}

const answer_kind answer_chat = {.id_prefix = "chatcmpl-",
                                 .object = "chat.completion",
                                 .chunk_object = "chat.completion.chunk",
                                 .list = "choices",
                                 .whole = put_whole,
                                 .chunk = put_delta,
                                 .opening = put_opening};
