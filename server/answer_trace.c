/* answer_trace.c: /v1/descent/trace: a text with, for each of its tokens, prompt first, its logprob and its descent:
 *
 *     {"id", "object": "descent.trace", "created", "model", "system_fingerprint", "traces": [
 *         {"index", "text", "finish_reason", "tokens": [
 *             {"token": id, "text", "logprob": log p of this token given those before it, null for the first,
 *              "trace": null for the last token chosen, which does not descend, else
 *                  {"position", "steps", "descents": [one for each layer and kind of sub-layer
 *                      {"layer", "kind", "steps": T, "energy": {term: [T + 1 of them, at t = 0..T]}, "own_change": [T],
 *                       "history_change": [T], "r": [T], "update_norm": [T], "cosine": [T + 1]: of x(t) and x(T)}],
 *                   "guesses": [{"token", "text", "logprob"}]: the likeliest next tokens, read at x(T),
 *                   "track": [{"token", "rank", "logprob"}]: the tokens asked for, in the same distribution}}]}],
 *      "usage", "descent", "timings"}
 *
 * A number that does not exist is null: the energy of a sub-layer that has none, the last change of keys.
 */
#include "answer.h"

#include "token_name.h"

static void put_token(json_text *out, const job_text *t, const token_entry *entry, const token_trace *trace)
{
    const descent_tokenizer *tokenizer = t->job->request.model->tokenizer;
    json_text_put(out, "{\"token\":");
    json_text_unsigned(out, entry->token);
    json_text_put(out, ",\"text\":");
    token_name(out, tokenizer, entry->token);
    json_text_put(out, ",\"logprob\":");
    token_logprob_value(out, entry->logprob);
    json_text_put(out, ",\"trace\":");
    if (trace) {
        token_trace_render(out, trace, &t->trace, tokenizer);
        token_trace_render_reading(out, trace, &t->trace, tokenizer);
        json_text_put(out, "}}");
    } else {
        json_text_put(out, "null}");
    }
}

static void put_text(json_text *out, const answer_part *part)
{
    const token_trace *trace = part->traces;
    json_text_put(out, "{\"index\":");
    json_text_unsigned(out, part->text->index);
    json_text_put(out, ",\"text\":");
    json_text_string(out, part->bytes, part->count);
    json_text_put(out, ",\"finish_reason\":");
    answer_text_or_null(out, part->finish);
    json_text_put(out, ",\"tokens\":[");
    for (size_t i = part->from; i < part->to; i++) {
        bool traced = trace && trace->position == i;
        if (i > part->from) json_text_put(out, ",");
        put_token(out, part->text, &part->text->record.tokens[i], traced ? trace : NULL);
        if (traced) trace = trace->next;
    }
    json_text_put(out, "]}");
}

const answer_kind answer_trace = {.id_prefix = "trace-", .object = "descent.trace", .list = "traces", .whole = put_text};
