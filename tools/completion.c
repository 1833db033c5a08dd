/* completion.c: see completion.h. The stream: token -> text_stream (whole characters, no part of a stop string) -> stdout and
 * the buffer that is kept. */
#include "completion.h"

#include "generate.h"
#include "terminal.h"
#include "text_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The stream of text ----------------------------------------------------------------------------------------- */

typedef struct stream {
    const completion_options *options;
    text_stream *decoded; /* NULL where ids are written */
    stop_string *stops;   /* of it */
    text_buffer *text;    /* everything that came out */
    bool stopped;
    bool failed; /* memory ran out */
} stream;

static void take_text(stream *out, const char *bytes, size_t length)
{
    if (!text_append(out->text, bytes, length)) {
        out->failed = true;
        return;
    }
    if (!out->options->stream || length == 0) return;
    fwrite(bytes, 1, length, stdout);
    output_flush();
}

static void take_release(stream *out, descent_code code, const text_release *release)
{
    out->failed = out->failed || code != DESCENT_OK;
    if (out->failed) return;
    out->stopped = release->stopped;
    take_text(out, release->text, release->bytes);
}

static void take_token(stream *out, uint32_t token)
{
    if (out->decoded) {
        text_release release;
        take_release(out, text_stream_push(out->decoded, token, &release, NULL), &release);
    } else {
        char id[16];
        int length = snprintf(id, sizeof id, "%s%" PRIu32, out->text->length ? "," : "", token);
        take_text(out, id, (size_t)length);
    }
}

static void finish_stream(stream *out)
{
    text_release release;
    if (out->decoded && !out->failed) take_release(out, text_stream_finish(out->decoded, &release, NULL), &release);
}

static void close_stream(stream *out)
{
    text_stream_destroy(out->decoded);
    free(out->stops);
}

/* The prompt's text, but for half a character at its end, which goes on in what follows. */
static descent_code echo_text(const session *with, const uint32_t *prompt, size_t count, stream *out, descent_status *status)
{
    descent_decoder *decoder;
    descent_code code = descent_decoder_create(with->tokenizer, &decoder, status);
    if (code != DESCENT_OK) return code;
    for (size_t i = 0; i < count && !out->failed; i++) {
        size_t length = 0;
        const char *bytes = descent_decoder_push(decoder, prompt[i], &length);
        take_text(out, bytes, length);
    }
    descent_decoder_destroy(decoder);
    return DESCENT_OK;
}

static descent_code open_text(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                              stream *out, descent_status *status)
{
    out->stops = calloc(options->stop.count + 1, sizeof *out->stops);
    for (size_t i = 0; out->stops && i < options->stop.count; i++)
        out->stops[i] = (stop_string){(char *)options->stop.items[i], strlen(options->stop.items[i])};
    out->failed = out->failed || !out->stops;
    if (out->failed) return DESCENT_OK;
    descent_code code = text_stream_create(with->tokenizer, out->stops, options->stop.count, &out->decoded, status);
    if (code != DESCENT_OK) return code;
    text_stream_follow(out->decoded, prompt, count);
    return options->echo ? echo_text(with, prompt, count, out, status) : DESCENT_OK;
}

static descent_code open_stream(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                                text_buffer *text, stream *out, descent_status *status)
{
    *out = (stream){.options = options, .text = text};
    out->failed = !text_append(text, "", 0);
    if (!options->as_ids) return open_text(with, options, prompt, count, out, status);
    for (size_t i = 0; options->echo && i < count && !out->failed; i++) take_token(out, prompt[i]);
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
    descent_sequence_options how = {.depth = options->depth, .exit = with->exit, .no_sharing = options->trace};
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
    close_stream(&text);
    descent_sequence_destroy(sequence);
}

void completion_release(completion *of)
{
    text_buffer_release(&of->text);
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
