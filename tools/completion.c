/* completion.c: see completion.h. The stream: token -> text_stream (whole characters, no part of a stop string) -> stdout and
 * the buffer that is kept. */
#include "completion.h"

#include "generate.h"
#include "terminal.h"
#include "text_stream.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* ---- The generation ----------------------------------------------------------------------------------------------
 *
 * It runs on the scheduler's thread, and so do the callbacks, which write the text as it comes. This thread waits, to be there
 * for Ctrl-C. */

typedef struct writing {
    const session *with;
    const completion_options *options;
    stream *out;
    completion *into;
    descent_generation_report report;
    bool hears_pipe;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended; /* under the lock */
} writing;

/* The scheduler's thread has the process's signals off, but that of a reader who leaves goes to whoever writes. */
static void hear_pipe(writing *w)
{
    sigset_t pipe;
    if (w->hears_pipe) return;
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    (void)pthread_sigmask(SIG_UNBLOCK, &pipe, NULL);
    w->hears_pipe = true;
}

static bool chosen(void *user, const descent_choice *choice)
{
    writing *w = user;
    hear_pipe(w);
    if (w->with->tokenizer && descent_tokenizer_describe(w->with->tokenizer)->eos == (int64_t)choice->token) return true;
    w->into->tokens[w->into->count++] = choice->token;
    take_token(w->out, choice->token);
    return !w->out->failed && !w->out->stopped && output_flush() && !interrupted();
}

static void observed(void *user, const descent_observation *observation)
{
    writing *w = user;
    trace_add(&w->into->steps, observation);
}

static void ended(void *user, const descent_generation_report *report)
{
    writing *w = user;
    (void)pthread_mutex_lock(&w->lock);
    w->report = *report;
    w->ended = true;
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

static completion_end report(const descent_status *status)
{
    cli_error("%s", status->message);
    return COMPLETION_FAILED;
}

static completion_end end_of(const writing *w)
{
    if (w->out->failed) return report(&(descent_status){.message = "no memory left for the text"});
    if (w->report.end == DESCENT_END_FAILED) return report(&w->report.status);
    if (w->report.end == DESCENT_END_EOS || w->out->stopped) return COMPLETION_STOP;
    return w->report.end == DESCENT_END_LENGTH ? COMPLETION_LENGTH : COMPLETION_INTERRUPTED;
}

/* Looks for Ctrl-C from time to time: a prompt may take long, and no callback comes before its end. The generation lives as
 * long as the lock is held, which its end needs. */
static void wait_for_end(writing *w, descent_generation *running)
{
    const long between_looks = 50 * 1000 * 1000; /* nanoseconds */
    (void)pthread_mutex_lock(&w->lock);
    while (!w->ended) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += between_looks;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&w->changed, &w->lock, &until);
        if (!w->ended && interrupted()) descent_generation_cancel(running);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

static completion_end generate(writing *w, const uint32_t *prompt, size_t count, size_t limit)
{
    bool traced = w->options->trace;
    descent_generation *running;
    descent_status status;
    descent_generation_options how = {
        .prompt = prompt,
        .prompt_count = count,
        .limit = limit,
        .sampling = w->options->sampling,
        .depth = w->options->depth,
        .motion = w->with->motion,
        .exit = w->with->exit,
        .draft_steps = w->options->draft_steps,
        .observe = traced ? TRACE_OBSERVES : 0,
        .calls = {.chosen = chosen, .ended = ended, .observe = traced ? observed : NULL},
        .user = w,
    };
    w->into->steps.first = count - 1;
    descent_code code = descent_scheduler_submit(w->with->scheduler, &how, &running, &status);
    if (code == DESCENT_OK) wait_for_end(w, running);
    finish_stream(w->out);
    return code == DESCENT_OK ? end_of(w) : report(&status);
}

void complete(const session *with, const completion_options *options, const uint32_t *prompt, size_t count, completion *out)
{
    descent_status status = {.message = "no memory left"};
    stream text = {.options = options};
    size_t room = generation_room(with, count);
    size_t limit = options->most && options->most < room ? options->most : room;
    *out = (completion){.end = COMPLETION_FAILED, .prompt_count = count};
    out->tokens = calloc(limit, sizeof *out->tokens);
    if (!out->tokens || open_stream(with, options, prompt, count, &out->text, &text, &status) != DESCENT_OK) {
        report(&status);
    } else {
        writing w = {.with = with,
                     .options = options,
                     .out = &text,
                     .into = out,
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER};
        out->end = generate(&w, prompt, count, limit);
        out->reused = w.report.reused;
        out->row_steps = w.report.row_steps;
        out->drafted = w.report.drafted;
        out->accepted = w.report.accepted;
        out->prompt_seconds = w.report.queue_seconds + w.report.prompt_seconds;
        out->generation_seconds = w.report.generation_seconds;
    }
    close_stream(&text);
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
    if (of->drafted) fprintf(stderr, " | drafted %zu, accepted %zu", of->drafted, of->accepted);
    fprintf(stderr, " | %" PRIu64 " row steps]%s\n", of->row_steps, terminal_style_on(stderr, STYLE_PLAIN));
}
