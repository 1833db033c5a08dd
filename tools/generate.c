/* generate.c: see generate.h. Shapes: logits [texts][V]. */
#include "generate.h"

#include <stdlib.h>

size_t generation_room(const session *with, size_t prompt_count)
{
    return prompt_count <= with->info->context ? with->info->context - prompt_count + 1 : 0;
}

/* Enrols what is unfinished; *unfinished counts the sequences that still have some. */
static descent_code enrol(const session *with, descent_sequence *const *sequences, size_t n, size_t *unfinished,
                          descent_status *status)
{
    *unfinished = 0;
    for (size_t i = 0; i < n; i++) {
        size_t added;
        descent_code code = descent_sequence_state_code(sequences[i], status);
        if (code != DESCENT_OK) return code;
        if (descent_sequence_finished(sequences[i]) == descent_sequence_length(sequences[i])) continue;
        (*unfinished)++;
        code = descent_batch_add(with->batch, sequences[i], SIZE_MAX, &added, status);
        if (code != DESCENT_OK) return code;
    }
    return DESCENT_OK;
}

descent_code advance_all(const session *with, descent_sequence *const *sequences, size_t n, progress *bar,
                         descent_status *status)
{
    for (;;) {
        size_t unfinished;
        descent_step_report report;
        descent_code code = enrol(with, sequences, n, &unfinished, status);
        if (code != DESCENT_OK || !unfinished || interrupted()) return code;
        if (!descent_batch_rows(with->batch)) {
            *status = (descent_status){.code = DESCENT_LIMIT, .message = "the batch takes none of the tokens left to do"};
            return status->code;
        }
        code = descent_batch_step(with->batch, &report, status);
        if (code != DESCENT_OK) return code;
        if (bar) progress_advance(bar, report.rows);
    }
}

/* The texts that go on, their last chosen tokens appended. */
static descent_code collect(generation *texts, size_t n, descent_sequence **sequences, size_t *active, descent_status *status)
{
    *active = 0;
    for (size_t i = 0; i < n; i++) {
        generation *text = &texts[i];
        if (text->end != GENERATION_GOES_ON) continue;
        sequences[(*active)++] = text->sequence;
        /* After an interruption the token has been appended already. */
        if (descent_sequence_length(text->sequence) == text->prompt_count + text->count) continue;
        descent_code code = descent_sequence_append(text->sequence, &text->token, 1, status);
        if (code != DESCENT_OK) return code;
    }
    return DESCENT_OK;
}

static descent_code choose(const session *with, const descent_sampling *sampling, generation *text, const float *logits,
                           descent_status *status)
{
    const uint32_t *tokens = descent_sequence_tokens(text->sequence);
    size_t length = descent_sequence_length(text->sequence);
    descent_code code = descent_sample(sampling, with->tokenizer, logits, with->info->vocab, tokens, length, text->prompt_count,
                                       &text->token, status);
    if (code != DESCENT_OK) return code;
    text->count++;
    if (with->tokenizer && (int64_t)text->token == descent_tokenizer_describe(with->tokenizer)->eos)
        text->end = GENERATION_EOS;
    else if (text->count == text->limit)
        text->end = GENERATION_LENGTH;
    return DESCENT_OK;
}

static descent_code next_tokens(const session *with, const descent_sampling *sampling, generation *texts, size_t n,
                                descent_sequence **sequences, descent_reading *readings, float *logits, descent_status *status)
{
    size_t active;
    descent_code code = collect(texts, n, sequences, &active, status);
    if (code == DESCENT_OK) code = advance_all(with, sequences, active, NULL, status);
    if (code != DESCENT_OK || interrupted()) return code;
    for (size_t i = 0; i < active; i++)
        readings[i] = (descent_reading){.sequence = sequences[i], .position = descent_sequence_length(sequences[i]) - 1};
    code = descent_batch_logits(with->batch, readings, active, logits, status);
    for (size_t i = 0, row = 0; i < n && code == DESCENT_OK; i++)
        if (texts[i].end == GENERATION_GOES_ON)
            code = choose(with, sampling, &texts[i], logits + row++ * with->info->vocab, status);
    return code;
}

descent_code generate_next(const session *with, const descent_sampling *sampling, generation *texts, size_t n, float *logits,
                           descent_status *status)
{
    descent_sequence **sequences = calloc(n, sizeof *sequences);
    descent_reading *readings = calloc(n, sizeof *readings);
    descent_code code = DESCENT_NO_MEMORY;
    if (sequences && readings)
        code = next_tokens(with, sampling, texts, n, sequences, readings, logits, status);
    else
        *status = (descent_status){.code = code, .message = "no memory left"};
    free(sequences);
    free(readings);
    return code;
}
