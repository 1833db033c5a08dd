/* scaling.c: see scaling.h. Owns the experiments in flight and their ends. Whatever happened, what there is to do then is done
 * in one function, turn.
 */
#include "scaling.h"

#include "entropy.h"
#include "reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS_AT_ONCE = 64, MOST_PENDING = 64 << 10 };
static const double EVENT_SECONDS = 0.5, REST_AFTER_SUMMING = 4; /* times what it took */

/* ---- Summing up -------------------------------------------------------------------------------------------------- */

static void turn(scaling *s);

static void sum_aside(uv_work_t *work)
{
    scaling_sum_up(work->data);
}

static void fail_for_memory(scaling *s)
{
    (void)api_fail(&s->error, 500, NULL, NULL, "no memory for the answer");
    s->error.no_retry = true;
    scaling_cancel(s);
}

static void send_event(scaling *s, bool with_rows, bool last)
{
    exchange *x = s->exchange;
    if (!s->streaming || s->answered || s->gone || !x->request) return;
    json_text_clear(&s->out);
    scaling_put_event(s, with_rows, last);
    if (s->out.failed)
        fail_for_memory(s);
    else
        http_stream_write(x->request, s->out.text, s->out.bytes);
    s->said = uv_hrtime();
}

static void on_summed(uv_work_t *work, int status)
{
    (void)status; /* nobody cancels it */
    scaling *s = work->data;
    s->working = false;
    s->summed |= s->final;
    if (s->summary.error.status && !s->error.status) {
        s->error = s->summary.error;
        scaling_cancel(s);
    }
    if (!s->error.status && !s->summed) send_event(s, true, false);
    turn(s);
}

static void sum_up(scaling *s, bool final)
{
    scaling_summary *sum = &s->summary;
    memcpy(sum->done, s->done, s->n_tasks * sizeof *sum->done);
    sum->n_done = s->n_done;
    sum->shared = s->shared;
    sum->elapsed = (double)(uv_hrtime() - s->began) * 1e-9;
    sum->joules = rapl_joules(&s->meter);
    sum->work.data = s;
    s->final = final;
    s->working = true;
    if (uv_queue_work(s->service->loop, &sum->work, sum_aside, on_summed) == 0) return;
    scaling_sum_up(s);
    on_summed(&sum->work, 0);
}

/* Rows of what there is by now, where somebody watches them come and has read those before. */
static void show(scaling *s)
{
    double since = (double)(uv_hrtime() - s->said) * 1e-9;
    const http_request *request = s->exchange->request;
    if (!s->streaming || s->working || s->n_done == s->summary.n_done) return;
    if (!request || http_stream_pending(request) > MOST_PENDING) return;
    if (s->summary.n_done > 0 && since < fmax(EVENT_SECONDS, REST_AFTER_SUMMING * s->summary.seconds)) return;
    sum_up(s, false);
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void free_closed(uv_handle_t *handle)
{
    scaling *s = handle->data;
    if (--s->handles > 0) return;
    request_release(&s->request);
    json_text_release(&s->out);
    json_text_release(&s->summary.rows);
    rapl_close(&s->meter);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->summary.done);
    free(s->measures);
    free(s->done);
    free(s->slots);
    free(s->tokens);
    free(s->seconds);
    free(s->joules);
    free(s);
}

static void close_scaling(scaling *s)
{
    if (s->next_scaling) s->next_scaling->previous_scaling = s->previous_scaling;
    *(s->previous_scaling ? &s->previous_scaling->next_scaling : &s->service->scalings) = s->next_scaling;
    s->service->sequences -= s->n_slots;
    uv_close((uv_handle_t *)&s->timer, free_closed);
    uv_close((uv_handle_t *)&s->wake, free_closed);
}

static void end_with_error(scaling *s)
{
    if (s->streaming)
        exchange_fail_stream(s->exchange, &s->error);
    else
        exchange_fail(s->exchange, &s->error);
}

static void end_well(scaling *s)
{
    exchange *x = s->exchange;
    if (s->streaming) {
        send_event(s, true, true);
    } else {
        scaling_put_answer(s);
        if (s->out.failed) fail_for_memory(s);
    }
    if (s->error.status)
        end_with_error(s);
    else if (s->streaming)
        http_stream_end(x->request);
    else
        exchange_reply_text(x, 200, s->out.text, s->out.bytes);
}

/* Where the time is over what was measured by then is the answer, if anything was. */
static void fail_where_nothing_is_there(scaling *s)
{
    if (!s->late || s->summary.n_rows > 0 || s->error.status) return;
    (void)api_fail(&s->error, 504, NULL, "request_timeout",
                   "of %zu measures none was made in all of the %g s the request may take (--request-time)", s->n_tasks,
                   s->service->options->request_seconds);
    s->error.no_retry = true;
}

static void fill_log(scaling *s)
{
    log_request *log = &s->exchange->log;
    log->prompt_tokens = s->log.prompt_tokens;
    log->cached_tokens = s->log.cached_tokens;
    log->generated_tokens = s->log.generated_tokens;
    log->token_steps = s->log.token_steps;
    log->compute_seconds = s->log.compute_seconds;
    log->queue_seconds = s->log.queue_seconds;
    log->finish = s->error.status ? "error" : s->gone ? "cancelled" : s->late ? "time" : "stop";
}

/* Nothing is running any more, and everything is summed up: answers, if nobody has, and lets go of the exchange. */
static void settle(scaling *s)
{
    exchange *x = s->exchange;
    fail_where_nothing_is_there(s);
    fill_log(s);
    x->scaling = NULL;
    if (x->request && !s->answered && !s->gone) (s->error.status ? end_with_error : end_well)(s);
    exchange_settle(x);
    close_scaling(s);
}

static void turn(scaling *s)
{
    scaling_take(s);
    scaling_begin(s);
    bool over = s->n_taken == 0 && (s->n_done == s->n_tasks || !scaling_goes_on(s));
    if (!over) {
        show(s);
        return;
    }
    if (s->working) return;
    bool to_be_summed = !s->summed && !s->error.status && !s->gone && !s->answered;
    if (to_be_summed)
        sum_up(s, true);
    else
        settle(s);
}

static void on_wake(uv_async_t *wake)
{
    turn(wake->data);
}

static void out_of_time(uv_timer_t *timer)
{
    scaling *s = timer->data;
    s->late = true;
    scaling_cancel(s);
    if (s->n_taken == 0) turn(s);
}

void scaling_gone(scaling *s)
{
    s->gone = true;
    atomic_store(&s->summary.unwanted, true);
    scaling_cancel(s);
    (void)uv_async_send(&s->wake);
}

void scalings_end_all(service *of)
{
    for (scaling *s = of->scalings; s; s = s->next_scaling) {
        if (!s->error.status) {
            (void)api_fail(&s->error, 503, NULL, "draining", "the server is ending");
            s->error.retry_after = 1;
        }
        if (!s->answered && !s->gone && s->exchange->request) {
            end_with_error(s);
            s->answered = true;
        }
        atomic_store(&s->summary.unwanted, true);
        scaling_cancel(s);
        (void)uv_async_send(&s->wake);
    }
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

/* Room for a prompt and its answer in each slot. */
static bool make_tokens(scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    size_t longest = 0;
    for (size_t i = 0; i < plan->n_questions; i++)
        if (plan->questions[i].prompt_count > longest) longest = plan->questions[i].prompt_count;
    size_t room = longest + SCALING_ANSWER_TOKENS;
    s->tokens = calloc(s->n_slots * room, sizeof *s->tokens);
    for (size_t i = 0; s->tokens && i < s->n_slots; i++) s->slots[i].tokens = s->tokens + i * room;
    return s->tokens != NULL;
}

static bool make_room(scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    s->n_inputs = plan->answers ? plan->n_questions : plan->n_inputs;
    s->n_tasks = plan->answers ? plan->n_questions * plan->n_depths : plan->n_inputs;
    s->measures = calloc(s->n_inputs * plan->n_depths, sizeof *s->measures);
    s->done = calloc(s->n_tasks, sizeof *s->done);
    s->summary.done = calloc(s->n_tasks, sizeof *s->summary.done);
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    for (size_t i = 0; s->slots && i < s->n_slots; i++) s->slots[i].of = s;
    s->seconds = calloc(plan->n_depths, sizeof *s->seconds);
    s->joules = calloc(plan->n_depths, sizeof *s->joules);
    return s->measures && s->done && s->summary.done && s->slots && s->seconds && s->joules &&
           (!plan->answers || make_tokens(s));
}

static scaling *make(exchange *x, generation_request *request, size_t slots)
{
    service *of = x->service;
    scaling *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    (void)entropy_take(&s->number, sizeof s->number);
    s->service = of;
    s->exchange = x;
    s->request = *request;
    *request = (generation_request){0};
    s->created = time(NULL);
    s->arrived = http_arrived(x->request);
    s->n_slots = slots;
    (void)snprintf(s->id, sizeof s->id, "scaling-%016" PRIx64, s->number);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)uv_timer_init(of->loop, &s->timer);
    (void)uv_async_init(of->loop, &s->wake, on_wake);
    s->timer.data = s->wake.data = s;
    s->handles = 2;
    (void)rapl_open(&s->meter, NULL);
    of->sequences += slots;
    s->next_scaling = of->scalings;
    if (s->next_scaling) s->next_scaling->previous_scaling = s;
    of->scalings = s;
    x->scaling = s;
    return s;
}

static void describe(scaling *s)
{
    exchange *x = s->exchange;
    const generation_request *r = &s->request;
    const scaling_plan *plan = r->scaling;
    char depth[16];
    size_t at = 0;
    uint16_t most = 0;
    for (size_t d = 0; d < plan->n_depths; d++)
        for (uint32_t k = 0; k < DESCENT_MAX_KINDS; k++)
            most = plan->depths[d].steps[k] > most ? plan->depths[d].steps[k] : most;
    for (size_t d = 0; d < plan->n_depths && at < sizeof x->log_steps; d++)
        at += (size_t)snprintf(x->log_steps + at, sizeof x->log_steps - at, "%s%s", d ? "," : "",
                               descent_depth_format(r->model->model, plan->depths[d], depth));
    (void)snprintf(x->log_model, sizeof x->log_model, "%.*s", (int)sizeof x->log_model - 1, r->model_name);
    x->log.model = x->log_model;
    x->log.steps = x->log_steps;
    x->log.sequences = (uint32_t)s->n_slots;
    if (r->unknown_field) {
        (void)snprintf(x->log_ignored, sizeof x->log_ignored, "%.*s", (int)sizeof x->log_ignored - 1, r->unknown_field);
        x->log.ignored = x->log_ignored;
    }
    metrics_observe(x->service->metrics, METRICS_REQUEST_STEPS, (double)most);
}

static void start(scaling *s)
{
    exchange *x = s->exchange;
    double spent = (double)(uv_hrtime() - s->arrived) * 1e-9, left = fmax(0, s->service->options->request_seconds - spent);
    s->began = s->said = uv_hrtime();
    describe(s);
    if (!make_room(s)) {
        fail_for_memory(s);
    }
    scaling_begin(s);
    if (!s->error.status) {
        (void)uv_timer_start(&s->timer, out_of_time, (uint64_t)ceil(left * 1e3), 0);
        if (s->request.stream) {
            s->streaming = true;
            http_stream_start(x->request);
            send_event(s, false, false);
        }
    }
    turn(s);
}

static void read_request(reading *r)
{
    const service *s = r->service;
    (void)request_read(REQUEST_SCALING, r->body.text, r->body.bytes, &s->models, &s->options->limits, 0, &r->request,
                       &r->error);
}

static void begin(reading *r)
{
    exchange *x = r->exchange;
    const scaling_plan *plan = r->request.scaling;
    api_error error = {0};
    size_t tasks = plan->answers ? plan->n_questions : plan->n_inputs, most = x->service->options->max_queue;
    size_t slots = tasks < TASKS_AT_ONCE ? tasks : TASKS_AT_ONCE;
    if (slots > most) slots = most;
    scaling *s = service_admit(x->service, slots, &error) ? make(x, &r->request, slots) : NULL;
    if (s)
        start(s);
    else if (error.status)
        exchange_fail(x, &error);
    else
        exchange_reply(x, 500, NULL);
}

void endpoint_scaling(exchange *x)
{
    reading_start(x, REQUEST_SCALING, read_request, begin);
}
