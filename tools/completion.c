/* completion.c: see completion.h. The stream: token -> decoder (whole characters) -> stop strings (nothing that may turn
 * out to be one is sent) -> stdout and the buffer that is kept. */
#include "completion.h"

#include "generate.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The stream of text ----------------------------------------------------------------------------------------- */

typedef struct stream {
    const completion_options *options;
    descent_decoder *decoder; /* NULL where ids are written */
    text_buffer *text;        /* everything decoded; ends before the stop string once one was found */
    size_t sent;              /* bytes of it that are out */
    bool stopped;
    bool failed; /* memory ran out */
} stream;

static void send(stream *out, size_t to)
{
    if (to <= out->sent) return;
    if (out->options->stream) {
        fwrite(out->text->bytes + out->sent, 1, to - out->sent, stdout);
        output_flush();
    }
    out->sent = to;
}

/* Where the earliest stop string begins that ends after `from`; SIZE_MAX where there is none. */
static size_t find_stop(const cli_list *stops, const text_buffer *text, size_t from)
{
    size_t earliest = SIZE_MAX;
    for (size_t i = 0; i < stops->count; i++) {
        size_t length = strlen(stops->items[i]);
        size_t start = from >= length ? from - length + 1 : 0;
        const char *found = memmem(text->bytes + start, text->length - start, stops->items[i], length);
        if (found && (size_t)(found - text->bytes) < earliest) earliest = (size_t)(found - text->bytes);
    }
    return earliest;
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held_back(const cli_list *stops, const text_buffer *text)
{
    size_t most = 0;
    for (size_t i = 0; i < stops->count; i++) {
        size_t length = strlen(stops->items[i]) - 1;
        if (length > text->length) length = text->length;
        while (length > most && memcmp(text->bytes + text->length - length, stops->items[i], length)) length--;
        if (length > most) most = length;
    }
    return most;
}

static void take_text(stream *out, const char *bytes, size_t length)
{
    size_t before = out->text->length;
    if (out->stopped || out->failed) return;
    if (!bytes || !text_append(out->text, bytes, length)) {
        out->failed = true;
        return;
    }
    size_t stop = find_stop(&out->options->stop, out->text, before);
    if (stop != SIZE_MAX) {
        out->stopped = true;
        out->text->length = stop;
        out->text->bytes[stop] = '\0';
        send(out, stop);
    } else {
        send(out, out->text->length - held_back(&out->options->stop, out->text));
    }
}

static void take_token(stream *out, uint32_t token)
{
    if (out->decoder) {
        size_t length = 0;
        const char *bytes = descent_decoder_push(out->decoder, token, &length);
        take_text(out, bytes, length);
    } else {
        char id[16];
        int length = snprintf(id, sizeof id, "%s%" PRIu32, out->text->length ? "," : "", token);
        take_text(out, id, (size_t)length);
    }
}

static void finish_stream(stream *out)
{
    if (out->decoder) {
        size_t length = 0;
        const char *bytes = descent_decoder_finish(out->decoder, &length);
        take_text(out, bytes, length);
    }
    send(out, out->text->length);
}

/* The decoder goes through the prompt too: what a token adds may depend on what came before it. */
static descent_code open_stream(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                                text_buffer *text, stream *out, descent_status *status)
{
    *out = (stream){.options = options, .text = text};
    out->failed = !text_append(text, "", 0);
    if (!options->as_ids) {
        descent_code code = descent_decoder_create(with->tokenizer, &out->decoder, status);
        if (code != DESCENT_OK) return code;
    }
    for (size_t i = 0; i < count && !out->failed; i++) {
        size_t length = 0;
        if (options->as_ids) {
            if (options->echo) take_token(out, prompt[i]);
            continue;
        }
        const char *bytes = descent_decoder_push(out->decoder, prompt[i], &length);
        out->failed = !bytes || (options->echo && !text_append(text, bytes, length));
    }
    send(out, text->length);
    return DESCENT_OK;
}

/* ---- The loop --------------------------------------------------------------------------------------------------- */

static completion_end end_of(const generation *text, const stream *out)
{
    if (text->end == GENERATION_EOS || out->stopped) return COMPLETION_STOP;
    return text->end == GENERATION_LENGTH ? COMPLETION_LENGTH : COMPLETION_INTERRUPTED;
}

static completion_end report(const descent_status *status)
{
    cli_error("%s", status->message);
    return COMPLETION_FAILED;
}

/* Generates until the text ends; everything it needs has been allocated. */
static completion_end generate(const session *with, const completion_options *options, generation *text, stream *out,
                               float *logits, completion *into)
{
    descent_status status;
    double started = seconds_now();
    while (text->end == GENERATION_GOES_ON && !out->stopped && !interrupted()) {
        descent_code code = generate_next(with, &options->sampling, text, 1, logits, &status);
        double now = seconds_now();
        if (code != DESCENT_OK) {
            finish_stream(out);
            return report(&status);
        }
        if (interrupted()) break;
        if (text->count == 1)
            into->prompt_seconds = now - started;
        else
            into->generation_seconds = now - started - into->prompt_seconds;
        if (text->end == GENERATION_EOS) break;
        into->tokens[into->count++] = text->token;
        take_token(out, text->token);
        if (out->failed || !output_flush()) break;
    }
    finish_stream(out);
    return out->failed ? report(&(descent_status){.message = "no memory left for the text"}) : end_of(text, out);
}

/* A sequence that holds the prompt. With a trace, its pages come from nobody, so that every step can be seen. */
static descent_code open_sequence(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                                  completion *into, descent_sequence **sequence, descent_status *status)
{
    descent_sequence_options how = {.depth = options->depth, .no_sharing = options->trace};
    descent_code code = descent_sequence_create(with->cache, &how, sequence, status);
    if (code == DESCENT_OK && options->trace) code = trace_begin(&into->steps, *sequence, count - 1, status);
    if (code == DESCENT_OK) code = descent_sequence_append(*sequence, prompt, count, status);
    return code;
}

void complete(const session *with, const completion_options *options, const uint32_t *prompt, size_t count, completion *out)
{
    descent_status status = {.message = "no memory left"};
    descent_sequence *sequence = NULL;
    stream text = {.options = options};
    size_t room = generation_room(with, count);
    size_t limit = options->most && options->most < room ? options->most : room;
    *out = (completion){.end = COMPLETION_FAILED, .prompt_count = count};
    out->tokens = calloc(limit, sizeof *out->tokens);
    float *logits = calloc(with->info->vocab, sizeof *logits);
    if (!out->tokens || !logits || open_stream(with, options, prompt, count, &out->text, &text, &status) != DESCENT_OK ||
        open_sequence(with, options, prompt, count, out, &sequence, &status) != DESCENT_OK) {
        report(&status);
    } else {
        out->reused = descent_sequence_reused(sequence);
        generation going = {.sequence = sequence, .prompt_count = count, .limit = limit};
        out->end = generate(with, options, &going, &text, logits, out);
        out->row_steps = descent_sequence_steps_run(sequence);
    }
    free(logits);
    if (text.decoder) descent_decoder_destroy(text.decoder);
    descent_sequence_destroy(sequence);
}

void completion_release(completion *of)
{
    text_release(&of->text);
    free(of->tokens);
    trace_release(&of->steps);
}

/* ---- Around it -------------------------------------------------------------------------------------------------- */

int completion_check_prompt(const session *with, size_t count)
{
    if (count == 0) {
        cli_error("the prompt is empty: model %s has no token to begin a text with, so at least one is needed",
                  with->info->name);
        return EXIT_FAILURE;
    }
    if (count > with->info->context) {
        cli_error("the prompt has %zu tokens, more than the %u of the context of model %s", count, with->info->context,
                  with->info->name);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

void completion_print_summary(const session *with, const completion_options *options, const completion *of)
{
    char depth[16];
    size_t computed = of->prompt_count - of->reused;
    size_t later = of->count > 1 ? of->count - 1 : 0; /* the first token belongs to the prompt's time */
    fprintf(stderr, "%s[T = %s, seed %" PRId64 " | prompt %zu tokens", terminal_style_on(stderr, STYLE_DIM),
            descent_depth_format(with->model, options->depth, depth), options->sampling.seed, of->prompt_count);
    if (of->reused) fprintf(stderr, ", %zu from the cache", of->reused);
    if (of->prompt_seconds > 0) fprintf(stderr, ", %.0f/s", (double)computed / of->prompt_seconds);
    fprintf(stderr, " | generated %zu", of->count);
    if (later && of->generation_seconds > 0) fprintf(stderr, ", %.0f/s", (double)later / of->generation_seconds);
    fprintf(stderr, " | %" PRIu64 " row steps]%s\n", of->row_steps, terminal_style_on(stderr, STYLE_PLAIN));
}
