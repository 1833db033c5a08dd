/* job.c: see job.h. Owns the jobs in flight and their ends.
 *
 * Threads: a transcript's `wake` runs on a scheduler's thread; it lists the job in the queue (job_queue.h). Everything else is
 * the loop's.
 */
#include "job.h"

#include "answer.h"
#include "entropy.h"
#include "reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITTEN_AT_ONCE = 512 }; /* tokens with their alternatives */
enum { SPARE_MOST = 64 << 10 };
enum { MOST_RESERVED = 128 }; /* tokens of a text that memory is there for before they come */
/* Of one request's traces: numbers in its answer, and numbers of states kept while they are in flight, which `chunk` rows are.
 */
static const uint64_t TRACE_MOST_NUMBERS = UINT64_C(1) << 20, TRACE_MOST_STATE_NUMBERS = UINT64_C(1) << 25;
static const int64_t SEED_MASK = (INT64_C(1) << 53) - 1; /* seeds made here survive a client whose numbers are doubles */

/* From a scheduler's thread. */
static void wake(void *user, bool at_once)
{
    job *j = user;
    if (job_queue_list(j->service->ready, j, at_once)) descent_scheduler_notify(j->request.model->scheduler);
}

/* ---- Opening ------------------------------------------------------------------------------------------------------ */

static int64_t random_bits(void)
{
    int64_t bits = 0;
    (void)entropy_take(&bits, sizeof bits);
    return bits;
}

static bool no_memory(api_error *error)
{
    error->no_retry = true;
    return api_fail(error, 500, NULL, NULL, "no memory for the request");
}

/* What of the text's descents is kept. A request's `trace` follows tokens generated: each was read from the state of the one
 * before it, so the prompt's last token is the first that is followed. */
static tracer_options trace_of(const generation_request *r, size_t p)
{
    size_t prompt_count = r->prompts[p].count, whole = prompt_count + request_limit_of(r, p);
    bool all = r->kind == REQUEST_TRACE;
    size_t first = all ? 0 : prompt_count - 1;
    return (tracer_options){.info = r->model->info,
                            .depth = request_deepest(r),
                            .first = first,
                            .count = whole - first,
                            .states = all,
                            .guesses = all && r->logprobs > 0 ? (size_t)r->logprobs : 0,
                            .track = r->track,
                            .n_track = all ? r->n_track : 0};
}

static bool traces(const generation_request *r)
{
    return r->trace || r->kind == REQUEST_TRACE;
}

static bool check_traces(const job *j, api_error *error)
{
    uint64_t numbers = 0, states = 0;
    for (size_t i = 0; traces(&j->request) && i < j->n_texts; i++) {
        uint64_t own = tracer_numbers(&j->texts[i].trace), kept = tracer_state_numbers(&j->texts[i].trace);
        numbers = own > UINT64_MAX - numbers ? UINT64_MAX : numbers + own;
        states = kept > UINT64_MAX - states ? UINT64_MAX : states + kept;
    }
    if (numbers > TRACE_MOST_NUMBERS)
        return api_fail(error, 400, "descent.trace", "trace_too_large",
                        "the traces asked for are up to %" PRIu64 " numbers; at most %" PRIu64
                        ": fewer tokens, texts or steps have room",
                        numbers, TRACE_MOST_NUMBERS);
    if (states > TRACE_MOST_STATE_NUMBERS)
        return api_fail(error, 400, "descent.steps", "trace_too_large",
                        "the states of the tokens traced at once are up to %" PRIu64 " numbers; at most %" PRIu64
                        ": fewer steps have room",
                        states, TRACE_MOST_STATE_NUMBERS);
    return true;
}

/* The memory of one job's chunks serves the next one's. */
static void leave_memory(job *j)
{
    json_text *spare = &j->service->spare;
    if (j->out.room <= SPARE_MOST && j->out.room > spare->room) {
        json_text left = j->out;
        j->out = *spare;
        *spare = left;
        json_text_clear(spare);
    }
    json_text_release(&j->out);
}

static void job_free(uv_handle_t *timer)
{
    job *j = timer->data;
    request_release(&j->request);
    json_text_release(&j->head);
    leave_memory(j);
    free(j->texts);
    free(j->candidates);
    free(j);
}

static job *job_make(exchange *x, generation_request *request)
{
    job *j = calloc(1, sizeof *j);
    uint32_t choices = request_texts_of_a_prompt(request);
    job_text *texts = calloc(request->n_prompts * choices, sizeof *texts);
    candidate *candidates = request->candidates ? calloc(request->n_prompts * choices, sizeof *candidates) : NULL;
    if (!j || !texts || (request->candidates && !candidates)) {
        free(j);
        free(texts);
        free(candidates);
        return NULL;
    }
    j->service = x->service;
    j->exchange = x;
    j->request = *request;
    *request = (generation_request){0};
    j->out = x->service->spare;
    x->service->spare = (json_text){0};
    j->created = time(NULL);
    j->arrived = http_arrived(x->request);
    j->choices = choices;
    j->texts = texts;
    j->candidates = candidates;
    j->n_texts = j->request.n_prompts * choices;
    (void)snprintf(j->id, sizeof j->id, "%s%016" PRIx64, answer_kind_of(j)->id_prefix, (uint64_t)random_bits());
    for (size_t i = 0; i < j->n_texts; i++) {
        job_text *t = &texts[i];
        t->job = j;
        t->prompt = (uint32_t)(i / choices);
        t->choice = (uint32_t)(i % choices);
        t->index = t->prompt * j->request.n + t->choice;
        if (traces(&j->request)) t->trace = trace_of(&j->request, t->prompt);
        if (candidates)
            candidates[i] = (candidate){.model = j->request.model->model, .first = j->request.prompts[t->prompt].count};
    }
    (void)uv_timer_init(j->service->loop, &j->timer);
    j->timer.data = j;
    j->next = j->service->jobs;
    if (j->next) j->next->previous = j;
    j->service->jobs = j;
    return j;
}

static bool ranks(const job *j)
{
    return j->choices > j->request.n || j->candidates;
}

/* DESCENT_OBSERVE_... of the texts' tokens. */
static int choose_flags_of(const generation_request *r)
{
    return r->candidates ? choose_flags(r->choose_by) : 0;
}

static int observes(const generation_request *r, const job_text *t)
{
    int flags = r->states ? DESCENT_OBSERVE_STATE | DESCENT_OBSERVE_FINAL : 0;
    return flags | (traces(r) ? tracer_flags(&t->trace) : 0) | choose_flags_of(r);
}

/* ---- Submitting --------------------------------------------------------------------------------------------------- */

static bool open_texts(job *j, api_error *error)
{
    const generation_request *r = &j->request;
    descent_status status;
    for (size_t i = 0; i < j->n_texts; i++) {
        job_text *t = &j->texts[i];
        if (r->states) t->states = states_create(r->model->info, &r->states->choice, r->states->most);
        if (r->states && !t->states) return no_memory(error);
        size_t limit = request_limit_of(r, t->prompt), at_once = limit < MOST_RESERVED ? limit : MOST_RESERVED;
        if (r->stream && !record_reserve(&t->record, at_once)) return no_memory(error);
        transcript_options options = {.request = r,
                                      .prompt = t->prompt,
                                      .live = r->stream,
                                      .at_once = at_once,
                                      .score = ranks(j),
                                      .trace = traces(r) ? &t->trace : NULL,
                                      .states = t->states,
                                      .candidate = choose_flags_of(r) ? &j->candidates[i] : NULL,
                                      .wake = wake,
                                      .user = j};
        if (transcript_open(&t->transcript, &options, &status) != DESCENT_OK) return api_fail_status(error, NULL, &status);
        t->opened = true;
    }
    return true;
}

static bool submit(job *j, job_text *t, api_error *error)
{
    const generation_request *r = &j->request;
    const prompt *p = &r->prompts[t->prompt];
    const service_options *with = j->service->options;
    descent_status status;
    descent_generation_options options = {
        .prompt = p->tokens,
        .prompt_count = p->count,
        .limit = request_limit_of(r, t->prompt),
        .sampling = r->sampling,
        .depth = r->depth,
        .motion = r->motion,
        .solver = r->solver,
        .exit = r->exit,
        .history = r->history,
        .draft_steps = r->draft_steps,
        .share_group = with->share_cache ? 0 : j->exchange->key_group,
        .read_prompt = transcript_reads_prompt(&t->transcript),
        .observe = observes(r, t),
        .observe_prompt = r->kind == REQUEST_TRACE || r->states,
        .reach = r->states ? &r->states->reach : NULL,
        .calls = {.chosen = transcript_chosen, .ended = transcript_ended, .observe = transcript_observe},
        .user = &t->transcript};
    if (r->exit_after_prompt) options.exit.first = (uint32_t)options.prompt_count;
    options.sampling.prompt = t->prompt;
    options.sampling.choice = t->choice;
    if (t->choice > 0) options.like = t[-(ptrdiff_t)t->choice].generation; /* may have ended meanwhile */
    if (descent_scheduler_submit(r->model->scheduler, &options, &t->generation, &status) != DESCENT_OK)
        return api_fail_status(error, "prompt", &status);
    t->submitted = true;
    j->n_submitted++;
    j->service->sequences++;
    return true;
}

static void cancel_all(job *j)
{
    for (size_t i = 0; i < j->n_texts; i++) {
        job_text *t = &j->texts[i];
        if (t->submitted && !t->ended) transcript_cancel(&t->transcript, t->generation);
    }
}

static void out_of_time(uv_timer_t *timer)
{
    job *j = timer->data;
    j->late = true;
    cancel_all(j); /* what there is by then is the answer */
}

static void start_timer(job *j)
{
    double seconds = j->service->options->request_seconds;
    double spent = (double)(uv_hrtime() - j->arrived) * 1e-9;
    double left = seconds > spent ? seconds - spent : 0;
    (void)uv_timer_start(&j->timer, out_of_time, (uint64_t)ceil(left * 1e3), 0);
}

static void describe(job *j)
{
    exchange *x = j->exchange;
    const generation_request *r = &j->request;
    char depth[16];
    uint16_t most = 0;
    for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++) most = r->depth.steps[k] > most ? r->depth.steps[k] : most;
    (void)snprintf(x->log_model, sizeof x->log_model, "%.*s", (int)sizeof x->log_model - 1, r->model_name);
    (void)snprintf(x->log_steps, sizeof x->log_steps, "%s", descent_depth_format(r->model->model, r->depth, depth));
    x->log.model = x->log_model;
    x->log.steps = x->log_steps;
    x->log.sequences = (uint32_t)j->n_texts;
    if (r->unknown_field) {
        (void)snprintf(x->log_ignored, sizeof x->log_ignored, "%.*s", (int)sizeof x->log_ignored - 1, r->unknown_field);
        x->log.ignored = x->log_ignored;
    }
    metrics_observe(x->service->metrics, METRICS_REQUEST_STEPS, (double)most);
}

/* ---- Ending ------------------------------------------------------------------------------------------------------- */

/* Where in a text's record the tokens begin that were generated. */
static size_t first_generated(const job_text *t)
{
    return transcript_reads_prompt(&t->transcript) ? t->job->request.prompts[t->prompt].count : 0;
}

/* Mean logprob of the tokens a text is made of; one of none comes last. */
static double mean_logprob(const job_text *t)
{
    const record *r = &t->record;
    size_t from = first_generated(t);
    double sum = 0;
    for (size_t i = from; i < r->n_tokens; i++) sum += (double)r->tokens[i].logprob;
    return r->n_tokens > from ? sum / (double)(r->n_tokens - from) : -INFINITY;
}

static const char *how_it_ended(const job *j)
{
    if (j->error.status) return "error";
    if (j->gone) return "cancelled";
    for (size_t i = 0; i < j->n_texts; i++)
        if (j->texts[i].report.end == DESCENT_END_CANCELLED) return "time";
    return answer_finish_reason(&j->texts[0]);
}

static void fill_log(job *j)
{
    exchange *x = j->exchange;
    log_request *log = &x->log;
    for (size_t i = 0; i < j->n_texts; i++) {
        const descent_generation_report *r = &j->texts[i].report;
        log->prompt_tokens += r->prompt_count;
        log->cached_tokens += r->reused;
        log->generated_tokens += r->generated;
        log->token_steps += r->row_steps;
        /* Texts run side by side: what the slowest took is what the request took. */
        log->compute_seconds = fmax(log->compute_seconds, r->prompt_seconds + r->generation_seconds);
        log->queue_seconds = fmax(log->queue_seconds, r->queue_seconds);
    }
    log->finish = how_it_ended(j);
}

/* The error event, where the status has gone out already. */
static void end_with_error(job *j)
{
    exchange *x = j->exchange;
    if (!j->streaming) {
        exchange_fail(x, &j->error);
        return;
    }
    json_text_clear(&j->out);
    exchange_fail_stream(x, &j->error);
}

static void end_well(job *j)
{
    exchange *x = j->exchange;
    json_text_clear(&j->out);
    if (j->request.states) {
        json_text_bytes(&j->out, j->texts[0].written.text, j->texts[0].written.bytes);
        j->out.failed |= j->texts[0].written.failed;
    } else if (j->streaming) {
        for (size_t i = 0; i < j->n_texts; i++)
            if (!j->texts[i].finished) answer_finish(j, &j->texts[i]);
        answer_end(j);
    } else {
        answer_whole(j);
    }
    if (j->out.failed) {
        (void)no_memory(&j->error);
        end_with_error(j);
    } else if (j->streaming) {
        http_stream_write(x->request, j->out.text, j->out.bytes);
        http_stream_end(x->request);
    } else if (j->request.states) {
        http_reply(x->request, 200, "application/octet-stream", j->out.text, j->out.bytes);
    } else {
        exchange_reply_text(x, 200, j->out.text, j->out.bytes);
    }
}

static void job_close(job *j)
{
    for (size_t i = 0; i < j->n_texts; i++) {
        if (j->texts[i].opened) transcript_close(&j->texts[i].transcript);
        if (j->candidates) candidate_release(&j->candidates[i]);
        states_destroy(j->texts[i].states);
        record_release(&j->texts[i].record);
        json_text_release(&j->texts[i].written);
    }
    if (j->next) j->next->previous = j->previous;
    *(j->previous ? &j->previous->next : &j->service->jobs) = j->next;
    job_queue_leave(j->service->ready, j);
    uv_close((uv_handle_t *)&j->timer, job_free);
}

/* ---- Writing what texts say ---------------------------------------------------------------------------------------- */

static void drain(job *j);

static bool is_read(const job *j)
{
    return j->streaming && !j->answered && !j->gone && j->exchange->request;
}

/* Of a stream's text the chunks go into `chunks`, everything else into t->written. */
static void write_record(job_text *t, json_text *chunks)
{
    if (t->states)
        answer_states(t);
    else if (t->job->streaming)
        answer_pieces(t, chunks);
    else
        answer_text(t);
}

/* A whole answer waits for its other texts, and may show the one that was chosen among the others once more; a stream's chunks
 * are about to go out. Where the time is over a text has no final
 * chunk yet: the job may still fail. */
static void text_written(job_text *t)
{
    job *j = t->job;
    if (!j->streaming) {
        if (!j->request.show_candidates) record_release(&t->record);
        return;
    }
    json_text_move(&j->out, &t->written);
    if (t->ended && is_read(j) && !j->error.status && !j->late) answer_finish(j, t);
}

static void write_aside(uv_work_t *work)
{
    job_text *t = work->data;
    write_record(t, &t->written);
}

static void on_written(uv_work_t *work, int status)
{
    (void)status; /* nobody cancels it */
    job_text *t = work->data;
    t->job->n_writing--;
    text_written(t);
    drain(t->job);
}

/* Logprobs and traces are megabytes, which take a quarter of a second to write: not on the loop's thread. */
static void write_text(job_text *t)
{
    const record *r = &t->record;
    bool is_long = t->states || r->traces || r->n_tokens + r->n_top > WRITTEN_AT_ONCE;
    t->writing.data = t;
    if (is_long && uv_queue_work(t->job->service->loop, &t->writing, write_aside, on_written) == 0) {
        t->job->n_writing++;
        return;
    }
    write_record(t, &t->job->out);
    text_written(t);
}

/* best_of: the best n of a prompt's texts become its choices, best first, the earlier one on a tie. */
static void write_best(job *j)
{
    for (size_t i = 0; i < j->n_texts; i++) {
        job_text *t = &j->texts[i];
        const job_text *first = t - t->choice;
        uint32_t better = 0;
        for (uint32_t k = 0; k < j->choices; k++)
            better += first[k].mean > t->mean || (first[k].mean == t->mean && k < t->choice);
        t->index = better < j->request.n ? t->prompt * j->request.n + better : UINT32_MAX;
        if (t->index != UINT32_MAX) write_text(t);
    }
}

/* Of a prompt's candidates the one its rule says is the best. */
static void write_chosen(job *j)
{
    for (size_t i = 0; i < j->n_texts; i++) {
        job_text *t = &j->texts[i];
        candidate *c = &j->candidates[i];
        const record *r = &t->record;
        c->text = r->text;
        c->bytes = r->bytes;
        c->tokens = r->n_tokens > first_generated(t) ? r->n_tokens - first_generated(t) : 0; /* its time ended in the prompt */
        c->logprob = t->mean;
        t->index = UINT32_MAX;
    }
    for (size_t p = 0; p < j->request.n_prompts; p++) {
        size_t best = choose_best(j->request.choose_by, j->candidates + p * j->choices, j->choices);
        job_text *t = &j->texts[p * j->choices + best];
        t->index = t->prompt;
        write_text(t);
    }
}

static void write_ranked(job *j)
{
    j->ranked = true;
    (j->candidates ? write_chosen : write_best)(j);
}

/* ---- The end of a job ------------------------------------------------------------------------------------------- */

/* A text that has begun ends well where its time does. A request none of whose texts ever had its turn has nothing to show. */
static void fail_where_none_began(job *j)
{
    bool began = !j->late;
    for (size_t i = 0; i < j->n_texts; i++)
        began |= j->texts[i].report.prompt_seconds + j->texts[i].report.generation_seconds > 0;
    if (began || j->error.status) return;
    (void)api_fail(&j->error, 504, NULL, "request_timeout",
                   "the request waited for its turn for all of the %g s it may take (--request-time): nothing was computed",
                   j->service->options->request_seconds);
    j->error.no_retry = true;
}

/* Where every generation has ended and is written: answers, if nobody has, and lets go of the exchange. A text's last word may
 * have listed the job while it was being drained: then it is settled when its turn comes. */
static void settle(job *j)
{
    exchange *x = j->exchange;
    if (j->n_ended < j->n_submitted || j->n_writing > 0 || job_queue_lists(j->service->ready, j)) return;
    fail_where_none_began(j);
    if (ranks(j) && !j->ranked && !j->error.status) write_ranked(j);
    if (j->n_writing > 0) return;
    fill_log(j);
    x->job = NULL;
    if (x->request && !j->answered && !j->gone) (j->error.status ? end_with_error : end_well)(j);
    exchange_settle(x);
    job_close(j);
}

void job_gone(job *j)
{
    j->gone = true;
    cancel_all(j);
}

/* ---- Taking what there is ----------------------------------------------------------------------------------------- */

/* From when the request came to its first token, whichever text's; and from token to token. */
static void count_times(job *j, job_text *t)
{
    metrics *m = j->service->metrics;
    const record *r = &t->record;
    if (r->n_times > 0 && !j->first_token) {
        uint64_t first = UINT64_MAX;
        for (size_t i = 0; i < j->n_texts; i++) {
            uint64_t own = j->texts[i].submitted ? transcript_first_time(&j->texts[i].transcript) : 0;
            if (own && own < first) first = own;
        }
        metrics_observe(m, METRICS_TIME_TO_FIRST_TOKEN_SECONDS, (double)(first - j->arrived) * 1e-9);
        j->first_token = true;
    }
    for (size_t i = 0; i < r->n_times; i++) {
        if (t->last_time) metrics_observe(m, METRICS_INTER_TOKEN_SECONDS, (double)(r->times[i] - t->last_time) * 1e-9);
        t->last_time = r->times[i];
    }
}

static void text_ended(job *j, job_text *t)
{
    const descent_status *own = &t->transcript.status;
    t->ended = true;
    t->report = t->transcript.report;
    j->n_ended++;
    j->service->sequences--;
    metrics_count_generation(j->service->metrics, &t->report);
    bool failed = own->code != DESCENT_OK || t->report.end == DESCENT_END_FAILED;
    if (!failed || j->error.status) return;
    (void)api_fail_status(&j->error, NULL, own->code != DESCENT_OK ? own : &t->report.status);
    cancel_all(j);
}

/* Of a stream what there is, of others all of it, once. */
static void take(job *j, job_text *t)
{
    record_clear(&t->record);
    bool ended = transcript_take(&t->transcript, &t->record);
    bool goes_out = is_read(j) && !j->error.status; /* what was said before a failure too */
    count_times(j, t);
    if (ended) text_ended(j, t);
    bool is_due = j->streaming ? goes_out : ended && !j->error.status;
    if (!is_due) return;
    if (ranks(j))
        t->mean = mean_logprob(t);
    else
        write_text(t);
}

/* True where something went to the client. */
static bool send_out(job *j)
{
    if (j->out.failed && !j->error.status) {
        (void)no_memory(&j->error);
        cancel_all(j);
    }
    bool sends = is_read(j) && j->out.bytes > 0;
    if (sends) http_stream_write(j->exchange->request, j->out.text, j->out.bytes);
    json_text_clear(&j->out);
    return sends;
}

/* A stream goes on where its long chunks are written: what is there by then comes behind them. */
static void take_all(job *j)
{
    for (size_t i = 0; i < j->n_texts && !(j->streaming && j->n_writing > 0); i++)
        if (j->texts[i].submitted && !j->texts[i].ended) take(j, &j->texts[i]);
}

static void drain(job *j)
{
    take_all(j);
    if (send_out(j)) job_queue_hold(j->service->ready, j);
    if (is_read(j)) http_stream_let_go(j->exchange->request);
    settle(j);
}

/* What a stream was held back from saying goes out before the error. A text that turns out to be over needs none: it has listed
 * the job, which is settled in its turn. */
static void end_now(job *j)
{
    if (j->streaming) {
        take_all(j);
        (void)send_out(j);
        if (j->n_ended == j->n_submitted) return;
    }
    if (!j->error.status) {
        (void)api_fail(&j->error, 503, NULL, "draining", "the server is ending");
        j->error.retry_after = 1;
    }
    if (!j->answered && !j->gone && j->exchange->request) {
        j->answered = true;
        end_with_error(j);
    }
    cancel_all(j);
}

void jobs_end_all(service *s)
{
    for (job *j = s->jobs; j; j = j->next) end_now(j);
}

/* ---- Starting ------------------------------------------------------------------------------------------------------ */

/* Starts a job, or refuses: then generations that were submitted already end by themselves, and nobody waits for them. */
static void job_start(job *j)
{
    exchange *x = j->exchange;
    api_error error = {0};
    bool fine = check_traces(j, &error) && open_texts(j, &error);
    describe(j);
    x->job = j;
    for (size_t i = 0; fine && i < j->n_texts; i++) fine = submit(j, &j->texts[i], &error);
    if (!fine) {
        j->error = error;
        cancel_all(j);
        settle(j);
        return;
    }
    start_timer(j);
    if (!j->request.stream) return;
    j->streaming = true;
    http_stream_start(x->request);
    answer_head(j);
    answer_opening(j);
    (void)send_out(j);
    if (job_queue_hold_begin(j->service->ready, j)) http_stream_hold(x->request);
}

static void read_request(reading *r)
{
    const service *s = r->service;
    (void)request_read(r->kind, r->body.text, r->body.bytes, &s->models, &s->options->limits, random_bits() & SEED_MASK,
                       &r->request, &r->error);
}

static void begin(reading *r)
{
    exchange *x = r->exchange;
    api_error error = {0};
    uint32_t choices = request_texts_of_a_prompt(&r->request);
    job *j = service_admit(x->service, r->request.n_prompts * choices, &error) ? job_make(x, &r->request) : NULL;
    if (j) {
        job_start(j);
        return;
    }
    if (!error.status) (void)no_memory(&error);
    exchange_fail(x, &error);
}

void endpoint_completions(exchange *x)
{
    reading_start(x, REQUEST_COMPLETION, read_request, begin);
}

void endpoint_chat(exchange *x)
{
    reading_start(x, REQUEST_CHAT, read_request, begin);
}

void endpoint_trace(exchange *x)
{
    reading_start(x, REQUEST_TRACE, read_request, begin);
}

void endpoint_states(exchange *x)
{
    reading_start(x, REQUEST_STATES, read_request, begin);
}

/* ---- Up and down -------------------------------------------------------------------------------------------------- */

int jobs_open(service *s)
{
    return job_queue_open(s->loop, s->options->stream_seconds, drain, &s->ready);
}

void jobs_close(service *s)
{
    job_queue_close(s->ready);
    s->ready = NULL;
}
