/* eval_match.c: exact match. An item is right when the token before the first EOS of the greedy continuation, at most
 * MOST_TOKENS long, is its answer. Many items are answered side by side, one token each a round. */
#include "eval.h"

#include "generate.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 60, MOST_BYTES = 64 << 20 };

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

/* The answer as a token, where one spells it: a token's own text may hold a separator that the answer does not. */
static int read_answer(const session *with, const char *shown, match_item *item)
{
    descent_status status;
    uint32_t *tokens = NULL;
    size_t count = 0;
    item->answer_token = -1;
    if (descent_tokenizer_encode(with->tokenizer, item->answer, strlen(item->answer), 0, &tokens, &count, &status) !=
        DESCENT_OK) {
        cli_error("%s, the answer: %s", shown, status.message);
        return EXIT_FAILURE;
    }
    if (count == 1) item->answer_token = tokens[0];
    descent_free(tokens);
    return EXIT_SUCCESS;
}

/* One line without its newline. `shown` names file and line in messages. */
static int read_item(const session *with, const char *shown, const char *line, size_t length, match_item *item)
{
    const char *tab = memchr(line, '\t', length);
    if (!tab) {
        cli_error("%s: expected a prompt, a tab and its answer, found no tab", shown);
        return EXIT_FAILURE;
    }
    size_t answer = length - (size_t)(tab + 1 - line);
    const char *equals = memchr(line, '=', (size_t)(tab - line));
    size_t prompt = (size_t)((equals ? equals + 1 : tab) - line);
    item->answer = calloc(answer + 1, 1);
    if (!item->answer) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    memcpy(item->answer, tab + 1, answer);
    int exit_code = session_encode(with, shown, line, prompt, 0, &item->prompt, &item->prompt_count);
    if (exit_code == EXIT_SUCCESS) exit_code = read_answer(with, shown, item);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    if (item->prompt_count && item->prompt_count <= with->info->context) return EXIT_SUCCESS;
    cli_error("%s: the prompt has %zu tokens, the model takes 1 to %u", shown, item->prompt_count, with->info->context);
    return EXIT_FAILURE;
}

static int read_lines(const session *with, const char *path, const text_buffer *text, match_set *set)
{
    size_t number = 1, lines = 1;
    for (size_t i = 0; i < text->length; i++) lines += text->bytes[i] == '\n';
    set->items = calloc(lines, sizeof *set->items);
    if (!set->items) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    for (const char *line = text->bytes, *end = line + text->length, *next; line < end; line = next, number++) {
        char shown[300];
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((newline ? newline : end) - line);
        next = line + length + 1;
        if (length && line[length - 1] == '\r') length--;
        if (!length) continue;
        snprintf(shown, sizeof shown, "%s, line %zu", path, number);
        int exit_code = read_item(with, shown, line, length, &set->items[set->count++]);
        if (exit_code != EXIT_SUCCESS) return exit_code;
    }
    if (set->count) return EXIT_SUCCESS;
    cli_error("%s: no line with a prompt and an answer", path);
    return EXIT_FAILURE;
}

int read_matches(const session *with, const char *path, match_set *set)
{
    text_buffer text;
    *set = (match_set){.items = NULL};
    int exit_code = read_text(path, MOST_BYTES, &text);
    if (exit_code == EXIT_SUCCESS) exit_code = read_lines(with, path, &text, set);
    text_buffer_release(&text);
    return exit_code;
}

void match_set_release(match_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        descent_free(set->items[i].prompt);
        free(set->items[i].answer);
    }
    free(set->items);
}

/* ---- Measuring -------------------------------------------------------------------------------------------------- */

/* Whether the text ended, and with the answer before its EOS. */
static bool is_right(const match_item *item, const generation *text, descent_decoder *decoder)
{
    if (text->end != GENERATION_EOS || text->count < 2) return false;
    /* EOS was chosen, not appended: the sequence ends with the token before it. */
    uint32_t last = descent_sequence_tokens(text->sequence)[descent_sequence_length(text->sequence) - 1];
    if ((int64_t)last == item->answer_token) return true;
    size_t length = 0, rest = 0, wanted = strlen(item->answer);
    const char *piece = descent_decoder_push(decoder, last, &length);
    bool same = piece && length == wanted && !memcmp(piece, item->answer, wanted);
    descent_decoder_finish(decoder, &rest);
    return same && !rest;
}

/* Answers `n` items, whose texts stand at their prompts, and counts the right ones. */
static descent_code answer(const session *with, const match_item *items, generation *texts, size_t n, descent_decoder *decoder,
                           float *logits, match_result *result, descent_status *status)
{
    descent_sampling greedy = descent_sampling_defaults();
    greedy.temperature = 0;
    for (size_t going = n; going && !interrupted();) {
        descent_code code = generate_next(with, &greedy, texts, n, logits, status);
        if (code != DESCENT_OK) return code;
        going = 0;
        for (size_t i = 0; i < n; i++) going += texts[i].end == GENERATION_GOES_ON;
    }
    for (size_t i = 0; i < n; i++) {
        result->right += is_right(&items[i], &texts[i], decoder);
        result->tokens += descent_sequence_finished(texts[i].sequence);
        result->token_steps += descent_sequence_steps_run(texts[i].sequence);
    }
    return DESCENT_OK;
}

static descent_code answer_group(const session *with, const match_item *items, size_t n, descent_depth depth,
                                 descent_decoder *decoder, generation *texts, float *logits, match_result *result,
                                 descent_status *status)
{
    descent_sequence_options options = {.depth = depth, .motion = with->motion, .exit = with->exit, .no_sharing = true};
    descent_code code = DESCENT_OK;
    for (size_t i = 0; i < n && code == DESCENT_OK; i++) {
        size_t room = generation_room(with, items[i].prompt_count);
        texts[i] = (generation){.prompt_count = items[i].prompt_count, .limit = room < MOST_TOKENS ? room : MOST_TOKENS};
        code = descent_sequence_create(with->cache, &options, &texts[i].sequence, status);
        if (code == DESCENT_OK)
            code = descent_sequence_append(texts[i].sequence, items[i].prompt, items[i].prompt_count, status);
    }
    if (code == DESCENT_OK) code = answer(with, items, texts, n, decoder, logits, result, status);
    for (size_t i = 0; i < n; i++) {
        descent_sequence_destroy(texts[i].sequence);
        texts[i].sequence = NULL;
    }
    return code;
}

/* A size that every item's text keeps within. */
static size_t longest_text(const session *with, const match_set *set)
{
    size_t longest = 0;
    for (size_t i = 0; i < set->count; i++)
        if (set->items[i].prompt_count > longest) longest = set->items[i].prompt_count;
    longest += MOST_TOKENS;
    return longest < with->info->context ? longest : with->info->context;
}

static int measure_all(const session *with, const match_set *set, const asked_depth *depths, size_t n, size_t most,
                       descent_decoder *decoder, generation *texts, float *logits, match_result *results)
{
    descent_status status;
    progress bar = progress_begin("exact match", "items", set->count * n);
    int exit_code = EXIT_SUCCESS;
    for (size_t d = 0; d < n && exit_code == EXIT_SUCCESS; d++) {
        results[d] = (match_result){.right = 0};
        for (size_t begin = 0, count; begin < set->count && exit_code == EXIT_SUCCESS; begin += count) {
            count = set->count - begin < most ? set->count - begin : most;
            descent_code code =
                answer_group(with, set->items + begin, count, depths[d].depth, decoder, texts, logits, &results[d], &status);
            if (code != DESCENT_OK)
                exit_code = EXIT_FAILURE;
            else if (interrupted())
                exit_code = EXIT_INTERRUPTED;
            progress_advance(&bar, count);
        }
    }
    progress_end(&bar);
    if (exit_code == EXIT_FAILURE) cli_error("%s", status.message);
    return exit_code;
}

int measure_match(const session *with, const match_set *set, const asked_depth *depths, size_t n, match_result *results)
{
    descent_status status = {.message = "no memory left"};
    descent_depth deepest = {{0}};
    for (size_t d = 0; d < n; d++)
        for (size_t k = 0; k < DESCENT_MAX_KINDS; k++)
            if (depths[d].depth.steps[k] > deepest.steps[k]) deepest.steps[k] = depths[d].depth.steps[k];
    size_t most = texts_side_by_side(with, SIZE_MAX, longest_text(with, set), deepest);
    descent_decoder *decoder = NULL;
    generation *texts = calloc(most, sizeof *texts);
    float *logits = calloc(most, with->info->vocab * sizeof *logits);
    int exit_code = EXIT_FAILURE;
    if (descent_tokenizer_describe(with->tokenizer)->eos < 0)
        cli_error("exact match needs an end-of-text token, and the tokenizer of model %s has none", with->info->name);
    else if (!texts || !logits || descent_decoder_create(with->tokenizer, &decoder, &status) != DESCENT_OK)
        cli_error("%s", status.message);
    else
        exit_code = measure_all(with, set, depths, n, most, decoder, texts, logits, results);
    if (decoder) descent_decoder_destroy(decoder);
    free(texts);
    free(logits);
    return exit_code;
}
