/* answer_completion.c: a choice of /v1/completions: {"index", "text", "logprobs", "finish_reason"}. Chunks look the same. */
#include "answer.h"

#include "token_name.h"

#include <math.h>

/* True where a likelier token at this place is written like token `i` of them: a JSON object has a name once. */
static bool named_before(const descent_tokenizer *tokenizer, const token_logprob *top, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (token_names_equal(tokenizer, top[k].token, top[i].token)) return true;
    return false;
}

static void put_named(json_text *out, const descent_tokenizer *tokenizer, token_logprob named)
{
    token_name(out, tokenizer, named.token);
    json_text_put(out, ":");
    token_logprob_value(out, named.logprob);
}

/* The likeliest tokens, and always the token itself. */
static void put_top(json_text *out, const descent_tokenizer *tokenizer, const token_entry *entry, const token_logprob *top)
{
    bool any = false, itself = false;
    json_text_put(out, "{");
    for (size_t i = 0; i < entry->n_top; i++) {
        bool is_it = top[i].token == entry->token;
        if (!is_it && (named_before(tokenizer, top, i) || token_names_equal(tokenizer, top[i].token, entry->token))) continue;
        if (any) json_text_put(out, ",");
        put_named(out, tokenizer, top[i]);
        any = true;
        itself |= is_it;
    }
    if (!itself) {
        if (any) json_text_put(out, ",");
        put_named(out, tokenizer, (token_logprob){entry->token, entry->logprob});
    }
    json_text_put(out, "}");
}

typedef void (*put_entry)(json_text *out, const job_text *t, const token_entry *entry);

static const descent_tokenizer *tokenizer_of(const job_text *t)
{
    return t->job->request.model->tokenizer;
}

static void put_name(json_text *out, const job_text *t, const token_entry *entry)
{
    token_name(out, tokenizer_of(t), entry->token);
}

static void put_logprob(json_text *out, const job_text *t, const token_entry *entry)
{
    (void)t;
    token_logprob_value(out, entry->logprob);
}

static void put_likeliest(json_text *out, const job_text *t, const token_entry *entry)
{
    if (isnan(entry->logprob))
        json_text_put(out, "null");
    else
        put_top(out, tokenizer_of(t), entry, record_top(&t->record, entry));
}

static void put_offset(json_text *out, const job_text *t, const token_entry *entry)
{
    (void)t;
    json_text_unsigned(out, entry->text_offset);
}

static void put_steps(json_text *out, const job_text *t, const token_entry *entry)
{
    (void)t;
    if (isnan(entry->logprob))
        json_text_put(out, "null");
    else
        json_text_unsigned(out, entry->steps);
}

static void put_list(json_text *out, const char *name, const answer_part *part, put_entry put)
{
    json_text_put(out, name);
    json_text_put(out, ":[");
    for (size_t i = part->from; i < part->to; i++) {
        if (i > part->from) json_text_put(out, ",");
        put(out, part->text, &part->text->record.tokens[i]);
    }
    json_text_put(out, "]");
}

static void put_logprobs(json_text *out, const answer_part *part)
{
    if (part->text->job->request.logprobs < 0 || part->silent) {
        json_text_put(out, "null");
        return;
    }
    json_text_put(out, "{");
    put_list(out, "\"tokens\"", part, put_name);
    put_list(out, ",\"token_logprobs\"", part, put_logprob);
    put_list(out, ",\"top_logprobs\"", part, put_likeliest);
    put_list(out, ",\"text_offset\"", part, put_offset);
    put_list(out, ",\"descent_steps\"", part, put_steps);
    json_text_put(out, "}");
}

static void put_choice(json_text *out, const answer_part *part)
{
    json_text_put(out, "{\"index\":");
    json_text_unsigned(out, part->text->index);
    json_text_put(out, ",\"text\":");
    json_text_string(out, part->bytes, part->count);
    json_text_put(out, ",\"logprobs\":");
    put_logprobs(out, part);
    answer_traces(out, part);
    json_text_put(out, ",\"finish_reason\":");
    answer_text_or_null(out, part->finish);
    json_text_put(out, "}");
}

const answer_kind answer_completion = {.id_prefix = "cmpl-",
                                       .object = "text_completion",
                                       .chunk_object = "text_completion",
                                       .list = "choices",
                                       .whole = put_choice,
                                       .chunk = put_choice};
