/* questions.c: see questions.h. */
#include "questions.h"

#include "fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static descent_code wrong(descent_status *status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static descent_code wrong(descent_status *status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    status->code = DESCENT_BAD_ARGUMENT;
    vsnprintf(status->message, sizeof status->message, format, arguments);
    va_end(arguments);
    return status->code;
}

static descent_code no_memory(descent_status *status)
{
    *status = (descent_status){.code = DESCENT_NO_MEMORY, .message = "no memory left"};
    return status->code;
}

/* ---- Texts to tokens --------------------------------------------------------------------------------------------- */

/* `what` begins the message of what cannot be spelled. */
static descent_code encode(const descent_tokenizer *tokenizer, const char *what, question_text text, int flags,
                           uint32_t **tokens, size_t *count, descent_status *status)
{
    descent_status said;
    descent_code code = descent_tokenizer_encode(tokenizer, text.bytes, text.length, flags, tokens, count, &said);
    if (code == DESCENT_OK) return code;
    snprintf(status->message, sizeof status->message, "%s: %.400s", what, said.message);
    return status->code = code;
}

static descent_code read_prompt(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt, question *into,
                                descent_status *status)
{
    *into = (question){.answer_token = -1};
    descent_code code =
        encode(tokenizer, "the prompt", prompt, DESCENT_ADD_SPECIAL, &into->prompt, &into->prompt_count, status);
    if (code != DESCENT_OK || (into->prompt_count && into->prompt_count <= context)) return code;
    return wrong(status, "the prompt has %zu tokens, the model takes 1 to %" PRIu32, into->prompt_count, context);
}

descent_code question_of_answer(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt,
                                question_text answer, question *into, descent_status *status)
{
    uint32_t *tokens = NULL;
    size_t count = 0;
    descent_code code = read_prompt(tokenizer, context, prompt, into, status);
    if (code == DESCENT_OK) code = encode(tokenizer, "the answer", answer, 0, &tokens, &count, status);
    if (code != DESCENT_OK) return code;
    /* A token's own text may hold a separator that the answer does not. */
    if (count == 1) into->answer_token = tokens[0];
    descent_free(tokens);
    into->answer = malloc(answer.length + 1);
    if (!into->answer) return no_memory(status);
    if (answer.length) memcpy(into->answer, answer.bytes, answer.length);
    into->answer_bytes = answer.length;
    return DESCENT_OK;
}

static size_t common(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b)
{
    size_t i = 0;
    while (i < n_a && i < n_b && a[i] == b[i]) i++;
    return i;
}

/* The tokens of prompt and choice as one text. */
static descent_code read_choice(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt,
                                question_text choice, size_t index, question_choice *into, descent_status *status)
{
    char what[32];
    snprintf(what, sizeof what, "choice %zu", index);
    if (!choice.length) return wrong(status, "%s is empty", what);
    into->bytes = choice.length;
    const descent_text_part parts[] = {{prompt.bytes, prompt.length, false}, {choice.bytes, choice.length, false}};
    descent_status said;
    descent_code code = descent_tokenizer_encode_parts(tokenizer, parts, 2, true, &into->tokens, &into->count, &said);
    if (code != DESCENT_OK) {
        snprintf(status->message, sizeof status->message, "%s, behind the prompt: %.400s", what, said.message);
        return status->code = code;
    }
    if (into->count <= (size_t)context + 1) return DESCENT_OK;
    return wrong(status, "%s makes a text of %zu tokens, the model takes at most %" PRIu32, what, into->count, context + 1);
}

descent_code question_of_choices(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt,
                                 const question_text *choices, size_t n, size_t right, question *into, descent_status *status)
{
    descent_code code = read_prompt(tokenizer, context, prompt, into, status);
    if (code != DESCENT_OK) return code;
    if (n < 2 || n > QUESTION_MOST_CHOICES) return wrong(status, "%zu choices: 2 to %d are allowed", n, QUESTION_MOST_CHOICES);
    if (right >= n) return wrong(status, "the answer is choice %zu of %zu: the first is 0", right, n);
    into->choices = calloc(n, sizeof *into->choices);
    if (!into->choices) return no_memory(status);
    into->n_choices = n;
    into->right = right;
    into->scored = into->prompt_count;
    for (size_t i = 0; i < n; i++) {
        question_choice *choice = &into->choices[i];
        code = read_choice(tokenizer, context, prompt, choices[i], i, choice, status);
        if (code != DESCENT_OK) return code;
        size_t same = common(into->prompt, into->prompt_count, choice->tokens, choice->count);
        if (same < into->scored) into->scored = same;
    }
    if (!into->scored)
        return wrong(status, "the prompt is part of the choices' first token: nothing is there to predict it from");
    for (size_t i = 0; i < n; i++)
        if (into->choices[i].count <= into->scored) return wrong(status, "choice %zu adds no token to the prompt", i);
    return DESCENT_OK;
}

void question_release(question *of)
{
    for (size_t i = 0; i < of->n_choices; i++) descent_free(of->choices[i].tokens);
    free(of->choices);
    descent_free(of->prompt);
    free(of->answer);
    *of = (question){.answer_token = -1};
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static descent_code read_choices(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt, const json_t *list,
                                 const json_t *answer, question *into, descent_status *status)
{
    char words[FIELDS_WORDS];
    int64_t right;
    size_t n = json_array_size(list);
    if (!json_is_array(list)) return wrong(status, "choices must be a list of texts, got %s", fields_describe(list, words));
    if (n < 2 || n > QUESTION_MOST_CHOICES)
        return wrong(status, "choices must be 2 to %d texts, got %zu", QUESTION_MOST_CHOICES, n);
    if (!fields_as_integer(answer, 0, (int64_t)n - 1, &right))
        return wrong(status, "answer must be the index of the right choice, 0 to %zu, got %s", n - 1,
                     answer ? fields_describe(answer, words) : "none");
    question_text choices[QUESTION_MOST_CHOICES];
    for (size_t i = 0; i < n; i++) {
        const json_t *choice = json_array_get(list, i);
        if (!json_is_string(choice))
            return wrong(status, "choice %zu must be a text, got %s", i, fields_describe(choice, words));
        choices[i] = (question_text){json_string_value(choice), json_string_length(choice)};
    }
    return question_of_choices(tokenizer, context, prompt, choices, n, (size_t)right, into, status);
}

descent_code question_of_json(const descent_tokenizer *tokenizer, uint32_t context, const json_t *object, question *into,
                              descent_status *status)
{
    char words[FIELDS_WORDS];
    *into = (question){.answer_token = -1};
    if (!json_is_object(object)) return wrong(status, "a record must be an object, got %s", fields_describe(object, words));
    const json_t *prompt = json_object_get(object, "prompt"), *answer = json_object_get(object, "answer");
    const json_t *choices = json_object_get(object, "choices");
    if (!json_is_string(prompt))
        return wrong(status, "prompt must be a text, got %s", prompt ? fields_describe(prompt, words) : "none");
    question_text asked = {json_string_value(prompt), json_string_length(prompt)};
    if (choices && !json_is_null(choices)) return read_choices(tokenizer, context, asked, choices, answer, into, status);
    if (!json_is_string(answer))
        return wrong(status, "answer must be a text, or an index beside choices, got %s",
                     answer ? fields_describe(answer, words) : "none");
    return question_of_answer(tokenizer, context, asked, (question_text){json_string_value(answer), json_string_length(answer)},
                              into, status);
}

/* ---- Answers ------------------------------------------------------------------------------------------------------ */

bool question_is_answered(const question *of, const descent_tokenizer *tokenizer, uint32_t last)
{
    descent_decoder *decoder;
    if ((int64_t)last == of->answer_token) return true;
    if (descent_decoder_create(tokenizer, &decoder, NULL) != DESCENT_OK) return false;
    size_t length = 0, rest = 0;
    const char *piece = descent_decoder_push(decoder, last, &length);
    bool same = piece && length == of->answer_bytes && !memcmp(piece, of->answer, length);
    descent_decoder_finish(decoder, &rest);
    descent_decoder_destroy(decoder);
    return same && !rest;
}

/* ---- Choices ------------------------------------------------------------------------------------------------------ */

descent_measure question_measure(const question *of, const descent_measure *choices, bool *right_by_bytes)
{
    size_t likeliest = 0, by_bytes = 0;
    descent_measure sum = {.depth = choices[0].depth};
    for (size_t i = 0; i < of->n_choices; i++) {
        double each = choices[i].nats / (double)of->choices[i].bytes;
        if (choices[i].nats < choices[likeliest].nats) likeliest = i;
        if (each < choices[by_bytes].nats / (double)of->choices[by_bytes].bytes) by_bytes = i;
        descent_measure_add(&sum, &choices[i]);
    }
    const descent_measure *right = &choices[of->right];
    bool finite = sum.code == DESCENT_OK;
    sum.items = 1;
    sum.right = finite && likeliest == of->right;
    *right_by_bytes = finite && by_bytes == of->right;
    sum.predictions = right->predictions;
    sum.bytes = right->bytes;
    sum.nats = finite ? right->nats : NAN;
    sum.energy = finite ? right->energy : NAN;
    sum.relative_change = finite ? right->relative_change : NAN;
    sum.converged = finite ? right->converged : 0;
    return sum;
}
