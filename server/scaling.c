/* scaling.c: see scaling.h. Owns the experiments in flight and their ends.
 *
 * Threads: swept, chosen and ended run on a scheduler's thread, with the experiment's lock where they touch what the loop does.
 * Whatever the loop then does is done in one function, turn.
 */
#include "scaling.h"

#include "reading.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS_AT_ONCE = 64 };
static const double EVENT_SECONDS = 0.5, REST_AFTER_SUMMING = 4; /* times what it took */

/* ---- On the scheduler's thread ----------------------------------------------------------------------------------- */

static void slot_ended(scaling_slot *slot)
{
    slot->ended = true;
    (void)uv_async_send(&slot->of->wake);
}

static void swept(void *user, const descent_sweep_result *result)
{
    scaling_slot *slot = user;
    scaling *s = slot->of;
    size_t n = s->request.scaling->n_depths;
    (void)pthread_mutex_lock(&s->lock);
    if (result->end == DESCENT_END_LENGTH) memcpy(s->measures + slot->task * n, result->measures, n * sizeof *s->measures);
    slot->report = (descent_generation_report){.end = result->end,
                                               .status = result->status,
                                               .row_steps = result->row_steps,
                                               .pauses = result->pauses,
                                               .queue_seconds = result->queue_seconds,
                                               .prompt_seconds = result->seconds};
    slot->shared = result->shared;
    slot_ended(slot);
    (void)pthread_mutex_unlock(&s->lock); /* the last touch */
}

static bool chosen(void *user, const descent_choice *choice)
{
    scaling_slot *slot = user;
    slot->chosen[0] = slot->chosen[1];
    slot->chosen[1] = choice->token;
    slot->n_chosen++;
    return true;
}

static void ended(void *user, const descent_generation_report *report)
{
    scaling_slot *slot = user;
    scaling *s = slot->of;
    (void)pthread_mutex_lock(&s->lock);
    slot->report = *report;
    slot_ended(slot);
    (void)pthread_mutex_unlock(&s->lock); /* the last touch */
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

size_t scaling_depth_at(const scaling_plan *plan, size_t place)
{
    size_t first = plan->options.reference < 0 ? 0 : (size_t)plan->options.reference;
    return place == 0 ? first : place <= first ? place - 1 : place;
}

static size_t depth_of_task(const scaling *s, size_t task)
{
    return scaling_depth_at(s->request.scaling, task / s->n_inputs);
}

/* Token-steps that a task counts for. */
static uint64_t steps_of_task(const scaling *s, size_t task)
{
    const scaling_plan *plan = s->request.scaling;
    const served_model *model = s->request.model;
    if (!plan->answers) return descent_sweep_steps(model->model, plan->depths, plan->n_depths, plan->inputs[task].count - 1);
    const question *q = &plan->questions[task % s->n_inputs];
    uint64_t tokens = q->prompt_count + scaling_answer_room(model->info, q) - 1;
    return descent_sweep_steps(model->model, &plan->depths[depth_of_task(s, task)], 1, tokens);
}

static uint64_t share_group(const scaling *s)
{
    return s->service->options->share_cache ? 0 : s->exchange->key_group;
}

/* Steps of tokens that may stop early are counted as they are made, so that none may come from somebody's pages. */
static uint64_t share_group_of_answer(const scaling *s, size_t task)
{
    bool counted = s->request.exit.criterion != DESCENT_EXIT_NONE;
    return counted ? s->number + task : share_group(s);
}

static descent_code submit_sweep(scaling *s, scaling_slot *slot, descent_status *status)
{
    const scaling_plan *plan = s->request.scaling;
    const scaling_input *input = &plan->inputs[slot->task];
    descent_sweep_options options = {
        .tokens = input->tokens,
        .count = input->count,
        .first = input->first,
        .depths = plan->depths,
        .n_depths = plan->n_depths,
        .how = {.motion = s->request.motion, .exit = s->request.exit, .share_group = share_group(s)},
        .energy = true,
        .convergence = true,
        .threshold = (float)plan->threshold,
        .experiment = s->number,
        .background = true,
        .done = swept,
        .user = slot,
    };
    if (s->request.exit_after_prompt && plan->n_questions > 0) options.how.exit.first = (uint32_t)input->first;
    return descent_scheduler_sweep(s->request.model->scheduler, &options, &slot->generation, status);
}

static descent_code submit_answer(scaling *s, scaling_slot *slot, descent_status *status)
{
    const scaling_plan *plan = s->request.scaling;
    const question *q = &plan->questions[slot->task % s->n_inputs];
    descent_generation_options options = {
        .prompt = q->prompt,
        .prompt_count = q->prompt_count,
        .limit = scaling_answer_room(s->request.model->info, q),
        .sampling = descent_sampling_defaults(),
        .depth = plan->depths[depth_of_task(s, slot->task)],
        .motion = s->request.motion,
        .exit = s->request.exit,
        .share_group = share_group_of_answer(s, slot->task),
        .background = true,
        .calls = {.chosen = chosen, .ended = ended},
        .user = slot,
    };
    options.sampling.temperature = 0;
    if (s->request.exit_after_prompt) options.exit.first = (uint32_t)q->prompt_count;
    return descent_scheduler_submit(s->request.model->scheduler, &options, &slot->generation, status);
}

static bool submit(scaling *s, scaling_slot *slot)
{
    descent_status status;
    *slot = (scaling_slot){.of = s, .task = s->next, .taken = true};
    descent_code code = (s->request.scaling->answers ? submit_answer : submit_sweep)(s, slot, &status);
    if (code != DESCENT_OK) {
        slot->taken = false;
        return api_fail_status(&s->error, NULL, &status);
    }
    s->next++;
    s->n_taken++;
    return true;
}

/* Where tokens stop early: the steps that were made, and of the multiply-adds of the depth the same share. */
static void take_steps_made(descent_measure *m, uint64_t steps)
{
    double share = (double)steps / (double)m->token_steps;
    m->token_steps = steps;
    m->cost.weights = (uint64_t)((double)m->cost.weights * share);
    m->cost.attention = (uint64_t)((double)m->cost.attention * share);
}

/* What a question was answered, and what it took: its measure at that depth. Loss and energy are not measured of answers. */
static void measure_answer(scaling *s, const scaling_slot *slot)
{
    const scaling_plan *plan = s->request.scaling;
    const descent_generation_report *report = &slot->report;
    size_t which = slot->task % s->n_inputs, d = depth_of_task(s, slot->task);
    const question *q = &plan->questions[which];
    size_t run = q->prompt_count + (slot->n_chosen ? slot->n_chosen - 1 : 0); /* the last one is not */
    descent_measure m = descent_measure_cost(&s->cost, plan->depths[d], run, slot->n_chosen);
    bool ends = report->end == DESCENT_END_EOS && slot->n_chosen >= 2;
    if (s->request.exit.criterion != DESCENT_EXIT_NONE) take_steps_made(&m, report->row_steps);
    m.code = report->end == DESCENT_END_FAILED ? report->status.code : DESCENT_OK;
    m.items = 1;
    m.right = ends && question_is_answered(q, s->request.model->tokenizer, slot->chosen[0]);
    m.predictions = 0;
    m.nats = m.energy = m.relative_change = NAN;
    s->measures[which * plan->n_depths + d] = m;
}

/* ---- Depths of answers, timed ------------------------------------------------------------------------------------ */

static void begin_depth(scaling *s)
{
    s->depth_began = uv_hrtime();
    s->depth_steps = descent_scheduler_describe(s->request.model->scheduler).row_steps;
    s->own_steps = 0;
    s->depth_joules = rapl_joules(&s->meter);
    s->timing = true;
}

/* Its seconds are known where nobody else's rows were stepped meanwhile. */
static void end_depth(scaling *s, size_t depth)
{
    uint64_t steps = descent_scheduler_describe(s->request.model->scheduler).row_steps - s->depth_steps;
    bool alone = steps == s->own_steps;
    if (!s->timing) return;
    s->timing = false;
    s->seconds[depth] = alone ? (double)(uv_hrtime() - s->depth_began) * 1e-9 : NAN;
    s->joules[depth] = alone ? rapl_joules(&s->meter) - s->depth_joules : NAN;
}

/* ---- Taking what has ended --------------------------------------------------------------------------------------- */

static void cancel_all(scaling *s)
{
    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; s->slots && i < s->n_slots; i++)
        if (s->slots[i].taken && !s->slots[i].ended) descent_generation_cancel(s->slots[i].generation);
    (void)pthread_mutex_unlock(&s->lock);
}

static void fail(scaling *s, const descent_status *status)
{
    if (s->error.status) return;
    (void)api_fail_status(&s->error, NULL, status);
    cancel_all(s);
}

static void count(scaling *s, scaling_slot *slot)
{
    descent_generation_report *report = &slot->report;
    const scaling_plan *plan = s->request.scaling;
    if (!plan->answers && report->row_steps > 0) report->prompt_count = plan->inputs[slot->task].count - 1;
    metrics_count_generation(s->service->metrics, report);
    s->log.prompt_tokens += report->prompt_count;
    s->log.cached_tokens += report->reused;
    s->log.generated_tokens += report->generated;
    s->log.token_steps += report->row_steps;
    s->log.compute_seconds = fmax(s->log.compute_seconds, report->prompt_seconds + report->generation_seconds);
    s->log.queue_seconds = fmax(s->log.queue_seconds, report->queue_seconds);
    s->own_steps += report->row_steps;
}

static void finish_task(scaling *s, scaling_slot *slot)
{
    const scaling_plan *plan = s->request.scaling;
    const descent_generation_report *report = &slot->report;
    slot->taken = false;
    s->n_taken--;
    count(s, slot);
    if (report->end == DESCENT_END_CANCELLED) return;
    bool diverged = plan->answers && report->status.code == DESCENT_DIVERGED;
    if (report->end == DESCENT_END_FAILED && !diverged) {
        fail(s, &report->status);
        return;
    }
    if (plan->answers)
        measure_answer(s, slot);
    else
        s->shared |= slot->shared;
    s->done[slot->task] = true;
    s->n_done++;
    s->steps_done += steps_of_task(s, slot->task);
}

static void take_ended(scaling *s)
{
    for (size_t i = 0; s->slots && i < s->n_slots; i++) {
        (void)pthread_mutex_lock(&s->lock);
        bool has_ended = s->slots[i].taken && s->slots[i].ended;
        (void)pthread_mutex_unlock(&s->lock);
        if (has_ended) finish_task(s, &s->slots[i]);
    }
}

static bool goes_on(const scaling *s)
{
    return !s->error.status && !s->gone && !s->late && !s->answered;
}

/* Tasks as long as there are slots; of answers those of one depth. */
static void begin_tasks(scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    for (size_t i = 0; i < s->n_slots && s->next < s->n_tasks && goes_on(s); i++) {
        if (s->slots[i].taken) continue;
        bool begins = plan->answers && s->next % s->n_inputs == 0;
        if (begins && s->n_taken > 0) return;
        if (begins && s->next > 0) end_depth(s, depth_of_task(s, s->next - 1));
        if (begins) begin_depth(s);
        if (!submit(s, &s->slots[i])) cancel_all(s);
    }
    if (plan->answers && s->n_done == s->n_tasks) end_depth(s, depth_of_task(s, s->n_tasks - 1));
}

/* ---- Summing up -------------------------------------------------------------------------------------------------- */

static void turn(scaling *s);

static void sum_aside(uv_work_t *work)
{
    scaling_sum_up(work->data);
}

static void send_event(scaling *s, bool with_rows, bool last)
{
    exchange *x = s->exchange;
    if (!s->streaming || s->answered || s->gone || !x->request) return;
    scaling_put_event(s, with_rows, last);
    if (!s->out.failed) http_stream_write(x->request, s->out.text, s->out.bytes);
    json_text_clear(&s->out);
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
        cancel_all(s);
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

/* Rows of what there is by now, where somebody watches them come. */
static void show(scaling *s)
{
    double since = (double)(uv_hrtime() - s->said) * 1e-9;
    if (!s->streaming || s->working || s->n_done == s->summary.n_done) return;
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
        http_stream_end(x->request);
        return;
    }
    scaling_put_answer(s);
    if (s->out.failed)
        exchange_reply(x, 500, NULL);
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
    take_ended(s);
    begin_tasks(s);
    bool over = s->n_taken == 0 && (s->next == s->n_tasks || !goes_on(s));
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
    cancel_all(s);
    if (s->n_taken == 0) turn(s);
}

void scaling_gone(scaling *s)
{
    s->gone = true;
    cancel_all(s);
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
        cancel_all(s);
        (void)uv_async_send(&s->wake);
    }
}

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

static bool make_room(scaling *s)
{
    const scaling_plan *plan = s->request.scaling;
    s->n_inputs = plan->answers ? plan->n_questions : plan->n_inputs;
    s->n_tasks = plan->answers ? plan->n_questions * plan->n_depths : plan->n_inputs;
    s->measures = calloc(s->n_inputs * plan->n_depths, sizeof *s->measures);
    s->done = calloc(s->n_tasks, sizeof *s->done);
    s->summary.done = calloc(s->n_tasks, sizeof *s->summary.done);
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    s->seconds = calloc(plan->n_depths, sizeof *s->seconds);
    s->joules = calloc(plan->n_depths, sizeof *s->joules);
    return s->measures && s->done && s->summary.done && s->slots && s->seconds && s->joules;
}

static scaling *make(exchange *x, generation_request *request, size_t slots)
{
    service *of = x->service;
    scaling *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    (void)uv_random(NULL, NULL, &s->number, sizeof s->number, 0, NULL);
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
    descent_status status;
    double spent = (double)(uv_hrtime() - s->arrived) * 1e-9, left = fmax(0, s->service->options->request_seconds - spent);
    s->began = s->said = uv_hrtime();
    describe(s);
    if (!make_room(s)) {
        (void)api_fail(&s->error, 500, NULL, NULL, "no memory for the request");
        s->error.no_retry = true;
    } else if (s->request.scaling->answers && descent_model_count(s->request.model->model, &s->cost, &status) != DESCENT_OK) {
        (void)api_fail_status(&s->error, NULL, &status);
    }
    begin_tasks(s);
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
