/* completion.c: see completion.h. The stream: token -> text_stream (whole characters, no part of a stop string) -> stdout and
 * the buffer that is kept. */
#include "completion.h"

#include "generate.h"
#include "logprobs.h"
#include "terminal.h"
#include "text_stream.h"

#include <inttypes.h>
#include <math.h>
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
    size_t tokens;        /* of those generated, that did */
    bool quiet;           /* it is only kept */
    bool stopped;
    bool failed; /* memory ran out */
} stream;

static void take_text(stream *out, const char *bytes, size_t length)
{
    if (!text_append(out->text, bytes, length)) {
        out->failed = true;
        return;
    }
    if (out->quiet || length == 0) return;
    fwrite(bytes, 1, length, stdout);
    output_flush();
}

static void take_release(stream *out, descent_code code, const text_release *release)
{
    out->failed = out->failed || code != DESCENT_OK;
    if (out->failed) return;
    out->stopped = release->stopped;
    out->tokens += release->tokens;
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
        out->tokens++;
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
    *out = (stream){.options = options, .text = text, .quiet = !options->stream || options->candidates > 0};
    out->failed = !text_append(text, "", 0);
    if (!options->as_ids) return open_text(with, options, prompt, count, out, status);
    for (size_t i = 0; options->echo && i < count && !out->failed; i++) take_token(out, prompt[i]);
    out->tokens = 0;
    return DESCENT_OK;
}

/* ---- The generation ----------------------------------------------------------------------------------------------
 *
 * It runs on the scheduler's thread, and so do the callbacks, which write the text as it comes. This thread waits, to be there
 * for Ctrl-C. */

typedef struct writing {
    const session *with;
    const completion_options *options;
    stream text;
    completion *into;
    uint32_t choice;   /* which of the candidates */
    candidate *judged; /* NULL: no choosing */
    float *logprobs;   /* of the tokens chosen, EOS included; NULL: no choosing */
    size_t n_logprobs;
    descent_generation *running; /* NULL: it could not be submitted */
    descent_status status;       /* why */
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
    if (w->logprobs) w->logprobs[w->n_logprobs++] = logprob_of(choice->logits, w->with->info->vocab, choice->token);
    if (w->with->tokenizer && descent_tokenizer_describe(w->with->tokenizer)->eos == (int64_t)choice->token) return true;
    w->into->tokens[w->into->count++] = choice->token;
    take_token(&w->text, choice->token);
    return !w->text.failed && !w->text.stopped && output_flush() && !interrupted();
}

static void observed(void *user, const descent_observation *observation)
{
    writing *w = user;
    if (w->options->trace) trace_add(&w->into->steps, observation);
    if (w->judged) candidate_observe(w->judged, observation);
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
    if (!w->running) return report(&w->status);
    if (w->text.failed || (w->judged && w->judged->failed))
        return report(&(descent_status){.message = "no memory left for the text"});
    if (w->report.end == DESCENT_END_FAILED) return report(&w->report.status);
    if (w->report.end == DESCENT_END_EOS || w->text.stopped) return COMPLETION_STOP;
    return w->report.end == DESCENT_END_LENGTH ? COMPLETION_LENGTH : COMPLETION_INTERRUPTED;
}

/* Looks for Ctrl-C from time to time: a prompt may take long, and no callback comes before its end. The generation lives as
 * long as the lock is held, which its end needs. */
static void wait_for_end(writing *w)
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
        if (!w->ended && interrupted()) descent_generation_cancel(w->running);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

/* `like` has the same prompt and was begun before; NULL: none. */
static void begin(writing *w, const uint32_t *prompt, size_t count, size_t limit, descent_generation *like)
{
    const completion_options *o = w->options;
    descent_generation_options how = {
        .prompt = prompt,
        .prompt_count = count,
        .limit = limit,
        .sampling = o->sampling,
        .depth = o->depth,
        .motion = w->with->motion,
        .solver = w->with->solver,
        .exit = w->with->exit,
        .history = w->with->history,
        .draft_steps = o->draft_steps,
        .observe = (o->trace ? TRACE_OBSERVES : 0) | (w->judged ? choose_flags(o->choose_by) : 0),
        .like = like,
        .calls = {.chosen = chosen, .ended = ended, .observe = observed},
        .user = w,
    };
    how.sampling.choice = w->choice;
    w->into->steps.first = count - 1;
    if (descent_scheduler_submit(w->with->scheduler, &how, &w->running, &w->status) != DESCENT_OK) w->running = NULL;
}

static void end(writing *w)
{
    completion *done = w->into;
    if (w->running) wait_for_end(w);
    finish_stream(&w->text);
    done->end = end_of(w);
    done->reused = w->report.reused;
    done->row_steps = w->report.row_steps;
    done->drafted = w->report.drafted;
    done->accepted = w->report.accepted;
    done->prompt_seconds = w->report.queue_seconds + w->report.prompt_seconds;
    done->generation_seconds = w->report.generation_seconds;
}

/* Opens what a completion of at most `limit` tokens is written into. */
static descent_code open_writing(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                                 size_t limit, completion *into, writing *w, descent_status *status)
{
    *w = (writing){.with = with, .options = options, .into = into};
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    *into = (completion){.end = COMPLETION_FAILED, .prompt_count = count};
    *status = (descent_status){.code = DESCENT_NO_MEMORY, .message = "no memory left"};
    into->tokens = calloc(limit, sizeof *into->tokens);
    if (!into->tokens) return DESCENT_NO_MEMORY;
    return open_stream(with, options, prompt, count, &into->text, &w->text, status);
}

static void complete_one(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                         size_t limit, completion *out)
{
    writing w;
    descent_status status;
    if (open_writing(with, options, prompt, count, limit, out, &w, &status) != DESCENT_OK) {
        report(&status);
    } else {
        begin(&w, prompt, count, limit, NULL);
        end(&w);
    }
    close_stream(&w.text);
}

/* ---- Several, of which one is chosen ----------------------------------------------------------------------------- */

typedef struct field { /* [n] of each */
    size_t n;
    writing *writings;
    completion *completions;
    candidate *candidates;
    double *scores;
} field;

static bool open_candidate(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                           size_t limit, field *f, size_t i)
{
    writing *w = &f->writings[i];
    descent_status status;
    f->candidates[i] = (candidate){.model = with->model, .first = count};
    bool opened = open_writing(with, options, prompt, count, limit, &f->completions[i], w, &status) == DESCENT_OK;
    w->choice = (uint32_t)i;
    w->judged = &f->candidates[i];
    w->logprobs = calloc(limit, sizeof *w->logprobs);
    if (opened && w->logprobs) return true;
    report(&status);
    return false;
}

/* What the rules look at, of a text that has ended. */
static void describe_candidate(writing *w)
{
    const completion *done = w->into;
    candidate *c = w->judged;
    c->text = done->text.bytes;
    c->bytes = done->text.length;
    c->tokens = w->text.tokens + (w->report.end == DESCENT_END_EOS);
    double sum = 0;
    for (size_t i = 0; i < c->tokens; i++) sum += (double)w->logprobs[i];
    c->logprob = c->tokens > 0 ? sum / (double)c->tokens : -INFINITY;
}

/* The chosen one becomes *out, and is written where texts are streamed. */
static void give_best(const completion_options *options, field *f, completion *out)
{
    uint64_t row_steps = 0;
    for (size_t i = 0; i < f->n; i++) {
        describe_candidate(&f->writings[i]);
        row_steps += f->completions[i].row_steps;
    }
    size_t best = choose_best(options->choose_by, f->candidates, f->n);
    for (size_t i = 0; i < f->n; i++) f->scores[i] = f->candidates[i].score;
    *out = f->completions[best];
    f->completions[best] = (completion){.end = COMPLETION_FAILED};
    out->row_steps = row_steps;
    out->chosen = best;
    out->scores = f->scores;
    f->scores = NULL;
    if (!options->stream || out->text.length == 0) return;
    fwrite(out->text.bytes, 1, out->text.length, stdout);
    output_flush();
}

static void close_field(field *f)
{
    for (size_t i = 0; f->writings && f->completions && f->candidates && i < f->n; i++) {
        close_stream(&f->writings[i].text);
        free(f->writings[i].logprobs);
        candidate_release(&f->candidates[i]);
        completion_release(&f->completions[i]);
    }
    free(f->writings);
    free(f->completions);
    free(f->candidates);
    free(f->scores);
}

static void complete_chosen(const session *with, const completion_options *options, const uint32_t *prompt, size_t count,
                            size_t limit, completion *out)
{
    size_t n = options->candidates;
    field f = {.n = n,
               .writings = calloc(n, sizeof *f.writings),
               .completions = calloc(n, sizeof *f.completions),
               .candidates = calloc(n, sizeof *f.candidates),
               .scores = calloc(n, sizeof *f.scores)};
    *out = (completion){.end = COMPLETION_FAILED, .prompt_count = count};
    bool opened = f.writings && f.completions && f.candidates && f.scores;
    if (!opened) report(&(descent_status){.message = "no memory left"});
    for (size_t i = 0; opened && i < n; i++) opened = open_candidate(with, options, prompt, count, limit, &f, i);
    bool fine = opened;
    if (opened) {
        for (size_t i = 0; i < n; i++) begin(&f.writings[i], prompt, count, limit, i > 0 ? f.writings[0].running : NULL);
        for (size_t i = 0; i < n; i++) end(&f.writings[i]);
        for (size_t i = 0; i < n; i++) fine = fine && f.completions[i].end != COMPLETION_FAILED;
    }
    if (fine) give_best(options, &f, out);
    close_field(&f);
}

void complete(const session *with, const completion_options *options, const uint32_t *prompt, size_t count, completion *out)
{
    size_t room = generation_room(with, count);
    size_t limit = options->most && options->most < room ? options->most : room;
    (options->candidates ? complete_chosen : complete_one)(with, options, prompt, count, limit, out);
}

void completion_release(completion *of)
{
    text_buffer_release(&of->text);
    free(of->tokens);
    free(of->scores);
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
    if (of->scores)
        fprintf(stderr, " | candidate %zu of %u by %s, %.6g", of->chosen, options->candidates,
                choose_rule_names[options->choose_by], of->scores[of->chosen]);
    fprintf(stderr, " | %" PRIu64 " row steps]%s\n", of->row_steps, terminal_style_on(stderr, STYLE_PLAIN));
}
