/* scaling_tasks.c: an experiment's tasks on their way through a scheduler: begun, cancelled, taken when they have ended.
 *
 * Questions that are answered come in groups, of one depth each, as many as there are slots: first all are answered, which is
 * timed, and then prompt and answer are swept as one text, of which energies, steps and multiply-adds are measured.
 *
 * Threads: swept, chosen and ended run on the scheduler's thread, under the experiment's lock where they touch what the loop
 * does.
 */
#include "scaling.h"

#include <math.h>
#include <string.h>

/* ---- On the scheduler's thread ----------------------------------------------------------------------------------- */

static void slot_ended(scaling_slot *slot)
{
    slot->ended = true;
    (void)uv_async_send(&slot->of->wake);
}

static void swept(void *user, const descent_sweep_result *result)
{
    scaling_slot *slot = user;
    pthread_mutex_t *lock = &slot->of->lock;
    (void)pthread_mutex_lock(lock);
    if (result->end == DESCENT_END_LENGTH) memcpy(slot->measures, result->measures, result->n_depths * sizeof *slot->measures);
    slot->report = (descent_generation_report){.end = result->end,
                                               .status = result->status,
                                               .row_steps = result->row_steps,
                                               .exit_cost = result->exit_cost,
                                               .pauses = result->pauses,
                                               .queue_seconds = result->queue_seconds,
                                               .prompt_seconds = result->seconds};
    slot->shared = result->shared;
    slot_ended(slot);
    (void)pthread_mutex_unlock(lock); /* the last touch */
}

static bool chosen(void *user, const descent_choice *choice)
{
    scaling_slot *slot = user;
    slot->tokens[slot->prompt_count + slot->n_chosen++] = choice->token;
    return true;
}

static void ended(void *user, const descent_generation_report *report)
{
    scaling_slot *slot = user;
    pthread_mutex_t *lock = &slot->of->lock;
    (void)pthread_mutex_lock(lock);
    slot->report = *report;
    slot_ended(slot);
    (void)pthread_mutex_unlock(lock); /* the last touch */
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

static const question *question_of_task(const scaling *s, size_t task)
{
    return &s->request.scaling->questions[task % s->n_inputs];
}

static uint64_t steps_of_task(const scaling *s, size_t task)
{
    const scaling_plan *plan = s->request.scaling;
    const served_model *model = s->request.model;
    if (!plan->answers)
        return descent_sweep_steps(model->model, plan->depths, plan->n_depths, &s->request.history,
                                   plan->inputs[task].count - 1);
    return scaling_answer_steps(model, question_of_task(s, task), plan->depths[depth_of_task(s, task)], &s->request.history);
}

static uint64_t share_group(const scaling *s)
{
    return s->service->options->share_cache ? 0 : s->exchange->key_group;
}

/* What all of an experiment's sweeps have in common. */
static descent_sweep_options sweep_of(const scaling *s, scaling_slot *slot, const uint32_t *tokens, size_t count, size_t first)
{
    const scaling_plan *plan = s->request.scaling;
    descent_sweep_options options = {
        .tokens = tokens,
        .count = count,
        .first = first,
        .depths = plan->depths,
        .n_depths = plan->n_depths,
        .how = {.motion = s->request.motion,
                .solver = s->request.solver,
                .exit = s->request.exit,
                .history = s->request.history,
                .share_group = share_group(s)},
        .energy = true,
        .convergence = true,
        .threshold = (float)plan->threshold,
        .experiment = s->number,
        .background = true,
        .done = swept,
        .user = slot,
    };
    if (s->request.exit_after_prompt && plan->n_questions > 0) options.how.exit.first = (uint32_t)first;
    return options;
}

static descent_code begin_sweep(scaling *s, scaling_slot *slot, descent_status *status)
{
    const scaling_plan *plan = s->request.scaling;
    const scaling_input *input = &plan->inputs[slot->task];
    descent_sweep_options options = sweep_of(s, slot, input->tokens, input->count, input->first);
    slot->measures = s->measures + slot->task * plan->n_depths;
    return descent_scheduler_sweep(s->request.model->scheduler, &options, &slot->generation, status);
}

static descent_code begin_answer(scaling *s, scaling_slot *slot, descent_status *status)
{
    const scaling_plan *plan = s->request.scaling;
    const question *q = question_of_task(s, slot->task);
    descent_generation_options options = {
        .prompt = q->prompt,
        .prompt_count = q->prompt_count,
        .limit = scaling_answer_room(s->request.model->info, q),
        .sampling = descent_sampling_defaults(),
        .depth = plan->depths[depth_of_task(s, slot->task)],
        .motion = s->request.motion,
        .solver = s->request.solver,
        .exit = s->request.exit,
        .history = s->request.history,
        .share_group = share_group(s),
        .background = true,
        .calls = {.chosen = chosen, .ended = ended},
        .user = slot,
    };
    options.sampling.temperature = 0;
    if (s->request.exit_after_prompt) options.exit.first = (uint32_t)q->prompt_count;
    slot->prompt_count = q->prompt_count;
    slot->n_chosen = 0;
    memcpy(slot->tokens, q->prompt, q->prompt_count * sizeof *q->prompt);
    return descent_scheduler_submit(s->request.model->scheduler, &options, &slot->generation, status);
}

/* Prompt and answer as one text. One that ended before it had chosen anything is followed by some token: nothing is read of how
 * well it is predicted. */
static descent_code begin_sweep_of_answer(scaling *s, scaling_slot *slot, descent_status *status)
{
    const scaling_plan *plan = s->request.scaling;
    size_t d = depth_of_task(s, slot->task), count = slot->prompt_count + slot->n_chosen;
    if (slot->n_chosen == 0) slot->tokens[count++] = 0;
    descent_sweep_options options = sweep_of(s, slot, slot->tokens, count, slot->prompt_count);
    options.depths = &plan->depths[d];
    options.n_depths = 1;
    slot->measures = s->measures + (slot->task % s->n_inputs) * plan->n_depths + d;
    return descent_scheduler_sweep(s->request.model->scheduler, &options, &slot->generation, status);
}

static bool begin(scaling *s, scaling_slot *slot, descent_code (*how)(scaling *s, scaling_slot *slot, descent_status *status))
{
    descent_status status;
    slot->ended = false;
    if (how(s, slot, &status) != DESCENT_OK) {
        (void)api_fail_status(&s->error, NULL, &status);
        scaling_cancel(s);
        return false;
    }
    slot->taken = true;
    s->n_taken++;
    return true;
}

/* ---- The time that answers take ----------------------------------------------------------------------------------- */

static void begin_timing(scaling *s)
{
    s->timed_from = uv_hrtime();
    s->timed_steps = descent_scheduler_describe(s->request.model->scheduler).row_steps;
    s->own_steps = 0;
    s->timed_joules = rapl_joules(&s->meter);
}

/* It is known where nobody else's rows were stepped meanwhile. */
static void end_timing(scaling *s, size_t depth)
{
    uint64_t steps = descent_scheduler_describe(s->request.model->scheduler).row_steps - s->timed_steps;
    bool alone = steps == s->own_steps;
    s->seconds[depth] += alone ? (double)(uv_hrtime() - s->timed_from) * 1e-9 : NAN;
    s->joules[depth] += alone ? rapl_joules(&s->meter) - s->timed_joules : NAN;
}

/* ---- Beginning --------------------------------------------------------------------------------------------------- */

bool scaling_goes_on(const scaling *s)
{
    return !s->error.status && !s->gone && !s->late && !s->answered;
}

static void begin_sweeps(scaling *s)
{
    for (size_t i = 0; i < s->n_slots && s->next < s->n_tasks; i++) {
        scaling_slot *slot = &s->slots[i];
        if (slot->taken) continue;
        slot->task = s->next;
        if (!begin(s, slot, begin_sweep)) return;
        s->next++;
    }
}

static void begin_group(scaling *s)
{
    size_t depth = s->next / s->n_inputs;
    if (s->next == s->n_tasks) return;
    begin_timing(s);
    s->answering = true;
    for (size_t i = 0; i < s->n_slots && s->next < s->n_tasks && s->next / s->n_inputs == depth; i++) {
        s->slots[i].task = s->next;
        if (!begin(s, &s->slots[i], begin_answer)) return;
        s->next++;
    }
}

static void begin_sweeps_of_group(scaling *s)
{
    s->answering = false;
    for (size_t i = 0; i < s->n_slots; i++) {
        scaling_slot *slot = &s->slots[i];
        if (!slot->holds) continue;
        slot->holds = false;
        if (!begin(s, slot, begin_sweep_of_answer)) return;
    }
}

void scaling_begin(scaling *s)
{
    if (!scaling_goes_on(s)) return;
    if (!s->request.scaling->answers) {
        begin_sweeps(s);
    } else if (s->n_taken == 0 && s->answering) {
        end_timing(s, depth_of_task(s, s->next - 1));
        begin_sweeps_of_group(s);
    } else if (s->n_taken == 0) {
        begin_group(s);
    }
}

void scaling_cancel(scaling *s)
{
    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; s->slots && i < s->n_slots; i++)
        if (s->slots[i].taken && !s->slots[i].ended) descent_generation_cancel(s->slots[i].generation);
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- Taking what has ended --------------------------------------------------------------------------------------- */

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
    s->exit_cost.readings += report->exit_cost.readings;
    s->exit_cost.energies += report->exit_cost.energies;
    s->own_steps += report->row_steps;
}

/* What is measured of an answer is of prompt and answer together; its loss is of its own greedy text, and nobody's. */
static void measure_answer(const scaling *s, const scaling_slot *slot)
{
    descent_measure *m = slot->measures;
    if (slot->answer_code != DESCENT_OK) {
        m->code = DESCENT_DIVERGED;
        m->energy = m->relative_change = NAN;
        m->converged = 0;
    }
    m->items = 1;
    m->right = slot->answer_code == DESCENT_OK && slot->chose_end && slot->n_chosen >= 2 &&
               question_is_answered(question_of_task(s, slot->task), s->request.model->tokenizer,
                                    slot->tokens[slot->prompt_count + slot->n_chosen - 2]);
    m->nats = NAN;
}

static void finish(scaling *s, scaling_slot *slot)
{
    const descent_generation_report *report = &slot->report;
    bool diverged = s->answering && report->end == DESCENT_END_FAILED && report->status.code == DESCENT_DIVERGED;
    slot->taken = false;
    s->n_taken--;
    count(s, slot);
    if (report->end == DESCENT_END_CANCELLED) return;
    if (report->end == DESCENT_END_FAILED && !diverged) {
        if (!s->error.status) (void)api_fail_status(&s->error, NULL, &report->status);
        scaling_cancel(s);
    } else if (s->answering) {
        slot->answer_code = diverged ? DESCENT_DIVERGED : DESCENT_OK;
        slot->chose_end = report->end == DESCENT_END_EOS;
        slot->holds = true;
    } else {
        if (s->request.scaling->answers) measure_answer(s, slot);
        s->shared |= slot->shared;
        s->done[slot->task] = true;
        s->n_done++;
        s->steps_done += steps_of_task(s, slot->task);
    }
}

void scaling_take(scaling *s)
{
    for (size_t i = 0; s->slots && i < s->n_slots; i++) {
        (void)pthread_mutex_lock(&s->lock);
        bool has_ended = s->slots[i].taken && s->slots[i].ended;
        (void)pthread_mutex_unlock(&s->lock);
        if (has_ended) finish(s, &s->slots[i]);
    }
}
